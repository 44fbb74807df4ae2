//! What the `h2` library reads and writes: the connection as it is, watched on its way.
//!
//! What the library writes is gathered, for it writes every frame alone and flushes after each: with TLS whole records are
//! encrypted as they fill, what is left waits for more, and all leaves in one call once the library has no more to say.
//! So whoever drives the library calls [`Transport::poll_send`] after it.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Instant;

use model::limits::{HTTP2_GATHERED_BYTES_MAX, LINGER_BYTES_MAX};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wire::http2::{Allowance, FrameMeter, RefusalMeter};

use crate::buffer::Buffer;
use crate::io::Io;

/// Plaintext of the largest record (RFC 8446 section 5.1).
const RECORD_BYTES: usize = 16 * 1024;
/// Pieces of one write that are looked at. The library has two: heads of frames, and the payload of the last.
const PIECES_MAX: usize = 3;

/// What is seen of a connection while the library has it.
pub(crate) struct Signs {
    /// Idle frames that the peer may still send.
    pub allowance: RefCell<Allowance>,
    /// It sent more; nothing is read any more.
    pub is_flooded: Cell<bool>,
    /// Since when the peer has taken nothing of what waits for it.
    pub blocked_since: Cell<Option<Instant>>,
    /// Signs of life: reads that yielded something, and writes that had to wait until the peer took what was before them.
    pub stirs: Cell<u64>,
    /// Streams that the library has ended because the peer broke the rules, and that nobody has asked for yet. It bounds them.
    pub refused: RefCell<Vec<u32>>,
    /// All is said; only the peer's end is waited for.
    pub is_shut: Cell<bool>,
    /// That is waited for no longer.
    pub is_given_up: Cell<bool>,
}

impl Signs {
    fn stir(&self) {
        self.stirs.set(self.stirs.get() + 1);
    }
}

/// See the module. Clones are the same connection.
#[derive(Clone)]
pub(crate) struct Transport(Rc<RefCell<Line>>);

/// A connection with what waits to be written to it.
struct Line {
    io: Io,
    /// What was read before the library had the connection.
    early: Option<Buffer>,
    meter: FrameMeter,
    refusals: RefusalMeter,
    signs: Rc<Signs>,
    lingered_bytes: u64,
    /// With TLS less than a record, without all that waits.
    gathered: Vec<u8>,
    /// How much of that the kernel has.
    sent_bytes: usize,
    /// Bytes of the records that wait behind the socket.
    encrypted_bytes: usize,
}

impl Transport {
    /// Frames begin after `skip` bytes.
    pub(crate) fn new(io: Io, early: Option<Buffer>, skip: u32, signs: Rc<Signs>) -> Self {
        let mut line = Line {
            io,
            early,
            meter: FrameMeter::after(skip),
            refusals: RefusalMeter::default(),
            signs,
            lingered_bytes: 0,
            gathered: Vec::new(),
            sent_bytes: 0,
            encrypted_bytes: 0,
        };
        // The bound is kept here, where records are not cut to fit it.
        line.io.lift_encrypted_max();
        Self(Rc::new(RefCell::new(line)))
    }

    /// Hands all that was gathered to the kernel. To be called whenever the library has been driven.
    pub(crate) fn poll_send(&self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.0.borrow_mut().poll_send(cx)
    }

    /// Frames read so far that may have begun a stream: as many streams at most has the library to give.
    pub(crate) fn heads(&self) -> u64 {
        self.0.borrow().meter.heads()
    }
}

impl Line {
    fn note_read(&mut self, bytes: &[u8]) {
        self.signs.stir();
        let idle = self.meter.take(bytes);
        if idle > 0 && !self.signs.allowance.borrow_mut().spend(idle, Instant::now()) {
            self.signs.is_flooded.set(true);
        }
    }

