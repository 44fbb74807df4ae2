//! Moving bytes: the one relay for request bodies, response bodies, tunnels and TCP streams.
//!
//! A [`Pump`] moves one direction. A [`BodyReader`] takes the sender's framing off, a [`BodyWriter`] puts the receiver's
//! on; a protocol is added by a variant of each, not by another loop. Memory is bounded by one buffer per direction: the
//! pump reads only when all it read before is written, and the receiver's slowness reaches the sender through TCP.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::{Duration, Instant};

use model::Fault;
use model::fields::Fields;
use wire::grpc::call::{self, WebForm};
use wire::grpc::text;
use wire::http1::{self, ChunkDecoder, Framing, HeadLimits};

use crate::buffer::{Buffer, BufferPool};
use crate::io::Io;
use crate::watch::Watch;
use crate::worker_plan::Withheld;

/// Reads of one direction before the other gets a turn, and with it the timer.
const FILLS_PER_TURN_MAX: usize = 16;

/// How the sender marks the end of a body.
pub(crate) enum BodyReader {
    /// All of it is read.
    Done,
    /// This many bytes are still to come.
    Length(u64),
    /// Chunks; boxed because it is rare and large.
    Chunked(Box<Chunks>),
    /// Until the sender ends its half.
    UntilClose,
    /// Until the sender ends the stream that is the message's own, with trailers or without. What is left of a length, if
    /// one was given: the two must agree (RFC 9113 section 8.1.1).
    Stream(Option<u64>),
    /// The same without a length, and with a bound: what may still come.
    BoundedStream(u64),
    /// Only the end is still to come, and this byte waits for it: see [`BodyWriter::Held`].
    Held(u8),
}

/// A body in chunks.
pub(crate) struct Chunks {
    decoder: ChunkDecoder,
    /// Bytes that may still come; `u64::MAX` without a bound.
    left: u64,
}

impl BodyReader {
    fn new(framing: Framing, from: &Io) -> Self {
        match framing {
            // The end of a stream may come later, which is nothing that the receiver has to wait for.
            Framing::None | Framing::Length(0) => Self::Done,
            Framing::Length(length) if from.is_message() => Self::Stream(Some(length)),
            _ if from.is_message() => Self::Stream(None),
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => {
                Self::Chunked(Box::new(Chunks { decoder: ChunkDecoder::new(&HeadLimits::default()), left: u64::MAX }))
            }
            Framing::UntilClose => Self::UntilClose,
        }
    }

    fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}

/// How the receiver is told of the end of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyWriter {
    /// By the length in the head, or by the end of the stream.
    Plain,
    /// By the length in the head. The last byte waits until the sender's stream has ended, for only then is the message whole:
    /// content beyond its length, or bad trailers, would make it malformed (RFC 9113 section 8.1.1).
    Held,
    /// By chunks.
    Chunked,
    /// By the end of the stream that is the message's own. One that is empty from the start ends with its head.
    Stream,
}

impl BodyWriter {
    /// How a body that is sent with this framing is ended.
    pub(crate) fn new(framing: Framing, to: &Io) -> Self {
        match framing {
            _ if to.is_message() => Self::Stream,
            Framing::Chunked => Self::Chunked,
            _ => Self::Plain,
        }
    }
}

/// Why a pump stopped before the end.
#[derive(Debug)]
pub(crate) enum PumpFault {
    /// The sender's connection broke.
    Read,
    /// The sender ended before the body was whole.
    Truncated,
    /// The sender broke the framing rules.
    Framing,
    /// The body is longer than it may be.
    TooLong,
    /// The body is not the base64 that it is said to be.
    BadText,
    /// The receiver's connection broke.
    Write,
}

/// What gRPC-Web makes of a body. As small as it can be: every exchange has room for two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Web {
    /// Nothing: nearly all bodies.
    Off,
    /// Trailers become its last message, and all of it is written in this form.
    Made(WebForm),
    /// It comes as text, and goes on as the bytes that this stands for.
    Decoded(text::Decoder),
}

