//! HTTP/2 towards clients: what the task of a connection and the tasks of its streams share ([`State`]), and one stream as a
//! `MessageStream` ([`Stream`]). The life of a connection is in `downstream::http2`.

mod state;
mod stream;

pub(crate) use state::{SharedState, State};
pub(crate) use stream::Stream;
