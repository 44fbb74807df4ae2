//! One HTTP/3 request stream as a `MessageStream`: what is read are the bytes of the peer's body, what is written those of
//! ours, each in DATA frames. Heads and trailers go beside them.
//!
//! ```text
//! towards a client     listening:  head ──► body ──► (trailers) end
//!                      speaking:   interim* ──► head ──► body ──► (trailers) end
//! towards an endpoint  the same with listening and speaking changed, and the head is said as the stream begins
//! ```
//!
//! Flow control is end to end: the peer gets its window back when bytes have been read from here, and we write no more than
//! its window allows. So a slow reader holds its own stream and no other, and nothing is buffered without bound.

mod speaking;

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use model::fields::Fields;
use model::limits::{HEAD_BYTES_MAX, HTTP3_IDLE_FRAMES_SOON, REPLAY_BYTES_MAX, TRAILER_BYTES_MAX};
use quinn_proto::StreamId;
use wire::http3::code;
use wire::http3::frame::{BadFrame, Expected, FrameReader, Step, kind, write_frame};
use wire::http3::message::{self, BadHead, Memory};

use super::{Quic, ReadFault};

/// What a head costs at most as encoded beside its bytes: a byte or more for each field and string.
const ENCODING_OVERHEAD_BYTES: usize = 4 * 1024;

/// How a stream ended before its head was whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoHead {
    /// Its connection is gone.
    Gone,
    /// The peer has reset it.
    Reset(u64),
    /// The peer has said that it will not look at it.
    Refused,
    /// It ended in good order.
    Incomplete,
    /// The head is too large to be read.
    TooLarge,
}

/// Our half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaking {
    /// The final head has not begun.
    Head,
    Body,
    /// All is written; the end of the stream follows what is in `out`.
    Ending,
    Ended,
    /// It was broken off.
    Broken,
}

/// What the streams of a connection count together.
#[derive(Default)]
pub(crate) struct Counts {
    /// Frames of no use.
    pub idle: Cell<u32>,
    /// Streams that a client threw away before their answer began.
    pub discarded: Cell<u32>,
    /// Pieces of bodies that the peer took whole, each of which it may answer with a few frames.
    pub pieces: Cell<u32>,
}

/// See the module.
pub(crate) struct Stream {
    quic: Rc<Quic>,
    id: StreamId,
    reader: FrameReader,
    /// Taken from the connection, not yet understood.
    chunk: Bytes,
    /// How much of its beginning is data.
    data: usize,
    trailers: Option<Box<Fields>>,
    /// The peer's half has ended in good order.
    is_over: bool,
    speaking: Speaking,
    /// What was said and not yet taken by the connection: heads, and the heads of frames.
    out: Vec<u8>,
    /// What is still to come of the frame of data that was begun.
    frame_left: usize,
    /// The peer has given it up, or broke the rules.
    is_broken: bool,
    /// The final response has begun.
    has_answered: bool,
    /// It was begun by us, towards an endpoint.
    is_ours: bool,
    /// What was sent of a request, as long as it may be needed again and there is not too much of it.
    sent: Option<Vec<u8>>,
    counts: Rc<Counts>,
}

impl Stream {
    /// `head_bytes_max` bounds heads and trailers.
    pub(crate) fn new(quic: Rc<Quic>, id: StreamId, head_bytes_max: usize, counts: Rc<Counts>) -> Self {
        Self {
            quic,
            id,
            reader: FrameReader::new(head_bytes_max + ENCODING_OVERHEAD_BYTES),
            chunk: Bytes::new(),
            data: 0,
            trailers: None,
            is_over: false,
            speaking: Speaking::Head,
            out: Vec::new(),
            frame_left: 0,
            is_broken: false,
            has_answered: false,
            is_ours: false,
            sent: None,
            counts,
        }
    }

    /// Returns a stream that we begin towards an endpoint with the head of a request, whose section `write` writes. It `ends` with that if
    /// there is no body.
    pub(crate) fn requested(
        quic: Rc<Quic>,
        id: StreamId,
        counts: Rc<Counts>,
        ends: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Self {
        let mut stream = Self::new(quic, id, HEAD_BYTES_MAX, counts);
        stream.is_ours = true;
        stream.sent = (!ends).then(Vec::new);
        stream.out.reserve(256);
        write_frame(&mut stream.out, kind::HEADERS, write);
        stream.speaking = if ends { Speaking::Ending } else { Speaking::Body };
        // What is wrong with the stream is seen by who reads it.
        let _ = stream.try_flush();
        stream
    }

    /// Returns what was sent, if that is the whole body of a request and it had no trailers.
    pub(crate) fn take_sent(&mut self) -> Option<Box<[u8]>> {
        let sent = self.sent.take()?;
        matches!(self.speaking, Speaking::Ending | Speaking::Ended).then(|| sent.into_boxed_slice())
    }

    /// What was sent is not needed any more.
    pub(crate) fn forget_sent(&mut self) {
        self.sent = None;
    }

    fn note_sent(&mut self, bytes: &[u8]) {
        if let Some(sent) = &mut self.sent {
            if sent.len() + bytes.len() > REPLAY_BYTES_MAX {
                self.sent = None;
            } else {
                sent.extend_from_slice(bytes);
            }
        }
    }

    /// Returns whether the peer takes other connections and says nothing on that of this stream.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.quic.is_unresponsive()
    }

