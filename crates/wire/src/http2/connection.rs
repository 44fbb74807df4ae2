//! An HTTP/2 connection (RFC 9113) as a state machine without I/O, of the role [`Downstream`] towards a client or [`Upstream`] towards an
//! endpoint. Frames, fields, windows and ends of streams are the same for both; `downstream` and `upstream` have what differs.
//!
//! ```text
//!            receive(bytes, a spare head)                 ┌──► Head, Data, Trailers, Reset, Broken, Opened, …
//! bytes ───► preface ─► heads of frames ─► whole frames ──┤
//!                                          DATA as it is ─┘
//!            send_head or send_request, push_data_head or send_data, send_trailers, reset, consumed ──┐
//!            what the rules ask for: acknowledgements, windows, resets, goodbyes ─────────────────────┴──► bytes
//! ```
//!
//! Its driver owns it alone, gives it what was read, acts on its [`Event`]s, and writes what it has put into `out`. DATA is not copied: an
//! event says where it lies in the bytes that were given, and [`Connection::push_data_head`] sends it without a copy. All other frames are
//! handled when they are whole.
//!
//! What a peer can make it hold has a bound: one frame, one block of fields ([`Limits::block_bytes_max`]), the streams that
//! may be open, the numbers of those that were left, and the table of [`super::hpack`]. What a peer can make it write at once is
//! no more than twice what it sends; whoever drives it reads nothing while much waits to be written. Frames of no use and streams
//! that are thrown away are counted ([`Connection::take_counts`]), for how many there may be in what time is a question of the clock.

mod downstream;
mod frames;
mod role;
mod send;
mod streams;
mod upstream;

use std::ops::Range;
use std::time::Duration;

use model::Fault;
use model::fields::Fields;
use model::limits::{
    HTTP2_CONNECTION_WINDOW_BYTES, HTTP2_STREAM_ERRORS_MAX, HTTP2_STREAM_WINDOW_BYTES, HTTP2_STREAMS_LEFT_MAX,
    HTTP2_STREAMS_MAX,
};

use self::streams::{Incoming, Outgoing, SendState, Stream, StreamState, Streams};
use super::frame::{self, BadFrame, FrameHead, HEAD_BYTES, PAYLOAD_BYTES_MAX, flag, kind};
use super::hpack::{Decoder, Encoder, Strings, TABLE_BYTES};
use super::{PREFACE, code};
use crate::http1::{HeadLimits, RequestParsed};

pub use self::downstream::Downstream;
pub use self::role::Role;
pub use self::send::Gone;
pub use self::upstream::{NotSent, RequestSent, Upstream};

/// The initial size of every window (section 6.9.2).
const WINDOW_BYTES: u32 = 65_535;
/// CONTINUATION frames of one block.
const CONTINUATIONS_MAX: u32 = 64;
/// Memory for pseudo-header fields that is kept between heads.
const MEMORY_KEPT_BYTES: usize = 512;
/// What the PING carries that asks whether a goodbye has arrived.
const SHUTDOWN_PING: [u8; 8] = *b"farewell";

/// Bounds of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of a head; trailers may be as large.
    pub head: HeadLimits,
    /// Of a list of fields that is decoded to find that it is too large: as much as `head_bytes_max`, or more. One of four times the size
    /// ends the connection.
    pub list_bytes_max: usize,
    /// Streams open at once.
    pub streams_max: u32,
    /// What may be sent on a stream before it is handed on; 65,535 at least.
    pub stream_window_bytes: u32,
    /// The same for all streams together.
    pub connection_window_bytes: u32,
    /// Streams of which the rules may be broken.
    pub stream_errors_max: u32,
    /// Streams that we ended too early and that are remembered.
    pub streams_left_max: usize,
}

impl Limits {
    /// As `model::limits` has them.
    pub fn new(head: HeadLimits) -> Self {
        Self {
            head,
            list_bytes_max: head.head_bytes_max,
            streams_max: HTTP2_STREAMS_MAX,
            stream_window_bytes: HTTP2_STREAM_WINDOW_BYTES,
            connection_window_bytes: HTTP2_CONNECTION_WINDOW_BYTES,
            stream_errors_max: HTTP2_STREAM_ERRORS_MAX as u32,
            streams_left_max: HTTP2_STREAMS_LEFT_MAX,
        }
    }

    /// Largest block of fields as it is sent: of a list that is too large so much is read that it can be answered. No block of a
    /// list that is not takes as much.
    pub fn block_bytes_max(&self) -> usize {
        4 * self.list_bytes_max.max(PAYLOAD_BYTES_MAX as usize)
    }
}

