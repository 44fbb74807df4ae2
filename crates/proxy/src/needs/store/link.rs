//! The connection of a worker to a store.

mod drive;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use model::Address;
use plan::filter::{Spent, StoreLogin};
use tokio::sync::oneshot;
use wire::resp::cluster::{Redirect, SlotMap};
use wire::resp::{Reply, write_command};

use super::script;
use super::target::Target;
use crate::worker_plan::ClusterLocal;

/// Questions without an answer, beyond which the store counts as away.
const WAITING_MAX: usize = 4096;
/// How long connecting and logging in may take.
const CONNECT: Duration = Duration::from_secs(2);

pub(super) type Answer = Result<Spent, Missed>;

/// Why a link has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missed {
    /// The store does not answer.
    Away,
    /// Another node of a Redis Cluster has it.
    Elsewhere(Redirect),
}

/// See the module.
pub(super) struct Link {
    local: RefCell<Rc<ClusterLocal>>,
    login: Arc<StoreLogin>,
    /// The node of a Redis Cluster that it is to; `None`: the first endpoint that is up.
    target: Option<Target>,
    state: Cell<State>,
    /// Commands that are not written yet.
    out: RefCell<Vec<u8>>,
    /// What replies are waited for, in their order.
    waiting: RefCell<VecDeque<Waiting>>,
    /// Where it is connected.
    address: RefCell<Option<Address>>,
    /// The connection is of no more use.
    is_spent: Cell<bool>,
    /// The connection has answered a question.
    has_answered: Cell<bool>,
    /// The failure that was logged last. The first answer of a connection ends it.
    told: RefCell<Option<Told>>,
    asked_at: Cell<Instant>,
    waker: RefCell<Option<Waker>>,
}

/// A failure in the log: what failed, and the kind of error.
type Told = (&'static str, Box<[u8]>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is being made for the first time: questions wait for it.
    Beginning,
    Up,
    Down,
}

enum Waiting {
    /// The reply to a command of our own, which is an error or of no interest.
    Setup,
    Ask {
        answer: oneshot::Sender<Answer>,
        at: Instant,
    },
    /// The reply to `ASKING`, which is of no interest.
    Asking,
    /// The reply to `CLUSTER SLOTS`.
    Slots(oneshot::Sender<SlotMap>),
}

/// Why a connection has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Nobody asks any more.
    Idle,
    /// An endpoint before this one is up again.
    Better,
    Broken,
}

impl Link {
    /// Begins to connect. `forget` is called when it ends because nobody asks any more.
    pub(super) fn start(
        local: &Rc<ClusterLocal>,
        login: &Arc<StoreLogin>,
        target: Option<Target>,
        forget: fn(&Rc<Self>),
    ) -> Rc<Self> {
        let link = Rc::new(Self {
            local: RefCell::new(local.clone()),
            login: login.clone(),
            target,
            state: Cell::new(State::Beginning),
            out: RefCell::default(),
            waiting: RefCell::default(),
            address: RefCell::default(),
            is_spent: Cell::new(false),
            has_answered: Cell::new(false),
            told: RefCell::default(),
            asked_at: Cell::new(Instant::now()),
            waker: RefCell::default(),
        });
        tokio::task::spawn_local(drive::drive(link.clone(), forget));
        link
    }

    /// Returns whether it is to this node, or to the first endpoint.
    pub(super) fn is_to(&self, target: Option<&Target>) -> bool {
        self.target.as_ref() == target
    }

    /// Returns whether the store answers.
    pub(super) fn is_up(&self) -> bool {
        self.state.get() == State::Up
    }

    /// Returns where it is connected.
    pub(super) fn address(&self) -> Option<Address> {
        self.address.borrow().clone()
    }

