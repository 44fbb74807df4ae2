//! What an exchange has come to so far. Its record follows from it.

use std::rc::Rc;
use std::time::{Duration, Instant};

use model::PickReason;
use model::persistence::SessionPick;
use plan::filter::Elapsed;
use plan::{EndpointPlan, RoutePlan};
use telemetry::Phases;

use crate::request_head::Arrival;
use crate::worker_plan::{ClusterLocal, EndpointLocal};

/// The progress of an exchange; its record follows from it.
pub(crate) struct Progress<'p> {
    pub begun: Instant,
    /// The time of the last look at the clock. A look costs more than most steps do; see [`Progress::look`].
    pub now: Instant,
    pub route: Option<&'p RoutePlan>,
    pub cluster: Option<&'p Rc<ClusterLocal>>,
    pub endpoint: Option<(&'p EndpointPlan, &'p Rc<EndpointLocal>)>,
    /// Why the endpoint was picked.
    pub pick: Option<PickReason>,
    pub retries: u32,
    /// Hedged attempts.
    pub hedges: u32,
    pub phases: Phases,
    /// The outcome for the session.
    pub session: Option<SessionPick>,
    /// Status of the final response head, once it is on its way.
    pub status: u16,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// A filter has rejected the request.
    pub is_refused: bool,
    /// An interim response is sent in part only.
    pub is_interim_cut: bool,
    /// The response ends with the connection.
    pub ends_by_close: bool,
    /// The outcome of the present attempt was reported to passive health.
    pub is_witnessed: bool,
}

impl Progress<'_> {
    pub(super) fn new(arrival: &Arrival) -> Self {
        let begun = arrival.begun.unwrap_or_else(Instant::now);
        let receive = arrival.whole.map_or(Duration::ZERO, |whole| whole - begun);
        Self {
            begun,
            now: begun + receive,
            route: None,
            cluster: None,
            endpoint: None,
            pick: None,
            retries: 0,
            hedges: 0,
            phases: Phases { receive, ..Phases::default() },
            session: None,
            status: 0,
            is_refused: false,
            is_interim_cut: false,
            received_bytes: 0,
            sent_bytes: 0,
            ends_by_close: false,
            is_witnessed: false,
        }
    }

    /// Returns how long its phases took until now, as far as they are over.
    pub(crate) fn elapsed(&self) -> Elapsed {
        let Phases { queue, connect, first_byte, .. } = self.phases;
        Elapsed { queue, connect, first_byte, total: self.now - self.begun }
    }

    /// Looks at the clock.
    pub(crate) fn look(&mut self) -> Instant {
        self.now = Instant::now();
        self.now
    }
}
