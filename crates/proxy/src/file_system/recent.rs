//! Files that a worker has looked for a moment ago: the bytes of small ones, the descriptors of large ones. A file is served again if one
//! `statx` of its path finds the same file, unchanged: a change is seen at once. The whole look, with what may lead where, is done again
//! each second.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use plan::filter::{FileAsk, FileFound, FileRoot, OpenedFile};
use tokio::runtime::Handle;
use tokio::time::sleep;

use crate::sys::{self, FileIdentity};

/// How long an entry is used before the whole look is done again.
const VALID: Duration = Duration::from_secs(1);
/// A file that was changed later than this before it was read is not kept: one more change might leave the same time.
const SETTLED: Duration = Duration::from_millis(100);
const FILES_MAX: usize = 512;
/// Bytes of all small files of a worker.
const BYTES_MAX: u64 = 8 << 20;
/// Large files of a worker.
const OPEN_MAX: usize = 64;

thread_local! {
    static RECENT: RefCell<Recent> = RefCell::default();
}

#[derive(Default)]
struct Recent {
    /// By the address of their root, and the path that was asked for.
    files: HashMap<usize, HashMap<Vec<u8>, Entry>>,
    count: usize,
    bytes: u64,
    /// Large files.
    open: usize,
    /// A task closes those in time.
    is_closing: bool,
    cleaned: Option<Instant>,
}

struct Entry {
    /// Holds its address.
    _root: Arc<FileRoot>,
    whole: CString,
    identity: FileIdentity,
    file: OpenedFile,
    at: Instant,
}

impl Entry {
    fn bytes(&self) -> u64 {
        self.file.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)
    }

    fn is_open(&self) -> bool {
        self.file.content.is_some()
    }
}

/// Returns a file that was read a moment ago and has not changed since.
pub(super) fn find(ask: &FileAsk) -> Option<FileFound> {
    RECENT.with_borrow_mut(|recent| {
        let now = Instant::now();
        recent.make_room(now);
        let entry = recent.files.get(&address(&ask.root))?.get(&ask.path)?;
        let is_same = || sys::identity_now(&entry.whole).is_ok_and(|identity| identity == entry.identity);
        (ask.codings.is_empty() && now - entry.at < VALID && is_same())
            .then(|| FileFound::File(Box::new(entry.file.clone())))
    })
}

/// Keeps a file that was read or opened, by its path below the root. `told` was asked for before it was read.
pub(super) fn keep(ask: &FileAsk, path: &[u8], (file, told): (&OpenedFile, &Metadata)) {
    if !is_direct(ask, path) || !is_settled(told) {
        return;
    }
    let Ok(whole) = CString::new([ask.root.directory.as_bytes(), b"/", path].concat()) else { return };
    let (at, identity) = (Instant::now(), FileIdentity::of(told));
    let entry = Entry { _root: Arc::clone(&ask.root), whole, identity, file: file.clone(), at };
    RECENT.with_borrow_mut(|recent| {
        recent.make_room(at);
        if recent.has_room(&entry) && (!entry.is_open() || recent.closes_in_time()) {
            recent.insert(ask, entry);
        }
    });
}

impl Recent {
    fn has_room(&self, entry: &Entry) -> bool {
        let has_room = self.count < FILES_MAX && self.bytes + entry.bytes() <= BYTES_MAX;
        has_room && (!entry.is_open() || self.open < OPEN_MAX)
    }

    fn insert(&mut self, ask: &FileAsk, entry: Entry) {
        let (bytes, open) = (entry.bytes(), usize::from(entry.is_open()));
        let before = self.files.entry(address(&ask.root)).or_default().insert(ask.path.clone(), entry);
        let (bytes_before, open_before) =
            before.as_ref().map_or((0, 0), |before| (before.bytes(), usize::from(before.is_open())));
        self.count += usize::from(before.is_none());
        self.bytes = self.bytes + bytes - bytes_before;
        self.open = self.open + open - open_before;
    }

    /// Removes what is not valid any more, once in a while.
    fn make_room(&mut self, now: Instant) {
        if self.cleaned.is_some_and(|cleaned| now - cleaned < VALID) {
            return;
        }
        self.cleaned = Some(now);
        self.files.values_mut().for_each(|files| files.retain(|_, entry| now - entry.at < VALID));
        self.files.retain(|_, files| !files.is_empty());
        let all = || self.files.values().flat_map(HashMap::values);
        (self.count, self.bytes) = (all().count(), all().map(Entry::bytes).sum());
        self.open = all().filter(|entry| entry.is_open()).count();
    }

    /// Has large files closed also if no further request comes: one that was removed keeps its blocks on the disk until then. False: there
    /// is no runtime for it.
    fn closes_in_time(&mut self) -> bool {
        if !self.is_closing
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(close_in_time());
            self.is_closing = true;
        }
        self.is_closing
    }
}

/// Runs while large files are kept.
async fn close_in_time() {
    loop {
        sleep(VALID).await;
        let is_needed = RECENT.with_borrow_mut(|recent| {
            recent.make_room(Instant::now());
            recent.is_closing = recent.open > 0;
            recent.is_closing
        });
        if !is_needed {
            return;
        }
    }
}

fn address(root: &Arc<FileRoot>) -> usize {
    Arc::as_ptr(root).addr()
}

/// Whether a file was looked for before all others: of one that stands for others, nobody would see that those are there now.
fn is_direct(ask: &FileAsk, path: &[u8]) -> bool {
    let index =
        || ask.root.index.first().is_some_and(|index| path.strip_prefix(&ask.path[..]) == Some(index.as_bytes()));
    ask.codings.is_empty() && (path == ask.path || (ask.path.is_empty() || ask.path.ends_with(b"/")) && index())
}

fn is_settled(told: &Metadata) -> bool {
    // Some file systems count in seconds.
    let settled = if told.ctime_nsec() == 0 { Duration::from_secs(1) + SETTLED } else { SETTLED };
    let since = Duration::new(u64::try_from(told.ctime()).unwrap_or(0), u32::try_from(told.ctime_nsec()).unwrap_or(0));
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + since).is_ok_and(|age| age >= settled)
}

/// Files in memory and open ones.
#[cfg(test)]
pub(super) fn counts() -> (usize, usize) {
    RECENT.with_borrow(|recent| (recent.count - recent.open, recent.open))
}
