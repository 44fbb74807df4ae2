//! The compression of fields (RFC 7541).
//!
//! ```text
//! a block → Decoder → names and values, one after the other, to whoever wants them
//! status, names and values → Encoder → a block
//! ```
//!
//! What a peer tells us to remember lies in one block of bytes that is no larger than we allow. What we send is remembered by
//! nobody: see [`Encoder`].

mod decode;
mod dynamic;
mod encode;
mod table;

pub use decode::{BadBlock, Decoded, Decoder};
pub use encode::{Encoder, Strings};

/// What a field counts in the table beside the bytes of its name and value (section 4.1), and in a list of fields (RFC 9113
/// section 6.5.2).
const FIELD_OVERHEAD_BYTES: usize = crate::crossing::FIELD_OVERHEAD_BYTES;

/// How large a dynamic table is where nothing else was said (RFC 9113 section 6.5.2).
pub const TABLE_BYTES: usize = 4096;

#[cfg(test)]
mod tests;
