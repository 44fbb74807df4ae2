//! What the filter does with a response.

use std::sync::Arc;

use model::fields::Fields;
use model::{FieldName, Method, RequestHead, ResponseHead};

use super::steps::CacheStep;
use crate::cache::fresh::{Clock, Freshness, freshness};
use crate::cache::range::exact;
use crate::cache::validate::named;
use crate::cache::{Entry, Filling, Served, vary};
use crate::filter::cached::Fetch;
use crate::filter::{
    Answers, CacheStatus, Extent, Flow, Rank, ResponseBodyStep, ResponseSource, ResponseStep, ResponseView, Stage, Tap,
    Turn,
};

/// Failures of an endpoint that a stale response may hide (RFC 5861 section 4).
const ERRORS: [u16; 4] = [500, 502, 503, 504];
/// Tags of a response, and bytes of one.
const TAGS_MAX: usize = 128;
const TAG_BYTES_MAX: usize = 256;

impl ResponseStep for CacheStep {
    fn answers(&self) -> Answers {
        Answers::All
    }

    /// Before all others: a page of theirs would hide what is stored.
    fn liking(&self, _: &RequestHead) -> u16 {
        u16::MAX
    }

    fn answer(&self, head: &ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) -> Flow {
        let now = turn.unix_seconds();
        let Some(cached) = turn.notes.cached(self.0.note) else { return Flow::Continue };
        if let Some((hash, key)) = cached.changes.take() {
            // RFC 9111 section 4.4: a response that is no error.
            if view.source == ResponseSource::Endpoint && head.status < 400 {
                self.1.invalidate((hash, &key), now);
                if self.0.slice.is_some() {
                    self.1.outdate_slices(hash, now);
                }
            }
            return Flow::Continue;
        }
        let Some(mut fetch) = cached.fetch.take() else { return Flow::Continue };
        // Filters behind this one may have verified the client since.
        fetch.is_personal |= turn.notes.is_personal();
        let failed = match view.source {
            ResponseSource::Endpoint if head.status == 304 && fetch.validates => {
                return self.revalidated(head, fetch, turn);
            }
            ResponseSource::Endpoint if fetch.slice.is_some() && !ERRORS.contains(&head.status) => {
                return self.answer_to_slice(head, fetch, view, turn);
            }
            ResponseSource::Endpoint => ERRORS.contains(&head.status),
            ResponseSource::Local(Some(model::Fault::Refused) | None) => return Flow::Continue,
            ResponseSource::Local(Some(fault)) => ERRORS.contains(&fault.consequence().status),
        };
        if failed
            && let Some(entry) = fetch.stale.take_if(|entry| {
                entry.fresh.stale_if_error > 0 && -entry.fresh_for(now) <= entry.fresh.stale_if_error as i64
            })
        {
            let left = entry.fresh_for(now);
            return self.serve_fetched(entry, &fetch, (CacheStatus::Stale, left), turn);
        }
        if fetch.is_behind() {
            // It cannot take the place of a part of a body.
            return Flow::Close;
        }
        if view.source == ResponseSource::Endpoint {
            self.prepare(head, fetch, view, turn);
        }
        Flow::Continue
    }

    fn apply(&self, head: &mut ResponseHead, _: &ResponseView<'_>, turn: &mut Turn<'_>) {
        if let Some(tags) = &self.0.tags {
            head.fields.remove(tags);
        }
        if !self.0.has_status_field {
            return;
        }
        let Some(told) = turn.notes.cached(self.0.note).map(|cached| cached.told) else { return };
        let Ok(name) = FieldName::new("cache-status") else { return };
        let of = self.1.settings().name.as_str();
        head.fields.append_with(&name, |out| {
            out.extend_from_slice(of.as_bytes());
            let mut add = |text: &str| out.extend_from_slice(text.as_bytes());
            if told.is_hit {
                add("; hit");
            }
            if let Some(forwarded) = told.forwarded {
                add(&format!("; fwd={forwarded}"));
            }
            if let Some(ttl) = told.ttl {
                add(&format!("; ttl={ttl}"));
            }
            if told.is_stored {
                add("; stored");
            }
        });
    }
}

