//! A share of requests, such as `5%`.

use model::Issue;

use super::Turn;

/// A share in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share(u32);

impl Share {
    const WHOLE: u32 = 1_000_000;
    /// All requests.
    pub(super) const ALL: Self = Self(Self::WHOLE);
    /// How shares are written, for the schema.
    pub(super) const PATTERN: &str = r"^[0-9]{1,3}(\.[0-9]{1,4})?%$";

    /// Reads a percentage of up to four decimals, such as `5%` or `0.25%`; without a text it is [`Self::ALL`].
    ///
    /// # Errors
    /// It is none, or more than `100%`. The path of the issue is empty.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, Issue> {
        let Some(text) = text else { return Ok(Self::ALL) };
        let wrong = || Issue::at("", format!("`{text}` is not a share")).suggest("write it as `5%` or `0.25%`");
        let number = text.strip_suffix('%').ok_or_else(wrong)?;
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let is_digits = |part: &str, most: usize| {
            (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_digits(whole, 3) || !is_digits(decimals, 4) {
            return Err(wrong());
        }
        let read = |part: &str| part.parse::<u32>().map_err(|_| wrong());
        let millionths = read(whole)? * 10_000 + read(&format!("{decimals:0<4}"))?;
        if millionths > Self::WHOLE {
            return Err(Issue::at("", format!("`{text}` is more than all requests")).suggest("use at most `100%`"));
        }
        Ok(Self(millionths))
    }

    /// Whether this request is one of the share. Only all or none is known ahead: a rehearsal is never one of a part.
    pub(super) fn draws(self, turn: &mut Turn<'_>) -> bool {
        match self.0 {
            0 => false,
            Self::WHOLE => true,
            _ if turn.is_rehearsal => false,
            // 64 bits: the remainder favours no request by more than one in ten billion.
            part => (turn.chance)() % u64::from(Self::WHOLE) < part.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Beside, World};
    use super::*;

    #[test]
    fn shares_are_percentages_with_up_to_four_decimals() {
        for (text, millionths) in [("0%", 0), ("0.0001%", 1), ("0.25%", 2_500), ("5%", 50_000), ("100%", 1_000_000)] {
            assert_eq!(Share::parse(Some(text)), Ok(Share(millionths)), "{text}");
        }
        assert_eq!(Share::parse(None), Ok(Share::ALL));
        for text in ["", "%", "5", "5 %", "-1%", "+1%", ".5%", "5.%", "0.00001%", "1000%", "1e2%", "٣%"] {
            assert!(Share::parse(Some(text)).unwrap_err().message.contains("is not a share"), "{text}");
        }
        for text in ["101%", "100.0001%", "999%"] {
            assert!(Share::parse(Some(text)).unwrap_err().message.contains("more than all"), "{text}");
        }
    }

    #[test]
    fn as_many_are_drawn_as_the_share_says_and_a_rehearsal_draws_from_nothing() {
        let (world, mut state) = (World::new(), 1_u64);
        let mut beside = Beside::new();
        let facts = world.facts();
        let mut turn = beside.turn(&facts);
        let mut chance = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 16
        };
        turn.chance = &mut chance;
        let drawn = |share: &str, turn: &mut Turn<'_>| {
            let share = Share::parse(Some(share)).unwrap();
            (0..100_000).filter(|_| share.draws(turn)).count()
        };
        assert_eq!((drawn("0%", &mut turn), drawn("100%", &mut turn)), (0, 100_000));
        let tenth = drawn("10%", &mut turn);
        assert!((9_500..10_500).contains(&tenth), "{tenth}");
        turn.is_rehearsal = true;
        assert_eq!((drawn("99%", &mut turn), drawn("100%", &mut turn)), (0, 100_000));
    }
}
