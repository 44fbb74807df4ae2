//! Refreshes of sessions that are in progress or were just done: one at a time for each session.
//!
//! Providers accept a refresh token once, and end the session when it comes twice. A browser sends several requests with the old cookie.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::session::{Opened, Session};

/// Sessions that are known at once, over all workers. Only sessions with a good seal come here.
const SESSIONS_MAX: usize = 4_096;
/// How long requests with the old cookie get the new session.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How long the provider is not asked again after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// What is known of the refresh of a session.
#[derive(Clone, Debug)]
pub(super) enum Refresh {
    /// Another exchange asks the provider.
    Running,
    /// It has led to this session.
    Done(Arc<Opened>),
    /// The provider has refused it, or the user has logged out: the session has ended.
    Refused,
    /// The provider was not available a moment ago.
    Failed,
}

/// A session, and which of its refreshes.
type Key = (String, u64);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Refreshes(Mutex<HashMap<Key, (Instant, Refresh)>>);

impl Refreshes {
    /// Begins a refresh that takes no longer than `timeout`. Returns what is known of it if it has begun before.
    pub(super) fn begin(&self, session: &Session, now: Instant, timeout: Duration) -> Option<Refresh> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(session);
        if let Some((until, refresh)) = known.get(&key)
            && now < *until
        {
            return Some(refresh.clone());
        }
        if known.len() >= SESSIONS_MAX {
            known.retain(|_, (until, _)| now < *until);
        }
        if known.len() < SESSIONS_MAX {
            // An exchange that is cancelled leaves it so, until it is over.
            known.insert(key, (now + timeout, Refresh::Running));
        }
        None
    }

    /// Ends a refresh with what is known of it from now on. Returns `false` if the user has logged out meanwhile.
    pub(super) fn end(&self, session: &Session, now: Instant, outcome: Refresh) -> bool {
        let lasts = if matches!(outcome, Refresh::Failed) { PAUSE } else { REMEMBERED };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get_mut(&key(session)) {
            Some((until, Refresh::Refused)) if now < *until => return false,
            Some(entry) => *entry = (now + lasts, outcome),
            None => {}
        }
        true
    }

    /// Ends a session at its logout, so that no request that comes with its cookies in the next minute brings it back.
    pub(super) fn log_out(&self, session: &Session, now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(session);
        if known.len() >= SESSIONS_MAX {
            known.retain(|_, (until, _)| now < *until);
        }
        if known.len() < SESSIONS_MAX || known.contains_key(&key) {
            known.insert(key, (now + REMEMBERED, Refresh::Refused));
        }
    }

    /// Returns whether the session has ended a moment ago.
    pub(super) fn is_refused(&self, session: &Session, now: Instant) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(known.get(&key(session)), Some((until, Refresh::Refused)) if now < *until)
    }
}

fn key(session: &Session) -> Key {
    (session.key.clone(), session.fresh_until)
}
