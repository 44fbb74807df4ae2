//! What the filter does with a request, and with its response.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::{FieldName, Method, RequestHead};

use super::slices::ask_for;
use crate::cache::control::{Directives, trimmed};
use crate::cache::fresh::Rules;
use crate::cache::key::{Parameters, write_url};
use crate::cache::serve::strip_conditions;
use crate::cache::slice::Slice;
use crate::cache::validate::named;
use crate::cache::{Begun, CacheStore, DiskAsk, DiskRead, Entry, Served, Waiter};
use crate::expression::{Condition, Value};
use crate::filter::cached::{Fetch, Refresh, Replaced, SliceFetch, Told};
use crate::filter::{Awaited, CacheStatus, EventCounter, Flow, Found, Need, RequestStep, Turn};

/// Bytes of a key; a request with a longer one passes by.
const KEY_BYTES_MAX: usize = 16 << 10;
/// Fetches of other exchanges that a request waits for. One that finds nothing after them goes to an endpoint: what they fetched is not for
/// it, or not stored. Fewer than [`Need::PER_STEP_MAX`].
const WAITS_MAX: u32 = 2;
/// Files that a request looks into: another may take the place of one meanwhile. Together with the waits fewer than [`Need::PER_STEP_MAX`].
const READS_MAX: u32 = 4;

/// The settings, compiled.
pub(in crate::filter) struct Cache {
    pub note: usize,
    pub partition: u64,
    pub parameters: Parameters,
    pub adds: Box<[Value]>,
    pub rules: Rules,
    pub body_max: u64,
    pub lock: Duration,
    pub min_uses: u32,
    pub bypass: Option<Condition>,
    pub no_store: Option<Condition>,
    pub tags: Option<FieldName>,
    pub has_status_field: bool,
    pub follows_clients: bool,
    /// Bytes of a slice, where responses are fetched in slices.
    pub slice: Option<u64>,
    pub counts: Counts,
}

pub(in crate::filter) struct Counts {
    pub hit: EventCounter,
    pub missed: EventCounter,
    pub expired: EventCounter,
    pub revalidated: EventCounter,
    pub stale: EventCounter,
    pub bypassed: EventCounter,
    /// Slices that were fetched behind the first of a response.
    pub slices: Option<EventCounter>,
}

/// All steps of the filter.
#[derive(Clone)]
pub(super) struct CacheStep(pub Arc<Cache>, pub Arc<CacheStore>);

/// What a request wants of the cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// An answer.
    Answer,
    /// To change what is stored.
    Change,
    /// Nothing.
    Nothing,
}

impl RequestStep for CacheStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        if turn.is_rehearsal {
            return Flow::Continue;
        }
        match self.wants(head, turn) {
            Wants::Nothing => self.pass_by(turn),
            Wants::Change => {
                if let Some(key) = self.key(head, turn) {
                    let hash = self.1.hash(&key, turn.chance);
                    if let Some(cached) = turn.notes.begin_cached(self.0.note) {
                        cached.changes = Some((hash, key.into()));
                    }
                }
                Flow::Continue
            }
            Wants::Answer => self.look(head, turn, Looking { may_wait: true, read: None }),
        }
    }

    fn resume(&self, head: &mut RequestHead, found: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        let may_wait = turn
            .notes
            .cached(self.0.note)
            .is_none_or(|cached| cached.waits < WAITS_MAX && cached.until.is_none_or(|until| turn.now < until));
        let read = match found {
            Found::Cached(DiskRead::Found(read)) => Some(read),
            Found::Cached(DiskRead::Failed) => {
                // A disk that hangs delays a request once.
                if let Some(cached) = turn.notes.cached(self.0.note) {
                    cached.reads = READS_MAX;
                }
                None
            }
            _ => None,
        };
        self.look(head, turn, Looking { may_wait, read })
    }

    fn fetches_by(&self) -> Option<usize> {
        Some(self.0.note)
    }
}

