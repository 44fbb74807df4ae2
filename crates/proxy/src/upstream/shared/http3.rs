//! A connection of HTTP/3 to an endpoint: how it is made, and what looks after it while it lives.
//!
//! The socket and the state of QUIC are driven elsewhere (`crate::http3`), and streams by those whose requests they carry. What is
//! left is what the endpoint says beside them: its settings, its goodbye, how many streams it allows, and whether it is there.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use model::limits::{HEAD_BYTES_MAX, HTTP3_IDLE_FRAMES_MAX, HTTP3_IDLE_FRAMES_PER_SECOND};
use model::{Address, Fault};
use quinn_proto::{ClientConfig, NoneTokenStore};
use tokio::time::Sleep;
use wire::http2::Allowance;
use wire::http3::code;

use super::connection::SharedConnection;
use super::connections::SharedConnections;
use super::dial::{Dialing, dial_beside};
use super::http3_session::Session;
use crate::http3::{CloseReason, Control, Quic, outgoing_transport};

/// How long an endpoint may take at least to answer when the network says that it is not there.
const DOUBT_PATIENCE: Duration = Duration::from_millis(500);
/// How long an endpoint may take at least until anything comes of it after a request has begun, be it that the request has arrived.
const WORD_PATIENCE: Duration = Duration::from_secs(1);

/// Looks after a connection, which ends with it.
pub(super) struct Driver {
    session: Rc<Session>,
    control: Control,
    allowance: Allowance,
    asked: Option<Asked>,
}

/// A word of the endpoint that is due.
#[derive(Clone, Copy)]
struct Asked {
    at: Instant,
    /// Without it, the endpoint is not there.
    until: Instant,
}

/// Makes a connection. It is made when the endpoint's settings are here, as with HTTP/2: then it does speak HTTP/3, and what it
/// takes is known. They mostly come with the end of the handshake.
///
/// # Errors
/// [`Fault::ConnectFailed`] or [`Fault::UpstreamHandshakeFailed`].
pub(super) async fn open(connections: &SharedConnections, how: &Dialing) -> Result<Box<Driver>, Fault> {
    let tls = how.tls.as_ref().ok_or(Fault::UpstreamHandshakeFailed)?;
    let crypto = tls.quic.clone().ok_or(Fault::UpstreamHandshakeFailed)?;
    let name = tls.name_for(&how.endpoint).ok_or(Fault::UpstreamHandshakeFailed)?;
    let Address::Ip(address) = how.endpoint.address else { return Err(Fault::ConnectFailed) };
    let mut config = ClientConfig::new(crypto);
    config
        .transport_config(Arc::new(outgoing_transport(&connections.shared, connections.idle_timeout())))
        // What proves an address was given by one endpoint, and the name may be that of many.
        .token_store(Arc::new(NoneTokenStore));
    let socket = how.outgoing.socket(address, &how.socket).map_err(|_| Fault::ConnectFailed)?;
    let quic = socket.connect(config, address, &name.to_str()).map_err(|_| Fault::ConnectFailed)?;
    let mut driver = Driver::new(quic);
    poll_fn(|cx| driver.poll_made(cx)).await?;
    Ok(driver)
}

impl Driver {
    fn new(quic: Rc<Quic>) -> Box<Self> {
        let session = Session {
            quic: quic.clone(),
            counts: Rc::default(),
            spare: Cell::new(None),
            offers_connect: Cell::new(false),
            head_bytes_max: Cell::new(u64::MAX),
            is_left: Cell::new(false),
            begun: Cell::new(None),
            is_watched: Cell::new(false),
            doubted_at: Cell::new(None),
        };
        Box::new(Self {
            session: Rc::new(session),
            control: Control::towards_endpoint(quic),
            allowance: Allowance::new(HTTP3_IDLE_FRAMES_MAX, HTTP3_IDLE_FRAMES_PER_SECOND, Instant::now()),
            asked: None,
        })
    }

    pub(super) fn session(&self) -> &Rc<Session> {
        &self.session
    }

