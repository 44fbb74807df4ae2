//! The frames of a request stream (RFC 9114 section 7).

use super::{VARINT_BYTES_MAX, code, push_varint, varint};

/// Kinds of frames (section 7.2).
pub mod kind {
    /// DATA.
    pub const DATA: u64 = 0x0;
    /// HEADERS.
    pub const HEADERS: u64 = 0x1;
    /// CANCEL_PUSH.
    pub const CANCEL_PUSH: u64 = 0x3;
    /// SETTINGS.
    pub const SETTINGS: u64 = 0x4;
    /// PUSH_PROMISE.
    pub const PUSH_PROMISE: u64 = 0x5;
    /// GOAWAY.
    pub const GOAWAY: u64 = 0x7;
    /// MAX_PUSH_ID.
    pub const MAX_PUSH_ID: u64 = 0xd;

    /// Whether a kind is one of HTTP/2 that must not be used (section 7.2.8).
    pub fn is_of_http2(kind: u64) -> bool {
        matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
    }
}

/// Bytes of the head of a frame of ours at most.
pub const FRAME_HEAD_BYTES_MAX: usize = 1 + VARINT_BYTES_MAX;

/// Writes the head of a frame whose payload has this length.
pub fn push_frame_head(out: &mut Vec<u8>, kind: u64, length: u64) {
    push_varint(out, kind);
    push_varint(out, length);
}

/// Writes a frame whose payload `write` puts behind its head, without a copy. Its length is written as four bytes, for it is
/// not known before.
pub fn write_frame(out: &mut Vec<u8>, kind: u64, write: impl FnOnce(&mut Vec<u8>)) {
    push_varint(out, kind);
    let start = out.len() + 4;
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = (out.len() - start) as u32;
    debug_assert!(length < 1 << 30, "heads are bounded far below");
    out[start - 4..start].copy_from_slice(&(1 << 31 | length & (u32::MAX >> 2)).to_be_bytes());
}

/// What of a message may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A head, interim or final.
    Head,
    /// Data, or trailers.
    Body,
    /// Nothing.
    End,
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed.
    More,
    /// So many bytes of a body.
    Data(usize),
    /// A section is whole: see [`FrameReader::section`].
    Section,
}

/// Why a stream cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFrame {
    /// The connection is to be ended with this code.
    Connection(u64),
    /// A head or trailers are larger than allowed.
    TooLarge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Data(u64),
    Section(u64),
    Skip(u64),
}

/// Takes the bytes of a request stream apart. Holds no more of them than one section.
#[derive(Debug)]
pub struct FrameReader {
    expected: Expected,
    state: State,
    /// The head of a frame that has come in part.
    head: [u8; 2 * VARINT_BYTES_MAX],
    head_len: usize,
    section: Vec<u8>,
    section_bytes_max: usize,
    idle: u32,
}

impl FrameReader {
    /// For a message whose head and trailers take at most `section_bytes_max` each, as encoded.
    pub fn new(section_bytes_max: usize) -> Self {
        Self {
            expected: Expected::Head,
            state: State::Head,
            head: [0; 2 * VARINT_BYTES_MAX],
            head_len: 0,
            section: Vec::new(),
            section_bytes_max,
            idle: 0,
        }
    }

    /// Says what may come next.
    pub fn expect(&mut self, expected: Expected) {
        self.expected = expected;
    }

    /// The section that is whole.
    pub fn section(&self) -> &[u8] {
        &self.section
    }

