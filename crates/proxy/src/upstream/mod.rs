//! Towards endpoints: connections kept for reuse, new ones, and the conversation on one.

pub(crate) mod connect;
pub(crate) mod conversation;
pub(crate) mod opening;
pub(crate) mod pool;
