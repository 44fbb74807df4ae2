//! What a cluster lets in: bounds on what is under way at once, exact over all workers, and a circuit that opens when too
//! much fails. A cluster without a circuit breaker has no guard, which costs a branch.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use model::resilience::{CircuitBreaker, Refusal};

use crate::cluster::ClusterPlan;
use crate::padded::Padded;
use crate::resilience::breaker::{Admission, Circuit, CircuitHandover, Phase};

/// What all workers share about the guard of one cluster. Outlives plans.
#[derive(Debug, Default)]
pub struct GuardState {
    requests: Padded<AtomicU32>,
    connections: Padded<AtomicU32>,
    retries: Padded<AtomicU32>,
    circuit: Padded<Circuit>,
}

impl GuardState {
    /// Opens when too much fails.
    pub fn circuit(&self) -> &Circuit {
        &self.circuit
    }
}

/// What an exchange or stream holds of its cluster's bounds. Dropping it gives everything back.
#[must_use = "dropping a pass gives back what it holds"]
pub struct Pass {
    state: Arc<GuardState>,
    holds_connection: bool,
    holds_retry: bool,
    admission: Option<Admission>,
    /// How the attempt went has been told to the circuit.
    is_told: bool,
}

impl ClusterPlan {
    /// Whether anything is ever refused. Without a guard the functions below do nothing, and there is no pass.
    #[inline]
    pub fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    /// Whether it has a circuit that opens when too much fails.
    pub fn has_circuit(&self) -> bool {
        self.cluster.resilience.breaker.as_ref().is_some_and(|breaker| breaker.error_ratio.is_some())
    }

    /// What the guard has counted.
    pub fn guard_state(&self) -> Option<&Arc<GuardState>> {
        self.guard.as_ref()
    }

    /// Returns what the successor needs to know of its circuit, if it has one.
    pub fn hand_over_circuit(&self, now: Instant) -> Option<CircuitHandover> {
        self.guard.as_ref().filter(|_| self.has_circuit()).map(|state| state.circuit.hand_over(now))
    }

    /// Takes over what the predecessor knew of its circuit, if it has one.
    pub fn inherit_circuit(&self, handed: CircuitHandover, now: Instant) {
        let rules = self.cluster.resilience.breaker.as_ref().and_then(|breaker| breaker.error_ratio.as_ref());
        if let (Some(state), Some(rules)) = (&self.guard, rules) {
            state.circuit.inherit(rules, handed, now);
        }
    }

    /// How long its circuit lets nothing through yet.
    pub fn rests_for(&self, now: Instant) -> Duration {
        self.guard.as_ref().map_or(Duration::ZERO, |state| state.circuit.rests_for(now))
    }

    /// Lets an attempt in: at the first of an exchange or stream `pass` is empty, at further ones it is that of the first.
    ///
    /// # Errors
    /// As many are in as may be, or the circuit is open.
    pub fn let_in(&self, pass: &mut Option<Pass>, now: Instant) -> Result<(), Refusal> {
        let (Some(state), Some(rules)) = (&self.guard, &self.cluster.resilience.breaker) else { return Ok(()) };
        let pass = match pass {
            Some(pass) => pass,
            None => pass.insert(Pass::new(state, rules)?),
        };
        pass.vacate();
        pass.admit(rules, now)
    }

    /// The same once more after a wait, in which the circuit may have opened.
    ///
    /// # Errors
    /// See [`Self::let_in`].
    pub fn let_in_still(&self, pass: &mut Option<Pass>, now: Instant) -> Result<(), Refusal> {
        match (pass, &self.cluster.resilience.breaker) {
            (Some(pass), Some(rules)) => pass.admit(rules, now),
            _ => Ok(()),
        }
    }

    /// Lets an attempt have a connection to an endpoint, until [`Pass::vacate`].
    ///
    /// # Errors
    /// As many are in use as may be.
    pub fn occupy(&self, pass: &mut Option<Pass>) -> Result<(), Refusal> {
        let (Some(pass), Some(rules)) = (pass, &self.cluster.resilience.breaker) else { return Ok(()) };
        if !pass.holds_connection {
            take(&pass.state.connections, rules.connections_max, Refusal::Connections)?;
            pass.holds_connection = true;
        }
        Ok(())
    }

    /// Lets an exchange make attempts after its first.
    ///
    /// # Errors
    /// As many do as may.
    pub fn let_retry(&self, pass: &mut Option<Pass>) -> Result<(), Refusal> {
        let (Some(pass), Some(rules)) = (pass, &self.cluster.resilience.breaker) else { return Ok(()) };
        if !pass.holds_retry {
            take(&pass.state.retries, rules.retries_max, Refusal::Retries)?;
            pass.holds_retry = true;
        }
        Ok(())
    }

