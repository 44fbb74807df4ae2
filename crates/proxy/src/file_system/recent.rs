//! Small files that a worker has read a moment ago. A file is served again from memory if one `statx` of its path finds the same file,
//! unchanged: a change is seen at once. The whole look, with what may lead where, is done again each second.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use plan::filter::{FileAsk, FileFound, FileRoot, OpenedFile};

use crate::sys::{self, FileIdentity};

/// How long an entry is used before the whole look is done again.
const VALID: Duration = Duration::from_secs(1);
/// A file that was changed later than this before it was read is not kept: one more change might leave the same time.
const SETTLED: Duration = Duration::from_millis(100);
const FILES_MAX: usize = 512;
/// Bytes of all files of a worker.
const BYTES_MAX: u64 = 8 << 20;

thread_local! {
    static RECENT: RefCell<Recent> = RefCell::default();
}

#[derive(Default)]
struct Recent {
    /// By the address of their root, and the path that was asked for.
    files: HashMap<usize, HashMap<Vec<u8>, Entry>>,
    count: usize,
    bytes: u64,
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

/// Keeps a file that was read, by its path below the root. `told` was asked for before it was read.
pub(super) fn keep(ask: &FileAsk, path: &[u8], (file, told): (&OpenedFile, &Metadata)) {
    if !is_direct(ask, path) || file.bytes.is_none() || !is_settled(told) {
        return;
    }
    let Ok(whole) = CString::new([ask.root.directory.as_bytes(), b"/", path].concat()) else { return };
    RECENT.with_borrow_mut(|recent| {
        let at = Instant::now();
        recent.make_room(at);
        if recent.count >= FILES_MAX || recent.bytes + file.length > BYTES_MAX {
            return;
        }
        let entry =
            Entry { _root: Arc::clone(&ask.root), whole, identity: FileIdentity::of(told), file: file.clone(), at };
        let before = recent.files.entry(address(&ask.root)).or_default().insert(ask.path.clone(), entry);
        recent.count += 1;
        recent.bytes += file.length;
        if let Some(before) = before {
            recent.count -= 1;
            recent.bytes -= before.file.length;
        }
    });
}

impl Recent {
    /// Removes what is not valid any more, once in a while.
    fn make_room(&mut self, now: Instant) {
        if self.cleaned.is_some_and(|cleaned| now - cleaned < VALID) {
            return;
        }
        self.cleaned = Some(now);
        self.files.values_mut().for_each(|files| files.retain(|_, entry| now - entry.at < VALID));
        self.files.retain(|_, files| !files.is_empty());
        self.count = self.files.values().map(HashMap::len).sum();
        self.bytes = self.files.values().flat_map(HashMap::values).map(|entry| entry.file.length).sum();
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

#[cfg(test)]
pub(super) fn count() -> usize {
    RECENT.with_borrow(|recent| recent.count)
}
