//! The one record of an exchange or of a TCP stream. Metrics and access logs have no other source.

use std::time::{Duration, SystemTime};

use model::head::Method;
use model::persistence::SessionPick;
use model::{Address, Facts, Fault, Name, PickReason, RequestHead, ResponseHead};

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An HTTP request with its response, or what came of it.
    Exchange,
    /// A TCP connection that was passed on as bytes.
    Stream,
    /// Datagrams between a client and an endpoint.
    Flow,
}

impl Kind {
    /// Returns the name in logs: `exchange`, `stream` or `flow`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exchange => "exchange",
            Self::Stream => "stream",
            Self::Flow => "flow",
        }
    }
}

/// Where the time of an exchange went. A phase that did not take place is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// From the first byte of the request head until the head was whole.
    pub receive: Duration,
    /// Waiting for an endpoint that had room.
    pub queue: Duration,
    /// Establishing a connection to the endpoint; zero when one was reused.
    pub connect: Duration,
    /// From the request being sent until the head of the final response.
    pub first_byte: Duration,
    /// The whole, from the first byte of the request head (or the accepted connection) to the end.
    pub total: Duration,
}

/// All data of one exchange or stream, at its end. It only borrows: building it costs a few
/// nanoseconds and no memory.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// What was known beside the heads.
    pub facts: &'a Facts<'a>,
    /// `None` for a stream, and when no request head could be parsed.
    pub request: Option<&'a RequestHead>,
    /// Status sent to the client; 0: none was sent.
    pub response_status: u16,
    /// The head that was sent to the client, when there was one.
    pub response: Option<&'a ResponseHead>,
    /// What went wrong.
    pub fault: Option<Fault>,
    /// The route that matched.
    pub route: Option<&'a Name>,
    /// The cluster that was chosen.
    pub cluster: Option<&'a Name>,
    /// The endpoint that was tried last.
    pub endpoint: Option<&'a Name>,
    /// Its address.
    pub endpoint_address: Option<&'a Address>,
    /// Why it was that one.
    pub pick: Option<PickReason>,
    /// Attempts after the first.
    pub retries: u32,
    /// Hedged attempts.
    pub hedges: u32,
    /// What became of its session, in a cluster that has any.
    pub session: Option<SessionPick>,
    /// What a cache has done with it, such as `hit`; empty without any.
    pub cache: &'static str,
    /// Body or stream bytes that came from the client.
    pub received_bytes: u64,
    /// Body or stream bytes that went to the client.
    pub sent_bytes: u64,
    /// Where the time went.
    pub phases: Phases,
    /// When it was over.
    pub at: SystemTime,
    /// Exchange, stream or flow.
    pub kind: Kind,
}

impl<'a> Record<'a> {
    /// Returns a record without a head, endpoint, bytes or times. The caller fills in what is known.
    pub fn empty(facts: &'a Facts<'a>, kind: Kind) -> Self {
        Self {
            facts,
            request: None,
            response_status: 0,
            response: None,
            fault: None,
            route: None,
            cluster: None,
            endpoint: None,
            endpoint_address: None,
            pick: None,
            retries: 0,
            hedges: 0,
            session: None,
            cache: "",
            received_bytes: 0,
            sent_bytes: 0,
            phases: Phases::default(),
            at: SystemTime::UNIX_EPOCH,
            kind,
        }
    }

    /// Returns whether the exchange became a tunnel (an upgrade, or CONNECT answered with success). The time of a tunnel says how long the
    /// client stayed, not how fast the answer was.
    pub fn is_tunnel(&self) -> bool {
        self.response_status == 101
            || (200..300).contains(&self.response_status)
                && self.request.is_some_and(|head| head.received_method() == Method::Connect)
    }
}

/// Number of classes of a status: none, then 1xx to 5xx.
pub const CLASSES: usize = 6;

/// Labels of the classes, in the order of [`class`].
pub const CLASS_LABELS: [&str; CLASSES] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// Returns the class of a status: its hundreds, or 0 when there was no response or the status is out of range.
pub fn class(status: u16) -> usize {
    match status / 100 {
        hundreds @ 1..=5 => usize::from(hundreds),
        _ => 0,
    }
}
