//! What is known of a provider, as the API and the metrics show it.

use std::time::SystemTime;

/// Longest reason that is shown.
pub(super) const REASON_CHARS_MAX: usize = 500;

/// Whether a provider can be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// It has not answered yet.
    #[default]
    Waiting,
    /// It answered the last time.
    Up,
    /// It cannot be asked: what it said last stays.
    Away,
}

impl Reach {
    /// Returns the name that the API uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Up => "up",
            Self::Away => "away",
        }
    }
}

/// All that is known of a provider.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// `file`, `http` and so on.
    pub kind: &'static str,
    /// Whether it can be asked.
    pub reach: Reach,
    /// Why it is away.
    pub reason: Option<String>,
    /// When it last answered.
    pub last_success: Option<SystemTime>,
    /// When it last wanted something else.
    pub last_change: Option<SystemTime>,
    /// States that were refused.
    pub refused: u64,
    /// What is wrong with the state it wants, if that is not accepted.
    pub problems: Option<String>,
    /// Parts of what it gives that are wrong by themselves and left out, or are as they were while they were right: why, and of
    /// many the first.
    pub left_out: Vec<String>,
    /// The accepted state is from before the program started.
    pub is_kept: bool,
    /// Accepted texts.
    pub texts: usize,
    /// Accepted keys of endpoints, and endpoints.
    pub keys: usize,
    /// See `keys`.
    pub endpoints: usize,
    /// Keys that clusters ask for and it does not give.
    pub missing: Vec<String>,
}

impl Status {
    /// Notes that the provider answered.
    pub(super) fn note_success(&mut self) {
        if self.reach == Reach::Away {
            telemetry::log::info("a provider is reachable again", &[("provider", &self.name)]);
        }
        self.reach = Reach::Up;
        self.reason = None;
        self.last_success = Some(SystemTime::now());
    }

    /// Notes that the provider cannot be asked; logs each reason once.
    pub(super) fn note_failure(&mut self, why: &str) {
        let reason: String = why.chars().take(REASON_CHARS_MAX).collect();
        if self.reason.as_ref() != Some(&reason) {
            let pairs: telemetry::log::Pairs<'_> = &[("provider", &self.name), ("reason", &reason)];
            telemetry::log::warn("a provider is unreachable; its last state stays active", pairs);
        }
        self.reach = Reach::Away;
        self.reason = Some(reason);
    }
}
