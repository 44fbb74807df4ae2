//! What the filter `cache` keeps of an exchange between its steps.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use model::{FieldName, RequestHead};

use super::cache::slices::Slices;
use crate::cache::flight::Pilot;
use crate::cache::serve::{CONDITIONS, strip_conditions};
use crate::cache::slice::{Representation, Slice};
use crate::cache::{Begun, CacheStore, Entry};

/// See the module.
#[derive(Default)]
pub(super) struct Cached {
    /// It waits for another exchange until then.
    pub until: Option<Instant>,
    /// How often it has waited.
    pub waits: u32,
    /// How often it has asked the disk.
    pub reads: u32,
    /// What it has been given from the disk is served.
    pub is_from_disk: bool,
    /// The response is on its way from an endpoint.
    pub fetch: Option<Fetch>,
    /// The request may change what is stored under this key.
    pub changes: Option<(u64, Box<[u8]>)>,
    /// A request that is to be sent beside the exchange.
    pub refresh: Option<Refresh>,
    /// What the field `Cache-Status` says.
    pub told: Told,
    /// The client's conditions and range, while the request asks for a slice in their place.
    pub replaced: Option<Replaced>,
    /// The slices that are to be sent.
    pub slices: Option<Box<Slices>>,
    /// Which bytes of the first slice are sent before those.
    pub cut: Option<Cut>,
}

/// Bytes of a slice that is on its way from an endpoint.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    /// Bytes before those that are sent.
    pub skip: u64,
    /// Bytes that are sent.
    pub take: u64,
    /// Bytes of all that is sent, with those of other slices.
    pub total: u64,
}

/// Fields that a request for a slice has others for.
pub(super) struct Replaced(Vec<(FieldName, Box<[u8]>)>);

impl Replaced {
    /// Takes the conditions and the range out of a head.
    pub(super) fn take(head: &mut RequestHead) -> Self {
        let mut fields = Vec::new();
        for name in CONDITIONS.iter().filter_map(|name| FieldName::new(name).ok()) {
            fields.extend(head.fields.all(&name).map(|value| (name.clone(), value.into())));
        }
        strip_conditions(head);
        Self(fields)
    }

    /// Gives a head what was taken.
    pub(super) fn restore(&self, head: &mut RequestHead) {
        strip_conditions(head);
        self.0.iter().for_each(|(name, value)| head.fields.append(name, value));
    }
}

/// What the field `Cache-Status` says (RFC 9211).
#[derive(Clone, Copy, Default)]
pub(super) struct Told {
    /// Why an endpoint was asked.
    pub forwarded: Option<&'static str>,
    pub is_hit: bool,
    pub is_stored: bool,
    /// For how many more seconds it is fresh.
    pub ttl: Option<i64>,
}

/// A response that is on its way from an endpoint.
pub(super) struct Fetch {
    pub(super) store: Arc<CacheStore>,
    pub(super) hash: u64,
    pub(super) key: Box<[u8]>,
    /// The request when it was the filter's turn.
    pub(super) request: RequestHead,
    /// A filter has verified who the client is.
    pub(super) is_personal: bool,
    /// When it was asked for.
    pub(super) begun: Begun,
    /// Others wait for it.
    pub(super) pilot: Option<Pilot>,
    /// What is stored, and no longer fresh.
    pub(super) stale: Option<Arc<Entry>>,
    /// The endpoint may say that this is still good.
    pub(super) validates: bool,
    pub(super) may_store: bool,
    /// What is to be stored, without its body.
    pub(super) ready: Option<Entry>,
    /// It asks for a slice of the response of the key.
    pub(super) slice: Option<Box<SliceFetch>>,
}

/// A slice that is fetched.
pub(super) struct SliceFetch {
    pub(super) slice: Slice,
    pub(super) hash: u64,
    pub(super) key: Box<[u8]>,
    /// What it has to be a slice of; `None`: it is the first that is sent, and decides.
    pub(super) of: Option<Representation>,
}

impl Fetch {
    /// Returns under which key `stale` is stored.
    pub(super) fn place(&self) -> (u64, &[u8]) {
        self.slice.as_ref().map_or((self.hash, &*self.key), |slice| (slice.hash, &*slice.key))
    }

    /// Returns whether it is for an exchange that puts slices together.
    pub(super) fn is_behind(&self) -> bool {
        self.slice.as_ref().is_some_and(|slice| slice.of.is_some())
    }

    /// Has the response not be stored, nor the next ones of this key be waited for.
    pub(super) fn store_none(&mut self) {
        if self.may_store {
            self.store.note_pass(self.hash, self.begun.at);
        }
        self.store_nothing();
    }

    /// Has the response not be stored: no request need wait for it.
    pub(super) fn store_nothing(&mut self) {
        self.may_store = false;
        (self.pilot, self.ready) = (None, None);
    }
}

/// A request that fetches a stale response again, beside the exchange that was answered by it.
pub struct Refresh {
    /// The request as the filter leaves it: filters behind it are still to be run.
    pub(super) head: RequestHead,
    pub(super) number: usize,
    pub(super) fetch: Fetch,
}

impl Refresh {
    /// Returns the number of the note of the filter.
    pub fn number(&self) -> usize {
        self.number
    }
}

impl fmt::Debug for Refresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Refresh")
    }
}