    /// Tells the circuit how an attempt went. Only the first outcome of each attempt counts.
    #[inline]
    pub fn tell_circuit(&self, pass: &mut Option<Pass>, is_good: bool, now: Instant) {
        let (Some(pass), Some(rules)) = (pass, &self.cluster.resilience.breaker) else { return };
        if let (Some(rules), Some(admission)) = (&rules.error_ratio, &mut pass.admission)
            && !std::mem::replace(&mut pass.is_told, true)
        {
            pass.state.circuit.observe(rules, admission, is_good, now);
        }
    }

    /// Why a request that came at `now` would be refused, in words; nothing is counted.
    pub(crate) fn would_refuse(&self, now: Instant) -> Option<String> {
        let (state, rules) = (self.guard.as_ref()?, self.cluster.resilience.breaker.as_ref()?);
        if let Some(ratio) = &rules.error_ratio {
            match state.circuit.phase(now) {
                Phase::Open => {
                    let left = state.circuit.rests_for(now).as_secs_f64();
                    return Some(format!(
                        "the circuit is open for another {left:.1} s, because too many requests failed: 503"
                    ));
                }
                Phase::HalfOpen if state.circuit.trials() >= ratio.trial_requests => {
                    return Some("the circuit is half-open, and all trial requests are in flight: 503".to_owned());
                }
                Phase::HalfOpen | Phase::Closed => {}
            }
        }
        let is_full = |count: &AtomicU32, max: Option<u32>| max.is_some_and(|max| count.load(Ordering::Relaxed) >= max);
        let bounds = [
            (&*state.requests, rules.requests_max, "requests_max"),
            (&*state.connections, rules.connections_max, "connections_max"),
        ];
        let full = bounds.into_iter().find(|(count, max, _)| is_full(count, *max));
        full.map(|(_, _, key)| format!("`circuit_breaker.{key}` is reached: 503"))
    }

    /// What of the state before must not live on under new rules.
    pub(crate) fn adapt_guard(&self, previous: &Self) {
        let ratio = |plan: &Self| plan.cluster.resilience.breaker.as_ref().and_then(|breaker| breaker.error_ratio);
        let Some(state) = self.guard.as_ref().or(previous.guard.as_ref()) else { return };
        match (ratio(previous), ratio(self)) {
            (Some(_), None) => state.circuit.reset(),
            (before, now) if before != now => state.circuit.forget_counts(),
            _ => {}
        }
    }
}

impl Pass {
    fn new(state: &Arc<GuardState>, rules: &CircuitBreaker) -> Result<Self, Refusal> {
        take(&state.requests, rules.requests_max, Refusal::Requests)?;
        Ok(Self { state: state.clone(), holds_connection: false, holds_retry: false, admission: None, is_told: false })
    }

    fn admit(&mut self, rules: &CircuitBreaker, now: Instant) -> Result<(), Refusal> {
        let Some(ratio) = &rules.error_ratio else { return Ok(()) };
        if let Some(before) = &mut self.admission {
            self.state.circuit.leave(before);
        }
        self.admission = self.state.circuit.admit(ratio, now);
        self.is_told = false;
        self.admission.as_ref().map(|_| ()).ok_or(Refusal::ErrorRatio)
    }

    /// The connection to the endpoint is free again.
    #[inline]
    pub fn vacate(&mut self) {
        if std::mem::take(&mut self.holds_connection) {
            give(&self.state.connections);
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.vacate();
        if self.holds_retry {
            give(&self.state.retries);
        }
        if let Some(admission) = &mut self.admission {
            self.state.circuit.leave(admission);
        }
        give(&self.state.requests);
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pass({:?})", self.admission)
    }
}

/// Adds one to `count` unless it has reached `max`. Exact: no moment sees more. What has no bound is counted as well, so
/// that a bound which is set later finds the true number.
fn take(count: &AtomicU32, max: Option<u32>, or: Refusal) -> Result<(), Refusal> {
    let max = max.unwrap_or(u32::MAX);
    let next = |now: u32| (now < max).then(|| now + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).map(|_| ()).map_err(|_| or)
}

fn give(count: &AtomicU32) {
    let before = count.fetch_sub(1, Ordering::Relaxed);
    debug_assert!(before > 0, "given back more often than taken");
}

#[cfg(test)]
mod tests;
