//! What each frame does (RFC 9113 section 6).

use model::fields::Fields;

use super::super::frame::{
    self, BadFrame, FrameHead, NUMBER_MAX, PAYLOAD_BYTES_MAX, block_of, check_priority, flag, kind, number, setting,
};
use super::super::hpack::{BadBlock, Decoded};
use super::super::{WINDOW_STEP_MIN, code};
use super::role::{Role, Taken};
use super::streams::{Outgoing, StreamState};
use super::{CONTINUATIONS_MAX, Connection, Data, Event, Pending, Reading, SHUTDOWN_PING, Shutdown};
use crate::crossing::{self, FIELD_OVERHEAD_BYTES};

/// Largest payload that a peer may say it takes (section 6.5.2).
const FRAME_SIZE_MAX: u32 = 0x00ff_ffff;

pub(super) const PROTOCOL_ERROR: BadFrame = BadFrame::Connection(code::PROTOCOL_ERROR);

impl<R: Role> Connection<R> {
    /// Handles a frame that is whole and is not DATA.
    pub(super) fn take_frame(
        &mut self,
        frame: &FrameHead,
        payload: &[u8],
        head: &mut R::Head,
        out: &mut Vec<u8>,
    ) -> Taken<R> {
        match frame.kind {
            kind::HEADERS => {
                let block = block_of(frame, payload)?;
                let ends = frame.has(flag::END_STREAM);
                if frame.has(flag::END_HEADERS) {
                    return self.take_block((frame.stream, ends), block, head, out);
                }
                self.pending = Some(Pending { stream: frame.stream, ends, frames: 0, block: block.to_vec() });
                Ok(None)
            }
            kind::CONTINUATION => self.take_continuation(frame, payload, head, out),
            kind::PRIORITY => {
                self.note_idle(1);
                check_priority(frame, payload).map(|()| None)
            }
            kind::RST_STREAM => self.take_reset(frame.stream, number(payload)),
            kind::SETTINGS => self.take_settings(frame, payload, out),
            kind::PING => self.take_ping(frame, payload, out),
            kind::GOAWAY => {
                self.note_idle(1);
                // Section 6.8: its number speaks of streams that we would begin.
                let last = number(payload) & NUMBER_MAX;
                R::take_goaway(self, last);
                Ok(Some(Event::Goaway { code: payload.get(4..).map_or(0, number), last }))
            }
            kind::WINDOW_UPDATE => self.take_step(frame.stream, number(payload) & NUMBER_MAX),
            _ => Ok(None),
        }
    }

    fn take_continuation(
        &mut self,
        frame: &FrameHead,
        payload: &[u8],
        head: &mut R::Head,
        out: &mut Vec<u8>,
    ) -> Taken<R> {
        let Some(mut pending) = self.pending.take() else { return Err(PROTOCOL_ERROR) };
        pending.frames += 1;
        self.note_idle(u32::from(payload.is_empty()));
        let is_too_long = pending.block.len() + payload.len() > self.limits.block_bytes_max();
        if is_too_long || pending.frames > CONTINUATIONS_MAX {
            return Err(BadFrame::Connection(code::ENHANCE_YOUR_CALM));
        }
        pending.block.extend_from_slice(payload);
        if frame.has(flag::END_HEADERS) {
            return self.take_block((pending.stream, pending.ends), &pending.block, head, out);
        }
        self.pending = Some(pending);
        Ok(None)
    }

