//! Keys that verify tokens: fetched in the background for the filters of the plans that are active.
//!
//! ```text
//!  fetch ── keys, or a failure ──► rest ──► ready ── interval over, unknown key, new filter ──► fetch
//! ```
//! There is one task for each place, whatever the number of filters that need its keys.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use plan::Plan;
use plan::jose::{KeyPlace, KeySource, Metadata};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::providers::backoff::{backoff, jittered};
use crate::providers::client::{Client, Request};

/// After a fetch, unknown keys begin no other for so long: tokens of strangers must not make a flood of requests.
const REST: Duration = Duration::from_secs(5);
/// Bytes of a key set.
const KEYS_BYTES_MAX: u64 = 1 << 20;
/// Bytes of a discovery document.
const DOCUMENT_BYTES_MAX: u64 = 256 << 10;

type Sources = Vec<Arc<KeySource>>;

/// The owner of the thread.
#[derive(Debug, Default)]
pub(crate) struct TokenKeys {
    /// There is none before the first source.
    thread: Option<(watch::Sender<Sources>, JoinHandle<()>)>,
}

impl TokenKeys {
    /// Fetches the keys of these plans from now on, and no others.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn follow<'a>(&mut self, plans: impl Iterator<Item = &'a Plan>) -> io::Result<()> {
        let chains = plans.flat_map(|plan| plan.routes.iter().map(|route| &route.chain));
        let mut sources: Sources = chains.flat_map(|chain| chain.key_sources()).collect();
        sources.sort_by_key(|source| Arc::as_ptr(source).addr());
        sources.dedup_by(|one, other| Arc::ptr_eq(one, other));
        match &self.thread {
            Some((sender, _)) => _ = sender.send_replace(sources),
            None if sources.is_empty() => {}
            None => {
                let (sender, receiver) = watch::channel(sources);
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let work = move || {
                    tokio::task::LocalSet::new().block_on(&runtime, run(receiver));
                    // A lookup of a name that takes long must not hold up the end of the program.
                    runtime.shutdown_background();
                };
                let thread = std::thread::Builder::new().name("token-keys".to_owned()).spawn(work)?;
                self.thread = Some((sender, thread));
            }
        }
        Ok(())
    }
}

impl Drop for TokenKeys {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            // Without a sender the thread ends, and its tasks end where they wait.
            drop(sender);
            // A panic of the thread was reported by the thread.
            let _ = thread.join();
        }
    }
}