/// What has happened.
#[derive(Debug)]
pub enum Event<P = RequestParsed> {
    /// Nothing more: all bytes are used.
    More,
    /// A head has come, which lies in the one that was given: of a request, with which a client has begun a stream, or of a response,
    /// interim or final. What is wrong with it may be answered. `ends`: there is no body.
    Head {
        /// Which stream.
        stream: u32,
        /// What the head says.
        parsed: Result<P, Fault>,
        /// Nothing follows.
        ends: bool,
    },
    /// Bytes of a body; none where only its end was still to come. Each is to be given to [`Connection::consumed`] once, whatever
    /// becomes of the stream.
    Data {
        /// Which stream.
        stream: u32,
        /// Where they lie in what was given.
        range: Range<usize>,
        /// The message is whole.
        ends: bool,
    },
    /// The end of a message with trailers, if any of them are passed on.
    Trailers {
        /// Which stream.
        stream: u32,
        /// The trailers.
        fields: Option<Box<Fields>>,
    },
    /// The peer has ended a stream with this code. It is gone.
    Reset {
        /// Which stream.
        stream: u32,
        /// Its reason.
        code: u32,
    },
    /// The peer has broken the rules of a stream, also of one without an event before: it was ended with this code, and is gone.
    Broken {
        /// Which stream.
        stream: u32,
        /// Our reason.
        code: u32,
    },
    /// There is room to send where there was none: on this stream, or with 0 on any.
    Opened {
        /// Which stream.
        stream: u32,
    },
    /// A PING of ours was answered.
    Pong([u8; 8]),
    /// A client begins no more streams; an endpoint takes no more, and will not look at those of ours after the last that it names.
    Goaway {
        /// Its reason.
        code: u32,
        /// The last stream of ours that it may look at.
        last: u32,
    },
}

/// The resolution of the clock that a connection is given.
pub const TICK: Duration = Duration::from_millis(500);
/// A stream that was begun no more of them ago is ended in haste.
const HASTY_TICKS: u32 = 2;

/// What a client has sent that there may be too much of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames of no use.
    pub idle: u32,
    /// Streams that were ended within about a second and before their answer began, by the client or because it broke their rules: each
    /// throws away what was done for it, and makes room for another at once.
    pub discarded: u32,
    /// Streams whose response has begun. Cancelling them is no fault: browsers leave many downloads in the middle.
    pub answered: u32,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// So much of the preface has come.
    Preface(usize),
    /// The head of a frame.
    Head,
    /// The payload of one that is handled when it is whole.
    Payload(FrameHead),
    /// How long the padding of this DATA is.
    Padding(FrameHead),
    Data(Data),
    /// Of no use.
    Skip(u32),
    /// The connection has ended.
    Nothing,
}

impl Reading {
    fn skip(count: u32) -> Self {
        if count == 0 { Self::Head } else { Self::Skip(count) }
    }
}

/// What is still to come of a DATA frame.
#[derive(Clone, Copy, Debug)]
struct Data {
    stream: u32,
    left: u32,
    padding: u32,
    ends: bool,
}

/// A block of fields that goes on in CONTINUATION frames.
#[derive(Clone, Debug)]
struct Pending {
    stream: u32,
    ends: bool,
    frames: u32,
    block: Vec<u8>,
}

/// The progress of a graceful shutdown (section 6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    None,
    /// The first GOAWAY is sent, which names no last stream.
    Announced,
    /// The final GOAWAY is sent, with this last stream.
    Final(u32),
}

/// What the peer has set.
#[derive(Clone, Copy, Debug)]
struct PeerSettings {
    /// What windows towards it begin with.
    window: u32,
    /// Its settings are here.
    is_known: bool,
}

/// What [`Connection::receive`] returns.
type Received<R> = Result<(usize, Event<<R as Role>::Parsed>), u32>;

/// How many bytes are done with, and what has happened; or the code that the connection ends with.
type Step<R> = Result<(usize, Option<Event<<R as Role>::Parsed>>), u32>;

/// See the module.
#[derive(Clone, Debug)]
pub struct Connection<R = Downstream> {
    role: R,
    limits: Limits,
    reading: Reading,
    /// What has come of the head of a frame, or of its payload.
    held: Vec<u8>,
    pending: Option<Pending>,
    decoder: Decoder,
    encoder: Encoder,
    /// Pseudo-header fields while a head is read, or written.
    memory: Vec<u8>,
    streams: Streams,
    incoming: Incoming,
    outgoing: Outgoing,
    peer: PeerSettings,
    shutdown: Shutdown,
    errors: u32,
    counts: Counts,
    /// See [`Self::set_tick`].
    tick: u32,
}

