//! What filters leave for later steps of the same exchange, and for its access log.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use model::RequestHead;

use super::cache::slices::Slices;
use super::cached::{Cached, Fetch, Refresh};
use super::changes::FieldChanges;
use super::ended::{AtEnd, Ended, Pending};
use super::mirror::Mirror;
use super::seen_body::SeenBody;
use super::shared_limit::Charge;
use super::statuses::{CacheStatus, LimitStatus};
use crate::jose::Claims;

/// What one filter has noted, under the number that [`super::Compiling::note`] gave it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Note {
    /// Nothing yet.
    #[default]
    None,
    /// A yes or a no.
    Flag(bool),
    /// A number.
    Number(u64),
}

/// All are forgotten by one write.
#[derive(Clone, Copy, Debug, Default)]
struct Statuses {
    limit: LimitStatus,
    cache: CacheStatus,
    /// Redirects of endpoints that were followed.
    redirects: u8,
    /// The request is sent again, not for a slice.
    is_again: bool,
    /// A filter has verified the client, whether or not it knows a name.
    is_verified: bool,
}

/// What a request beside an exchange has of its notes: the client that filters have verified, and whether conditions of filters held.
#[derive(Clone, Default)]
pub struct Carried {
    user: Option<Box<[u8]>>,
    claims: Option<Arc<Claims>>,
    metadata: Vec<(usize, Box<Claims>)>,
    verdicts: Vec<Note>,
}

/// What a filter leaves for the response.
enum Left {
    Changes(Arc<FieldChanges>),
    Cached(Box<Cached>),
    /// What a step goes on with once it has what it needs.
    Kept(Box<dyn Any + Send>),
    /// What an authorization service says beside its verdict.
    Metadata(Box<Claims>),
}

/// The notes of one exchange. They belong to a head in the pool of its worker, so that a worker that is warm allocates nothing.
#[derive(Default)]
pub struct Notes {
    /// Bytes of the request's body that are carried, where a filter bounds them.
    pub body_max: Option<u64>,
    /// Values of `set-cookie` that go with the response, each from the filter that seals it.
    pub cookies: Vec<String>,
    /// Copies that are sent with the request, once its cluster is known.
    pub mirrors: Vec<Arc<Mirror>>,
    /// What the response takes of limits that several instances share. It is sent once the filters have seen the response.
    pub charges: Vec<Charge>,
    user: Vec<u8>,
    has_user: bool,
    claims: Option<Arc<Claims>>,
    /// The body of the request, where expressions read it.
    pub(crate) body: SeenBody,
    numbered: Vec<Note>,
    /// What is left for the response, by the numbers of its notes.
    left: Vec<(usize, Left)>,
    statuses: Statuses,
    pending: Pending,
}

impl Notes {
    /// Forgets all of them; memory stays. What is still to be done at the end of the exchange is done.
    #[inline]
    pub fn clear(&mut self) {
        self.end(&Ended::default());
        self.statuses = Statuses::default();
        self.body_max = None;
        self.mirrors.clear();
        self.charges.clear();
        self.cookies.clear();
        self.has_user = false;
        self.claims = None;
        self.body = SeenBody::default();
        self.numbered.clear();
        self.left.clear();
    }

    /// Forgets what the filters of one route have noted, before those of another. What is to be done at the end of the exchange, the
    /// cookies for the client and the number of redirects stay.
    pub fn leave_route(&mut self) {
        let (pending, cookies) = (std::mem::take(&mut self.pending), std::mem::take(&mut self.cookies));
        let statuses = Statuses { cache: CacheStatus::None, is_verified: false, ..self.statuses };
        self.clear();
        (self.pending, self.cookies, self.statuses) = (pending, cookies, statuses);
    }

    /// Notes the user that a filter has verified; any bytes.
    pub fn set_user(&mut self, name: &[u8]) {
        self.user.clear();
        self.user.extend_from_slice(name);
        self.has_user = true;
    }

    /// Returns the user that a filter has verified, if one has; may hold any byte.
    #[inline]
    pub fn user(&self) -> Option<&[u8]> {
        self.has_user.then_some(&*self.user)
    }

    /// Notes the claims of a token that a filter has verified.
    pub fn set_claims(&mut self, claims: Arc<Claims>) {
        self.claims = Some(claims);
    }

