//! What keeps a cluster from being given too much.

use model::resilience::{CircuitBreaker, ErrorRatio, Resilience};

use super::Resolver;
use crate::file;

impl Resolver<'_> {
    pub(super) fn resilience(&mut self, at: &str, written: &file::Cluster) -> Resilience {
        let breaker = written.circuit_breaker.as_ref();
        Resilience {
            breaker: breaker.map(|breaker| self.circuit_breaker(&format!("{at}/circuit_breaker"), written, breaker)),
        }
    }

    fn circuit_breaker(&mut self, at: &str, cluster: &file::Cluster, written: &file::CircuitBreaker) -> CircuitBreaker {
        let file::CircuitBreaker { requests_max, pending_max, connections_max, retries_max, error_ratio } = written;
        let bounds = [requests_max, pending_max, connections_max, retries_max];
        if error_ratio.is_none() && bounds.iter().all(|bound| bound.is_none()) {
            let mend = Some("set at least one of its bounds, such as `requests_max: 1000`".to_owned());
            self.report(at, "this circuit breaker never refuses anything", mend);
        }
        if pending_max.is_some() && cluster.queue.is_none() {
            let mend = Some("give the cluster a `queue`, or leave `pending_max` out".to_owned());
            self.report(&format!("{at}/pending_max"), "nothing waits in this cluster, it has no queue", mend);
        }
        if error_ratio.as_ref().is_some_and(|ratio| ratio.share.0 == 0) {
            let mend = Some("write it like `50%`, from 1% to 100%".to_owned());
            self.report(&format!("{at}/error_ratio/share"), "this circuit would open without any failure", mend);
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
        }
    }
}