impl<R: Role> Connection<R> {
    /// A new one, which has said its settings and how much more than by default may come on all streams together.
    fn begin(role: R, reading: Reading, limits: Limits, strings: Strings) -> Self {
        Self {
            role,
            limits,
            reading,
            held: Vec::new(),
            pending: None,
            decoder: Decoder::new(TABLE_BYTES),
            encoder: Encoder::new(strings),
            memory: Vec::new(),
            streams: Streams::new(limits.streams_left_max),
            incoming: Incoming::new(limits.connection_window_bytes),
            outgoing: Outgoing::new(WINDOW_BYTES),
            peer: PeerSettings { window: WINDOW_BYTES, is_known: false },
            shutdown: Shutdown::None,
            errors: 0,
            counts: Counts::default(),
            tick: 0,
        }
    }

    /// Takes the next bytes, up to the first event: how many are done with, and what has happened. It is to be called again with
    /// the others until there is [`Event::More`]. A head is put into `head`, which is otherwise left alone or in
    /// disorder. What is to be sent goes to the end of `out`.
    ///
    /// # Errors
    /// The code that the connection ends with. The goodbye that says so is in `out`; what is given from now on is passed over.
    pub fn receive(&mut self, input: &[u8], head: &mut R::Head, out: &mut Vec<u8>) -> Received<R> {
        let mut at = 0;
        loop {
            let (used, event) = match self.step(&input[at..], head, out) {
                Ok(step) => step,
                Err(code) => {
                    self.abort(code, out);
                    return Err(code);
                }
            };
            let start = at;
            at += used;
            match event {
                Some(Event::Data { stream, range, ends }) => {
                    let range = start + range.start..start + range.end;
                    return Ok((at, Event::Data { stream, range, ends }));
                }
                Some(event) => return Ok((at, event)),
                None if at == input.len() && !self.is_at_end_of_data() => return Ok((at, Event::More)),
                None => {}
            }
        }
    }

    /// A DATA frame is whole, and that was not looked at.
    fn is_at_end_of_data(&self) -> bool {
        matches!(self.reading, Reading::Data(Data { left: 0, padding: 0, .. }))
    }

    fn step(&mut self, rest: &[u8], head: &mut R::Head, out: &mut Vec<u8>) -> Step<R> {
        match self.reading {
            Reading::Preface(seen) => self.take_preface(seen, rest),
            Reading::Head => self.take_head(rest, head, out),
            Reading::Payload(frame) => self.take_payload(&frame, rest, head, out),
            Reading::Padding(frame) => match rest.first() {
                Some(padding) => Ok((1, self.begin_data(&frame, Some(*padding), out)?)),
                None => Ok((0, None)),
            },
            Reading::Data(data) => Ok(self.take_data(data, rest, out)),
            Reading::Skip(left) => {
                let count = rest.len().min(left as usize);
                self.reading = Reading::skip(left - count as u32);
                Ok((count, None))
            }
            Reading::Nothing => Ok((rest.len(), None)),
        }
    }

    /// Section 3.4.
    fn take_preface(&mut self, seen: usize, rest: &[u8]) -> Step<R> {
        let count = rest.len().min(PREFACE.len() - seen);
        if rest[..count] != PREFACE[seen..seen + count] {
            return Err(code::PROTOCOL_ERROR);
        }
        let seen = seen + count;
        self.reading = if seen == PREFACE.len() { Reading::Head } else { Reading::Preface(seen) };
        Ok((count, None))
    }

    fn take_head(&mut self, rest: &[u8], head: &mut R::Head, out: &mut Vec<u8>) -> Step<R> {
        let (bytes, used) = match rest.first_chunk::<HEAD_BYTES>() {
            Some(bytes) if self.held.is_empty() => (*bytes, HEAD_BYTES),
            _ => {
                let used = rest.len().min(HEAD_BYTES - self.held.len());
                self.held.extend_from_slice(&rest[..used]);
                let Ok(bytes) = <[u8; HEAD_BYTES]>::try_from(&self.held[..]) else { return Ok((used, None)) };
                self.held = Vec::new();
                (bytes, used)
            }
        };
        let frame = FrameHead::parse(&bytes);
        if let Err(bad) = self.admit(&frame) {
            self.reading = Reading::skip(frame.length);
            return Ok((used, Some(self.settle(bad, out)?)));
        }
        if kind::is_unknown(frame.kind) {
            self.note_idle(1);
            self.reading = Reading::skip(frame.length);
            return Ok((used, None));
        }
        if frame.kind == kind::DATA {
            if frame.has(flag::PADDED) {
                self.reading = Reading::Padding(frame);
                return Ok((used, None));
            }
            return Ok((used, self.begin_data(&frame, None, out)?));
        }
        match rest[used..].get(..frame.length as usize) {
            Some(payload) => Ok((used + payload.len(), self.take_whole(&frame, payload, head, out)?)),
            None => {
                self.reading = Reading::Payload(frame);
                Ok((used, None))
            }
        }
    }

