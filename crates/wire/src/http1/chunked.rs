//! Chunks (RFC 9112 section 7.1): decoding in place, and writing.

use std::fmt;
use std::ops::Range;

use model::Fields;
use model::fields::is_token;
use model::limits::{CHUNK_LINE_BYTES_MAX, FIELDS_HARD_MAX, TRAILER_BYTES_MAX};

use super::{HeadLimits, span_of};

/// Hex digits of a chunk size: as many as 64 bits need. More, even leading zeros, are refused.
const SIZE_DIGITS_MAX: u32 = 16;
/// Bytes of chunk extensions that a body may carry beyond 16 bytes a chunk and twice its data. Without it a client could
/// make us read four kilobytes for every byte of data.
const EXTENSION_EXCESS_MAX: u64 = 16 * 1024;

/// The chunks break RFC 9112 section 7.1, or one of our bounds. The connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadChunk;

impl fmt::Display for BadChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the chunked body breaks RFC 9112 section 7.1")
    }
}

impl std::error::Error for BadChunk {}

/// What [`ChunkDecoder::decode_in_place`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The data is `bytes[..data_len]`.
    pub data_len: usize,
    /// So many bytes of the input were used up; the others are untouched. All of them, unless `done`.
    pub consumed: usize,
    /// The body ended, trailers included.
    pub done: bool,
}

/// What [`ChunkDecoder::step`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The data, as a range of the input; ends at `consumed`. May be empty.
    pub data: Range<usize>,
    /// So many bytes of the input were used up.
    pub consumed: usize,
    /// The body ended, trailers included.
    pub done: bool,
}

/// ```text
///      ┌──────────────────────────── CRLF ────────────────────────────┐
///      ▼                                                              │
///    Size ─► (Blank ─►) Extension* ─► SizeLf ─► Data ─► DataCr ─► DataLf
///                                       │ size 0
///                                       ▼
///                                  TrailerStart ◄─► TrailerLine, TrailerLf
///                                       │ CR
///                                       ▼
///                                     EndLf ─► Done
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size,
    /// White space after the size or a value, which only a `;` may follow (section 7.1.1, BWS).
    Blank,
    Extension(Extension),
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerLine,
    TrailerLf,
    EndLf,
    Done,
    Broken,
}

/// Where in an extension the decoder is (section 7.1.1): `";" name [ "=" ( token / quoted-string ) ]`, with white space
/// around the signs.
///
/// ```text
///    NameStart ─► Name ─► (NameEnd ─►) "=" ValueStart ─► Value
///        ▲         │          │                 └─► Quoted ◄─► Escape      each of Name, NameEnd, Value and QuoteEnd
///        └── ";" ──┴──────────┘                       └─► QuoteEnd         may be followed by another extension
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    /// Behind the `;`.
    NameStart,
    Name,
    /// White space after a name.
    NameEnd,
    /// Behind the `=`.
    ValueStart,
    Value,
    Quoted,
    /// Behind a `\` in quotes (RFC 9110 section 5.6.4).
    Escape,
    /// Behind the closing quote.
    QuoteEnd,
}

impl Extension {
    /// The state after `byte`. `None`: it may not stand here.
    fn take(self, byte: u8) -> Option<State> {
        let next = match (self, byte) {
            (Self::Quoted, b'"') => Self::QuoteEnd,
            (Self::Quoted, b'\\') => Self::Escape,
            (Self::Quoted | Self::Escape, b'\t' | b' '..=b'~' | 0x80..) => Self::Quoted,
            (Self::Name | Self::Value | Self::QuoteEnd, b'\r') => return Some(State::SizeLf),
            (Self::Name | Self::NameEnd | Self::Value | Self::QuoteEnd, b';') => Self::NameStart,
            (Self::Name | Self::NameEnd, b'=') => Self::ValueStart,
            (Self::NameStart | Self::NameEnd | Self::ValueStart, b' ' | b'\t') => self,
            (Self::Name, b' ' | b'\t') => Self::NameEnd,
            (Self::Value | Self::QuoteEnd, b' ' | b'\t') => return Some(State::Blank),
            (Self::ValueStart, b'"') => Self::Quoted,
            (Self::NameStart | Self::Name, _) if is_token(&[byte]) => Self::Name,
            (Self::ValueStart | Self::Value, _) if is_token(&[byte]) => Self::Value,
            // A line feed is a line end to some and text to others: it is never passed over, also not in quotes.
            _ => return None,
        };
        Some(State::Extension(next))
    }
}

/// Decodes a chunked body. The bytes may come split anywhere: the data is the same. Extensions are dropped (RFC 9112
/// section 7.1.1), as are trailer fields that may not be trailers (RFC 9110 section 6.5.1).
///
/// Holds no memory until trailers come.
#[derive(Clone, Debug)]
pub struct ChunkDecoder {
    state: State,
    digits: u32,
    /// Of the chunk, then what is left of it.
    size: u64,
    line_bytes: usize,
    extension_bytes: u64,
    extension_excess: u64,
    fields_max: usize,
    trailer_bytes: Vec<u8>,
    trailers: Fields,
}

