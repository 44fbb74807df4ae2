//! Keys at a URL, which the control plane fetches in the background.
//!
//! ```text
//!  Fetching ── keys, or a failure ──► Resting ── a pause ──► Ready ── unknown key, or the interval is over ──► Fetching
//! ```
//! Workers read the keys and say that one is unknown. They never wait here: a step waits by a need of its own.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use model::provider::{Origin, Place, split_url};
use model::snapshot::UpstreamTls;

use super::{KeySet, Metadata, Trust};

/// A fetch is in progress, or was asked for.
const FETCHING: u8 = 0;
/// Keys were fetched a moment ago: unknown keys change nothing.
const RESTING: u8 = 1;
/// An unknown key begins a fetch.
const READY: u8 = 2;

/// Where keys are fetched.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyPlace {
    /// Who is asked.
    pub origin: Origin,
    /// The target of the request, from `/` on.
    pub path: String,
    /// From fetch to fetch.
    pub interval: Duration,
    /// If there is an issuer, `path` leads to its discovery document, which says where the keys are.
    pub issuer: Option<String>,
}

impl KeyPlace {
    /// Returns where the keys of a discovered provider are, with the same limits and the same authorities.
    pub fn keys_of(&self, metadata: &Metadata) -> Option<(Origin, String)> {
        let (is_secure, host, port, path) = split_url(&metadata.keys_url)?;
        let number = port.unwrap_or(if is_secure { 443 } else { 80 });
        let origin = Origin {
            place: Place::Host(host.trim_matches(['[', ']']).to_owned(), number),
            host: port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")),
            tls: is_secure.then(|| self.origin.tls.clone().unwrap_or_else(verified)),
            timeout: self.origin.timeout,
            fields: Vec::new(),
        };
        Some((origin, path.to_owned()))
    }
}

/// TLS with the authorities of the system.
fn verified() -> UpstreamTls {
    UpstreamTls { server_name: None, verify: true, authorities: None, certificate: None }
}

/// See the module. Plans hand it on, so that a change of the configuration keeps the keys.
#[derive(Debug)]
pub struct KeySource {
    place: KeyPlace,
    keys: RwLock<Option<Arc<KeySet>>>,
    metadata: RwLock<Option<Arc<Metadata>>>,
    /// Changes with the keys; 0 while there are none.
    version: AtomicU64,
    state: AtomicU8,
    waker: Mutex<Option<Waker>>,
    fetched: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

impl KeySource {
    /// Returns a source without keys, which waits for its first fetch.
    pub fn new(place: KeyPlace) -> Self {
        Self {
            place,
            keys: RwLock::new(None),
            metadata: RwLock::new(None),
            version: AtomicU64::new(0),
            state: AtomicU8::new(FETCHING),
            waker: Mutex::new(None),
            fetched: Arc::default(),
            failed: Arc::default(),
        }
    }

    /// Returns where the keys are fetched.
    pub fn place(&self) -> &KeyPlace {
        &self.place
    }

    /// Returns the keys, if any fetch has succeeded, with their version.
    pub fn keys(&self) -> Option<(Arc<KeySet>, u64)> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.as_ref().map(|keys| (Arc::clone(keys), self.version.load(Ordering::Acquire)))
    }

