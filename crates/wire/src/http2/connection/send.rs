//! What is sent: responses, windows, resets, goodbyes.

use model::ResponseHead;
use model::fields::Fields;

use super::super::code;
use super::super::frame::{self, FrameHead, NUMBER_MAX, PAYLOAD_BYTES_MAX, flag, kind};
use super::streams::Ours;
use super::{Connection, GOODBYE, Leaving, Reading};
use crate::crossing;
use crate::http1::Framing;

/// The stream is not there any more, or what was to be sent cannot follow what was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl Connection {
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
        let open = self.streams.get_mut(stream).filter(|open| open.ours == Ours::Head).ok_or(Gone)?;
        let is_final = status >= 200;
        let ends = ends && is_final;
        if is_final {
            open.ours = Ours::Body;
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

    /// Sends the head of a DATA frame for up to `count` bytes of a body: as many as windows allow and a frame takes. So many bytes, as
    /// it returns, must follow it in what is sent, from wherever they lie. 0: there is no room, and [`super::Event::Opened`] will
    /// say when there is; unless `count` was 0 and `ends`, where the frame is complete. `ends`: our half ends with the last of
    /// the `count`.
    ///
    /// # Errors
    /// The stream is gone, or it is not the turn of its body.
    pub fn push_data_head(&mut self, stream: u32, count: usize, ends: bool, out: &mut Vec<u8>) -> Result<usize, Gone> {
        let open = self.streams.get_mut(stream).filter(|open| open.ours == Ours::Body).ok_or(Gone)?;
        let room = self.outgoing.room().min(open.outgoing.room()).min(PAYLOAD_BYTES_MAX as usize);
        let taken = count.min(room);
        let ends = ends && taken == count;
        if taken == 0 && !ends {
            return Ok(0);
        }
        open.outgoing.take(taken);
        self.outgoing.take(taken);
        let flags = if ends { flag::END_STREAM } else { 0 };
        FrameHead { length: taken as u32, kind: kind::DATA, flags, stream }.push(out);
        if ends {
            self.streams.end_ours(stream);
        }
        Ok(taken)
    }

    /// Sends as much of a body as windows allow, copied; how many bytes. `ends`: our half ends with the last of them.
    ///
    /// # Errors
    /// See [`Self::push_data_head`].
    pub fn send_data(&mut self, stream: u32, bytes: &[u8], ends: bool, out: &mut Vec<u8>) -> Result<usize, Gone> {
        let mut sent = 0;
        loop {
            let taken = self.push_data_head(stream, bytes.len() - sent, ends, out)?;
            out.extend_from_slice(&bytes[sent..sent + taken]);
            sent += taken;
            if taken == 0 || sent == bytes.len() {
                return Ok(sent);
            }
        }
    }

    /// How many bytes of a body could be sent on a stream now.
    pub fn room(&self, stream: u32) -> usize {
        self.streams.get(stream).map_or(0, |open| open.outgoing.room().min(self.outgoing.room()))
    }

    /// How many could be sent on all streams together.
    pub fn shared_room(&self) -> usize {
        self.outgoing.room()
    }

    /// Ends our half with those trailers that are passed on.
    ///
    /// # Errors
    /// See [`Self::push_data_head`].
    pub fn send_trailers(&mut self, stream: u32, fields: &Fields, out: &mut Vec<u8>) -> Result<(), Gone> {
        let mut has_any = false;
        crossing::trailer_fields(fields, |_, _| has_any = true);
        if !has_any {
            return self.push_data_head(stream, 0, true, out).map(|_| ());
        }
        self.streams.get(stream).filter(|open| open.ours == Ours::Body).ok_or(Gone)?;
        let encoder = &mut self.encoder;
        frame::push_section(out, stream, true, |out| {
            encoder.begin(out);
            crossing::trailer_fields(fields, |name, value| encoder.push_field(out, name, value));
        });
        self.streams.end_ours(stream);
        Ok(())
    }

    /// Ends a stream at once. NO_ERROR after a whole response says that the rest of the request is not needed (section 8.1).
    /// False: it is gone already.
    pub fn reset(&mut self, stream: u32, code: u32, out: &mut Vec<u8>) -> bool {
        let Some(open) = self.streams.get(stream) else { return false };
        let has_peer_ended = open.has_peer_ended;
        self.streams.leave(stream, has_peer_ended);
        frame::push_reset(out, stream, code);
        true
    }

    /// Refuses an unprocessed stream. It may be sent again (section 8.7).
    pub fn refuse(&mut self, stream: u32, out: &mut Vec<u8>) {
        self.counts.idle += 1;
        self.reset(stream, code::REFUSED_STREAM, out);
    }

    /// So many bytes that came on a stream were handed on, or are not needed. Windows are opened when half of them is used. With
    /// the number of a stream that is gone only that of the connection.
    pub fn consumed(&mut self, stream: u32, count: usize, out: &mut Vec<u8>) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if let Some(step) = self.incoming.give(count) {
            frame::push_window_update(out, 0, step);
        }
        if let Some(open) = self.streams.get_mut(stream)
            && !open.has_peer_ended
            && let Some(step) = open.incoming.give(count)
        {
            frame::push_window_update(out, stream, step);
        }
    }

    /// Sends a PING. [`super::Event::Pong`] reports the answer.
    pub fn ping(&mut self, payload: &[u8; 8], out: &mut Vec<u8>) {
        frame::push_ping(out, payload, false);
    }

    /// Says that no more streams are to be begun; those that are on their way are still carried. A PING finds out when none can be
    /// any more, and [`Self::say_last`] follows its answer (section 6.8).
    pub fn say_goodbye(&mut self, out: &mut Vec<u8>) {
        if self.leaving == Leaving::No && !self.is_over() {
            self.leaving = Leaving::Told;
            frame::push_goaway(out, NUMBER_MAX, code::NO_ERROR);
            frame::push_ping(out, &GOODBYE, false);
        }
    }

    /// Says which stream is the last, without waiting for an answer. Later ones are refused; those before are carried on.
    pub fn say_last(&mut self, out: &mut Vec<u8>) {
        if !self.has_said_last() && !self.is_over() {
            self.leaving = Leaving::Last(self.streams.last());
            frame::push_goaway(out, self.streams.last(), code::NO_ERROR);
        }
    }

    /// Ends the connection with this code: nothing of it is looked at any more.
    pub fn abort(&mut self, code: u32, out: &mut Vec<u8>) {
        if self.is_over() {
            return;
        }
        self.reading = Reading::Nothing;
        self.held = Vec::new();
        self.pending = None;
        // Section 6.8: the number never grows.
        let last = match self.leaving {
            Leaving::Last(last) => last,
            Leaving::No | Leaving::Told => self.streams.last(),
        };
        frame::push_goaway(out, last, code);
    }
}
