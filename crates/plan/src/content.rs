//! Bytes of bodies that are read while they are sent.

use std::io;
use std::os::fd::BorrowedFd;

/// Bytes that are read as they are sent, by a thread beside the worker. They must not change under their reader: a part that is shorter
/// than its range ends the response.
pub trait Content: Send + Sync {
    /// Fills `room` with the bytes at this place. Returns how many there were, 0 at the end. It may block.
    ///
    /// # Errors
    /// They cannot be read.
    fn read_at(&self, room: &mut [u8], at: u64) -> io::Result<usize>;

    /// The same without blocking. `None`, the default: it would have to wait for a disk, or nobody can tell.
    ///
    /// # Errors
    /// They cannot be read.
    fn read_now(&self, _room: &mut [u8], _at: u64) -> Option<io::Result<usize>> {
        None
    }

    /// The file that has these bytes at the same places, if one has, so that the kernel can send them by itself.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