    /// Whether a frame may stand here and begin so.
    fn admit(&self, frame: &FrameHead) -> Result<(), BadFrame> {
        let is_continuation = frame.kind == kind::CONTINUATION;
        // Section 6.10: nothing stands between the parts of a block, and no part stands alone.
        let is_in_order = match &self.pending {
            Some(pending) => is_continuation && frame.stream == pending.stream,
            // Section 3.4: the first are the settings of the peer.
            None if !self.peer.is_known => frame.kind == kind::SETTINGS && !frame.has(flag::ACK),
            None => !is_continuation,
        };
        if is_in_order { frame.check() } else { Err(BadFrame::Connection(code::PROTOCOL_ERROR)) }
    }

    fn take_payload(&mut self, frame: &FrameHead, rest: &[u8], head: &mut R::Head, out: &mut Vec<u8>) -> Step<R> {
        let length = frame.length as usize;
        let count = rest.len().min(length - self.held.len());
        self.held.extend_from_slice(&rest[..count]);
        if self.held.len() < length {
            return Ok((count, None));
        }
        self.reading = Reading::Head;
        let payload = std::mem::take(&mut self.held);
        Ok((count, self.take_whole(frame, &payload, head, out)?))
    }

    fn take_whole(
        &mut self,
        frame: &FrameHead,
        payload: &[u8],
        head: &mut R::Head,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<R::Parsed>>, u32> {
        match self.take_frame(frame, payload, head, out) {
            Ok(event) => Ok(event),
            Err(bad) => self.settle(bad, out).map(Some),
        }
    }

    /// Ends what is to be ended.
    fn settle(&mut self, bad: BadFrame, out: &mut Vec<u8>) -> Result<Event<R::Parsed>, u32> {
        let (stream, code) = match bad {
            BadFrame::Connection(code) => return Err(code),
            BadFrame::Stream { stream, code } => (stream, code),
        };
        self.errors = self.errors.saturating_add(1);
        if self.errors > self.limits.stream_errors_max {
            return Err(code::ENHANCE_YOUR_CALM);
        }
        // Who makes us reset a stream throws away as much as who does it.
        self.count_end(stream);
        if !self.reset(stream, code, out) {
            // Section 6.4: none is ended that was not begun.
            if self.streams.state_of(stream) == StreamState::Idle {
                return Err(code);
            }
            // Where breaches have no bound of their own, those of streams that are gone must have one.
            self.note_idle(u32::from(R::IS_UPSTREAM));
            frame::push_reset(out, stream, code);
        }
        Ok(Event::Broken { stream, code })
    }

    /// What was counted since this was last asked.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// The time in steps of [`TICK`], which does not stand still for longer than what is received.
    pub fn set_tick(&mut self, tick: u32) {
        self.tick = tick;
    }

    /// The peer is about to have ended a stream that is open. Who has waited for a while is in no hurry to make room for another, and
    /// the bound of streams bounds how many do.
    fn count_end(&mut self, stream: u32) {
        let tick = self.tick;
        let is_hasty =
            |open: &Stream| open.send_state == SendState::Head && tick.wrapping_sub(open.begun) <= HASTY_TICKS;
        self.counts.discarded += u32::from(self.streams.get(stream).is_some_and(is_hasty));
    }

    /// The settings of the peer are here.
    pub fn has_settings(&self) -> bool {
        self.peer.is_known
    }

    /// No stream is open.
    pub fn is_at_rest(&self) -> bool {
        self.streams.len() == 0
    }

    /// It has ended: what comes is passed over.
    pub fn is_over(&self) -> bool {
        matches!(self.reading, Reading::Nothing)
    }
}

/// Gives memory back that is more than is kept between heads.
fn keep_little(memory: &mut Vec<u8>) {
    if memory.capacity() > MEMORY_KEPT_BYTES {
        *memory = Vec::new();
    }
}

#[cfg(test)]
mod tests;