    /// Ready when a head of the peer is whole, and whether the message ends with it as far as is known: see
    /// [`Self::section`].
    pub(crate) fn poll_head(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<bool, NoHead>> {
        loop {
            match self.next_step() {
                Ok(Step::Section) => break,
                Ok(_) => {}
                Err(BadFrame::TooLarge) => return Poll::Ready(Err(NoHead::TooLarge)),
                Err(BadFrame::Connection(_)) => return Poll::Ready(Err(NoHead::Gone)),
            }
            let read = self.quic.poll_read(self.id, cx);
            if read.is_pending() && self.is_ours && self.quic.is_refused(self.id) {
                return Poll::Ready(Err(NoHead::Refused));
            }
            match ready!(read) {
                Ok(Some(chunk)) => self.chunk = chunk,
                Ok(None) => {
                    self.is_over = true;
                    return Poll::Ready(Err(self.end_within().map_or(NoHead::Incomplete, |_| NoHead::Gone)));
                }
                Err(fault) => {
                    self.is_broken = true;
                    return Poll::Ready(Err(match fault {
                        ReadFault::Reset(code) => NoHead::Reset(code),
                        ReadFault::Gone => NoHead::Gone,
                    }));
                }
            }
        }
        if self.chunk.is_empty() {
            // Without waiting: most requests end with their head.
            match self.quic.poll_read(self.id, &TaskContext::from_waker(Waker::noop())) {
                Poll::Ready(Ok(Some(chunk))) => self.chunk = chunk,
                Poll::Ready(Ok(None)) => self.is_over = true,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(NoHead::Gone)),
                Poll::Pending => {}
            }
        }
        Poll::Ready(Ok(self.is_over))
    }

    /// Returns the field section of the head.
    pub(crate) fn section(&self) -> &[u8] {
        self.reader.section()
    }

    /// Ends the connection: what came can never be understood.
    pub(crate) fn end_connection(&self, code: u64) {
        self.quic.close(code);
    }

    /// The head was understood, and a body may follow.
    pub(crate) fn begin_body(&mut self) {
        self.reader.take_section();
        self.reader.expect(Expected::Body);
    }

    /// Ready when the handshake of the connection is over.
    pub(crate) fn poll_connected(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        self.quic.poll_connected(self.id, cx).map(|connected| connected.map_err(|_| gone()))
    }

    /// Goes on in the bytes that are here, up to data, a section, or their end.
    fn next_step(&mut self) -> Result<Step, BadFrame> {
        let (used, step) = self.reader.next(&self.chunk).inspect_err(|bad| {
            if let BadFrame::Connection(code) = bad {
                self.quic.close(*code);
            }
        })?;
        self.chunk.advance(used);
        if let Step::Data(count) = step {
            self.data = count;
        }
        let idle = self.reader.take_idle();
        if idle > 0 {
            let idle = self.counts.idle.get().saturating_add(idle);
            self.counts.idle.set(idle);
            if idle > HTTP3_IDLE_FRAMES_SOON {
                self.quic.wake();
            }
        }
        Ok(step)
    }

    /// Handles the end of the peer's half. Where it is not allowed, the connection is ended (RFC 9114 section 7.1).
    fn end_within(&self) -> Option<io::Error> {
        if self.reader.is_between_frames() {
            return None;
        }
        self.quic.close(code::FRAME_ERROR);
        Some(gone())
    }

