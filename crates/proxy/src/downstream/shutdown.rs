//! The graceful end of a connection that carries streams (RFC 9113 section 6.8, RFC 9114 section 5.2).
//!
//! ```text
//! Open ── idle for too long, the listener gone: GOAWAY ──► Announced ── heard, or time is up: GOAWAY ──► Last ── at rest ──► Closing
//!   └───────────────────────── the last request that it may carry has come: GOAWAY ─────────────────────┘
//! ```
//!
//! The first GOAWAY names no stream, so that what a client has on its way is still served. The last names the last stream that is; what
//! comes after is refused, and may be sent again elsewhere.

use model::snapshot::HttpListener;

use crate::registry::Registration;
use crate::worker::Worker;

/// How far the end of a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is not near.
    Open,
    /// The first GOAWAY is sent; streams that are on their way are still taken.
    Announced,
    /// The last GOAWAY is sent; what is begun is finished.
    Last,
    /// Nothing is left but to send what waits, and to close.
    Closing,
}

impl Phase {
    /// Returns whether GOAWAY was sent, and exchanges may go on.
    pub(super) fn is_leaving(self) -> bool {
        matches!(self, Self::Announced | Self::Last)
    }

    /// Returns whether new streams are taken.
    pub(super) fn takes_streams(self) -> bool {
        matches!(self, Self::Open | Self::Announced)
    }
}

/// Returns whether a connection of streams that has taken so many may take another.
pub(super) fn may_go_on(worker: &Worker, registration: &Registration, accepted: u64) -> bool {
    let plan = worker.plan_of(&registration.handle);
    !registration.is_closing() && plan.http_listener(registration).is_some_and(|(_, http)| !is_enough(http, accepted))
}

/// Returns whether so many requests are as many as one connection may bring.
pub(super) fn is_enough(http: &HttpListener, accepted: u64) -> bool {
    http.requests_per_connection_max.is_some_and(|max| accepted >= max)
}
