//! HTTP/3 (RFC 9114) and its field sections (RFC 9204) as bytes, without the QUIC below them.
//!
//! ```text
//! bytes of a request stream → FrameReader → data, sections → message::read_request → RequestHead
//! bytes of the other streams → UniReader → settings, goodbyes
//! ResponseHead → message::write_response → a section; write_frame → bytes
//! ```
//!
//! What a message may hold is said in [`crate::crossing`], as for HTTP/2.

pub mod frame;
pub mod message;
pub mod qpack;
pub mod uni;

/// What a stream or a connection is ended with (RFC 9114 section 8.1, RFC 9204 section 6).
pub mod code {
    /// Nothing is wrong.
    pub const NO_ERROR: u64 = 0x100;
    /// We have failed.
    pub const INTERNAL_ERROR: u64 = 0x102;
    /// A stream of a kind that is not accepted.
    pub const STREAM_CREATION_ERROR: u64 = 0x103;
    /// A stream that must stay has ended.
    pub const CLOSED_CRITICAL_STREAM: u64 = 0x104;
    /// A frame where it may not stand.
    pub const FRAME_UNEXPECTED: u64 = 0x105;
    /// A frame whose form is wrong.
    pub const FRAME_ERROR: u64 = 0x106;
    /// More work than the peer may make.
    pub const EXCESSIVE_LOAD: u64 = 0x107;
    /// A wrong number of a stream or a push.
    pub const ID_ERROR: u64 = 0x108;
    /// Wrong settings.
    pub const SETTINGS_ERROR: u64 = 0x109;
    /// No settings at the beginning.
    pub const MISSING_SETTINGS: u64 = 0x10a;
    /// Not looked at; it may be sent again.
    pub const REQUEST_REJECTED: u64 = 0x10b;
    /// Not wanted any more.
    pub const REQUEST_CANCELLED: u64 = 0x10c;
    /// A stream that ended before its request was whole.
    pub const REQUEST_INCOMPLETE: u64 = 0x10d;
    /// A malformed message.
    pub const MESSAGE_ERROR: u64 = 0x10e;
    /// A section that cannot be decoded.
    pub const DECOMPRESSION_FAILED: u64 = 0x200;
    /// A wrong instruction to the dynamic table, of which there is none.
    pub const ENCODER_STREAM_ERROR: u64 = 0x201;
    /// A wrong answer to instructions, of which we give none.
    pub const DECODER_STREAM_ERROR: u64 = 0x202;
}

/// Longest integer of QUIC, in bytes (RFC 9000 section 16).
pub const VARINT_BYTES_MAX: usize = 8;
/// Largest integer of QUIC.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Reads an integer of QUIC (RFC 9000 section 16) from the beginning: its value and how many bytes it takes. `None`: more
/// bytes are needed.
pub fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = 1 << (first >> 6);
    let own = bytes.get(..length)?;
    let value = own[1..].iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

/// Writes an integer of QUIC, at most [`VARINT_MAX`], as short as it can be.
pub fn push_varint(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    match value {
        0..0x40 => out.push(bytes[7]),
        0x40..0x4000 => out.extend_from_slice(&[bytes[6] | 0x40, bytes[7]]),
        0x4000..0x4000_0000 => out.extend_from_slice(&[bytes[4] | 0x80, bytes[5], bytes[6], bytes[7]]),
        _ => {
            out.push(bytes[0] & 0x3f | 0xc0);
            out.extend_from_slice(&bytes[1..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_the_standard_shows() {
        // RFC 9000 appendix A.1.
        let samples: [(&[u8], u64); 5] = [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
            (&[0x40, 0x25], 37),
        ];
        for (bytes, value) in samples {
            assert_eq!(varint(bytes), Some((value, bytes.len())));
            assert_eq!(varint(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn integers_that_are_written_are_read_again() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, VARINT_MAX] {
            let mut out = Vec::new();
            push_varint(&mut out, value);
            assert_eq!(varint(&out), Some((value, out.len())));
        }
    }
}
