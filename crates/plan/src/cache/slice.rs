//! Slices: aligned ranges of one representation, each of which is fetched and stored by itself.
//!
//! A slice is stored as the endpoint has sent it: with the status 206 and its `Content-Range`, which no other stored response has. Slices are
//! put together only if they are of the same representation: by its strong validator and its total length (RFC 9110 section 15.3.7.3).

use model::ResponseHead;

use super::date;
use super::entry::Entry;
use super::range::{ContentRange, content_range, exact};
use super::validate::named;

/// The least bytes of a slice: 64 KiB.
pub const SLICE_BYTES_MIN: u64 = 64 << 10;
/// The most bytes of a slice: 64 MiB.
pub const SLICE_BYTES_MAX: u64 = 64 << 20;

/// A place in a representation that is cut in slices of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Bytes of each slice but the last one; from [`SLICE_BYTES_MIN`] to [`SLICE_BYTES_MAX`].
    pub size: u64,
    /// Which slice it is; the first one is 0.
    pub number: u64,
}

impl Slice {
    /// Returns the slice that holds this byte.
    pub fn at(size: u64, byte: u64) -> Self {
        Self { size, number: byte / size }
    }

    /// Returns its first byte.
    pub fn first(self) -> u64 {
        // It was divided by the size before.
        self.number * self.size
    }

    /// Returns its last byte if nothing bounds the representation.
    pub fn last(self) -> u64 {
        self.first().saturating_add(self.size - 1)
    }

    /// Returns how many bytes it has of a representation of so many bytes.
    pub fn len_of(self, total: u64) -> u64 {
        total.saturating_sub(self.first()).min(self.size)
    }

    /// Returns its key: that of the object, with size and number behind the partition. Purges by URL find it, as the URL stays last.
    pub fn key(self, of: &[u8]) -> Box<[u8]> {
        let end = of.iter().position(|byte| *byte == 0).unwrap_or(of.len());
        let (partition, rest) = of.split_at(end);
        [partition, format!(".{}.{}", self.size, self.number).as_bytes(), rest].concat().into()
    }

    /// Returns the part that a head holds, and the representation that it is of. Returns `None` unless it is this very slice, of a length
    /// that is known ahead, and can be put together with others, if there are others.
    pub fn part_in(self, head: &ResponseHead, received: u64) -> Option<Representation> {
        let part = part_of(head).filter(|part| self.is_part(*part))?;
        let mut lengths = named(&head.fields, b"content-length");
        let length = lengths.next().and_then(exact);
        let is_framed = named(&head.fields, b"transfer-encoding").next().is_none() && lengths.next().is_none();
        if head.status != 206 || length != Some(part.len()) || !is_framed {
            return None;
        }
        let of = Representation::of(head, part.total, received);
        (of.validator.is_some() || part.len() == part.total).then_some(of)
    }

    /// Returns the representation that a stored response is a part of, if it is this slice, whole.
    pub fn in_entry(self, entry: &Entry) -> Option<Representation> {
        let part = part_of(&entry.head).filter(|part| self.is_part(*part) && entry.body.len() == part.len())?;
        Some(Representation::of(&entry.head, part.total, entry.clock.received))
    }

    fn is_part(self, part: ContentRange) -> bool {
        part.first == self.first() && part.len() == self.len_of(part.total)
    }
}

/// The part that a head states.
pub fn part_of(head: &ResponseHead) -> Option<ContentRange> {
    let mut stated = named(&head.fields, b"content-range");
    let first = stated.next().filter(|_| head.status == 206)?;
    content_range(first).filter(|_| stated.next().is_none())
}

/// By what slices are known to belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Representation {
    /// Its strong `ETag`, or else a `Last-Modified` that is strong. Without one, it has one slice.
    pub validator: Option<Box<[u8]>>,
    /// Its length in bytes.
    pub total: u64,
}

impl Representation {
    /// Returns that of a response which is a part of so many bytes.
    pub fn of(head: &ResponseHead, total: u64, received: u64) -> Self {
        Self { validator: validator(head, received).map(Into::into), total }
    }

    /// Returns whether a response states the same validator, whatever its status.
    pub fn is_in(&self, head: &ResponseHead, received: u64) -> bool {
        self.validator.is_some() && self.validator.as_deref() == validator(head, received)
    }
}

