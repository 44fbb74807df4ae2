//! Frames (RFC 9113 sections 4 and 6) as bytes: what one says, whether its form is right, and how it is written. What it does to
//! a connection is said in [`super::connection`].

use super::code;

/// Bytes before the payload of each frame (section 4.1).
pub const HEAD_BYTES: usize = 9;
/// Largest payload that everybody must take, and the largest that we take and send (section 4.2).
pub const PAYLOAD_BYTES_MAX: u32 = 16_384;
/// Largest number of a stream, and largest window (sections 5.1.1, 6.9.1).
pub const NUMBER_MAX: u32 = 0x7fff_ffff;

/// Kinds of frames (section 6).
pub mod kind {
    /// DATA.
    pub const DATA: u8 = 0x0;
    /// HEADERS.
    pub const HEADERS: u8 = 0x1;
    /// PRIORITY, which means nothing any more (section 5.3.2).
    pub const PRIORITY: u8 = 0x2;
    /// RST_STREAM.
    pub const RST_STREAM: u8 = 0x3;
    /// SETTINGS.
    pub const SETTINGS: u8 = 0x4;
    /// PUSH_PROMISE.
    pub const PUSH_PROMISE: u8 = 0x5;
    /// PING.
    pub const PING: u8 = 0x6;
    /// GOAWAY.
    pub const GOAWAY: u8 = 0x7;
    /// WINDOW_UPDATE.
    pub const WINDOW_UPDATE: u8 = 0x8;
    /// CONTINUATION.
    pub const CONTINUATION: u8 = 0x9;

    /// Whether a kind is none of these: it is passed over (section 5.5). PRIORITY_UPDATE (RFC 9218 section 7.1) is one of them.
    pub fn is_unknown(kind: u8) -> bool {
        kind > CONTINUATION
    }
}

/// Flags of frames (section 6); each means something for some kinds only.
pub mod flag {
    /// The sender's half ends: DATA, HEADERS.
    pub const END_STREAM: u8 = 0x1;
    /// It answers: SETTINGS, PING.
    pub const ACK: u8 = 0x1;
    /// The block of fields is whole: HEADERS, CONTINUATION.
    pub const END_HEADERS: u8 = 0x4;
    /// Padding follows: DATA, HEADERS.
    pub const PADDED: u8 = 0x8;
    /// Five bytes of priority stand before the block: HEADERS.
    pub const PRIORITY: u8 = 0x20;
}

/// Settings (section 6.5.2, RFC 8441 section 3).
pub mod setting {
    /// SETTINGS_HEADER_TABLE_SIZE.
    pub const HEADER_TABLE_SIZE: u16 = 0x1;
    /// SETTINGS_ENABLE_PUSH.
    pub const ENABLE_PUSH: u16 = 0x2;
    /// SETTINGS_MAX_CONCURRENT_STREAMS.
    pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    /// SETTINGS_INITIAL_WINDOW_SIZE.
    pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
    /// SETTINGS_MAX_FRAME_SIZE.
    pub const MAX_FRAME_SIZE: u16 = 0x5;
    /// SETTINGS_MAX_HEADER_LIST_SIZE.
    pub const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL.
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
}

/// A frame that breaks the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFrame {
    /// The connection is to be ended with this code (section 5.4.1).
    Connection(u32),
    /// A stream is (section 5.4.2).
    Stream {
        /// Which.
        stream: u32,
        /// With this code.
        code: u32,
    },
}

