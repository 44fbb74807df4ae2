//! What links, the owner and those who look share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use wire::peers::{Hello, VERSION};

use super::connection::Shown;
use super::engine::Engine;
use super::sessions::Sessions;
use super::status::{Board, Incoming, Key, PeerState, PeersStatus};
use crate::chance::chance;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Inner>);

struct Inner {
    me: u128,
    /// The name of this machine, for people.
    name: String,
    engine: Mutex<Engine>,
    sessions: Mutex<Sessions>,
    board: Mutex<Board>,
    drained: Notify,
    arrived: Notify,
    teaching: Arc<Semaphore>,
}

impl Default for Shared {
    fn default() -> Self {
        let me = u128::from(chance()) << 64 | u128::from(chance());
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        let engine = Mutex::new(Engine::new(me, Instant::now()));
        Self(Arc::new(Inner {
            me,
            name,
            engine,
            sessions: Mutex::default(),
            board: Mutex::default(),
            drained: Notify::new(),
            arrived: Notify::new(),
            teaching: Arc::new(Semaphore::new(1)),
        }))
    }
}

impl Shared {
    pub(crate) fn me(&self) -> u128 {
        self.0.me
    }

    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.0.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never held together with [`Self::engine`].
    pub(crate) fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn board(&self) -> MutexGuard<'_, Board> {
        self.0.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How this instance greets.
    pub(crate) fn hello(&self) -> Hello {
        let engine = self.engine();
        let is_settled = engine.is_settled() && !engine.is_retired();
        Hello { version: VERSION, instance: self.me(), is_settled, name: self.0.name.clone() }
    }

    /// Waits until more was counted.
    pub(crate) async fn drained(&self) {
        self.0.drained.notified().await;
    }

    /// Waits until a peer connects.
    pub(crate) async fn arrived(&self) {
        self.0.arrived.notified().await;
    }