    /// Ready when there is something to read, the end included.
    pub(crate) fn poll_read_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        while self.data == 0 && !self.is_over {
            match self.next_step() {
                Ok(Step::Data(_)) => break,
                Ok(Step::Section) => {
                    self.take_section()?;
                    continue;
                }
                Ok(Step::More) => {}
                Err(_) => return Poll::Ready(Err(gone())),
            }
            match ready!(self.quic.poll_read(self.id, cx)) {
                Ok(Some(chunk)) => self.chunk = chunk,
                Ok(None) => {
                    self.is_over = true;
                    if let Some(error) = self.end_within() {
                        return Poll::Ready(Err(error));
                    }
                }
                Err(ReadFault::Reset(_) | ReadFault::Gone) => {
                    self.is_broken = true;
                    return Poll::Ready(Err(gone()));
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Trailers have come.
    fn take_section(&mut self) -> io::Result<()> {
        let read = message::read_trailers(self.reader.section(), TRAILER_BYTES_MAX, &mut Memory::default());
        self.reader.take_section();
        self.reader.expect(Expected::End);
        match read {
            Ok(trailers) => {
                self.trailers = trailers;
                Ok(())
            }
            Err(BadHead::Undecodable) => {
                self.quic.close(code::DECOMPRESSION_FAILED);
                Err(gone())
            }
            Err(_) => {
                // RFC 9114 section 4.1.2.
                self.refuse(code::MESSAGE_ERROR);
                Err(gone())
            }
        }
    }

    /// Reads as much as is here; 0 is the end of the peer's half, after which its trailers are known.
    pub(crate) fn poll_read(&mut self, cx: &mut TaskContext<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut count = 0;
        while count < room.len() {
            match self.poll_read_ready(cx) {
                Poll::Ready(Ok(())) if self.data == 0 => break,
                Poll::Ready(Ok(())) => {
                    let taken = self.data.min(room.len() - count);
                    self.chunk.copy_to_slice(&mut room[count..count + taken]);
                    self.data -= taken;
                    count += taken;
                }
                // What came before is not lost, and the error comes again.
                _ if count > 0 => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(count))
    }

    /// Returns whether everything of the peer's half has been read, and nothing is to come, trailers included.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over && self.data == 0 && self.trailers.is_none()
    }

    /// Returns the trailers of the peer, once [`Self::poll_read`] has said the end.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        self.trailers.take()
    }

    /// Ready when the peer wants no answer any more, or its connection is gone.
    pub(crate) fn poll_reset(&mut self, cx: &mut TaskContext<'_>) -> Poll<()> {
        let mut gone = self.quic.poll_stopped(self.id, cx);
        // A request of which no more comes is not wanted either (RFC 9114 section 4.1.1).
        if gone.is_pending() && !self.is_ours && !self.is_over && self.quic.is_reset(self.id) {
            gone = Poll::Ready(());
        }
        self.is_broken |= gone.is_ready();
        gone
    }

    /// Returns the end of what we had to say: whether our message is whole. If not, the peer learns that it never will be.
    pub(crate) fn finish(&mut self) -> bool {
        let is_whole = self.speaking == Speaking::Ended;
        if !is_whole {
            self.abandon(self.reason());
        } else if !self.is_over {
            // RFC 9114 section 4.1: the rest of the request is not needed for the answer.
            self.quic.stop(self.id, code::NO_ERROR);
        }
        is_whole
    }

    /// Returns whether all that we say is said, while the peer's half is still open.
    pub(crate) fn awaits_end(&self) -> bool {
        self.speaking == Speaking::Ended && !self.is_over && !self.is_broken
    }

    /// Throws the rest of the peer's message away, up to `left` bytes with the heads of its frames. Ready at its end, or when more has come
    /// than that. What it says is not looked at: who was answered because its message was no good may end it anywhere.
    pub(crate) fn poll_discard(&mut self, cx: &mut TaskContext<'_>, left: &mut usize) -> Poll<()> {
        let mut count = std::mem::take(&mut self.chunk).len();
        self.data = 0;
        loop {
            if count > *left {
                return Poll::Ready(());
            }
            *left -= count;
            match ready!(self.quic.poll_read(self.id, cx)) {
                Ok(Some(chunk)) => count = chunk.len(),
                Ok(None) => {
                    self.is_over = true;
                    return Poll::Ready(());
                }
                Err(_) => return Poll::Ready(()),
            }
        }
    }

    /// Returns whether the peer has given it up, or broke the rules.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns whether the final response has begun.
    pub(crate) fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Breaks both halves off, for that is what the peer has made of it.
    pub(crate) fn refuse(&mut self, code: u64) {
        self.is_broken = true;
        self.abandon(code);
    }

    /// Breaks both halves off, for our message will never be whole.
    pub(crate) fn break_off(&mut self) {
        self.abandon(self.reason());
    }

    /// Breaks both halves off. What is buffered is thrown away.
    pub(crate) fn abandon(&mut self, code: u64) {
        if self.speaking != Speaking::Broken {
            self.quic.reset(self.id, code);
        }
        self.speaking = Speaking::Broken;
        if !self.is_over {
            self.quic.stop(self.id, code);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Towards a client what was said is to arrive, and of a request the answer too was wanted.
        let is_whole = self.speaking == Speaking::Ended && (self.is_over || !self.is_ours);
        if !is_whole && self.speaking != Speaking::Broken {
            self.abandon(self.reason());
        }
        self.quic.forget(self.id);
    }
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}