/// How a frame begins (section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of its payload.
    pub length: u32,
    /// See [`kind`].
    pub kind: u8,
    /// See [`flag`].
    pub flags: u8,
    /// The stream, 0 for the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Reads it.
    pub fn parse(bytes: &[u8; HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, d, e, f, g] = *bytes;
        let length = u32::from_be_bytes([0, a, b, c]);
        // The bit before the number is ignored.
        Self { length, kind, flags, stream: u32::from_be_bytes([d, e, f, g]) & NUMBER_MAX }
    }

    /// Writes it.
    pub fn push(&self, out: &mut Vec<u8>) {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [d, e, f, g] = self.stream.to_be_bytes();
        out.extend_from_slice(&[a, b, c, self.kind, self.flags, d, e, f, g]);
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether it may begin so, from either peer: its length, and whether it speaks of a stream or the connection.
    ///
    /// # Errors
    /// Section 6, for each kind.
    pub fn check(&self) -> Result<(), BadFrame> {
        use BadFrame::Connection;
        // Section 4.2. For some frames it could be a stream error, but a peer that does it once does it again.
        if self.length > PAYLOAD_BYTES_MAX {
            return Err(Connection(code::FRAME_SIZE_ERROR));
        }
        let has_stream = self.stream != 0;
        let (is_placed, is_sized) = match self.kind {
            kind::DATA => (has_stream, !self.has(flag::PADDED) || self.length >= 1),
            kind::HEADERS => (has_stream, self.length >= self.before_block()),
            kind::PRIORITY => (has_stream, true),
            kind::RST_STREAM => (has_stream, self.length == 4),
            kind::SETTINGS if self.has(flag::ACK) => (!has_stream, self.length == 0),
            kind::SETTINGS => (!has_stream, self.length.is_multiple_of(6)),
            // Section 8.4: a client pushes nothing, and we let no endpoint do so.
            kind::PUSH_PROMISE => (false, true),
            kind::PING => (!has_stream, self.length == 8),
            kind::GOAWAY => (!has_stream, self.length >= 8),
            kind::WINDOW_UPDATE => (true, self.length == 4),
            kind::CONTINUATION => (has_stream, true),
            _ => (true, true),
        };
        match (is_placed, is_sized) {
            (false, _) => Err(Connection(code::PROTOCOL_ERROR)),
            (_, false) => Err(Connection(code::FRAME_SIZE_ERROR)),
            _ if self.kind == kind::PRIORITY && self.length != 5 => {
                Err(BadFrame::Stream { stream: self.stream, code: code::FRAME_SIZE_ERROR })
            }
            _ => Ok(()),
        }
    }

    /// Bytes that stand before the block of HEADERS: the length of the padding, and the priority.
    fn before_block(&self) -> u32 {
        u32::from(self.has(flag::PADDED)) + if self.has(flag::PRIORITY) { 5 } else { 0 }
    }
}

/// What of HEADERS is the block of fields (section 6.2). Priorities are of no use, but none depends on itself.
///
/// # Errors
/// More padding than payload; that.
pub fn block_of<'p>(head: &FrameHead, payload: &'p [u8]) -> Result<&'p [u8], BadFrame> {
    const BAD: BadFrame = BadFrame::Connection(code::PROTOCOL_ERROR);
    let (padding, mut rest) = match payload {
        [padding, rest @ ..] if head.has(flag::PADDED) => (usize::from(*padding), rest),
        _ => (0, payload),
    };
    if head.has(flag::PRIORITY) {
        let (priority, behind) = rest.split_at_checked(5).ok_or(BAD)?;
        check_priority(head, priority)?;
        rest = behind;
    }
    let length = rest.len().checked_sub(padding).ok_or(BAD)?;
    Ok(&rest[..length])
}

/// Checks that a stream does not depend on itself (RFC 7540 section 5.3.1). Priorities are not used, but this error is not forgiven.
///
/// # Errors
/// It does.
pub fn check_priority(head: &FrameHead, priority: &[u8]) -> Result<(), BadFrame> {
    if number(priority) & NUMBER_MAX == head.stream {
        return Err(BadFrame::Connection(code::PROTOCOL_ERROR));
    }
    Ok(())
}

/// The number at the beginning of a payload; what is missing of it is 0.
pub fn number(payload: &[u8]) -> u32 {
    let mut bytes = [0; 4];
    bytes.iter_mut().zip(payload).for_each(|(to, from)| *to = *from);
    u32::from_be_bytes(bytes)
}

/// What SETTINGS say, in their order (section 6.5.1).
pub fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload.chunks_exact(6).map(|pair| (u16::from_be_bytes([pair[0], pair[1]]), number(&pair[2..])))
}

