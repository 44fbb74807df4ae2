//! The token of a filter, which all workers share.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// How long a token lasts whose provider does not say so, in seconds.
const LASTS: u64 = 300;
/// The longest time that is believed, in seconds: a day.
const LASTS_MAX: u64 = 86_400;
/// Seconds before the end of a token from which on the next one is fetched.
const EARLY: u64 = 60;
/// How long the provider is not asked again after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// A 401 to a token that is younger counts for nothing: endpoints that often answer 401 must not flood the provider.
const AGE_MIN: Duration = Duration::from_secs(10);
/// That age doubles with each token in a row that was refused, so often at most: to 640 s.
const DOUBLED_MAX: u32 = 6;
/// Bytes of a token, which goes into each request.
const TOKEN_BYTES_MAX: usize = 8 << 10;

/// What there is.
#[derive(Debug)]
pub(super) enum Standing {
    /// A token.
    Fresh(Arc<Token>),
    /// A token that ends soon.
    Ending(Arc<Token>),
    /// None.
    Absent,
    /// None, and the provider has given none a moment ago.
    Refused,
}

/// A token of the authorization provider.
pub(super) struct Token {
    /// The token itself, a secret.
    pub(super) text: Box<str>,
    /// Which of the tokens of this filter it is.
    pub(super) number: u64,
    fetched: Instant,
    fresh_until: Instant,
    ends: Instant,
}

/// Without its text.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("number", &self.number).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    token: Option<Arc<Token>>,
    /// How many tokens there were.
    count: u64,
    /// The endpoint has refused the token: the next one is fetched.
    is_refused: bool,
    /// Tokens in a row that were refused, without this one.
    refused: u32,
    /// The provider is not asked before.
    paused_until: Option<Instant>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Held(RwLock<State>);

impl Held {
    /// Returns what there is.
    pub(super) fn look(&self, now: Instant) -> Standing {
        let state = self.read();
        let is_paused = state.paused_until.is_some_and(|until| now < until);
        match state.token.as_ref().filter(|token| now < token.ends) {
            // While the provider gives none, the old one is as good as a fresh one.
            Some(token) if now < token.fresh_until && !state.is_refused || is_paused => {
                Standing::Fresh(Arc::clone(token))
            }
            Some(token) => Standing::Ending(Arc::clone(token)),
            None if is_paused => Standing::Refused,
            None => Standing::Absent,
        }
    }

    /// Takes a token that was asked for at `asked` and lasts so many seconds from then. Returns `false` if it is empty, too long or over,
    /// which is a failure.
    pub(super) fn put(&self, text: String, lasts: Option<u64>, (asked, now): (Instant, Instant)) -> bool {
        let lasts = lasts.unwrap_or(LASTS).min(LASTS_MAX);
        let ends = asked + Duration::from_secs(lasts);
        if text.is_empty() || text.len() > TOKEN_BYTES_MAX || ends <= now {
            self.fail(now);
            return false;
        }
        let fresh_until = ends - Duration::from_secs(EARLY.min(lasts / 4));
        let mut state = self.state();
        state.refused = if state.is_refused { state.refused.saturating_add(1) } else { 0 };
        state.is_refused = false;
        state.count += 1;
        let number = state.count;
        state.token = Some(Arc::new(Token { text: text.into(), number, fetched: now, fresh_until, ends }));
        state.paused_until = None;
        true
    }

    /// Takes a failure; the token before stays.
    pub(super) fn fail(&self, now: Instant) {
        self.state().paused_until = Some(now + PAUSE);
    }

    /// Takes a 401 of the endpoint to the token of this number. The token stays in use until the next one comes: a client may have caused it.
    pub(super) fn refuse(&self, number: u64, now: Instant) {
        let mut state = self.state();
        let age_min = AGE_MIN * (1 << state.refused.min(DOUBLED_MAX));
        if state.token.as_ref().is_some_and(|token| token.number == number && now >= token.fetched + age_min) {
            state.is_refused = true;
        }
    }

    /// Requests only read: they do not wait for one another.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
