//! Files for bodies that memory has no room for: they have no name, only this user may read them, and they are gone with the exchange.
//!
//! A read or a write may take as long as the disk likes. So a few threads beside the worker do both, and the exchange waits as it waits for
//! a socket.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll, ready};

use model::limits::BUFFER_BYTES;
use plan::filter::Hold;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};

/// Threads of a worker that read and write files.
pub(crate) const THREADS: usize = 4;
/// Bytes of a file that its worker closes itself.
const CLOSED_HERE_MAX: u64 = 1 << 20;
/// Names that are tried where the file system has no files without one.
const NAMES_MAX: u32 = 16;

/// A file of one body. It is opened when the first bytes are written.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    file: OnceLock<File>,
    hold: Arc<Hold>,
    /// Bytes of the disk that it may take by now.
    taken: AtomicU64,
}

/// Bytes that could not be written, with the reason.
pub(crate) type Unwritten = (Vec<u8>, io::Error);

/// Bytes on their way to a file. The memory comes back.
pub(crate) struct Writing(JoinHandle<Result<Vec<u8>, Unwritten>>);

/// Bytes on their way from a file.
pub(crate) struct Reading(JoinHandle<io::Result<Vec<u8>>>);

impl SpoolFile {
    /// One within these bounds.
    pub(crate) fn new(hold: Arc<Hold>) -> Arc<Self> {
        Arc::new(Self { file: OnceLock::new(), hold, taken: AtomicU64::new(0) })
    }

    /// Takes room for bytes up to `end`. `false`: a bound does not allow it.
    pub(crate) fn reserve(&self, end: u64) -> bool {
        let taken = self.taken.load(Ordering::Relaxed);
        let more = end.saturating_sub(taken);
        if more > 0 && !self.hold.take_disk(taken, more) {
            return false;
        }
        self.taken.fetch_add(more, Ordering::Relaxed);
        true
    }

    /// Whether nothing was written yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.file.get().is_none()
    }

    /// Begins to write the bytes at this place.
    pub(crate) fn write(self: &Arc<Self>, bytes: Vec<u8>, at: u64) -> Writing {
        let own = Arc::clone(self);
        Writing(spawn_blocking(move || {
            let written = own.open().and_then(|file| file.write_all_at(&bytes, at));
            match written {
                Ok(()) => Ok(bytes),
                Err(error) => Err((bytes, error)),
            }
        }))
    }

    /// Begins to read so many bytes at this place: they are there, and fit into a buffer.
    pub(crate) fn read(self: &Arc<Self>, at: u64, count: usize) -> Reading {
        debug_assert!(count <= BUFFER_BYTES, "as much as a receiver is given at once");
        let own = Arc::clone(self);
        Reading(spawn_blocking(move || {
            let mut bytes = vec![0; count];
            own.open()?.read_exact_at(&mut bytes, at)?;
            Ok(bytes)
        }))
    }

    fn open(&self) -> io::Result<&File> {
        // Only one job of a file that is not open yet is under way.
        match (self.file.get(), &self.hold.spool) {
            (Some(file), _) => Ok(file),
            (None, Some(spool)) => {
                let file = without_name(Path::new(&*spool.directory))?;
                Ok(self.file.get_or_init(|| file))
            }
            (None, None) => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Drop for SpoolFile {
    fn drop(&mut self) {
        let (file, taken, hold) = (self.file.take(), *self.taken.get_mut(), Arc::clone(&self.hold));
        // The file has no name, so that closing it frees its blocks on the disk: for a long one that takes a while.
        let close = move || {
            drop(file);
            hold.give_disk(taken);
        };
        match Handle::try_current() {
            Ok(handle) if taken > CLOSED_HERE_MAX => drop(handle.spawn_blocking(close)),
            _ => close(),
        }
    }
}

/// Fills all of `bytes` from this place on.
pub(crate) fn read_exactly(content: &dyn plan::filter::Content, bytes: &mut [u8], at: u64) -> io::Result<()> {
    let mut count = 0;
    while count < bytes.len() {
        match content.read_at(&mut bytes[count..], at + count as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A job that nobody waits for and that has not begun is left out: a disk that hangs would have them pile up with their bytes.
impl Drop for Writing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Writing {
    /// Ready with the memory of what was written, or with the bytes that were not.
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<Vec<u8>, Unwritten>> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(cx)).unwrap_or_else(|error| Err((Vec::new(), error.into()))))
    }
}

impl Reading {
    /// Begins to read so many bytes of this content: they fit into a buffer. Less than these is an error.
    pub(crate) fn of_content(content: Arc<dyn plan::filter::Content>, at: u64, count: usize) -> Self {
        debug_assert!(count <= BUFFER_BYTES, "as much as a receiver is given at once");
        Self(spawn_blocking(move || {
            let mut bytes = vec![0; count];
            read_exactly(&*content, &mut bytes, at)?;
            Ok(bytes)
        }))
    }

    /// Ready with the bytes.
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<Vec<u8>>> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(cx)).unwrap_or_else(|error| Err(error.into())))
    }
}

