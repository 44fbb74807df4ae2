//! Passive health: what exchanges tell of their endpoints, and who gets no work for a while because of it.
//!
//! A worker tells how an exchange went by [`ClusterPlan::witness`]. Failures in a row eject at once, on that worker. Rates
//! and latency are counted over an interval and compared at its end, by [`ClusterPlan::tick`], which one thread calls
//! every so often and which also ends ejections that have lasted long enough.
//!
//! Nothing is counted while a cluster has no passive health. Otherwise a success reads one word of the endpoint's that is
//! seldom written, and adds to its window only if rates or latency are looked at. The mutex is touched only to eject and
//! at ticks.
//!
//! Start reading at [`Run`] (in a row), then [`outliers`] (over an interval), then [`ejection`] (for how long).

pub mod ejection;
mod handover;
pub mod outliers;
mod run;
#[cfg(test)]
pub(super) mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::Name;
use model::fitness::PassiveHealth;

use crate::cluster::state::EndpointState;
use crate::cluster::{ClusterPlan, EndpointPlan};
use crate::health::standing::Roll;
use crate::padded::Padded;
use crate::resilience::breaker::Phase;
pub use ejection::{Cause, Ejection, Evidence};
pub use handover::PassiveHandover;
use outliers::Window;
use run::Run;

/// How an exchange went, as far as its endpoint is answerable for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It answered.
    Answered {
        /// Status of the final response; 0 for what has none.
        status: u16,
        /// Until the head of the response, or until a TCP connection stood; 0: not known.
        latency: Duration,
    },
    /// It did not: no connection, no answer in time, a broken answer.
    Failed,
}

impl Seen {
    /// Whether it speaks for the endpoint: an answer below 500.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Answered { status, .. } if status < 500)
    }
}

/// What happened to an endpoint, for the log.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// It gets no work for a while.
    Ejected {
        /// Which.
        endpoint: Name,
        /// Why.
        evidence: Evidence,
        /// For how long.
        lasts: Duration,
        /// Endpoints of the cluster that are ejected now, and how many may be.
        ejected: (usize, usize),
    },
    /// It gets work again, as far as ejection goes.
    Released {
        /// Which.
        endpoint: Name,
    },
    /// The circuit of the cluster has opened, is tried, or has closed.
    Circuit(Phase),
    /// So few endpoints of the cluster are fit that all get work, or no longer so.
    Panic {
        /// Whether they do now.
        begins: bool,
        /// Endpoints that are fit, and those that could be.
        fit: (usize, usize),
    },
}

/// What is kept of what happened until somebody asks.
const NEWS_MAX: usize = 1_024;

/// What is known of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct PassiveState {
    /// A [`Run`]; read by every exchange, written by those that go wrong and the first that goes well after.
    run: Padded<AtomicU64>,
    /// What the interval has brought so far.
    window: Padded<Counts>,
    /// 0, or the number of the ejection that lasts: later ones have higher numbers.
    ejected: AtomicU64,
    /// Locked for moments, by those who hold the cluster's [`Judge`] and by who looks at the status.
    ejection: Mutex<Ejection>,
}

#[derive(Debug, Default)]
struct Counts {
    good: AtomicU64,
    bad: AtomicU64,
    /// Good ones of unknown latency.
    untimed: AtomicU64,
    /// Of the other good ones, added up.
    latency_nanos: AtomicU64,
}

/// What decisions of one cluster need to be made one after the other.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// Ejections so far.
    numbers: u64,
    interval_ends: Option<Instant>,
    panics: bool,
    /// What happened since the last tick, oldest first.
    news: Vec<Event>,
}

impl Judge {
    fn tell(&mut self, event: Event) {
        if self.news.len() < NEWS_MAX {
            self.news.push(event);
        }
    }
}

impl PassiveState {
    /// 0, or a number that is higher for later ejections.
    pub(crate) fn ejected(&self) -> u64 {
        self.ejected.load(Ordering::Acquire)
    }