    /// Returns the claims of the token that a filter has verified, if one has.
    #[inline]
    pub fn claims(&self) -> Option<&Claims> {
        self.claims.as_deref()
    }

    /// Notes the body of the request for expressions that read it. One that is empty has no value.
    pub fn set_body(&mut self, body: Arc<[u8]>) {
        self.body = SeenBody::held(body);
    }

    /// Notes that the body is now held whole: expressions that come later look at it again if it could not be read before.
    pub fn note_body_held(&mut self) {
        self.body.look_again();
    }

    /// Notes that a filter has verified the client, which may have no name here.
    pub fn set_verified(&mut self) {
        self.statuses.is_verified = true;
    }

    /// Returns whether a filter has verified the client: its response may be for this client alone (RFC 9111 section 3.5).
    pub fn is_personal(&self) -> bool {
        self.statuses.is_verified || self.has_user || self.claims.is_some()
    }

    /// Has something done once the exchange has ended, however it ends: also when its client has gone, or the notes are dropped.
    pub fn at_end(&mut self, what: Arc<dyn AtEnd>, token: u64) {
        self.pending.push(what, token);
    }

    /// Returns whether anything is to be done at the end of the exchange.
    #[inline]
    pub fn awaits_end(&self) -> bool {
        self.pending.is_some()
    }

    /// Does what is to be done at the end of the exchange, once.
    #[inline]
    pub fn end(&mut self, ended: &Ended) {
        self.pending.end(ended);
    }

    /// Notes what a limit has done with the request, unless one before it has done more.
    #[inline]
    pub fn raise_limit(&mut self, status: LimitStatus) {
        self.statuses.limit = self.statuses.limit.max(status);
    }

    /// Returns what limits have done with the request.
    #[inline]
    pub fn limit_status(&self) -> LimitStatus {
        self.statuses.limit
    }

    /// Returns how many redirects of endpoints were followed.
    #[inline]
    pub fn redirects(&self) -> u8 {
        self.statuses.redirects
    }

    /// Notes that one more was followed.
    pub fn count_redirect(&mut self) {
        self.statuses.redirects = self.statuses.redirects.saturating_add(1);
    }

    /// Notes what a cache has done with the request.
    pub fn set_cache_status(&mut self, status: CacheStatus) {
        self.statuses.cache = status;
    }

    /// Returns what a cache has done with the request.
    #[inline]
    pub fn cache_status(&self) -> CacheStatus {
        self.statuses.cache
    }

    /// Returns what the cache of this number has left.
    pub(super) fn cached(&mut self, number: usize) -> Option<&mut Cached> {
        self.left.iter_mut().find_map(|(left, what)| match what {
            Left::Cached(cached) if *left == number => Some(&mut **cached),
            _ => None,
        })
    }

    /// The same, made if there is none. `None`: another cache has the exchange.
    pub(super) fn begin_cached(&mut self, number: usize) -> Option<&mut Cached> {
        let other = self.left.iter().find(|(_, what)| matches!(what, Left::Cached(_)));
        match other.map(|(left, _)| *left) {
            Some(left) if left != number => return None,
            Some(_) => {}
            None => self.left.push((number, Left::Cached(Box::default()))),
        }
        self.cached(number)
    }

    /// Takes the request that fetches a stale response again, if there is one: it is sent beside the exchange.
    pub fn take_refresh(&mut self) -> Option<Refresh> {
        self.all_cached().find_map(|cached| cached.refresh.take())
    }

    /// Takes the slices that follow from what a cache answers, if its answer has any.
    pub fn take_slices(&mut self) -> Option<Box<Slices>> {
        self.all_cached().find_map(|cached| cached.slices.take())
    }

    /// Gives a request that asks for a slice what the client has asked for in its place. `false`: it asks for none.
    #[cold]
    pub fn leave_slices(&mut self, head: &mut RequestHead) -> bool {
        let replaced = self.all_cached().find_map(|cached| cached.replaced.take());
        replaced.map(|replaced| replaced.restore(head)).is_some()
    }

    /// Says whether the request is sent to the same cluster again. Returns what was said before.
    #[cold]
    pub fn set_again(&mut self, is_again: bool) -> bool {
        std::mem::replace(&mut self.statuses.is_again, is_again)
    }

