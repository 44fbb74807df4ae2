//! Keys that requests fetch through a cluster.
//!
//! The first request that needs keys fetches them, and so does one when the interval is over, or when a key is unknown and no fetch began in
//! the last seconds. One request fetches at a time; the fetch goes on when its client disconnects.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use model::filter::CLUSTER_FORMAT;
use model::{Fault, Issue};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::filter::form_call::FormEndpoint;
use crate::filter::single_flight::{Flights, Part};
use crate::filter::token_cache::{Digest, digest_of};
use crate::filter::{Apart, Compiling, EventCounter, Flow, Need, Reply, Turn};
use crate::jose::{KeySet, Trust};

/// After a fetch, unknown keys begin no other for so long: tokens of strangers must not make a flood of calls.
const REST: Duration = Duration::from_secs(5);
/// The same while no keys are known.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a key set.
const KEYS_BYTES_MAX: usize = 1 << 20;
/// The first wait for the fetch of another request; 3.15 s together.
const WAIT: Duration = Duration::from_millis(50);

/// Where keys are fetched through a cluster.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct KeysCall {
    /// The cluster that has the keys.
    #[schemars(extend("format" = CLUSTER_FORMAT))]
    cluster: String,
    /// Path of the JSON Web Key Set. May have a query.
    path: String,
    /// The `host` field of the calls; by default the name of the endpoint.
    host: Option<String>,
}

/// See the module.
pub(in crate::filter) struct CalledKeys {
    endpoint: FormEndpoint,
    interval: Duration,
    flight: Digest,
    flights: Arc<Flights>,
    /// The note of [`Flights::join`].
    part: usize,
    known: Arc<Known>,
    fetched: EventCounter,
    failed: EventCounter,
}

/// What is known. It stays from plan to plan.
#[derive(Default)]
struct Known {
    keys: RwLock<Option<Arc<KeySet>>>,
    /// Changes with the keys; 0 while there are none.
    version: AtomicU64,
    times: Mutex<Times>,
}

#[derive(Default)]
struct Times {
    /// When the keys were fetched last, and the digest of the answer.
    fetched: Option<(Instant, Digest)>,
    /// When a fetch began or ended last.
    tried: Option<Instant>,
}

/// What an exchange can do about keys that are missing.
pub(super) enum Sought {
    /// It fetches them, or waits for the fetch of another exchange.
    Comes(Flow),
    /// Another exchange fetches them, and this one does not wait for that.
    Late,
    /// Neither helps.
    Absent,
}

impl KeysCall {
    /// Compiles the setting `keys`, with the interval and the time-out of fetches.
    ///
    /// # Errors
    /// The path or the host is none.
    pub(super) fn compile(
        self,
        (interval, timeout): (Duration, Duration),
        compiling: &mut Compiling<'_>,
    ) -> Result<CalledKeys, Issue> {
        let cluster = compiling.cluster(&self.cluster, "keys/cluster");
        let kept_by = format!("keys of {} {} {:?}", self.cluster, self.path, self.host);
        let endpoint = FormEndpoint::compile(cluster, ("path", self.path), self.host, None, timeout);
        Ok(CalledKeys {
            endpoint: endpoint.map_err(|issue| issue.below("keys"))?,
            interval,
            flight: digest_of(kept_by.as_bytes()),
            flights: compiling.kept("flights", || Flights::waiting(WAIT)),
            part: compiling.note(),
            known: compiling.kept(&kept_by, Known::default),
            fetched: compiling.counter("keys_fetched"),
            failed: compiling.counter("keys_failed"),
        })
    }
}

impl CalledKeys {
    /// Returns the keys with their version, if they are known.
    pub(super) fn keys(&self) -> Option<(Arc<KeySet>, u64)> {
        let keys = self.known.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.as_ref().map(|keys| (Arc::clone(keys), self.version()))
    }

    /// Returns the version of the keys; 0 if there are none.
    pub(super) fn version(&self) -> u64 {
        self.known.version.load(Ordering::Acquire)
    }

    /// Returns a fetch for this exchange to do, if the keys are old and no other exchange fetches them. Until it has ended, all others use the
    /// old ones.
    pub(super) fn renew(self: &Arc<Self>, turn: &mut Turn<'_>) -> Option<Flow> {
        let is_old = self.times().fetched.is_some_and(|(at, _)| turn.now >= at + self.interval);
        if !is_old || turn.is_rehearsal || !self.may_fetch(turn.now) {
            return None;
        }
        match self.fetch(turn) {
            Sought::Comes(fetch @ Flow::Need(Need::Apart(_))) => Some(fetch),
            _ => {
                Flights::leave(self.part, turn);
                None
            }
        }
    }

    /// Returns what to do when keys or a key are missing.
    pub(super) fn seek(self: &Arc<Self>, turn: &mut Turn<'_>) -> Sought {
        if turn.is_rehearsal { Sought::Absent } else { self.fetch(turn) }
    }

    fn fetch(self: &Arc<Self>, turn: &mut Turn<'_>) -> Sought {
        let is_allowed = self.may_fetch(turn.now);
        if !is_allowed && !self.flights.is_under_way(&self.flight) {
            return Sought::Absent;
        }
        match self.flights.join(&self.flight, self.part, turn) {
            Part::Waits(wait) => Sought::Comes(wait),
            Part::HasWaited | Part::Crowded => Sought::Late,
            Part::Calls => {
                if self.version() != 0 {
                    // Also if the exchange is cancelled: who disconnects early must not make more calls.
                    self.times().tried = Some(turn.now);
                }
                let (call, keys) = (self.endpoint.get_call(KEYS_BYTES_MAX), Arc::clone(self));
                let take = move |reply, (_, now)| keys.take(reply, now);
                let taker = self.flights.landing(&self.flight, self.part, turn, take);
                Sought::Comes(Flow::Need(Need::Apart(Box::new(Apart { call, taker, is_awaited: true }))))
            }
        }
    }

    fn may_fetch(&self, now: Instant) -> bool {
        let pause = if self.version() == 0 { PAUSE } else { REST };
        self.times().tried.is_none_or(|tried| now >= tried + pause)
    }

    /// Takes the answer. The keys before stay if there are none in it.
    fn take(&self, reply: Result<Box<Reply>, Fault>, now: Instant) {
        let is_taken = reply.is_ok_and(|reply| reply.head.status == 200 && self.set(&reply.body, now));
        self.times().tried = Some(now);
        if is_taken { &self.fetched } else { &self.failed }.add_one();
    }

    fn set(&self, body: &[u8], now: Instant) -> bool {
        let digest = digest_of(body);
        let is_same = self.times().fetched.is_some_and(|(_, before)| before == digest);
        if !is_same {
            let text = std::str::from_utf8(body).ok();
            let Some((keys, _)) = text.and_then(|text| KeySet::parse(text, Trust::Network).ok()) else { return false };
            let mut known = self.known.keys.write().unwrap_or_else(PoisonError::into_inner);
            *known = Some(Arc::new(keys));
            // Tokens that the keys before have verified are verified again.
            self.known.version.fetch_add(1, Ordering::AcqRel);
        }
        self.times().fetched = Some((now, digest));
        true
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.known.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