    /// Returns the right to teach, which one link has at a time.
    pub(crate) fn teaching(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.teaching).try_acquire_owned().ok()
    }

    /// Collects what was counted, and wakes the links.
    pub(crate) fn drain(&self) {
        let now = Instant::now();
        let has_learned = self.sessions().drain(now);
        let has_teacher = self.board().incoming.values().any(|known| known.is_settled);
        let mut engine = self.engine();
        let before = engine.head();
        engine.drain(now);
        engine.settle_if_alone(has_teacher, now);
        if engine.head() != before || has_learned {
            self.0.drained.notify_waiters();
        }
    }

    pub(crate) fn connected(&self, key: &Key, hello: &Hello) {
        let may_log = {
            let mut board = self.board();
            board.note(key, PeerState::Connected, Some(hello.instance));
            board.may_log(&format!("to {}", key.1), Instant::now())
        };
        if !may_log {
            return;
        }
        let instance = format!("{:032x}", hello.instance);
        let pairs: telemetry::log::Pairs<'_> =
            &[("member", &key.0), ("address", &key.1), ("instance", &instance), ("host", &hello.name)];
        telemetry::log::info("connected to a peer", pairs);
    }

    /// Logs a failure, unless it is the same again.
    pub(crate) fn failed(&self, key: &Key, why: &str) {
        let mut board = self.board();
        let may_log = board.fail(key, why) && board.may_log(&format!("not to {}", key.1), Instant::now());
        drop(board);
        if may_log {
            let pairs: telemetry::log::Pairs<'_> = &[("member", &key.0), ("address", &key.1), ("reason", &why)];
            telemetry::log::warn("not connected to a peer", pairs);
        }
    }

    /// Notes the connection of a sender; one that it had before ends. `None`: who is connected under this number has shown another
    /// certificate.
    pub(crate) fn enter(&self, hello: &Hello, shown: Shown) -> Option<Entered> {
        let mut board = self.board();
        if board.incoming.get(&hello.instance).is_some_and(|known| known.shown != shown) {
            return None;
        }
        board.connections += 1;
        let number = board.connections;
        board.incoming.insert(hello.instance, Incoming { number, is_settled: hello.is_settled, shown });
        self.0.arrived.notify_waiters();
        Some(Entered { shared: self.clone(), instance: hello.instance, number })
    }

    /// Logs a connection that was refused: the first at once, and others once in a while.
    pub(crate) fn warn_of_stranger(&self, from: &str, why: &str) {
        const EVERY: std::time::Duration = std::time::Duration::from_secs(10);
        let now = Instant::now();
        let mut board = self.board();
        if board.told_of_stranger.is_none_or(|told| now - told >= EVERY) {
            board.told_of_stranger = Some(now);
            drop(board);
            telemetry::log::warn("a connection to the port of peers was refused", &[("from", &from), ("reason", &why)]);
        }
    }

    /// Returns the members that were connected at some time, this instance included.
    pub(crate) fn known_members(&self) -> Vec<Key> {
        let board = self.board();
        board.members.iter().filter(|(_, peer)| peer.instance.is_some()).map(|(key, _)| key.clone()).collect()
    }

    /// Returns whether these members are connected, and all that are have all that was counted.
    pub(crate) fn is_flushed(&self, members: &[Key]) -> bool {
        let receivers: Vec<u128> = {
            let outgoing = &self.board().outgoing;
            if !members.iter().all(|member| outgoing.values().any(|key| key == member)) {
                return false;
            }
            outgoing.keys().copied().collect()
        };
        let has_sessions = receivers.iter().all(|receiver| self.sessions().has_all(*receiver));
        let engine = self.engine();
        has_sessions && receivers.into_iter().all(|receiver| engine.has_all(receiver))
    }

    pub(crate) fn status(&self) -> PeersStatus {
        let (mut peers, incoming, refused): (Vec<_>, Vec<u128>, u64) = {
            let board = self.board();
            (board.members.values().cloned().collect(), board.incoming.keys().copied().collect(), board.refused)
        };
        let (learned, sessions) = {
            let sessions = self.sessions();
            (sessions.figures, sessions.table_names())
        };
        let (engine, now) = (self.engine(), Instant::now());
        for peer in &mut peers {
            let Some(instance) = peer.instance else { continue };
            peer.is_heard = incoming.contains(&instance);
            if peer.state == PeerState::Connected {
                (peer.backlog_bytes, peer.lag) = engine.lag(instance, now);
            }
        }
        let figures = engine.figures;
        PeersStatus {
            instance: self.me(),
            is_settled: engine.is_settled(),
            peers,
            incoming: incoming.len(),
            tables: engine.table_names(),
            sessions,
            sent: figures.sent + learned.sent,
            received: figures.received + learned.received,
            skipped: figures.skipped + learned.skipped,
            dropped: engine.dropped(),
            resyncs: figures.resyncs,
            refused,
        }
    }
}

/// The connection of a sender, as long as this is there.
pub(crate) struct Entered {
    shared: Shared,
    instance: u128,
    number: u64,
}

impl Entered {
    pub(crate) fn instance(&self) -> u128 {
        self.instance
    }

    /// Returns whether the sender has no later one.
    pub(crate) fn is_current(&self) -> bool {
        self.shared.board().incoming.get(&self.instance).is_some_and(|known| known.number == self.number)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.is_current() {
            self.shared.board().incoming.remove(&self.instance);
            self.shared.engine().leave(self.instance);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_belongs_to_the_certificate_that_it_came_with_as_long_as_it_is_there() {
        let (shared, hello) =
            (Shared::default(), Hello { version: 1, instance: 7, is_settled: true, name: "x".into() });
        let shown = |byte: u8| Some(vec![byte].into());
        let first = shared.enter(&hello, shown(1)).unwrap();
        assert!(shared.enter(&hello, shown(2)).is_none() && shared.enter(&hello, None).is_none());
        assert!(first.is_current());
        let again = shared.enter(&hello, shown(1)).unwrap();
        assert!(!first.is_current() && again.is_current());
        drop((first, again));
        assert!(shared.enter(&hello, shown(2)).is_some());
    }
}