/// A place whose keys are fetched. It ends with this.
struct Followed {
    place: KeyPlace,
    sources: watch::Sender<Sources>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(mut wanted: watch::Receiver<Sources>) {
    let mut followed: Vec<Followed> = Vec::new();
    loop {
        let sources = wanted.borrow_and_update().clone();
        let mut before = std::mem::take(&mut followed);
        for (place, sources) in by_place(sources) {
            let known = before.iter().position(|one| one.place == place);
            let one =
                known.map(|at| before.swap_remove(at)).inspect(|one| _ = one.sources.send_replace(sources.clone()));
            followed.push(one.unwrap_or_else(|| {
                let (sender, receiver) = watch::channel(sources);
                let task = tokio::task::spawn_local(keep_up(place.clone(), receiver));
                Followed { place, sources: sender, task }
            }));
        }
        drop(before);
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

fn by_place(sources: Sources) -> Vec<(KeyPlace, Sources)> {
    let mut places: Vec<(KeyPlace, Sources)> = Vec::new();
    for source in sources {
        match places.iter_mut().find(|(place, _)| place == source.place()) {
            Some((_, sources)) => sources.push(source),
            None => places.push((source.place().clone(), vec![source])),
        }
    }
    places
}

/// What is known of a place.
#[derive(Default)]
struct Known {
    /// The last key set that was of use.
    text: Option<String>,
    /// The provider's own description, which came with it.
    metadata: Option<Metadata>,
    failures: u32,
    failing: Option<String>,
}

/// Fetches the keys of one place again and again.
async fn keep_up(place: KeyPlace, mut wanted: watch::Receiver<Sources>) {
    let client = Client::new(&place.origin);
    let mut known = Known::default();
    loop {
        let sources = wanted.borrow_and_update().clone();
        sources.iter().for_each(|source| source.begin());
        let fetched = match &client {
            Ok(client) => fetch(client, &place).await,
            Err(why) => Err(why.clone()),
        };
        // Filters that came meanwhile get the answer too.
        let sources = wanted.borrow().clone();
        known.take(fetched, &sources, &place);
        let now = Instant::now();
        let pause = match known.failures {
            0 => jittered(place.interval, &place.path),
            failures => backoff(failures, &place.path).min(place.interval),
        };
        let (rested, next) = (now + REST, now + pause);
        wait(&known, &mut wanted, rested.min(next), false).await;
        if rested < next {
            wait(&known, &mut wanted, next, true).await;
        }
    }
}

/// Waits until a moment, or until a token names an unknown key, if that `may_ask`.
async fn wait(known: &Known, wanted: &mut watch::Receiver<Sources>, until: Instant, may_ask: bool) {
    loop {
        let sources = wanted.borrow_and_update().clone();
        let is_new = |source: &&Arc<KeySource>| source.version() == 0;
        if let Some(text) = &known.text {
            // What is wrong with it was reported when it came.
            for source in sources.iter().filter(is_new) {
                known.metadata.iter().for_each(|metadata| source.describe(metadata));
                _ = source.set(text);
            }
        }
        if may_ask {
            sources.iter().for_each(|source| source.rest_is_over());
        }
        let asked = poll_fn(|cx| {
            let is_asked = may_ask && sources.iter().any(|source| source.poll_asked(cx).is_ready());
            if is_asked { Poll::Ready(()) } else { Poll::Pending }
        });
        tokio::select! {
            () = tokio::time::sleep_until(until) => return,
            () = asked => return,
            // An error means that this task is about to end.
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

impl Known {
    /// Takes the outcome of a fetch for all filters that need it.
    fn take(&mut self, fetched: Result<Fetched, String>, sources: &Sources, place: &KeyPlace) {
        let outcome = match fetched {
            Err(why) => {
                sources.iter().for_each(|source| source.fail());
                Err(why)
            }
            Ok(Fetched { text, metadata }) => {
                let is_same = self.text.as_ref() == Some(&text);
                let set = |source: &Arc<KeySource>| {
                    metadata.iter().for_each(|metadata| source.describe(metadata));
                    if is_same && source.version() != 0 {
                        source.keep();
                        return Ok(());
                    }
                    source.set(&text)
                };
                let all: Vec<Result<(), String>> = sources.iter().map(set).collect();
                all.into_iter()
                    .collect::<Result<(), String>>()
                    .map(|()| (self.text, self.metadata) = (Some(text), metadata))
            }
        };
        let at = format!("{}{}", place.origin.host, place.path.split('?').next().unwrap_or_default());
        match outcome {
            Ok(()) => {
                if self.failing.take().is_some() {
                    telemetry::log::info("keys for tokens are fetched again", &[("from", &at)]);
                }
                self.failures = 0;
            }
            Err(why) => {
                self.failures = self.failures.saturating_add(1);
                if self.failing.as_ref() != Some(&why) {
                    let kept = if self.text.is_some() { "the last keys stay in use" } else { "no keys are known" };
                    let pairs: telemetry::log::Pairs<'_> = &[("from", &at), ("error", &why), ("then", &kept)];
                    telemetry::log::warn("keys for tokens cannot be fetched", pairs);
                    self.failing = Some(why);
                }
            }
        }
    }
}

/// A key set, and the description of the provider if that led to it.
struct Fetched {
    text: String,
    metadata: Option<Metadata>,
}

async fn fetch(client: &Client, place: &KeyPlace) -> Result<Fetched, String> {
    let asking = async {
        let Some(issuer) = &place.issuer else {
            let text = keys(client, &place.path).await?;
            return Ok(Fetched { text, metadata: None });
        };
        let document = ask(client, &place.path, "application/json", DOCUMENT_BYTES_MAX).await?;
        let metadata = Metadata::parse(&document, issuer)?;
        let (origin, path) = place.keys_of(&metadata).ok_or("`jwks_uri` in the discovery document is not a URL")?;
        let text = keys(&Client::new(&origin)?, &path).await.map_err(|why| format!("of the keys: {why}"))?;
        Ok(Fetched { text, metadata: Some(metadata) })
    };
    let limit = client.timeout();
    tokio::time::timeout(limit, asking).await.unwrap_or_else(|_| Err(format!("no complete response within {limit:?}")))
}

async fn keys(client: &Client, path: &str) -> Result<String, String> {
    let body = ask(client, path, "application/jwk-set+json, application/json", KEYS_BYTES_MAX).await?;
    String::from_utf8(body).map_err(|_| "the answer is not UTF-8".to_owned())
}

async fn ask(client: &Client, path: &str, accept: &str, bytes_max: u64) -> Result<Vec<u8>, String> {
    let fields = [("accept", accept)];
    let mut response = client.send(Request { path, fields: &fields, ..Request::default() }).await?;
    if response.status != 200 {
        return Err(format!("answered {}", response.status));
    }
    response.whole(bytes_max).await
}
