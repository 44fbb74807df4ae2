//! Whether a failed attempt is followed by another, and when.
//!
//! Pure: what failed, how often, what the budget holds, the time and chance go in; a [`Verdict`] comes out.

use std::time::{Duration, Instant};

use model::limits::RETRIES_SAVED_MAX;
use model::retry::{Backoff, Budget, Retry};
use model::{Fault, Method};

use crate::random::scale;

/// The time whose `per_second` a worker has from its beginning.
pub const START: Duration = Duration::from_secs(10);

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It came to no response.
    Fault(Fault),
    /// A response with this status came.
    Status(u16),
    /// A call of gRPC ended with this status alone.
    Grpc(u8),
}

impl Failure {
    /// Returns whether the endpoint can have seen nothing of the request, so that any request may go to another.
    fn is_before_sending(self) -> bool {
        matches!(self, Self::Fault(fault) if fault.consequence().retryable)
    }
}

/// A request whose attempt failed.
#[derive(Clone, Copy, Debug)]
pub struct Attempted {
    /// How.
    pub failure: Failure,
    /// Its method.
    pub method: Method,
    /// Nothing of the request is gone: it has no body, or the body is kept.
    pub is_replayable: bool,
    /// Attempts made, this one included.
    pub attempts: u32,
    /// Time since the first attempt began.
    pub since_first: Duration,
    /// An endpoint gets work, and is one that the request may go to, which was not tried.
    pub has_untried: bool,
    /// One of those is a backup in reserve, see [`is_for_backup`].
    pub has_untried_backup: bool,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: the client gets the failure.
    GiveUp,
    /// Nothing, only because the budget is used up.
    NoBudget,
    /// Another attempt after this time.
    Again(Duration),
}

/// Decides. `random` is asked at most once.
pub fn decide(
    policy: &Retry,
    attempted: &Attempted,
    savings: &mut Savings,
    now: Instant,
    random: &mut dyn FnMut() -> u64,
) -> Verdict {
    if attempted.attempts >= policy.attempts_max
        && !(is_for_backup(policy, attempted.attempts) && attempted.has_untried_backup)
    {
        return Verdict::GiveUp;
    }
    if !attempted.has_untried && !policy.same_endpoint {
        return Verdict::GiveUp;
    }
    let holds = match attempted.failure {
        Failure::Fault(fault) => policy.on.holds_fault(fault),
        Failure::Status(status) => policy.on.holds_status(status),
        Failure::Grpc(status) => policy.on.holds_grpc(status),
    };
    let free = attempted.failure.is_before_sending();
    // What a stream that was refused has taken of the body is gone, though no one has looked at it.
    let is_there = attempted.is_replayable || free && attempted.failure != Failure::Fault(Fault::StreamRefused);
    if !holds || !is_there || !(free || policy.methods.allow(attempted.method)) {
        return Verdict::GiveUp;
    }
    let pause = policy.backoff.map_or(Duration::ZERO, |backoff| pause(backoff, attempted.attempts, random()));
    if policy.time_max.is_some_and(|max| attempted.since_first.saturating_add(pause) > max) {
        return Verdict::GiveUp;
    }
    if !free && policy.budget.is_some_and(|budget| !savings.spend(budget, now)) {
        return Verdict::NoBudget;
    }
    Verdict::Again(pause)
}

/// Returns whether the next attempt goes to a backup or is not made: when all that the rules allow have failed, a backup is asked once
/// more. Without that, a cluster with many endpoints that fail would never use its backups. Rules that allow one attempt alone hold here
/// too.
pub fn is_for_backup(policy: &Retry, attempts: u32) -> bool {
    policy.attempts_max > 1 && attempts == policy.attempts_max
}

/// Undoes what the decision for another attempt took from the savings: there is none after all.
pub fn take_back(policy: &Retry, failure: Failure, savings: &mut Savings) {
    if policy.budget.is_some() && !failure.is_before_sending() {
        savings.add(1000);
    }
}

/// Returns the pause after `attempts`: doubling, bounded, and drawn from its upper half so that those who failed together do not come back
/// together.
fn pause(backoff: Backoff, attempts: u32, bits: u64) -> Duration {
    let doubled = 1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    let whole = backoff.base.saturating_mul(doubled).min(backoff.max);
    let half = u64::try_from(whole.as_nanos() / 2).unwrap_or(u64::MAX);
    whole - Duration::from_nanos(scale(bits, half.saturating_add(1)))
}

/// What one worker has saved up of a cluster's budget. Every request adds its share, every retry takes one whole;
/// `per_second` comes in with time, each worker getting its part.
#[derive(Clone, Debug)]
pub struct Savings {
    /// Thousandths of a retry.
    thousandths: u64,
    /// Until when `per_second` has been added.
    paid_until: Instant,
    workers: u32,
}

impl Savings {
    /// Returns those of a worker that begins at `now` as one of `workers`. The first failures must not find nothing saved: it begins with
    /// what `per_second` brings in [`START`].
    pub fn new(workers: u32, now: Instant) -> Self {
        Self { thousandths: 0, paid_until: now.checked_sub(START).unwrap_or(now), workers: workers.max(1) }
    }

    /// Adds the share of one request.
    #[inline]
    pub fn earn(&mut self, budget: Budget) {
        self.add(u64::from(budget.percent) * 10);
    }

    /// Takes one retry, if there is one.
    pub(crate) fn spend(&mut self, budget: Budget, now: Instant) -> bool {
        let enough = self.holds_one(budget, now);
        if enough {
            self.thousandths -= 1000;
        }
        enough
    }

    /// Returns whether there is one to take.
    pub(crate) fn holds_one(&mut self, budget: Budget, now: Instant) -> bool {
        self.earn_with_time(budget, now);
        self.thousandths >= 1000
    }

    fn earn_with_time(&mut self, budget: Budget, now: Instant) {
        let elapsed = now.saturating_duration_since(self.paid_until);
        if elapsed > Duration::from_secs(3600) {
            self.paid_until = now - Duration::from_secs(3600);
        }
        let micros = now.saturating_duration_since(self.paid_until).as_micros() as u64;
        let each = u64::from(self.workers) * 1000;
        let earned = micros * u64::from(budget.per_second) / each;
        // The clock moves on by what was paid out only: fractions are not lost when failures come fast.
        if budget.per_second > 0 {
            let paid = (earned * each).div_ceil(u64::from(budget.per_second));
            self.paid_until += Duration::from_micros(paid);
        }
        self.add(earned);
    }

    fn add(&mut self, thousandths: u64) {
        self.thousandths = self.thousandths.saturating_add(thousandths).min(u64::from(RETRIES_SAVED_MAX) * 1000);
    }
}

#[cfg(test)]
mod tests;
