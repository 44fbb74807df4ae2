//! HTTP/2 and HTTP/3 towards endpoints: connections that many exchanges share, and how an exchange gets a stream on one.

pub(crate) mod attempt;
pub(crate) mod dial;
mod http2;
mod http3;
pub(crate) mod stream;
pub(crate) mod trunk;
