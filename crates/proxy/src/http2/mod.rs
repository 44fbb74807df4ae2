//! HTTP/2 as both sides need it: one stream as a byte stream with a head and trailers ([`Stream`], which is a
//! `MessageStream`), heads from and to the types of the `h2` library, and the connection that the library drives. The rules of the
//! crossing are pure and stand in `wire::crossing`; the connections live in `downstream::http2` and `upstream`.

pub(crate) mod heads;
mod stream;
mod transport;
pub(crate) mod websocket;

pub(crate) use stream::Stream;
pub(crate) use transport::{Signs, Transport};