impl ChunkDecoder {
    /// A decoder for one body. Of the limits only the number of fields counts, for the trailer section.
    pub fn new(limits: &HeadLimits) -> Self {
        Self {
            state: State::Size,
            digits: 0,
            size: 0,
            line_bytes: 0,
            extension_bytes: 0,
            extension_excess: 0,
            fields_max: limits.fields_max,
            trailer_bytes: Vec::new(),
            trailers: Fields::default(),
        }
    }

    /// Makes the decoder ready for another body; memory stays.
    pub fn reset(&mut self) {
        let (mut trailer_bytes, mut trailers) =
            (std::mem::take(&mut self.trailer_bytes), std::mem::take(&mut self.trailers));
        trailer_bytes.clear();
        trailers.clear();
        let limits = HeadLimits { fields_max: self.fields_max, ..HeadLimits::default() };
        *self = Self { trailer_bytes, trailers, ..Self::new(&limits) };
    }

    /// Decodes as much of `bytes` as there is, moving the data to the front.
    ///
    /// # Errors
    /// [`BadChunk`], then and ever after. What `bytes` holds is of no use then.
    pub fn decode_in_place(&mut self, bytes: &mut [u8]) -> Result<Decoded, BadChunk> {
        let (mut data_len, mut consumed) = (0, 0);
        loop {
            let piece = self.step(&bytes[consumed..])?;
            let data = consumed + piece.data.start..consumed + piece.data.end;
            let len = data.len();
            if data.start != data_len {
                bytes.copy_within(data, data_len);
            }
            data_len += len;
            consumed += piece.consumed;
            if piece.done || consumed == bytes.len() {
                return Ok(Decoded { data_len, consumed, done: piece.done });
            }
        }
    }

    /// Decodes up to the end of the next piece of data, moving nothing. An input that is not empty is always used up
    /// by at least one byte, until the body ended.
    ///
    /// # Errors
    /// [`BadChunk`], then and ever after.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Piece, BadChunk> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            if self.state == State::Data {
                let len = usize::try_from(self.size).unwrap_or(usize::MAX).min(bytes.len() - at);
                self.size -= len as u64;
                if self.size == 0 {
                    self.state = State::DataCr;
                }
                return Ok(Piece { data: at..at + len, consumed: at + len, done: false });
            }
            if let Err(bad) = self.take(bytes[at]) {
                self.state = State::Broken;
                return Err(bad);
            }
            at += 1;
        }
        Ok(Piece { data: at..at, consumed: at, done: self.state == State::Done })
    }

    /// The trailer fields, once the body ended.
    pub fn trailers(&self) -> &Fields {
        &self.trailers
    }

    /// As above, for a caller that removes some of them.
    pub fn trailers_mut(&mut self) -> &mut Fields {
        &mut self.trailers
    }

    /// Takes one byte that is no data.
    fn take(&mut self, byte: u8) -> Result<(), BadChunk> {
        self.state = match (self.state, byte) {
            (State::Size | State::Blank | State::Extension(_), _) => self.take_size_line(byte)?,
            (State::SizeLf, b'\n') => self.end_size_line()?,
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => {
                (self.digits, self.size, self.line_bytes, self.extension_bytes) = (0, 0, 0, 0);
                State::Size
            }
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::TrailerLine, b'\r') => State::TrailerLf,
            (State::TrailerStart | State::TrailerLine, byte) if byte != b'\n' => {
                self.take_trailer(&[byte])?;
                State::TrailerLine
            }
            (State::TrailerLf, b'\n') => {
                self.take_trailer(b"\r\n")?;
                State::TrailerStart
            }
            (State::EndLf, b'\n') => {
                self.parse_trailers()?;
                State::Done
            }
            _ => return Err(BadChunk),
        };
        Ok(())
    }

    fn take_size_line(&mut self, byte: u8) -> Result<State, BadChunk> {
        self.line_bytes += 1;
        if self.line_bytes > CHUNK_LINE_BYTES_MAX {
            return Err(BadChunk);
        }
        if let State::Extension(extension) = self.state {
            self.extension_bytes += u64::from(byte != b'\r');
            return extension.take(byte).ok_or(BadChunk);
        }
        match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if self.digits < SIZE_DIGITS_MAX => {
                self.digits += 1;
                self.size = (self.size << 4) | u64::from((byte as char).to_digit(16).ok_or(BadChunk)?);
                Ok(State::Size)
            }
            (State::Size, _) if self.digits == 0 => Err(BadChunk),
            (State::Size, b'\r') => Ok(State::SizeLf),
            (State::Size | State::Blank, b' ' | b'\t') => {
                self.extension_bytes += 1;
                Ok(State::Blank)
            }
            (State::Size | State::Blank, b';') => Ok(State::Extension(Extension::NameStart)),
            _ => Err(BadChunk),
        }
    }

    fn end_size_line(&mut self) -> Result<State, BadChunk> {
        let allowed = self.size.saturating_mul(2).saturating_add(16);
        self.extension_excess = (self.extension_excess + self.extension_bytes).saturating_sub(allowed);
        if self.extension_excess > EXTENSION_EXCESS_MAX {
            return Err(BadChunk);
        }
        Ok(if self.size == 0 { State::TrailerStart } else { State::Data })
    }

    fn take_trailer(&mut self, bytes: &[u8]) -> Result<(), BadChunk> {
        if self.trailer_bytes.len() + bytes.len() > TRAILER_BYTES_MAX {
            return Err(BadChunk);
        }
        self.trailer_bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// RFC 9112 section 7.1.2.
    fn parse_trailers(&mut self) -> Result<(), BadChunk> {
        if self.trailer_bytes.is_empty() {
            return Ok(());
        }
        self.trailer_bytes.extend_from_slice(b"\r\n");
        let mut space = [httparse::EMPTY_HEADER; FIELDS_HARD_MAX];
        let raw = &self.trailer_bytes[..];
        let fields = match httparse::parse_headers(raw, &mut space[..self.fields_max.min(FIELDS_HARD_MAX)]) {
            Ok(httparse::Status::Complete((len, fields))) if len == raw.len() => fields,
            _ => return Err(BadChunk),
        };
        let base = self.trailers.load(raw);
        for field in fields {
            if may_be_trailer(field.name.as_bytes()) {
                let name = span_of(field.name.as_bytes(), raw, base);
                self.trailers.push_span(name, span_of(field.value, raw, base));
            }
        }
        Ok(())
    }
}

