//! How the two sides of a body mark its end.

use model::fields::Fields;
use wire::http1::{ChunkDecoder, Framing, HeadLimits};

use crate::io::Io;

/// How the sender marks the end of a body.
pub(super) enum BodyReader {
    /// All of it is read.
    Done,
    /// This many bytes are still to come.
    Length(u64),
    /// Chunks; boxed because it is rare and large.
    Chunked(Box<Chunks>),
    /// Until the sender ends its half.
    UntilClose,
    /// Until the sender ends the stream that is the message's own, with trailers or without. What is left of a length, if
    /// one was given: the two must agree (RFC 9113 section 8.1.1).
    Stream(Option<u64>),
    /// The same without a length, and with a bound: what may still come.
    BoundedStream(u64),
    /// What was read ahead, and then the rest; boxed because it is rare and large.
    Ahead(Box<Ahead>),
    /// Only the end is still to come, and this byte waits for it: see [`BodyWriter::Held`].
    Held(u8),
}

/// A body in chunks.
pub(super) struct Chunks {
    pub decoder: ChunkDecoder,
    /// Bytes that may still come; `u64::MAX` without a bound.
    pub left: u64,
}

/// The beginning of a body that was read before it was known where to it goes, and how its sender marks the end of the rest.
pub(crate) struct Ahead {
    pub(super) bytes: Vec<u8>,
    /// So many of them have gone on.
    pub(super) at: usize,
    pub(super) then: BodyReader,
    /// What ends it, if all of it was read.
    pub(super) trailers: Option<Box<Fields>>,
}

impl Ahead {
    /// Returns what was read; it is all of the body if that has ended.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl BodyReader {
    /// Bounds a body that does not say its length ahead.
    pub(super) fn bound(&mut self, max: u64) {
        match self {
            Self::Chunked(chunks) => chunks.left = max,
            Self::Stream(None) | Self::BoundedStream(_) => *self = Self::BoundedStream(max),
            Self::Ahead(ahead) => ahead.then.bound(max.saturating_sub(ahead.bytes.len() as u64)),
            Self::Done | Self::Length(_) | Self::UntilClose | Self::Stream(Some(_)) | Self::Held(_) => {}
        }
    }

    pub(super) fn new(framing: Framing, from: &Io) -> Self {
        match framing {
            // The end of a stream may come later, which is nothing that the receiver has to wait for.
            Framing::None | Framing::Length(0) => Self::Done,
            Framing::Length(length) if from.ends_by_itself() => Self::Stream(Some(length)),
            _ if from.is_message() => Self::Stream(None),
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => {
                Self::Chunked(Box::new(Chunks { decoder: ChunkDecoder::new(&HeadLimits::default()), left: u64::MAX }))
            }
            Framing::UntilClose => Self::UntilClose,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}

/// How the receiver recognises the end of a body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyWriter {
    /// By the length in the head, or by the end of the stream.
    Plain,
    /// By the length in the head. The last byte waits until the sender's stream has ended, for only then is the message whole:
    /// content beyond its length, or bad trailers, would make it malformed (RFC 9113 section 8.1.1).
    Held,
    /// By chunks.
    Chunked,
    /// By the end of the stream that is the message's own. One that is empty from the start ends with its head.
    Stream,
}

impl BodyWriter {
    /// How a body that is sent with this framing is ended.
    pub(crate) fn new(framing: Framing, to: &Io) -> Self {
        match framing {
            _ if to.is_message() => Self::Stream,
            Framing::Chunked => Self::Chunked,
            _ => Self::Plain,
        }
    }
}