    /// Gives the memory of the section away.
    pub fn take_section(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.section)
    }

    /// Frames of no use since this was last asked.
    pub fn take_idle(&mut self) -> u32 {
        std::mem::take(&mut self.idle)
    }

    /// Whether the stream may end here: not within a frame (section 7.1).
    pub fn is_between_frames(&self) -> bool {
        self.state == State::Head && self.head_len == 0
    }

    /// Whether the next byte is one of data.
    pub fn is_in_data(&self) -> bool {
        matches!(self.state, State::Data(_))
    }

    /// Looks at the next bytes: how many of them are done with, and what stands behind those. Data is then taken by the
    /// caller.
    ///
    /// # Errors
    /// See [`BadFrame`].
    pub fn next(&mut self, input: &[u8]) -> Result<(usize, Step), BadFrame> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let taken = |left: u64| left.min(rest.len() as u64) as usize;
            match self.state {
                State::Head => match self.take_head(rest)? {
                    (used, true) => at += used,
                    (used, false) => return Ok((at + used, Step::More)),
                },
                State::Section(0) => {
                    self.state = State::Head;
                    return Ok((at, Step::Section));
                }
                State::Data(0) | State::Skip(0) => self.state = State::Head,
                _ if rest.is_empty() => return Ok((at, Step::More)),
                State::Data(left) => {
                    let count = taken(left);
                    self.state = State::Data(left - count as u64);
                    return Ok((at, Step::Data(count)));
                }
                State::Section(left) => {
                    let count = taken(left);
                    self.section.extend_from_slice(&rest[..count]);
                    self.state = State::Section(left - count as u64);
                    at += count;
                }
                State::Skip(left) => {
                    let count = taken(left);
                    self.state = State::Skip(left - count as u64);
                    at += count;
                }
            }
        }
    }

    /// Takes the head of a frame: how many bytes, and whether it is whole.
    fn take_head(&mut self, rest: &[u8]) -> Result<(usize, bool), BadFrame> {
        let before = self.head_len;
        let room = &mut self.head[before..];
        let seen = rest.len().min(room.len());
        room[..seen].copy_from_slice(&rest[..seen]);
        let known = &self.head[..before + seen];
        let parsed = varint(known).and_then(|(kind, first)| {
            let (length, second) = varint(&known[first..])?;
            Some((kind, length, first + second))
        });
        match parsed {
            None => {
                self.head_len = before + seen;
                Ok((seen, false))
            }
            Some((kind, length, used)) => {
                self.head_len = 0;
                self.begin(kind, length)?;
                Ok((used - before, true))
            }
        }
    }

    fn begin(&mut self, kind: u64, length: u64) -> Result<(), BadFrame> {
        const UNEXPECTED: BadFrame = BadFrame::Connection(code::FRAME_UNEXPECTED);
        self.state = match kind {
            kind::DATA if self.expected == Expected::Body => {
                self.idle += u32::from(length == 0);
                State::Data(length)
            }
            kind::HEADERS if self.expected != Expected::End => {
                if length > self.section_bytes_max as u64 {
                    return Err(BadFrame::TooLarge);
                }
                self.section.clear();
                State::Section(length)
            }
            // Those of the control stream, those that only go the other way, and data or heads out of turn (section 4.1).
            kind::DATA
            | kind::HEADERS
            | kind::CANCEL_PUSH
            | kind::SETTINGS
            | kind::PUSH_PROMISE
            | kind::GOAWAY
            | kind::MAX_PUSH_ID => return Err(UNEXPECTED),
            _ if kind::is_of_http2(kind) => return Err(UNEXPECTED),
            // Section 9: what is not known is passed over.
            _ => {
                self.idle += 1;
                State::Skip(length)
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push_frame_head(&mut out, kind, payload.len() as u64);
        out.extend_from_slice(payload);
        out
    }

    /// Feeds `bytes` in pieces of `size`: the body and the sections.
    fn read(bytes: &[u8], size: usize) -> Result<(Vec<u8>, Vec<Vec<u8>>), BadFrame> {
        let mut reader = FrameReader::new(100);
        let (mut body, mut sections) = (Vec::new(), Vec::new());
        for mut piece in bytes.chunks(size) {
            loop {
                let (used, step) = reader.next(piece)?;
                piece = &piece[used..];
                match step {
                    Step::More => break,
                    Step::Data(count) => {
                        body.extend_from_slice(&piece[..count]);
                        piece = &piece[count..];
                    }
                    Step::Section => {
                        sections.push(reader.section().to_vec());
                        reader.expect(if sections.len() == 1 { Expected::Body } else { Expected::End });
                    }
                }
            }
            assert!(piece.is_empty());
        }
        assert!(reader.is_between_frames());
        Ok((body, sections))
    }

    #[test]
    fn a_message_is_the_same_in_pieces_of_any_size() {
        let long = [7; 90];
        let bytes = [
            frame(0x21, b"grease"),
            frame(kind::HEADERS, b"head"),
            frame(kind::DATA, b"one"),
            frame(kind::DATA, b""),
            frame(0x1f * 4000 + 0x21, b""),
            frame(kind::DATA, &long),
            frame(kind::HEADERS, b"trailers"),
            frame(0x40, b"late"),
        ]
        .concat();
        let body = [&b"one"[..], &long].concat();
        for size in 1..=bytes.len() {
            assert_eq!(read(&bytes, size), Ok((body.clone(), vec![b"head".to_vec(), b"trailers".to_vec()])), "{size}");
        }
    }

    #[test]
    fn a_frame_whose_length_is_written_last_is_read_like_any_other() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, kind::HEADERS, |out| out.extend_from_slice(b"head"));
        write_frame(&mut bytes, kind::DATA, |_| {});
        write_frame(&mut bytes, kind::DATA, |out| out.extend_from_slice(&[7; 300]));
        assert_eq!(read(&bytes, 3), Ok((vec![7; 300], vec![b"head".to_vec()])));
    }

    #[test]
    fn frames_out_of_turn_end_the_connection() {
        let unexpected = Err(BadFrame::Connection(code::FRAME_UNEXPECTED));
        assert_eq!(read(&frame(kind::DATA, b"early"), 100), unexpected);
        for kind in [0x2, 0x3, 0x4, 0x5, 0x6, 0x7, 0x8, 0x9, 0xd] {
            assert_eq!(read(&frame(kind, b""), 100), unexpected, "{kind}");
        }
        let head = frame(kind::HEADERS, b"head");
        for late in [kind::DATA, kind::HEADERS] {
            let bytes = [head.clone(), head.clone(), frame(late, b"late")].concat();
            assert_eq!(read(&bytes, 100), unexpected);
        }
    }

    #[test]
    fn a_section_has_a_bound_before_a_byte_of_it_is_kept() {
        let mut bytes = Vec::new();
        push_frame_head(&mut bytes, kind::HEADERS, 101);
        assert_eq!(read(&bytes, 100), Err(BadFrame::TooLarge));
        let mut bytes = Vec::new();
        push_frame_head(&mut bytes, kind::HEADERS, super::super::VARINT_MAX);
        assert_eq!(read(&bytes, 1), Err(BadFrame::TooLarge));
    }

    #[test]
    fn frames_of_no_use_are_counted() {
        let mut reader = FrameReader::new(100);
        reader.expect(Expected::Body);
        let bytes = [frame(kind::DATA, b""), frame(0x21, b"xx"), frame(kind::DATA, b"")].concat();
        assert_eq!(reader.next(&bytes), Ok((bytes.len(), Step::More)));
        assert_eq!((reader.take_idle(), reader.take_idle()), (3, 0));
    }
}
