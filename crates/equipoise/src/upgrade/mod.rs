//! Another program takes over while this one runs, and nobody who connects is turned away.
//!
//! ```text
//! old: Successor                                 new: Predecessor
//!   starts the program, with one end of a socket
//!   Offer: the very same sockets, wishes,   ──►  reads its configuration, makes workers, plan and TLS ready,
//!          changes by the API, generation        holds the sockets
//!                                           ◄──  Prepared: the sockets it wants — or Refused
//!   State: sessions, counters               ──►  takes these in
//!                                           ◄──  Prepared
//!   reads no datagrams any more
//!   State: health, flows, newer sessions    ──►  takes these in, takes what arrives
//!                                           ◄──  Ready
//!   drains, ends
//!   Figures, again and again                ──►  counts on from there
//! ```
//! Whatever goes wrong before `Ready` ends the new program and changes nothing in the old one. The formats are JSON objects, in
//! which either side passes over what it does not know and does without what is missing: versions may differ.

pub(crate) mod channel;
pub(crate) mod manifest;
pub(crate) mod predecessor;
pub(crate) mod program;
pub(crate) mod successor;

pub(crate) use predecessor::{Ear, Predecessor};
pub(crate) use program::Program;
pub(crate) use successor::Successor;

/// The variable by which a new program knows its end of the socket: the number of the descriptor.
pub(crate) const VARIABLE: &str = "EQUIPOISE_UPGRADE_FD";

/// Whether this process was started to follow another.
pub(crate) fn is_to_follow() -> bool {
    std::env::var_os(VARIABLE).is_some()
}
