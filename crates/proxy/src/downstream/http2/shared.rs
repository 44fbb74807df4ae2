//! What the parts of a connection share.

use std::cell::RefCell;
use std::rc::Rc;

use model::Fault;
use model::snapshot::HttpListener;
use wire::http1::HeadLimits;
use wire::http2::code;

use crate::connection::ConnectionFacts;
use crate::downstream::exchanges::Exchanges;
use crate::http2::downstream::SharedState;
use crate::watch::Watch;

/// What a connection and the tasks of its streams share.
pub(super) struct Shared {
    pub(super) facts: Rc<ConnectionFacts>,
    pub(super) state: SharedState,
    pub(super) exchanges: Exchanges,
    /// The watch of the last stream that was inline, for the next: its timer need not be set up again.
    pub(super) spare: RefCell<Option<Watch>>,
}

/// Why nothing more is read.
pub(super) enum Ended {
    /// The client itself has closed.
    Closed,
    /// It gets this code.
    Broken(u32),
}

pub(super) fn limits_of(http: &HttpListener) -> HeadLimits {
    HeadLimits { head_bytes_max: http.head_bytes_max, fields_max: http.fields_max }
}

/// Returns what a connection that ends with this code comes to.
pub(super) fn fault_of(code: u32) -> Option<Fault> {
    match code {
        code::ENHANCE_YOUR_CALM => Some(Fault::Http2Flood),
        code::NO_ERROR => None,
        _ => Some(Fault::Http2Error),
    }
}