    /// Returns whether the request asks for a slice.
    #[cold]
    pub fn asks_for_slice(&self) -> bool {
        self.left.iter().any(|(_, what)| matches!(what, Left::Cached(cached) if cached.replaced.is_some()))
    }

    fn all_cached(&mut self) -> impl Iterator<Item = &mut Cached> {
        self.left.iter_mut().filter_map(|(_, what)| match what {
            Left::Cached(cached) => Some(&mut **cached),
            Left::Changes(_) | Left::Kept(_) | Left::Metadata(_) => None,
        })
    }

    /// Returns what a request beside this exchange has of these notes. Numbers are of this exchange alone, as what a limit has counted is.
    #[cold]
    pub fn carried(&self) -> Carried {
        let verdict = |note: &Note| if let Note::Flag(_) = note { *note } else { Note::None };
        let metadata = self.left.iter().filter_map(|(number, what)| match what {
            Left::Metadata(metadata) => Some((*number, metadata.clone())),
            _ => None,
        });
        Carried {
            user: self.user().map(Into::into),
            claims: self.claims.clone(),
            metadata: metadata.collect(),
            verdicts: self.numbered.iter().map(verdict).collect(),
        }
    }

    fn carry(&mut self, carried: Carried) {
        if let Some(user) = carried.user {
            self.set_user(&user);
        }
        (self.claims, self.numbered) = (carried.claims, carried.verdicts);
        carried.metadata.into_iter().for_each(|(number, metadata)| self.add_metadata(number, metadata));
    }

    /// Has the response of this exchange refresh a cache, beside the exchange whose notes these were.
    pub fn begin_refresh(&mut self, refresh: Refresh, carried: Carried) -> RequestHead {
        let Refresh { head, number, fetch } = refresh;
        self.carry(carried);
        if let Some(cached) = self.begin_cached(number) {
            cached.fetch = Some(fetch);
        }
        head
    }

    /// Says that the response is not to be stored: it follows from more than the request's head.
    #[cold]
    pub fn store_nothing(&mut self) {
        self.fetches().for_each(Fetch::store_nothing);
    }

    /// Says that the response cannot be stored for any client: it may not be whole. For a while, no request waits for another
    /// of the same key.
    #[cold]
    pub fn store_none(&mut self) {
        self.fetches().for_each(Fetch::store_none);
    }

    fn fetches(&mut self) -> impl Iterator<Item = &mut Fetch> {
        self.all_cached().filter_map(|cached| cached.fetch.as_mut())
    }

    /// Returns the note of this number.
    pub fn get(&self, number: usize) -> Note {
        self.numbered.get(number).copied().unwrap_or_default()
    }

    /// Puts a note under this number.
    pub fn set(&mut self, number: usize, note: Note) {
        if self.numbered.len() <= number {
            self.numbered.resize(number + 1, Note::None);
        }
        self.numbered[number] = note;
    }

    /// Leaves changes of the response under this number, which [`super::Compiling::note`] gave.
    pub(super) fn leave(&mut self, number: usize, changes: Arc<FieldChanges>) {
        self.left.push((number, Left::Changes(changes)));
    }

    /// Keeps what a step goes on with under this number, until [`Self::take`].
    pub(super) fn keep(&mut self, number: usize, what: Box<dyn Any + Send>) {
        self.left.push((number, Left::Kept(what)));
    }

    /// Takes what [`Self::keep`] has kept under this number.
    pub(super) fn take<T: Any>(&mut self, number: usize) -> Option<Box<T>> {
        let is_it =
            |(left, what): &(usize, Left)| *left == number && matches!(what, Left::Kept(kept) if kept.is::<T>());
        let place = self.left.iter().position(is_it)?;
        match self.left.remove(place).1 {
            Left::Kept(kept) => kept.downcast().ok(),
            Left::Changes(_) | Left::Cached(_) | Left::Metadata(_) => None,
        }
    }

    /// Notes what an authorization service says beside its verdict.
    pub(super) fn add_metadata(&mut self, number: usize, metadata: Box<Claims>) {
        self.left.push((number, Left::Metadata(metadata)));
    }

