//! Ranges of bytes (RFC 9110 section 14), with bounds on what a client may ask for at once.

use std::ops::Range;

/// Ranges of one request that are answered in parts. A request for more gets the whole file.
pub(super) const RANGES_MAX: usize = 16;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The whole file.
    Whole,
    /// These parts of it, in this order; none is empty.
    Parts(Vec<Range<u64>>),
    /// Nothing that is there (416).
    Unsatisfiable,
}

/// Reads a `range` field for a file of `length` bytes. One that is malformed, has another unit or more than [`RANGES_MAX`] ranges, or asks
/// for more bytes than there are, as overlapping ranges do, is ignored (RFC 9110 sections 14.2 and 17.15).
pub fn asked(value: &[u8], length: u64) -> Asked {
    let Some(list) = of_bytes(value) else { return Asked::Whole };
    let (mut parts, mut count, mut bytes) = (Vec::new(), 0, 0_u128);
    for spec in list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|spec| !spec.is_empty()) {
        count += 1;
        let Some(range) = one(spec, length) else { return Asked::Whole };
        if count > RANGES_MAX {
            return Asked::Whole;
        }
        if !range.is_empty() {
            bytes += u128::from(range.end - range.start);
            parts.push(range);
        }
    }
    match parts.len() {
        _ if count == 0 => Asked::Whole,
        0 => Asked::Unsatisfiable,
        2.. if bytes > u128::from(length) => Asked::Whole,
        _ => Asked::Parts(parts),
    }
}

fn of_bytes(value: &[u8]) -> Option<&[u8]> {
    let at = value.iter().position(|byte| *byte == b'=')?;
    value[..at].eq_ignore_ascii_case(b"bytes").then_some(&value[at + 1..])
}

/// The bytes of one range; empty if it lies behind the end. `None`: it is malformed.
fn one(spec: &[u8], length: u64) -> Option<Range<u64>> {
    let at = spec.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&spec[..at], &spec[at + 1..]);
    if first.is_empty() {
        return Some(length.saturating_sub(number(last)?)..length);
    }
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    if last < first {
        return None;
    }
    Some(first.min(length)..last.saturating_add(1).min(length))
}

/// A number; one that does not fit is as large as can be.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_shows() {
        // RFC 9110 section 14.1.2.
        let parts = |list: &[(u64, u64)]| Asked::Parts(list.iter().map(|(start, end)| *start..*end).collect());
        for (value, wanted) in [
            ("bytes=0-499", parts(&[(0, 500)])),
            ("bytes=500-999", parts(&[(500, 1_000)])),
            ("BYTES=-500", parts(&[(9_500, 10_000)])),
            ("bytes=9500-", parts(&[(9_500, 10_000)])),
            ("bytes=0-0,-1", parts(&[(0, 1), (9_999, 10_000)])),
            ("bytes= 0-0 , ,\t9999-20000 ", parts(&[(0, 1), (9_999, 10_000)])),
            ("bytes=-20000", parts(&[(0, 10_000)])),
            ("bytes=0-99999999999999999999999", parts(&[(0, 10_000)])),
            ("bytes=5-5,10000-", parts(&[(5, 6)])),
            ("bytes=10000-", Asked::Unsatisfiable),
            ("bytes=99999999999999999999999-", Asked::Unsatisfiable),
            ("bytes=-0", Asked::Unsatisfiable),
        ] {
            assert_eq!(asked(value.as_bytes(), 10_000), wanted, "{value}");
        }
        assert_eq!(asked(b"bytes=0-", 0), Asked::Unsatisfiable);
        assert_eq!(asked(b"bytes=0-", u64::MAX), parts(&[(0, u64::MAX)]));
    }

    #[test]
    fn what_is_malformed_or_abuse_gets_the_whole_file() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=5-1",
            "bytes=a-b",
            "bytes=--5",
            "bytes=1-2-3",
            "bytes=0x1-2",
            "bytes=+1-2",
            "items=0-1",
            "bytes =0-1",
            "bytes=0-1;2-3",
            "bytes=- 5",
        ] {
            assert_eq!(asked(value.as_bytes(), 100), Asked::Whole, "{value}");
        }
        // Of the kind of CVE-2011-3192.
        let many: String = (0..1_300).map(|place| format!(",5-{place}")).collect();
        assert_eq!(asked(format!("bytes=0-{many}").as_bytes(), 100), Asked::Whole);
        assert_eq!(asked(b"bytes=0-,0-", 100), Asked::Whole);
        assert_eq!(asked(b"bytes=0-60,40-99", 100), Asked::Whole);
        let most = |count: usize| format!("bytes={}", vec!["1-1"; count].join(","));
        assert!(matches!(asked(most(RANGES_MAX).as_bytes(), 100), Asked::Parts(_)));
        assert_eq!(asked(most(RANGES_MAX + 1).as_bytes(), 100), Asked::Whole);
    }
}
