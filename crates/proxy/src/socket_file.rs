//! The file of a Unix socket: what an earlier process left behind makes way, permissions are as configured, and it goes
//! with its listener.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;

use model::socket;
use socket2::{Domain, SockAddr, Socket, Type};

/// A file that is removed when this is dropped, unless it is another's by then.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and number.
    id: (u64, u64),
}

impl SocketFile {
    /// Removes a socket that nobody listens at.
    ///
    /// # Errors
    /// Somebody listens there, or it is no socket.
    pub(crate) fn make_way(path: &str) -> io::Result<()> {
        if path.starts_with('@') {
            return Ok(());
        }
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
            Ok(found) if !found.file_type().is_socket() => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
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

    /// The file that was just made. `None`: the abstract namespace has no files.
    pub(crate) fn of(path: &str) -> io::Result<Option<Self>> {
        if path.starts_with('@') {
            return Ok(None);
        }
        let found = fs::symlink_metadata(path)?;
        Ok(Some(Self { path: path.into(), id: (found.dev(), found.ino()) }))
    }

    /// Sets permissions, owner and group.
    ///
    /// # Errors
    /// There is no such user or group, or this process may not do it.
    pub(crate) fn permit(&self, wanted: &socket::SocketFile) -> io::Result<()> {
        let number = |name: &Option<String>, table: &str| match name {
            Some(name) => number_of(name, table).map(Some),
            None => Ok(None),
        };
        let owner = number(&wanted.owner, "/etc/passwd")?;
        let group = number(&wanted.group, "/etc/group")?;
        if owner.is_some() || group.is_some() {
            chown(&self.path, owner, group)?;
        }
        match wanted.mode {
            Some(mode) => fs::set_permissions(&self.path, fs::Permissions::from_mode(mode)),
            None => Ok(()),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.id);
        if is_ours {
            // It may be gone by itself.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The number of a user or group: itself, or what the table has, `name:password:number:…`.
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
}
