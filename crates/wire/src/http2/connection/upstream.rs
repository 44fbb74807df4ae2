//! The upstream role of a connection: sends requests to an endpoint, and takes its responses.

use model::{Fault, Method, RequestHead, ResponseHead, Version};

use super::super::frame::{self, BadFrame, NUMBER_MAX, setting};
use super::super::hpack::{Decoded, Strings};
use super::super::{PREFACE, code};
use super::frames::undecodable;
use super::role::{Role, Taken};
use super::streams::{Incoming, Outgoing, SendState, Stream};
use super::{Connection, Event, Limits, Reading, WINDOW_BYTES, keep_little};
use crate::crossing::{self, GatherResponse};
use crate::http1::target::is_authority;
use crate::http1::{Framing, ResponseParsed};

/// Sends requests to an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Upstream {
    /// Streams at once that the endpoint allows.
    streams_max: u32,
    /// Whether it takes CONNECT for other protocols (RFC 8441 section 3).
    offers_connect: bool,
    /// It has said goodbye.
    is_leaving: bool,
}

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
pub struct RequestSent<'a> {
    /// How the end of its body is known.
    pub framing: Framing,
    /// Whether the connection is encrypted, which `:scheme` says.
    pub is_https: bool,
    /// Whether it began as an `Upgrade` to a WebSocket, which is a CONNECT here (RFC 8441 section 5).
    pub is_websocket: bool,
    /// Stands for the authority of a request without one (HTTP/1.0).
    pub host_fallback: &'a [u8],
    /// There is no body.
    pub ends: bool,
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// No stream may be begun now.
    NoRoom,
    /// There is no authority to ask for.
    BadAuthority,
}

impl Role for Upstream {
    type Head = ResponseHead;
    type Parsed = ResponseParsed;

    const IS_UPSTREAM: bool = true;

    fn take_head(
        connection: &mut Connection<Self>,
        stream: (u32, bool),
        block: &[u8],
        head: &mut ResponseHead,
    ) -> Taken<Self> {
        connection.take_response(stream, block, head)
    }

    fn take_goaway(connection: &mut Connection<Self>, last: u32) {
        connection.role.is_leaving = true;
        connection.streams.end_after(last);
    }

    fn note_setting(&mut self, id: u16, value: u32) {
        match id {
            setting::MAX_CONCURRENT_STREAMS => self.streams_max = value,
            setting::ENABLE_CONNECT_PROTOCOL => self.offers_connect = value == 1,
            _ => {}
        }
    }
}

impl Connection<Upstream> {
    /// A new one. Writes the preface and our settings (section 3.4).
    pub fn upstream(limits: Limits, strings: Strings, out: &mut Vec<u8>) -> Self {
        let stream_window = limits.stream_window_bytes.clamp(WINDOW_BYTES, NUMBER_MAX);
        let window = limits.connection_window_bytes.clamp(WINDOW_BYTES, NUMBER_MAX);
        let limits = Limits { stream_window_bytes: stream_window, connection_window_bytes: window, ..limits };
        out.extend_from_slice(PREFACE);
        frame::push_settings(
            out,
            &[
                (setting::ENABLE_PUSH, 0),
                (setting::INITIAL_WINDOW_SIZE, stream_window),
                (setting::MAX_HEADER_LIST_SIZE, u32::try_from(limits.list_bytes_max).unwrap_or(u32::MAX)),
            ],
        );
        if window > WINDOW_BYTES {
            frame::push_window_update(out, 0, window - WINDOW_BYTES);
        }
        let role = Upstream { streams_max: u32::MAX, offers_connect: false, is_leaving: false };
        Self::begin(role, Reading::Head, limits, strings)
    }

    /// Streams at once that may be open. `None`: no more can be begun, for the endpoint has said goodbye, or the numbers are used up.
    pub fn streams_allowed(&self) -> Option<u32> {
        let may_begin = !self.role.is_leaving && !self.is_over() && self.streams.last() < NUMBER_MAX - 2;
        may_begin.then_some(self.role.streams_max.min(self.limits.streams_max))
    }

    /// Whether the endpoint takes CONNECT for other protocols (RFC 8441 section 3).
    pub fn offers_connect(&self) -> bool {
        self.role.offers_connect
    }

