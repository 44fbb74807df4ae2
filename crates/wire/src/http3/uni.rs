//! The unidirectional streams (RFC 9114 section 6.2, RFC 9204 section 4.2): what a peer announces on them.

use super::frame::{kind, push_frame_head};
use super::{VARINT_BYTES_MAX, code, push_varint, varint};

/// Kinds of streams.
const CONTROL: u64 = 0x0;
const PUSH: u64 = 0x1;
const ENCODER: u64 = 0x2;
const DECODER: u64 = 0x3;

/// Settings (RFC 9114 section 7.2.4.1, RFC 9220 section 5).
const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;

/// Longest payload of SETTINGS, GOAWAY and the like that is read.
const PAYLOAD_BYTES_MAX: u64 = 1024;

/// What our control stream begins with: its kind and our settings. `offers_connect` says that CONNECT may name a protocol.
pub fn begin_control(out: &mut Vec<u8>, section_bytes_max: u64, offers_connect: bool) {
    let mut settings = Vec::new();
    push_varint(&mut settings, MAX_FIELD_SECTION_SIZE);
    push_varint(&mut settings, section_bytes_max);
    if offers_connect {
        push_varint(&mut settings, ENABLE_CONNECT_PROTOCOL);
        push_varint(&mut settings, 1);
    }
    push_varint(out, CONTROL);
    push_frame_head(out, kind::SETTINGS, settings.len() as u64);
    out.extend_from_slice(&settings);
}

/// Writes a GOAWAY: streams from `id` on are not processed (section 5.2).
pub fn push_goaway(out: &mut Vec<u8>, id: u64) {
    let mut payload = Vec::new();
    push_varint(&mut payload, id);
    push_frame_head(out, kind::GOAWAY, payload.len() as u64);
    out.extend_from_slice(&payload);
}

/// What a peer has announced on these streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerState {
    /// Its settings have come.
    pub has_settings: bool,
    /// CONNECT may name a protocol (RFC 9220).
    pub offers_connect: bool,
    /// The largest section that it takes.
    pub section_bytes_max: Option<u64>,
    /// The number of its GOAWAY, if it has sent one.
    pub goaway: Option<u64>,
    /// Frames and streams without use to us, counted so that their number can be bounded.
    pub idle: u32,
    /// The largest push that it would take.
    push_id_max: Option<u64>,
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
}

/// What kind of stream it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Its first bytes have not come.
    New,
    Control,
    Encoder,
    Decoder,
    /// Of no use; nothing of it is read.
    Unknown,
}

/// What the caller does with the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More of it is read.
    GoOn,
    /// It is to be stopped with [`code::STREAM_CREATION_ERROR`].
    Stop,
}

/// Reads one such stream.
#[derive(Debug)]
pub struct UniReader {
    kind: Kind,
    /// What has come of a number, of the head of a frame, or of its payload.
    collected: Vec<u8>,
    frame: Option<(u64, u64)>,
    /// Within an integer of QPACK.
    is_in_integer: bool,
}

impl Default for UniReader {
    fn default() -> Self {
        Self { kind: Kind::New, collected: Vec::new(), frame: None, is_in_integer: false }
    }
}

impl UniReader {
    /// Whether the connection ends when this stream does (section 6.2.1, RFC 9204 section 4.2).
    pub fn is_critical(&self) -> bool {
        matches!(self.kind, Kind::Control | Kind::Encoder | Kind::Decoder)
    }

    /// Whether its kind is not known yet.
    pub fn is_new(&self) -> bool {
        self.kind == Kind::New
    }

