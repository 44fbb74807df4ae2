//! What a step needs that it does not do itself: the data plane does it, and goes on with what was found.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{Fault, RequestHead, ResponseHead};

use super::redirected::Redirected;
use super::{FileAsk, FileFound, Hold};
use crate::cache::{DiskAsk, DiskRead, Waiter};

/// What a step needs before it goes on. A step never waits itself: it says what it needs, and its `resume` is called with the
/// [`Found`] of the same kind. A step may have [`Need::PER_STEP_MAX`] of them in an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Work that is too slow for a worker; threads beside the workers do it.
    Work(Job),
    /// A request of the proxy's own to a cluster, and its response.
    Call(Box<Call>),
    /// The same by gRPC, with one message each way. The body of the call is the message with the five bytes before it; `content-type`, `te`
    /// and `grpc-timeout` are added to its head. What is found is a [`Found::Call`], of which the body is the message of an answer with
    /// the status 0. All else is a fault.
    Grpc(Box<Call>),
    /// The request's body, whole, of at most this many bytes; see [`Need::BODY_BYTES_MAX`]. It is sent to the endpoint from memory
    /// afterwards, as often as retries need it.
    Body {
        /// The bound, in bytes.
        max: u32,
    },
    /// The request's body from its beginning on: all of it if it has at most this many bytes, or is held in memory already. The step does
    /// not wait for more. All of it goes to the endpoint afterwards: what is not held is streamed. What is found is a [`Found::Beginning`].
    Beginning {
        /// The bound, in bytes; see [`Need::BODY_BYTES_MAX`].
        max: u32,
        /// The first bytes of a longer body are wanted too. Otherwise nothing is read of one that says that it is longer.
        wants_part: bool,
    },
    /// The request's body, whole, in memory or in a file, within these bounds: a longer one ends the exchange, and so does one that comes
    /// too slowly. It is sent to the endpoint afterwards, as often as retries need it. What is found is [`Found::Now`].
    Hold(Arc<Hold>),
    /// That the request goes on along another route, in the place of the endpoint's response. What is found is [`Found::Now`], if it cannot.
    Redirect(Box<Redirected>),
    /// That the request is sent again as the client has sent it, not for a slice, in the place of the endpoint's response. What is found is
    /// [`Found::Now`], if it cannot.
    Again,
    /// A call that goes on when the exchange has ended. What is found is [`Found::Now`].
    Apart(Box<Apart>),
    /// That a moment has come.
    Until(Instant),
    /// What a store that several instances share says of a limit.
    Store(Box<StoreAsk>),
    /// A file, or a directory.
    File(Box<FileAsk>),
    /// A stored response that is on disk.
    Cached(Box<DiskAsk>),
    /// That another exchange has fetched what this one wants, or a moment has come. What is found is [`Found::Now`].
    Flight(Box<Awaited>),
}

/// A fetch of another exchange, and how long it is waited for.
#[derive(Clone, Debug)]
pub struct Awaited {
    /// The place among those that wait for the fetch.
    pub waiter: Arc<Waiter>,
    /// When the wait ends at the latest.
    pub until: Instant,
}

/// Two are equal if they are the same.
impl PartialEq for Awaited {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.waiter, &other.waiter)
    }
}

impl Eq for Awaited {}

impl Need {
    /// Needs of one step in one exchange. One more is a fault: a step that always needs something never ends.
    pub const PER_STEP_MAX: u32 = 8;
    /// The largest body, in bytes, that a step may ask for.
    pub const BODY_BYTES_MAX: u32 = 16 << 20;
}

/// What came of a need.
#[derive(Debug)]
pub enum Found<'a> {
    /// What [`Work::run`] has found.
    Work(bool),
    /// The response to a call, or the fault that ended it.
    Call(Result<Box<Reply>, Fault>),
    /// The body; an error if it is longer than the step wants to have it. Nothing of that one was read: the exchange may go on.
    Body(Result<&'a Arc<[u8]>, TooLong>),
    /// The body, or its beginning.
    Beginning(Beginning<'a>),
    /// The moment has come, the body is held, or the request does not go on elsewhere.
    Now,
    /// What the store says; an error if it did not answer in time.
    Store(Result<Spent, Away>),
    /// What the file system has.
    File(FileFound),
    /// The stored response, if it can be read.
    Cached(DiskRead),
}

/// What is there of a request's body when a step wants its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning<'a> {
    /// All of it; empty if there is none.
    Whole(&'a Arc<[u8]>),
    /// So many bytes as were wanted, of a body that may be longer.
    Part(&'a [u8]),
    /// Nothing: it is longer, or lies in a file.
    Unread,
}

/// A question about one key of a limit, which counts a request of it if it lets it through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAsk {
    /// The cluster of the store.
    pub cluster: CalledCluster,
    /// How to log in there.
    pub login: Arc<StoreLogin>,
    /// The key in the store.
    pub key: Vec<u8>,
    /// The interval, the burst, and what a request may be ahead at most, in microseconds.
    pub arguments: Arc<[String; 3]>,
    /// What is taken, if not one interval.
    pub cost: Option<StoreCost>,
    /// How long to wait.
    pub timeout: Duration,
}

/// What a request or its response takes of a key, in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreCost {
    /// How much.
    pub amount: String,
    /// How far a key with debts may be ahead of its time; `None`: there are no debts.
    pub furthest: Option<String>,
    /// It is taken whatever is left: a debt at most.
    pub is_charge: bool,
}