    /// Begins a stream with the head of a request: which stream.
    ///
    /// # Errors
    /// Nothing was sent: see [`NotSent`].
    pub fn send_request(
        &mut self,
        head: &RequestHead,
        how: &RequestSent<'_>,
        out: &mut Vec<u8>,
    ) -> Result<u32, NotSent> {
        let may_begin = self.streams_allowed().is_some_and(|max| self.streams.len() < max as usize);
        if !may_begin {
            return Err(NotSent::NoRoom);
        }
        let authority = if head.authority().is_empty() { how.host_fallback } else { head.authority() };
        if !is_authority(authority) {
            return Err(NotSent::BadAuthority);
        }
        let id = if self.streams.last() == 0 { 1 } else { self.streams.last() + 2 };
        self.streams.advance(id);
        self.streams.push(Stream {
            id,
            incoming: Incoming::new(self.limits.stream_window_bytes),
            outgoing: Outgoing::new(self.peer.window),
            length_left: None,
            has_peer_ended: false,
            awaits: Some(head.method),
            send_state: if how.ends { SendState::Ended } else { SendState::Body },
            begun: self.tick,
        });
        let Self { encoder, memory, .. } = self;
        memory.clear();
        crossing::push_target(head, memory);
        frame::push_section(out, id, how.ends, |out| {
            encoder.begin(out);
            let method = if how.is_websocket { b"CONNECT" } else { head.method_bytes() };
            encoder.push_request_line(out, method, how.is_https);
            if how.is_websocket {
                encoder.push_field(out, b":protocol", b"websocket");
            }
            encoder.push_field(out, b":authority", authority);
            encoder.push_field(out, b":path", memory);
            crossing::request_fields(head, how.framing, |name, value| {
                if !how.is_websocket || !name.eq_ignore_ascii_case(b"sec-websocket-key") {
                    encoder.push_field(out, name, value);
                }
            });
        });
        keep_little(memory);
        Ok(id)
    }

    /// Lets the endpoint send further ahead: so many bytes of each stream, and of all together. Windows never shrink.
    pub fn grow_windows(&mut self, stream: u32, connection: u32, out: &mut Vec<u8>) {
        let of_stream = stream.min(NUMBER_MAX).saturating_sub(self.limits.stream_window_bytes);
        if of_stream > 0 {
            self.limits.stream_window_bytes += of_stream;
            frame::push_settings(out, &[(setting::INITIAL_WINDOW_SIZE, self.limits.stream_window_bytes)]);
            self.streams.iter_mut().for_each(|open| open.incoming.grow(of_stream));
        }
        let of_all = connection.min(NUMBER_MAX).saturating_sub(self.limits.connection_window_bytes);
        if of_all > 0 {
            self.limits.connection_window_bytes += of_all;
            frame::push_window_update(out, 0, of_all);
            self.incoming.grow(of_all);
        }
    }

    /// Section 8.1: interim heads, then the final one.
    fn take_response(&mut self, (stream, ends): (u32, bool), block: &[u8], head: &mut ResponseHead) -> Taken<Upstream> {
        let Self { decoder, limits, streams, .. } = self;
        let method = streams.get(stream).and_then(|open| open.awaits).unwrap_or(Method::Get);
        let mut gather = GatherResponse::new(head, Version::Http2, &limits.head);
        let decoded = decoder.decode(block, limits.list_bytes_max, |name, value| gather.field(name, value));
        let parsed = match decoded.map_err(undecodable)? {
            Decoded::Whole => gather.end(method, ends),
            Decoded::TooLarge => Err(Fault::ResponseHeadTooLarge),
        };
        if let Some(open) = streams.get_mut(stream)
            && let Ok(parsed) = &parsed
            && !(100..200).contains(&head.status)
        {
            open.awaits = None;
            open.length_left = length_of(parsed);
        }
        if ends {
            streams.end_peer(stream);
        }
        match parsed {
            Err(fault) if fault != Fault::ResponseHeadTooLarge => {
                Err(BadFrame::Stream { stream, code: code::PROTOCOL_ERROR })
            }
            parsed => Ok(Some(Event::Head { stream, parsed, ends })),
        }
    }
}

/// How long the content is that follows a final head, if that is known.
fn length_of(parsed: &ResponseParsed) -> Option<u64> {
    match parsed.framing {
        Framing::Length(length) => Some(length),
        Framing::None => Some(0),
        Framing::Chunked | Framing::UntilClose => None,
    }
}

#[cfg(test)]
mod tests;