    /// Takes the next bytes. `from_client` says who sends them.
    ///
    /// # Errors
    /// The code that the connection is to be ended with.
    pub fn take(&mut self, mut input: &[u8], from_client: bool, peer: &mut PeerState) -> Result<Next, u64> {
        while !input.is_empty() {
            match self.kind {
                Kind::New => {
                    self.collected.push(input[0]);
                    input = &input[1..];
                    if let Some((kind, _)) = varint(&self.collected) {
                        self.collected.clear();
                        self.begin(kind, from_client, peer)?;
                    }
                }
                Kind::Control => input = self.take_control(input, from_client, peer)?,
                Kind::Encoder => {
                    take_encoder(input, peer)?;
                    return Ok(Next::GoOn);
                }
                Kind::Decoder => {
                    self.take_decoder(input, peer)?;
                    return Ok(Next::GoOn);
                }
                Kind::Unknown => return Ok(Next::Stop),
            }
        }
        Ok(if self.kind == Kind::Unknown { Next::Stop } else { Next::GoOn })
    }

    fn begin(&mut self, kind: u64, from_client: bool, peer: &mut PeerState) -> Result<(), u64> {
        let (known, seen) = match kind {
            CONTROL => (Kind::Control, &mut peer.has_control),
            ENCODER => (Kind::Encoder, &mut peer.has_encoder),
            DECODER => (Kind::Decoder, &mut peer.has_decoder),
            // Section 4.6: clients do not push, and endpoints push only what was allowed.
            PUSH if from_client => return Err(code::STREAM_CREATION_ERROR),
            PUSH => return Err(code::ID_ERROR),
            _ => {
                peer.idle += 1;
                self.kind = Kind::Unknown;
                return Ok(());
            }
        };
        if std::mem::replace(seen, true) {
            return Err(code::STREAM_CREATION_ERROR);
        }
        self.kind = known;
        Ok(())
    }

    fn take_control<'i>(&mut self, input: &'i [u8], from_client: bool, peer: &mut PeerState) -> Result<&'i [u8], u64> {
        let Some((kind, left)) = self.frame else {
            self.collected.push(input[0]);
            let parsed = varint(&self.collected).and_then(|(kind, first)| {
                let (length, _) = varint(&self.collected[first..])?;
                Some((kind, length))
            });
            debug_assert!(self.collected.len() <= 2 * VARINT_BYTES_MAX);
            if let Some((kind, length)) = parsed {
                self.collected.clear();
                check_frame((kind, length), from_client, peer)?;
                self.frame = Some((kind, length));
                if length == 0 {
                    self.end_frame(kind, from_client, peer)?;
                }
            }
            return Ok(&input[1..]);
        };
        let count = left.min(input.len() as u64) as usize;
        if is_read(kind) {
            self.collected.extend_from_slice(&input[..count]);
        }
        let left = left - count as u64;
        self.frame = Some((kind, left));
        if left == 0 {
            self.end_frame(kind, from_client, peer)?;
        }
        Ok(&input[count..])
    }

    fn end_frame(&mut self, kind: u64, from_client: bool, peer: &mut PeerState) -> Result<(), u64> {
        self.frame = None;
        let payload = std::mem::take(&mut self.collected);
        match kind {
            kind::SETTINGS => read_settings(&payload, peer),
            // Section 7.2.3: nothing was ever promised, so there is nothing to be given up.
            kind::CANCEL_PUSH => Err(code::ID_ERROR),
            kind::GOAWAY | kind::MAX_PUSH_ID => {
                let (id, _) = varint(&payload).filter(|(_, used)| *used == payload.len()).ok_or(code::FRAME_ERROR)?;
                if kind == kind::GOAWAY {
                    // Section 5.2: it never grows, and it names a stream that a client begins.
                    let is_bad = peer.goaway.is_some_and(|before| id > before) || !from_client && id % 4 != 0;
                    if is_bad {
                        return Err(code::ID_ERROR);
                    }
                    // Only the first is of use to us; others are counted.
                    peer.idle += u32::from(peer.goaway.replace(id).is_some());
                } else if peer.push_id_max.is_some_and(|before| id < before) {
                    // Section 7.2.7: what was allowed stays so.
                    return Err(code::ID_ERROR);
                } else {
                    peer.push_id_max = Some(id);
                    peer.idle += 1;
                }
                Ok(())
            }
            _ => {
                peer.idle += 1;
                Ok(())
            }
        }
    }

    /// RFC 9204 section 4.4: no section of ours waits for an answer; that a stream was given up may be said.
    fn take_decoder(&mut self, input: &[u8], peer: &mut PeerState) -> Result<(), u64> {
        for byte in input {
            if self.is_in_integer {
                self.is_in_integer = byte & 0x80 != 0;
                peer.idle += 1;
            } else if byte & 0xc0 == 0x40 {
                self.is_in_integer = byte & 0x3f == 0x3f;
                peer.idle += 1;
            } else {
                return Err(code::DECODER_STREAM_ERROR);
            }
        }
        Ok(())
    }
}