/// Writes SETTINGS.
pub fn push_settings(out: &mut Vec<u8>, pairs: &[(u16, u32)]) {
    FrameHead { length: 6 * pairs.len() as u32, kind: kind::SETTINGS, flags: 0, stream: 0 }.push(out);
    for (id, value) in pairs {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Says that SETTINGS were taken over.
pub fn push_settings_ack(out: &mut Vec<u8>) {
    FrameHead { length: 0, kind: kind::SETTINGS, flags: flag::ACK, stream: 0 }.push(out);
}

/// Writes PING, or the answer to one.
pub fn push_ping(out: &mut Vec<u8>, payload: &[u8; 8], is_answer: bool) {
    let flags = if is_answer { flag::ACK } else { 0 };
    FrameHead { length: 8, kind: kind::PING, flags, stream: 0 }.push(out);
    out.extend_from_slice(payload);
}

/// Writes GOAWAY: streams after `last` were not looked at.
pub fn push_goaway(out: &mut Vec<u8>, last: u32, code: u32) {
    FrameHead { length: 8, kind: kind::GOAWAY, flags: 0, stream: 0 }.push(out);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&code.to_be_bytes());
}

/// Opens a window by `step`, which is not 0.
pub fn push_window_update(out: &mut Vec<u8>, stream: u32, step: u32) {
    FrameHead { length: 4, kind: kind::WINDOW_UPDATE, flags: 0, stream }.push(out);
    out.extend_from_slice(&step.to_be_bytes());
}

/// Ends a stream at once.
pub fn push_reset(out: &mut Vec<u8>, stream: u32, code: u32) {
    FrameHead { length: 4, kind: kind::RST_STREAM, flags: 0, stream }.push(out);
    out.extend_from_slice(&code.to_be_bytes());
}

/// Writes the block of fields that `write` makes, without a copy if it fits into one frame; else as HEADERS and CONTINUATION.
/// `ends`: nothing follows on the stream.
pub fn push_section(out: &mut Vec<u8>, stream: u32, ends: bool, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    let stream_flag = if ends { flag::END_STREAM } else { 0 };
    let mut head = FrameHead { length: 0, kind: kind::HEADERS, flags: stream_flag | flag::END_HEADERS, stream };
    head.push(out);
    write(out);
    let length = out.len() - start - HEAD_BYTES;
    if length <= PAYLOAD_BYTES_MAX as usize {
        let [_, a, b, c] = (length as u32).to_be_bytes();
        out[start..start + 3].copy_from_slice(&[a, b, c]);
        return;
    }
    let block = out.split_off(start + HEAD_BYTES);
    out.truncate(start);
    let mut pieces = block.chunks(PAYLOAD_BYTES_MAX as usize).peekable();
    while let Some(piece) = pieces.next() {
        head.length = piece.len() as u32;
        head.flags &= !flag::END_HEADERS;
        if pieces.peek().is_none() {
            head.flags |= flag::END_HEADERS;
        }
        head.push(out);
        out.extend_from_slice(piece);
        (head.kind, head.flags) = (kind::CONTINUATION, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: u8, flags: u8, length: u32, stream: u32) -> FrameHead {
        FrameHead { length, kind, flags, stream }
    }

    #[test]
    fn heads_are_read_as_they_were_written() {
        let one = head(kind::DATA, flag::END_STREAM, 0x01_02_03, NUMBER_MAX);
        let mut out = Vec::new();
        one.push(&mut out);
        assert_eq!(out, [1, 2, 3, 0, 1, 0x7f, 0xff, 0xff, 0xff]);
        // The bit before the number of a stream means nothing.
        out[5] |= 0x80;
        assert_eq!(FrameHead::parse(out.first_chunk().unwrap()), one);
    }

    #[test]
    fn every_rule_of_length_and_place_has_its_code() {
        let connection = |code| Err(BadFrame::Connection(code));
        let (wrong, size) = (connection(code::PROTOCOL_ERROR), connection(code::FRAME_SIZE_ERROR));
        for (kind, flags, length, stream, wanted) in [
            (kind::DATA, 0, 0, 1, Ok(())),
            (kind::DATA, 0, 16_384, 1, Ok(())),
            (kind::DATA, 0, 16_385, 1, size),
            (kind::DATA, 0, 1, 0, wrong),
            (kind::DATA, flag::PADDED, 0, 1, size),
            (kind::HEADERS, 0, 0, 1, Ok(())),
            (kind::HEADERS, 0, 1, 0, wrong),
            (kind::HEADERS, flag::PADDED, 0, 1, size),
            (kind::HEADERS, flag::PRIORITY, 4, 1, size),
            (kind::HEADERS, flag::PRIORITY | flag::PADDED, 5, 1, size),
            (kind::HEADERS, flag::PRIORITY | flag::PADDED, 6, 1, Ok(())),
            (kind::PRIORITY, 0, 5, 1, Ok(())),
            (kind::PRIORITY, 0, 5, 0, wrong),
            (kind::PRIORITY, 0, 4, 1, Err(BadFrame::Stream { stream: 1, code: code::FRAME_SIZE_ERROR })),
            (kind::RST_STREAM, 0, 4, 1, Ok(())),
            (kind::RST_STREAM, 0, 4, 0, wrong),
            (kind::RST_STREAM, 0, 5, 1, size),
            (kind::SETTINGS, 0, 12, 0, Ok(())),
            (kind::SETTINGS, 0, 12, 1, wrong),
            (kind::SETTINGS, 0, 7, 0, size),
            (kind::SETTINGS, flag::ACK, 0, 0, Ok(())),
            (kind::SETTINGS, flag::ACK, 6, 0, size),
            (kind::PUSH_PROMISE, 0, 8, 1, wrong),
            (kind::PING, 0, 8, 0, Ok(())),
            (kind::PING, 0, 8, 1, wrong),
            (kind::PING, 0, 7, 0, size),
            (kind::GOAWAY, 0, 9, 0, Ok(())),
            (kind::GOAWAY, 0, 8, 1, wrong),
            (kind::GOAWAY, 0, 7, 0, size),
            (kind::WINDOW_UPDATE, 0, 4, 0, Ok(())),
            (kind::WINDOW_UPDATE, 0, 4, 1, Ok(())),
            (kind::WINDOW_UPDATE, 0, 3, 1, size),
            (kind::CONTINUATION, 0, 0, 1, Ok(())),
            (kind::CONTINUATION, 0, 0, 0, wrong),
            (0x10, 0xff, 3, 0, Ok(())),
            (0xfe, 0xff, 3, 9, Ok(())),
            (0xfe, 0, 16_385, 0, size),
        ] {
            assert_eq!(head(kind, flags, length, stream).check(), wanted, "{kind} {flags} {length} {stream}");
        }
    }

    #[test]
    fn a_block_stands_between_what_precedes_it_and_its_padding() {
        let wrong = Err(BadFrame::Connection(code::PROTOCOL_ERROR));
        let of =
            |flags, payload: &'static [u8]| block_of(&head(kind::HEADERS, flags, payload.len() as u32, 1), payload);
        let both = flag::PADDED | flag::PRIORITY;
        assert_eq!(of(0, b"block"), Ok(&b"block"[..]));
        assert_eq!(of(flag::PADDED, b"\x02block\0\0"), Ok(&b"block"[..]));
        assert_eq!(of(both, b"\x01\x80\0\0\x03\xffblock\0"), Ok(&b"block"[..]));
        assert_eq!(of(both, b"\0\0\0\0\x03\xff"), Ok(&b""[..]));
        assert_eq!(of(flag::PADDED, b"\x06block"), wrong);
        assert_eq!(of(both, b"\x01\0\0\0\x03\xff"), wrong);
        // It depends on itself.
        assert_eq!(of(flag::PRIORITY, b"\x80\0\0\x01\xffblock"), wrong);
    }

    #[test]
    fn a_large_section_is_cut_into_frames_that_everybody_takes() {
        for length in [0_usize, 1, 16_384, 16_385, 40_000] {
            let block: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut out = b"before".to_vec();
            push_section(&mut out, 5, true, |out| out.extend_from_slice(&block));
            let (mut rest, mut again, mut kinds) = (&out[6..], Vec::new(), Vec::new());
            while let Some((bytes, behind)) = rest.split_first_chunk() {
                let head = FrameHead::parse(bytes);
                assert_eq!((head.check(), head.stream), (Ok(()), 5));
                let (payload, behind) = behind.split_at(head.length as usize);
                again.extend_from_slice(payload);
                kinds.push((head.kind, head.flags));
                rest = behind;
            }
            assert_eq!(again, block);
            let wanted = match length {
                0..=16_384 => vec![(kind::HEADERS, 5)],
                16_385 => vec![(kind::HEADERS, 1), (kind::CONTINUATION, 4)],
                _ => vec![(kind::HEADERS, 1), (kind::CONTINUATION, 0), (kind::CONTINUATION, 4)],
            };
            assert_eq!(kinds, wanted);
        }
    }

    #[test]
    fn settings_and_numbers_are_read_as_they_were_written() {
        let mut out = Vec::new();
        push_settings(&mut out, &[(setting::ENABLE_PUSH, 0), (0xfefe, u32::MAX)]);
        assert_eq!(settings(&out[HEAD_BYTES..]).collect::<Vec<_>>(), [(2, 0), (0xfefe, u32::MAX)]);
        let mut out = Vec::new();
        push_window_update(&mut out, 3, 77);
        push_reset(&mut out, 3, code::CANCEL);
        push_goaway(&mut out, 3, code::NO_ERROR);
        push_ping(&mut out, b"12345678", true);
        push_settings_ack(&mut out);
        let mut rest = &out[..];
        while let Some((bytes, behind)) = rest.split_first_chunk() {
            let head = FrameHead::parse(bytes);
            assert_eq!(head.check(), Ok(()));
            rest = &behind[head.length as usize..];
        }
        assert_eq!((number(&out[HEAD_BYTES..]), number(b"\x01")), (77, 1 << 24));
    }
}
