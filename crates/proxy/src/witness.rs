//! What exchanges tell of the health of their endpoints: once for each attempt, when its outcome is known.

use model::Fault;
use plan::Seen;

use crate::exchange::Exchange;

impl Exchange<'_> {
    /// The endpoint answered. What follows of this attempt is not told.
    #[inline]
    pub(crate) fn witness_answer(&mut self) {
        let status = self.response.as_ref().map_or(0, |response| response.status);
        self.witness(Seen::Answered { status, latency: self.told.phases.first_byte });
    }

    /// The attempt ended by a fault, which may or may not be the endpoint's doing.
    pub(crate) fn witness_fault(&mut self, fault: Fault) {
        if fault == Fault::RetriedStatus {
            // An answer, though not passed on.
            self.witness_answer();
        } else if fault.consequence().against_health {
            self.witness(Seen::Failed);
        }
    }

    #[inline]
    fn witness(&mut self, seen: Seen) {
        if std::mem::replace(&mut self.told.is_witnessed, true) {
            return;
        }
        if let (Some(cluster), Some((endpoint, _))) = (self.told.cluster, self.told.endpoint) {
            cluster.plan.witness(&endpoint.state, seen, self.told.now);
            cluster.plan.tell_circuit(&mut self.pass, seen.is_good(), self.told.now);
        }
    }
}
