//! Moving bytes: the one relay for request bodies, response bodies, tunnels and TCP streams.
//!
//! A [`Pump`] moves one direction. A [`BodyReader`](body::BodyReader) takes the sender's framing off, a [`BodyWriter`] puts the receiver's
//! on; a protocol is added by a variant of each, not by another loop. Between the two a body may pass [`Stages`] that see or change it.
//! Memory is bounded by one buffer per direction, and one more for each stage that codes: the pump reads only when all it read before is
//! written, and the receiver's slowness reaches the sender through TCP.
//!
//! ```text
//! sender ─ read ─► framing off ─► stages ─► framing on ─► outgoing ─ write ─► receiver
//!                                 (if any)
//! ```

mod body;
mod fault;
mod hold;
#[cfg(test)]
mod long_body_tests;
mod pace;
mod parts;
mod pump;
mod stage;
mod tunnel;

pub(crate) use body::{Ahead, BodyWriter};
pub(crate) use fault::PumpFault;
pub(crate) use hold::{Held, tell};
pub(crate) use parts::Parts;
pub(crate) use pump::Pump;
pub(crate) use stage::Stages;
pub(crate) use tunnel::{Side, Tunnel, TunnelEnd};
