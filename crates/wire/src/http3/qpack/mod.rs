//! Field sections (RFC 9204), without the dynamic table: we offer none, and use none. So a section is read by itself, no
//! stream waits for another, and no few bytes become many: a line of a section takes at least as many bytes as it costs, but
//! for those of the static table and for what the Huffman code saves.

mod table;

use crate::compression::{Unreadable, integer, push_integer, push_string, string};

/// What each field costs beside its bytes, where a section has a bound (RFC 9114 section 4.2.2).
const FIELD_OVERHEAD_BYTES: usize = 32;

/// Why a section cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadSection {
    /// It breaks RFC 9204, or refers to a table that there is not (section 2.2.3).
    Undecodable,
    /// It is larger than allowed, as RFC 9114 section 4.2.2 counts.
    TooLarge,
}

impl From<Unreadable> for BadSection {
    fn from(Unreadable: Unreadable) -> Self {
        Self::Undecodable
    }
}

/// Memory for strings while a section is read; kept for the next.
#[derive(Debug, Default)]
pub struct Scratch {
    name: Vec<u8>,
    value: Vec<u8>,
}

/// A name and its value.
pub type Line<'l> = (&'l [u8], &'l [u8]);

/// The lines of a section, one after the other.
pub struct Lines<'s> {
    rest: &'s [u8],
    scratch: &'s mut Scratch,
    left_bytes: usize,
}

impl<'s> Lines<'s> {
    /// Begins with a section that may be as large as `bytes_max`.
    ///
    /// # Errors
    /// Its prefix wants a dynamic table (RFC 9204 section 4.5.1).
    pub fn new(section: &'s [u8], scratch: &'s mut Scratch, bytes_max: usize) -> Result<Self, BadSection> {
        let mut rest = section;
        if integer(&mut rest, 8)? != 0 {
            return Err(BadSection::Undecodable);
        }
        // Section 4.5.1.2: with nothing required, the base cannot lie before it.
        if rest.first().is_some_and(|first| first & 0x80 != 0) {
            return Err(BadSection::Undecodable);
        }
        integer(&mut rest, 7)?;
        Ok(Self { rest, scratch, left_bytes: bytes_max })
    }

    /// The next line as name and value, or `None` at the end.
    ///
    /// # Errors
    /// See [`BadSection`].
    #[expect(clippy::should_implement_trait, reason = "what it gives lies in the scratch memory until the next call")]
    pub fn next(&mut self) -> Result<Option<Line<'_>>, BadSection> {
        let Some(first) = self.rest.first().copied() else { return Ok(None) };
        let (name, value) = match first {
            // Indexed, static (section 4.5.2).
            0xc0.. => {
                let (name, value) = entry(integer(&mut self.rest, 6)?)?;
                (name.as_bytes(), value.as_bytes())
            }
            // Literal with the name of a static entry (section 4.5.4).
            0x50..0x60 | 0x70..0x80 => {
                let (name, _) = entry(integer(&mut self.rest, 4)?)?;
                (name.as_bytes(), string(&mut self.rest, 7, &mut self.scratch.value)?)
            }
            // Literal with a literal name (section 4.5.6).
            0x20..0x40 => {
                let name = string(&mut self.rest, 3, &mut self.scratch.name)?;
                (name, string(&mut self.rest, 7, &mut self.scratch.value)?)
            }
            // All else refers to the dynamic table.
            _ => return Err(BadSection::Undecodable),
        };
        let cost = name.len() + value.len() + FIELD_OVERHEAD_BYTES;
        self.left_bytes = self.left_bytes.checked_sub(cost).ok_or(BadSection::TooLarge)?;
        Ok(Some((name, value)))
    }
}

fn entry(index: u64) -> Result<(&'static str, &'static str), BadSection> {
    table::TABLE.get(index as usize).copied().ok_or(BadSection::Undecodable)
}

/// Begins a section (RFC 9204 section 4.5.1): it needs no dynamic table.
pub fn begin_section(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0, 0]);
}

/// Adds `:status`.
pub fn push_status(out: &mut Vec<u8>, status: u16) {
    let index = match status {
        103 => 24,
        200 => 25,
        304 => 26,
        404 => 27,
        503 => 28,
        100 => 63,
        204 => 64,
        206 => 65,
        302 => 66,
        400 => 67,
        403 => 68,
        421 => 69,
        425 => 70,
        500 => 71,
        _ => {
            let digits = [100, 10, 1].map(|unit| b'0' + (status / unit % 10) as u8);
            push_integer(out, 0x50, 4, 24);
            push_string(out, &digits);
            return;
        }
    };
    push_integer(out, 0xc0, 6, index);
}

