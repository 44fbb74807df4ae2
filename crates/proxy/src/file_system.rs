//! Looks for files below a directory, without a way out of it. Workers look at what the kernel has in memory; all else blocks, and is for
//! threads beside them.

mod recent;

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use model::limits::REPLAY_BYTES_MAX;
use plan::filter::{Content, DirectoryEntry, FileAsk, FileFound, FileRoot, OpenedFile, Symlinks};
use telemetry::log;
use tokio::runtime::Handle;

use crate::sys;

/// Files are read at once that leave with the head, in one write.
const SMALL_BYTES_MAX: u64 = REPLAY_BYTES_MAX as u64;
/// How often a look is tried again that a rename elsewhere has disturbed.
const TRIES_MAX: u32 = 8;
/// The part of the descriptors of the process that files may take.
const SHARE_OF_DESCRIPTORS: u64 = 4;

/// Bytes that are read ahead as a whole, from a multiple of that.
const PIECE_BYTES: u64 = 256 << 10;
/// Bytes of a file that its worker closes itself.
const CLOSED_HERE_MAX: u64 = 1 << 20;

/// Files that are open to be sent, over all workers.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A file that is sent while it is read.
pub(crate) struct OpenFile {
    /// Until it is closed.
    file: Option<File>,
    length: u64,
    /// See [`sys::is_local`]: of all others it is not known whether the kernel has to wait.
    is_local: bool,
}

impl OpenFile {
    /// `None`: too many are open.
    pub(crate) fn new(file: File, length: u64, is_local: bool) -> Option<Self> {
        if OPEN.fetch_add(1, Ordering::Relaxed) < open_max() {
            return Some(Self { file: Some(file), length, is_local });
        }
        OPEN.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let file = self.file.take();
        let close = move || {
            drop(file);
            OPEN.fetch_sub(1, Ordering::Relaxed);
        };
        // If its name is gone by now, closing it frees its blocks on the disk: for a long one that takes a while.
        match Handle::try_current() {
            Ok(handle) if self.length > CLOSED_HERE_MAX => drop(handle.spawn_blocking(close)),
            _ => close(),
        }
    }
}

impl Content for OpenFile {
    fn read_at(&self, room: &mut [u8], at: u64) -> io::Result<usize> {
        let Some(file) = &self.file else { return Ok(0) };
        sys::will_read(file.as_fd(), piece_of(at));
        file.read_at(room, at)
    }

    fn read_now(&self, room: &mut [u8], at: u64) -> Option<io::Result<usize>> {
        match sys::read_now(self.file()?, room, at) {
            // Linux 5.9 and 5.10 say so also before the end.
            Ok(0) => None,
            Err(error) if would_wait(&error) => None,
            read => Some(read),
        }
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().filter(|_| self.is_local).map(AsFd::as_fd)
    }
}

/// The piece of a file that a place belongs to. A piece is read as a whole, so that its ends tell about all of it.
pub(crate) fn piece_of(at: u64) -> Range<u64> {
    let start = at - at % PIECE_BYTES;
    start..start + PIECE_BYTES
}

/// Whether something was not done because it would have to wait for a disk, or because nobody can tell whether it would.
fn would_wait(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL))
}

/// Whether files may stay open that are not sent: less than half of those that may be open are. Those that are sent must not be refused for
/// them.
fn has_descriptors() -> bool {
    OPEN.load(Ordering::Relaxed) < open_max() / 2
}

fn open_max() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| {
        let all = sys::descriptors_max();
        usize::try_from(all / SHARE_OF_DESCRIPTORS).unwrap_or(usize::MAX).max(16)
    })
}

/// Why there is no file.
enum NoFile {
    Missing,
    Denied,
    Busy,
    Failed,
    /// It would have to wait for a disk.
    Later,
}

impl From<io::Error> for NoFile {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            // Also a way out of the root (EXDEV), a link that may not be followed (ELOOP), and a socket (ENXIO).
            Some(
                libc::ENOENT
                | libc::ENOTDIR
                | libc::ENAMETOOLONG
                | libc::EXDEV
                | libc::ELOOP
                | libc::ENXIO
                | libc::ENODEV
                | libc::EINVAL,
            ) => Self::Missing,
            Some(libc::EACCES | libc::EPERM) => Self::Denied,
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN) => Self::Busy,
            // Among them ENOSYS, of a kernel that is too old.
            _ => {
                if may_tell() {
                    log::warn("cannot read a file", &[("error", &error.to_string())]);
                }
                Self::Failed
            }
        }
    }
}

