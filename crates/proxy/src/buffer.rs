//! Relay buffers and the worker's pool of them.
//!
//! A buffer is taken when bytes are known to have arrived and goes back when they are gone, so an idle connection holds
//! none and a slow reader holds one per direction. The pool is last in, first out: a busy worker keeps using the same few
//! buffers, which stay in its cache.

use std::cell::RefCell;

use model::limits::{BUFFER_BYTES, POOLED_BUFFERS_MAX};

/// Room kept free before the first byte read, so that a rewritten head or a chunk head fits before the body that came
/// with it and one system call sends both.
const HEADROOM_BYTES: usize = 1024;
/// Room kept free after the last byte read, for the end of a chunk and for trailers that grow when they are written again (a space after
/// each colon).
const TAILROOM_BYTES: usize = 256;
/// So much of a message that is not whole is copied to where it needs no buffer while the rest is waited for.
const PACKED_BYTES_MAX: usize = BUFFER_BYTES / 4;

/// Bytes on their way.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// A buffer that is in no pool yet.
    pub(crate) fn empty() -> Self {
        let bytes = vec![0; BUFFER_BYTES].into_boxed_slice();
        Self { bytes, start: HEADROOM_BYTES, end: HEADROOM_BYTES }
    }

    /// No buffer: it holds nothing, has no room, and costs nothing.
    pub(crate) fn nothing() -> Self {
        Self { bytes: Box::default(), start: 0, end: 0 }
    }

    /// Forgets the bytes.
    pub(crate) fn clear(&mut self) {
        self.start = HEADROOM_BYTES;
        self.end = HEADROOM_BYTES;
    }

    /// What is in it.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// What is in it, to be changed in place.
    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Moves the data to the front when it leaves no room behind it.
    pub(crate) fn make_room(&mut self) {
        if self.end + TAILROOM_BYTES >= self.bytes.len() && self.start > HEADROOM_BYTES {
            self.bytes.copy_within(self.start..self.end, HEADROOM_BYTES);
            (self.start, self.end) = (HEADROOM_BYTES, HEADROOM_BYTES + self.len());
        }
    }

    /// Whether it holds bytes in as little memory as they need, and so has no room for more. See [`BufferPool::pack`].
    pub(crate) fn is_packed(&self) -> bool {
        self.bytes.len() < BUFFER_BYTES
    }

    /// Where the next read goes. Empty when the buffer is full.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        let limit = self.bytes.len().saturating_sub(TAILROOM_BYTES);
        &mut self.bytes[self.end..limit.max(self.end)]
    }

    /// Says that `count` bytes of [`Self::room`] were filled.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
        debug_assert!(self.end <= self.bytes.len());
    }

    /// Drops the first `count` bytes.
    pub(crate) fn advance(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            self.clear();
        }
    }

    /// Like [`Self::advance`], keeping the freed room in front for [`Self::prepend`].
    pub(crate) fn consume_head(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
    }

    /// Keeps only the first `count` bytes.
    pub(crate) fn truncate(&mut self, count: usize) {
        debug_assert!(count <= self.len());
        self.end = self.start + count;
    }

    /// Puts `bytes` before the data. False, and nothing done, when they do not fit.
    #[must_use]
    pub(crate) fn prepend(&mut self, bytes: &[u8]) -> bool {
        let Some(start) = self.start.checked_sub(bytes.len()) else {
            return false;
        };
        self.bytes[start..self.start].copy_from_slice(bytes);
        self.start = start;
        true
    }

    /// Puts `bytes` after the data. False, and nothing done, when they do not fit.
    #[must_use]
    pub(crate) fn append(&mut self, bytes: &[u8]) -> bool {
        let end = self.end + bytes.len();
        if end > self.bytes.len() {
            return false;
        }
        self.bytes[self.end..end].copy_from_slice(bytes);
        self.end = end;
        true
    }
}

