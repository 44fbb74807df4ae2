//! What instances say to each other to keep their tables alike: frames, records of tables, and the journal of what one has counted.
//!
//! ```text
//!  sender ── Hello ──► receiver     the sender has dialed; it sends what it has counted
//!         ◄── Hello ──
//!         ◄── Follow ─              from a number of its journal on; or Teach: all that the sender knows
//!         ── Segment ─►             increments; each number once, in order
//!         ◄── Ack ────
//!         ◄── FollowSessions
//!         ── Sessions ─►            sessions that clusters have learned; the newer entry of a key stays
//!         ◄── AckSessions
//! ```
//! A frame is the length of what follows (32 bits), its type (8 bits), and its body. Numbers are big-endian, or variable (LEB128) where
//! that is said. A frame of an unknown type is passed over, so that a newer version can add some.

mod bytes;
mod frame;
mod journal;
mod record;
mod session;
#[cfg(test)]
mod tests;

pub use frame::{FRAME_BYTES_MAX, Frame, Hello, KNOWN_MAX, NAME_BYTES_MAX, Segment, Sessions, VERSION, next, write};
pub use journal::{Gap, Journal};
pub use record::{BLOCK_BYTES_MAX, Block, Blocks, KEY_BYTES_MAX, Record, Records, VALUES_MAX, write_block};
pub use session::SessionRecord;

/// Why bytes of a peer are of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}
