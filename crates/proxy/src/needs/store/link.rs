//! The connection of a worker to a store.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::{Duration, Instant};

use model::Address;
use plan::filter::{Away, Spent, StoreLogin};
use tokio::sync::oneshot;
use wire::resp::{Reply, read_reply, write_command};

use super::script;
use crate::byte_stream::ByteStream;
use crate::socket;
use crate::worker_plan::ClusterLocal;

/// Questions without an answer, beyond which the store counts as away.
const WAITING_MAX: usize = 4096;
/// How long connecting and logging in may take.
const CONNECT: Duration = Duration::from_secs(2);
/// Pauses between attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A link that nobody asks for so long ends.
const IDLE: Duration = Duration::from_secs(60);
/// Bytes of replies that are not read yet. They are small.
const INPUT_BYTES_MAX: usize = 256 << 10;
const READ_BYTES: usize = 4 << 10;

type Answer = Result<Spent, Away>;

/// See the module.
pub(super) struct Link {
    local: RefCell<Rc<ClusterLocal>>,
    login: Arc<StoreLogin>,
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
    pub(super) fn start(local: &Rc<ClusterLocal>, login: &Arc<StoreLogin>, forget: fn(&Rc<Self>)) -> Rc<Self> {
        let link = Rc::new(Self {
            local: RefCell::new(local.clone()),
            login: login.clone(),
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
        tokio::task::spawn_local(drive(link.clone(), forget));
        link
    }

    /// Returns whether it is to this cluster, with this login.
    pub(super) fn is_for(&self, local: &ClusterLocal, login: &Arc<StoreLogin>) -> bool {
        let known = self.local.borrow();
        known.plan.cluster.name == local.plan.cluster.name && (Arc::ptr_eq(&self.login, login) || self.login == *login)
    }

    /// Asks about a key.
    ///
    /// # Errors
    /// There is no connection, or too much waits for it.
    pub(super) fn ask(
        &self,
        local: &Rc<ClusterLocal>,
        key: &[u8],
        arguments: &[String; 3],
    ) -> Result<oneshot::Receiver<Answer>, Away> {
        self.follow(local);
        let now = Instant::now();
        self.asked_at.set(now);
        let mut waiting = self.waiting.borrow_mut();
        if self.state.get() == State::Down || waiting.len() >= WAITING_MAX {
            return Err(Away);
        }
        let (answer, found) = oneshot::channel();
        waiting.push_back(Waiting::Ask { answer, at: now });
        let [interval, burst, most] = arguments.each_ref().map(|argument| argument.as_bytes());
        let command = [b"EVALSHA", script::NAME.as_bytes(), b"1", key, interval, burst, most];
        write_command(&command, &mut self.out.borrow_mut());
        self.wake();
        Ok(found)
    }

    /// A question was not answered in time: if replies have stopped altogether, the connection is given up.
    pub(super) fn is_late(&self, timeout: Duration) {
        let waiting = self.waiting.borrow();
        let oldest = waiting.iter().find_map(|waiting| match waiting {
            Waiting::Ask { at, .. } => Some(*at),
            Waiting::Setup => None,
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
            (Waiting::Ask { .. }, Reply::Error(message)) => {
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

/// Connects, answers and connects again, until nobody asks any more.
async fn drive(link: Rc<Link>, forget: fn(&Rc<Link>)) {
    let (mut pause, mut failures) = (PAUSE_MIN, 0);
    loop {
        link.is_spent.set(false);
        link.has_answered.set(false);
        let connected = tokio::time::timeout(CONNECT, connect(&link, failures)).await;
        let end = match connected.ok().flatten() {
            Some(io) => {
                link.greet();
                serve(&link, io).await
            }
            None => End::Broken,
        };
        if end == End::Better {
            // What is asked from now on waits for the next connection.
            link.state.set(State::Beginning);
            link.give_up();
            (pause, failures) = (PAUSE_MIN, 0);
            continue;
        }
        if link.has_answered.get() {
            // It begins with the first endpoint again.
            (pause, failures) = (PAUSE_MIN, 0);
        } else {
            failures += 1;
        }
        if link.state.replace(State::Down) == State::Up && end == End::Broken && link.told.borrow().is_none() {
            link.tell_once("the connection to the store of a shared limit is lost", b"trying again");
        }
        link.give_up();
        if end == End::Idle || link.asked_at.get().elapsed() >= IDLE {
            return forget(&link);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn connect(link: &Link, failures: usize) -> Option<ByteStream> {
    let place = link.endpoint(failures)?;
    let local = link.local.borrow().clone();
    let endpoint = local.plan.cluster.endpoints.get(place)?;
    let tcp = socket::connect(&endpoint.address, &local.plan.cluster.socket, None, true).await.ok()?;
    *link.address.borrow_mut() = Some(endpoint.address.clone());
    match &local.tls {
        None => Some(ByteStream::Plain(tcp)),
        Some(tls) => {
            let stream = Box::pin(tls.connector.connect(tls.name_for(endpoint)?, tcp)).await.ok()?;
            Some(ByteStream::Connected(Box::new(stream)))
        }
    }
}

/// Writes what is asked and reads what is answered, until the connection ends or nobody asks any more.
async fn serve(link: &Link, mut io: ByteStream) -> End {
    let (mut writing, mut written, mut input) = (Vec::new(), 0, Vec::new());
    let begun = Instant::now();
    let mut look = Box::pin(tokio::time::sleep(CONNECT));
    let (mut is_first, mut is_outranked) = (false, false);
    poll_fn(|cx| {
        link.waker.borrow_mut().clone_from(&Some(cx.waker().clone()));
        if link.is_spent.get() {
            return Poll::Ready(End::Broken);
        }
        if let Poll::Ready(end) = poll_replies(link, cx, &mut io, &mut input) {
            return Poll::Ready(end);
        }
        if poll_commands(link, cx, &mut io, (&mut writing, &mut written)).is_err() {
            return Poll::Ready(End::Broken);
        }
        if is_outranked && link.waiting.borrow().is_empty() {
            return Poll::Ready(End::Better);
        }
        while look.as_mut().poll(cx).is_ready() {
            if link.asked_at.get().elapsed() >= IDLE {
                return Poll::Ready(End::Idle);
            }
            if link.state.get() != State::Up && begun.elapsed() >= CONNECT {
                return Poll::Ready(End::Broken);
            }
            if is_outranked {
                // There was always a question: those of this moment get no answer.
                return Poll::Ready(End::Better);
            }
            is_outranked = link.is_outranked(&mut is_first);
            look.as_mut().reset(tokio::time::Instant::now() + CONNECT);
        }
        Poll::Pending
    })
    .await
}

/// Ready when the connection has ended.
fn poll_replies(link: &Link, cx: &mut TaskContext<'_>, io: &mut ByteStream, input: &mut Vec<u8>) -> Poll<End> {
    let mut room = [0; READ_BYTES];
    loop {
        let count = match ready!(io.poll_read(cx, &mut room)) {
            Ok(0) | Err(_) => return Poll::Ready(End::Broken),
            Ok(count) => count,
        };
        input.extend_from_slice(&room[..count]);
        let mut taken = 0;
        loop {
            match read_reply(&input[taken..]) {
                Ok(Some((reply, count))) => {
                    taken += count;
                    if let Err(end) = link.take(&reply) {
                        return Poll::Ready(end);
                    }
                }
                Ok(None) => break,
                Err(_) => return Poll::Ready(End::Broken),
            }
        }
        input.drain(..taken);
        if input.len() > INPUT_BYTES_MAX {
            return Poll::Ready(End::Broken);
        }
    }
}

/// Writes as much as the store takes.
fn poll_commands(
    link: &Link,
    cx: &mut TaskContext<'_>,
    io: &mut ByteStream,
    (writing, written): (&mut Vec<u8>, &mut usize),
) -> std::io::Result<()> {
    loop {
        if *written == writing.len() {
            writing.clear();
            *written = 0;
            std::mem::swap(writing, &mut link.out.borrow_mut());
            if writing.is_empty() {
                return match io.poll_flush(cx) {
                    Poll::Ready(flushed) => flushed,
                    Poll::Pending => Ok(()),
                };
            }
        }
        match io.poll_write(cx, &writing[*written..]) {
            Poll::Ready(count) => *written += count?,
            Poll::Pending => return Ok(()),
        }
    }
}
