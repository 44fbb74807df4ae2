//! Responses in slices: which slice a request begins with, what the endpoint's response to that decides, and which slices follow.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::{FieldName, Method, RequestHead, ResponseHead};

use super::cutting::Cutting;
use super::responses::{Storing, is_of_client};
use super::steps::{CacheStep, Fetching, Looking, Place, validate};
use crate::cache::control::Directives;
use crate::cache::flight::Pilot;
use crate::cache::fresh::Clock;
use crate::cache::range::{Sought, sought};
use crate::cache::serve::strip_conditions;
use crate::cache::slice::{Representation, Slice};
use crate::cache::validate::named;
use crate::cache::{Begun, DiskAsk, Entry, Filling, Form, Served, Waiter, vary};
use crate::filter::cached::{Cut, Fetch, Refresh, SliceFetch};
use crate::filter::{Extent, Flow, Need, ResponseView, SlicedBody, Stage, Turn};

/// Has a request ask for a slice, whatever it has asked for before.
pub(super) fn ask_for(slice: Slice, head: &mut RequestHead) {
    if let Ok(name) = FieldName::new("range") {
        head.fields.set_alone(&name, format!("bytes={}-{}", slice.first(), slice.last()).as_bytes());
    }
}

/// What a request wants, as far as that is known without the length. `None`: it is not answered in slices.
fn wanted(head: &RequestHead) -> Option<Sought> {
    let mut ranges = named(&head.fields, b"range");
    match (ranges.next(), ranges.next()) {
        // RFC 9110 section 14.2: only GET has ranges.
        (Some(_), _) if head.received_method() != Method::Get => Some(Sought::From(0)),
        (None, _) => Some(Sought::From(0)),
        (Some(one), None) => sought(one),
        (Some(_), Some(_)) => None,
    }
}

impl CacheStep {
    /// Answers from slices, waits for another exchange, or has an endpoint be asked for a slice. `None`: the request is not one for slices.
    pub(super) fn look_for_slice(
        &self,
        (of, of_key): (u64, &[u8]),
        (head, asked): (&mut RequestHead, &Directives),
        Looking { may_wait, read }: Looking,
        turn: &mut Turn<'_>,
    ) -> Option<Flow> {
        let size = self.0.slice?;
        let slice = match wanted(head)? {
            Sought::From(byte) => Slice::at(size, byte),
            // The first one tells how long it is.
            Sought::Last => Slice::at(size, 0),
        };
        let key = slice.key(of_key);
        let hash = self.1.hash(&key, turn.chance);
        let now = turn.unix_seconds();
        let place = Place { hash, key: &key, slice: Some((slice, of)) };
        let mut stale = match self.stored(place, (head, asked), read.clone(), turn) {
            Ok(flow) => return Some(flow),
            Err(stale) => stale,
        };
        let is_get = head.method == Method::Get && head.received_method() == Method::Get;
        let is_sliced = is_get && !asked.only_if_cached && !asked.no_store && !self.1.is_passed(of, now);
        let is_used = || stale.is_some() || self.0.min_uses == 1 || self.1.ask(hash) >= self.0.min_uses;
        if !is_sliced || !is_used() {
            return None;
        }
        let mut pilot = None;
        if !self.1.is_passed(hash, now) {
            match self.1.begin_flight(hash) {
                Ok(begun) => {
                    pilot = Some(begun);
                    // Another flight may have ended since the first look, and have brought the whole.
                    if let Ok(flow) =
                        self.stored(Place { hash: of, key: of_key, slice: None }, (head, asked), None, turn)
                    {
                        return Some(flow);
                    }
                    match self.stored(place, (head, asked), read, turn) {
                        Ok(flow) => return Some(flow),
                        Err(found) => stale = found,
                    }
                }
                Err(flight) if may_wait => {
                    if let Some(waiter) = flight.wait() {
                        return Some(self.wait(waiter, turn));
                    }
                }
                Err(_) => {}
            }
        }
        let fetched = Some(Box::new(SliceFetch { slice, hash, key, of: None }));
        let (key, is_part) = (of_key.to_vec(), false);
        let fetching = Fetching { hash: of, key, now, stale, may_store: true, is_part, pilot, slice: fetched };
        Some(self.fetch(head, turn, fetching))
    }

    /// Returns what a stored response is a part of, if it is this slice and not out of date. `of`: hash of the key without a slice.
    pub(super) fn representation(&self, slice: Slice, of: u64, entry: &Entry) -> Option<Representation> {
        slice.in_entry(entry).filter(|_| !self.1.are_slices_outdated(of, entry.clock.received))
    }

