//! HTTP/2 towards endpoints: one stream as a byte stream with a head and trailers ([`Stream`], which is a `MessageStream`), and heads
//! from and to the types of the `h2` library, which drives those connections. The rules of the crossing are pure and stand in
//! `wire::crossing`; the connections live in `upstream`. What clients send is carried by [`downstream`], without the library.

pub(crate) mod downstream;
pub(crate) mod heads;
mod stream;
pub(crate) mod websocket;
mod window;

pub(crate) use stream::Stream;
pub(crate) use window::Taken;
