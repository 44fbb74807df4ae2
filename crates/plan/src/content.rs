//! Bytes of bodies that are read while they are sent.

use std::io;

/// Bytes that are read as they are sent, by a thread beside the worker. They must not change under their reader: a part that is shorter
/// than its range ends the response.
pub trait Content: Send + Sync {
    /// Fills `room` with the bytes at this place. Returns how many there were, 0 at the end. It may block.
    ///
    /// # Errors
    /// They cannot be read.
    fn read_at(&self, room: &mut [u8], at: u64) -> io::Result<usize>;
}
