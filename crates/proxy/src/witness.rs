//! What exchanges tell of the health of their endpoints and to the circuit of their cluster: once for each attempt, when its
//! outcome is known.

use model::Fault;
use plan::Seen;

use crate::exchange::Exchange;

/// What an endpoint says, or a call of gRPC stands for, whose time is over.
const LATE: u16 = 504;

impl Exchange<'_> {
    /// The head of the final response is there. That is all that a circuit and adaptive concurrency ask for: bodies may
    /// take long, or never end.
    #[inline]
    pub(crate) fn witness_head(&mut self) {
        let Some(seen) = self.seen() else { return };
        let is_good = seen.is_good();
        if let Some(cluster) = self.progress.cluster.filter(|_| is_good) {
            cluster.plan.tell_limit(self.progress.phases.first_byte, self.progress.now);
        }
        if self.pass.is_some() {
            self.tell_circuit(is_good);
        }
    }

    /// The endpoint answered. What follows of this attempt is not told.
    #[inline]
    pub(crate) fn witness_answer(&mut self) {
        if let Some(seen) = self.seen() {
            self.witness(seen);
        }
    }

    /// Returns what the response that is here tells. `None`: nothing, for it says that the time is over, which it is, and how long that was
    /// the client has chosen.
    #[inline]
    fn seen(&self) -> Option<Seen> {
        let status = self.answered_status();
        let is_of_client = status == LATE && self.is_over_for_client();
        (!is_of_client).then_some(Seen::Answered { status, latency: self.progress.phases.first_byte })
    }

    /// The attempt ended by a fault, which may or may not be the endpoint's doing.
    pub(crate) fn witness_fault(&mut self, fault: Fault) {
        if matches!(fault, Fault::RetriedStatus | Fault::Redirected) {
            // An answer, though not passed on.
            self.witness_answer();
        } else if fault.consequence().against_health {
            self.witness(Seen::Failed);
        }
    }

    /// The time for the whole exchange ended while it waited for the endpoint. Perhaps no endpoint could have been quick enough, so its
    /// health does not suffer; but the circuit counts it, since a cluster that hangs needs a rest. If the client gave too little time,
    /// nothing is reported: otherwise any client could open the circuit for all.
    #[cold]
    pub(crate) fn witness_lateness(&mut self) {
        self.progress.look();
        if !self.is_bounded_by_client() {
            self.tell_circuit(false);
        }
    }

    /// The attempt failed by an event that another exchange has reported: it is one failure of the endpoint, however many exchanges wait
    /// for it.
    #[cold]
    pub(crate) fn witness_known(&mut self) {
        if !std::mem::replace(&mut self.progress.is_witnessed, true) {
            self.tell_circuit(false);
        }
    }

    #[inline]
    fn witness(&mut self, seen: Seen) {
        if std::mem::replace(&mut self.progress.is_witnessed, true) {
            return;
        }
        if !seen.is_good() {
            // Nobody may have looked since the request was sent, and what begins now lasts for a time.
            self.progress.look();
        }
        if let (Some(cluster), Some((endpoint, _))) = (self.progress.cluster, self.progress.endpoint) {
            cluster.plan.witness(&endpoint.state, seen, self.progress.now);
            self.tell_circuit(seen.is_good());
        }
    }

    #[inline]
    fn tell_circuit(&mut self, is_good: bool) {
        if let Some(cluster) = self.progress.cluster {
            cluster.plan.tell_circuit(&mut self.pass, is_good, self.progress.now);
        }
    }

    /// Returns whether others wait for a place in its cluster.
    #[inline]
    pub(crate) fn is_place_awaited(&self) -> bool {
        self.progress.cluster.is_some_and(|local| local.plan.state.waiting() > 0)
    }

    /// Gives back what is held of the endpoint: its part is done, or the attempt is over.
    #[inline]
    pub(crate) fn leave_endpoint(&mut self) {
        self.lease = None;
        if let Some(pass) = &mut self.pass {
            pass.vacate();
        }
    }
}
