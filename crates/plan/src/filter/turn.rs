//! What a step has beside the head.

use std::fmt;
use std::time::{Duration, Instant};

use model::{Facts, RequestHead, ResponseHead, Scheme};

use super::ResponseView;
use super::events::EventCounter;
use super::notes::Notes;
use super::variables::Values;

/// All that a step may look at, or leave behind, beside the head. It grows without a change of any step's signature.
pub struct Turn<'a> {
    /// What is known of the exchange. The verified user is in the notes.
    pub facts: &'a Facts<'a>,
    /// The time when it was last looked at: no step reads a clock.
    pub now: Instant,
    /// The wall clock, as the time since 1970. It is read when a step asks, and not for others.
    pub wall_clock: &'a dyn Fn() -> Duration,
    /// Random bits, other ones at each call.
    pub chance: &'a mut dyn FnMut() -> u64,
    /// What steps leave for later steps and for the access log.
    pub notes: &'a mut Notes,
    /// The worker's spare buffer: clear it before use, leave anything in it.
    pub scratch: &'a mut Vec<u8>,
    /// The request is only explained (`explain`), not carried: spend nothing.
    pub is_rehearsal: bool,
}

impl<'a> Turn<'a> {
    /// Returns the time by the wall clock, in whole seconds since 1970.
    pub fn unix_seconds(&self) -> u64 {
        (self.wall_clock)().as_secs()
    }

    /// Returns whether the client's connection is encrypted.
    pub fn is_secure(&self) -> bool {
        self.facts.scheme == Scheme::Https
    }

    /// Counts an event of a filter. A rehearsal counts nothing.
    pub fn count(&self, event: &EventCounter) {
        if !self.is_rehearsal {
            event.add_one();
        }
    }

    /// The values of variables before there is a response, and the scratch to write them to.
    pub fn values<'t: 'h, 'h>(&'t mut self, request: &'h RequestHead) -> (Values<'h>, &'t mut Vec<u8>) {
        (Values::of_request(request, self.facts).with_notes(self.notes), self.scratch)
    }

    /// The same once there is a response.
    pub fn response_values<'t: 'h, 'h>(
        &'t mut self,
        response: &'h ResponseHead,
        view: &ResponseView<'h>,
    ) -> (Values<'h>, &'t mut Vec<u8>) {
        (Values::of_response(response, view, self.facts).with_notes(self.notes), self.scratch)
    }
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { facts, now, notes, is_rehearsal, .. } = self;
        let mut shown = f.debug_struct("Turn");
        shown.field("facts", facts).field("now", now).field("notes", notes).field("is_rehearsal", is_rehearsal);
        shown.finish_non_exhaustive()
    }
}
