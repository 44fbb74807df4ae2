//! What the `h2` library reads and writes: the connection as it is, watched on its way.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Instant;

use model::limits::LINGER_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wire::http2::{Allowance, FrameMeter};

use crate::buffer::Buffer;
use crate::io::Io;

/// What is seen of a connection while the library has it.
pub(crate) struct Signs {
    /// Idle frames that the peer may still send.
    pub allowance: RefCell<Allowance>,
    /// It sent more; nothing is read any more.
    pub is_flooded: Cell<bool>,
    /// Since when the peer has taken nothing of what waits for it.
    pub blocked_since: Cell<Option<Instant>>,
    /// Reads that yielded something.
    pub reads: Cell<u64>,
    /// All is said; only the peer's end is waited for.
    pub is_shut: Cell<bool>,
    /// That is waited for no longer.
    pub is_given_up: Cell<bool>,
}

/// See the module.
pub(crate) struct Transport {
    io: Io,
    /// What was read before the library had the connection.
    early: Option<Buffer>,
    meter: FrameMeter,
    signs: Rc<Signs>,
    lingered_bytes: u64,
}

impl Transport {
    /// Frames begin after `skip` bytes.
    pub(crate) fn new(io: Io, early: Option<Buffer>, skip: u32, signs: Rc<Signs>) -> Self {
        Self { io, early, meter: FrameMeter::after(skip), signs, lingered_bytes: 0 }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.signs.reads.set(self.signs.reads.get() + 1);
        let idle = self.meter.take(bytes);
        if idle > 0 && !self.signs.allowance.borrow_mut().spend(idle, Instant::now()) {
            self.signs.is_flooded.set(true);
        }
    }

    fn note_write(&self, written: &Poll<io::Result<usize>>) {
        let blocked = &self.signs.blocked_since;
        match written {
            Poll::Pending if blocked.get().is_none() => blocked.set(Some(Instant::now())),
            Poll::Pending => {}
            Poll::Ready(_) => blocked.set(None),
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>, target: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.signs.is_flooded.get() {
            // Whoever drives the connection looks at the sign next.
            return Poll::Pending;
        }
        let before = target.filled().len();
        match &mut self.early {
            Some(early) => {
                let count = early.len().min(target.remaining());
                target.put_slice(&early.data()[..count]);
                early.advance(count);
                if early.is_empty() {
                    self.early = None;
                }
            }
            None => ready!(self.io.poll_read_buf(cx, target))?,
        }
        self.note(&target.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.io.poll_write(cx, bytes);
        self.note_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.io.poll_write_vectored(cx, pieces);
        self.note_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.io, Io::Plain(_))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.io.poll_flush(cx)
    }

    /// Ends our half and throws away what still comes, within bounds, so that the peer sees why before the end: closing
    /// with unread bytes would reset the connection.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        if !self.signs.is_shut.get() {
            ready!(self.io.poll_shutdown(cx))?;
            self.signs.is_shut.set(true);
        }
        let mut room = [0; 4096];
        while self.lingered_bytes < LINGER_BYTES_MAX && !self.signs.is_given_up.get() {
            match ready!(self.io.poll_read(cx, &mut room)) {
                Ok(count @ 1..) => self.lingered_bytes += count as u64,
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