impl CacheStep {
    fn wants(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Wants {
        match head.method {
            Method::Get | Method::Head => {}
            Method::Options | Method::Trace | Method::Connect => return Wants::Nothing,
            _ => return Wants::Change,
        }
        // A request with content may mean more than its URL; preconditions of the endpoint's own state are its to judge.
        let is = |name: &[u8], known: &[&[u8]]| known.iter().any(|known| name.eq_ignore_ascii_case(known));
        let is_plain = !head.fields.iter().any(|field| {
            is(field.name, &[&b"transfer-encoding"[..], b"upgrade", b"if-match", b"if-unmodified-since"])
                || is(field.name, &[&b"content-length"[..]]) && field.value != b"0"
        });
        let is_bypassed = |turn: &mut Turn<'_>| match &self.0.bypass {
            Some(condition) => condition.is_true_of_request(head, turn),
            None => false,
        };
        if is_plain && !is_bypassed(turn) { Wants::Answer } else { Wants::Nothing }
    }

    fn pass_by(&self, turn: &mut Turn<'_>) -> Flow {
        turn.notes.set_cache_status(CacheStatus::Bypass);
        turn.count(&self.0.counts.bypassed);
        self.tell(turn, Told { forwarded: Some("bypass"), ..Told::default() });
        Flow::Continue
    }

