//! Refreshes of sessions that are in progress or were just done: one at a time for each session.
//!
//! Providers accept a refresh token once, and end the session when it comes twice. A browser sends several requests with the old cookie.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::session::{Opened, Session};

/// Sessions that are known at once, over all workers. Only sessions with a good seal come here.
const SESSIONS_MAX: usize = 4_096;
/// How long requests with the old cookie get the new session.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How long it is known that a session has ended: longer than nearly all responses that began before need for their head.
const ENDED: Duration = Duration::from_secs(600);

/// How long the provider is not asked again after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// What is known of the refresh of a session.
#[derive(Clone, Debug)]
pub(super) enum Refresh {
    /// Another exchange asks the provider.
    Running,
    /// Another exchange has this session, whose refresh token is new, and asks the provider about its user until this moment.
    Redeemed(Instant, Arc<Opened>),
    /// It has led to this session.
    Done(Arc<Opened>),
    /// The provider has refused it, or the user has logged out.
    Refused,
    /// The provider was not available a moment ago.
    Failed,
}

/// A session, and which of its refreshes.
type Key = (String, u64);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Refreshes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    refreshes: HashMap<Key, (Instant, Refresh)>,
    /// Sessions that were logged out, by their [`number_of`].
    ended: HashMap<u64, Instant>,
}

impl Known {
    fn has_ended(&self, session: &Session, now: Instant) -> bool {
        self.has_ended_number(number_of(session), now)
    }

    fn has_ended_number(&self, number: u64, now: Instant) -> bool {
        self.ended.get(&number).is_some_and(|until| now < *until)
    }
}

impl Refreshes {
    /// Begins a refresh that takes no longer than `timeout`. Returns what is known of it if it has begun before.
    pub(super) fn begin(&self, session: &Session, now: Instant, timeout: Duration) -> Option<Refresh> {
        let mut known = self.known();
        if known.has_ended(session, now) {
            return Some(Refresh::Refused);
        }
        let (refreshes, key) = (&mut known.refreshes, key(session));
        if let Some((until, refresh)) = refreshes.get(&key)
            && now < *until
        {
            return Some(match refresh {
                Refresh::Redeemed(asked_until, new) if now >= *asked_until => Refresh::Done(Arc::clone(new)),
                other => other.clone(),
            });
        }
        if refreshes.len() >= SESSIONS_MAX {
            refreshes.retain(|_, (until, _)| now < *until);
        }
        if refreshes.len() < SESSIONS_MAX {
            // An exchange that is cancelled leaves it so, until it is over.
            refreshes.insert(key, (now + timeout, Refresh::Running));
        }
        None
    }

    /// Says that the provider has given tokens, and may be asked about the user for `timeout` longer. An exchange that is cancelled then leaves
    /// this session to the next.
    pub(super) fn redeemed(&self, session: &Session, now: Instant, timeout: Duration, new: Arc<Opened>) {
        if let Some(entry) = self.known().refreshes.get_mut(&key(session)) {
            *entry = (now + timeout + REMEMBERED, Refresh::Redeemed(now + timeout, new));
        }
    }

    /// Ends a refresh with what is known of it from now on. Returns `false` if the user has logged out meanwhile.
    pub(super) fn end(&self, session: &Session, now: Instant, outcome: Refresh) -> bool {
        let lasts = if matches!(outcome, Refresh::Failed) { PAUSE } else { REMEMBERED };
        let mut known = self.known();
        if let Some(entry) = known.refreshes.get_mut(&key(session)) {
            *entry = (now + lasts, outcome);
        }
        !known.has_ended(session, now)
    }

    /// Ends a session at its logout, so that no request with its cookies, and no response that is still in progress, brings it back.
    pub(super) fn log_out(&self, session: &Session, now: Instant) {
        let ended = &mut self.known().ended;
        if ended.len() >= SESSIONS_MAX {
            ended.retain(|_, until| now < *until);
        }
        if ended.len() < SESSIONS_MAX {
            ended.insert(number_of(session), now + ENDED);
        }
    }

    /// Returns whether the session has ended a moment ago.
    pub(super) fn is_refused(&self, session: &Session, now: Instant) -> bool {
        let known = self.known();
        let refused = known.refreshes.get(&key(session));
        known.has_ended(session, now) || matches!(refused, Some((until, Refresh::Refused)) if now < *until)
    }

    /// Returns whether the user has logged out of the session of this number.
    pub(super) fn has_ended(&self, number: u64, now: Instant) -> bool {
        self.known().has_ended_number(number, now)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of a session, which stays the same over its refreshes. Its key is drawn at random.
pub(super) fn number_of(session: &Session) -> u64 {
    crate::hash::of_bytes(session.key.as_bytes())
}

fn key(session: &Session) -> Key {
    (session.key.clone(), session.fresh_until)
}