    /// Leaves the slices that follow from a stored one which answers a request.
    pub(super) fn leave_slices(&self, served: &Served, head: &RequestHead, turn: &mut Turn<'_>) {
        let is_personal = turn.notes.is_personal();
        let slices = (|| {
            let (at, count) = served.body().filter(|(_, count)| *count > 0)?;
            let (key, size) = (self.key(head, turn)?, self.0.slice?);
            let object = (self.1.hash(&key, turn.chance), key.into());
            let stored = crate::cache::slice::part_of(&served.entry().head)?;
            let entry = served.entry();
            let of = Representation::of(&entry.head, stored.total, entry.clock.received);
            let mut head = head.clone();
            strip_conditions(&mut head);
            let (step, range) = (self.clone(), at..at + count);
            Some(Box::new(Slices { step, object, size, head, is_personal, of, at: range.start, end: range.end }))
        })();
        if let Some(cached) = turn.notes.begin_cached(self.0.note) {
            cached.slices = slices;
        }
    }

    /// Decides by the endpoint's response to a request for a slice.
    pub(super) fn answer_to_slice(
        &self,
        head: &ResponseHead,
        mut fetch: Fetch,
        view: &ResponseView<'_>,
        turn: &mut Turn<'_>,
    ) -> Flow {
        let now = turn.unix_seconds();
        let Some(asked) = fetch.slice.take() else { return Flow::Continue };
        let found = asked.slice.part_in(head, now);
        if let Some(found) = found.filter(|found| asked.of.as_ref().is_none_or(|of| of == found)) {
            fetch.slice = Some(asked);
            return self.take_slice(head, fetch, found, view, turn);
        }
        let is_outdated = self.is_outdated_by(head, &fetch, view, turn);
        if asked.of.is_some() {
            if is_outdated {
                self.1.outdate_slices(fetch.hash, now);
                // Another representation, or an endpoint that cannot continue this one: the next request gets the whole.
                self.1.note_pass(fetch.hash, now);
            }
            return Flow::Close;
        }
        // A range that begins in the slice or behind it is beyond the end, too.
        let is_beyond = head.status == 416
            && named(&fetch.request.fields, b"if-range").next().is_none()
            && named(&fetch.request.fields, b"range").next().and_then(sought).is_some_and(|of| of != Sought::Last);
        if head.status == 206 || head.status == 416 && !is_beyond {
            // It cannot be cut or joined: for a while, slices are not asked for.
            self.1.note_pass(fetch.hash, now);
            return Flow::Need(Need::Again);
        }
        if fetch.stale.take().is_some() && is_outdated {
            self.1.outdate_slices(fetch.hash, now);
        }
        if !is_beyond {
            self.prepare(head, fetch, view, turn);
        }
        Flow::Continue
    }

    /// Returns whether a response other than the wanted slice says that those which are stored are out of date. A refusal, or what is for one
    /// client alone, says nothing of what is stored for all.
    fn is_outdated_by(&self, head: &ResponseHead, fetch: &Fetch, view: &ResponseView<'_>, turn: &mut Turn<'_>) -> bool {
        let is_of_resource = head.status < 300 || matches!(head.status, 404 | 410 | 416);
        // Most requests of browsers have cookies: what may be stored nevertheless is for all.
        let is_for_all = || !is_of_client(fetch) || self.judge_part(fetch, head, turn.unix_seconds()).is_some();
        is_of_resource && is_for_all() && !self.is_excluded(head, view, turn)
    }

    /// Takes a slice that is as it was asked for.
    fn take_slice(
        &self,
        head: &ResponseHead,
        mut fetch: Fetch,
        found: Representation,
        view: &ResponseView<'_>,
        turn: &mut Turn<'_>,
    ) -> Flow {
        let now = turn.unix_seconds();
        let Some(asked) = &fetch.slice else { return Flow::Continue };
        let (slice, key, is_behind) = (asked.slice, asked.key.clone(), fetch.is_behind());
        let may_store = fetch.may_store && view.request.method == Method::Get;
        let is_excluded = may_store && self.is_excluded(head, view, turn);
        let fresh = self.judge(&fetch, head, now).filter(|_| may_store && !is_excluded);
        let variant = vary::of(&head.fields, &fetch.request.fields).filter(|_| fresh.is_some());
        if variant.is_none() && !is_behind {
            // It is not for all: what is asked for again for each client is better asked for at once.
            self.1.note_pass(fetch.hash, now);
            return Flow::Need(Need::Again);
        }
        let is_stored = variant.is_some();
        let clock = Clock::of(head, fetch.begun.at, now);
        let mut entry = Entry::new(key, head, variant.unwrap_or_default(), (fresh.unwrap_or_default(), clock));
        entry.tags = self.tags(head);
        let told = Arc::new(entry.without_body());
        if is_stored {
            fetch.ready = Some(entry);
        } else {
            self.1.note_pass(fetch.place().0, now);
            (fetch.may_store, fetch.pilot) = (false, None);
        }
        let served = if is_behind { Served::plain(told) } else { Served::new(told, &fetch.request, now) };
        let is_here = is_behind || {
            self.leave_slices(&served, &fetch.request, turn);
            let (Form::Whole | Form::Part(..)) = served.form() else { return Flow::Stored(Box::new(served)) };
            // If not, the range does not hold, or begins elsewhere.
            served.body().is_some_and(|(at, _)| at >= slice.first())
        };
        if !is_here {
            return Flow::Stored(Box::new(served));
        }
        let Some(cached) = turn.notes.cached(self.0.note) else { return Flow::Continue };
        if let (false, Some((at, total))) = (is_behind, served.body()) {
            let len = slice.len_of(found.total);
            let skip = (at - slice.first()).min(len);
            cached.cut = Some(Cut { skip, take: total.min(len - skip), total });
            cached.told.is_stored = true;
        }
        cached.fetch = Some(fetch);
        Flow::Stored(Box::new(served.relayed()))
    }