    /// Asks about a key. `is_asking`: its slot is moving to this node.
    ///
    /// # Errors
    /// There is no connection, or too much waits for it.
    pub(super) fn ask(
        &self,
        local: &Rc<ClusterLocal>,
        (key, is_asking): (&[u8], bool),
        arguments: &[&[u8]],
    ) -> Result<oneshot::Receiver<Answer>, Missed> {
        self.follow(local);
        let now = Instant::now();
        self.asked_at.set(now);
        let mut waiting = self.waiting.borrow_mut();
        if self.state.get() == State::Down || waiting.len() >= WAITING_MAX {
            return Err(Missed::Away);
        }
        if is_asking {
            waiting.push_back(Waiting::Asking);
            write_command(&[b"ASKING"], &mut self.out.borrow_mut());
        }
        let (answer, found) = oneshot::channel();
        waiting.push_back(Waiting::Ask { answer, at: now });
        let command = [&[b"EVALSHA", script::NAME.as_bytes(), b"1", key], arguments].concat();
        write_command(&command, &mut self.out.borrow_mut());
        self.wake();
        Ok(found)
    }

    /// Asks which node has which slot. `None`: there is no connection.
    pub(super) fn ask_slots(&self) -> Option<oneshot::Receiver<SlotMap>> {
        self.asked_at.set(Instant::now());
        let mut waiting = self.waiting.borrow_mut();
        if self.state.get() == State::Down || waiting.len() >= WAITING_MAX {
            return None;
        }
        let (answer, found) = oneshot::channel();
        waiting.push_back(Waiting::Slots(answer));
        write_command(&[b"CLUSTER", b"SLOTS"], &mut self.out.borrow_mut());
        self.wake();
        Some(found)
    }

    /// Returns whether the next reply says which node has which slot.
    fn awaits_slots(&self) -> bool {
        matches!(self.waiting.borrow().front(), Some(Waiting::Slots(_)))
    }

    /// A question was not answered in time: if replies have stopped altogether, the connection is given up.
    pub(super) fn is_late(&self, timeout: Duration) {
        let waiting = self.waiting.borrow();
        let oldest = waiting.iter().find_map(|waiting| match waiting {
            Waiting::Ask { at, .. } => Some(*at),
            Waiting::Setup | Waiting::Asking | Waiting::Slots(_) => None,
        });
        if self.state.get() == State::Up && oldest.is_some_and(|at| at.elapsed() >= timeout.max(CONNECT)) {
            self.is_spent.set(true);
            self.wake();
        }
    }

    /// Goes by the cluster as it is now. A connection to an endpoint that is no longer there is given up.
    fn follow(&self, local: &Rc<ClusterLocal>) {
        if Rc::ptr_eq(&self.local.borrow(), local) {
            return;
        }
        *self.local.borrow_mut() = local.clone();
        if self.target.is_some() {
            // Nodes come from the store itself.
            return;
        }
        let address = self.address.borrow();
        let is_there =
            |address: &Address| local.plan.cluster.endpoints.iter().any(|endpoint| endpoint.address == *address);
        if address.as_ref().is_some_and(|address| !is_there(address)) {
            self.is_spent.set(true);
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Tells all who wait that there is no answer.
    fn give_up(&self) {
        self.out.borrow_mut().clear();
        // The senders are dropped, which is an answer.
        self.waiting.borrow_mut().clear();
        *self.address.borrow_mut() = None;
    }

    /// What a new connection begins with, before all that is asked.
    fn greet(&self) {
        let mut greeting = Vec::new();
        let mut commands = 1;
        if let Some(password) = &self.login.password {
            let user = self.login.username.as_deref().unwrap_or("default");
            write_command(&[b"AUTH", user.as_bytes(), password.as_bytes()], &mut greeting);
            commands += 1;
        }
        if self.login.database > 0 {
            write_command(&[b"SELECT", self.login.database.to_string().as_bytes()], &mut greeting);
            commands += 1;
        }
        write_command(&[b"SCRIPT", b"LOAD", script::TEXT.as_bytes()], &mut greeting);
        let mut waiting = self.waiting.borrow_mut();
        (0..commands).for_each(|_| waiting.push_front(Waiting::Setup));
        self.out.borrow_mut().splice(0..0, greeting);
    }

    /// Takes a reply.
    fn take(&self, reply: &Reply) -> Result<(), End> {
        let first = self.waiting.borrow_mut().pop_front();
        match (first.ok_or(End::Broken)?, reply) {
            (Waiting::Setup, Reply::Error(message)) => {
                self.tell_once("the store of a shared limit refuses", message);
                Err(End::Broken)
            }
            (Waiting::Setup, _) => {
                // Replies come in order: the last of the setup comes before the first answer.
                if !matches!(self.waiting.borrow().front(), Some(Waiting::Setup)) {
                    self.state.set(State::Up);
                }
                Ok(())
            }
            (Waiting::Ask { .. }, Reply::Error(message)) if message.starts_with(b"NOSCRIPT") => {
                self.load_script();
                Ok(())
            }
            (Waiting::Asking, _) => Ok(()),
            (Waiting::Slots(answer), reply) => {
                // Without a map the sender is dropped, which is an answer.
                if let Some(map) = SlotMap::read(reply) {
                    let _ = answer.send(map);
                }
                Ok(())
            }
            (Waiting::Ask { answer, .. }, Reply::Error(message)) => {
                if let Some(redirect) = Redirect::read(message) {
                    let _ = answer.send(Err(Missed::Elsewhere(redirect)));
                    self.has_answered.set(true);
                    return Ok(());
                }
                // The sender is dropped, which is an answer. Those who asked after it have theirs to come.
                self.tell_once("the store of a shared limit fails", message);
                if answers_nobody(message) { Err(End::Broken) } else { Ok(()) }
            }
            (Waiting::Ask { answer, .. }, reply) => {
                let spent = script::spent(reply).ok_or(End::Broken)?;
                let _ = answer.send(Ok(spent));
                if !self.has_answered.replace(true) {
                    self.told.take();
                }
                Ok(())
            }
        }
    }

    /// Loads the script once more: the store has lost it, as after `SCRIPT FLUSH`.
    fn load_script(&self) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waiting| matches!(waiting, Waiting::Setup)) {
            waiting.push_back(Waiting::Setup);
            write_command(&[b"SCRIPT", b"LOAD", script::TEXT.as_bytes()], &mut self.out.borrow_mut());
        }
    }

