//! How the program ends: the exit codes, in one place. The help text tells them to users.

use std::process::ExitCode;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// In good order.
    Good,
    /// The configuration is bad, or something checked is not as it should be.
    Bad,
    /// What was to be checked could not be looked at.
    CannotTell,
    /// It could not start.
    CannotStart,
    /// Before all exchanges had ended.
    CutShort,
    /// No one said whether what was asked for was done.
    Unknown,
}

impl Ending {
    /// Returns the exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::Bad => 1,
            // As for a wrong command line, which clap answers.
            Self::CannotTell => 2,
            Self::CannotStart => 3,
            Self::CutShort => 4,
            Self::Unknown => 5,
        }
    }
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(ending.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::AFTER_HELP;

    #[test]
    fn every_exit_code_is_told_in_the_help() {
        for ending in
            [Ending::Good, Ending::Bad, Ending::CannotTell, Ending::CannotStart, Ending::CutShort, Ending::Unknown]
        {
            assert!(AFTER_HELP.contains(&format!("\n  {}  ", ending.code())), "{ending:?}");
        }
    }
}
