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
