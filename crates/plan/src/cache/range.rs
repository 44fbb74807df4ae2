//! Ranges of bytes (RFC 9110 section 14).

/// A range that a request asks for, of a representation of known length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The whole: there is no range, or one that is not answered in parts, such as several ranges.
    Whole,
    /// From the first byte to the last one, both included.
    Part {
        /// The first.
        first: u64,
        /// The last; less than the length.
        last: u64,
    },
    /// No byte of it is there (416).
    Unsatisfiable,
}

/// Reads `Range` for a representation of `length` bytes. What is malformed is ignored (RFC 9110 section 14.2).
pub fn asked(value: &[u8], length: u64) -> Asked {
    let Some((unit, ranges)) = split(value, b'=') else { return Asked::Whole };
    if !unit.eq_ignore_ascii_case(b"bytes") {
        return Asked::Whole;
    }
    let mut specs = ranges.split(|byte| *byte == b',').map(super::control::trimmed).filter(|spec| !spec.is_empty());
    // Several ranges need a multipart body; the whole is a correct answer to them, too.
    let (Some(spec), None) = (specs.next(), specs.next()) else { return Asked::Whole };
    let Some((first, last)) = split(spec, b'-') else { return Asked::Whole };
    match (first.is_empty(), last.is_empty()) {
        (true, true) => Asked::Whole,
        (true, false) => match number(last) {
            None => Asked::Whole,
            Some(0) => Asked::Unsatisfiable,
            Some(_) if length == 0 => Asked::Unsatisfiable,
            Some(count) => Asked::Part { first: length.saturating_sub(count), last: length - 1 },
        },
        (false, is_open) => {
            let last = if is_open { Some(u64::MAX) } else { number(last) };
            let (Some(first), Some(last)) = (number(first), last) else { return Asked::Whole };
            if last < first {
                return Asked::Whole;
            }
            if first >= length {
                return Asked::Unsatisfiable;
            }
            Asked::Part { first, last: last.min(length - 1) }
        }
    }
}

/// What a request asks for of a representation whose length is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// The bytes from here on, whether or not an end is stated.
    From(u64),
    /// Some of the last bytes.
    Last,
}

/// Reads `Range` with one range. Returns `None` if it has several, is malformed, or is of another unit.
pub fn sought(value: &[u8]) -> Option<Sought> {
    // Every range is within the longest representation, so that nothing but its form decides.
    match asked(value, u64::MAX) {
        Asked::Part { .. } | Asked::Unsatisfiable => {}
        Asked::Whole => return None,
    }
    let spec = split(value, b'=').map(|(_, specs)| super::control::trimmed(specs))?;
    let spec = spec.split(|byte| *byte == b',').map(super::control::trimmed).find(|spec| !spec.is_empty())?;
    let (first, _) = split(spec, b'-')?;
    Some(if first.is_empty() { Sought::Last } else { Sought::From(number(first)?) })
}

/// The part that a response with the status 206 holds, by its `Content-Range`: the bytes from `first` to `last`, both included, of `total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The first byte.
    pub first: u64,
    /// The last byte; less than `total`.
    pub last: u64,
    /// The length of the representation.
    pub total: u64,
}

impl ContentRange {
    /// Returns how many bytes the part has.
    pub fn len(self) -> u64 {
        // `last` is less than `total`, so that this does not overflow.
        self.last - self.first + 1
    }

    /// Returns whether it has no byte, which no part is.
    pub fn is_empty(self) -> bool {
        false
    }
}

/// Reads `Content-Range` of a 206 (RFC 9110 section 14.4). Returns `None` if it is malformed, does not state the total length, has
/// a number beyond 64 bits, or its part does not lie within the whole.
pub fn content_range(value: &[u8]) -> Option<ContentRange> {
    let (unit, rest) = split(value, b' ')?;
    let (range, total) = split(rest, b'/')?;
    let (first, last) = split(range, b'-')?;
    let (first, last, total) = (exact(first)?, exact(last)?, exact(total)?);
    let is_within = first <= last && last < total;
    (unit.eq_ignore_ascii_case(b"bytes") && is_within).then_some(ContentRange { first, last, total })
}

