//! A body that is a range of a file, over a connection in clear: the kernel moves it from its page cache to the socket (`sendfile`), and no
//! byte of it comes by here. Before each piece it is asked whether both ends of it are in memory. If not, a thread beside the worker reads it
//! first: a worker does not wait for a disk.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};

use plan::filter::Content;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::file_system::piece_of;
use crate::relay::PumpFault;
use crate::sys;

/// Pieces before others of the worker get a turn.
const PIECES_PER_TURN_MAX: usize = 4;
/// Bytes of the buffer of a thread that reads ahead.
const ROOM_BYTES: usize = 64 << 10;

/// See the module.
pub(crate) struct FileBody {
    /// What goes before it, of which so many bytes are written.
    head: Vec<u8>,
    written: usize,
    content: Arc<dyn Content>,
    left: Range<u64>,
    /// What is before this place is in memory, or was a moment ago.
    is_read_to: u64,
    reading: Option<ReadAhead>,
    sent_bytes: u64,
    has_moved: bool,
}

/// A job that brings a piece into memory. It is left out if nobody waits for it any more and it has not begun.
struct ReadAhead(JoinHandle<io::Result<()>>);

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl FileBody {
    /// Sends these bytes of a file behind a head.
    pub(crate) fn new(head: Vec<u8>, content: Arc<dyn Content>, range: Range<u64>) -> Self {
        let is_read_to = range.start;
        Self { head, written: 0, content, left: range, is_read_to, reading: None, sent_bytes: 0, has_moved: false }
    }

    /// Bytes of the body that the kernel has taken.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// Whether it waits for its receiver, not for the disk.
    pub(crate) fn is_blocked_on_receiver(&self) -> bool {
        self.reading.is_none()
    }

    /// Whether anything was written since this was last asked.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    /// The memory of the head.
    pub(crate) fn into_head(self) -> Vec<u8> {
        self.head
    }

    /// Sends what the socket takes. Ready when it has all.
    ///
    /// # Errors
    /// [`PumpFault::Write`]: the client is gone. [`PumpFault::Source`]: the file cannot be read, or is shorter than it was.
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>, tcp: &TcpStream) -> Poll<Result<(), PumpFault>> {
        while self.written < self.head.len() {
            let head = &self.head[self.written..];
            // It leaves with the first of the body.
            let send = || socket2::SockRef::from(tcp).send_with_flags(head, libc::MSG_MORE | libc::MSG_NOSIGNAL);
            self.written += ready!(poll_io(cx, tcp, send)).map_err(|_| PumpFault::Write)?;
            self.has_moved = true;
        }
        for _ in 0..PIECES_PER_TURN_MAX {
            if self.left.is_empty() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_read_ahead(cx))?;
            let content = Arc::clone(&self.content);
            let file = content.file().ok_or(PumpFault::Source)?;
            let count = usize::try_from(self.is_read_to - self.left.start).unwrap_or(0);
            let sent = poll_io(cx, tcp, || sys::send_file(tcp.as_fd(), file, (self.left.start, count)));
            if sent.is_pending() {
                // Who knows what is in memory when the client has taken some.
                self.is_read_to = self.left.start;
            }
            match ready!(sent) {
                Ok(0) => return Poll::Ready(Err(PumpFault::Source)),
                Ok(count) => {
                    self.left.start += count as u64;
                    self.sent_bytes += count as u64;
                    self.has_moved = true;
                }
                Err(error) => return Poll::Ready(Err(fault_of(&error))),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ready when the next bytes are in memory.
    fn poll_read_ahead(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), PumpFault>> {
        if self.left.start < self.is_read_to {
            return Poll::Ready(Ok(()));
        }
        let piece = piece_of(self.left.start);
        let end = self.left.end.min(piece.end);
        let is_there = |at: u64| matches!(self.content.read_now(&mut [0], at), Some(Ok(1)));
        if self.reading.is_none() && is_there(end - 1) && is_there(piece.start) {
            self.is_read_to = end;
            return Poll::Ready(Ok(()));
        }
        let reading = self.reading.get_or_insert_with(|| {
            let (content, piece) = (Arc::clone(&self.content), piece.start..end);
            ReadAhead(spawn_blocking(move || read_through(&*content, piece)))
        });
        let read = ready!(Pin::new(&mut reading.0).poll(cx));
        self.reading = None;
        if !matches!(read, Ok(Ok(()))) {
            return Poll::Ready(Err(PumpFault::Source));
        }
        self.is_read_to = end;
        Poll::Ready(Ok(()))
    }
}

/// Whose fault it is: the socket's, or else the file's.
fn fault_of(error: &io::Error) -> PumpFault {
    match error.raw_os_error() {
        Some(
            libc::EPIPE | libc::ECONNRESET | libc::ETIMEDOUT | libc::ENOTCONN | libc::EHOSTUNREACH | libc::ENETUNREACH,
        ) => PumpFault::Write,
        _ => PumpFault::Source,
    }
}

/// Reads a piece, so that it is in memory after it.
fn read_through(content: &dyn Content, piece: Range<u64>) -> io::Result<()> {
    let (mut room, mut at) = (vec![0; ROOM_BYTES], piece.start);
    while at < piece.end {
        let wanted = usize::try_from(piece.end - at).unwrap_or(usize::MAX).min(room.len());
        match content.read_at(&mut room[..wanted], at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => at += count as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn poll_io(
    cx: &mut TaskContext<'_>,
    tcp: &TcpStream,
    mut write: impl FnMut() -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(tcp.poll_write_ready(cx))?;
        match tcp.try_io(Interest::WRITABLE, &mut write) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            other => return Poll::Ready(other),
        }
    }
}
