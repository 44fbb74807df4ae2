//! HTTP/1.1 messages (RFC 9112): heads in and out, framing, chunks.
//!
//! ```text
//! bytes → HeadScan → parse_request  → RequestHead,  RequestParsed  → … filters … → write_request  → bytes
//! bytes → HeadScan → parse_response → ResponseHead, ResponseParsed → … filters … → write_response → bytes
//! ```
//!
//! What is accepted is narrower than what RFC 9112 lets a recipient accept: wherever two programs could read the same
//! bytes as different messages, the message is rejected. An accepted head is written again, field by field, so an
//! endpoint never sees a byte of framing that a client chose.
//!
//! Who removes what (RFC 9110 section 7.6.1): [`parse_request`] and [`parse_response`] remove the fields that
//! `Connection` names, before any filter runs, so that a client cannot make us remove a field that a filter added. The
//! hop-by-hop fields themselves (`Connection`, `Upgrade`, `TE`, …) stay in the head, where routes may match them; the
//! writers leave them out. [`strip_hop_by_hop`] does both, for heads that cross to another HTTP version.

mod chunked;
pub mod client;
mod connection;
pub(crate) mod framing;
mod request;
mod response;
mod scan;
pub(crate) mod tally;
pub(crate) mod target;
mod write;

pub use chunked::{
    BadChunk, CHUNK_HEAD_BYTES_MAX, CHUNK_TAIL, ChunkDecoder, Decoded, Piece, may_be_trailer, write_chunk_head,
    write_last_chunk,
};
pub use connection::strip_hop_by_hop;
pub use framing::Framing;
pub use request::{RequestParsed, parse_request};
pub use response::{ResponseParsed, parse_response};
pub use scan::HeadScan;
pub use target::is_authority;
pub use write::{SendLocal, SendRequest, SendResponse, write_local_response, write_request, write_response};

/// Bounds of a head, as a listener or cluster sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Largest head in bytes, from its first byte (empty lines before a request line included) to its empty line.
    pub head_bytes_max: usize,
    /// Largest number of fields in a head, or in a trailer section. At most [`model::limits::FIELDS_HARD_MAX`] counts.
    pub fields_max: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self { head_bytes_max: model::limits::HEAD_BYTES_MAX, fields_max: model::limits::FIELDS_MAX }
    }
}

/// Where `part`, a slice of `whole`, lies in the arena when `whole` was loaded at `base`.
fn span_of(part: &[u8], whole: &[u8], base: usize) -> model::fields::Span {
    // An empty part may point anywhere (httparse gives a static one for some reasons).
    if part.is_empty() {
        return model::fields::Span::default();
    }
    let start = base + (part.as_ptr() as usize - whole.as_ptr() as usize);
    model::fields::Span::new(start, start + part.len())
}