/// One direction of an exchange or tunnel.
pub(crate) struct Pump {
    reader: BodyReader,
    writer: BodyWriter,
    /// Bytes read and encoded, not yet written.
    outgoing: Option<Buffer>,
    /// What follows `outgoing`, when a head did not fit before the body that came with it.
    queued: Option<Buffer>,
    /// Bytes that came after the end of the body.
    leftover: Option<Buffer>,
    /// Everything, the end included, is encoded.
    ended: bool,
    flushed: bool,
    moved_bytes: u64,
    written: bool,
    /// The receiver's connection is closed as soon as all is written.
    closes: bool,
    /// What trailers must not bring.
    withheld: Option<Rc<Withheld>>,
    web: Web,
    /// What ends the receiver's stream beside its data.
    trailers: Option<Box<Fields>>,
}

impl Pump {
    /// A pump for a body that `from` sends with this framing.
    pub(crate) fn new(framing: Framing, from: &Io, writer: BodyWriter) -> Self {
        Self::of(BodyReader::new(framing, from), writer)
    }

    fn of(reader: BodyReader, writer: BodyWriter) -> Self {
        // A body that is empty from the start needs no end to be written, unless the receiver waits for chunks.
        let ended = reader.is_done() && writer != BodyWriter::Chunked;
        Self {
            reader,
            writer,
            outgoing: None,
            queued: None,
            leftover: None,
            ended,
            flushed: ended,
            moved_bytes: 0,
            written: false,
            closes: false,
            withheld: None,
            web: Web::Off,
            trailers: None,
        }
    }

    /// A pump for bytes without framing.
    pub(crate) fn tunnel() -> Self {
        Self::of(BodyReader::UntilClose, BodyWriter::Plain)
    }

    /// Bounds a body that does not say its length ahead. To be called before anything is moved.
    pub(crate) fn bound(&mut self, max: u64) {
        match &mut self.reader {
            BodyReader::Chunked(chunks) => chunks.left = max,
            unbounded @ BodyReader::Stream(None) => *unbounded = BodyReader::BoundedStream(max),
            _ => {}
        }
    }

    /// Says which trailers are not passed on.
    pub(crate) fn withhold(&mut self, withheld: Rc<Withheld>) {
        self.withheld = Some(withheld);
    }

    /// Makes a body of gRPC-Web from one of gRPC, in this form.
    pub(crate) fn make_web(&mut self, form: WebForm) {
        self.web = Web::Made(form);
    }

    /// Says that the body comes in the text form of gRPC-Web, and goes on as what that stands for.
    pub(crate) fn decode_text(&mut self) {
        self.web = Web::Decoded(text::Decoder::default());
    }

    /// Says that the receiver's connection is closed as soon as all is written.
    pub(crate) fn close_after(&mut self) {
        self.closes = true;
    }

    /// Takes over what was read together with the head: decodes and encodes it. `head` goes out before it, in one write.
    ///
    /// # Errors
    /// The body breaks the framing rules, or filters made the head larger than a buffer.
    pub(crate) fn begin(&mut self, head: &[u8], mut first: Buffer, pool: &BufferPool) -> Result<(), PumpFault> {
        if !first.is_empty() || self.reader.is_done() {
            self.recode(&mut first, false, pool)?;
        }
        if !first.prepend(head) {
            let mut alone = pool.take();
            if !alone.append(head) {
                return Err(PumpFault::Framing);
            }
            self.queued = Some(std::mem::replace(&mut first, alone));
        }
        self.flushed = false;
        self.outgoing = Some(first);
        Ok(())
    }

    /// Whether all is read, written and flushed.
    pub(crate) fn is_finished(&self) -> bool {
        self.ended && self.outgoing.is_none() && self.flushed
    }

    /// Whether the sender's part is read to its end (it may not be written yet).
    pub(crate) fn is_read(&self) -> bool {
        self.reader.is_done()
    }

    /// Body bytes moved so far, framing not counted.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// Bytes that came after the body: the next request, or noise after a response.
    pub(crate) fn take_leftover(&mut self) -> Option<Buffer> {
        self.leftover.take()
    }

    /// Whether bytes wait for the receiver.
    pub(crate) fn is_blocked_on_receiver(&self) -> bool {
        self.outgoing.is_some() || !self.flushed
    }

