//! The folder of a cache.

use std::ffi::CString;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plan::cache::FileName;

use crate::sys;

/// The beginning of names of files that are being written.
pub(super) const TEMPORARY: &str = ".tmp-";
/// For how long a file with such a name is left alone whatever its lock says: another process may be about to take that.
const NEW: Duration = Duration::from_secs(60);
/// Permissions of a mode with which others than its user write to a folder.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// No link, no way out.
const WITHIN: u64 = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_MAGICLINKS;

/// The folder, open.
pub(super) struct Folder(File);

/// A file that is being written. It goes when this is dropped before [`Self::keep`], and with the process: it has a lock, by which others
/// see that it is being written.
pub(super) struct Written {
    pub file: File,
    folder: File,
    temporary: String,
    name: FileName,
    is_kept: bool,
}

/// Why a folder cannot be used.
#[derive(Debug)]
pub(super) enum Unusable {
    /// It cannot be written to.
    Failed(io::Error),
    /// Others may write to it, by this mode, and so choose what clients get.
    Shared(u32),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl Unusable {
    /// Says what is wrong with the folder at this path, and how that is mended.
    pub(super) fn told(&self, path: &str) -> (String, String) {
        match self {
            Self::Failed(error) => (
                format!("cannot write to `{path}`: {error}"),
                "make it a folder that the user of the process may write to".to_owned(),
            ),
            Self::Shared(mode) => (
                format!("other users may write to `{path}`, which has the mode {:04o}", mode & 0o7777),
                format!("run `chmod go-w {path}`, and let it belong to the user of the process"),
            ),
        }
    }
}

/// Reports a folder that is there and cannot be used.
pub(super) fn check(path: &str) -> Result<(), Unusable> {
    match std::fs::metadata(path) {
        Ok(told) if !told.is_dir() => Err(io::Error::from(io::ErrorKind::NotADirectory).into()),
        Ok(told) => {
            sys::may_write(&CString::new(path).map_err(io::Error::from)?)?;
            of_one_user(&told)
        }
        // It is made later.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn of_one_user(told: &Metadata) -> Result<(), Unusable> {
    if told.mode() & WRITABLE_BY_OTHERS == 0 { Ok(()) } else { Err(Unusable::Shared(told.mode())) }
}

impl Folder {
    /// Opens it, and makes it before if it is missing.
    pub(super) fn make(path: &str) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Self::open(path)
    }

    /// Opens it.
    pub(super) fn open(path: &str) -> io::Result<Self> {
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(path).map(Self)
    }

    /// Makes a file and removes it. Nobody else may.
    pub(super) fn try_to_write(&self) -> Result<(), Unusable> {
        of_one_user(&self.0.metadata()?)?;
        let path = below(&self.0, &format!("{TEMPORARY}{}", std::process::id()));
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)?;
        Ok(std::fs::remove_file(path)?)
    }

    /// Opens a file to be read.
    pub(super) fn read(&self, name: FileName) -> io::Result<File> {
        self.within(&format!("{}/{name}", name.folder()))
    }

    /// Opens one of the folders in it. `None`: it is not there, is none, or belongs to another user.
    pub(super) fn part(&self, name: &str) -> Option<File> {
        let is_ours = |told: Metadata| told.is_dir() && told.uid() == sys::user();
        self.within(name).ok().filter(|file| file.metadata().is_ok_and(is_ours))
    }

    fn within(&self, path: &str) -> io::Result<File> {
        sys::open_below(self.0.as_fd(), &CString::new(path)?, WITHIN)
    }

    /// Begins a file.
    pub(super) fn write(&self, name: FileName) -> io::Result<Written> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let folder = match self.part(&name.folder()) {
            Some(folder) => folder,
            None => {
                let made = DirBuilder::new().mode(0o700).create(below(&self.0, &name.folder()));
                // Another process may have made it meanwhile.
                made.or_else(|error| if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })?;
                self.part(&name.folder()).ok_or(io::ErrorKind::NotADirectory)?
            }
        };
        let temporary = format!("{TEMPORARY}{}-{name}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(below(&folder, &temporary))?;
        let written = Written { file, folder, temporary, name, is_kept: false };
        // Whatever the umask says.
        written.file.set_permissions(Permissions::from_mode(0o600))?;
        written.file.try_lock()?;
        Ok(written)
    }

    /// Removes a file. It may be gone.
    pub(super) fn remove(&self, name: FileName) -> io::Result<()> {
        let folder = match self.within(&name.folder()) {
            Ok(folder) => folder,
            Err(error) => return is_gone(error),
        };
        remove(&folder, &name.to_string())
    }

    /// Writes to a file that is there, at this place.
    pub(super) fn change(&self, name: FileName, at: u64, bytes: &[u8]) -> io::Result<()> {
        let folder = self.part(&name.folder()).ok_or(io::ErrorKind::NotFound)?;
        let mut options = OpenOptions::new();
        let file = options.write(true).custom_flags(libc::O_NOFOLLOW).open(below(&folder, &name.to_string()))?;
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, at)
    }
}

/// Removes a file of a folder. It may be gone.
pub(super) fn remove(folder: &File, name: &str) -> io::Result<()> {
    std::fs::remove_file(below(folder, name)).or_else(is_gone)
}

/// What is gone need not be removed or marked.
pub(super) fn is_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// The names in a folder.
pub(super) fn names(folder: &File) -> io::Result<impl Iterator<Item = String>> {
    let entries = std::fs::read_dir(below(folder, "."))?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()))
}

/// Returns whether nobody writes this file any more.
pub(super) fn is_abandoned(folder: &File, name: &str) -> bool {
    let mut options = OpenOptions::new();
    let opened = options.write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(below(folder, name));
    let is_old = |file: &File| {
        file.metadata().and_then(|told| told.modified()).is_ok_and(|at| at.elapsed().is_ok_and(|age| age > NEW))
    };
    opened.is_ok_and(|file| is_old(&file) && file.try_lock().is_ok())
}

/// The path of what is in a folder that is open, whatever has become of its name.
fn below(folder: &File, name: &str) -> PathBuf {
    Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name)
}

impl Written {
    /// Its name.
    pub(super) fn name(&self) -> FileName {
        self.name
    }

    /// Gives it its name, under which others find it.
    pub(super) fn keep(&mut self) -> io::Result<()> {
        let to = below(&self.folder, &self.name.to_string());
        std::fs::rename(below(&self.folder, &self.temporary), to)?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = remove(&self.folder, &self.temporary);
        }
    }
}
