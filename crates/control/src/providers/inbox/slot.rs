//! The slot of one provider: what it wants, what of that is in force, and what becomes of the difference.
//!
//! ```text
//!            send: something else                 refuse               put_off
//!  Settled ───────────────────────▶ Waiting ───────────────▶ Refused ─────────▶ PutOff { at }
//!   ▲ ▲ ▲                           │  ▲  ▲                  │  │ ▲                 │  │
//!   │ │ └─── settle: it is in force ┘  │  └── send: other ───┘  │ └─── taken at `at` ┘  │
//!   │ └─── send: what is in force ─────┘◀──── send: other ──────┼───────────────────────┘
//!   └────────────────────────── settle: it is in force ─────────┘
//! ```
//! What is refused is wrong, and is tried only with other changes. What is put off was right, but the data plane did not take it: it is due
//! again after a wait that grows. A slot may also go from `Settled` to `Refused`, when parts that were left out are tried again in vain.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::super::backoff::backoff;
use super::status::{REASON_CHARS_MAX, Status};
use crate::given::State;

/// Longest text of diagnostics that is shown.
const PROBLEMS_CHARS_MAX: usize = 20_000;
/// Parts that are left out and shown one by one.
const LEFT_OUT_MAX: usize = 20;

/// What becomes of what a provider wants.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Phase {
    /// It wants nothing, or only what is accepted.
    #[default]
    Settled,
    /// It is due, or is being tried.
    Waiting,
    /// It was refused, and that was logged.
    Refused {
        /// How often it was put off before.
        tries: u32,
    },
    /// It was refused by the data plane, and is tried again.
    PutOff {
        /// When.
        at: Instant,
        /// How often it was put off.
        tries: u32,
    },
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) status: Status,
    phase: Phase,
    /// What it says itself that it leaves out, and what did not fit beside all else.
    pub(super) left_out: [Vec<String>; 2],
    /// What it wants.
    latest: Option<Arc<State>>,
    /// Its accepted state.
    settled: Option<Arc<State>>,
    /// Its place among all.
    pub(super) place: usize,
}

impl Slot {
    /// Returns what it wants, if it wants something.
    pub(super) fn latest(&self) -> Option<&Arc<State>> {
        self.latest.as_ref()
    }

    /// Returns what it wants that is not accepted.
    pub(super) fn unsettled(&self) -> Option<&Arc<State>> {
        self.latest.as_ref().filter(|_| self.latest != self.settled)
    }

    /// Returns whether it waits to be tried.
    pub(super) fn is_waiting(&self) -> bool {
        self.phase == Phase::Waiting
    }

