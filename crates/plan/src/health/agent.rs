//! What an agent says of its endpoint, in the words that HAProxy made known.

/// Whether an agent wants its endpoint to have new work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Wish {
    /// It is ready.
    #[default]
    Ready = 0,
    /// Nothing new.
    Drain = 1,
    /// Someone works on it.
    Maintenance = 2,
}

/// All that an agent has said so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// `ready`, `drain` or `maint`.
    pub wish: Wish,
    /// `down`, `failed` or `stopped`, and no `up` since.
    pub is_down: bool,
    /// Of the configured weight, at most [`PERCENT_MAX`].
    pub percent: u16,
}

/// Largest percentage that is taken over.
pub const PERCENT_MAX: u16 = 1_000;

impl Default for Report {
    fn default() -> Self {
        Self { wish: Wish::Ready, is_down: false, percent: 100 }
    }
}

impl Report {
    /// Returns what holds after the agent has said `line`: words apart by blanks, tabs and commas, up to the end of the line or a `#`,
    /// followed by the reason. What is not said stays as it was. `None`: no word of it is known.
    pub fn after(self, line: &str) -> Option<Self> {
        let line = line.split(['\n', '\r', '#']).next().unwrap_or_default();
        let mut report = self;
        let mut is_known = false;
        for word in line.split([' ', '\t', ',']) {
            is_known |= report.take(word);
        }
        is_known.then_some(report)
    }

    fn take(&mut self, word: &str) -> bool {
        match word.to_ascii_lowercase().as_str() {
            "ready" => self.wish = Wish::Ready,
            "drain" => self.wish = Wish::Drain,
            "maint" => self.wish = Wish::Maintenance,
            "up" => self.is_down = false,
            "down" | "failed" | "fail" | "stopped" => self.is_down = true,
            other => match other.strip_suffix('%').map(str::parse::<u32>) {
                Some(Ok(percent)) => self.percent = u16::try_from(percent).unwrap_or(u16::MAX).min(PERCENT_MAX),
                _ => return false,
            },
        }
        true
    }

    /// Packs the report into one word for an atomic; 0 is the default.
    pub(crate) fn to_bits(self) -> u32 {
        u32::from(self.percent ^ 100) << 8 | u32::from(self.is_down) << 2 | self.wish as u32
    }

    /// Returns the reverse of [`Self::to_bits`].
    pub(crate) fn from_bits(bits: u32) -> Self {
        let wish = match bits & 3 {
            1 => Wish::Drain,
            2 => Wish::Maintenance,
            _ => Wish::Ready,
        };
        Self { wish, is_down: bits & 4 != 0, percent: (bits >> 8) as u16 ^ 100 }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let wish = match self.wish {
            Wish::Ready => "ready",
            Wish::Drain => "drain",
            Wish::Maintenance => "maint",
        };
        write!(f, "{wish} {} {}%", if self.is_down { "down" } else { "up" }, self.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_change_what_they_name_and_leave_the_rest() {
        let said = |lines: &[&str]| {
            let take = |report: Report, line: &&str| {
                let report = report.after(line).unwrap_or(report);
                assert_eq!(Report::from_bits(report.to_bits()), report);
                report
            };
            lines.iter().fold(Report::default(), take).to_string()
        };
        assert_eq!(said(&[]), "ready up 100%");
        assert_eq!(said(&["75%"]), "ready up 75%");
        assert_eq!(said(&["drain 10%\n", "up"]), "drain up 10%");
        assert_eq!(said(&["DOWN#disk full, drain"]), "ready down 100%");
        assert_eq!(said(&["failed", "maint,50%\tup\r\nready"]), "maint up 50%");
        assert_eq!(said(&["99999% stopped", "0%"]), "ready down 0%");
        assert_eq!(said(&["99999%"]), "ready up 1000%");
        assert_eq!(
            said(&["99999999999999%", "-5%", "5.5%", "%", "HTTP/1.1 200 OK", "", "\0\0", "# up"]),
            "ready up 100%"
        );
        assert_eq!(Report::default().after("nothing known"), None);
        assert_eq!(Report::default().to_bits(), 0);
    }
}
