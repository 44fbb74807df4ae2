//! What the two ends of a connection do differently.

use std::fmt::Debug;

use super::super::frame::BadFrame;
use super::{Connection, Event};

/// What a frame has led to.
pub(super) type Taken<R> = Result<Option<Event<<R as Role>::Parsed>>, BadFrame>;

/// [`super::Downstream`] or [`super::Upstream`].
pub trait Role: Sized + Debug {
    /// What arrives first on a stream.
    type Head;
    /// What that says.
    type Parsed;

    /// Whether we begin the streams.
    const IS_UPSTREAM: bool;

    /// Takes the block of a head: of a request that begins a stream, or of a response that a stream awaits.
    ///
    /// # Errors
    /// It cannot be decoded, or breaks the rules.
    fn take_head(
        connection: &mut Connection<Self>,
        stream: (u32, bool),
        block: &[u8],
        head: &mut Self::Head,
    ) -> Taken<Self>;

    /// The peer has said GOAWAY, with the last stream of ours that it may look at.
    fn take_goaway(connection: &mut Connection<Self>, last: u32);

    /// The peer has said a setting that is not the same for both.
    fn note_setting(&mut self, id: u16, value: u32);
}
