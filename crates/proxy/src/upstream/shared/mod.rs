//! HTTP/2 and HTTP/3 towards endpoints: connections that many exchanges share, and how an exchange gets a stream on one.

pub(crate) mod attempt;
pub(crate) mod checkout;
mod connection;
pub(crate) mod connections;
pub(crate) mod dial;
mod http2;
mod http3;
mod http3_session;
pub(crate) mod permit;
pub(crate) mod stream;
