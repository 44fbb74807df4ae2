//! Measuring once more what others disturbed, for what is no [`crate::measure::Sample`].

use crate::failure::Failure;
use crate::measure::DISTURBED_SHARE;

/// Measures, and once more when others used the machine meanwhile and `repeats` says so; gives the calmer of the two.
/// When the second one fails, the first is still there.
pub(super) fn calmer<T>(
    repeats: bool,
    others_share: impl Fn(&T) -> f64,
    mut measure: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let first = measure()?;
    if !repeats || others_share(&first) <= DISTURBED_SHARE {
        return Ok(first);
    }
    match measure() {
        Ok(second) if others_share(&second) < others_share(&first) => Ok(second),
        Err(failure) if failure.is_interruption() => Err(failure),
        _ => Ok(first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives these shares one after the other and tells which was taken, and how often it measured.
    fn taken(repeats: bool, shares: &[f64]) -> (f64, usize) {
        let mut made = 0;
        let share = calmer(
            repeats,
            |share: &f64| *share,
            || {
                made += 1;
                shares.get(made - 1).copied().ok_or_else(|| Failure::new("no more"))
            },
        );
        (share.unwrap(), made)
    }

    #[test]
    fn only_what_was_disturbed_is_measured_again_and_the_calmer_one_is_kept() {
        assert_eq!(taken(true, &[0.01, 0.0]), (0.01, 1));
        assert_eq!(taken(true, &[0.5, 0.02]), (0.02, 2));
        assert_eq!(taken(true, &[0.5, 0.8]), (0.5, 2));
        assert_eq!(taken(false, &[0.5, 0.0]), (0.5, 1));
    }

    #[test]
    fn a_second_one_that_fails_leaves_the_first_and_an_interruption_goes_up() {
        assert_eq!(taken(true, &[0.5]), (0.5, 2));
        let mut made = 0;
        let outcome = calmer(
            true,
            |share: &f64| *share,
            || {
                made += 1;
                if made == 1 { Ok(0.5) } else { Err(Failure::interrupted()) }
            },
        );
        assert!(outcome.unwrap_err().is_interruption());
    }
}