impl StoreAsk {
    /// Returns the arguments of the script in the store, behind the key.
    pub fn script_arguments(&self) -> Vec<&[u8]> {
        let mut all: Vec<&[u8]> = self.arguments.iter().map(String::as_bytes).collect();
        if let Some(cost) = &self.cost {
            all.push(cost.amount.as_bytes());
            all.extend(cost.furthest.as_ref().map(String::as_bytes));
            all.extend((cost.is_charge && cost.furthest.is_some()).then_some(&b"charge"[..]));
        }
        all
    }
}

/// How to log in at a store.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreLogin {
    /// The user; `None`: the default one.
    pub username: Option<String>,
    /// The password; `None`: none is asked for.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u16,
}

impl fmt::Debug for StoreLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreLogin").field("username", &self.username).finish_non_exhaustive()
    }
}

/// What a store says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// It is let through, and counted.
    pub is_allowed: bool,
    /// Nanoseconds that its key was ahead of its time before.
    pub ahead: u64,
}

/// A store did not answer: it cannot be reached, is too slow, or refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away;

/// A request to a cluster beside the one that the client has made. It has the cluster's balancing, retries, limits and health, and
/// is cancelled with its exchange.
#[derive(Clone)]
pub struct Call {
    /// To which cluster it goes.
    pub cluster: CalledCluster,
    /// Method, target and fields. The body's length is added to it.
    pub head: RequestHead,
    /// The body; may be empty.
    pub body: Arc<[u8]>,
    /// Bound on all of it, from the wait for an endpoint to the last byte of the response.
    pub timeout: Duration,
    /// Bound on the response's body, in bytes. A longer one is [`Fault::BadResponseBody`].
    pub response_bytes_max: usize,
}

/// Without fields and body, which may hold secrets.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, head, body: _, timeout, response_bytes_max: _ } = self;
        let mut shown = f.debug_struct("Call");
        shown.field("cluster", cluster).field("method", &head.method).field("timeout", timeout).finish_non_exhaustive()
    }
}

/// A call by HTTP whose reply all exchanges share. Neither the end of its exchange nor the time-outs of the route end it.
#[derive(Clone)]
pub struct Apart {
    /// The call.
    pub call: Call,
    /// Gets the reply. It is dropped without one if the call is never made, or ends with its worker.
    pub taker: Arc<dyn TakeReply>,
    /// Whether the exchange waits until the reply is taken.
    pub is_awaited: bool,
}

/// What takes the reply to a call that goes on when its exchange has ended.
pub trait TakeReply: Send + Sync {
    /// Takes it, once. It must not wait.
    fn take(&self, reply: Result<Box<Reply>, Fault>, now: Instant);
}

impl fmt::Debug for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, taker: _, is_awaited } = self;
        f.debug_struct("Apart").field("call", call).field("is_awaited", is_awaited).finish_non_exhaustive()
    }
}

/// Two are equal if the same takes their reply.
impl PartialEq for Apart {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.taker, &other.taker)
    }
}

impl Eq for Apart {}

/// Two are equal if they are the same.
impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Call {}

/// A cluster that filters of a route call: its place in the route's list of those. From [`super::Compiling::cluster`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalledCluster(pub(crate) usize);

impl CalledCluster {
    /// The place in [`crate::RoutePlan::called`].
    pub fn place(self) -> usize {
        self.0
    }
}

/// The response to a [`Call`].
#[derive(Debug, Default)]
pub struct Reply {
    /// Status and fields.
    pub head: ResponseHead,
    /// The body, whole.
    pub body: Vec<u8>,
}

/// A body is longer than a step wants to have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Something to be found out that takes long.
pub trait Work: Send + Sync {
    /// Finds it out: computes, but does not wait. `chance` stands for all that is drawn.
    fn run(&self, chance: &mut dyn FnMut() -> u64) -> bool;
}

/// Work that an exchange waits for.
#[derive(Clone)]
pub struct Job(pub Arc<dyn Work>);

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Job {}
