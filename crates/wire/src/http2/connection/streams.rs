//! Streams (RFC 9113 section 5.1) and windows (section 6.9).
//!
//! ```text
//!              HEADERS
//!   Idle ─────────────────► open ── END_STREAM from both ─────────────► Ended
//!    │                       │ ──── RST_STREAM from the client ───────► Ended
//!    │ a later one begins    │ ──── RST_STREAM from us, too early ────► Left   what still comes for it is passed over
//!    ▼                       │
//!   Skipped                  └ of either half: what it has begun, whether it has ended
//! ```

use std::collections::VecDeque;

use model::Method;

use super::super::frame::NUMBER_MAX;

/// Streams that have ended and that are remembered as such, for the code that a late frame gets.
const ENDED_KEPT: usize = 8;
/// Room for streams, or for numbers of those that were left, that is kept while there is none.
const ROOM_KEPT: usize = 4;

/// What the peer may send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming {
    size: u32,
    /// What it may send now.
    left: u32,
    /// Bytes that were consumed and not announced to the peer yet.
    consumed: u32,
}

impl Incoming {
    pub(super) fn new(size: u32) -> Self {
        Self { size, left: size, consumed: 0 }
    }

    /// Whether so much was allowed, and counts it.
    #[must_use]
    pub(super) fn take(&mut self, count: u32) -> bool {
        match self.left.checked_sub(count) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Makes it larger. The caller reports that to the peer.
    pub(super) fn grow(&mut self, step: u32) {
        self.size += step;
        self.left += step;
    }

    /// So much was handed on; the step by which the window is to be opened, once that is half of it.
    pub(super) fn give(&mut self, count: u32) -> Option<u32> {
        let taken = self.size - self.left - self.consumed;
        self.consumed += count.min(taken);
        if self.consumed < self.size / 2 {
            return None;
        }
        self.left += self.consumed;
        Some(std::mem::take(&mut self.consumed)).filter(|step| *step > 0)
    }
}

/// What we may send. It is negative after the peer has made its windows smaller (section 6.9.2).
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing(i64);

impl Outgoing {
    pub(super) fn new(size: u32) -> Self {
        Self(i64::from(size))
    }

    pub(super) fn room(self) -> usize {
        self.0.max(0) as usize
    }

    /// No more than there is room for.
    pub(super) fn take(&mut self, count: usize) {
        self.0 -= count as i64;
    }

    /// Opens it by `step`, or shuts it by as much. False: it would be larger than any may be (section 6.9.1).
    #[must_use]
    pub(super) fn shift(&mut self, step: i64) -> bool {
        self.0 += step;
        self.0 <= i64::from(NUMBER_MAX)
    }
}

/// The state of our half of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendState {
    /// The final head was not sent.
    Head,
    /// It was.
    Body,
    /// All was sent.
    Ended,
}

/// A stream that is open, of which one half may have ended.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
    /// Content that is still to come, where its length is known (section 8.1.1).
    pub(super) length_left: Option<u64>,
    pub(super) has_peer_ended: bool,
    /// The method of our request, while the final head of the response is still to come.
    pub(super) awaits: Option<Method>,
    pub(super) send_state: SendState,
    /// The tick in which it was begun.
    pub(super) begun: u32,
}

/// The state of a stream that is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamState {
    /// It was never begun.
    Idle,
    /// We have ended it while the peer was still sending.
    Left,
    /// It has ended not long ago.
    Ended,
    /// It was never begun and never can be, or has ended long ago.
    Skipped,
}

/// The streams of a connection. Few are open at once: they stand in the order of their numbers in one vector.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    open: Vec<Stream>,
    /// The oldest first.
    left: VecDeque<u32>,
    left_max: usize,
    ended: [u32; ENDED_KEPT],
    /// Where the next goes.
    ended_at: usize,
    last: u32,
}

