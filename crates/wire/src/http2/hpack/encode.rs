//! From fields to blocks.

use super::table;
use crate::compression::{push_integer, push_shorter_string, push_string};

/// How values are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strings {
    /// In the Huffman code where that is shorter: a quarter less for most text, for about a nanosecond a byte.
    #[default]
    Shorter,
    /// As they are.
    Plain,
}

/// Writes the blocks of one direction of a connection.
///
/// It tells the peer to remember nothing. A table would spare some 60 bytes of a response (`server`, `content-type`, parts of
/// `cache-control`), and cost a search for every field and 4 KiB for every connection; of what is long, `date` holds for a
/// second, `etag`, `location` and `set-cookie` for one response. What is left is a copy of few bytes, which is the cheapest of
/// all that happens to a response.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    strings: Strings,
    has_begun: bool,
}

impl Encoder {
    /// For a new connection.
    pub fn new(strings: Strings) -> Self {
        Self { strings, has_begun: false }
    }

    /// Begins a block.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.has_begun {
            self.has_begun = true;
            // RFC 7541 section 4.2: the table has no size. Said once, it also answers whatever size the peer sets.
            push_integer(out, 0x20, 5, 0);
        }
    }

    /// Adds `:status`, which is 100 to 999.
    pub fn push_status(&self, out: &mut Vec<u8>, status: u16) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                push_integer(out, 0, 4, 8);
                push_string(out, &[100, 10, 1].map(|unit| b'0' + (status / unit % 10) as u8));
                return;
            }
        };
        push_integer(out, 0x80, 7, index);
    }

    /// Adds `:method` and `:scheme`.
    pub fn push_request_line(&self, out: &mut Vec<u8>, method: &[u8], is_https: bool) {
        match method {
            b"GET" => push_integer(out, 0x80, 7, 2),
            b"POST" => push_integer(out, 0x80, 7, 3),
            _ => self.push_field(out, b":method", method),
        }
        push_integer(out, 0x80, 7, if is_https { 7 } else { 6 });
    }

    /// Adds a field. Its name becomes lower case, as RFC 9113 section 8.2.1 wants it.
    pub fn push_field(&self, out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
        let mut lower = [0; 32];
        let known = match lower.get_mut(..name.len()) {
            Some(lower) => {
                lower.copy_from_slice(name);
                lower.make_ascii_lowercase();
                table::find_name(lower)
            }
            None => None,
        };
        match known {
            Some(index) => push_integer(out, 0, 4, u64::from(index)),
            None => {
                // Names are short; a byte or two would be all that the code spares.
                push_integer(out, 0, 4, 0);
                push_integer(out, 0, 7, name.len() as u64);
                let start = out.len();
                out.extend_from_slice(name);
                out[start..].make_ascii_lowercase();
            }
        }
        match self.strings {
            Strings::Shorter => push_shorter_string(out, value),
            Strings::Plain => push_string(out, value),
        }
    }
}