/// RFC 9204 section 4.3: with a table of no size, all that may be said is that its size is 0. Once would do.
fn take_encoder(input: &[u8], peer: &mut PeerState) -> Result<(), u64> {
    peer.idle = peer.idle.saturating_add(input.len() as u32);
    if input.iter().all(|byte| *byte == 0x20) { Ok(()) } else { Err(code::ENCODER_STREAM_ERROR) }
}

fn is_read(kind: u64) -> bool {
    matches!(kind, kind::SETTINGS | kind::GOAWAY | kind::CANCEL_PUSH | kind::MAX_PUSH_ID)
}

/// Whether a frame may stand here on a control stream (section 6.2.1, 7.2).
fn check_frame((kind, length): (u64, u64), from_client: bool, peer: &PeerState) -> Result<(), u64> {
    let is_settings = kind == kind::SETTINGS;
    if !peer.has_settings && !is_settings {
        return Err(code::MISSING_SETTINGS);
    }
    let is_misplaced = matches!(kind, kind::DATA | kind::HEADERS | kind::PUSH_PROMISE)
        || is_settings && peer.has_settings
        || kind == kind::MAX_PUSH_ID && !from_client
        || kind::is_of_http2(kind);
    if is_misplaced {
        return Err(code::FRAME_UNEXPECTED);
    }
    if is_read(kind) && length > PAYLOAD_BYTES_MAX {
        return Err(code::EXCESSIVE_LOAD);
    }
    Ok(())
}

