//! HTTP/2 on a socket, on [`wire::http2`]: what the task of a connection and the tasks of its streams share ([`State`]), what waits for
//! its socket (`output.rs`), and what came of a stream and waits for its exchange (`inbox.rs`). [`downstream`] has what is so only
//! towards clients, and [`upstream`] what is so only towards endpoints.

pub(crate) mod downstream;
mod inbox;
mod output;
mod state;
mod streams;
pub(crate) mod upstream;
pub(crate) mod websocket;

pub(crate) use inbox::Reset;
pub(crate) use state::{PeerEvent, State};
