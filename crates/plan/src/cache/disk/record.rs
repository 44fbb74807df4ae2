//! The header of a file: all of a stored response but its body.
//!
//! ```text
//!  0  magic "eqpcache"
//!  8  version, one byte
//!  9  1: it must be validated before it is served again. The only byte that changes, and the only one that no checksum covers
//! 10  two zeros
//! 12  length of what follows the checksum, 4 bytes
//! 16  checksum of that
//! 24  the response, see [`encode`]; numbers are little endian
//! ```
//! The body follows, see [`super::chunks`].

use model::{FieldName, ResponseHead, Version};

use crate::cache::entry::Entry;
use crate::cache::fresh::{Clock, Freshness};
use crate::cache::vary::{self, Varied};
use crate::keyed;

/// Bytes before the response.
pub const PREFIX_BYTES: usize = 24;
/// Place of the byte that says that it must be validated.
pub const STALE_AT: u64 = 9;
/// Bytes of a header. A response with a longer one is not written.
pub const HEADER_BYTES_MAX: usize = 256 << 10;

const MAGIC: [u8; 8] = *b"eqpcache";
const VERSION: u8 = 1;
/// Of the checksum; it is not secret.
const KEY: [u64; 2] = [0x6571_7069_6f69_7365, VERSION as u64];

/// What a header holds.
#[derive(Debug)]
pub struct Record {
    /// The response, without its body.
    pub entry: Entry,
    /// Bytes of the body.
    pub body_len: u64,
    /// The number that belongs to this file alone, see [`super::chunks`].
    pub nonce: u64,
    /// Bytes of the whole header.
    pub header_len: u64,
}

/// It is not a header, or not whole, or not as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad;

/// Writes the header of a response. Returns `None` if it is too long.
pub fn encode(entry: &Entry, body_len: u64, nonce: u64) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[VERSION, u8::from(entry.is_marked_stale()), 0, 0]);
    out.extend_from_slice(&[0; 12]);
    let Freshness { lifetime, stale_while_revalidate, stale_if_error } = entry.fresh;
    let Clock { received, age } = entry.clock;
    for number in [body_len, nonce, received, age, lifetime, stale_while_revalidate, stale_if_error] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&u32::from(entry.head.status).to_le_bytes());
    write(&mut out, &entry.key);
    count(&mut out, entry.variant.len());
    for varied in &entry.variant {
        let (name, value) = varied.parts();
        write(&mut out, name);
        out.push(u8::from(value.is_some()));
        write(&mut out, value.unwrap_or_default());
    }
    count(&mut out, entry.tags.len());
    entry.tags.iter().for_each(|tag| write(&mut out, tag));
    count(&mut out, entry.head.fields.iter().count());
    for field in entry.head.fields.iter() {
        write(&mut out, field.name);
        write(&mut out, field.value);
    }
    if out.len() > HEADER_BYTES_MAX {
        return None;
    }
    let length = (out.len() - PREFIX_BYTES) as u32;
    out[12..16].copy_from_slice(&length.to_le_bytes());
    let sum = keyed::hash(KEY, &out[PREFIX_BYTES..]);
    out[16..24].copy_from_slice(&sum.to_le_bytes());
    Some(out)
}

fn count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u32).to_le_bytes());
}

