//! The output of a connection: its socket, with what waits to be written to it.
//!
//! Frames are gathered, for one call costs more than the copy of many: all leave together when the turn of the connection is
//! over. With TLS whole records are encrypted as they fill, without a copy of what bodies have in them, and what is less than one
//! waits for more. In clear a large piece of a body is written from where it lies; cell `h2c-100k` of `lab cost` pays for that.

use std::io;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::Instant;

use model::limits::{BUFFER_BYTES, HTTP2_GATHERED_BYTES_MAX, LINGER_BYTES_MAX};
use wire::http2::frame::HEAD_BYTES;

use crate::buffer::{Buffer, BufferPool};
use crate::byte_stream::ByteStream;

/// Plaintext of the largest record (RFC 8446 section 5.1).
const RECORD_BYTES: usize = 16 * 1024;
/// Room that is made at once where there was none: enough for most responses without much of a body.
const ROOM_BYTES: usize = 512;

/// From how many bytes on a piece is written from where it lies: less is copied, for that costs less than a call.
const LARGE_BYTES: usize = BUFFER_BYTES / 2;
/// Frames that are written so at once: of the largest size a buffer is no more.
pub(crate) const FRAMES_AT_ONCE: usize = 4;

/// See the module.
pub(crate) struct Output {
    io: ByteStream,
    /// Of the task of the connection, for the socket.
    waker: Waker,
    is_encrypted: bool,
    /// Frames that wait. In clear, those before `sent_bytes` are gone.
    out: Vec<u8>,
    /// How much of `out` the kernel has.
    sent_bytes: usize,
    /// Bytes of the records that wait behind the socket.
    encrypted_bytes: usize,
    /// Since when the peer has taken nothing of what waits for it.
    blocked_since: Option<Instant>,
    /// Signs of life: reads that yielded something, and writes that had to wait until the peer took what was before them.
    stirs: u64,
    lingered_bytes: u64,
    /// Our half has ended.
    is_shut: bool,
}

impl Output {
    pub(crate) fn new(mut io: ByteStream, waker: Waker) -> Self {
        // The bound is kept here, where records are not cut to fit it.
        io.lift_encrypted_max();
        let is_encrypted = io.is_encrypted();
        Self {
            io,
            waker,
            is_encrypted,
            out: Vec::new(),
            sent_bytes: 0,
            encrypted_bytes: 0,
            blocked_since: None,
            stirs: 0,
            lingered_bytes: 0,
            is_shut: false,
        }
    }

