//! The file of a Unix socket: what an earlier process left behind makes way, permissions are as configured, and it goes
//! with its listener.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::socket;
use socket2::{Domain, SockAddr, Socket, Type};

/// A file that is removed when this is dropped, unless it is another's by then.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and number.
    id: (u64, u64),
    /// As the process made it.
    made: Permission,
    /// It is another process's: from now on, or still.
    is_others: AtomicBool,
}

/// Who may connect.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Permission {
    mode: u32,
    owner: u32,
    group: u32,
}

impl SocketFile {
    /// Removes a socket that nobody listens at. `ours` are those that this process has, by whatever paths.
    ///
    /// # Errors
    /// Somebody listens there, or it is no socket.
    pub(crate) fn make_way(path: &str, ours: &[Arc<Self>]) -> io::Result<()> {
        if path.starts_with('@') {
            return Ok(());
        }
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file is not a socket"));
            }
            // It may be one that does not listen yet, which looks as if its process were dead.
            Ok(found) if ours.iter().any(|file| file.id == (found.dev(), found.ino())) => {
                return Err(io::Error::new(io::ErrorKind::AddrInUse, "another listener uses this file"));
            }
            Ok(_) => {}
        }
        // Without waiting: the queue of one who listens may be full.
        let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        probe.set_nonblocking(true)?;
        match probe.connect(&SockAddr::unix(path)?) {
            // Of a socket that nobody listens at.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::AddrInUse.into()),
            Ok(()) => Err(io::ErrorKind::AddrInUse.into()),
            Err(error) => Err(error),
        }
    }

    /// Returns the file that was just made. `None`: the abstract namespace has no files.
    pub(crate) fn of(path: &str) -> io::Result<Option<Self>> {
        if path.starts_with('@') {
            return Ok(None);
        }
        let found = fs::symlink_metadata(path)?;
        let (id, made) = ((found.dev(), found.ino()), Permission::of(&found));
        Ok(Some(Self { path: path.into(), id, made, is_others: AtomicBool::new(false) }))
    }

    /// Returns the file of another process, which it has made so. It stays that one's, which may have to go on with it, until it is
    /// [taken](Self::take). `None`: there is none.
    pub(crate) fn adopt(path: &str, made: Option<[u32; 3]>) -> Option<Self> {
        let mut file = Self::of(path).ok()??;
        file.is_others = AtomicBool::new(true);
        if let Some([mode, owner, group]) = made {
            file.made = Permission { mode, owner, group };
        }
        Some(file)
    }

    /// From now on it is ours, and goes with this.
    pub(crate) fn take(&self) {
        self.is_others.store(false, Ordering::Relaxed);
    }

    /// Returns whether it is ours.
    pub(crate) fn is_ours(&self) -> bool {
        !self.is_others.load(Ordering::Relaxed)
    }

    /// Permissions, owner and group as it was made with.
    pub(crate) fn made(&self) -> [u32; 3] {
        [self.made.mode, self.made.owner, self.made.group]
    }

    /// Leaves it to another process.
    pub(crate) fn give(&self) {
        self.is_others.store(true, Ordering::Relaxed);
    }

    /// Returns whether there are such users and groups.
    ///
    /// # Errors
    /// There is none of such a name.
    pub(crate) fn check(&self, wanted: &socket::SocketFile) -> io::Result<()> {
        self.permission(wanted).map(drop)
    }

    fn permission(&self, wanted: &socket::SocketFile) -> io::Result<Permission> {
        Ok(Permission {
            mode: wanted.mode.unwrap_or(self.made.mode),
            owner: wanted.owner.as_deref().map_or(Ok(self.made.owner), |name| number_of(name, "/etc/passwd"))?,
            group: wanted.group.as_deref().map_or(Ok(self.made.group), |name| number_of(name, "/etc/group"))?,
        })
    }

    /// Sets permissions, owner and group; what is not given is as the process made it. If it fails, all is as before.
    ///
    /// # Errors
    /// There is no such user or group, or this process may not do it.
    pub(crate) fn permit(&self, wanted: &socket::SocketFile) -> io::Result<Undo<'_>> {
        let before = Permission::of(&fs::symlink_metadata(&self.path)?);
        let wanted = self.permission(wanted)?;
        let undo = Undo { file: self, before: Some(before) };
        self.set(before, wanted)?;
        Ok(undo)
    }

    fn set(&self, before: Permission, wanted: Permission) -> io::Result<()> {
        let changed = |before: u32, wanted: u32| (before != wanted).then_some(wanted);
        let (owner, group) = (changed(before.owner, wanted.owner), changed(before.group, wanted.group));
        if owner.is_some() || group.is_some() {
            chown(&self.path, owner, group)?;
        }
        match changed(before.mode, wanted.mode) {
            Some(mode) => fs::set_permissions(&self.path, fs::Permissions::from_mode(mode)),
            None => Ok(()),
        }
    }
}

/// Takes a change of permissions back when it is dropped, unless told to [`Undo::keep`] it.
pub(crate) struct Undo<'a> {
    file: &'a SocketFile,
    before: Option<Permission>,
}

impl Undo<'_> {
    pub(crate) fn keep(mut self) {
        self.before = None;
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        // What cannot be had back stays as it is.
        if let Ok(found) = fs::symlink_metadata(&self.file.path) {
            let _ = self.file.set(Permission::of(&found), before);
        }
    }
}

impl Permission {
    fn of(found: &fs::Metadata) -> Self {
        Self { mode: found.mode() & 0o7777, owner: found.uid(), group: found.gid() }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_there = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.id);
        if is_there && self.is_ours() {
            // It may be gone by itself.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns the number of a user or group: itself, or what the table has, `name:password:number:…`.
fn number_of(name: &str, table: &str) -> io::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let found = fs::read_to_string(table)?.lines().find_map(|line| {
        let mut parts = line.split(':');
        (parts.next() == Some(name)).then(|| parts.nth(1)?.parse().ok()).flatten()
    });
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("`{name}` is not in {table}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name_or_number() {
        assert_eq!(number_of("root", "/etc/passwd").unwrap(), 0);
        assert_eq!(number_of("4711", "/nowhere").unwrap(), 4711);
        assert!(number_of("no such user", "/etc/passwd").is_err());
    }

    #[test]
    fn the_file_of_another_process_stays_until_it_is_taken() {
        let path = std::env::temp_dir().join(format!("equipoise-file-{}.sock", std::process::id()));
        let name = path.to_str().unwrap();
        let _ = fs::remove_file(&path);
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let adopted = SocketFile::adopt(name, Some([0o600, 0, 0])).unwrap();
        assert_eq!((adopted.is_ours(), adopted.made()), (false, [0o600, 0, 0]));
        drop(adopted);
        assert!(path.exists(), "this process could not go on in the place of that one");
        let adopted = SocketFile::adopt(name, None).unwrap();
        adopted.take();
        adopted.give();
        drop(adopted);
        assert!(path.exists(), "it was given on");
        let adopted = SocketFile::adopt(name, None).unwrap();
        adopted.take();
        drop(adopted);
        assert!(!path.exists());
    }
}