/// Adds a field. Its name becomes lower case, as RFC 9114 section 4.2 wants it.
pub fn push_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let mut lower = [0; 32];
    let known = match lower.get_mut(..name.len()) {
        Some(lower) => {
            lower.copy_from_slice(name);
            lower.make_ascii_lowercase();
            table::find_name(lower)
        }
        None => None,
    };
    let Some((first, count)) = known else {
        push_integer(out, 0x20, 3, name.len() as u64);
        let start = out.len();
        out.extend_from_slice(name);
        out[start..].make_ascii_lowercase();
        push_string(out, value);
        return;
    };
    let beside = usize::from(first)..usize::from(first) + usize::from(count);
    match beside.clone().find(|index| table::TABLE[*index].1.as_bytes() == value) {
        Some(index) => push_integer(out, 0xc0, 6, index as u64),
        None => {
            push_integer(out, 0x50, 4, u64::from(first));
            push_string(out, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(section: &[u8], bytes_max: usize) -> Result<Vec<(String, String)>, BadSection> {
        let mut scratch = Scratch::default();
        let mut lines = Lines::new(section, &mut scratch, bytes_max)?;
        let mut all = Vec::new();
        while let Some((name, value)) = lines.next()? {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            all.push((text(name), text(value)));
        }
        Ok(all)
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn the_example_of_the_standard_is_read() {
        // RFC 9204 appendix B.1.
        let section = b"\x00\x00\x51\x0b/index.html";
        assert_eq!(lines(section, 100), Ok(vec![pair(":path", "/index.html")]));
    }

    #[test]
    fn what_is_written_is_read_again() {
        let long = "v".repeat(300);
        let fields = [
            ("Content-Type", "text/plain"),
            ("content-type", "text/x"),
            ("X-Own", long.as_str()),
            ("date", ""),
            ("x", ""),
            ("a-name-that-is-longer-than-any-of-the-static-table", "y"),
        ];
        for status in [100, 103, 200, 204, 206, 302, 304, 400, 403, 404, 418, 421, 425, 500, 503, 599] {
            let mut section = Vec::new();
            begin_section(&mut section);
            push_status(&mut section, status);
            fields.iter().for_each(|(name, value)| push_field(&mut section, name.as_bytes(), value.as_bytes()));
            let mut wanted = vec![pair(":status", &status.to_string())];
            wanted.extend(fields.iter().map(|(name, value)| pair(&name.to_ascii_lowercase(), value)));
            assert_eq!(lines(&section, 10_000), Ok(wanted));
        }
    }

    #[test]
    fn every_entry_of_the_table_is_found_by_its_name() {
        for (index, (name, value)) in table::TABLE.iter().enumerate() {
            let (first, _) = table::find_name(name.as_bytes()).unwrap();
            assert_eq!(table::TABLE[usize::from(first)].0, *name);
            let mut section = vec![0, 0];
            push_integer(&mut section, 0xc0, 6, index as u64);
            assert_eq!(lines(&section, 200), Ok(vec![pair(name, value)]));
        }
    }

    #[test]
    fn what_needs_a_dynamic_table_is_refused() {
        let sections: [&[u8]; 8] = [
            b"",
            b"\x01\x00",
            // A base that lies before what is required.
            b"\x00\x80\xd1",
            b"\x00\x00\x80",
            b"\x00\x00\x10",
            b"\x00\x00\x40\x01a",
            b"\x00\x00\x00\x01a",
            // Behind the end of the static table.
            b"\x00\x00\xff\x24",
        ];
        for section in sections {
            assert_eq!(lines(section, 1_000), Err(BadSection::Undecodable), "{section:?}");
        }
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for section in
            [&b"\x00\x00\x51\x7f\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..], b"\x00\x00\x51\x05ab", b"\x00\x00\x23ab"]
        {
            assert_eq!(lines(section, 1_000), Err(BadSection::Undecodable), "{section:?}");
        }
    }

    #[test]
    fn a_section_has_a_bound_however_little_its_lines_take() {
        // Each `:path: /` takes one byte, and counts 38.
        let mut section = vec![0, 0];
        section.extend_from_slice(&[0xc1; 100]);
        assert_eq!(lines(&section, 38 * 100).map(|lines| lines.len()), Ok(100));
        assert_eq!(lines(&section, 38 * 100 - 1), Err(BadSection::TooLarge));
    }
}
