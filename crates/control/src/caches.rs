//! What the administrator sees and purges of caches.

use std::sync::mpsc::channel;
use std::time::Duration;

use plan::cache::{self, key};
use telemetry::log;

pub use crate::disk_status::DiskStatus;
use crate::disk_status::disk_status;
use crate::view::View;

/// How long a purge waits for the disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// A cache as it is now.
#[derive(Clone, Debug)]
pub struct CacheStatus {
    /// Its name.
    pub name: String,
    /// Bytes that it may take.
    pub memory: u64,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Responses that it holds.
    pub entries: u64,
    /// Requests that it has answered, by fresh and stale responses.
    pub hits: u64,
    /// Requests for which an endpoint was asked.
    pub misses: u64,
    /// Responses that made room for others.
    pub evictions: u64,
    /// Responses that were purged.
    pub purged: u64,
    /// Its disk, if it has one.
    pub disk: Option<DiskStatus>,
}

/// What is purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// All.
    All,
    /// A URL with all its variants.
    Url(String),
    /// All URLs that begin so.
    Prefix(String),
    /// All responses with this tag.
    Tag(String),
}

/// Why a cache cannot be purged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheProblem {
    /// There is none of this name, but these.
    NoCache(Vec<String>),
    /// So many responses were purged, and are not served any more. Files of them could not be removed or marked yet, and would be found again
    /// after a restart.
    FilesLeft(u64),
    /// This is no absolute URL of HTTP.
    BadUrl(String),
}

impl View {
    /// Returns all caches, in the order of the file.
    pub fn caches(&self) -> Vec<CacheStatus> {
        self.plan().iter().flat_map(|plan| &plan.caches).map(|cache| status(cache)).collect()
    }

    /// Purges responses of a cache, or has them be validated before they are served again (`is_soft`). Returns how many. It looks at all of
    /// its responses.
    ///
    /// # Errors
    /// There is no such cache, or the URL is none: nothing is purged then. Or files are left, see [`CacheProblem::FilesLeft`].
    pub fn purge_cache(&self, name: &str, what: &Purge, is_soft: bool) -> Result<u64, CacheProblem> {
        let plan = self.plan();
        let Some(store) = plan.as_ref().and_then(|plan| plan.cache(name)) else {
            let names = plan.iter().flat_map(|plan| &plan.caches).map(|cache| cache.settings().name.to_string());
            return Err(CacheProblem::NoCache(names.collect()));
        };
        let url = |url: &String| key::normal_url(url.as_bytes()).ok_or_else(|| CacheProblem::BadUrl(url.clone()));
        let what = match what {
            Purge::All => cache::Purge::All,
            Purge::Url(text) => cache::Purge::Url(url(text)?),
            Purge::Prefix(text) => cache::Purge::Prefix(url(text)?),
            Purge::Tag(tag) => cache::Purge::Tag(tag.clone().into_bytes()),
        };
        let count = store.purge(&what, is_soft);
        // What is on disk must not come back after a restart.
        let (gone, all_gone) = channel();
        store.when_gone(Box::new(move |is_all| {
            let _ = gone.send(is_all);
        }));
        if all_gone.recv_timeout(PATIENCE) != Ok(true) {
            log::warn("a purge is late in removing files", &[("cache", &name)]);
            return Err(CacheProblem::FilesLeft(count));
        }
        Ok(count)
    }
}

fn status(store: &cache::CacheStore) -> CacheStatus {
    let settings = store.settings();
    let (hits, misses) = store.answered();
    CacheStatus {
        name: settings.name.to_string(),
        memory: settings.memory,
        bytes: store.bytes(),
        entries: store.entries(),
        hits,
        misses,
        evictions: store.evictions(),
        purged: store.purged(),
        disk: store.disk().map(disk_status),
    }
}
