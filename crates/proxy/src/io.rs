//! A byte stream to a peer: TCP, TLS over it, or one stream of an HTTP/2 or HTTP/3 connection. The one place that knows the
//! difference.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;

use crate::message::MessageStream;

/// See the module. Boxed where large, so that an idle plain connection stays small.
pub(crate) enum Io {
    Plain(TcpStream),
    Accepted(Box<tokio_rustls::server::TlsStream<TcpStream>>),
    Connected(Box<tokio_rustls::client::TlsStream<TcpStream>>),
    /// The body of a message in either direction. Its heads and trailers go beside it.
    Stream(Box<MessageStream>),
    /// Memory: what takes the response to a call of the proxy's own.
    Memory(Box<MemoryIo>),
}

/// A client that is no connection: all that is sent to it stays here, and it sends nothing.
#[derive(Default)]
pub(crate) struct MemoryIo {
    /// What was sent to it.
    pub bytes: Vec<u8>,
    /// Bound on that; more is an error.
    pub bytes_max: usize,
    /// It has gone, as a connection that is reset.
    pub is_gone: Rc<Cell<bool>>,
}

impl AsyncRead for MemoryIo {
    fn poll_read(self: Pin<&mut Self>, _: &mut TaskContext<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for MemoryIo {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
        }
        self.bytes.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

macro_rules! each {
    ($io:expr, $stream:ident => $what:expr, $message:ident => $else:expr) => {
        match $io {
            Io::Stream($message) => $else,
            Io::Plain($stream) => $what,
            Io::Accepted($stream) => {
                let $stream = &mut **$stream;
                $what
            }
            Io::Connected($stream) => {
                let $stream = &mut **$stream;
                $what
            }
            Io::Memory($stream) => {
                let $stream = &mut **$stream;
                $what
            }
        }
    };
}

impl Io {
    /// The stream, where a message has one of its own.
    pub(crate) fn message(&mut self) -> Option<&mut MessageStream> {
        match self {
            Self::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// Whether this is what the TLS handshake with a client has agreed to speak.
    pub(crate) fn has_agreed_on(&self, protocol: &[u8]) -> bool {
        matches!(self, Self::Accepted(tls) if tls.get_ref().1.alpn_protocol() == Some(protocol))
    }

    /// Whether a message here has a stream of its own, so that its end is that of the stream.
    pub(crate) fn is_message(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Whether this is the client's side of a call that a filter has made.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    /// Whether the endpoint has chosen HTTP/2 as the connection began (RFC 7301).
    pub(crate) fn has_chosen_http2(&self) -> bool {
        matches!(self, Self::Connected(tls) if tls.get_ref().1.alpn_protocol() == Some(b"h2"))
    }

    /// Ready when a read may yield bytes, an end or an error. Needs no buffer, so none is held while waiting. With TLS
    /// a read may still turn out pending: what arrived was no whole record.
    pub(crate) fn poll_read_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let (tcp, has_plaintext) = match self {
            Self::Plain(tcp) => (&*tcp, false),
            Self::Accepted(tls) => (tls.get_ref().0, !tls.get_ref().1.wants_read()),
            Self::Connected(tls) => (tls.get_ref().0, !tls.get_ref().1.wants_read()),
            Self::Stream(stream) => return stream.poll_read_ready(cx),
            Self::Memory(_) => return Poll::Pending,
        };
        if has_plaintext { Poll::Ready(Ok(())) } else { tcp.poll_read_ready(cx) }
    }

    /// Reads into `room`; 0 is the end of the stream. With TLS the end is `close_notify`: a peer that ends TCP without it
    /// may have been cut off by anyone, which is an error (RFC 8446 section 6.1).
    pub(crate) fn poll_read(&mut self, cx: &mut TaskContext<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut target = ReadBuf::new(room);
        ready!(each!(
            self,
            stream => Pin::new(stream).poll_read(cx, &mut target),
            message => return message.poll_read(cx, target.initialize_unfilled())
        ))?;
        Poll::Ready(Ok(target.filled().len()))
    }

    /// Writes of several pieces what can be written. Not for a stream.
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut TaskContext<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(
            self,
            stream => Pin::new(stream).poll_write_vectored(cx, pieces),
            _message => Poll::Ready(Err(no_connection()))
        )
    }

    /// Whether what is written here is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Accepted(_) | Self::Connected(_))
    }

    /// Lets any number of encrypted bytes wait; the bound is kept by whoever calls [`Self::encrypt`].
    pub(crate) fn lift_encrypted_max(&mut self) {
        match self {
            Self::Accepted(tls) => tls.get_mut().1.set_buffer_limit(None),
            Self::Connected(tls) => tls.get_mut().1.set_buffer_limit(None),
            Self::Plain(_) | Self::Stream(_) | Self::Memory(_) => {}
        }
    }

    /// Encrypts all of `pieces`, as one, into records that wait for [`Self::poll_send_encrypted`]. Of TLS only.
    pub(crate) fn encrypt(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<()> {
        let taken = match self {
            Self::Accepted(tls) => tls.get_mut().1.writer().write_vectored(pieces)?,
            Self::Connected(tls) => tls.get_mut().1.writer().write_vectored(pieces)?,
            Self::Plain(_) | Self::Stream(_) | Self::Memory(_) => return Err(no_connection()),
        };
        let is_all = taken == pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if is_all { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Whether encrypted bytes wait.
    pub(crate) fn has_encrypted(&self) -> bool {
        match self {
            Self::Accepted(tls) => tls.get_ref().1.wants_write(),
            Self::Connected(tls) => tls.get_ref().1.wants_write(),
            Self::Plain(_) | Self::Stream(_) | Self::Memory(_) => false,
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
            Self::Plain(_) | Self::Stream(_) | Self::Memory(_) => return Poll::Ready(Err(no_connection())),
        };
        match sent {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            sent => Poll::Ready(sent),
        }
    }

    /// Ready when the peer has reset the connection: it will take no answer. An orderly end of its half is not that, nor
    /// is data; with either of them waiting to be read, a later reset is seen when something is written.
    pub(crate) fn poll_reset(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let tcp = match self {
            Self::Plain(tcp) => &*tcp,
            Self::Accepted(tls) => tls.get_ref().0,
            Self::Connected(tls) => tls.get_ref().0,
            Self::Stream(stream) => return stream.poll_reset(cx),
            Self::Memory(memory) => return if memory.is_gone.get() { Poll::Ready(()) } else { Poll::Pending },
        };
        if ready!(tcp.poll_read_ready(cx)).is_err() {
            return Poll::Ready(());
        }
        match tcp.poll_peek(cx, &mut ReadBuf::new(&mut [0])) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }

    pub(crate) fn poll_write(&mut self, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match ready!(each!(
            self,
            stream => Pin::new(stream).poll_write(cx, bytes),
            message => message.poll_write(cx, bytes, false)
        )) {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            other => Poll::Ready(other),
        }
    }

    /// Like [`Self::poll_write`], for the last bytes before our half is ended: the end travels with them. Of a connection
    /// the kernel holds them back until then; cell `no-keepalive` of `lab cost` pays for it.
    pub(crate) fn poll_write_last(&mut self, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let tcp = match self {
            Self::Plain(tcp) => tcp,
            Self::Stream(stream) => return stream.poll_write(cx, bytes, true),
            _ => return self.poll_write(cx, bytes),
        };
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

    /// Ready when TLS has handed all it encrypted to the kernel; at once without TLS. What is in a stream of HTTP/2,
    /// its connection sends.
    pub(crate) fn poll_flush(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) | Self::Memory(_) => Poll::Ready(Ok(())),
            Self::Stream(stream) => stream.poll_flush(cx),
            Self::Accepted(tls) => Pin::new(&mut **tls).poll_flush(cx),
            Self::Connected(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    /// Ends our half: `close_notify` with TLS, then FIN; END_STREAM of a stream.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        each!(
            self,
            stream => Pin::new(stream).poll_shutdown(cx),
            message => match message.end(None) {
                Ok(()) => message.poll_flush(cx),
                Err(error) => Poll::Ready(Err(error)),
            }
        )
    }

    /// Whether an idle connection can carry another exchange: nothing has arrived on it, neither an end nor bytes that
    /// nobody asked for. Costs no system call unless the kernel has reported something.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let mut cx = TaskContext::from_waker(Waker::noop());
        // Also for a task that has used up its turn, or a dead connection would look quiet.
        let look = unconstrained(poll_fn(|cx| {
            if self.poll_read_ready(cx).is_pending() {
                return Poll::Ready(true);
            }
            // With TLS 1.3 it may be a session ticket, which reading takes in.
            Poll::Ready(self.poll_read(cx, &mut [0; 8]).is_pending())
        }));
        matches!(pin!(look).poll(&mut cx), Poll::Ready(true))
    }

    /// Makes the kernel answer with a reset instead of an orderly end when the connection is dropped. A stream is reset now.
    pub(crate) fn reset_on_close(&mut self) {
        let tcp = match self {
            Self::Plain(tcp) => &*tcp,
            Self::Accepted(tls) => tls.get_ref().0,
            Self::Connected(tls) => tls.get_ref().0,
            Self::Stream(stream) => return stream.reset(),
            Self::Memory(_) => return,
        };
        let _ = socket2::SockRef::from(tcp).set_linger(Some(std::time::Duration::ZERO));
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

/// What a stream is not.
fn no_connection() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

/// Writes all of `bytes` and flushes. Of a stream they are the last.
pub(crate) async fn write_all(io: &mut Io, bytes: &[u8]) -> io::Result<()> {
    let mut written = 0;
    poll_fn(|cx| {
        while written < bytes.len() {
            let rest = &bytes[written..];
            written += ready!(if io.is_message() { io.poll_write_last(cx, rest) } else { io.poll_write(cx, rest) })?;
        }
        io.poll_flush(cx)
    })
    .await
}