/// Says what is there. It blocks.
pub(crate) fn find(ask: &FileAsk) -> FileFound {
    let found = open_root(&ask.root).map_err(NoFile::from).and_then(|root| {
        let below = Below { root: root.as_fd(), links: ask.root.symlinks, is_now: false };
        below.find_or_fallback(ask)
    });
    found.unwrap_or_else(|none| match none {
        NoFile::Missing => FileFound::Missing,
        NoFile::Denied => FileFound::Denied,
        NoFile::Busy => FileFound::Busy,
        NoFile::Failed | NoFile::Later => FileFound::Failed,
    })
}

/// Says what is there, if the kernel has all of it in memory: names, and the bytes of a small file. Directories of network file systems and of
/// other processes (FUSE) are left to [`find`], and so is all that fails.
pub(crate) fn find_now(ask: &FileAsk) -> Option<FileFound> {
    recent::find(ask).or_else(|| look_now(ask))
}

fn look_now(ask: &FileAsk) -> Option<FileFound> {
    let directory = CString::new(ask.root.directory.as_bytes()).ok()?;
    let root = sys::open_directory_now(&directory).ok()?;
    if !sys::is_local(root.as_fd()) {
        return None;
    }
    let below = Below { root: root.as_fd(), links: ask.root.symlinks, is_now: true };
    match below.find_or_fallback(ask) {
        Ok(found) => Some(found),
        Err(NoFile::Missing) => Some(FileFound::Missing),
        Err(_) => None,
    }
}

/// The directory itself, by whatever way its path takes.
fn open_root(root: &FileRoot) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(&root.directory);
    if let Err(error) = &opened
        && may_tell()
    {
        log::warn("cannot open the root of files", &[("directory", &root.directory), ("error", &error.to_string())]);
    }
    opened
}

/// Once a second: requests must not fill the log.
fn may_tell() -> bool {
    static NEXT: Mutex<Option<Instant>> = Mutex::new(None);
    let now = Instant::now();
    let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
    let may = next.is_none_or(|next| next <= now);
    if may {
        *next = Some(now + Duration::from_secs(1));
    }
    may
}

/// What is looked for below a directory that is open.
struct Below<'a> {
    root: BorrowedFd<'a>,
    links: Symlinks,
    /// Nothing may wait for a disk.
    is_now: bool,
}