fn read_settings(mut payload: &[u8], peer: &mut PeerState) -> Result<(), u64> {
    peer.has_settings = true;
    let mut seen = Vec::new();
    while !payload.is_empty() {
        let (id, first) = varint(payload).ok_or(code::FRAME_ERROR)?;
        let (value, second) = varint(&payload[first..]).ok_or(code::FRAME_ERROR)?;
        payload = &payload[first + second..];
        // Section 7.2.4.1: those of HTTP/2 that have no meaning here, and none twice.
        if matches!(id, 0x2..=0x5) || seen.contains(&id) {
            return Err(code::SETTINGS_ERROR);
        }
        seen.push(id);
        match id {
            MAX_FIELD_SECTION_SIZE => peer.section_bytes_max = Some(value),
            ENABLE_CONNECT_PROTOCOL if value > 1 => return Err(code::SETTINGS_ERROR),
            ENABLE_CONNECT_PROTOCOL => peer.offers_connect = value == 1,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(streams: &[&[u8]], from_client: bool) -> Result<PeerState, u64> {
        let mut peer = PeerState::default();
        for bytes in streams {
            let mut whole = UniReader::default();
            let mut copy = peer.clone();
            whole.take(bytes, from_client, &mut copy)?;
            // Byte by byte it is the same.
            let mut reader = UniReader::default();
            for byte in *bytes {
                reader.take(&[*byte], from_client, &mut peer)?;
            }
            assert_eq!(copy, peer);
        }
        Ok(peer)
    }

    fn control(frames: &[u8]) -> Vec<u8> {
        [&[0][..], frames].concat()
    }

    #[test]
    fn our_own_control_stream_is_understood() {
        let mut out = Vec::new();
        begin_control(&mut out, 32_768, true);
        push_goaway(&mut out, 8);
        push_goaway(&mut out, 4);
        let peer = read(&[&out], false).unwrap();
        assert!(peer.has_settings && peer.offers_connect);
        assert_eq!((peer.section_bytes_max, peer.goaway, peer.idle), (Some(32_768), Some(4), 1));
        push_goaway(&mut out, 4);
        assert_eq!(read(&[&out], false).unwrap().idle, 2);
    }

    #[test]
    fn control_streams_that_break_the_rules_end_the_connection() {
        let cases: [(&[u8], u64); 14] = [
            // No settings first; settings twice.
            (&[7, 1, 0], code::MISSING_SETTINGS),
            (&[4, 0, 4, 0], code::FRAME_UNEXPECTED),
            // DATA, HEADERS, PUSH_PROMISE, one of HTTP/2.
            (&[4, 0, 0, 0], code::FRAME_UNEXPECTED),
            (&[4, 0, 1, 0], code::FRAME_UNEXPECTED),
            (&[4, 0, 5, 0], code::FRAME_UNEXPECTED),
            (&[4, 0, 6, 0], code::FRAME_UNEXPECTED),
            // Settings of HTTP/2, twice the same, cut, a wrong value.
            (&[4, 2, 2, 0], code::SETTINGS_ERROR),
            (&[4, 4, 6, 1, 6, 2], code::SETTINGS_ERROR),
            (&[4, 1, 6], code::FRAME_ERROR),
            (&[4, 2, 8, 2], code::SETTINGS_ERROR),
            // GOAWAY that grows, and one with more than a number.
            (&[4, 0, 7, 1, 4, 7, 1, 8], code::ID_ERROR),
            (&[4, 0, 7, 2, 4, 4], code::FRAME_ERROR),
            // A push that nobody promised is given up, and fewer are allowed than before.
            (&[4, 0, 3, 1, 0], code::ID_ERROR),
            (&[4, 0, 13, 1, 5, 13, 1, 4], code::ID_ERROR),
        ];
        for (frames, wanted) in cases {
            assert_eq!(read(&[&control(frames)], true).unwrap_err(), wanted, "{frames:?}");
        }
        // More than is ever needed.
        assert_eq!(read(&[&control(&[4, 0x44, 0x01])], true), Err(code::EXCESSIVE_LOAD));
    }

    #[test]
    fn each_kind_of_stream_comes_once_and_unknown_ones_are_not_wanted() {
        let settings = control(&[4, 0]);
        assert_eq!(read(&[&settings, &settings], true), Err(code::STREAM_CREATION_ERROR));
        assert_eq!(read(&[&[2], &[2]], true), Err(code::STREAM_CREATION_ERROR));
        assert_eq!(read(&[&[1, 0]], true), Err(code::STREAM_CREATION_ERROR));
        assert_eq!(read(&[&[1, 0]], false), Err(code::ID_ERROR));
        let mut reader = UniReader::default();
        let mut peer = PeerState::default();
        assert_eq!(reader.take(&[0x21, 1, 2, 3], true, &mut peer), Ok(Next::Stop));
        assert!(!reader.is_critical() && peer.idle == 1);
    }

    #[test]
    fn nobody_fills_a_table_that_is_not_there() {
        assert!(read(&[&[2, 0x20]], true).is_ok());
        assert_eq!(read(&[&[2, 0x3f, 0x01]], true), Err(code::ENCODER_STREAM_ERROR));
        assert_eq!(read(&[&[2, 0xc0, 0]], true), Err(code::ENCODER_STREAM_ERROR));
        // A stream that was given up may be told of; sections and insertions not.
        assert_eq!(read(&[&[3, 0x44, 0x7f, 0x81, 0x01]], true).unwrap().idle, 4);
        assert_eq!(read(&[&[3, 0x80]], true), Err(code::DECODER_STREAM_ERROR));
        assert_eq!(read(&[&[3, 0x01]], true), Err(code::DECODER_STREAM_ERROR));
    }
}