/// The strong validator of a response: an entity tag that is not weak, or a time of change that is at least a second before the
/// response was made (RFC 9110 sections 8.8.1 and 8.8.2.2).
fn validator(head: &ResponseHead, received: u64) -> Option<&[u8]> {
    let mut tags = named(&head.fields, b"etag");
    if let Some(tag) = tags.next().filter(|tag| tag.starts_with(b"\"") && tag.len() > 1 && tag.ends_with(b"\"")) {
        return tags.next().is_none().then_some(tag);
    }
    let modified = named(&head.fields, b"last-modified").next()?;
    let made = named(&head.fields, b"date").next().map_or(Some(received), date::parse)?;
    (date::parse(modified)? < made).then_some(modified)
}

#[cfg(test)]
mod tests {
    use super::super::entry::testing::response;
    use super::*;

    const SIZE: u64 = 100;
    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn part(number: u64, range: &str, list: &[(&str, &str)]) -> Option<Representation> {
        let fields: Vec<_> = [("content-range", range)].into_iter().chain(list.iter().copied()).collect();
        Slice { size: SIZE, number }.part_in(&response(206, &fields), 784_111_999)
    }

    #[test]
    fn a_part_is_a_slice_only_at_its_very_place_and_length() {
        let list = [("etag", "\"1\""), ("content-length", "100")];
        let of = Representation { validator: Some((*b"\"1\"").into()), total: 250 };
        assert_eq!(part(0, "bytes 0-99/250", &list), Some(of.clone()));
        assert_eq!(part(1, "bytes 100-199/250", &list), Some(of.clone()));
        assert_eq!(part(2, "bytes 200-249/250", &[list[0], ("content-length", "50")]), Some(of));
        for range in ["bytes 100-199/250", "bytes 0-98/250", "bytes 0-100/250", "bytes 0-99/*", "bytes 1-100/250", ""] {
            assert_eq!(part(0, range, &list), None, "{range}");
        }
        for length in ["99", "101", "100, 100", "x", ""] {
            assert_eq!(part(0, "bytes 0-99/250", &[list[0], ("content-length", length)]), None, "{length}");
        }
        assert_eq!(part(0, "bytes 0-99/250", &[list[0]]), None, "a length that is not known ahead");
        assert_eq!(part(0, "bytes 0-99/250", &[list[0], list[1], ("content-range", "bytes 0-99/250")]), None);
        assert_eq!(part(0, "bytes 0-99/250", &[list[0], list[1], ("transfer-encoding", "chunked")]), None);
        let whole = response(200, &[("content-range", "bytes 0-99/250"), list[0], list[1]]);
        assert_eq!(Slice { size: SIZE, number: 0 }.part_in(&whole, 0), None);
        assert_eq!(
            part(
                u64::MAX / SIZE,
                "bytes 18446744073709551600-18446744073709551614/18446744073709551615",
                &[list[0], ("content-length", "15")]
            )
            .map(|of| of.total),
            Some(u64::MAX)
        );
    }

    #[test]
    fn several_slices_need_a_strong_validator_and_one_needs_none() {
        let length = ("content-length", "100");
        let of = |list: &[(&str, &str)]| part(0, "bytes 0-99/250", list).and_then(|of| of.validator);
        assert_eq!(of(&[length, ("last-modified", OLD)]).as_deref(), Some(OLD.as_bytes()));
        assert_eq!(of(&[length, ("etag", "W/\"1\""), ("last-modified", OLD)]).as_deref(), Some(OLD.as_bytes()));
        for weak in [
            &[length][..],
            &[length, ("etag", "W/\"1\"")],
            &[length, ("etag", "1")],
            &[length, ("etag", "\"")],
            &[length, ("etag", "\"1\""), ("etag", "\"2\"")],
            // RFC 9110 section 8.8.2.2: it may have changed again in this second.
            &[length, ("last-modified", OLD), ("date", OLD)],
            &[length, ("last-modified", "yesterday")],
        ] {
            assert_eq!(part(0, "bytes 0-99/250", weak), None, "{weak:?}");
        }
        assert_eq!(part(0, "bytes 0-99/100", &[length]), Some(Representation { validator: None, total: 100 }));
    }

    #[test]
    fn keys_of_slices_differ_and_end_in_the_url() {
        let key = |size, number| Slice { size, number }.key(b"7\0x\0http://a/b");
        assert_eq!(&*key(100, 3), b"7.100.3\0x\0http://a/b");
        assert_ne!(key(100, 31), key(1003, 1));
        assert_eq!(Slice::at(100, u64::MAX).last(), u64::MAX);
    }
}