impl Below<'_> {
    fn find_or_fallback(&self, ask: &FileAsk) -> Result<FileFound, NoFile> {
        match self.find(ask) {
            Err(NoFile::Missing) => self.fallback(ask),
            found => found,
        }
    }

    fn find(&self, ask: &FileAsk) -> Result<FileFound, NoFile> {
        let path = &ask.path;
        if let Some(directory) = path.strip_suffix(b"/").or(path.is_empty().then_some(&path[..])) {
            return self.directory(ask, directory);
        }
        let (file, told) = self.open(path)?;
        if told.is_dir() {
            return Ok(FileFound::WithoutSlash);
        }
        self.give(ask, path, (file, told))
    }

    fn directory(&self, ask: &FileAsk, path: &[u8]) -> Result<FileFound, NoFile> {
        for name in &ask.root.index {
            let whole =
                if path.is_empty() { name.clone().into_bytes() } else { [path, b"/", name.as_bytes()].concat() };
            match self.open(&whole) {
                Ok((file, told)) if told.is_file() => return self.give(ask, &whole, (file, told)),
                Ok(_) | Err(NoFile::Missing) => {}
                Err(other) => return Err(other),
            }
        }
        if ask.root.entries_max == 0 {
            return Err(NoFile::Missing);
        }
        if self.is_now {
            return Err(NoFile::Later);
        }
        let (directory, told) = self.open(if path.is_empty() { b"." } else { path })?;
        if !told.is_dir() {
            return Err(NoFile::Missing);
        }
        Ok(FileFound::Directory(entries(&directory, ask.root.entries_max)?))
    }

    fn fallback(&self, ask: &FileAsk) -> Result<FileFound, NoFile> {
        let Some(path) = &ask.root.fallback else { return Err(NoFile::Missing) };
        let found = self.open(path.as_bytes())?;
        self.give(ask, path.as_bytes(), found)
    }

    /// Gives the file, or one beside it in a coding that the client takes.
    fn give(&self, ask: &FileAsk, path: &[u8], (file, told): Opened) -> Result<FileFound, NoFile> {
        if !told.is_file() {
            return Err(NoFile::Missing);
        }
        for coding in &ask.codings {
            match self.open(&[path, coding.as_bytes()].concat()) {
                Ok((beside, of_it)) if of_it.is_file() && changed(&of_it) >= changed(&told) => {
                    return self.read(beside, &of_it, (path, Some(coding)));
                }
                Err(NoFile::Later) => return Err(NoFile::Later),
                _ => {}
            }
        }
        let found = self.read(file, &told, (path, None))?;
        if self.is_now
            && let FileFound::File(file) = &found
            && (file.content.is_none() || has_descriptors())
        {
            recent::keep(ask, path, (file, &told));
        }
        Ok(found)
    }

    /// Opens it to be read. A FIFO does not block, and is recognised by its type afterwards.
    fn open(&self, path: &[u8]) -> Result<Opened, NoFile> {
        let path = CString::new(path).map_err(|_| NoFile::Missing)?;
        let mut tries = 0;
        let file = loop {
            match self.open_once(&path) {
                // A mount on the way (EXDEV) may be of any kind.
                Err(error) if self.is_now && (would_wait(&error) || error.raw_os_error() == Some(libc::EXDEV)) => {
                    return Err(NoFile::Later);
                }
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && tries < TRIES_MAX => tries += 1,
                other => break other?,
            }
        };
        let told = file.metadata()?;
        Ok((file, told))
    }

    fn open_once(&self, path: &CStr) -> io::Result<File> {
        let links = match self.links {
            Symlinks::Refuse => libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS,
            Symlinks::Beneath => libc::RESOLVE_BENEATH,
            Symlinks::Follow => 0,
        };
        let now = if self.is_now { libc::RESOLVE_CACHED | libc::RESOLVE_NO_XDEV } else { 0 };
        sys::open_below(self.root, path, libc::RESOLVE_NO_MAGICLINKS | links | now)
    }

    /// Reads a small file; a large one stays open.
    fn read(
        &self,
        file: File,
        told: &std::fs::Metadata,
        (path, coding): (&[u8], Option<&&'static str>),
    ) -> Result<FileFound, NoFile> {
        let modified = (u64::try_from(told.mtime()).unwrap_or(0), u32::try_from(told.mtime_nsec()).unwrap_or(0));
        let mut opened = OpenedFile {
            bytes: None,
            content: None,
            length: told.len(),
            modified,
            name: path.to_vec(),
            coding: coding.copied(),
        };
        if told.len() <= SMALL_BYTES_MAX {
            let bytes = self.read_small(&file, told.len())?;
            opened.length = bytes.len() as u64;
            opened.bytes = Some(bytes.into());
        } else {
            // What was looked for at once was below a local root, with no mount between.
            let is_local = self.is_now || sys::is_local(file.as_fd());
            opened.content = Some(Arc::new(OpenFile::new(file, told.len(), is_local).ok_or(NoFile::Busy)?));
        }
        Ok(FileFound::File(Box::new(opened)))
    }

    /// As many bytes as it had, or less if it has become shorter.
    fn read_small(&self, file: &File, length: u64) -> Result<Vec<u8>, NoFile> {
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let mut count = 0;
        while count < bytes.len() {
            let room = &mut bytes[count..];
            let read = if self.is_now {
                sys::read_now(file.as_fd(), room, count as u64)
            } else {
                file.read_at(room, count as u64)
            };
            match read {
                // See `read_now`.
                Ok(0) if self.is_now => return Err(NoFile::Later),
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.is_now && would_wait(&error) => return Err(NoFile::Later),
                Err(error) => return Err(error.into()),
            }
        }
        bytes.truncate(count);
        Ok(bytes)
    }
}

/// A file with what is known of it.
type Opened = (File, std::fs::Metadata);

fn changed(told: &std::fs::Metadata) -> (i64, i64) {
    (told.mtime(), told.mtime_nsec())
}

/// Files and directories of a directory that is open. Links and all else are left out.
fn entries(directory: &File, max: usize) -> io::Result<Vec<DirectoryEntry>> {
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)?.take(max) {
        let entry = entry?;
        // What is gone meanwhile is not listed.
        let Ok(told) = entry.metadata() else { continue };
        if told.is_file() || told.is_dir() {
            found.push(DirectoryEntry {
                name: entry.file_name().as_bytes().to_vec(),
                is_directory: told.is_dir(),
                length: told.len(),
                modified: u64::try_from(told.mtime()).unwrap_or(0),
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
