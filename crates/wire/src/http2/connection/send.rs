//! What either role sends: bodies, trailers, windows, resets, goodbyes.

use model::fields::Fields;

use super::super::code;
use super::super::frame::{self, FrameHead, PAYLOAD_BYTES_MAX, flag, kind};
use super::role::Role;
use super::streams::SendState;
use super::{Connection, Reading, Shutdown};
use crate::crossing;

/// The stream is not there any more, or what was to be sent cannot follow what was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl<R: Role> Connection<R> {
    /// Sends the head of a DATA frame for up to `count` bytes of a body: as many as windows allow and a frame takes. So many bytes, as
    /// it returns, must follow it in what is sent, from wherever they lie. 0: there is no room, and [`super::Event::Opened`] will
    /// say when there is; unless `count` was 0 and `ends`, where the frame is complete. `ends`: our half ends with the last of
    /// the `count`.
    ///
    /// # Errors
    /// The stream is gone, or it is not the turn of its body.
    pub fn push_data_head(&mut self, stream: u32, count: usize, ends: bool, out: &mut Vec<u8>) -> Result<usize, Gone> {
        let open = self.streams.get_mut(stream).filter(|open| open.send_state == SendState::Body).ok_or(Gone)?;
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
        self.streams.get(stream).filter(|open| open.send_state == SendState::Body).ok_or(Gone)?;
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

    /// Sends the final GOAWAY, with the last stream of the peer that is processed, without waiting for a response. Later streams are
    /// refused; earlier ones finish.
    pub fn send_final_goaway(&mut self, out: &mut Vec<u8>) {
        if !matches!(self.shutdown, Shutdown::Final(_)) && !self.is_over() {
            self.shutdown = Shutdown::Final(self.last_of_peer());
            frame::push_goaway(out, self.last_of_peer(), code::NO_ERROR);
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
        let last = match self.shutdown {
            Shutdown::Final(last) => last,
            Shutdown::None | Shutdown::Announced => self.last_of_peer(),
        };
        frame::push_goaway(out, last, code);
    }

    /// The highest stream that the peer has begun: an endpoint begins none, for we let it push nothing.
    fn last_of_peer(&self) -> u32 {
        if R::IS_UPSTREAM { 0 } else { self.streams.last() }
    }
}