    /// Begins with the body of a slice.
    pub(super) fn begin_slice(&self, fetch: Fetch, extent: Extent, turn: &mut Turn<'_>) -> Option<(Stage, Extent)> {
        let is_behind = fetch.is_behind();
        let Fetch { store, hash, begun, pilot, ready, slice, .. } = fetch;
        let slice = slice?;
        let cached = turn.notes.cached(self.0.note)?;
        let (cut, slices) = (cached.cut.take(), cached.slices.take());
        let entry = ready.map(|entry| (crate::cache::slice::part_of(&entry.head).map(|part| part.len()), entry));
        let expected = entry.as_ref().and_then(|(length, _)| *length);
        let filling = entry.map(|(_, entry)| {
            let filling = Filling::new((store, slice.hash, entry), (expected.unwrap_or(0), expected), begun);
            filling.with(pilot).slice_of(hash)
        });
        if is_behind {
            return Some((Stage::Tap(Box::new(Storing(filling?))), extent));
        }
        let cut = cut?;
        // What the head has stated is what the framing has: else it would end in the middle of another slice.
        let left = expected.filter(|expected| extent == Extent::Known(*expected));
        let rest = slices.and_then(|mut slices| {
            slices.advance(cut.take);
            (!slices.is_over()).then_some(slices)
        });
        let coder = Box::new(Cutting { filling, left, skip: cut.skip, take: cut.take });
        Some((Stage::Slices(Box::new(SlicedBody { coder, rest })), Extent::Known(cut.total)))
    }
}

/// The slices that are sent to one client, one after the other: it says what is to be done for the next one, and the data plane does it.
pub struct Slices {
    step: CacheStep,
    /// Hash and key without a slice.
    object: (u64, Box<[u8]>),
    size: u64,
    /// The request when it was the filter's turn, without conditions and range.
    head: RequestHead,
    is_personal: bool,
    of: Representation,
    /// The next byte that is sent, and the end of those.
    at: u64,
    end: u64,
}

/// What was done for a slice before.
#[derive(Debug, Default)]
pub struct Asking {
    /// The time, in whole seconds since 1970.
    pub now: u64,
    /// It may wait for another exchange.
    pub may_wait: bool,
    /// It may be read from the disk.
    pub may_read: bool,
    /// What was read.
    pub read: Option<Arc<Entry>>,
}

/// What is to be done for a slice.
#[derive(Debug)]
pub enum NextSlice {
    /// It is here. What is beside it fetches it again for those that come later.
    Stored(Arc<Entry>, Option<Box<Refresh>>),
    /// It is to be read from the disk.
    Read(Box<DiskAsk>),
    /// Another exchange fetches it.
    Wait(Waiter),
    /// It is to be fetched. What is beside it may be sent if the endpoint fails.
    Fetch(Box<Refresh>, Option<Arc<Entry>>),
}

impl Slices {
    /// Returns whether all is sent.
    pub fn is_over(&self) -> bool {
        self.at >= self.end
    }

    /// Returns the number of the note of the filter.
    pub fn number(&self) -> usize {
        self.step.0.note
    }

    /// Returns for how long the exchange waits for others that fetch a slice.
    pub fn lock(&self) -> Duration {
        self.step.0.lock
    }

    /// Returns which bytes of the slice that holds the next byte are to be sent.
    pub fn piece(&self) -> std::ops::Range<u64> {
        let slice = self.slice();
        let end = self.end.min(slice.last().saturating_add(1));
        self.at - slice.first()..end - slice.first()
    }

    /// So many bytes are sent.
    pub fn advance(&mut self, count: u64) {
        self.at = self.at.saturating_add(count);
    }

    /// Returns whether a stored response, with its body, is the slice that holds the next byte.
    pub fn begin_with(&self, entry: &Entry) -> bool {
        !self.is_over() && self.slice().in_entry(entry).is_some()
    }

    fn slice(&self) -> Slice {
        Slice::at(self.size, self.at)
    }

