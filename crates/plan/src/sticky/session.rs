//! What is known of a request's session.

use std::time::{Duration, Instant};

use model::persistence::SessionPick;

/// The place of an endpoint that is not there.
pub(super) const GONE: u32 = u32::MAX;

/// A moment, by both clocks: tables go by the one that never jumps, cookies by the one that others share.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// For tables.
    pub now: Instant,
    /// Since 1970, for cookies.
    pub unix: Duration,
}

impl Moment {
    /// Returns the seconds since 1970.
    pub(super) fn seconds(&self) -> u32 {
        u32::try_from(self.unix.as_secs()).unwrap_or(u32::MAX)
    }
}

/// What is known of a request's session before an endpoint is picked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Session {
    /// The place of its endpoint, or [`GONE`]; `None`: no session is known.
    pub(super) pinned: Option<u32>,
    /// What the table knows it by.
    pub(super) key: Option<u64>,
    /// The id of the endpoint that the table remembers for it.
    pub(super) remembered: Option<u64>,
    /// What its cookie said.
    pub(super) dates: Option<Dates>,
    /// The cookie must be written again even for the same endpoint.
    pub(super) is_stale: bool,
    /// Without a session that is known, one begins.
    pub(super) may_begin: bool,
    /// This request goes elsewhere only because its route does not lead to the session's endpoint.
    pub(super) is_lent: bool,
}

impl Session {
    /// Returns what [`crate::Ask::pinned`] needs.
    #[inline]
    pub fn pinned(&self) -> Option<u32> {
        self.pinned
    }

    /// Notes that the request has got an endpoint. `is_lent`: as [`crate::ClusterPlan::lends`] said.
    pub fn lend(&mut self, is_lent: bool) {
        self.is_lent = is_lent;
    }

    /// Returns what became of it, once an endpoint is picked, or none.
    pub fn outcome(&self, endpoint: Option<usize>) -> Option<SessionPick> {
        match (self.pinned, endpoint) {
            (None, Some(_)) if self.may_begin => Some(SessionPick::New),
            (None, _) => None,
            (Some(_), None) => Some(SessionPick::Refused),
            (Some(pinned), Some(endpoint)) if pinned as usize == endpoint => Some(SessionPick::Kept),
            (Some(_), Some(_)) => Some(SessionPick::Moved),
        }
    }
}

/// Seconds of Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dates {
    pub(super) begun: u32,
    pub(super) seen: u32,
}
