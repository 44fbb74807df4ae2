//! How a body lies in its file: in chunks, each with a checksum behind it.
//!
//! The checksum covers the number of the chunk and that of the file, so that a chunk at another place, or of another file, is found out. A body
//! can be read from the middle, and no byte of it is sent unchecked.

use crate::cache::entry::CHUNK_BYTES;
use crate::keyed;

/// Bytes of a checksum.
pub const SUM_BYTES: usize = 8;

const CHUNK: u64 = CHUNK_BYTES as u64;

/// Returns the bytes of a file whose header and body have these lengths.
pub fn file_len(header_len: u64, body_len: u64) -> u64 {
    header_len + body_len + body_len.div_ceil(CHUNK) * SUM_BYTES as u64
}

/// Returns the place in the file of this chunk of the body.
pub fn place(header_len: u64, chunk: u64) -> u64 {
    header_len + chunk * (CHUNK + SUM_BYTES as u64)
}

/// Returns the length of this chunk of a body; 0 behind its end.
pub fn chunk_len(body_len: u64, chunk: u64) -> usize {
    body_len.saturating_sub(chunk.saturating_mul(CHUNK)).min(CHUNK) as usize
}

/// Returns the checksum of this chunk of the file with this number.
pub fn sum(nonce: u64, chunk: u64, bytes: &[u8]) -> [u8; SUM_BYTES] {
    keyed::hash([nonce, chunk], bytes).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_lie_behind_each_other() {
        for body in [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let chunks = body.div_ceil(CHUNK);
            let lengths: u64 = (0..chunks).map(|chunk| chunk_len(body, chunk) as u64 + SUM_BYTES as u64).sum();
            assert_eq!((100 + lengths, chunk_len(body, chunks)), (file_len(100, body), 0));
        }
        assert_eq!(place(100, 2), 100 + 2 * (CHUNK + 8));
        assert_ne!(sum(1, 0, b"a"), sum(1, 1, b"a"));
        assert_ne!(sum(1, 0, b"a"), sum(2, 0, b"a"));
    }
}