    /// Returns the version of the keys; 0 if there are none.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns what the provider says of itself, once its discovery document is known.
    pub fn metadata(&self) -> Option<Arc<Metadata>> {
        self.metadata.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes what a discovery document says. The keys follow by [`Self::set`].
    pub fn describe(&self, metadata: &Metadata) {
        let mut known = self.metadata.write().unwrap_or_else(PoisonError::into_inner);
        if known.as_deref() != Some(metadata) {
            *known = Some(Arc::new(metadata.clone()));
        }
    }

    /// Says that a key is unknown. Returns whether a fetch is in progress, so that waiting a moment may help.
    pub fn is_awaited(&self) -> bool {
        let begins = self.state.compare_exchange(READY, FETCHING, Ordering::AcqRel, Ordering::Acquire);
        if begins.is_ok() {
            let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            waker.into_iter().for_each(Waker::wake);
        }
        !matches!(begins, Err(RESTING))
    }

    /// Takes an answer over the network. The keys before stay if there is none in it.
    ///
    /// # Errors
    /// Why there is no usable key in it.
    pub fn set(&self, text: &str) -> Result<(), String> {
        let parsed = KeySet::parse(text, Trust::Network).inspect_err(|_| self.fail())?;
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        *keys = Some(Arc::new(parsed.0));
        // Tokens that the keys before have verified are verified again.
        self.version.fetch_add(1, Ordering::AcqRel);
        drop(keys);
        self.fetched.fetch_add(1, Ordering::Relaxed);
        self.state.store(RESTING, Ordering::Release);
        Ok(())
    }

    /// Takes the answer that the keys are as they were.
    pub fn keep(&self) {
        self.fetched.fetch_add(1, Ordering::Relaxed);
        self.state.store(RESTING, Ordering::Release);
    }

    /// Takes a failure; the keys before stay.
    pub fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.state.store(RESTING, Ordering::Release);
    }

    /// Says that an unknown key may begin a fetch from now on.
    pub fn rest_is_over(&self) {
        let _ = self.state.compare_exchange(RESTING, READY, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Says that a fetch begins because its time has come.
    pub fn begin(&self) {
        self.state.store(FETCHING, Ordering::Release);
    }

    /// Waits until an unknown key asks for a fetch.
    pub fn poll_asked(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if self.state.load(Ordering::Acquire) == FETCHING {
            return Poll::Ready(());
        }
        *waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns how many fetches have succeeded and failed, to be shown.
    pub(crate) fn counts(&self) -> [(&'static str, Arc<AtomicU64>); 2] {
        [("keys_fetched", Arc::clone(&self.fetched)), ("keys_failed", Arc::clone(&self.failed))]
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Signer;
    use super::*;

    fn source() -> KeySource {
        let place = Place::Host("a".into(), 443);
        let origin = Origin { place, host: "a".into(), tls: None, timeout: Duration::from_secs(1), fields: Vec::new() };
        KeySource::new(KeyPlace { origin, path: "/".into(), interval: Duration::from_secs(300), issuer: None })
    }

    fn is_asked(source: &KeySource) -> bool {
        source.poll_asked(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn an_unknown_key_begins_one_fetch_and_then_none_until_the_rest_is_over() {
        let source = source();
        assert!(source.is_awaited() && is_asked(&source), "the first fetch");
        source.set(&Signer::es256("a").jwks()).unwrap();
        assert!(!source.is_awaited() && !is_asked(&source));
        source.rest_is_over();
        assert!(!is_asked(&source), "until a key is unknown");
        assert!(source.is_awaited() && source.is_awaited() && is_asked(&source));
        source.rest_is_over();
        assert!(is_asked(&source), "a fetch that was asked for stays");
        source.fail();
        assert!(!source.is_awaited());
        source.rest_is_over();
        source.begin();
        assert!(source.is_awaited());
    }

    #[test]
    fn the_last_good_keys_stay_when_an_answer_is_of_no_use() {
        let source = source();
        assert!(source.keys().is_none() && source.version() == 0);
        assert!(source.set("{}").is_err() && source.keys().is_none());
        source.set(&Signer::es256("a").jwks()).unwrap();
        let (keys, version) = source.keys().unwrap();
        for bad in ["", "{\"keys\":[]}", "<html>", &Signer::hs256("s").jwks()] {
            assert!(source.set(bad).is_err(), "{bad}");
            assert!(Arc::ptr_eq(&source.keys().unwrap().0, &keys));
        }
        assert_eq!(source.version(), version);
        source.set(&Signer::es256("b").jwks()).unwrap();
        assert_eq!((source.version(), source.keys().unwrap().0.keys()[0].id()), (version + 1, Some("b")));
        let counts = source.counts().map(|(_, count)| count.load(Ordering::Relaxed));
        assert_eq!(counts, [2, 5]);
    }
}
