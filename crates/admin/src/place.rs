//! Where the administrator is waited for: an address of the network or a Unix socket.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use control::admin_tls::{AdminTls, Encrypted, Secured};
use model::Address;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// An address that is bound already, so that a configuration whose address is taken can be refused before it is in
/// force.
#[derive(Debug)]
pub struct Bound {
    listener: Listener,
    pub(crate) configured: Address,
    pub(crate) address: Address,
    pub(crate) file: Option<SocketFile>,
}

#[derive(Debug)]
enum Listener {
    Tcp(std::net::TcpListener),
    Unix(unix::UnixListener),
}

impl Bound {
    /// Binds. `mode` is that of the file of a Unix socket.
    ///
    /// # Errors
    /// The address is in use or cannot be had.
    pub fn bind(configured: &Address, mode: u32) -> io::Result<Self> {
        let configured = configured.clone();
        match &configured {
            Address::Ip(address) => {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?.into();
                Ok(Self { listener: Listener::Tcp(listener), configured, address, file: None })
            }
            Address::Unix(path) => {
                let (listener, file) = bind_unix(path, mode)?;
                let address = configured.clone();
                Ok(Self { listener: Listener::Unix(listener), configured, address, file })
            }
        }
    }

    /// Returns the socket of another process, which goes on here. Its file stays that one's until it is [taken](crate::Admin::take_file).
    ///
    /// # Errors
    /// It is no socket that waits for connections.
    pub fn adopt(configured: &Address, socket: OwnedFd) -> io::Result<Self> {
        let configured = configured.clone();
        match &configured {
            Address::Ip(_) => {
                let listener = std::net::TcpListener::from(socket);
                listener.set_nonblocking(true)?;
                let address = listener.local_addr()?.into();
                Ok(Self { listener: Listener::Tcp(listener), configured, address, file: None })
            }
            Address::Unix(path) => {
                let listener = unix::UnixListener::from(socket);
                listener.set_nonblocking(true)?;
                let found = fs::symlink_metadata(&**path).ok().filter(|_| !path.starts_with('@'));
                let file = found.map(|found| SocketFile {
                    path: (&**path).into(),
                    id: (found.dev(), found.ino()),
                    is_others: true,
                });
                let address = configured.clone();
                Ok(Self { listener: Listener::Unix(listener), configured, address, file })
            }
        }
    }

    /// Returns a duplicate of the socket.
    pub(crate) fn duplicate(&self) -> io::Result<OwnedFd> {
        match &self.listener {
            Listener::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Listener::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// Waits here from now on; within a runtime.
    pub(crate) fn open(self) -> io::Result<(Door, Option<SocketFile>)> {
        let door = match self.listener {
            Listener::Tcp(listener) => Door::Tcp(TcpListener::from_std(listener)?),
            Listener::Unix(listener) => Door::Unix(UnixListener::from_std(listener)?),
        };
        Ok((door, self.file))
    }
}

fn bind_unix(path: &str, mode: u32) -> io::Result<(unix::UnixListener, Option<SocketFile>)> {
    if let Some(name) = path.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt;
        let listener = unix::UnixListener::bind_addr(&unix::SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        return Ok((listener, None));
    }
    make_way(Path::new(path))?;
    let listener = unix::UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    let found = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.into(), id: (found.dev(), found.ino()), is_others: false };
    file.permit(mode)?;
    // Who came before the permissions were set may be someone who has none.
    while listener.accept().is_ok() {}
    Ok((listener, Some(file)))
}

/// Removes a socket that no one listens at.
fn make_way(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file is not a socket"));
        }
        Ok(_) => {}
    }
    match unix::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) => Err(error),
    }
}

/// A file that is removed when this is dropped, unless it is another's by then.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and number.
    id: (u64, u64),
    /// It is another process's: from now on, or still.
    is_others: bool,
}

impl SocketFile {
    pub(crate) fn permit(&self, mode: u32) -> io::Result<()> {
        fs::set_permissions(&self.path, Permissions::from_mode(mode))
    }

    /// Takes ownership of the socket file.
    pub(crate) fn take(&mut self) {
        self.is_others = false;
    }

    /// Gives ownership of the socket file to another process.
    pub(crate) fn leave(mut self) {
        self.is_others = true;
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_there = fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.id);
        if is_there && !self.is_others {
            // It may be gone by itself.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where connections come in.
pub(crate) enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
    pub(crate) async fn accept(&self) -> io::Result<Visitor> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| Visitor::Tcp(stream)),
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Visitor::Unix(stream)),
        }
    }
}

/// A connection, however it came in.
pub(crate) enum Visitor {
    Tcp(TcpStream),
    Tls(Box<Encrypted>),
    Unix(UnixStream),
}

impl Visitor {
    /// Encrypts a connection from its first byte if TLS is configured; a Unix socket is never encrypted.
    pub(crate) fn secure(self, tls: Option<Arc<AdminTls>>) -> Self {
        match (self, tls) {
            (Self::Tcp(stream), Some(tls)) => Self::Tls(Box::new(tls.accept(stream))),
            (visitor, _) => visitor,
        }
    }

    /// Returns how it is encrypted, if it is.
    pub(crate) fn secured(&self) -> Option<&Secured> {
        match self {
            Self::Tls(stream) => Some(stream.secured()),
            Self::Tcp(_) | Self::Unix(_) => None,
        }
    }
}

/// Does the same with each of them.
macro_rules! each {
    ($self:expr, $stream:ident => $do:expr) => {
        match $self.get_mut() {
            Visitor::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $do
            }
            Visitor::Tls(stream) => {
                let $stream = Pin::new(stream);
                $do
            }
            Visitor::Unix(stream) => {
                let $stream = Pin::new(stream);
                $do
            }
        }
    };
}

impl AsyncRead for Visitor {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_shutdown(cx))
    }
}