    /// Returns what is to be done for the slice that holds the next byte.
    pub fn next(&self, asking: Asking) -> NextSlice {
        let Asking { now, may_wait, may_read, read } = asking;
        let (store, slice) = (&self.step.1, self.slice());
        let key = slice.key(&self.object.1);
        // Keys have been hashed before.
        let hash = store.hash(&key, &mut || 0);
        let stored = match self.stored((hash, &key), now, read) {
            Ok(next) => return next,
            Err(stored) => stored,
        };
        if stored.is_none()
            && may_read
            && let Some(content) = store.disk().map(|disk| disk.content())
            && let Some(entry) = content.find((hash, &key), &self.head.fields)
        {
            let (content, store) = (Arc::clone(content), Arc::clone(store));
            let begun = Begun { at: now, purges: store.purges() };
            return NextSlice::Read(Box::new(DiskAsk { content, store, hash, entry, begun }));
        }
        let is_used = stored.is_some() || self.step.0.min_uses == 1 || store.ask(hash) >= self.step.0.min_uses;
        let mut pilot = None;
        if is_used && !store.is_passed(hash, now) {
            match store.begin_flight(hash) {
                Ok(begun) => {
                    pilot = Some(begun);
                    // Another flight may have ended since the first look.
                    if let Ok(next) = self.stored((hash, &key), now, None) {
                        return next;
                    }
                }
                Err(flight) if may_wait => {
                    if let Some(waiter) = flight.wait() {
                        return NextSlice::Wait(waiter);
                    }
                }
                Err(_) => {}
            }
        }
        if let Some(counter) = &self.step.0.counts.slices {
            counter.add_one();
        }
        let in_place = stored.as_ref().filter(|entry| {
            entry.fresh.stale_if_error > 0 && -entry.fresh_for(now) <= entry.fresh.stale_if_error as i64
        });
        let in_place = in_place.cloned();
        NextSlice::Fetch(self.fetch(self.asked(hash, key), now, stored, (pilot, is_used)), in_place)
    }

    /// The slice if it may be sent as it is stored; else what is stored, if it is of this representation and may be validated.
    fn stored(
        &self,
        (hash, key): (u64, &[u8]),
        now: u64,
        read: Option<Arc<Entry>>,
    ) -> Result<NextSlice, Option<Arc<Entry>>> {
        let (store, slice) = (&self.step.1, self.slice());
        let read = read.filter(|read| *read.key == *key);
        let Some(entry) = store.find((hash, key), &self.head.fields).or(read) else { return Err(None) };
        match self.step.representation(slice, self.object.0, &entry) {
            Some(of) if of == self.of => {}
            // The endpoint says which of both is out of date.
            Some(_) => return Err(None),
            None => {
                store.remove(hash, &entry);
                return Err(None);
            }
        }
        let left = entry.fresh_for(now);
        if left > 0 {
            return Ok(NextSlice::Stored(entry, None));
        }
        if entry.fresh.stale_while_revalidate == 0 || -left > entry.fresh.stale_while_revalidate as i64 {
            return Err(Some(entry));
        }
        let pilot = store.begin_flight(hash).ok();
        let refresh = pilot
            .map(|pilot| self.fetch(self.asked(hash, key.into()), now, Some(Arc::clone(&entry)), (Some(pilot), true)));
        Ok(NextSlice::Stored(entry, refresh))
    }

    /// The slice that holds the next byte, as it is asked for.
    fn asked(&self, hash: u64, key: Box<[u8]>) -> SliceFetch {
        SliceFetch { slice: self.slice(), hash, key, of: Some(self.of.clone()) }
    }

    /// The request for a slice.
    fn fetch(
        &self,
        fetched: SliceFetch,
        now: u64,
        stale: Option<Arc<Entry>>,
        (pilot, may_store): (Option<Pilot>, bool),
    ) -> Box<Refresh> {
        let mut head = self.head.clone();
        let validates = stale.as_ref().is_some_and(|stale| validate(&mut head, stale));
        if let (false, Some(validator), Ok(name)) = (validates, &self.of.validator, FieldName::new("if-range")) {
            head.fields.set_alone(&name, validator);
        }
        ask_for(fetched.slice, &mut head);
        let fetch = Fetch {
            store: Arc::clone(&self.step.1),
            hash: self.object.0,
            key: Box::default(),
            request: self.head.clone(),
            is_personal: self.is_personal,
            begun: Begun { at: now, purges: self.step.1.purges() },
            pilot,
            stale,
            validates,
            may_store,
            ready: None,
            slice: Some(Box::new(fetched)),
        };
        Box::new(Refresh { head, number: self.number(), fetch })
    }
}

impl fmt::Debug for Slices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slices").field("at", &self.at).field("end", &self.end).finish_non_exhaustive()
    }
}
