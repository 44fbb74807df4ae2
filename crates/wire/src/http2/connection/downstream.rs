//! The downstream role of a connection: takes requests of a client, and sends responses.

use model::{Fault, RequestHead, ResponseHead, Version};

use super::super::code;
use super::super::frame::{self, BadFrame, NUMBER_MAX, setting};
use super::super::hpack::{Decoded, Strings};
use super::frames::undecodable;
use super::role::{Role, Taken};
use super::send::Gone;
use super::streams::{Incoming, Outgoing, SendState, Stream};
use super::{Connection, Event, Limits, Reading, SHUTDOWN_PING, Shutdown, WINDOW_BYTES, keep_little};
use crate::crossing::{self, BadRequest, Gather};
use crate::http1::{Framing, HeadLimits, RequestParsed};

/// Takes requests from a client.
#[derive(Clone, Copy, Debug)]
pub struct Downstream;

impl Role for Downstream {
    type Head = RequestHead;
    type Parsed = RequestParsed;

    const IS_UPSTREAM: bool = false;

    fn take_head(
        connection: &mut Connection<Self>,
        stream: (u32, bool),
        block: &[u8],
        head: &mut RequestHead,
    ) -> Taken<Self> {
        connection.take_request(stream, block, head)
    }

    fn take_goaway(_: &mut Connection<Self>, _: u32) {}

    fn note_setting(&mut self, _: u16, _: u32) {}
}

impl Connection<Downstream> {
    /// A new one. Writes our settings, which need not wait for anything (section 3.4).
    pub fn new(limits: Limits, strings: Strings, out: &mut Vec<u8>) -> Self {
        let stream_window = limits.stream_window_bytes.clamp(WINDOW_BYTES, NUMBER_MAX);
        let window = limits.connection_window_bytes.clamp(WINDOW_BYTES, NUMBER_MAX);
        let limits = Limits { stream_window_bytes: stream_window, connection_window_bytes: window, ..limits };
        frame::push_settings(
            out,
            &[
                (setting::MAX_CONCURRENT_STREAMS, limits.streams_max),
                (setting::INITIAL_WINDOW_SIZE, stream_window),
                (setting::MAX_HEADER_LIST_SIZE, u32::try_from(limits.head.head_bytes_max).unwrap_or(u32::MAX)),
                (setting::ENABLE_CONNECT_PROTOCOL, 1),
            ],
        );
        if window > WINDOW_BYTES {
            frame::push_window_update(out, 0, window - WINDOW_BYTES);
        }
        Self::begin(Downstream, Reading::Preface(0), limits, strings)
    }

    /// Changes the bounds of the heads that are still to come; the client has heard of the first ones.
    pub fn limit_heads(&mut self, head: HeadLimits) {
        self.limits.head = head;
        self.limits.list_bytes_max = head.head_bytes_max;
    }

    fn take_request(&mut self, (stream, ends): (u32, bool), block: &[u8], head: &mut RequestHead) -> Taken<Downstream> {
        let mut opened = Stream {
            id: stream,
            incoming: Incoming::new(self.limits.stream_window_bytes),
            outgoing: Outgoing::new(self.peer.window),
            length_left: None,
            has_peer_ended: ends,
            awaits: None,
            send_state: SendState::Head,
            begun: self.tick,
        };
        let Self { decoder, memory, limits, streams, .. } = self;
        let mut gather = Gather::new(head, memory, Version::Http2);
        let decoded = decoder.decode(block, limits.list_bytes_max, |name, value| gather.field(name, value));
        let parsed = match decoded.map_err(undecodable)? {
            Decoded::Whole => gather.end(&limits.head, ends),
            Decoded::TooLarge => Err(BadRequest::Fault(Fault::HeadTooLarge)),
        };
        keep_little(memory);
        let parsed = match parsed {
            Ok(parsed) => Ok(parsed),
            Err(BadRequest::Fault(fault)) => Err(fault),
            Err(BadRequest::Malformed) => {
                // The caller ends it.
                streams.push(opened);
                return Err(BadFrame::Stream { stream, code: code::PROTOCOL_ERROR });
            }
        };
        opened.length_left = parsed.as_ref().ok().and_then(length_of);
        streams.push(opened);
        Ok(Some(Event::Head { stream, parsed, ends }))
    }

    /// Sends the head of a response under this status, which is 100 to 999; those below 200 are interim and may come before the
    /// one that is not. `ends`: there is no body.
    ///
    /// # Errors
    /// The final one was sent, or the stream is gone.
    pub fn send_head(
        &mut self,
        stream: u32,
        (head, status): (&ResponseHead, u16),
        (framing, ends): (Framing, bool),
        out: &mut Vec<u8>,
    ) -> Result<(), Gone> {
        let open = self.streams.get_mut(stream).filter(|open| open.send_state == SendState::Head).ok_or(Gone)?;
        let is_final = status >= 200;
        let ends = ends && is_final;
        if is_final {
            open.send_state = SendState::Body;
            self.counts.answered += 1;
        }
        let encoder = &mut self.encoder;
        frame::push_section(out, stream, ends, |out| {
            encoder.begin(out);
            encoder.push_status(out, status);
            crossing::response_fields(head, framing, |name, value| encoder.push_field(out, name, value));
        });
        if ends {
            self.streams.end_ours(stream);
        }
        Ok(())
    }

    /// Refuses an unprocessed stream. It may be sent again (section 8.7).
    pub fn refuse(&mut self, stream: u32, out: &mut Vec<u8>) {
        self.counts.idle += 1;
        self.reset(stream, code::REFUSED_STREAM, out);
    }

    /// Announces the shutdown: a GOAWAY that names no last stream, so that streams in flight are still accepted. The response to a PING
    /// shows when no more can arrive; then [`Self::send_final_goaway`] follows (section 6.8).
    pub fn announce_shutdown(&mut self, out: &mut Vec<u8>) {
        if self.shutdown == Shutdown::None && !self.is_over() {
            self.shutdown = Shutdown::Announced;
            frame::push_goaway(out, NUMBER_MAX, code::NO_ERROR);
            frame::push_ping(out, &SHUTDOWN_PING, false);
        }
    }

    /// Returns whether the final GOAWAY is sent, which names the last stream that is processed.
    pub fn has_sent_final_goaway(&self) -> bool {
        matches!(self.shutdown, Shutdown::Final(_))
    }
}

/// How long the content is that follows a head, if that is known. What follows a CONNECT is none.
fn length_of(parsed: &RequestParsed) -> Option<u64> {
    match parsed.framing {
        Framing::Length(length) => Some(length),
        Framing::None if !parsed.upgrade => Some(0),
        _ => None,
    }
}