/// A worker's buffers that wait for use.
#[derive(Default)]
pub(crate) struct BufferPool {
    free: RefCell<Vec<Buffer>>,
}

impl BufferPool {
    /// An empty buffer.
    pub(crate) fn take(&self) -> Buffer {
        let free = self.free.borrow_mut().pop();
        free.unwrap_or_else(Buffer::empty)
    }

    /// Takes the memory of a buffer back that holds little, and may for long: what is in it stays in as little as it needs, to be
    /// looked at, and for [`Self::unpack`].
    pub(crate) fn pack(&self, buffer: Buffer) -> Buffer {
        if buffer.is_packed() || buffer.len() > PACKED_BYTES_MAX {
            return buffer;
        }
        let packed = Buffer { bytes: buffer.data().into(), start: 0, end: buffer.len() };
        self.give(buffer);
        packed
    }

    /// The same with room for more.
    #[inline]
    pub(crate) fn unpack(&self, buffer: Buffer) -> Buffer {
        if !buffer.is_packed() {
            return buffer;
        }
        let mut whole = self.take();
        let fits = whole.append(buffer.data());
        debug_assert!(fits, "only what is small is packed");
        whole
    }

    /// Buffers that wait for use: when all are given back, as many as were in use at once.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.free.borrow().len()
    }

    /// Gives one back.
    pub(crate) fn give(&self, mut buffer: Buffer) {
        let mut free = self.free.borrow_mut();
        if free.len() < POOLED_BUFFERS_MAX && !buffer.is_packed() {
            buffer.clear();
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_head_fits_before_the_body_that_came_with_the_old_one() {
        let mut buffer = Buffer::empty();
        assert!(buffer.append(b"old head|body"));
        buffer.consume_head(9);
        assert!(buffer.prepend(&[b'h'; HEADROOM_BYTES]));
        assert!(buffer.data().ends_with(b"hbody"));
        assert!(!buffer.prepend(&[0; 10]));
        buffer.advance(HEADROOM_BYTES + 4);
        assert!(buffer.is_empty());
        assert_eq!(buffer.room().len(), BUFFER_BYTES - HEADROOM_BYTES - TAILROOM_BYTES);
    }

    #[test]
    fn what_is_packed_needs_no_buffer_and_has_room_again_when_it_is_unpacked() {
        let pool = BufferPool::default();
        let mut buffer = pool.take();
        assert!(buffer.append(b"old|half a head"));
        buffer.consume_head(4);
        let mut packed = pool.pack(buffer);
        assert!(packed.is_packed() && packed.room().is_empty());
        assert_eq!((packed.data(), pool.free.borrow().len()), (&b"half a head"[..], 1));
        packed = pool.pack(packed);
        packed.make_room();
        assert_eq!(packed.data(), b"half a head");
        let mut whole = pool.unpack(packed);
        assert!(!whole.is_packed() && pool.free.borrow().is_empty());
        assert!(whole.append(b", the rest") && whole.prepend(&[b'h'; HEADROOM_BYTES]));
        assert!(whole.data().ends_with(b"hhalf a head, the rest"));
        let mut large = pool.take();
        assert!(large.append(&[0; PACKED_BYTES_MAX + 1]));
        let large = pool.pack(large);
        assert!(!large.is_packed(), "that much is not copied to and fro");
        let one = pool.take();
        let mut small = pool.take();
        assert!(small.append(b"G"));
        pool.give(pool.pack(small));
        pool.give(one);
        assert!(pool.free.borrow().iter().all(|buffer| !buffer.is_packed()));
    }

    #[test]
    fn the_pool_keeps_a_bounded_number_of_buffers() {
        let pool = BufferPool::default();
        let many: Vec<_> = (0..POOLED_BUFFERS_MAX + 3).map(|_| pool.take()).collect();
        many.into_iter().for_each(|buffer| pool.give(buffer));
        assert_eq!(pool.free.borrow().len(), POOLED_BUFFERS_MAX);
    }
}
