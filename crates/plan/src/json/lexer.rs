//! Words of a JSON text (RFC 8259), read without memory of their own.

use std::borrow::Cow;

/// Objects and arrays inside one another. A deeper text counts as no JSON.
pub const DEPTH_MAX: usize = 64;

/// Reads a text from its beginning to its end.
pub(crate) struct Lexer<'t> {
    pub text: &'t [u8],
    /// The next byte.
    pub at: usize,
}

impl<'t> Lexer<'t> {
    /// Returns one at the beginning of a text, which must be UTF-8 (RFC 8259 section 8.1). Returns `None` if it is not.
    pub(crate) fn new(text: &'t [u8]) -> Option<Self> {
        std::str::from_utf8(text).is_ok().then_some(Self { text, at: 0 })
    }

    /// Returns whether nothing but white space is left.
    pub(crate) fn is_over(&mut self) -> bool {
        self.space();
        self.at == self.text.len()
    }

    pub(crate) fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Goes on behind this byte, if it is next.
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Goes on to the next item of a list, or behind its end. Returns whether there is a next one; `None` if it is neither.
    pub(crate) fn next(&mut self, end: u8) -> Option<bool> {
        self.space();
        match (self.eat(b','), self.eat(end)) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ => None,
        }
    }

    /// Goes into an object or an array. Returns whether there is a first item.
    pub(crate) fn enter(&mut self, end: u8) -> bool {
        self.at += 1;
        self.space();
        !self.eat(end)
    }

    /// Goes on behind the colon between a name and its value.
    pub(crate) fn colon(&mut self) -> Option<()> {
        self.space();
        self.eat(b':').then_some(())
    }

    /// Returns a text between its quotes, as it is written.
    pub(crate) fn raw_text(&mut self) -> Option<&'t [u8]> {
        if !self.eat(b'"') {
            return None;
        }
        let start = self.at;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.at += 2,
                0..0x20 => return None,
                _ => self.at += 1,
            }
        }
        let raw = self.text.get(start..self.at)?;
        self.at += 1;
        Some(raw)
    }

    /// Reads a number, `true`, `false` or `null`.
    pub(crate) fn literal(&mut self) -> Option<&'t [u8]> {
        let start = self.at;
        let is_word = |word: &&[u8]| self.text[start..].starts_with(word);
        match [&b"true"[..], b"false", b"null"].into_iter().find(is_word) {
            Some(word) => self.at += word.len(),
            None => self.number()?,
        }
        Some(&self.text[start..self.at])
    }

    /// Reads a number (RFC 8259 section 6).
    fn number(&mut self) -> Option<()> {
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        if self.eat(b'.') {
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            let _sign = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

/// Returns the place in an array that a name stands for (RFC 6901 section 4).
pub(crate) fn place(name: &str) -> Option<usize> {
    let is_place = name == "0" || !name.starts_with('0') && name.bytes().all(|byte| byte.is_ascii_digit());
    is_place.then(|| name.parse().ok())?
}

/// Returns what a text stands for (RFC 8259 section 7). `None`: an escape is wrong.
pub(crate) fn unescaped(raw: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(first) = memchr::memchr(b'\\', raw) else { return Some(Cow::Borrowed(raw)) };
    let mut text = raw[..first].to_vec();
    let mut rest = &raw[first..];
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            text.push(byte);
            continue;
        }
        let (&escape, tail) = rest.split_first()?;
        rest = tail;
        match escape {
            b'"' | b'\\' | b'/' => text.push(escape),
            b'b' => text.push(8),
            b'f' => text.push(12),
            b'n' => text.push(b'\n'),
            b'r' => text.push(b'\r'),
            b't' => text.push(b'\t'),
            b'u' => {
                let (character, tail) = character(rest)?;
                rest = tail;
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            _ => return None,
        }
    }
    Some(Cow::Owned(text))
}

/// Reads what follows `\u`: four digits, and for a pair of surrogates another escape.
fn character(rest: &[u8]) -> Option<(char, &[u8])> {
    let (high, rest) = unit(rest)?;
    if !(0xd800..0xdc00).contains(&high) {
        return Some((char::from_u32(high)?, rest));
    }
    let (low, rest) = unit(rest.strip_prefix(b"\\u")?)?;
    let low = low.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
    Some((char::from_u32(0x1_0000 + ((high - 0xd800) << 10) + low)?, rest))
}

fn unit(text: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_at_checked(4)?;
    let digit = |value: u32, byte: &u8| Some(value << 4 | char::from(*byte).to_digit(16)?);
    Some((digits.iter().try_fold(0, digit)?, rest))
}
