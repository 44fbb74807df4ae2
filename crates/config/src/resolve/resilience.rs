//! What keeps a cluster from being given too much.

use std::time::Duration;

use model::limits::ERROR_WINDOW_MIN;
use model::resilience::{AdaptiveConcurrency, CircuitBreaker, ErrorRatio, Hedge, HedgeAfter, Resilience};

use super::Resolver;
use super::retry::methods;
use crate::file;
use crate::units::parse_duration;

impl Resolver<'_> {
    pub(super) fn resilience(&mut self, at: &str, written: &file::Cluster) -> Resilience {
        let breaker = written.circuit_breaker.as_ref();
        Resilience {
            concurrency: written.adaptive_concurrency.as_ref().map(|written| self.concurrency(at, written)),
            hedge: written.hedge.as_ref().map(|hedge| self.hedge(&format!("{at}/hedge"), hedge)),
            breaker: breaker.map(|breaker| self.circuit_breaker(&format!("{at}/circuit_breaker"), written, breaker)),
        }
    }

    fn concurrency(&mut self, at: &str, written: &file::AdaptiveConcurrency) -> AdaptiveConcurrency {
        let at = format!("{at}/adaptive_concurrency");
        if written.min > written.max {
            let mend = Some("make `max` at least as high as `min`".to_owned());
            self.report(&format!("{at}/min"), "`min` is greater than `max`", mend);
        }
        AdaptiveConcurrency {
            min: written.min,
            max: written.max,
            tolerance_percent: u32::from(written.tolerance.0),
            interval: written.interval.0,
            measure_every: written.measure_every.0,
        }
    }

    pub(super) fn hedge(&mut self, at: &str, written: &file::Hedge) -> Hedge {
        if written.budget.0 == 0 {
            let mend = Some("write it like `10%`, from 1% to 100%".to_owned());
            self.report(&format!("{at}/budget"), "no request may be hedged with this budget", mend);
        }
        let percentile =
            |text: &str| text.strip_prefix('p')?.parse().ok().filter(|percent| (50..=99).contains(percent));
        let after = match percentile(&written.after) {
            Some(percent) => HedgeAfter::Percentile(percent),
            None => HedgeAfter::Time(parse_duration(&written.after).unwrap_or_else(|_| {
                let message = format!("`{}` is neither a time nor a percentile", written.after);
                self.report(&format!("{at}/after"), message, Some("write it like `50ms` or `p95`".to_owned()));
                Duration::ZERO
            })),
        };
        Hedge {
            after,
            attempts_max: written.attempts_max,
            methods: methods(written.methods),
            budget_percent: u32::from(written.budget.0),
        }
    }

    fn circuit_breaker(&mut self, at: &str, cluster: &file::Cluster, written: &file::CircuitBreaker) -> CircuitBreaker {
        let file::CircuitBreaker { requests_max, pending_max, connections_max, retries_max, error_ratio, page } =
            written;
        let bounds = [requests_max, pending_max, connections_max, retries_max];
        if error_ratio.is_none() && bounds.iter().all(|bound| bound.is_none()) {
            let mend = Some("set at least one of its limits, such as `requests_max: 1000`".to_owned());
            self.report(at, "this circuit breaker never rejects anything", mend);
        }
        if pending_max.is_some() && cluster.queue.is_none() {
            let mend = Some("give the cluster a `queue`, or leave `pending_max` out".to_owned());
            self.report(&format!("{at}/pending_max"), "nothing waits in this cluster: it has no queue", mend);
        }
        if error_ratio.as_ref().is_some_and(|ratio| ratio.share.0 == 0) {
            let mend = Some("write it like `50%`, from 1% to 100%".to_owned());
            self.report(&format!("{at}/error_ratio/share"), "this circuit would open without any failure", mend);
        }
        if error_ratio.as_ref().is_some_and(|ratio| ratio.window.0 < ERROR_WINDOW_MIN) {
            let mend = Some("make it at least `100ms`".to_owned());
            self.report(&format!("{at}/error_ratio/window"), "this window is too short", mend);
        }
        CircuitBreaker {
            requests_max: *requests_max,
            pending_max: *pending_max,
            connections_max: *connections_max,
            retries_max: *retries_max,
            error_ratio: error_ratio.as_ref().map(|ratio| ErrorRatio {
                percent: ratio.share.0,
                window: ratio.window.0,
                requests_min: ratio.requests_min,
                open_for: ratio.open_for.0,
                trial_requests: ratio.trial_requests,
            }),
            page: page.as_ref().and_then(|page| self.page(&format!("{at}/page"), page, None)),
        }
    }
}
