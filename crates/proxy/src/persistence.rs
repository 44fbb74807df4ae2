//! Sessions of exchanges: looked up before an endpoint is picked, kept when it has answered. What is decided, is decided in
//! [`plan::sticky`]; here is what it needs to know.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use plan::{ClusterPlan, Lease, Moment, Persistence, Session, WeightedClusters};

use crate::exchange::Exchange;

/// A moment by both clocks.
pub(crate) fn moment(now: Instant) -> Moment {
    Moment { now, unix: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() }
}

impl<'p> Exchange<'p> {
    /// The session of the request, whose cookie endpoints do not get to see.
    pub(crate) fn find_session(&mut self, persistence: &Persistence) -> Session {
        let session = self.session_in(persistence);
        persistence.clean(&mut self.incoming.head, &mut self.worker.scratch.borrow_mut());
        self.told.session = session.outcome(None);
        self.session = Some(session);
        session
    }

    fn session_in(&self, persistence: &Persistence) -> Session {
        let mut chance = || self.worker.random.next();
        persistence.find(Some(&self.incoming.head), self.client, moment(self.told.now), &mut chance)
    }

    /// The cluster of several where the request has a session; chance decides when there is none.
    pub(crate) fn choose_cluster(&self, clusters: &'p WeightedClusters) -> &'p Arc<ClusterPlan> {
        if clusters.have_sessions() {
            let knows = |cluster: &&Arc<ClusterPlan>| {
                let persistence = cluster.persistence.as_ref();
                persistence.is_some_and(|persistence| self.session_in(persistence).pinned().is_some())
            };
            if let Some(cluster) = clusters.clusters().iter().find(knows) {
                return cluster;
            }
        }
        clusters.choose(self.worker.random.next())
    }

    /// Keeps the session where it was answered, when the head of the response is as the client gets it.
    #[inline]
    pub(crate) fn keep_session(&mut self) {
        if let Some(session) = self.session {
            self.keep(&session);
        }
    }

    fn keep(&mut self, session: &Session) {
        let Some(persistence) = self.told.cluster.and_then(|cluster| cluster.plan.persistence.as_ref()) else { return };
        let Some(endpoint) = self.lease.as_ref().map(Lease::endpoint_index) else { return };
        let is_secure = self.connection.facts.tls.is_some();
        let response = self.response.as_deref_mut().map(|response| (response, is_secure));
        let mut chance = || self.worker.random.next();
        persistence.keep(session, endpoint, response, (moment(self.told.now), &mut chance));
    }
}
