//! Towards endpoints: connections kept for reuse, new ones, and the conversation on one.

pub(crate) mod connect;
pub(crate) mod conversation;
pub(crate) mod hedge_connect;
pub(crate) mod opening;
pub(crate) mod pool;
pub(crate) mod shared;

use pool::UpstreamConnection;
use shared::permit::StreamPermit;

/// What a conversation is held on.
pub(crate) enum Line {
    /// A connection of its own.
    Http1(UpstreamConnection),
    /// A stream, not begun yet, of a connection that others use too.
    Shared(Box<StreamPermit>),
}
