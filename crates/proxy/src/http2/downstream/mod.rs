//! HTTP/2 towards clients, on [`wire::http2`]: what the task of a connection and the tasks of its streams share ([`State`]), what waits
//! for its socket (`output.rs`), and one stream as a `MessageStream` ([`Stream`]). The life of a connection is in `downstream::http2`.

mod inbox;
mod output;
mod state;
mod stream;
mod streams;

pub(crate) use state::{Happening, SharedState, State};
pub(crate) use stream::Stream;
