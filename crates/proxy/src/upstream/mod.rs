//! Towards endpoints: connections kept for reuse, new ones, and the conversation on one.

pub(crate) mod connect;
mod connection;
pub(crate) mod conversation;
pub(crate) mod hedge_connect;
pub(crate) mod hedge_line;
pub(crate) mod hedge_rules;
pub(crate) mod opening;
pub(crate) mod pool;
pub(crate) mod shared;

pub(crate) use connection::{Line, UpstreamConnection};