    /// Whether anything was written since this was last asked.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.written)
    }

    /// Gives all memory back; nothing more is moved.
    pub(crate) fn stop(&mut self, pool: &BufferPool) {
        for buffer in [self.outgoing.take(), self.queued.take()].into_iter().flatten() {
            // Read, but never delivered.
            self.moved_bytes = self.moved_bytes.saturating_sub(buffer.len() as u64);
            pool.give(buffer);
        }
        self.ended = true;
        self.flushed = true;
    }

    /// Moves what can be moved. Ready at the end of the body, all written and flushed.
    pub(crate) fn poll(
        &mut self,
        cx: &mut TaskContext<'_>,
        from: &mut Io,
        to: &mut Io,
        pool: &BufferPool,
    ) -> Poll<Result<(), PumpFault>> {
        ready!(self.poll_until_read(cx, from, to, pool))?;
        self.poll_drain(cx, to, pool)
    }

    /// Moves what can be moved. Ready when the body is read to its end, even if the last of it is not written yet: the
    /// sender is not needed any more.
    pub(crate) fn poll_until_read(
        &mut self,
        cx: &mut TaskContext<'_>,
        from: &mut Io,
        to: &mut Io,
        pool: &BufferPool,
    ) -> Poll<Result<(), PumpFault>> {
        for _ in 0..FILLS_PER_TURN_MAX {
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            if self.poll_write_outgoing(cx, to, pool)?.is_pending() {
                if let Some(stream) = from.message() {
                    stream.gather(cx);
                }
                return Poll::Pending;
            }
            match self.poll_fill(cx, from, pool)? {
                Poll::Ready(()) => {}
                Poll::Pending => {
                    // What was written must not wait in TLS until the sender speaks again.
                    if !self.flushed {
                        self.flushed = to.poll_flush(cx).map_err(|_| PumpFault::Write)?.is_ready();
                    }
                    return Poll::Pending;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads the body to its end and throws it away, unless it turns out to be longer than `max`. Ready with whether all of it is read,
    /// and nothing came behind it.
    pub(crate) fn poll_discard(
        &mut self,
        cx: &mut TaskContext<'_>,
        from: &mut Io,
        max: u64,
        pool: &BufferPool,
    ) -> Poll<bool> {
        loop {
            if let Some(buffer) = self.outgoing.take() {
                pool.give(buffer);
            }
            if self.ended || self.moved_bytes > max {
                return Poll::Ready(self.ended && self.leftover.is_none());
            }
            match self.poll_fill(cx, from, pool) {
                Ok(Poll::Ready(())) => {}
                Ok(Poll::Pending) => return Poll::Pending,
                Err(_) => return Poll::Ready(false),
            }
        }
    }

    /// Writes and flushes what was read.
    pub(crate) fn poll_drain(
        &mut self,
        cx: &mut TaskContext<'_>,
        to: &mut Io,
        pool: &BufferPool,
    ) -> Poll<Result<(), PumpFault>> {
        ready!(self.poll_write_outgoing(cx, to, pool))?;
        if !self.flushed {
            if self.ended
                && self.writer == BodyWriter::Stream
                && let Some(stream) = to.message()
            {
                stream.end(self.trailers.take().as_deref()).map_err(|_| PumpFault::Write)?;
            }
            ready!(to.poll_flush(cx)).map_err(|_| PumpFault::Write)?;
            self.flushed = true;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_outgoing(
        &mut self,
        cx: &mut TaskContext<'_>,
        to: &mut Io,
        pool: &BufferPool,
    ) -> Poll<Result<(), PumpFault>> {
        while self.outgoing.is_some() {
            let ends = self.closes || self.writer == BodyWriter::Stream && self.trailers.is_none();
            let is_last = ends && self.ended && self.queued.is_none();
            if self.writer == BodyWriter::Stream && ready!(self.poll_hand_on(cx, to, is_last))? {
                continue;
            }
            let Some(buffer) = &mut self.outgoing else { break };
            while !buffer.is_empty() {
                let written =
                    if is_last { to.poll_write_last(cx, buffer.data()) } else { to.poll_write(cx, buffer.data()) };
                let count = ready!(written).map_err(|_| PumpFault::Write)?;
                buffer.advance(count);
                self.written = true;
                self.flushed = false;
            }
            if let Some(buffer) = std::mem::replace(&mut self.outgoing, self.queued.take()) {
                pool.give(buffer);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Gives a stream the buffer as it is. False: it is to be copied.
    fn poll_hand_on(&mut self, cx: &mut TaskContext<'_>, to: &mut Io, ends: bool) -> Poll<Result<bool, PumpFault>> {
        let Some(stream) = to.message() else { return Poll::Ready(Ok(false)) };
        let is_taken = ready!(stream.poll_hand_on(cx, &mut self.outgoing, ends)).map_err(|_| PumpFault::Write)?;
        if is_taken {
            self.outgoing = self.queued.take();
            self.written = true;
            self.flushed = false;
        }
        Poll::Ready(Ok(is_taken))
    }

    /// Reads once and encodes what came into `outgoing`.
    fn poll_fill(&mut self, cx: &mut TaskContext<'_>, from: &mut Io, pool: &BufferPool) -> Result<Poll<()>, PumpFault> {
        match from.poll_read_ready(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Err(_)) => return Err(PumpFault::Read),
            Poll::Ready(Ok(())) => {}
        }
        let mut buffer = pool.take();
        let room = buffer.room();
        // Text is longer by a third than what it stands for.
        let most = if self.web == Web::Made(WebForm::Text) { room.len() / 2 } else { room.len() };
        let count = match from.poll_read(cx, &mut room[..most]) {
            Poll::Pending => {
                pool.give(buffer);
                return Ok(Poll::Pending);
            }
            Poll::Ready(Err(_)) => {
                pool.give(buffer);
                return Err(PumpFault::Read);
            }
            Poll::Ready(Ok(count)) => count,
        };
        buffer.filled(count);
        let recoded = if count == 0 {
            self.end_of_stream(&mut buffer, from)
        } else {
            let is_over = from.message().is_some_and(|stream| stream.is_over());
            self.recode(&mut buffer, is_over, pool)
        };
        if matches!(recoded, Err(PumpFault::Framing | PumpFault::Truncated))
            && let Some(stream) = from.message()
        {
            // It is longer or shorter than it said.
            stream.refuse_malformed();
        }
        if buffer.is_empty() || recoded.is_err() {
            pool.give(buffer);
        } else {
            self.outgoing = Some(buffer);
        }
        recoded.map(Poll::Ready)
    }

    fn end_of_stream(&mut self, buffer: &mut Buffer, from: &mut Io) -> Result<(), PumpFault> {
        match self.reader {
            BodyReader::UntilClose => {
                self.reader = BodyReader::Done;
                self.encode(buffer, None)
            }
            BodyReader::Stream(None | Some(0)) | BodyReader::BoundedStream(_) | BodyReader::Held(_) => {
                if let BodyReader::Held(last) = std::mem::replace(&mut self.reader, BodyReader::Done) {
                    // The buffer is empty.
                    let _fits = buffer.append(&[last]);
                    self.moved_bytes += 1;
                }
                let mut trailers = from.message().and_then(|stream| stream.take_trailers());
                self.thin_out(trailers.as_deref_mut());
                self.encode(buffer, trailers.as_deref())
            }
            _ => Err(PumpFault::Truncated),
        }
    }

    /// Takes the sender's framing off what is in the buffer and puts the receiver's on. `is_over` says of a stream that
    /// nothing comes after it.
    fn recode(&mut self, buffer: &mut Buffer, is_over: bool, pool: &BufferPool) -> Result<(), PumpFault> {
        let mut finished = None;
        match std::mem::replace(&mut self.reader, BodyReader::Done) {
            BodyReader::Done => self.keep_leftover(buffer, 0, pool),
            BodyReader::UntilClose => self.reader = BodyReader::UntilClose,
            BodyReader::Stream(left) => {
                let left = match left.map(|left| left.checked_sub(buffer.len() as u64)) {
                    Some(None) => return Err(PumpFault::Framing),
                    left => left.flatten(),
                };
                match (left, buffer.data().last()) {
                    (Some(1..), _) if is_over => return Err(PumpFault::Truncated),
                    _ if is_over => {}
                    (Some(0), Some(&last)) if self.writer == BodyWriter::Held => {
                        self.reader = BodyReader::Held(last);
                        buffer.truncate(buffer.len() - 1);
                    }
                    _ => self.reader = BodyReader::Stream(left),
                }
            }
            // Nothing but the end was due.
            BodyReader::Held(_) => return Err(PumpFault::Framing),
            BodyReader::BoundedStream(left) => {
                let left = left.checked_sub(buffer.len() as u64).ok_or(PumpFault::TooLong)?;
                if !is_over {
                    self.reader = BodyReader::BoundedStream(left);
                }
            }
            BodyReader::Length(left) => {
                let taken = left.min(buffer.len() as u64);
                if left > taken {
                    self.reader = BodyReader::Length(left - taken);
                }
                self.keep_leftover(buffer, taken as usize, pool);
            }
            BodyReader::Chunked(mut chunks) => {
                let decoded = chunks.decoder.decode_in_place(buffer.data_mut()).map_err(|_| PumpFault::Framing)?;
                chunks.left = chunks.left.checked_sub(decoded.data_len as u64).ok_or(PumpFault::TooLong)?;
                if decoded.done {
                    self.keep_leftover(buffer, decoded.consumed, pool);
                    finished = Some(chunks);
                } else {
                    self.reader = BodyReader::Chunked(chunks);
                }
                buffer.truncate(decoded.data_len);
            }
        }
        self.moved_bytes += buffer.len() as u64;
        if let Web::Decoded(decoder) = &mut self.web {
            let count = decoder.decode_in_place(buffer.data_mut()).map_err(|_| PumpFault::BadText)?;
            buffer.truncate(count);
        }
        self.thin_out(finished.as_mut().map(|chunks| chunks.decoder.trailers_mut()));
        self.encode(buffer, finished.as_ref().map(|chunks| chunks.decoder.trailers()))
    }

    fn thin_out(&self, trailers: Option<&mut Fields>) {
        if let (Some(withheld), Some(trailers)) = (&self.withheld, trailers) {
            withheld.take_out(trailers);
        }
    }

    /// Cuts what lies behind the body off the buffer.
    fn keep_leftover(&mut self, buffer: &mut Buffer, body_len: usize, pool: &BufferPool) {
        if buffer.len() > body_len {
            let mut leftover = pool.take();
            // Both are of one size and the headroom is the same, so it fits.
            let fits = leftover.append(&buffer.data()[body_len..]);
            debug_assert!(fits);
            self.leftover = Some(leftover);
            buffer.truncate(body_len);
        }
    }

    fn encode(&mut self, buffer: &mut Buffer, trailers: Option<&Fields>) -> Result<(), PumpFault> {
        let mut fits = true;
        let mut trailers = trailers;
        if self.web != Web::Off {
            fits = self.encode_web(buffer, &mut trailers)?;
        }
        if self.writer == BodyWriter::Chunked && !buffer.is_empty() {
            let mut head = [0; http1::CHUNK_HEAD_BYTES_MAX];
            let start = http1::write_chunk_head(buffer.len(), &mut head);
            fits &= buffer.prepend(&head[start..]) && buffer.append(http1::CHUNK_TAIL);
        }
        if self.reader.is_done() {
            self.ended = true;
            self.flushed = false;
            if self.writer == BodyWriter::Chunked {
                let mut last = Vec::new();
                http1::write_last_chunk(trailers.unwrap_or(&Fields::default()), &mut last);
                fits &= buffer.append(&last);
            } else if self.writer == BodyWriter::Stream {
                self.trailers = trailers.filter(|trailers| !trailers.is_empty()).map(|own| Box::new(own.clone()));
            }
        }
        // Head room and tail room hold a chunk's head and tail, and trailers are bounded below the rest of a buffer that
        // held them in the same or a longer form.
        if fits { Ok(()) } else { Err(PumpFault::Framing) }
    }

    /// Does what gRPC-Web asks for: see [`Web`]. Text is written as a segment of its own with each buffer, for nobody knows when the
    /// next one comes. False: it does not fit.
    #[cold]
    fn encode_web(&self, buffer: &mut Buffer, trailers: &mut Option<&Fields>) -> Result<bool, PumpFault> {
        let form = match self.web {
            Web::Decoded(decoder) if self.reader.is_done() && decoder != text::Decoder::Between => {
                return Err(PumpFault::BadText);
            }
            Web::Off | Web::Decoded(_) => return Ok(true),
            Web::Made(form) => form,
        };
        let mut fits = true;
        if let Some(own) = trailers.take() {
            let mut message = Vec::new();
            call::write_web_trailers(own, &mut message);
            fits = buffer.append(&message);
        }
        if form == WebForm::Text {
            let text = text::encode(buffer.data());
            buffer.truncate(0);
            fits &= buffer.append(text.as_bytes());
        }
        Ok(fits)
    }
}

/// How a tunnel ended.
pub(crate) enum TunnelEnd {
    /// Both sides ended in good order.
    Closed,
    /// No byte moved for too long, or the program is ending.
    Timeout(Fault),
    /// A side broke.
    Broken(Side),
}

/// Which side a tunnel's fault came from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Downstream,
    Upstream,
}

/// Both directions of a tunnel.
pub(crate) struct Tunnel {
    /// Downstream to upstream.
    pub up: Pump,
    /// Upstream to downstream.
    pub down: Pump,
    up_shut: bool,
    down_shut: bool,
}

impl Tunnel {
    pub(crate) fn new(up: Pump, down: Pump) -> Self {
        Self { up, down, up_shut: false, down_shut: false }
    }

    /// Whether the client has ended its half, and the endpoint was told.
    pub(crate) fn is_up_shut(&self) -> bool {
        self.up_shut
    }

    /// Moves bytes both ways until both sides have ended, passing each side's end on as a half-close.
    pub(crate) async fn run(
        &mut self,
        downstream: &mut Io,
        upstream: &mut Io,
        pool: &BufferPool,
        timing: (&mut Watch, Duration),
    ) -> TunnelEnd {
        let (watch, idle) = timing;
        watch.set(Instant::now(), idle);
        let end = poll_fn(|cx| {
            let up = poll_half(cx, &mut self.up, (downstream, upstream), &mut self.up_shut, pool);
            if let Poll::Ready(Err(fault)) = up {
                if self.down_shut {
                    // The endpoint has said all it had to. How the client leaves is nobody's fault, nor that the endpoint listens no more (RFC
                    // 9113 section 8.1, RFC 9114 section 4.1).
                    return Poll::Ready(TunnelEnd::Closed);
                }
                let side = if matches!(fault, PumpFault::Write) { Side::Upstream } else { Side::Downstream };
                return Poll::Ready(TunnelEnd::Broken(side));
            }
            let down = poll_half(cx, &mut self.down, (upstream, downstream), &mut self.down_shut, pool);
            if let Poll::Ready(Err(fault)) = down {
                let side = if matches!(fault, PumpFault::Write) { Side::Downstream } else { Side::Upstream };
                return Poll::Ready(TunnelEnd::Broken(side));
            }
            if self.up_shut && self.down_shut {
                return Poll::Ready(TunnelEnd::Closed);
            }
            // Nobody reads a half that has ended, or of which what came is not passed on yet.
            if is_reset(cx, downstream) {
                let is_told = self.down_shut;
                return Poll::Ready(if is_told { TunnelEnd::Closed } else { TunnelEnd::Broken(Side::Downstream) });
            }
            if self.down_shut && is_reset(cx, upstream) {
                return Poll::Ready(TunnelEnd::Closed);
            }
            // Both must be asked, or one direction's progress would be forgotten.
            if self.up.take_progress() | self.down.take_progress() {
                watch.set(Instant::now(), idle);
            }
            watch.poll(cx).map(|()| TunnelEnd::Timeout(watch.fault(Fault::StreamIdle)))
        })
        .await;
        self.up.stop(pool);
        self.down.stop(pool);
        end
    }
}

/// Whether a peer has reset the stream that is the tunnel's own.
fn is_reset(cx: &mut TaskContext<'_>, io: &mut Io) -> bool {
    io.message().is_some_and(|stream| stream.poll_reset(cx).is_ready())
}

/// One direction with its half-close.
fn poll_half(
    cx: &mut TaskContext<'_>,
    pump: &mut Pump,
    (from, to): (&mut Io, &mut Io),
    shut: &mut bool,
    pool: &BufferPool,
) -> Poll<Result<(), PumpFault>> {
    if *shut {
        return Poll::Ready(Ok(()));
    }
    ready!(pump.poll(cx, from, to, pool))?;
    match ready!(to.poll_shutdown(cx)) {
        // The other side may have gone already: its own direction says how.
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
        Err(_) => return Poll::Ready(Err(PumpFault::Write)),
    }
    *shut = true;
    Poll::Ready(Ok(()))
}