    /// What is known of its ejections.
    pub(crate) fn ejection(&self) -> Ejection {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Ejection> {
        self.ejection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_window(&self) -> Window {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let Counts { good, bad, untimed, latency_nanos } = &*self.window;
        Window { good: take(good), bad: take(bad), untimed: take(untimed), latency_nanos: take(latency_nanos) }
    }

    fn count(&self, seen: Seen) {
        match seen {
            Seen::Answered { latency, .. } if seen.is_good() => {
                let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
                self.window.good.fetch_add(1, Ordering::Relaxed);
                match nanos {
                    0 => self.window.untimed.fetch_add(1, Ordering::Relaxed),
                    _ => self.window.latency_nanos.fetch_add(nanos, Ordering::Relaxed),
                };
            }
            _ => _ = self.window.bad.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Brings the run up to date; `Some` unless it is empty now.
    #[inline]
    fn run(&self, seen: Seen) -> Option<Run> {
        let before = self.run.load(Ordering::Relaxed);
        if seen.is_good() {
            if before != 0 {
                self.run.store(0, Ordering::Relaxed);
            }
            return None;
        }
        let next = |bits: u64| Some(Run::from_bits(bits).after(seen).to_bits());
        let before = self.run.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        Some(Run::from_bits(before).after(seen))
    }

    fn begin(&self, number: u64, (evidence, rules): (Evidence, &PassiveHealth), now: Instant) -> Duration {
        let lasts = self.lock().begin(evidence, rules, now);
        self.ejected.store(number, Ordering::Release);
        lasts
    }

    fn release(&self) {
        self.lock().end();
        // What went wrong before is paid for.
        self.run.store(0, Ordering::Relaxed);
        self.take_window();
        self.ejected.store(0, Ordering::Release);
    }

    /// Forgets everything but how often it was ejected.
    pub(crate) fn forget(&self) {
        self.lock().forget();
        self.run.store(0, Ordering::Relaxed);
        self.take_window();
        self.ejected.store(0, Ordering::Release);
    }
}

impl ClusterPlan {
    /// Takes in how an exchange with one of the endpoints went. If the endpoint is ejected for it, all workers see that at
    /// their next pick. Costs a branch while the cluster has no passive health.
    #[inline]
    pub fn witness(&self, endpoint: &EndpointState, seen: Seen, now: Instant) {
        self.tell_time(endpoint, seen, now);
        let Some(rules) = &self.cluster.fitness.passive else { return };
        let passive = endpoint.passive();
        if rules.has_windows() {
            passive.count(seen);
        }
        if let Some(run) = passive.run(seen)
            && let Some(evidence) = run.verdict(rules)
        {
            self.eject_for_run(rules, endpoint, evidence, now);
        }
    }

    #[cold]
    fn eject_for_run(&self, rules: &PassiveHealth, endpoint: &EndpointState, evidence: Evidence, now: Instant) {
        if let Some(index) = self.endpoints.iter().position(|plan| std::ptr::eq(&*plan.state, endpoint)) {
            self.eject(rules, &[(index, evidence)], now);
        }
    }

    /// Ejects those of `wanted` whom the rules let go, in this order.
    fn eject(&self, rules: &PassiveHealth, wanted: &[(usize, Evidence)], now: Instant) {
        let mut any = false;
        let mut judge = self.state.judge();
        for &(index, evidence) in wanted {
            let roll = Roll::call(&self.cluster, &self.endpoints);
            if !roll.may_eject(index) {
                continue;
            }
            judge.numbers += 1;
            let EndpointPlan { endpoint, state, .. } = &self.endpoints[index];
            let lasts = state.passive().begin(judge.numbers, (evidence, rules), now);
            let ejected = (roll.ejected + 1, roll.ejected_max);
            judge.tell(Event::Ejected { endpoint: endpoint.name.clone(), evidence, lasts, ejected });
            any = true;
        }
        drop(judge);
        if any {
            self.announce();
            // Whoever waited for one of them alone may go elsewhere now.
            crate::queue::dispatch(&self.state);
        }
    }

    /// Whether [`Self::tick`] has anything to do, now or ever.
    pub fn needs_ticks(&self) -> bool {
        let fitness = &self.cluster.fitness;
        fitness.passive.is_some() || fitness.slow_start.is_some() || fitness.panic_percent > 0 || self.is_guarded()
    }

    /// Does what time brings: ends ejections, and at the end of an interval compares endpoints. Tells what has happened
    /// since the last tick. One thread calls this every so often; how often bounds how late things happen.
    pub fn tick(&self, now: Instant) -> Vec<Event> {
        if let Some(rules) = &self.cluster.fitness.passive {
            self.judge_all(rules, now);
        }
        if let Some(over) = self.cluster.fitness.slow_start {
            // All of them, whatever the first says.
            let changed = self.endpoints.iter().filter(|plan| plan.state.ramp.step(now, over)).count();
            if changed > 0 {
                self.announce();
            }
        }
        if self.cluster.fitness.panic_percent > 0 {
            self.look_for_panic();
        }
        let mut news = std::mem::take(&mut self.state.judge().news);
        if let Some(guard) = &self.guard {
            news.extend(guard.circuit().take_news().into_iter().map(Event::Circuit));
        }
        news
    }

    fn look_for_panic(&self) {
        let roll = self.roll();
        let mut judge = self.state.judge();
        if judge.panics != roll.panics {
            judge.panics = roll.panics;
            judge.tell(Event::Panic { begins: roll.panics, fit: (roll.fit, roll.eligible) });
        }
    }

    fn judge_all(&self, rules: &PassiveHealth, now: Instant) {
        self.release_due(now);
        if self.interval_is_over(rules, now) {
            let windows: Vec<Window> = self.endpoints.iter().map(|plan| plan.state.passive().take_window()).collect();
            for endpoint in &self.endpoints {
                endpoint.state.passive().lock().calm_down();
            }
            self.eject(rules, &outliers::find(rules, &windows), now);
        }
    }

    fn interval_is_over(&self, rules: &PassiveHealth, now: Instant) -> bool {
        let mut judge = self.state.judge();
        let is_over = judge.interval_ends.is_some_and(|end| end <= now);
        if is_over || judge.interval_ends.is_none() {
            judge.interval_ends = Some(now + rules.interval);
        }
        is_over
    }

    /// Ends ejections that have lasted long enough, and the oldest of those that are too many, as they may be after a
    /// change of configuration.
    fn release_due(&self, now: Instant) {
        let mut any = false;
        let mut judge = self.state.judge();
        let roll = Roll::call(&self.cluster, &self.endpoints);
        for (index, EndpointPlan { endpoint, state, .. }) in self.endpoints.iter().enumerate() {
            let Some(passive) = state.passive_if_any().filter(|passive| passive.ejected() > 0) else { continue };
            if passive.ejection().is_over(now) || roll.is_surplus(index) {
                passive.release();
                self.begin_ramp(index);
                judge.tell(Event::Released { endpoint: endpoint.name.clone() });
                any = true;
            }
        }
        drop(judge);
        if any {
            self.announce();
            crate::queue::dispatch(&self.state);
        }
    }
}