    /// Returns what an authorization service has said under this name; of several filters the last that has it counts.
    pub fn metadata(&self, name: &str) -> Option<&serde_json::Value> {
        self.left.iter().rev().find_map(|(_, what)| match what {
            Left::Metadata(metadata) => metadata.get(name),
            _ => None,
        })
    }

    /// Returns the changes that were left last under this number.
    pub(super) fn left(&self, number: usize) -> Option<&FieldChanges> {
        self.left.iter().rev().find_map(|(left, what)| match what {
            Left::Changes(changes) if *left == number => Some(&**changes),
            _ => None,
        })
    }

    /// Returns the yes or no under this number, if there is one.
    pub fn flag(&self, number: usize) -> Option<bool> {
        match self.get(number) {
            Note::Flag(flag) => Some(flag),
            Note::None | Note::Number(_) => None,
        }
    }
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { body_max, numbered, statuses, .. } = self;
        let mut shown = f.debug_struct("Notes");
        shown
            .field("body_max", body_max)
            .field("user", &self.user())
            .field("numbered", numbered)
            .field("statuses", statuses);
        shown.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_found_under_their_number_and_gone_when_they_are_cleared() {
        let mut notes = Notes::default();
        notes.set(2, Note::Flag(true));
        notes.set(0, Note::Number(7));
        notes.set_user(b"ann");
        notes.body_max = Some(1);
        assert_eq!(
            (notes.get(0), notes.get(1), notes.flag(2), notes.get(9)),
            (Note::Number(7), Note::None, Some(true), Note::None)
        );
        assert_eq!((notes.flag(0), notes.user()), (None, Some(&b"ann"[..])));
        notes.clear();
        assert_eq!((notes.flag(2), notes.user(), notes.body_max), (None, None, None));
        notes.set_user(b"");
        assert_eq!(notes.user(), Some(&b""[..]));
    }

    #[test]
    fn a_request_beside_has_the_verdicts_and_the_client_but_no_numbers() {
        let (mut notes, mut beside) = (Notes::default(), Notes::default());
        let claims = |text: &[u8]| Claims::from_json(text).unwrap();
        (0..3).zip([Note::Flag(true), Note::Number(7), Note::Flag(false)]).for_each(|(at, note)| notes.set(at, note));
        notes.set_user(b"ann");
        notes.set_claims(Arc::new(claims(b"{}")));
        notes.add_metadata(0, Box::new(claims(b"{\"a\":1}")));
        beside.carry(notes.carried());
        assert_eq!([0, 1, 2].map(|at| beside.get(at)), [Note::Flag(true), Note::None, Note::Flag(false)]);
        assert_eq!((beside.user(), beside.claims().is_some()), (Some(&b"ann"[..]), true));
        assert_eq!(beside.metadata("a"), Some(&1.into()));
    }

    struct Told(std::sync::Mutex<Vec<(u64, u16)>>);

    impl AtEnd for Told {
        fn at_end(&self, token: u64, ended: &Ended) {
            self.0.lock().unwrap().push((token, ended.status));
        }
    }

    #[test]
    fn what_is_to_be_done_at_the_end_is_done_once_however_that_comes() {
        let told = Arc::new(Told(std::sync::Mutex::default()));
        let mut notes = Notes::default();
        let begin = |notes: &mut Notes, token| notes.at_end(told.clone(), token);
        begin(&mut notes, 1);
        begin(&mut notes, 2);
        notes.end(&Ended { status: 200, ..Ended::default() });
        notes.end(&Ended { status: 500, ..Ended::default() });
        begin(&mut notes, 3);
        notes.clear();
        notes.clear();
        begin(&mut notes, 4);
        drop(notes);
        assert_eq!(*told.0.lock().unwrap(), [(1, 200), (2, 200), (3, 0), (4, 0)]);
    }

    #[test]
    fn the_most_that_limits_have_done_counts() {
        let mut notes = Notes::default();
        assert_eq!(notes.limit_status().as_str(), "");
        for (status, shown) in [
            (LimitStatus::Passed, "passed"),
            (LimitStatus::Marked, "marked"),
            (LimitStatus::Delayed, "marked"),
            (LimitStatus::Passed, "marked"),
        ] {
            notes.raise_limit(status);
            assert_eq!(notes.limit_status().as_str(), shown);
        }
        notes.clear();
        assert_eq!(notes.limit_status(), LimitStatus::None);
    }
}