impl CacheStep {
    /// The endpoint says that what is stored is still good (RFC 9111 section 4.3.4).
    fn revalidated(&self, head: &ResponseHead, fetch: Fetch, turn: &mut Turn<'_>) -> Flow {
        let now = turn.unix_seconds();
        let Some(old) = &fetch.stale else { return Flow::Continue };
        if !fetch.may_store {
            return self.serve_fetched(Arc::clone(old), &fetch, (CacheStatus::Revalidated, 0), turn);
        }
        let told = named(&head.fields, b"etag").next();
        let weak = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
        if told.is_some() && told.map(weak) != old.etag().map(weak) {
            // It speaks of another response. What is stored cannot be trusted longer than for this answer.
            self.1.remove(fetch.place().0, old);
            return self.serve_fetched(Arc::clone(old), &fetch, (CacheStatus::Revalidated, 0), turn);
        }
        let updated = old.updated_head(head);
        // The age is that of the validation.
        let clock = Clock::of(head, fetch.begun.at, now);
        let judged = self.judge(&fetch, &updated, now);
        let variant = vary::of(&updated.fields, &fetch.request.fields);
        let (hash, key) = fetch.place();
        let make = |variant, fresh| {
            let mut entry = Entry::new(key.into(), &updated, variant, (fresh, clock));
            entry.body = Arc::clone(&old.body);
            entry.tags = self.tags(&updated);
            entry
        };
        // What is out of date by now must not come back with a new time.
        let is_outdated = fetch.slice.is_some() && self.1.are_slices_outdated(fetch.hash, fetch.begun.at);
        if let (Some(fresh), Some(variant)) = (judged, variant) {
            if !is_outdated {
                self.1.insert(hash, make(variant, fresh), fetch.begun);
            }
        } else {
            self.1.note_pass(hash, now);
            if !is_of_client(&fetch) {
                self.1.remove(hash, old);
            }
        }
        let entry = Arc::new(make(Box::default(), judged.unwrap_or_default()));
        let left = entry.fresh_for(now);
        self.serve_fetched(entry, &fetch, (CacheStatus::Revalidated, left), turn)
    }

    /// Answers by what is stored, after an endpoint was asked.
    fn serve_fetched(&self, entry: Arc<Entry>, fetch: &Fetch, how: (CacheStatus, i64), turn: &mut Turn<'_>) -> Flow {
        if fetch.is_behind() {
            return Flow::Stored(Box::new(Served::plain(entry)));
        }
        self.serve(entry, &fetch.request, how, turn)
    }

    /// Returns for how long a response is fresh. A slice is judged as the whole that it is of.
    pub(super) fn judge(&self, fetch: &Fetch, head: &ResponseHead, now: u64) -> Option<Freshness> {
        if fetch.slice.is_some() {
            return self.judge_part(fetch, head, now);
        }
        freshness((&fetch.request, fetch.is_personal), head, now, &self.0.rules)
    }

    /// The same for the response to a request for a slice.
    pub(super) fn judge_part(&self, fetch: &Fetch, head: &ResponseHead, now: u64) -> Option<Freshness> {
        let request = (&fetch.request, fetch.is_personal);
        if head.status != 206 {
            return freshness(request, head, now, &self.0.rules);
        }
        let mut whole = head.clone();
        whole.status = 200;
        freshness(request, &whole, now, &self.0.rules)
    }