    /// Tells what fails, but not again while the failure stays the same.
    fn tell_once(&self, what: &'static str, message: &[u8]) {
        // The first word of an error is its kind; the rest may be another each time.
        let kind = message.split(|byte| *byte == b' ').next().unwrap_or_default();
        let kind = &kind[..kind.len().min(32)];
        if self.told.borrow().as_ref().is_none_or(|told| told.0 != what || *told.1 != *kind) {
            *self.told.borrow_mut() = Some((what, kind.into()));
            self.tell(what, message);
        }
    }

    fn tell(&self, what: &'static str, message: &[u8]) {
        let message = String::from_utf8_lossy(&message[..message.len().min(200)]).into_owned();
        let local = self.local.borrow();
        telemetry::log::warn(what, &[("cluster", &local.plan.cluster.name), ("error", &message)]);
    }

    /// Returns whether an endpoint before the one of this connection has come up again. `is_first` keeps whether none was up.
    fn is_outranked(&self, is_first: &mut bool) -> bool {
        if self.target.is_some() {
            return false;
        }
        let local = self.local.borrow();
        let address = self.endpoint(0).and_then(|place| Some(&local.plan.cluster.endpoints.get(place)?.address));
        let was_first = std::mem::replace(is_first, address == self.address.borrow().as_ref());
        was_first && !*is_first
    }

    /// The endpoint to ask: the first that is up, but for as many as have just failed.
    fn endpoint(&self, failures: usize) -> Option<usize> {
        let local = self.local.borrow();
        let all = local.plan.cluster.endpoints.len();
        let up: Vec<usize> = (0..all).filter(|place| local.plan.is_up(*place)).collect();
        let list = if up.is_empty() { (0..all).collect() } else { up };
        (!list.is_empty()).then(|| list[failures % list.len()])
    }
}

/// Whether an error says that this endpoint answers no question: it is a replica, still loads, or wants a password.
fn answers_nobody(message: &[u8]) -> bool {
    let begins = [b"LOADING".as_slice(), b"MASTERDOWN", b"CLUSTERDOWN", b"NOAUTH", b"NOPERM"];
    // Before version 7, an error within a script comes after text of the script's own.
    begins.iter().any(|kind| message.starts_with(kind)) || message.windows(8).any(|word| word == b"READONLY")
}
