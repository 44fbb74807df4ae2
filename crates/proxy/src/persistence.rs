//! Sessions of exchanges: looked up before an endpoint is picked, kept when it has answered. What is decided, is decided in
//! [`plan::sticky`]; here is what it needs to know.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use model::Scheme;
use model::persistence::SessionPick;
use plan::{ClusterPlan, Lease, Moment, Persistence, RdpCookie, Session, Subset, WeightedClusters};
use wire::rdp::{Cookie, Request, request};

use crate::exchange::Exchange;
use crate::worker_plan::ClusterLocal;

/// Returns a moment by both clocks.
fn moment(now: Instant) -> Moment {
    Moment { now, unix: since_1970() }
}

/// Returns the time by the wall clock.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns what tables hash keys with. Not of the numbers that name requests, which clients see: from them others could be known.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// Returns the session of a client that only its address identifies, in a cluster that has any.
pub(crate) fn session_of_client(cluster: &ClusterPlan, client: IpAddr, now: Instant) -> Option<Session> {
    cluster.persistence.as_deref().map(|persistence| persistence.find(None, client, moment(now), &mut seed))
}

/// Returns the session of a client of Remote Desktop that has sent this. `None`: the cluster has none, or the cookie is not whole yet.
pub(crate) fn session_of_rdp(cluster: &ClusterPlan, received: &[u8], now: Instant) -> Option<Session> {
    let persistence = cluster.persistence.as_deref()?;
    let cookie = match request(received) {
        Request::Found(Some(Cookie::User(user))) => RdpCookie::User(user),
        Request::Found(Some(Cookie::Host(address))) => RdpCookie::Host(address.into()),
        Request::Found(None) | Request::NotRdp | Request::NeedMore => return None,
    };
    Some(persistence.find_rdp(cookie, moment(now), &mut seed))
}

/// Keeps such a session at the endpoint in this place of the cluster.
pub(crate) fn keep_session_of_client(cluster: &ClusterPlan, session: Option<&Session>, endpoint: usize, now: Instant) {
    if let (Some(persistence), Some(session)) = (&cluster.persistence, session) {
        persistence.keep(session, endpoint, None, (moment(now), &mut seed));
    }
}

impl<'p> Exchange<'p> {
    /// Returns the session of the request, whose cookie endpoints do not get to see.
    pub(crate) fn find_session(&mut self, persistence: &Persistence) -> Session {
        let session = self.session_in(persistence);
        persistence.clean(&mut self.incoming.head, &mut self.worker.scratch.borrow_mut());
        self.progress.session = session.outcome(None);
        self.session = Some(session);
        session
    }

    fn session_in(&self, persistence: &Persistence) -> Session {
        persistence.find(Some(&self.incoming.head), self.client, moment(self.progress.now), &mut seed)
    }

    /// Returns the cluster of several where the request has a session; chance decides when there is none.
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

    /// An endpoint is picked: what that means for the session.
    #[inline]
    pub(crate) fn note_session(&mut self, local: &ClusterLocal, endpoint: usize, subset: Subset) {
        let Some(session) = &mut self.session else { return };
        self.progress.session = session.outcome(Some(endpoint));
        let is_elsewhere = self.progress.session == Some(SessionPick::Moved);
        session.lend(is_elsewhere && local.plan.lends(&mut local.cache.borrow_mut(), session.pinned(), subset));
    }

    /// Keeps the session where it was answered, when the head of the response is as the client gets it.
    #[inline]
    pub(crate) fn keep_session(&mut self) {
        if let Some(session) = self.session {
            self.keep(&session);
        }
    }

    fn keep(&mut self, session: &Session) {
        let Some(persistence) = self.progress.cluster.and_then(|cluster| cluster.plan.persistence.as_ref()) else {
            return;
        };
        let Some(endpoint) = self.lease.as_ref().map(Lease::endpoint_index) else { return };
        let is_secure = self.scheme == Scheme::Https;
        let response = self.response.as_deref_mut().map(|response| (response, is_secure));
        if persistence.keep(session, endpoint, response, (moment(self.progress.now), &mut seed)) {
            self.progress.session = Some(SessionPick::New);
        }
    }
}