/// A file in this directory that has no name, so that it goes with its descriptor, whatever becomes of the program.
fn without_name(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.clone().custom_flags(libc::O_TMPFILE | libc::O_EXCL).open(directory) {
        // The file system cannot do so (tmpfs of old kernels, overlays, NFS).
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => {
            unlinked(directory, &options)
        }
        other => other,
    }
}

/// The same by a name that is removed at once.
fn unlinked(directory: &Path, options: &OpenOptions) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut options = options.clone();
    options.create_new(true);
    let mut last = io::ErrorKind::AlreadyExists.into();
    for _ in 0..NAMES_MAX {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".equipoise-{}-{number}", std::process::id()));
        match options.open(&path) {
            Ok(file) => return std::fs::remove_file(&path).map(|()| file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::future::poll_fn;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::time::Duration;

    use plan::filter::{HoldCounts, Spool};

    use super::*;

    /// Bounds with a spool in this directory.
    pub(crate) fn hold_in(directory: &str, memory: u64, body_max: u64) -> Hold {
        Hold {
            memory,
            memory_max: 2 * memory,
            within: Duration::from_secs(60),
            spool: Some(Spool {
                directory: directory.into(),
                body_max,
                total_max: 2 * body_max,
                ends_on_failure: false,
            }),
            usage: Arc::default(),
            counts: HoldCounts::default(),
        }
    }

    /// The directory of temporary files.
    pub(crate) fn somewhere() -> String {
        std::env::temp_dir().to_string_lossy().into_owned()
    }

    fn is_private_and_nameless(file: &File) {
        let told = file.metadata().expect("it is open");
        assert_eq!((told.permissions().mode() & 0o777, told.nlink()), (0o600, 0));
    }

    #[tokio::test]
    async fn bytes_come_back_from_a_file_that_has_no_name_and_is_private() {
        let file = SpoolFile::new(Arc::new(hold_in(&somewhere(), 1, 1_000)));
        assert!(file.reserve(10) && file.reserve(1_000) && !file.reserve(1_001));
        let mut writing = file.write(b"0123456789".to_vec(), 0);
        let memory = poll_fn(|cx| writing.poll(cx)).await.expect("it is written");
        assert!(memory.capacity() >= 10);
        let mut reading = file.read(3, 4);
        assert_eq!(poll_fn(|cx| reading.poll(cx)).await.expect("it is there"), b"3456");
        is_private_and_nameless(file.file.get().expect("it is open"));
        let mut beyond = file.read(8, 4);
        assert!(poll_fn(|cx| beyond.poll(cx)).await.is_err(), "less is there");
    }

    #[tokio::test]
    async fn what_cannot_be_written_comes_back() {
        let file = SpoolFile::new(Arc::new(hold_in("/nonexistent/spool", 1, 1_000)));
        let mut writing = file.write(b"body".to_vec(), 0);
        let (bytes, error) = poll_fn(|cx| writing.poll(cx)).await.expect_err("there is no such directory");
        assert_eq!((bytes.as_slice(), error.kind()), (&b"body"[..], io::ErrorKind::NotFound));
        let full = without_name(Path::new("/proc"));
        assert!(full.is_err());
    }

    #[test]
    fn a_file_system_without_nameless_files_gets_one_whose_name_is_removed_at_once() {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        is_private_and_nameless(&unlinked(Path::new(&somewhere()), &options).expect("it can be written to"));
    }

    #[tokio::test]
    async fn a_long_file_is_closed_beside_its_worker_and_gives_its_room_back() {
        let length = CLOSED_HERE_MAX + 1;
        let hold = Arc::new(hold_in(&somewhere(), 1, length));
        let file = SpoolFile::new(hold.clone());
        assert!(file.reserve(length));
        let mut writing = file.write(b"begun".to_vec(), 0);
        poll_fn(|cx| writing.poll(cx)).await.expect("it is written");
        drop((file, writing));
        let other = SpoolFile::new(hold);
        let room = async {
            while !other.reserve(length) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), room).await.expect("the file is closed");
    }

    #[test]
    fn room_on_disk_is_given_back_with_the_file() {
        let hold = Arc::new(hold_in(&somewhere(), 1, 1_000));
        let files: Vec<_> = (0..3).map(|_| SpoolFile::new(hold.clone())).collect();
        assert_eq!([0, 1, 2].map(|place: usize| files[place].reserve(900)), [true, true, false]);
        drop(files);
        assert!(SpoolFile::new(hold).reserve(1_000));
    }
}