fn write(out: &mut Vec<u8>, bytes: &[u8]) {
    count(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Returns the length of the whole header, of which these are the first bytes.
///
/// # Errors
/// They are not those of a header.
pub fn header_len(prefix: &[u8; PREFIX_BYTES]) -> Result<usize, Bad> {
    let is_known = prefix[..8] == MAGIC && prefix[8] == VERSION && prefix[9] <= 1 && prefix[10..12] == [0, 0];
    let length = u32::from_le_bytes([prefix[12], prefix[13], prefix[14], prefix[15]]) as usize + PREFIX_BYTES;
    if is_known && length <= HEADER_BYTES_MAX { Ok(length) } else { Err(Bad) }
}

/// Reads a header. What follows it is ignored.
///
/// # Errors
/// See [`Bad`].
pub fn decode(bytes: &[u8]) -> Result<Record, Bad> {
    let prefix = bytes.first_chunk::<PREFIX_BYTES>().ok_or(Bad)?;
    let header_len = header_len(prefix)?;
    let told = bytes.get(PREFIX_BYTES..header_len).ok_or(Bad)?;
    if keyed::hash(KEY, told).to_le_bytes() != prefix[16..24] {
        return Err(Bad);
    }
    let mut rest = Rest(told);
    let [body_len, nonce, received, age] = [rest.long()?, rest.long()?, rest.long()?, rest.long()?];
    let fresh =
        Freshness { lifetime: rest.long()?, stale_while_revalidate: rest.long()?, stale_if_error: rest.long()? };
    let status = u16::try_from(rest.int()?).ok().filter(|status| (200..600).contains(status)).ok_or(Bad)?;
    // What is added to these must not overflow.
    let is_time = |seconds: u64| seconds < 1 << 40;
    let times = [received, age, fresh.lifetime, fresh.stale_while_revalidate, fresh.stale_if_error];
    if !times.into_iter().all(is_time) || body_len >= 1 << 60 {
        return Err(Bad);
    }
    let key = rest.bytes()?.into();
    let variant = rest.variant()?;
    let tags = rest.list(|rest| Ok(rest.bytes()?.into()))?;
    let mut head = ResponseHead::default();
    head.set_line(status, Default::default(), Version::Http11);
    for _ in 0..rest.int()? {
        let name = std::str::from_utf8(rest.bytes()?).ok().and_then(|name| FieldName::new(name).ok()).ok_or(Bad)?;
        head.fields.append(&name, rest.bytes()?);
    }
    if !rest.0.is_empty() {
        return Err(Bad);
    }
    let mut entry = Entry::new(key, &head, variant, (fresh, Clock { received, age }));
    entry.tags = tags.into();
    if prefix[STALE_AT as usize] == 1 {
        entry.mark_stale();
    }
    Ok(Record { entry, body_len, nonce, header_len: header_len as u64 })
}

/// What is still to be read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Bad)?;
        self.0 = rest;
        Ok(taken)
    }

    fn long(&mut self) -> Result<u64, Bad> {
        self.take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| Bad)
    }

    fn int(&mut self) -> Result<u32, Bad> {
        self.take(4)?.try_into().map(u32::from_le_bytes).map_err(|_| Bad)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Bad> {
        let length = self.int()? as usize;
        self.take(length)
    }

    /// Each item takes bytes, so that a count that lies ends with them.
    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T, Bad>) -> Result<Vec<T>, Bad> {
        (0..self.int()?).map(|_| read(self)).collect()
    }

    fn variant(&mut self) -> Result<Box<[Varied]>, Bad> {
        let all = self.list(|rest| {
            let name = rest.bytes()?;
            let has_value = rest.take(1)?[0] == 1;
            let value = rest.bytes()?;
            Ok(Varied::new(name, has_value.then_some(value)))
        })?;
        if all.len() > vary::NAMES_MAX { Err(Bad) } else { Ok(all.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::entry::testing::{fields, response};

    fn entry() -> Entry {
        let head =
            response(404, &[("etag", "\"1\""), ("vary", "accept, x-b"), ("date", "Sun, 06 Nov 1994 08:49:37 GMT")]);
        let variant = vary::of(&head.fields, &fields(&[("accept", "text/html")])).unwrap();
        let fresh = Freshness { lifetime: 1, stale_while_revalidate: 2, stale_if_error: 3 };
        let mut entry = Entry::new((*b"7\0http://a/").into(), &head, variant, (fresh, Clock { received: 9, age: 4 }));
        entry.tags = [b"red".as_slice().into(), b"blue".as_slice().into()].into();
        entry
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let written = entry();
        let bytes = encode(&written, 77, 5).unwrap();
        let read = decode(&[&bytes[..], b"body"].concat()).unwrap();
        assert_eq!((read.body_len, read.nonce, read.header_len), (77, 5, bytes.len() as u64));
        let told = |entry: &Entry| {
            let fields = entry.head.fields.iter().map(|field| (field.name.to_vec(), field.value.to_vec()));
            let fields: Vec<_> = fields.collect();
            let (key, variant, tags) = (entry.key.clone(), entry.variant.clone(), entry.tags.clone());
            (key, variant, tags, fields, entry.head.status, entry.fresh, entry.clock, entry.is_marked_stale())
        };
        assert_eq!(told(&read.entry), told(&written));
        written.mark_stale();
        assert!(decode(&encode(&written, 0, 0).unwrap()).unwrap().entry.is_marked_stale());
    }

    #[test]
    fn what_is_cut_short_or_altered_is_not_read() {
        let bytes = encode(&entry(), 77, 5).unwrap();
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{length}");
        }
        for place in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[place] ^= 0x40;
            assert!(decode(&altered).is_err(), "{place}");
        }
        let mut stale = bytes.clone();
        stale[STALE_AT as usize] = 1;
        assert!(decode(&stale).unwrap().entry.is_marked_stale());
    }

    #[test]
    fn counts_and_lengths_that_lie_are_bounded_by_what_is_there() {
        let bytes = encode(&entry(), 77, 5).unwrap();
        for place in (PREFIX_BYTES..bytes.len() - 4).step_by(1) {
            let mut altered = bytes.clone();
            altered[place..place + 4].copy_from_slice(&[0xff; 4]);
            let sum = keyed::hash(KEY, &altered[PREFIX_BYTES..]);
            altered[16..24].copy_from_slice(&sum.to_le_bytes());
            let _ = decode(&altered);
        }
        let long =
            Entry::new(vec![b'a'; HEADER_BYTES_MAX].into(), &response(200, &[]), Box::default(), Default::default());
        assert!(encode(&long, 0, 0).is_none());
    }
}
