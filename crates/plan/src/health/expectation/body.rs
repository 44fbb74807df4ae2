//! A body as it comes.

use super::Expectation;

/// Times that a body is searched each time more of it comes. Beyond, it is searched when it has grown by a quarter, so that a body
/// in tiny pieces costs no more than its length.
const LOOKS_MAX: u32 = 64;

/// What has come of the body of a response, up to the bound of the check.
#[derive(Debug)]
pub struct Body<'e> {
    expectation: &'e Expectation,
    bytes: Vec<u8>,
    pub(super) looks: u32,
    /// Length from which it is searched again.
    next_look: usize,
    /// More came than is kept.
    pub(super) is_cut: bool,
}

impl<'e> Body<'e> {
    /// Returns a body of which nothing has come yet.
    pub fn new(expectation: &'e Expectation) -> Self {
        Self { expectation, bytes: Vec::new(), looks: 0, next_look: 0, is_cut: false }
    }

    /// Takes the next bytes. True: enough has come for a verdict, so no more of it need be read.
    pub fn take(&mut self, data: &[u8]) -> bool {
        let room = self.expectation.response_bytes_max - self.bytes.len();
        self.bytes.extend_from_slice(&data[..data.len().min(room)]);
        self.is_cut |= data.len() > room;
        self.is_cut || (self.is_due() && self.expectation.is_met_early(&self.bytes))
    }

    fn is_due(&mut self) -> bool {
        if self.bytes.len() < self.next_look {
            return false;
        }
        self.looks += 1;
        if self.looks > LOOKS_MAX {
            self.next_look = self.bytes.len() + self.bytes.len() / 4 + 1;
        }
        true
    }

    /// Returns the bytes that are kept.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether nothing has come.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns whether the response passes, and if not, why. `has_ended`: the body came to its end.
    ///
    /// # Errors
    /// The first condition that it fails.
    pub fn verdict(&self, has_ended: bool) -> Result<(), String> {
        self.expectation.check_body(&self.bytes, has_ended && !self.is_cut)
    }
}
