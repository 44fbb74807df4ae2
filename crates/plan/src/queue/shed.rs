//! When waiting is hopeless: the control law of CoDel (RFC 8289), made for requests.
//!
//! ```text
//!            a wait above target            still above after interval
//!     calm ─────────────────────────► late ────────────────────────────► shedding
//!       ▲                              │                                    │
//!       └─ one is served whose wait was below target, or no request waits ──────┘
//! ```
//! Each lane has this for itself. What counts are the waits of those from whom someone would be refused: that others are
//! served at once, of a better class or a key that asks for less, says nothing about those.
//!
//! A burst makes waits long for a moment, and goes by: no one is refused. What stands is a queue that never gets short,
//! where waiting longer helps no one. Then one is refused, the next `interval` later, the next sooner by the square root of
//! their count, until what is left is short. When that comes back soon, the rate goes on from where it was.
//!
//! Packets slow down when some are lost; requests of many clients do not, and that rate alone would be behind a flood for
//! many seconds. So it grows by a quarter, and not by one, with each refusal while waits are longer than target and interval
//! together.

use std::time::{Duration, Instant};

use model::queue::Shed;

/// After shedding, so many intervals its rate is remembered.
const REMEMBERED_INTERVALS: u32 = 16;
/// What a new time between two hand-overs counts: one part of so many.
const PACE_PARTS: u32 = 8;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shedder {
    state: State,
    /// Gives the rate.
    count: u32,
    /// When the next refusal would have been, had shedding gone on.
    next: Option<Instant>,
    /// When a place was handed over last, while others waited ever since.
    handed_over: Option<Instant>,
    /// Mean time from one hand-over to the next.
    pace: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Calm,
    /// All waits have been above the target since.
    Late { since: Instant },
    /// The next is refused then.
    Shedding { next: Instant },
}

impl Shedder {
    /// Notes that no request waits any more.
    pub(super) fn rest(&mut self) {
        self.calm();
        self.handed_over = None;
    }

    fn calm(&mut self) {
        if let State::Shedding { next } = self.state {
            self.next = Some(next);
        }
        self.state = State::Calm;
    }

    /// Notes that a place was handed over.
    pub(super) fn hand_over(&mut self, now: Instant) {
        if let Some(before) = self.handed_over.replace(now) {
            let gap = now.saturating_duration_since(before);
            self.pace = if self.pace.is_zero() { gap } else { (self.pace * (PACE_PARTS - 1) + gap) / PACE_PARTS };
        }
    }

    /// Returns how long one would wait who has so many before him, as places have been handed over lately; `longest` is how long the first
    /// of them has waited.
    pub(super) fn forecast(&self, now: Instant, (ahead, longest): (usize, Duration)) -> Duration {
        let since = self.handed_over.map_or(longest, |before| now.saturating_duration_since(before));
        self.pace.max(since).saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX))
    }

    /// Returns whether it has ever refused anyone: then it is worth being remembered.
    pub(super) fn has_shed(&self) -> bool {
        self.count > 0
    }

    /// Takes in that someone who would be refused has waited so long, and waits on.
    pub(super) fn watch(&mut self, rules: &Shed, now: Instant, waited: Duration) {
        if waited >= rules.target {
            self.observe(rules, now, waited);
        }
    }

    /// Takes in that someone was served who has waited so long.
    pub(super) fn observe(&mut self, rules: &Shed, now: Instant, waited: Duration) {
        match self.state {
            _ if waited < rules.target => self.calm(),
            State::Calm => self.state = State::Late { since: now },
            State::Late { since } if now.saturating_duration_since(since) >= rules.interval => self.begin(rules, now),
            State::Late { .. } | State::Shedding { .. } => (),
        }
    }

    fn begin(&mut self, rules: &Shed, now: Instant) {
        let memory = rules.interval.saturating_mul(REMEMBERED_INTERVALS);
        let is_recent = self.next.is_some_and(|next| now.saturating_duration_since(next) < memory);
        // With the one that the first refusal adds, two less than it was.
        self.count = if is_recent { self.count.saturating_sub(3) } else { 0 };
        self.state = State::Shedding { next: now };
    }

    /// Returns whether one of those who wait is to be refused, whose own wait is `wait`, or is going to be. To be asked again, about the
    /// next, until it says no.
    pub(super) fn is_due(&mut self, rules: &Shed, now: Instant, wait: Duration) -> bool {
        let State::Shedding { next } = &mut self.state else { return false };
        // Not calm for that: one line that is long and came just now says nothing about the others.
        if wait < rules.target || now < *next {
            return false;
        }
        // While nothing happened, no one was refused: that is not made up for.
        if now.saturating_duration_since(*next) > rules.interval {
            *next = now;
        }
        let is_behind = wait > rules.target.saturating_add(rules.interval);
        let growth = if is_behind { 1 + self.count / 4 } else { 1 };
        self.count = self.count.saturating_add(growth);
        *next += rules.interval.div_f64(f64::from(self.count).sqrt());
        true
    }
}

#[cfg(test)]
mod tests;
