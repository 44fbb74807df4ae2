//! HTTP/2 towards endpoints: connections that many exchanges share, and how an exchange gets a stream on one.

pub(crate) mod attempt;
pub(crate) mod dial;
pub(crate) mod stream;
pub(crate) mod trunk;
