//! The byte stream of a connection: TCP, or TLS over it.

use std::io::{self, Write};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// See the module. Boxed where large, so that an idle plain connection stays small.
pub(crate) enum ByteStream {
    Plain(TcpStream),
    Accepted(Box<tokio_rustls::server::TlsStream<TcpStream>>),
    Connected(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

macro_rules! each {
    ($io:expr, $stream:ident => $what:expr) => {
        match $io {
            ByteStream::Plain($stream) => $what,
            ByteStream::Accepted($stream) => {
                let $stream = &mut **$stream;
                $what
            }
            ByteStream::Connected($stream) => {
                let $stream = &mut **$stream;
                $what
            }
        }
    };
}

impl ByteStream {
    /// The connection below, and whether plaintext waits above it.
    fn tcp(&self) -> (&TcpStream, bool) {
        match self {
            Self::Plain(tcp) => (tcp, false),
            Self::Accepted(tls) => (tls.get_ref().0, !tls.get_ref().1.wants_read()),
            Self::Connected(tls) => (tls.get_ref().0, !tls.get_ref().1.wants_read()),
        }
    }

    /// Whether this is what the TLS handshake with a client has agreed to speak.
    pub(crate) fn has_agreed_on(&self, protocol: &[u8]) -> bool {
        matches!(self, Self::Accepted(tls) if tls.get_ref().1.alpn_protocol() == Some(protocol))
    }

    /// Whether the endpoint has chosen HTTP/2 as the connection began (RFC 7301).
    pub(crate) fn has_chosen_http2(&self) -> bool {
        matches!(self, Self::Connected(tls) if tls.get_ref().1.alpn_protocol() == Some(b"h2"))
    }

    /// Ready when a read may yield bytes, an end or an error. Needs no buffer, so none is held while waiting. With TLS
    /// a read may still turn out pending: what arrived was no whole record.
    pub(crate) fn poll_read_ready(&self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let (tcp, has_plaintext) = self.tcp();
        if has_plaintext { Poll::Ready(Ok(())) } else { tcp.poll_read_ready(cx) }
    }

    /// Reads into `room`; 0 is the end of the stream. With TLS the end is `close_notify`: a peer that ends TCP without it
    /// may have been cut off by anyone, which is an error (RFC 8446 section 6.1).
    pub(crate) fn poll_read(&mut self, cx: &mut TaskContext<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut target = ReadBuf::new(room);
        ready!(each!(self, stream => Pin::new(stream).poll_read(cx, &mut target)))?;
        Poll::Ready(Ok(target.filled().len()))
    }

    /// Writes of several pieces what can be written.
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut TaskContext<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => Pin::new(stream).poll_write_vectored(cx, pieces))
    }

    /// Whether what is written here is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// Lets any number of encrypted bytes wait; the caller of [`Self::encrypt`] keeps the bound.
    pub(crate) fn lift_encrypted_max(&mut self) {
        match self {
            Self::Accepted(tls) => tls.get_mut().1.set_buffer_limit(None),
            Self::Connected(tls) => tls.get_mut().1.set_buffer_limit(None),
            Self::Plain(_) => {}
        }
    }

    /// Encrypts all of `pieces`, as one, into records that wait for [`Self::poll_send_encrypted`]. Of TLS only.
    pub(crate) fn encrypt(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<()> {
        let taken = match self {
            Self::Accepted(tls) => tls.get_mut().1.writer().write_vectored(pieces)?,
            Self::Connected(tls) => tls.get_mut().1.writer().write_vectored(pieces)?,
            Self::Plain(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let is_all = taken == pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if is_all { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Whether encrypted bytes wait.
    pub(crate) fn has_encrypted(&self) -> bool {
        match self {
            Self::Accepted(tls) => tls.get_ref().1.wants_write(),
            Self::Connected(tls) => tls.get_ref().1.wants_write(),
            Self::Plain(_) => false,
        }
    }

    /// Hands of what is encrypted to the kernel what it takes in one call.
    pub(crate) fn poll_send_encrypted(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<usize>> {
        let sent = match self {
            Self::Accepted(tls) => {
                let (tcp, tls) = tls.get_mut();
                tls.write_tls(&mut Outlet { tcp, cx })
            }
            Self::Connected(tls) => {
                let (tcp, tls) = tls.get_mut();
                tls.write_tls(&mut Outlet { tcp, cx })
            }
            Self::Plain(_) => return Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        };
        match sent {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            sent => Poll::Ready(sent),
        }
    }

    /// Ready when the peer has reset the connection: it will take no answer. An orderly end of its half is not that, nor
    /// is data; with either of them waiting to be read, a later reset is seen when something is written.
    pub(crate) fn poll_reset(&self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let (tcp, _) = self.tcp();
        if ready!(tcp.poll_read_ready(cx)).is_err() {
            return Poll::Ready(());
        }
        match tcp.poll_peek(cx, &mut ReadBuf::new(&mut [0])) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    pub(crate) fn poll_write(&mut self, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match ready!(each!(self, stream => Pin::new(stream).poll_write(cx, bytes))) {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            other => Poll::Ready(other),
        }
    }

    /// Like [`Self::poll_write`], for the last bytes before our half is ended: the end travels with them. Of a connection
    /// the kernel holds them back until then; cell `no-keepalive` of `lab cost` pays for it.
    pub(crate) fn poll_write_last(&mut self, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self::Plain(tcp) = self else { return self.poll_write(cx, bytes) };
        loop {
            ready!(tcp.poll_write_ready(cx))?;
            let send = || socket2::SockRef::from(&*tcp).send_with_flags(bytes, libc::MSG_MORE | libc::MSG_NOSIGNAL);
            match tcp.try_io(Interest::WRITABLE, send) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) if count == bytes.len() => {
                    // Not left to the closing of the socket, which would throw the bytes away if the client had sent
                    // something that nobody reads.
                    let ended = socket2::SockRef::from(&*tcp).shutdown(Shutdown::Write);
                    return Poll::Ready(ended.map(|()| count));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }

    /// Ready when TLS has handed all it encrypted to the kernel; at once without TLS.
    pub(crate) fn poll_flush(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Accepted(tls) => Pin::new(&mut **tls).poll_flush(cx),
            Self::Connected(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    /// Ends our half: `close_notify` with TLS, then FIN.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }

    /// Makes the kernel answer with a reset instead of an orderly end when the connection is dropped.
    pub(crate) fn reset_on_close(&self) {
        let _ = socket2::SockRef::from(self.tcp().0).set_linger(Some(Duration::ZERO));
    }
}

/// A socket as TLS writes to it: what would have to wait is an error.
struct Outlet<'a, 'b> {
    tcp: &'a mut TcpStream,
    cx: &'a mut TaskContext<'b>,
}

impl Write for Outlet<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[io::IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let tcp = Pin::new(&mut *self.tcp);
        let written = match pieces {
            // The kernel does it for less.
            [piece] => tcp.poll_write(self.cx, piece),
            pieces => tcp.poll_write_vectored(self.cx, pieces),
        };
        match written {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