    /// Decides whether the endpoint's response is stored.
    pub(super) fn prepare(&self, head: &ResponseHead, mut fetch: Fetch, view: &ResponseView<'_>, turn: &mut Turn<'_>) {
        let now = turn.unix_seconds();
        let may_store = fetch.may_store && view.request.method == Method::Get;
        let is_excluded = may_store && self.is_excluded(head, view, turn);
        let judged = self.judge(&fetch, head, now);
        let variant = vary::of(&head.fields, &fetch.request.fields);
        let (Some(fresh), Some(variant)) = (judged.filter(|_| may_store && !is_excluded), variant) else {
            if fetch.may_store {
                self.1.note_pass(fetch.hash, now);
                // A refusal of one client says nothing of what is stored for all.
                let is_of_resource = head.status < 400 || matches!(head.status, 404 | 410);
                if let Some(stale) = &fetch.stale
                    && is_of_resource
                    && !is_excluded
                    && !is_of_client(&fetch)
                {
                    // What is stored is out of date, and what has come in its place is not for all.
                    self.1.remove(fetch.hash, stale);
                }
            }
            return;
        };
        let clock = Clock::of(head, fetch.begun.at, now);
        let mut entry = Entry::new(fetch.key.clone(), head, variant, (fresh, clock));
        entry.tags = self.tags(head);
        fetch.ready = Some(entry);
        let is_stored = fetch.slice.is_some() || !self.is_too_long(head);
        if let Some(cached) = turn.notes.cached(self.0.note) {
            cached.told.is_stored = is_stored;
            cached.fetch = Some(fetch);
        }
    }

    /// Returns whether the body is longer than those that are stored, by what its sender says.
    fn is_too_long(&self, head: &ResponseHead) -> bool {
        let length = named(&head.fields, b"content-length").next().and_then(exact);
        length.is_some_and(|length| length > self.0.body_max)
    }

    /// Returns whether the settings say that such a response is not stored.
    pub(super) fn is_excluded(&self, head: &ResponseHead, view: &ResponseView<'_>, turn: &mut Turn<'_>) -> bool {
        self.0.no_store.as_ref().is_some_and(|condition| condition.is_true_of_response(head, view, turn))
    }

    pub(super) fn tags(&self, head: &ResponseHead) -> Box<[Box<[u8]>]> {
        let Some(name) = &self.0.tags else { return Box::default() };
        let is_between = |byte: &u8| matches!(byte, b',' | b' ' | b'\t');
        let all = head.fields.all(name).flat_map(|list| list.split(is_between));
        let all = all.filter(|tag| !tag.is_empty() && tag.len() <= TAG_BYTES_MAX);
        all.take(TAGS_MAX).map(Into::into).collect()
    }
}

/// Whether the response may be that of one client alone, by what the request holds.
pub(super) fn is_of_client(fetch: &Fetch) -> bool {
    let has = |name: &'static [u8]| named(&fetch.request.fields, name).next().is_some();
    fetch.is_personal || has(b"authorization") || has(b"cookie")
}

impl ResponseBodyStep for CacheStep {
    fn rank(&self) -> Rank {
        Rank::Received
    }

    fn begin(
        &self,
        _: &mut ResponseHead,
        view: &ResponseView<'_>,
        extent: Extent,
        turn: &mut Turn<'_>,
    ) -> Option<(Stage, Extent)> {
        let cached = turn.notes.cached(self.0.note)?;
        let fetch = cached.fetch.take().filter(|_| view.source == ResponseSource::Endpoint)?;
        if fetch.slice.is_some() {
            return self.begin_slice(fetch, extent, turn);
        }
        let Fetch { store, hash, begun, pilot, ready, stale, .. } = fetch;
        let length = match extent {
            Extent::Absent => Some(0),
            Extent::Known(length) => Some(length),
            Extent::Unknown => None,
        };
        if length.is_some_and(|length| length > self.0.body_max) {
            store.note_pass(hash, begun.at);
            if let Some(stale) = stale.filter(|_| self.0.slice.is_some()) {
                // It has grown: from now on it is fetched in slices.
                store.remove(hash, &stale);
            }
            return None;
        }
        let mut filling = Filling::new((store, hash, ready?), (self.0.body_max, length), begun).with(pilot);
        if length == Some(0) {
            filling.finish();
            return None;
        }
        Some((Stage::Tap(Box::new(Storing(filling))), extent))
    }
}

/// Stores a body as it passes.
pub(super) struct Storing(pub Filling);

impl Tap for Storing {
    fn see(&mut self, bytes: &[u8]) {
        self.0.see(bytes);
    }

    fn end(&mut self, _: Option<&Fields>) {
        self.0.finish();
    }
}