    pub(super) fn key(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Option<Vec<u8>> {
        let mut key = Vec::with_capacity(160);
        key.extend_from_slice(self.0.partition.to_string().as_bytes());
        key.push(0);
        for value in &self.0.adds {
            value.with_request(head, turn, |text, _| key.extend(text.iter().filter(|byte| **byte != 0)));
            key.push(0);
        }
        write_url(turn.facts.scheme, head.authority(), (head.path(), head.query()), &self.0.parameters, &mut key);
        (key.len() <= KEY_BYTES_MAX).then_some(key)
    }

    /// Answers from the store, waits for another exchange, or has an endpoint be asked.
    fn look(&self, head: &mut RequestHead, turn: &mut Turn<'_>, looking: Looking) -> Flow {
        let Looking { may_wait, read } = looking;
        let Some(key) = self.key(head, turn) else { return self.pass_by(turn) };
        let hash = self.1.hash(&key, turn.chance);
        let now = turn.unix_seconds();
        let asked = self.asked(head);
        let mut stale = match self.stored(Place { hash, key: &key, slice: None }, (head, &asked), read.clone(), turn) {
            Ok(flow) => return flow,
            Err(stale) => stale,
        };
        if stale.is_none() && self.0.slice.is_some() {
            let looking = Looking { may_wait, read: read.clone() };
            if let Some(flow) = self.look_for_slice((hash, &key), (head, &asked), looking, turn) {
                return flow;
            }
        }
        if asked.only_if_cached {
            return Flow::refuse(504, "nothing is stored for this request");
        }
        // A part can be cut from what is stored, but not be stored itself.
        let is_part = stale.is_none() && named(&head.fields, b"range").next().is_some();
        let is_used = stale.is_some() || self.0.min_uses == 1 || self.1.ask(hash) >= self.0.min_uses;
        let may_store = head.method == Method::Get && !is_part && is_used && !asked.no_store;
        let mut pilot = None;
        if may_store && !self.1.is_passed(hash, now) {
            match self.1.begin_flight(hash) {
                Ok(begun) => {
                    pilot = Some(begun);
                    // Another flight may have ended since the first look.
                    match self.stored(Place { hash, key: &key, slice: None }, (head, &asked), read, turn) {
                        Ok(flow) => return flow,
                        Err(found) => stale = found,
                    }
                }
                Err(flight) if may_wait => {
                    if let Some(waiter) = flight.wait() {
                        return self.wait(waiter, turn);
                    }
                }
                Err(_) => {}
            }
        }
        let fetching = Fetching { hash, key, now, stale, may_store, is_part, pilot, slice: None };
        self.fetch(head, turn, fetching)
    }

    pub(super) fn wait(&self, waiter: Waiter, turn: &mut Turn<'_>) -> Flow {
        let lock = turn.now + self.0.lock;
        let Some(cached) = turn.notes.begin_cached(self.0.note) else { return Flow::Continue };
        cached.waits += 1;
        let until = *cached.until.get_or_insert(lock);
        Flow::Need(Need::Flight(Box::new(Awaited { waiter: Arc::new(waiter), until })))
    }

    /// Answers by what is stored, if that may be, or has it be read; else returns what is stored and must be validated first. `read` is what
    /// is known from the disk. `slice`: it must be this one, of the response of a key of this hash.
    pub(super) fn stored(
        &self,
        Place { hash, key, slice }: Place<'_>,
        (head, asked): (&RequestHead, &Directives),
        read: Option<Arc<Entry>>,
        turn: &mut Turn<'_>,
    ) -> Result<Flow, Option<Arc<Entry>>> {
        let now = turn.unix_seconds();
        if read.as_ref().is_some_and(|read| *read.key == *key)
            && let Some(cached) = turn.notes.cached(self.0.note)
        {
            cached.is_from_disk = true;
        }
        // What was read is in memory by now, if it is small.
        let read = read.filter(|read| *read.key == *key);
        let Some(entry) = self.1.find((hash, key), &head.fields).or(read) else {
            return self.read((hash, key), head, turn).ok_or(None);
        };
        if slice.is_some_and(|(slice, of)| self.representation(slice, of, &entry).is_none()) {
            self.1.remove(hash, &entry);
            return Err(None);
        }
        let left = entry.fresh_for(now);
        let age = entry.clock.age(now);
        let is_wanted = !asked.no_cache && asked.max_age.is_none_or(|max| age <= max);
        if left > asked.min_fresh.unwrap_or(0) as i64 && is_wanted {
            return Ok(self.serve(entry, head, (CacheStatus::Hit, left), turn));
        }
        let is_near = -left <= entry.fresh.stale_while_revalidate as i64 && left <= 0;
        if !is_near || !is_wanted || asked.min_fresh.is_some() || entry.fresh.stale_while_revalidate == 0 {
            return Err(Some(entry));
        }
        // One exchange fetches it again; only GET fills the store.
        if head.received_method() == Method::Get
            && let Ok(pilot) = self.1.begin_flight(hash)
        {
            self.refresh(head, Place { hash, key, slice }, (&entry, pilot), turn);
        }
        Ok(self.serve(entry, head, (CacheStatus::Stale, left), turn))
    }

    /// Has a response be read that is on disk. `None`: there is none, or it could not be read before.
    fn read(&self, (hash, key): (u64, &[u8]), head: &RequestHead, turn: &mut Turn<'_>) -> Option<Flow> {
        let content = self.1.disk()?.content();
        let entry = content.find((hash, key), &head.fields)?;
        let begun = Begun { at: turn.unix_seconds(), purges: self.1.purges() };
        let cached = turn.notes.begin_cached(self.0.note)?;
        if cached.reads == READS_MAX {
            return None;
        }
        cached.reads += 1;
        let (content, store) = (Arc::clone(content), Arc::clone(&self.1));
        Some(Flow::Need(Need::Cached(Box::new(DiskAsk { content, store, hash, entry, begun }))))
    }

    pub(super) fn serve(
        &self,
        entry: Arc<Entry>,
        head: &RequestHead,
        (status, left): (CacheStatus, i64),
        turn: &mut Turn<'_>,
    ) -> Flow {
        let now = turn.unix_seconds();
        let counts = &self.0.counts;
        turn.notes.set_cache_status(status);
        turn.count(match status {
            CacheStatus::Hit => &counts.hit,
            CacheStatus::Revalidated => &counts.revalidated,
            _ => &counts.stale,
        });
        self.1.count(status != CacheStatus::Revalidated);
        if status != CacheStatus::Revalidated {
            self.count_file(turn);
        }
        let forwarded = (status == CacheStatus::Revalidated).then_some("stale");
        self.tell(turn, Told { is_hit: forwarded.is_none(), forwarded, ttl: Some(left), is_stored: false });
        let served = Box::new(Served::new(entry, head, now));
        if served.is_slice() {
            self.leave_slices(&served, head, turn);
        }
        Flow::Stored(served)
    }

    /// Counts an answer from a file.
    fn count_file(&self, turn: &mut Turn<'_>) {
        let Some(disk) = self.1.disk() else { return };
        if turn.notes.cached(self.0.note).is_some_and(|cached| cached.is_from_disk) {
            disk.content().counts.hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Leaves a request that fetches a stale response again.
    fn refresh(
        &self,
        head: &RequestHead,
        Place { hash, key, slice }: Place<'_>,
        (entry, pilot): (&Arc<Entry>, crate::cache::flight::Pilot),
        turn: &mut Turn<'_>,
    ) {
        let now = turn.unix_seconds();
        let mut head = head.clone();
        let request = head.clone();
        let validates = validate(&mut head, entry);
        if let Some((slice, _)) = slice {
            ask_for(slice, &mut head);
        }
        // One that must be the same: else it is as outdated as those beside it.
        let of = slice.and_then(|(slice, of)| self.representation(slice, of, entry));
        let (of_hash, of_key) = match slice {
            Some((_, of)) => (of, Box::default()),
            None => (hash, key.into()),
        };
        let slice = slice.map(|(slice, _)| Box::new(SliceFetch { slice, hash, key: key.into(), of }));
        let fetch = Fetch {
            store: Arc::clone(&self.1),
            hash: of_hash,
            key: of_key,
            request,
            is_personal: turn.notes.is_personal(),
            begun: Begun { at: now, purges: self.1.purges() },
            pilot: Some(pilot),
            stale: Some(Arc::clone(entry)),
            validates,
            may_store: true,
            ready: None,
            slice,
        };
        if let Some(cached) = turn.notes.begin_cached(self.0.note) {
            cached.refresh = Some(Refresh { head, number: self.0.note, fetch });
        }
    }

    /// Has the request go to an endpoint, for a response that is stored.
    pub(super) fn fetch(&self, head: &mut RequestHead, turn: &mut Turn<'_>, fetching: Fetching) -> Flow {
        let Fetching { hash, key, now, stale, may_store, is_part, pilot, slice } = fetching;
        let is_personal = turn.notes.is_personal();
        let (status, counter, forwarded) = match &stale {
            Some(_) => (CacheStatus::Expired, &self.0.counts.expired, "stale"),
            None => (CacheStatus::Miss, &self.0.counts.missed, "uri-miss"),
        };
        let Some(cached) = turn.notes.begin_cached(self.0.note) else { return Flow::Continue };
        let request = head.clone();
        if slice.is_some() {
            cached.replaced = Some(Replaced::take(head));
        }
        let validates = match &stale {
            Some(entry) => validate(head, entry),
            None => {
                if may_store && !is_part {
                    strip_conditions(head);
                }
                false
            }
        };
        if let Some(fetched) = &slice {
            ask_for(fetched.slice, head);
        }
        cached.told = Told { forwarded: Some(forwarded), ..Told::default() };
        cached.fetch = Some(Fetch {
            store: Arc::clone(&self.1),
            hash,
            key: key.into(),
            request,
            is_personal,
            begun: Begun { at: now, purges: self.1.purges() },
            pilot,
            stale,
            validates,
            may_store,
            ready: None,
            slice,
        });
        turn.notes.set_cache_status(status);
        turn.count(counter);
        self.1.count(false);
        Flow::Continue
    }

    fn asked(&self, head: &RequestHead) -> Directives {
        if !self.0.follows_clients {
            return Directives::default();
        }
        let mut asked = Directives::of(named(&head.fields, b"cache-control"));
        // RFC 9111 section 5.4.
        let is_pragma = |value: &[u8]| value.split(|byte| *byte == b',').any(|one| trimmed(one) == b"no-cache");
        if named(&head.fields, b"cache-control").next().is_none() && named(&head.fields, b"pragma").any(is_pragma) {
            asked.no_cache = true;
        }
        asked
    }

    fn tell(&self, turn: &mut Turn<'_>, told: Told) {
        if self.0.has_status_field
            && let Some(cached) = turn.notes.begin_cached(self.0.note)
        {
            cached.told = told;
        }
    }
}

/// Where a response is stored.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub hash: u64,
    pub key: &'a [u8],
    /// It is this slice of the response of a key of this hash.
    pub slice: Option<(Slice, u64)>,
}

/// How a look goes on.
pub(super) struct Looking {
    /// It may wait for another exchange.
    pub may_wait: bool,
    /// What was read from the disk.
    pub read: Option<Arc<Entry>>,
}

/// What is fetched.
pub(super) struct Fetching {
    pub hash: u64,
    pub key: Vec<u8>,
    pub now: u64,
    pub stale: Option<Arc<Entry>>,
    pub may_store: bool,
    pub is_part: bool,
    pub pilot: Option<crate::cache::flight::Pilot>,
    pub slice: Option<Box<SliceFetch>>,
}

/// Makes a request one that asks whether an entry is still good (RFC 9111 section 4.3.1). `false`: that cannot be asked.
pub(super) fn validate(head: &mut RequestHead, entry: &Entry) -> bool {
    strip_conditions(head);
    let mut validates = false;
    for (name, value) in [("if-none-match", entry.etag()), ("if-modified-since", entry.last_modified())] {
        if let (Some(value), Ok(name)) = (value, FieldName::new(name)) {
            head.fields.set(&name, value);
            validates = true;
        }
    }
    validates
}