    /// Handles a whole block of fields. Each is decoded, also those of no use, for the next depends on it (section 4.3).
    fn take_block(
        &mut self,
        (stream, ends): (u32, bool),
        block: &[u8],
        head: &mut R::Head,
        out: &mut Vec<u8>,
    ) -> Taken<R> {
        if let Some(open) = self.streams.get(stream) {
            if open.has_peer_ended {
                self.pass_over(block)?;
                return Err(BadFrame::Stream { stream, code: code::STREAM_CLOSED });
            }
            return match open.awaits {
                Some(_) => R::take_head(self, (stream, ends), block, head),
                None => self.take_trailers((stream, ends), block),
            };
        }
        match self.streams.state_of(stream) {
            StreamState::Idle if stream.is_multiple_of(2) || R::IS_UPSTREAM => return Err(PROTOCOL_ERROR),
            StreamState::Idle => self.streams.advance(stream),
            StreamState::Left => {
                // No more than one block of trailers is due.
                self.note_idle(u32::from(!ends));
                self.pass_over(block)?;
                if ends {
                    self.streams.forget_left(stream);
                }
                return Ok(None);
            }
            StreamState::Ended | StreamState::Skipped if R::IS_UPSTREAM => {
                // We may have left it, and too long ago to know.
                self.pass_over(block)?;
                return Err(BadFrame::Stream { stream, code: code::STREAM_CLOSED });
            }
            // Section 5.1: nothing follows an end. Section 5.1.1: numbers rise.
            StreamState::Ended => return Err(BadFrame::Connection(code::STREAM_CLOSED)),
            StreamState::Skipped => return Err(PROTOCOL_ERROR),
        }
        let is_too_late = matches!(self.shutdown, Shutdown::Final(_));
        if is_too_late || self.streams.len() >= self.limits.streams_max as usize {
            self.pass_over(block)?;
            self.streams.leave(stream, ends);
            self.note_idle(1);
            // Section 5.1.2. It may be sent again, as those may be that a goodbye left out (section 8.7).
            frame::push_reset(out, stream, code::REFUSED_STREAM);
            return Ok(None);
        }
        R::take_head(self, (stream, ends), block, head)
    }

    /// Section 8.1: a second block ends the message.
    fn take_trailers(&mut self, (stream, ends): (u32, bool), block: &[u8]) -> Taken<R> {
        let mut fields = Fields::default();
        let (mut is_malformed, mut bytes) = (false, 0);
        let bytes_max = self.limits.head.head_bytes_max;
        let decoded = self.decoder.decode(block, self.limits.list_bytes_max, |name, value| {
            bytes += name.len() + value.len() + FIELD_OVERHEAD_BYTES;
            is_malformed |= crossing::arriving_trailer(&mut fields, name, value).is_err();
        });
        let is_too_large = decoded.map_err(undecodable)? == Decoded::TooLarge || bytes > bytes_max;
        let length_left = self.streams.get(stream).and_then(|open| open.length_left);
        if ends {
            self.streams.end_peer(stream);
        }
        if !ends || is_malformed || length_left.is_some_and(|left| left > 0) {
            return Err(BadFrame::Stream { stream, code: code::PROTOCOL_ERROR });
        }
        if is_too_large {
            return Err(BadFrame::Stream { stream, code: code::ENHANCE_YOUR_CALM });
        }
        let fields = (!fields.is_empty()).then(|| Box::new(fields));
        Ok(Some(Event::Trailers { stream, fields }))
    }

    pub(super) fn note_idle(&mut self, count: u32) {
        self.counts.idle = self.counts.idle.saturating_add(count);
    }

    fn pass_over(&mut self, block: &[u8]) -> Result<(), BadFrame> {
        self.decoder.decode(block, self.limits.list_bytes_max, |_, _| {}).map(|_| ()).map_err(undecodable)
    }

    fn take_reset(&mut self, stream: u32, code: u32) -> Taken<R> {
        if self.streams.get(stream).is_some() {
            self.count_end(stream);
            self.streams.end(stream);
            return Ok(Some(Event::Reset { stream, code }));
        }
        self.note_idle(1);
        match self.streams.state_of(stream) {
            // Section 6.4.
            StreamState::Idle => return Err(PROTOCOL_ERROR),
            StreamState::Left => self.streams.forget_left(stream),
            StreamState::Ended | StreamState::Skipped => {}
        }
        Ok(None)
    }

