//! Responses that are made here, and of which the body is read while it is sent: files, and what is stored.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::content::Content;

/// A part of a body.
#[derive(Clone)]
pub enum Part {
    /// Bytes that are in memory.
    Bytes(Arc<[u8]>),
    /// Bytes that are read piece by piece, a buffer at a time.
    Range {
        /// Where they are.
        content: Arc<dyn Content>,
        /// Which of its bytes.
        range: Range<u64>,
    },
}

impl Part {
    /// Returns how many bytes it has.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Range { range, .. } => range.end.saturating_sub(range.start),
        }
    }

    /// Returns whether it has no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.debug_tuple("Bytes").field(&bytes.len()).finish(),
            Self::Range { range, .. } => f.debug_tuple("Range").field(range).finish(),
        }
    }
}

/// A response like [`model::LocalResponse`], with a body in parts. Its length is known: `content-length` is set.
#[derive(Clone, Debug)]
pub struct StreamedResponse {
    /// Status code, 200 to 599.
    pub status: u16,
    /// Fields without those of the framing.
    pub fields: Vec<(String, String)>,
    /// The body. HEAD, 204 and 304 get none of it.
    pub parts: Vec<Part>,
}

impl StreamedResponse {
    /// Returns the length of the body in bytes.
    pub fn length(&self) -> u64 {
        self.parts.iter().map(Part::len).fold(0, u64::saturating_add)
    }
}

/// Two are equal if they are the same.
impl PartialEq for StreamedResponse {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for StreamedResponse {}
