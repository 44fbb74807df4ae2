//! Whether an endpoint is fit for work, as its active checks tell.

pub mod agent;
pub mod expectation;
pub mod handover;
pub mod passive;
pub(crate) mod ramp;
pub mod standing;

use model::snapshot::HealthCheck;

/// Result of one active check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The endpoint answered as expected.
    Success,
    /// It did not, or not in time.
    Failure,
}

/// What the checks of one endpoint have told so far.
///
/// ```text
///              first success                fall failures in a row
///   Unknown ───────────────────▶ Up ─────────────────────────────────▶ Down
///      │                          ◀─────────────────────────────────── ▲
///      │                               rise successes in a row         │
///      └───────────────────────────────────────────────────────────────┘
///              first failure
/// ```
///
/// An endpoint gets work while it is `Unknown` or `Up`: a new endpoint serves at once, unless its first check fails. Where
/// the check holds new endpoints out, `Unknown` gets none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum HealthState {
    /// Not checked yet, or no check is configured.
    #[default]
    Unknown = 0,
    /// Its checks succeed.
    Up = 1,
    /// Its checks fail.
    Down = 2,
}

impl HealthState {
    /// Whether an endpoint in this state gets work. `held_out`: see [`HealthCheck::held_out`].
    pub fn serves(self, held_out: bool) -> bool {
        match self {
            Self::Up => true,
            Self::Unknown => !held_out,
            Self::Down => false,
        }
    }

    /// As the admin API and metrics write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// A step from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Before.
    pub from: HealthState,
    /// After; never equal to `from`.
    pub to: HealthState,
}

impl Change {
    /// Whether the endpoint now gets work and did not before, or the other way round.
    pub fn alters_availability(self, check: &HealthCheck) -> bool {
        self.from.serves(check.held_out) != self.to.serves(check.held_out)
    }
}

/// The state machine of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    state: HealthState,
    /// Outcomes in a row that speak against `state`.
    against: u32,
}

impl Health {
    /// The state of an endpoint that was at work before it had a check.
    pub(crate) fn presumed_up() -> Self {
        Self { state: HealthState::Up, against: 0 }
    }

    /// What another process knows.
    pub(crate) fn of(state: HealthState, against: u32) -> Self {
        Self { state, against }
    }

    /// Where it stands.
    pub fn state(&self) -> HealthState {
        self.state
    }

    /// Outcomes in a row that speak against the state: failures while up, successes while down.
    pub fn against(&self) -> u32 {
        self.against
    }

    /// Takes in one outcome. `rise` and `fall` of the check count from 1; 0 means 1.
    pub fn observe(&mut self, outcome: Outcome, check: &HealthCheck) -> Option<Change> {
        let (towards, needed) = match (self.state, outcome) {
            (HealthState::Unknown, Outcome::Success) => (HealthState::Up, 1),
            (HealthState::Unknown, Outcome::Failure) => (HealthState::Down, 1),
            (HealthState::Up, Outcome::Failure) => (HealthState::Down, check.fall),
            (HealthState::Down, Outcome::Success) => (HealthState::Up, check.rise),
            (HealthState::Up, Outcome::Success) | (HealthState::Down, Outcome::Failure) => {
                self.against = 0;
                return None;
            }
        };
        self.against = self.against.saturating_add(1);
        if self.against < needed {
            return None;
        }
        let change = Change { from: self.state, to: towards };
        *self = Self { state: towards, against: 0 };
        Some(change)
    }

    /// Both parts in one word, so that an atomic can hold them.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.against) << 8 | self.state as u64
    }

    /// The reverse of [`Self::to_bits`].
    pub(crate) fn from_bits(bits: u64) -> Self {
        let state = match bits & 0xff {
            1 => HealthState::Up,
            2 => HealthState::Down,
            _ => HealthState::Unknown,
        };
        Self { state, against: (bits >> 8) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::snapshot::HealthCheckKind;

    use super::*;

    fn check(rise: u32, fall: u32) -> HealthCheck {
        let second = Duration::from_secs(1);
        HealthCheck { rise, fall, ..HealthCheck::new(HealthCheckKind::Tcp, second, second) }
    }

    /// Feeds `+` and `-`, and tells the state after each as `u`p, `d`own.
    fn run(outcomes: &str, check: &HealthCheck) -> String {
        let mut health = Health::default();
        let mut told = String::new();
        for sign in outcomes.chars() {
            let before = health.state();
            let outcome = if sign == '+' { Outcome::Success } else { Outcome::Failure };
            let change = health.observe(outcome, check);
            assert_eq!(change.is_some(), before != health.state());
            assert_eq!(change.map(|c| (c.from, c.to)), change.map(|_| (before, health.state())));
            assert_eq!(Health::from_bits(health.to_bits()), health);
            told.push(health.state().as_str().chars().next().unwrap());
        }
        told
    }

    #[test]
    fn the_first_check_decides_alone() {
        assert!(HealthState::Unknown.serves(false) && !HealthState::Unknown.serves(true));
        assert_eq!(run("+", &check(3, 3)), "u");
        assert_eq!(run("-", &check(3, 3)), "d");
    }

    #[test]
    fn only_failures_in_a_row_bring_an_endpoint_down_and_only_successes_in_a_row_bring_it_up() {
        assert_eq!(run("+--+---", &check(2, 3)), "uuuuuud");
        assert_eq!(run("-+-++", &check(2, 3)), "ddddu");
        assert_eq!(run("+-+-", &check(1, 1)), "udud");
        assert_eq!(run("+-+-", &check(0, 0)), "udud");
    }

    #[test]
    fn a_success_after_no_check_at_all_changes_nothing_for_the_balancer() {
        let mut health = Health::default();
        let change = health.observe(Outcome::Success, &check(1, 1)).unwrap();
        assert!(!change.alters_availability(&check(1, 1)));
        assert!(change.alters_availability(&HealthCheck { held_out: true, ..check(1, 1) }));
        let change = health.observe(Outcome::Failure, &check(1, 1)).unwrap();
        assert!(change.alters_availability(&check(1, 1)));
    }
}
