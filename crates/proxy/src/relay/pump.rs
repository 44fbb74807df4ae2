//! One direction.

mod whole;

use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use model::fields::Fields;
use wire::http1::{self, Framing};

use super::body::{BodyReader, BodyWriter};
use super::fault::PumpFault;
use super::stage::{Pulled, Stages};
use crate::buffer::{Buffer, BufferPool};
use crate::io::Io;
use crate::worker_plan::Withheld;

/// Reads of one direction before the other gets a turn, and with it the timer.
const FILLS_PER_TURN_MAX: usize = 16;
/// The same where a body is coded: 64 KiB may take a millisecond, and the others of the worker wait.
const CODED_FILLS_PER_TURN_MAX: usize = 1;

/// One direction of an exchange or tunnel.
pub(crate) struct Pump {
    reader: BodyReader,
    writer: BodyWriter,
    /// Bytes read and encoded, not yet written.
    outgoing: Option<Buffer>,
    /// What follows `outgoing`: a body whose head did not fit before it, an end that did not fit behind. Nearly always
    /// empty.
    queued: Vec<Buffer>,
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
    /// What it passes on its way.
    stages: Option<Box<Stages>>,
    /// What ends the receiver's stream beside its data.
    trailers: Option<Box<Fields>>,
}

/// Two are part of every exchange: what is rare is boxed.
const _: () = assert!(size_of::<Pump>() <= 144);

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
            queued: Vec::new(),
            leftover: None,
            ended,
            flushed: ended,
            moved_bytes: 0,
            written: false,
            closes: false,
            withheld: None,
            stages: None,
            trailers: None,
        }
    }

    /// A pump for a body that the first of its stages makes: there is no sender.
    pub(crate) fn made(writer: BodyWriter, stages: Box<Stages>) -> Self {
        let stages = Some(stages);
        Self { ended: false, flushed: false, stages, ..Self::of(BodyReader::Done, writer) }
    }

    /// A pump for a body of this many bytes that is in memory: [`Self::begin`] gets all of it.
    pub(crate) fn kept(length: usize, writer: BodyWriter) -> Self {
        Self::of(if length == 0 { BodyReader::Done } else { BodyReader::Length(length as u64) }, writer)
    }

    /// Ends the body with trailers that were read before. To be called before [`Self::begin`].
    pub(crate) fn end_with(&mut self, trailers: Option<Box<Fields>>) {
        self.trailers = trailers;
    }

    /// The trailers of a body that was collected.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<Fields>> {
        self.trailers.take()
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

    /// Has the body pass these stages. To be called before anything is moved. A body that is empty from the start passes none.
    pub(crate) fn pass(&mut self, stages: Option<Box<Stages>>) {
        if !self.ended {
            self.stages = stages;
        }
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
            self.queued.insert(0, std::mem::replace(&mut first, alone));
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

    /// Body bytes that were read so far, framing not counted.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// The same as the receiver gets them.
    pub(crate) fn sent_bytes(&self) -> u64 {
        match &self.stages {
            None => self.moved_bytes,
            Some(stages) => stages.out_bytes(),
        }
    }

    /// Bytes that came after the body: the next request, or noise after a response.
    pub(crate) fn take_leftover(&mut self) -> Option<Buffer> {
        self.leftover.take()
    }

    /// Whether bytes wait for the receiver.
    pub(crate) fn is_blocked_on_receiver(&self) -> bool {
        self.outgoing.is_some() || !self.flushed
    }

    /// Whether anything was written, or taken by a stage, since this was last asked.
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.written)
    }

    /// Gives all memory back; nothing more is moved.
    pub(crate) fn stop(&mut self, pool: &BufferPool) {
        while let Some(buffer) = self.outgoing.take().or_else(|| self.queued.pop()) {
            // Read, but never delivered.
            match &mut self.stages {
                None => self.moved_bytes = self.moved_bytes.saturating_sub(buffer.len() as u64),
                Some(stages) => stages.lose(buffer.len() as u64),
            }
            pool.give(buffer);
        }
        if let Some(stages) = &mut self.stages {
            stages.stop(pool);
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
        for _ in 0..self.fills_per_turn() {
            if self.reader.is_done() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_write_outgoing(cx, to, pool))?;
            if self.stages.as_ref().is_some_and(|stages| stages.has_more()) {
                self.pull(pool)?;
                continue;
            }
            match self.poll_fill(cx, from, pool)? {
                Poll::Ready(()) => {}
                Poll::Pending if self.flush_stages(pool)? => {}
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

    /// Writes and flushes what was read.
    pub(crate) fn poll_drain(
        &mut self,
        cx: &mut TaskContext<'_>,
        to: &mut Io,
        pool: &BufferPool,
    ) -> Poll<Result<(), PumpFault>> {
        let mut pulls = 0;
        loop {
            ready!(self.poll_write_outgoing(cx, to, pool))?;
            if self.ended {
                break;
            }
            if pulls == CODED_FILLS_PER_TURN_MAX {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // The sender is done, and its bytes are still in the stages.
            self.pull(pool)?;
            pulls += 1;
        }
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
            let is_last = ends && self.ended && self.queued.is_empty();
            let Some(buffer) = &mut self.outgoing else { break };
            while !buffer.is_empty() {
                let written =
                    if is_last { to.poll_write_last(cx, buffer.data()) } else { to.poll_write(cx, buffer.data()) };
                let count = ready!(written).map_err(|_| PumpFault::Write)?;
                buffer.advance(count);
                self.written = true;
                self.flushed = false;
            }
            if let Some(buffer) = {
                let next = self.take_queued();
                std::mem::replace(&mut self.outgoing, next)
            } {
                pool.give(buffer);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once and encodes what came into `outgoing`.
    fn poll_fill(&mut self, cx: &mut TaskContext<'_>, from: &mut Io, pool: &BufferPool) -> Result<Poll<()>, PumpFault> {
        match from.poll_read_ready(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(Err(_)) => return Err(PumpFault::Read),
            Poll::Ready(Ok(())) => {}
        }
        let mut buffer = pool.take();
        let count = match from.poll_read(cx, buffer.room()) {
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
        // A coder may take much before it writes anything: what has come is progress.
        self.written |= count > 0 && self.stages.is_some();
        let recoded = if count == 0 {
            self.end_of_stream(&mut buffer, from, pool)
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

    fn end_of_stream(&mut self, buffer: &mut Buffer, from: &mut Io, pool: &BufferPool) -> Result<(), PumpFault> {
        match self.reader {
            BodyReader::UntilClose => {
                self.reader = BodyReader::Done;
                self.hand_on(buffer, None, pool)
            }
            BodyReader::Stream(None | Some(0)) | BodyReader::BoundedStream(_) | BodyReader::Held(_) => {
                if let BodyReader::Held(last) = std::mem::replace(&mut self.reader, BodyReader::Done) {
                    // The buffer is empty.
                    let _fits = buffer.append(&[last]);
                    self.moved_bytes += 1;
                }
                let mut trailers = from.message().and_then(|stream| stream.take_trailers());
                self.thin_out(trailers.as_deref_mut());
                self.hand_on(buffer, trailers.as_deref(), pool)
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
        self.thin_out(finished.as_mut().map(|chunks| chunks.decoder.trailers_mut()));
        self.hand_on(buffer, finished.as_ref().map(|chunks| chunks.decoder.trailers()), pool)
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

    /// Passes what was taken out of the sender's framing on to the receiver's, through the stages if there are any.
    fn hand_on(&mut self, buffer: &mut Buffer, trailers: Option<&Fields>, pool: &BufferPool) -> Result<(), PumpFault> {
        let is_last = self.reader.is_done();
        let given = if is_last { self.trailers.take() } else { None };
        let trailers = trailers.or(given.as_deref());
        let Some(stages) = &mut self.stages else { return self.encode(buffer, trailers, is_last, pool) };
        if is_last {
            stages.trailers(trailers.cloned());
        }
        stages.feed(std::mem::replace(buffer, Buffer::nothing()), is_last, pool);
        let pulled = stages.pull(pool)?;
        *buffer = pulled.buffer;
        self.encode_pulled(buffer, pulled.is_done, pool)
    }

    /// Encodes more of what is in the stages.
    fn pull(&mut self, pool: &BufferPool) -> Result<(), PumpFault> {
        let Some(stages) = &mut self.stages else { return Ok(()) };
        let Pulled { mut buffer, is_done } = stages.pull(pool)?;
        self.encode_pulled(&mut buffer, is_done, pool)?;
        self.send(buffer, pool);
        Ok(())
    }

    /// Encodes what the stages hold back, as the sender is silent. False: they hold back nothing.
    fn flush_stages(&mut self, pool: &BufferPool) -> Result<bool, PumpFault> {
        let Some(stages) = &mut self.stages else { return Ok(false) };
        let Some(mut buffer) = stages.flush(pool)? else { return Ok(false) };
        let has_bytes = !buffer.is_empty();
        self.encode(&mut buffer, None, false, pool)?;
        self.send(buffer, pool);
        Ok(has_bytes)
    }

    fn encode_pulled(&mut self, buffer: &mut Buffer, is_last: bool, pool: &BufferPool) -> Result<(), PumpFault> {
        let trailers = self.stages.as_mut().filter(|_| is_last).and_then(|stages| stages.take_trailers());
        self.encode(buffer, trailers.as_deref(), is_last, pool)
    }

    fn send(&mut self, buffer: Buffer, pool: &BufferPool) {
        if buffer.is_empty() {
            pool.give(buffer);
        } else {
            self.outgoing = Some(buffer);
        }
    }

    fn take_queued(&mut self) -> Option<Buffer> {
        if self.queued.is_empty() { None } else { Some(self.queued.remove(0)) }
    }

    fn fills_per_turn(&self) -> usize {
        if self.stages.is_none() { FILLS_PER_TURN_MAX } else { CODED_FILLS_PER_TURN_MAX }
    }

    /// Puts the receiver's framing on.
    fn encode(
        &mut self,
        buffer: &mut Buffer,
        trailers: Option<&Fields>,
        is_last: bool,
        pool: &BufferPool,
    ) -> Result<(), PumpFault> {
        let mut fits = true;
        if self.writer == BodyWriter::Chunked && !buffer.is_empty() {
            let mut head = [0; http1::CHUNK_HEAD_BYTES_MAX];
            let start = http1::write_chunk_head(buffer.len(), &mut head);
            fits &= buffer.prepend(&head[start..]) && buffer.append(http1::CHUNK_TAIL);
        }
        if is_last {
            self.ended = true;
            self.flushed = false;
            if self.writer == BodyWriter::Chunked {
                let mut last = Vec::new();
                http1::write_last_chunk(trailers.unwrap_or(&Fields::default()), &mut last);
                if !buffer.append(&last) {
                    // Stages may leave no room behind what they made.
                    let mut alone = pool.take();
                    fits &= alone.append(&last);
                    self.queued.push(alone);
                }
            } else if self.writer == BodyWriter::Stream {
                self.trailers = trailers.filter(|trailers| !trailers.is_empty()).map(|own| Box::new(own.clone()));
            }
        }
        // Head room and tail room hold a chunk's head and tail, and trailers are bounded below a buffer.
        if fits { Ok(()) } else { Err(PumpFault::Framing) }
    }
}
