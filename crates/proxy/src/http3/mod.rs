//! HTTP/3 as both sides need it: QUIC connections as a worker drives them ([`Socket`], [`Quic`]), and one of their streams as a
//! byte stream with a head and trailers ([`Stream`], which is a `MessageStream`).
//!
//! ```text
//!              ┌ Socket: of this worker ─────────────────────────────────┐
//!  datagrams ─►│ whose is it? ── another worker's ─► its Socket, bounded │
//!            ◄─│       └─ ours ─► Quic: a connection ─► wakes tasks      │
//!              └─────────────────────────────────────────────────────────┘
//!  tasks:  downstream::http3 (a client's connection) ── an exchange per stream, reading and writing by Stream
//!          upstream::shared::http3 (one to an endpoint) ── streams of exchanges, by Stream
//! ```
//!
//! The state of connections is that of the `quinn-proto` library, which does no I/O; frames and field sections are ours
//! (`wire::http3`). A connection belongs to one worker, so nothing of it is locked, and no task stands between the socket
//! and the streams: the task of the socket takes datagrams in, wakes who waits, and sends what they have written meanwhile.

mod control;
mod ids;
mod outgoing;
mod quic;
mod socket;
mod stream;
pub(crate) mod transport;

pub(crate) use control::Control;
pub(crate) use ids::{Generation, Hub, Keys, RESET_KEY_BYTES, hubs};
pub(crate) use outgoing::Outgoing;
pub(crate) use quic::{CloseReason, Quic, ReadFault};
pub(crate) use socket::{Socket, local_of};
pub(crate) use stream::{Counts, NoHead, Stream};
pub(crate) use transport::outgoing_transport;