    /// Where frames are written to.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Bytes that wait.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.out.len() - self.sent_bytes + self.encrypted_bytes
    }

    /// Whether there is room for another piece of a body. Whoever begins to write one may write all of it, up to a buffer.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting_bytes() < HTTP2_GATHERED_BYTES_MAX
    }

    /// Whether what waits has to wait for the peer.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked_since.is_some()
    }

    pub(crate) fn blocked_since(&self) -> Option<Instant> {
        self.blocked_since
    }

    pub(crate) fn stirs(&self) -> u64 {
        self.stirs
    }

    /// Makes room for a head, or so many bytes of a body and the heads of their frames.
    pub(crate) fn expect(&mut self, count: usize) {
        self.out.reserve(if self.is_encrypted { count.min(RECORD_BYTES) } else { count } + ROOM_BYTES);
    }

    /// Adds the payload of a frame whose head was written to [`Self::out`].
    pub(crate) fn put(&mut self, payload: &[u8]) -> io::Result<()> {
        let whole = (self.out.len() + payload.len()) / RECORD_BYTES * RECORD_BYTES;
        if !self.is_encrypted || whole == 0 {
            self.out.extend_from_slice(payload);
            return Ok(());
        }
        let (now, later) = payload.split_at(whole.saturating_sub(self.out.len()));
        self.io.encrypt(&[io::IoSlice::new(&self.out), io::IoSlice::new(now)])?;
        self.encrypted_bytes += self.out.len() + now.len();
        self.out.clear();
        self.out.extend_from_slice(later);
        Ok(())
    }

    /// Whether a piece of this length is to be given to [`Self::write_frames`].
    pub(crate) fn takes_frames(&self, length: usize) -> bool {
        length >= LARGE_BYTES && !self.is_encrypted && !self.is_blocked()
    }

    /// Writes frames of a body, whose payloads are `lengths` long and lie one after the other in `bytes`; the heads of their frames are the
    /// last that was written to [`Self::out`]. What the socket does not take is copied.
    pub(crate) fn write_frames(&mut self, lengths: &[usize], bytes: &[u8]) -> io::Result<()> {
        let out = std::mem::take(&mut self.out);
        let (before, mut heads) = out.split_at(out.len() - HEAD_BYTES * lengths.len());
        let mut payloads = bytes;
        let mut slices = [io::IoSlice::new(before); 2 * FRAMES_AT_ONCE + 1];
        let mut count = 1;
        for length in lengths.iter().take(FRAMES_AT_ONCE) {
            let (head, payload);
            (head, heads) = heads.split_at(HEAD_BYTES);
            (payload, payloads) = payloads.split_at(*length);
            (slices[count], slices[count + 1]) = (io::IoSlice::new(head), io::IoSlice::new(payload));
            count += 2;
        }
        let slices = &slices[usize::from(before.is_empty())..count];
        let cx = &mut TaskContext::from_waker(&self.waker);
        let written = self.io.poll_write_vectored(cx, slices);
        self.note_write(&written);
        let mut gone = match written {
            Poll::Ready(written) => written?,
            Poll::Pending => 0,
        };
        for slice in slices {
            let skipped = gone.min(slice.len());
            gone -= skipped;
            self.out.extend_from_slice(&slice[skipped..]);
        }
        Ok(())
    }

    /// Reads what is here, `None` at the end of the connection.
    pub(crate) fn poll_read(&mut self, cx: &mut TaskContext<'_>, pool: &BufferPool) -> Poll<Option<Buffer>> {
        if ready!(self.io.poll_read_ready(cx)).is_err() {
            return Poll::Ready(None);
        }
        let mut buffer = pool.take();
        let read = self.io.poll_read(cx, buffer.room());
        if let Poll::Ready(Ok(count @ 1..)) = read {
            buffer.filled(count);
            self.stirs += 1;
            return Poll::Ready(Some(buffer));
        }
        pool.give(buffer);
        read.map(|_| None)
    }

    /// Hands all that waits to the kernel.
    pub(crate) fn poll_send(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        if !self.is_encrypted {
            return self.poll_send_plain(cx);
        }
        loop {
            while self.io.has_encrypted() {
                let sent = self.io.poll_send_encrypted(cx);
                self.note_write(&sent);
                ready!(sent)?;
            }
            self.encrypted_bytes = 0;
            if self.out.is_empty() {
                return Poll::Ready(Ok(()));
            }
            // Its memory too is given back, for an idle connection holds none.
            let out = std::mem::take(&mut self.out);
            self.io.encrypt(&[io::IoSlice::new(&out)])?;
            self.encrypted_bytes = out.len();
        }
    }

    fn poll_send_plain(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        while self.sent_bytes < self.out.len() {
            let sent = self.io.poll_write(cx, &self.out[self.sent_bytes..]);
            self.note_write(&sent);
            if sent.is_pending() && self.sent_bytes > HTTP2_GATHERED_BYTES_MAX {
                // More is added behind what waits: what is gone must not pile up before it.
                self.out.drain(..self.sent_bytes);
                self.sent_bytes = 0;
            }
            self.sent_bytes += ready!(sent)?;
        }
        self.out = Vec::new();
        self.sent_bytes = 0;
        Poll::Ready(Ok(()))
    }

    fn note_write(&mut self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Pending if self.blocked_since.is_none() => self.blocked_since = Some(Instant::now()),
            Poll::Ready(Ok(_)) if self.blocked_since.take().is_some() => self.stirs += 1,
            _ => {}
        }
    }

    /// Sends what waits and ends our half.
    pub(crate) fn poll_end(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut {
            ready!(self.poll_send(cx))?;
            ready!(self.io.poll_shutdown(cx))?;
            self.is_shut = true;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what waits, ends our half and throws away what still comes, within bounds, so that the peer sees why before the
    /// end: closing with unread bytes would reset the connection. Ready when there is nothing to wait for any more.
    pub(crate) fn poll_close(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        if ready!(self.poll_end(cx)).is_err() {
            return Poll::Ready(());
        }
        let mut room = [0; 4096];
        while self.lingered_bytes < LINGER_BYTES_MAX {
            match ready!(self.io.poll_read(cx, &mut room)) {
                Ok(count @ 1..) => self.lingered_bytes += count as u64,
                _ => break,
            }
        }
        Poll::Ready(())
    }
}