    fn note_frames(&mut self, pieces: &[io::IoSlice<'_>], mut count: usize) {
        for piece in pieces {
            let written = &piece[..piece.len().min(count)];
            count -= written.len();
            self.refusals.take(written, |stream| self.signs.refused.borrow_mut().push(stream));
        }
    }

    fn note_write(&self, written: &Poll<io::Result<usize>>) {
        let blocked = &self.signs.blocked_since;
        match written {
            Poll::Pending if blocked.get().is_none() => blocked.set(Some(Instant::now())),
            Poll::Ready(Ok(_)) if blocked.take().is_some() => self.signs.stir(),
            _ => {}
        }
    }

    fn poll_send(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        if !self.io.is_encrypted() {
            return self.poll_send_plain(cx);
        }
        // Its memory too is given back, for an idle connection holds none.
        let gathered = std::mem::take(&mut self.gathered);
        if !gathered.is_empty() {
            self.io.encrypt(&[io::IoSlice::new(&gathered)])?;
            self.encrypted_bytes += gathered.len();
        }
        self.poll_send_encrypted(cx)
    }

    fn poll_send_encrypted(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        while self.io.has_encrypted() {
            let sent = self.io.poll_send_encrypted(cx);
            self.note_write(&sent);
            ready!(sent)?;
        }
        self.encrypted_bytes = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_send_plain(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        while self.sent_bytes < self.gathered.len() {
            let sent = self.io.poll_write(cx, &self.gathered[self.sent_bytes..]);
            self.note_write(&sent);
            self.sent_bytes += ready!(sent)?;
        }
        self.gathered = Vec::new();
        self.sent_bytes = 0;
        Poll::Ready(Ok(()))
    }

    /// Takes frames that have a payload, for a copy costs less than a call, unless they are very large. Heads and small frames
    /// are together already.
    fn poll_gather_plain(&mut self, cx: &mut TaskContext<'_>, pieces: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let offered: usize = pieces.iter().map(|piece| piece.len()).sum();
        if self.gathered.len() + offered > HTTP2_GATHERED_BYTES_MAX {
            ready!(self.poll_send_plain(cx))?;
        }
        if self.gathered.is_empty() {
            if pieces.len() == 1 || offered > HTTP2_GATHERED_BYTES_MAX / 2 {
                let written = match pieces {
                    // The kernel does it for less.
                    [piece] => self.io.poll_write(cx, piece),
                    pieces => self.io.poll_write_vectored(cx, pieces),
                };
                self.note_write(&written);
                return written;
            }
            self.gathered.reserve(HTTP2_GATHERED_BYTES_MAX);
        }
        pieces.iter().for_each(|piece| self.gathered.extend_from_slice(piece));
        Poll::Ready(Ok(offered))
    }

    /// Takes what there is room for: fills records with it, without a copy, and keeps what is less than one.
    fn poll_gather(&mut self, cx: &mut TaskContext<'_>, pieces: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let pieces = &pieces[..pieces.len().min(PIECES_MAX)];
        let offered: usize = pieces.iter().map(|piece| piece.len()).sum();
        let waiting = self.gathered.len();
        let whole = (waiting + offered).min(HTTP2_GATHERED_BYTES_MAX) / RECORD_BYTES * RECORD_BYTES;
        let mut taken = 0;
        if whole > 0 {
            if self.encrypted_bytes >= HTTP2_GATHERED_BYTES_MAX {
                ready!(self.poll_send_encrypted(cx))?;
            }
            taken = whole - waiting;
            let (all, count) = first_of(&self.gathered, pieces, whole);
            self.io.encrypt(&all[..count])?;
            self.encrypted_bytes += whole;
            self.gathered.clear();
        }
        if offered - taken < RECORD_BYTES {
            let mut passed = taken;
            for piece in pieces {
                let skip = passed.min(piece.len());
                passed -= skip;
                self.gathered.extend_from_slice(&piece[skip..]);
            }
            taken = offered;
        }
        Poll::Ready(Ok(taken))
    }
}

/// The first `count` bytes of what waits and what follows it.
fn first_of<'a>(
    waiting: &'a [u8],
    pieces: &'a [io::IoSlice<'_>],
    mut count: usize,
) -> ([io::IoSlice<'a>; PIECES_MAX + 1], usize) {
    let mut all = [io::IoSlice::new(&[]); PIECES_MAX + 1];
    let mut used = 0;
    for piece in std::iter::once(waiting).chain(pieces.iter().map(|piece| &**piece)) {
        let part = &piece[..piece.len().min(count)];
        count -= part.len();
        if !part.is_empty() {
            all[used] = io::IoSlice::new(part);
            used += 1;
        }
    }
    (all, used)
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut TaskContext<'_>, target: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let line = &mut *self.0.borrow_mut();
        if line.signs.is_flooded.get() {
            // Whoever drives the connection looks at the sign next.
            return Poll::Pending;
        }
        let before = target.filled().len();
        match &mut line.early {
            Some(early) => {
                let count = early.len().min(target.remaining());
                target.put_slice(&early.data()[..count]);
                early.advance(count);
                if early.is_empty() {
                    line.early = None;
                }
            }
            None => ready!(line.io.poll_read_buf(cx, target))?,
        }
        line.note_read(&target.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let line = &mut *self.0.borrow_mut();
        let written =
            if line.io.is_encrypted() { line.poll_gather(cx, pieces) } else { line.poll_gather_plain(cx, pieces) };
        if let Poll::Ready(Ok(count)) = written {
            line.note_frames(pieces, count);
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing: the library flushes after every frame, and all is sent at its end by [`Transport::poll_send`].
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends our half and throws away what still comes, within bounds, so that the peer sees why before the end: closing
    /// with unread bytes would reset the connection.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let line = &mut *self.0.borrow_mut();
        if !line.signs.is_shut.get() {
            ready!(line.poll_send(cx))?;
            ready!(line.io.poll_shutdown(cx))?;
            line.signs.is_shut.set(true);
        }
        let mut room = [0; 4096];
        while line.lingered_bytes < LINGER_BYTES_MAX && !line.signs.is_given_up.get() {
            match ready!(line.io.poll_read(cx, &mut room)) {
                Ok(count @ 1..) => line.lingered_bytes += count as u64,
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}
