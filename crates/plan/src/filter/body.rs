//! Filters of bodies: pure, slices in, slices out.
//!
//! A step looks at the head of a message and says whether its body passes a [`Stage`]. The data plane feeds the stages of a body
//! between taking the sender's framing off and putting the receiver's on. A [`Coder`] fills the room that it is given and is called
//! again, so that memory stays flat whatever the body becomes.
//!
//! Bodies pass stages in the order of their [`Rank`], not in that of the list: nobody wants to replace text in what is compressed.

use std::sync::Arc;
use std::time::Instant;

use model::fields::Fields;
use model::{RequestHead, ResponseHead};

use super::{Hold, ResponseView, Slices, Turn};

/// Something done to the body of responses. Shared by all workers, so whatever changes lives in the [`Stage`] that it makes.
pub trait ResponseBodyStep: Send + Sync {
    /// Where among the stages of a body its own stands.
    fn rank(&self) -> Rank;

    /// Begins with a body, and says how long it is then; `None`: the body passes as it is. The head is final but for what this
    /// changes of it. It is called for answers to HEAD and for 304 too, with [`Extent::Absent`], so that heads agree.
    fn begin(
        &self,
        head: &mut ResponseHead,
        view: &ResponseView<'_>,
        extent: Extent,
        turn: &mut Turn<'_>,
    ) -> Option<(Stage, Extent)>;

    /// Says how fast the bytes of a tunnel (WebSocket, CONNECT) go to the client; `None`, by default, as fast as they can.
    fn pace_tunnel(&self, _: &ResponseHead, _: &ResponseView<'_>, _: &mut Turn<'_>) -> Option<Box<dyn Pace>> {
        None
    }
}

/// Something done to the body of requests. Shared by all workers, like [`ResponseBodyStep`].
pub trait RequestBodyStep: Send + Sync {
    /// Where among the stages of a body its own stands.
    fn rank(&self) -> Rank;

    /// Begins with a body, and says how long it is then; `None`: the body passes as it is. It is called once for each request, after
    /// the request steps, and the head is final but for what this changes of it. Requests without a body never come here.
    fn begin(&self, head: &mut RequestHead, extent: Extent, turn: &mut Turn<'_>) -> Option<(MakeStage, Extent)>;

    /// Says how fast the bytes of a tunnel (WebSocket, CONNECT) go to the endpoint; `None`, by default, as fast as they can.
    fn pace_tunnel(&self, _: &RequestHead, _: &mut Turn<'_>) -> Option<Box<dyn Pace>> {
        None
    }
}

/// Makes the stage of a request's body. It is called for every attempt to send the request, since retries and hedges send the body from
/// its beginning. Two stages of one body may live at the same time.
pub type MakeStage = Box<dyn Fn() -> Stage>;

/// The order of stages, in the direction in which the body moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// It is kept as the sender has sent it.
    Received,
    /// What the sender has coded is decoded.
    Decode,
    /// The plain body is looked at.
    Inspect,
    /// The plain body is changed.
    Rewrite,
    /// It is kept.
    Store,
    /// It is coded for the receiver.
    Encode,
    /// What leaves is counted.
    Account,
}

/// How long a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// There is none, whatever the head says: the answer to HEAD, or 304.
    Absent,
    /// So many bytes.
    Known(u64),
    /// It is over when it is.
    Unknown,
}

/// What a body passes.
pub enum Stage {
    /// Makes other bytes of it.
    Coder(Box<dyn Coder>),
    /// Sees it.
    Tap(Box<dyn Tap>),
    /// Says when its bytes may leave.
    Pace(Box<dyn Pace>),
    /// Holds what the receiver is too slow for, as the sender has sent it: before all other stages, wherever it stands.
    Hold(Arc<Hold>),
    /// Stores a slice as it comes and cuts it, and has others follow it.
    Slices(Box<SlicedBody>),
}

/// A body that begins with a slice that is on its way from an endpoint.
pub struct SlicedBody {
    /// What stores and cuts it. The bytes of other slices pass it as they are.
    pub coder: Box<dyn Coder>,
    /// What follows it, if anything does.
    pub rest: Option<Box<Slices>>,
}

/// Makes other bytes of one body. It stays on one worker.
pub trait Coder {
    /// Takes some of `input` and writes to `room`, as much as either allows. `room` is never empty. With [`Turning::More`] and input
    /// it does one or the other. Bytes that are left of the input are given again.
    ///
    /// # Errors
    /// The input is not what it is said to be.
    fn code(&mut self, input: &[u8], room: &mut [u8], turning: Turning) -> Result<Coded, BadBody>;

    /// The trailers of the body, which are known when its last byte is. Called once, before [`Turning::End`], if there are any.
    fn trailers(&mut self, _trailers: &mut Fields) {}
}

/// Why a coder is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turning {
    /// More is to come, at once or later.
    More,
    /// The sender is silent: what is inside must come out, so that the receiver can use all that was sent (event streams).
    Flush,
    /// The input is the last.
    End,
}

/// What one call of a coder did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coded {
    /// Bytes of the input that it has taken.
    pub read: usize,
    /// Bytes that it has written.
    pub written: usize,
    /// With [`Turning::Flush`] and [`Turning::End`]: nothing is left inside.
    pub is_done: bool,
}

/// Why a body ends in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadBody {
    /// It is not what it is said to be.
    Malformed,
    /// It becomes longer than the stage allows.
    TooLong,
}

/// Sees one body, changes nothing, and never waits.
pub trait Tap {
    /// Sees the next bytes.
    fn see(&mut self, bytes: &[u8]);

    /// The body is over, and whole, with the trailers behind it if there are any. A tap that is dropped without has seen a part.
    fn end(&mut self, _trailers: Option<&Fields>) {}
}

/// Holds one body to a rate. It changes nothing of the body, and the bytes that it holds back are not read from the sender.
pub trait Pace {
    /// Reserves at most `wanted` of the next bytes, at least one, and says from when on they may be written.
    fn reserve(&mut self, wanted: usize, now: Instant) -> (usize, Instant);

    /// Takes back the last `count` of the bytes that were reserved: they will not be written.
    fn give_back(&mut self, count: usize, now: Instant) {
        let _ = (count, now);
    }
}