    fn poll_made(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), Fault>> {
        let quic = self.session.quic.clone();
        quic.wait(cx);
        if quic.is_connected() && quic.lost().is_none() {
            self.converse(cx);
        }
        match quic.lost() {
            Some(CloseReason::Silent) => Poll::Ready(Err(Fault::ConnectFailed)),
            Some(_) => Poll::Ready(Err(Fault::UpstreamHandshakeFailed)),
            None if self.control.peer.has_settings => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    }

    /// Says and hears what goes beside the streams of requests.
    fn converse(&mut self, cx: &TaskContext<'_>) {
        let quic = &self.session.quic;
        self.control.speak(cx, || (HEAD_BYTES_MAX as u64, false));
        if let Err(code) = self.control.listen(cx) {
            return quic.close(code);
        }
        let peer = &mut self.control.peer;
        let session = &self.session;
        session.offers_connect.set(peer.offers_connect);
        session.head_bytes_max.set(peer.section_bytes_max.unwrap_or(u64::MAX));
        let idle = session.counts.idle.take() + std::mem::take(&mut peer.idle);
        // Each piece of a body may bring a few of them.
        self.allowance.earn(session.counts.pieces.take());
        if idle > 0 && !self.allowance.spend(idle, Instant::now()) {
            return quic.close(code::EXCESSIVE_LOAD);
        }
        if let Some(id) = peer.goaway {
            session.is_left.set(true);
            quic.refuse_from(id);
        }
    }

    /// Until the connection has ended, or the endpoint does not answer any more.
    pub(super) async fn drive(
        &mut self,
        connections: &Rc<SharedConnections>,
        connection: &Rc<SharedConnection>,
        how: &Rc<Dialing>,
    ) {
        let mut timer: Pin<Box<Sleep>> = Box::pin(tokio::time::sleep(connections.shared.ping_interval));
        poll_fn(|cx| {
            let quic = self.session.quic.clone();
            quic.wait(cx);
            self.converse(cx);
            if quic.lost().is_some() {
                // First, so that nobody is sent there when the streams under way are told.
                connections.forget(connection);
                return Poll::Ready(());
            }
            if self.session.is_left.get() && !connection.is_closed() {
                connection.close();
            }
            if connection.is_over(cx) {
                return Poll::Ready(());
            }
            // No goodbye of ours (RFC 9114 section 5.2): it would tell of pushes, and none were ever wanted. An endpoint may end a connection
            // at its word, before the last requests have arrived there.
            connections.hand_out(connection, None);
            if quic.take_doubt() {
                let patience = connections.shared.ping_timeout.min(DOUBT_PATIENCE.max(quic.rtt() * 4));
                let after = self.ask(patience);
                timer.as_mut().reset(tokio::time::Instant::now() + after);
            }
            if self.session.begins_to_be_watched() {
                let at = tokio::time::Instant::now() + self.word_patience();
                if at < timer.deadline() {
                    timer.as_mut().reset(at);
                }
            }
            while timer.as_mut().poll(cx).is_ready() {
                if !connection.is_busy() && !connections.keeps_idle() {
                    connection.close();
                }
                let Some(after) = self.look_after(connection.is_busy(), (connections, how)) else {
                    connections.forget(connection);
                    return Poll::Ready(());
                };
                timer.as_mut().reset(tokio::time::Instant::now() + after);
            }
            Poll::Pending
        })
        .await;
        connections.forget(connection);
    }

    /// Asks the endpoint whether it is there. How long to wait for its answer; who asks again waits no longer than before.
    fn ask(&mut self, patience: Duration) -> Duration {
        let now = Instant::now();
        let mut asked = Asked { at: now, until: now + patience };
        match self.asked {
            Some(before) => asked = Asked { at: before.at, until: before.until.min(asked.until) },
            None => self.session.quic.ping(),
        }
        self.asked = Some(asked);
        asked.until.saturating_duration_since(now)
    }

    fn word_patience(&self) -> Duration {
        WORD_PATIENCE.max(self.session.quic.rtt() * 4)
    }

    /// Asks an endpoint that is silent whether it is there: when to look again. `None`: it has not answered.
    fn look_after(
        &mut self,
        is_busy: bool,
        (connections, how): (&Rc<SharedConnections>, &Rc<Dialing>),
    ) -> Option<Duration> {
        let (interval, timeout) = (connections.shared.ping_interval, connections.shared.ping_timeout);
        let (now, heard_at) = (Instant::now(), self.session.quic.heard_at());
        if self.asked.take_if(|asked| heard_at > asked.at).is_some() {
            self.session.doubted_at.set(None);
            self.session.quic.set_unresponsive(false);
        }
        let (patience, unheard_at) = (self.word_patience(), self.session.unheard_at());
        let mut left = unheard_at.map(|at| patience.saturating_sub(now.saturating_duration_since(at)));
        if left.take_if(|left| left.is_zero()).is_some() {
            self.session.begun.set(None);
            self.session.doubted_at.set(Some(now));
            self.ask(timeout);
        }
        self.session.is_watched.set(left.is_some());
        let silence = now.saturating_duration_since(heard_at);
        if self.asked.is_none() && is_busy && silence >= interval {
            self.ask(timeout);
        }
        let next = match self.asked {
            Some(asked) => self.wait_for_answer(asked, now, (connections, how))?,
            None if is_busy => interval - silence,
            None => interval,
        };
        Some(left.map_or(next, |left| next.min(left)))
    }

    /// When to look again whether the endpoint has answered. `None`: it is not there. It may have been killed and be back, and
    /// then it does not know this connection, and answers nothing to it. That it takes another one tells that, or that one of several
    /// threads of it only takes its time: so those who can ask anew do so then, and all others wait as long as with HTTP/2.
    fn wait_for_answer(
        &self,
        asked: Asked,
        now: Instant,
        (connections, how): (&Rc<SharedConnections>, &Rc<Dialing>),
    ) -> Option<Duration> {
        if now >= asked.until {
            return None;
        }
        let left = asked.until - now;
        if !self.session.is_doubtful() {
            return Some(left);
        }
        let (waited, patience) = (now.saturating_duration_since(asked.at), self.word_patience());
        let takes_others = connections.has_made_any_since(asked.at);
        if takes_others && waited >= 2 * patience {
            self.session.quic.set_unresponsive(true);
            return Some(left);
        }
        if !takes_others && waited >= patience {
            dial_beside(connections, how);
        }
        Some(left.min(patience))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.session.quic.close(code::NO_ERROR);
    }
}
