//! What a process hands its successor about the ejections of an endpoint.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use model::fitness::PassiveHealth;

use super::ejection::{Cause, Ejection, Evidence};
use super::run::Run;
use super::{Judge, PassiveState};

/// Largest number of an ejection that is taken over: there are always some left.
const NUMBER_MAX: u64 = u64::MAX >> 1;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassiveHandover {
    /// Its place in the order of ejections, and how long it still lasts, while one does.
    pub ejected: Option<(u64, Duration)>,
    /// What that is for.
    pub evidence: Option<Evidence>,
    /// By how much the next one lasts longer.
    pub level: u32,
    /// How often it was ejected, by cause.
    pub counts: Vec<(Cause, u64)>,
    /// Failures in a row, and failures or statuses from 500 in a row.
    pub run: (u32, u32),
}

impl PassiveState {
    pub(crate) fn hand_over(&self, now: Instant) -> PassiveHandover {
        let (ejection, number) = (self.ejection(), self.ejected());
        let left = ejection.until.map(|until| until.saturating_duration_since(now));
        let run = Run::from_bits(self.run.load(Ordering::Relaxed));
        PassiveHandover {
            ejected: left.filter(|_| number > 0).map(|left| (number, left)),
            evidence: ejection.evidence,
            level: ejection.level,
            counts: Cause::ALL.into_iter().map(|cause| (cause, ejection.count(cause))).collect(),
            run: run.parts(),
        }
    }

    /// Takes over what the predecessor knew. An ejection by its rules lasts no longer than one by these.
    pub(crate) fn inherit(&self, handed: &PassiveHandover, (rules, judge): (&PassiveHealth, &mut Judge), now: Instant) {
        let mut ejection = Ejection { level: handed.level, ..Ejection::default() };
        for (cause, count) in &handed.counts {
            ejection.counts[*cause as usize] = *count;
        }
        let (failures, bad) = handed.run;
        self.run.store(Run::of(failures, bad).to_bits(), Ordering::Relaxed);
        let number = handed.ejected.map_or(0, |(number, _)| number.min(NUMBER_MAX));
        if let Some((_, left)) = handed.ejected {
            ejection.until = Some(now + left.min(rules.ejection_time_max));
            ejection.evidence = handed.evidence;
            // Those that come from now on are later.
            judge.numbers = judge.numbers.max(number);
        }
        *self.lock() = ejection;
        self.ejected.store(number, Ordering::Release);
    }
}