/// A number of bytes, of digits alone. `None`: it does not fit.
pub(crate) fn exact(text: &[u8]) -> Option<u64> {
    let digit = |digit: &u8| digit.is_ascii_digit().then(|| u64::from(digit - b'0'));
    let add = |sum: u64, byte| sum.checked_mul(10)?.checked_add(digit(byte)?);
    if text.is_empty() { None } else { text.iter().try_fold(0_u64, add) }
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|byte| *byte == at)?;
    Some((&text[..place], &text[place + 1..]))
}

/// A number of bytes; one that does not fit is as large as can be.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(text.iter().fold(0_u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_a_part() {
        // RFC 9110 section 14.1.2.
        let part = |first, last| Asked::Part { first, last };
        for (text, wanted) in [
            ("bytes=0-499", part(0, 499)),
            ("bytes=500-999", part(500, 999)),
            ("BYTES=-500", part(500, 999)),
            ("bytes=9500-", Asked::Unsatisfiable),
            ("bytes=999-5000", part(999, 999)),
            ("bytes=-5000", part(0, 999)),
            ("bytes=0-99999999999999999999999999", part(0, 999)),
            ("bytes=99999999999999999999999999-", Asked::Unsatisfiable),
            ("bytes=-0", Asked::Unsatisfiable),
        ] {
            assert_eq!(asked(text.as_bytes(), 1000), wanted, "{text}");
        }
        assert_eq!(asked(b"bytes=-1", 0), Asked::Unsatisfiable);
        assert_eq!(asked(b"bytes=0-", 0), Asked::Unsatisfiable);
    }

    #[test]
    fn a_content_range_states_a_part_within_its_whole() {
        // RFC 9110 section 14.4.
        let part = |first, last, total| Some(ContentRange { first, last, total });
        for (text, wanted) in [
            ("bytes 0-499/1234", part(0, 499, 1234)),
            ("Bytes 1233-1233/1234", part(1233, 1233, 1234)),
            ("bytes 0-0/18446744073709551615", part(0, 0, u64::MAX)),
            (
                "bytes 18446744073709551613-18446744073709551614/18446744073709551615",
                part(u64::MAX - 2, u64::MAX - 1, u64::MAX),
            ),
            ("bytes 0-499/499", None),
            ("bytes 5-4/10", None),
            ("bytes 0-9/18446744073709551616", None),
            ("bytes 0-18446744073709551616/99", None),
            ("bytes 0-499/*", None),
            ("bytes */1234", None),
            ("bytes=0-499/1234", None),
            ("bytes 0-499", None),
            ("bytes  0-499/1234", None),
            ("bytes 0-499/1234 ", None),
            ("bytes +0-499/1234", None),
            ("bytes 0-4-9/1234", None),
            ("lines 0-499/1234", None),
            ("bytes -/", None),
            ("", None),
        ] {
            assert_eq!(content_range(text.as_bytes()), wanted, "{text}");
        }
        assert_eq!(
            content_range(b"bytes 0-18446744073709551614/18446744073709551615").map(ContentRange::len),
            Some(u64::MAX)
        );
    }

    #[test]
    fn a_range_is_sought_before_the_length_is_known() {
        for (text, wanted) in [
            ("bytes=0-", Some(Sought::From(0))),
            ("bytes=5-9", Some(Sought::From(5))),
            ("bytes=99999999999999999999-", Some(Sought::From(u64::MAX))),
            ("bytes= 7-8 ,", Some(Sought::From(7))),
            ("bytes=-5", Some(Sought::Last)),
            ("bytes=0-1,4-5", None),
            ("bytes=5-4", None),
            ("lines=1-2", None),
            ("bytes=-", None),
        ] {
            assert_eq!(sought(text.as_bytes()), wanted, "{text}");
        }
    }

    #[test]
    fn several_ranges_and_what_is_malformed_get_the_whole() {
        for text in [
            "bytes=0-1,5-6",
            "bytes=",
            "bytes",
            "items=0-1",
            "bytes=5-1",
            "bytes=a-b",
            "bytes=--5",
            "bytes=1-2-3",
            "bytes=- 5",
            "bytes=0x1-2",
            "bytes=+1-2",
        ] {
            assert_eq!(asked(text.as_bytes(), 1000), Asked::Whole, "{text}");
        }
    }
}
