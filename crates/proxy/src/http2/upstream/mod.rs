//! HTTP/2 towards endpoints: what the task of a connection and the tasks of its streams share ([`State`]), one stream as a
//! `MessageStream` ([`Stream`]), and what readers have taken, by which windows grow. The life of a connection is in `upstream::shared`.

mod state;
mod stream;
mod window;

pub(crate) use state::{SharedState, State};
pub(crate) use stream::Stream;
