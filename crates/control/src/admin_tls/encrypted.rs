//! A connection that performs its handshake when it is first read, so that the accept loop does not wait for handshakes.
//!
//! ```text
//!  Shaking ──▶ Open
//!     └──────▶ Parting ──▶ Over       the handshake failed: the alert is to reach the client before the connection is gone
//! ```
//! How long all of it may take is whose business who reads.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{FallibleAccept, TlsAcceptor};

use super::Secured;

/// What a client may still send after its handshake has failed: the request that it sent ahead. With more, it may miss why.
const PARTING_BYTES_MAX: usize = 256 << 10;
const PIECE_BYTES: usize = 4 << 10;

/// A connection that is encrypted once its handshake is over.
pub struct Encrypted {
    state: State,
    secured: Secured,
    peer: Option<SocketAddr>,
}

enum State {
    Shaking(FallibleAccept<TcpStream>),
    Open(TlsStream<TcpStream>),
    Parting { stream: TcpStream, left: usize, why: io::Error },
    Over,
}

impl Encrypted {
    pub(super) fn new(acceptor: &TlsAcceptor, stream: TcpStream, secured: Secured) -> Self {
        let peer = stream.peer_addr().ok();
        Self { state: State::Shaking(acceptor.accept(stream).into_fallible()), secured, peer }
    }

    /// How it is encrypted.
    pub fn secured(&self) -> &Secured {
        &self.secured
    }

    /// Ready when the handshake is over.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut TlsStream<TcpStream>>> {
        if let State::Shaking(handshake) = &mut self.state {
            match ready!(Pin::new(handshake).poll(cx)) {
                Ok(stream) => {
                    let chain: Option<&[CertificateDer<'static>]> = stream.get_ref().1.peer_certificates();
                    self.secured.open(chain.and_then(|chain| chain.first()));
                    self.state = State::Open(stream);
                }
                Err((why, stream)) => {
                    self.tell(&why);
                    self.state = State::Parting { stream, left: PARTING_BYTES_MAX, why };
                }
            }
        }
        if let State::Parting { stream, left, why } = &mut self.state {
            ready!(poll_part(stream, left, cx));
            let why = std::mem::replace(why, io::ErrorKind::ConnectionAborted.into());
            self.state = State::Over;
            return Poll::Ready(Err(why));
        }
        match &mut self.state {
            State::Open(stream) => Poll::Ready(Ok(stream)),
            _ => Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into())),
        }
    }

    /// A connection that only checks whether the port is open is not logged.
    fn tell(&self, why: &io::Error) {
        if why.kind() == io::ErrorKind::InvalidData {
            let peer = self.peer.map_or_else(|| "?".to_owned(), |peer| peer.to_string());
            let pairs: telemetry::log::Pairs<'_> = &[("peer", &peer), ("why", why)];
            telemetry::log::warn("a handshake at the admin listener has failed", pairs);
        }
    }
}

/// Ends in good order: what is not read when a socket is closed resets the connection, and the client never sees the alert.
fn poll_part(stream: &mut TcpStream, left: &mut usize, cx: &mut Context<'_>) -> Poll<()> {
    // The client may be gone already.
    let _ = ready!(Pin::new(&mut *stream).poll_shutdown(cx));
    let mut piece = [0; PIECE_BYTES];
    while *left > 0 {
        let mut read = ReadBuf::new(&mut piece);
        match ready!(Pin::new(&mut *stream).poll_read(cx, &mut read)) {
            Ok(()) if !read.filled().is_empty() => *left = left.saturating_sub(read.filled().len()),
            _ => break,
        }
    }
    Poll::Ready(())
}

impl AsyncRead for Encrypted {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = ready!(self.get_mut().poll_open(cx))?;
        Pin::new(stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = ready!(self.get_mut().poll_open(cx))?;
        Pin::new(stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = ready!(self.get_mut().poll_open(cx))?;
        Pin::new(stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().state {
            State::Open(stream) => Pin::new(stream).poll_flush(cx),
            // Nothing of ours was written yet.
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().state {
            State::Open(stream) => Pin::new(stream).poll_shutdown(cx),
            // What has not begun ends when it is dropped.
            _ => Poll::Ready(Ok(())),
        }
    }
}
