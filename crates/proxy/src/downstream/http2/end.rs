//! How a connection ends: in good order, by a fault, or because its client is silent.

use std::time::{Duration, Instant};

use model::Fault;
use model::limits::{HTTP2_PING, LINGER};
use model::snapshot::HttpListener;
use wire::http2::code;

use super::{Session, shutdown};
use crate::downstream::shutdown::Phase;
use crate::registry::LAST_CALL;

/// Returns how long nothing may happen before the connection is looked after.
fn rest(http: &HttpListener) -> Duration {
    http.idle_timeout.min(http.stream_timeout)
}

impl Session<'_> {
    pub(super) fn may_go_on(&self) -> bool {
        shutdown::may_go_on(self.worker, &self.registration, self.accepted)
    }

    /// The request that has just come is the last. Those that follow are refused, and may be sent again elsewhere.
    pub(super) fn send_final_goaway(&mut self, now: Instant) {
        self.phase = Phase::Last;
        self.told_at.get_or_insert(now);
        self.shared.state.borrow_mut().send_final_goaway();
    }

    /// No new streams; a client that has not heard of it yet may still begin some.
    pub(super) fn announce_shutdown(&mut self) {
        self.phase = Phase::Announced;
        self.told_at = Some(Instant::now());
        self.shared.state.borrow_mut().announce_shutdown();
        // One that answers our PING waits for nothing.
        let patience = self.registration.handle.last_call();
        self.watch.set(Instant::now(), patience);
    }

    /// Ends all streams, and says why.
    pub(super) fn close(&mut self, code: u32) {
        self.shared.state.borrow_mut().abort(code);
        self.begin_to_close();
    }

    pub(super) fn begin_to_close(&mut self) {
        self.phase = Phase::Closing;
        self.watch.set(Instant::now(), LINGER);
    }

    /// Returns how long nothing may happen, how long it may be idle, and how long nothing may be taken.
    pub(super) fn timeouts(&self) -> (Duration, Duration, Duration) {
        let plan = self.worker.plan_of(&self.registration.handle);
        let http = plan.http_listener(&self.registration).map(|(_, http)| http);
        http.map_or((LAST_CALL, LAST_CALL, LINGER), |http| (rest(http), http.idle_timeout, http.stream_timeout))
    }

    /// Returns whether to drop everything, after the watch rang. If not, the watch is set again.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let (rest, idle, stream) = self.timeouts();
        let blocked_since = self.shared.state.borrow().output.blocked_since();
        if blocked_since.is_some_and(|since| now - since >= stream) {
            return true;
        }
        if !self.is_greeted && self.phase == Phase::Open {
            self.fault = Some(self.watch.fault(Fault::HeadTimeout));
            return true;
        }
        if !self.shared.exchanges.is_at_rest() {
            return self.is_dead(now, rest);
        }
        if self.phase.is_leaving() {
            self.close(code::NO_ERROR);
            return false;
        }
        let rested = now.saturating_duration_since(self.shared.exchanges.rested_at());
        if rested >= idle {
            self.announce_shutdown();
        } else {
            self.watch.set(now, rest.min(idle - rested));
        }
        false
    }

    /// Returns whether a client with exchanges in progress is silent even when asked. One that takes what waits for it is not: our PING may
    /// have to wait longest of all.
    fn is_dead(&mut self, now: Instant, rest: Duration) -> bool {
        let mut state = self.shared.state.borrow_mut();
        let stirs = state.output.stirs();
        let is_silent = std::mem::replace(&mut self.seen_stirs, stirs) == stirs;
        if is_silent && self.is_pinged {
            return true;
        }
        self.is_pinged = is_silent;
        if is_silent {
            state.ping();
        }
        self.watch.set(now, if is_silent { HTTP2_PING } else { rest });
        false
    }

    pub(super) fn end(&self) -> Result<(), Fault> {
        self.fault.map_or(Ok(()), Err)
    }
}