/// Whether a field of this name is passed on as a trailer.
///
/// RFC 9110 section 6.5.1: no field that is needed before the content: framing, routing, modifiers, authentication,
/// content format. A recipient that merged one into the head would act on a word that no filter saw.
pub fn may_be_trailer(name: &[u8]) -> bool {
    const FORBIDDEN: &[&[u8]] = &[
        b"age",
        b"authorization",
        b"cache-control",
        b"content-encoding",
        b"content-language",
        b"content-location",
        b"content-range",
        b"content-type",
        b"cookie",
        b"expires",
        b"location",
        b"max-forwards",
        b"pragma",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-authentication-info",
        b"range",
        b"retry-after",
        b"set-cookie",
        b"vary",
        b"warning",
        b"www-authenticate",
        b"x-real-ip",
    ];
    // `_` counts as `-`: CGI-like programs cannot tell them apart. Nothing that is forbidden has a longer name.
    let mut folded = [0; 64];
    let folded = &mut folded[..name.len().min(64)];
    for (plain, &byte) in folded.iter_mut().zip(name) {
        *plain = if byte == b'_' { b'-' } else { byte };
    }
    let name = if name.len() <= 64 { &*folded } else { name };
    let prefixed = |prefix: &[u8]| name.len() >= prefix.len() && name[..prefix.len()].eq_ignore_ascii_case(prefix);
    // Every field the proxy itself recognises frames, routes or identifies; none of them may be a trailer.
    model::Known::of(name) == model::Known::Other
        && !prefixed(b"if-")
        && !prefixed(b"x-forwarded-")
        && !FORBIDDEN.iter().any(|forbidden| name.eq_ignore_ascii_case(forbidden))
}

/// Bytes that [`write_chunk_head`] may need: 16 hex digits and CRLF.
pub const CHUNK_HEAD_BYTES_MAX: usize = 18;

/// What follows the data of each chunk.
pub const CHUNK_TAIL: &[u8] = b"\r\n";

/// Writes the line before a chunk of `len` bytes at the end of `out`, and returns where in `out` it starts. With the data
/// right behind `out` the chunk needs no copy. `out` holds at least [`CHUNK_HEAD_BYTES_MAX`] bytes; `len` is not 0,
/// which would end the body.
///
/// # Panics
/// When `out` is too short for the line: an error of the caller.
pub fn write_chunk_head(len: usize, out: &mut [u8]) -> usize {
    debug_assert!(len > 0 && out.len() >= CHUNK_HEAD_BYTES_MAX);
    let mut start = out.len() - 2;
    out[start..].copy_from_slice(b"\r\n");
    let mut rest = len;
    loop {
        start -= 1;
        out[start] = b"0123456789abcdef"[rest & 15];
        rest >>= 4;
        if rest == 0 {
            return start;
        }
    }
}

/// Appends the last chunk and the trailer section; fields that may not be trailers are left out.
pub fn write_last_chunk(trailers: &Fields, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    for field in trailers.iter().filter(|field| may_be_trailer(field.name)) {
        super::write::push_field(out, field.name, field.value);
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
