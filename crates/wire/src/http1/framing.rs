//! How the end of a body is known (RFC 9112 section 6), and the two fields that say it.

use model::fields::is_token;

use crate::text::list;

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body. Of a response: none may follow, whatever its fields say (HEAD, 1xx, 204, 304).
    None,
    /// So many bytes. For requests never 0, which is [`Framing::None`].
    Length(u64),
    /// Chunks (RFC 9112 section 7.1).
    Chunked,
    /// Until the connection ends; responses only (RFC 9112 section 6.3 rule 8).
    UntilClose,
}

/// What `Content-Length` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Length {
    #[default]
    Absent,
    Value(u64),
    Invalid,
}

impl Length {
    /// RFC 9110 section 8.6. A second field, or a list, is rejected even when all values are equal. RFC 9112 section 6.3 rule 5 allows
    /// merging equal values, but a sender of two is broken or hostile.
    pub(crate) fn add(&mut self, value: &[u8]) {
        *self = match (&self, decimal(value)) {
            (Self::Absent, Some(length)) => Self::Value(length),
            _ => Self::Invalid,
        };
    }
}

/// `1*DIGIT` that fits in 64 bits: no sign, no space, no list.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { sum.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// What the `Transfer-Encoding` fields say together (RFC 9112 section 6.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Codings {
    present: bool,
    chunked: u32,
    last_is_chunked: bool,
    others: bool,
    malformed: bool,
}

/// What follows from [`Codings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    Absent,
    /// `chunked`, once, alone.
    Chunked,
    /// Well formed, `chunked` last, other codings before it.
    Unsupported,
    /// Anything else, such as `chunked` not last, twice, with a parameter, or an empty member.
    Invalid,
}

impl Codings {
    pub(crate) fn add(&mut self, value: &[u8]) {
        self.present = true;
        for member in list(value) {
            let name = member.split(|&byte| byte == b';').next().unwrap_or_default();
            self.last_is_chunked = member.eq_ignore_ascii_case(b"chunked");
            if self.last_is_chunked {
                self.chunked += 1;
            } else if is_token(crate::text::trim(name)) {
                self.others = true;
            } else {
                self.malformed = true;
            }
        }
    }

    pub(crate) fn verdict(&self) -> Transfer {
        if !self.present {
            Transfer::Absent
        } else if self.malformed || self.chunked != 1 || !self.last_is_chunked {
            Transfer::Invalid
        } else if self.others {
            Transfer::Unsupported
        } else {
            Transfer::Chunked
        }
    }
}