impl Streams {
    pub(super) fn new(left_max: usize) -> Self {
        Self { open: Vec::new(), left: VecDeque::new(), left_max, ended: [0; ENDED_KEPT], ended_at: 0, last: 0 }
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// The highest that was begun.
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    /// One is begun, which is higher than all before.
    pub(super) fn advance(&mut self, id: u32) {
        self.last = id;
    }

    /// Adds the one that was begun last.
    pub(super) fn push(&mut self, stream: Stream) {
        self.open.push(stream);
    }

    pub(super) fn get(&self, id: u32) -> Option<&Stream> {
        self.place(id).map(|place| &self.open[place])
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        self.place(id).map(|place| &mut self.open[place])
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.open.iter_mut()
    }

    /// What one is that is not open.
    pub(super) fn state_of(&self, id: u32) -> StreamState {
        if id > self.last || id.is_multiple_of(2) {
            StreamState::Idle
        } else if self.left.contains(&id) {
            StreamState::Left
        } else if self.ended.contains(&id) {
            StreamState::Ended
        } else {
            StreamState::Skipped
        }
    }

    /// Both halves have ended, or the peer has ended both.
    pub(super) fn end(&mut self, id: u32) {
        self.remove(id);
        self.ended[self.ended_at] = id;
        self.ended_at = (self.ended_at + 1) % ENDED_KEPT;
    }

    /// We end it; `has_peer_ended` says that nothing more comes for it.
    pub(super) fn leave(&mut self, id: u32, has_peer_ended: bool) {
        if has_peer_ended {
            self.end(id);
            return;
        }
        self.remove(id);
        if self.left.len() >= self.left_max {
            self.left.pop_front();
        }
        if self.left_max > 0 {
            self.left.push_back(id);
        }
    }

    /// The peer's half of one has ended. What was left is then done with.
    pub(super) fn end_peer(&mut self, id: u32) {
        match self.get_mut(id) {
            Some(stream) => {
                stream.has_peer_ended = true;
                if stream.send_state == SendState::Ended {
                    self.end(id);
                }
            }
            None => self.forget_left(id),
        }
    }

    /// Our half of one has ended.
    pub(super) fn end_ours(&mut self, id: u32) {
        if let Some(stream) = self.get_mut(id) {
            stream.send_state = SendState::Ended;
            if stream.has_peer_ended {
                self.end(id);
            }
        }
    }

    /// Nothing more comes for one that was left.
    pub(super) fn forget_left(&mut self, id: u32) {
        if let Some(place) = self.left.iter().position(|left| *left == id) {
            self.left.remove(place);
            if self.left.is_empty() && self.left.capacity() > ROOM_KEPT {
                self.left = VecDeque::new();
            }
            self.end(id);
        }
    }

    /// The peer has not looked at any after `last`, and will not.
    pub(super) fn end_after(&mut self, last: u32) {
        while let Some(id) = self.open.last().map(|stream| stream.id).filter(|id| *id > last) {
            self.end(id);
        }
    }

    /// For how many streams, and numbers of streams, there is memory.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.open.capacity() + self.left.capacity()
    }

    fn remove(&mut self, id: u32) {
        if let Some(place) = self.place(id) {
            self.open.remove(place);
            if self.open.is_empty() && self.open.capacity() > ROOM_KEPT {
                self.open = Vec::new();
            }
        }
    }

    fn place(&self, id: u32) -> Option<usize> {
        match self.open.last() {
            // Mostly it is the only one.
            Some(last) if last.id == id => Some(self.open.len() - 1),
            _ => self.open.binary_search_by_key(&id, |stream| stream.id).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(id: u32) -> Stream {
        Stream {
            id,
            incoming: Incoming::new(100),
            outgoing: Outgoing::new(100),
            length_left: None,
            has_peer_ended: false,
            awaits: None,
            send_state: SendState::Head,
            begun: 0,
        }
    }

    #[test]
    fn a_window_is_opened_when_half_of_it_is_used_and_never_beyond_its_size() {
        let mut window = Incoming::new(100);
        assert!(window.take(60) && !window.take(41) && window.take(40));
        assert_eq!((window.give(49), window.give(1), window.give(30)), (None, Some(50), None));
        // The caller never consumes more than was received.
        assert_eq!((window.give(1_000), window.give(1_000)), (Some(50), None));
        assert!(window.take(100) && !window.take(1));
    }

    #[test]
    fn a_window_towards_the_peer_may_be_negative_and_never_larger_than_allowed() {
        let mut window = Outgoing::new(10);
        window.take(10);
        assert!(window.shift(-5) && window.room() == 0);
        assert!(window.shift(6) && window.room() == 1);
        assert!(window.shift(i64::from(NUMBER_MAX) - 1));
        assert!(!window.shift(1));
    }

    #[test]
    fn what_a_stream_is_follows_from_how_it_ended() {
        let mut streams = Streams::new(2);
        for id in [1, 5, 7, 9, 11] {
            streams.advance(id);
            streams.push(stream(id));
        }
        assert_eq!(streams.state_of(3), StreamState::Skipped);
        assert_eq!((streams.state_of(13), streams.state_of(4)), (StreamState::Idle, StreamState::Idle));
        streams.end_ours(5);
        assert!(streams.get(5).is_some_and(|stream| stream.send_state == SendState::Ended));
        streams.end_peer(5);
        assert_eq!((streams.get(5).is_none(), streams.state_of(5)), (true, StreamState::Ended));
        for id in [1, 7, 9] {
            streams.leave(id, false);
        }
        assert_eq!((streams.state_of(1), streams.state_of(7)), (StreamState::Skipped, StreamState::Left));
        streams.end_peer(7);
        assert_eq!((streams.state_of(7), streams.state_of(9)), (StreamState::Ended, StreamState::Left));
        streams.leave(11, true);
        assert_eq!((streams.state_of(11), streams.len(), streams.last()), (StreamState::Ended, 0, 11));
    }
}
