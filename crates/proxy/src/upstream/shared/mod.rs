//! HTTP/2 and HTTP/3 towards endpoints: connections that many exchanges share, and how an exchange gets a stream on one.

pub(crate) mod attempt;
mod connection;
pub(crate) mod connections;
pub(crate) mod dial;
mod http2;
mod http3;
pub(crate) mod permit;
pub(crate) mod stream;