    /// Returns whether what it wants was refused.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.phase, Phase::Refused { .. } | Phase::PutOff { .. })
    }

    /// Returns when it is tried again, if it was put off.
    pub(super) fn again_at(&self) -> Option<Instant> {
        if let Phase::PutOff { at, .. } = self.phase { Some(at) } else { None }
    }

    /// Takes a state that was saved, unless the provider has said something.
    pub(super) fn set_kept(&mut self, state: State) {
        if self.latest.is_none() {
            (self.latest, self.phase) = (Some(Arc::new(state)), Phase::Waiting);
            self.status.is_kept = true;
        }
    }

    /// Takes a new state from the provider. Returns whether it is due: it differs from the one wanted before, and from the accepted one.
    pub(super) fn send(&mut self, state: State) -> bool {
        if self.latest.as_deref() == Some(&state) {
            return false;
        }
        self.latest = Some(Arc::new(state));
        self.status.last_change = Some(SystemTime::now());
        let is_due = self.latest != self.settled;
        if is_due {
            self.phase = Phase::Waiting;
        } else {
            self.settled_now();
        }
        is_due
    }

    /// Takes the accepted state.
    pub(super) fn settle(&mut self, wanted: &Arc<State>) {
        self.settled = Some(Arc::clone(wanted));
        if self.latest.is_none() || self.latest == self.settled {
            self.latest = self.settled.clone();
            self.settled_now();
        } else if self.phase == Phase::Settled {
            // It wanted the previously accepted state again.
            self.phase = Phase::Waiting;
        }
    }

    fn settled_now(&mut self) {
        self.phase = Phase::Settled;
        self.status.problems = None;
    }

    /// Takes it for a try. While others `wait`, what was put off is put off again.
    pub(super) fn take(&mut self, waits: bool) {
        let Phase::PutOff { at, tries } = self.phase else { return };
        self.phase = match waits {
            true => Phase::PutOff { at: at.max(Instant::now() + backoff(tries, &self.status.name)), tries },
            false => Phase::Refused { tries },
        };
    }

    /// Refuses a state, unless the provider wants another by now. Returns whether that is to be logged.
    pub(super) fn refuse(&mut self, state: &Arc<State>, why: &str) -> bool {
        if !self.wants(state) {
            return false;
        }
        self.status.problems = Some(why.chars().take(PROBLEMS_CHARS_MAX).collect());
        if self.is_refused() {
            return false;
        }
        self.phase = Phase::Refused { tries: 0 };
        self.status.refused += 1;
        true
    }

    /// Puts a state off that was refused, unless the provider wants another by now. Returns whether it was.
    pub(super) fn put_off(&mut self, state: &Arc<State>) -> bool {
        let (Phase::Refused { tries } | Phase::PutOff { tries, .. }) = self.phase else { return false };
        if !self.wants(state) {
            return false;
        }
        let tries = tries.saturating_add(1);
        self.phase = Phase::PutOff { at: Instant::now() + backoff(tries, &self.status.name), tries };
        true
    }

    fn wants(&self, state: &Arc<State>) -> bool {
        self.latest.as_ref().is_some_and(|latest| Arc::ptr_eq(latest, state))
    }

    /// Shows what is left out, of much the first. Returns what was not shown before.
    pub(super) fn tell_left_out(&mut self) -> Vec<String> {
        let cut = |problem: &String| problem.chars().take(REASON_CHARS_MAX).collect::<String>();
        let now: Vec<String> = self.left_out.iter().flatten().take(LEFT_OUT_MAX).map(cut).collect();
        let before = std::mem::replace(&mut self.status.left_out, now.clone());
        now.into_iter().filter(|problem| !before.contains(problem)).collect()
    }
}

#[cfg(test)]
mod tests {
    use plan::Random;

    use super::*;
    use crate::given::Text;

    fn state(version: u64) -> State {
        State { texts: vec![Text { text: version.to_string(), ..Text::default() }], ..State::default() }
    }

    #[test]
    fn the_phase_agrees_with_what_is_wanted_and_in_force_whatever_happens() {
        let mut seen = [0; 4];
        for seed in 0..500 {
            let (mut slot, mut random) = (Slot::default(), Random::new(seed));
            slot.status.name = "a".to_owned();
            let mut known: Vec<Arc<State>> = Vec::new();
            for _ in 0..40 {
                let old = known.get(random.below(known.len() as u64) as usize).cloned();
                match (random.below(8), old) {
                    (0, _) => slot.set_kept(state(random.below(3))),
                    (1 | 2, _) | (_, None) => _ = slot.send(state(random.below(3))),
                    (3, Some(old)) => slot.settle(&old),
                    (4, Some(old)) => _ = slot.refuse(&old, "it is bad"),
                    (5, Some(old)) => _ = slot.put_off(&old),
                    (_, Some(_)) => slot.take(random.below(2) == 0),
                }
                known.extend(slot.latest().cloned());
                let kind = match slot.phase {
                    Phase::Settled => 0,
                    Phase::Waiting => 1,
                    Phase::Refused { .. } => 2,
                    Phase::PutOff { .. } => 3,
                };
                seen[kind] += 1;
                match slot.phase {
                    Phase::Settled => assert_eq!((slot.unsettled(), slot.status.problems.is_some()), (None, false)),
                    Phase::Waiting => assert!(slot.unsettled().is_some(), "{seed}: something waits"),
                    Phase::Refused { .. } | Phase::PutOff { .. } => {
                        assert!(slot.status.problems.is_some() && slot.status.refused > 0, "{seed}: it is shown");
                    }
                }
                assert_eq!(slot.again_at().is_some(), kind == 3);
            }
        }
        assert!(seen.iter().all(|times| *times > 100), "{seen:?}");
    }
}