    /// Section 6.5.
    fn take_settings(&mut self, frame: &FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Taken<R> {
        self.note_idle(1);
        if frame.has(flag::ACK) {
            return Ok(None);
        }
        self.peer.is_known = true;
        let mut window = self.peer.window;
        for (id, value) in frame::settings(payload) {
            match id {
                setting::ENABLE_PUSH if value > 1 => return Err(PROTOCOL_ERROR),
                setting::INITIAL_WINDOW_SIZE if value > NUMBER_MAX => {
                    return Err(BadFrame::Connection(code::FLOW_CONTROL_ERROR));
                }
                setting::INITIAL_WINDOW_SIZE => window = value,
                // Our frames are no larger than everybody must take.
                setting::MAX_FRAME_SIZE if !(PAYLOAD_BYTES_MAX..=FRAME_SIZE_MAX).contains(&value) => {
                    return Err(PROTOCOL_ERROR);
                }
                // A table is not used.
                _ => self.role.note_setting(id, value),
            }
        }
        frame::push_settings_ack(out);
        self.change_windows(window)
    }

    /// Section 6.9.2: those of open streams change by as much as what they begin with.
    fn change_windows(&mut self, window: u32) -> Taken<R> {
        let step = i64::from(window) - i64::from(self.peer.window);
        self.peer.window = window;
        let mut has_opened = false;
        if step != 0 {
            for stream in self.streams.iter_mut() {
                let was_shut = stream.outgoing.room() == 0;
                if !stream.outgoing.shift(step) {
                    return Err(BadFrame::Connection(code::FLOW_CONTROL_ERROR));
                }
                has_opened |= was_shut && stream.outgoing.room() > 0;
            }
        }
        Ok(has_opened.then_some(Event::Opened { stream: 0 }))
    }

    /// Section 6.7. The answer to the one of our goodbye says that no stream is on its way that does not know of it.
    fn take_ping(&mut self, frame: &FrameHead, payload: &[u8], out: &mut Vec<u8>) -> Taken<R> {
        self.note_idle(1);
        let payload: [u8; 8] = payload.try_into().map_err(|_| BadFrame::Connection(code::FRAME_SIZE_ERROR))?;
        if !frame.has(flag::ACK) {
            frame::push_ping(out, &payload, true);
            return Ok(None);
        }
        if payload == SHUTDOWN_PING && self.shutdown == Shutdown::Announced {
            self.send_final_goaway(out);
        }
        Ok(Some(Event::Pong(payload)))
    }

    /// Section 6.9: a window towards the client is opened.
    fn take_step(&mut self, stream: u32, step: u32) -> Taken<R> {
        self.note_idle(u32::from(step < WINDOW_STEP_MIN));
        if stream == 0 {
            return open(&mut self.outgoing, 0, step).map_err(BadFrame::Connection);
        }
        match self.streams.get_mut(stream) {
            Some(found) => open(&mut found.outgoing, stream, step).map_err(|code| BadFrame::Stream { stream, code }),
            None => match self.streams.state_of(stream) {
                StreamState::Idle => Err(PROTOCOL_ERROR),
                // Section 5.1: it may have been sent before the end was known.
                StreamState::Left | StreamState::Ended | StreamState::Skipped => {
                    self.note_idle(u32::from(step >= WINDOW_STEP_MIN));
                    Ok(None)
                }
            },
        }
    }

    /// A DATA frame begins; its first byte has come if it says how much padding there is.
    pub(super) fn begin_data(
        &mut self,
        frame: &FrameHead,
        padding: Option<u8>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event<R::Parsed>>, u32> {
        let seen = u32::from(padding.is_some());
        let padding = u32::from(padding.unwrap_or(0));
        // Section 6.1: as much padding as payload, or more.
        let length = frame.length.checked_sub(seen + padding).ok_or(code::PROTOCOL_ERROR)?;
        self.reading = Reading::skip(frame.length - seen);
        // Section 6.9: all of it counts, whatever becomes of it.
        if !self.incoming.take(frame.length) {
            return Err(code::FLOW_CONTROL_ERROR);
        }
        let (stream, ends) = (frame.stream, frame.has(flag::END_STREAM));
        self.note_idle(u32::from(length == 0 && !ends));
        match self.admit_data(frame, length) {
            Ok(true) => {
                self.reading = Reading::Data(Data { stream, left: length, padding, ends });
                if seen + padding > 0 {
                    self.consumed(stream, (seen + padding) as usize, out);
                }
                Ok(None)
            }
            Ok(false) => {
                self.consumed(0, frame.length as usize, out);
                Ok(None)
            }
            Err(bad) => {
                self.consumed(0, frame.length as usize, out);
                if ends {
                    self.streams.end_peer(stream);
                }
                self.settle(bad, out).map(Some)
            }
        }
    }

    /// Whether a stream takes DATA whose content is so long. False: it is passed over.
    fn admit_data(&mut self, frame: &FrameHead, length: u32) -> Result<bool, BadFrame> {
        let (stream, ends) = (frame.stream, frame.has(flag::END_STREAM));
        let bad = |code| BadFrame::Stream { stream, code };
        let Some(open) = self.streams.get_mut(stream) else {
            return match self.streams.state_of(stream) {
                StreamState::Idle => Err(PROTOCOL_ERROR),
                StreamState::Left => {
                    if ends {
                        self.streams.forget_left(stream);
                    }
                    Ok(false)
                }
                StreamState::Ended | StreamState::Skipped => Err(bad(code::STREAM_CLOSED)),
            };
        };
        if open.has_peer_ended {
            return Err(bad(code::STREAM_CLOSED));
        }
        if open.awaits.is_some() {
            return Err(bad(code::PROTOCOL_ERROR));
        }
        if !open.incoming.take(frame.length) {
            return Err(bad(code::FLOW_CONTROL_ERROR));
        }
        if let Some(left) = &mut open.length_left {
            // Section 8.1.1.
            *left = left.checked_sub(u64::from(length)).ok_or(bad(code::PROTOCOL_ERROR))?;
            if ends && *left > 0 {
                return Err(bad(code::PROTOCOL_ERROR));
            }
        }
        Ok(true)
    }

    /// Gives what has come of a DATA frame: how many bytes are done with, and what has happened.
    pub(super) fn take_data(
        &mut self,
        data: Data,
        rest: &[u8],
        out: &mut Vec<u8>,
    ) -> (usize, Option<Event<R::Parsed>>) {
        let count = rest.len().min(data.left as usize);
        let left = data.left - count as u32;
        let passed = if left == 0 { (rest.len() - count).min(data.padding as usize) } else { 0 };
        let padding = data.padding - passed as u32;
        let is_whole = left == 0 && padding == 0;
        self.reading = if is_whole { Reading::Head } else { Reading::Data(Data { left, padding, ..data }) };
        let (stream, ends) = (data.stream, data.ends && is_whole);
        let used = count + passed;
        let is_open = self.streams.get(stream).is_some();
        if ends {
            self.streams.end_peer(stream);
        }
        if !is_open {
            // It was ended from here while its frame was coming.
            self.consumed(0, count, out);
            return (used, None);
        }
        let is_event = count > 0 || ends;
        (used, is_event.then_some(Event::Data { stream, range: 0..count, ends }))
    }
}

/// Opens a window towards the client by so much (section 6.9.1).
fn open<P>(window: &mut Outgoing, stream: u32, step: u32) -> Result<Option<Event<P>>, u32> {
    if step == 0 {
        return Err(code::PROTOCOL_ERROR);
    }
    let was_shut = window.room() == 0;
    if !window.shift(i64::from(step)) {
        return Err(code::FLOW_CONTROL_ERROR);
    }
    let has_opened = was_shut && window.room() > 0;
    Ok(has_opened.then_some(Event::Opened { stream }))
}

pub(super) fn undecodable(bad: BadBlock) -> BadFrame {
    BadFrame::Connection(match bad {
        BadBlock::Undecodable => code::COMPRESSION_ERROR,
        BadBlock::FarTooLarge => code::ENHANCE_YOUR_CALM,
    })
}
