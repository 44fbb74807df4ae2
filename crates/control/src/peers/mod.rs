//! Replication of tables between instances: each sends what it counts to all others, over a connection that it dials.
//!
//! `engine.rs` decides what is sent and taken in, without sockets; `outgoing.rs` and `incoming.rs` are the two ends of a connection.
//! All of it runs on a thread of its own, which is there once there are peers.

mod connection;
mod doors;
mod engine;
mod incoming;
mod outgoing;
mod own;
mod parts;
mod sessions;
mod shared;
mod standing;
mod state;
mod status;

use std::io;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use model::snapshot::Snapshot;
use model::{Issue, peers as settings};
use plan::Plan;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;
use tokio::time::{interval, sleep};

use connection::Secrets;
use engine::PeersHandover;
use outgoing::Task;
pub(crate) use shared::Shared;
pub use status::{PeerState, PeerStatus, PeersStatus};

/// How often what was counted is collected: with the way to a peer, it is there within a tenth of a second.
const COLLECT_EVERY: Duration = Duration::from_millis(50);
/// Time at the end of the process for peers to get what was counted last.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// The same for a process that another has followed: that one may not listen yet.
const FLUSH_RETIRED_WITHIN: Duration = Duration::from_secs(3);

/// Looks whether certificates of peers are of use.
///
/// # Errors
/// Which are not.
pub(crate) fn check(snapshot: &Snapshot) -> Result<(), Issue> {
    let Some(settings) = &snapshot.peers else { return Ok(()) };
    Secrets::of(settings).map(drop).map_err(|message| Issue::at("peers/tls", message))
}

enum Order {
    Follow(Option<settings::Peers>),
    Retire,
}

/// The owner of the thread.
#[derive(Default)]
pub(crate) struct Peers {
    shared: Shared,
    settings: Option<settings::Peers>,
    /// There is none before the first peers.
    thread: Option<(UnboundedSender<Order>, JoinHandle<()>)>,
}

impl Peers {
    /// Returns what others may look at.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Replicates the tables of this plan from now on, with its peers.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn follow(&mut self, plan: &Plan) -> io::Result<()> {
        let settings = &plan.snapshot.peers;
        if settings.is_none() && self.thread.is_none() {
            return Ok(());
        }
        self.shared.engine().follow(plan.tables.iter().filter(|table| table.is_replicated()).cloned().collect());
        self.shared.sessions().follow(plan);
        if self.thread.is_none() {
            self.thread = Some(self.start()?);
        } else if *settings == self.settings {
            return Ok(());
        }
        self.settings.clone_from(settings);
        self.order(Order::Follow(settings.clone()));
        Ok(())
    }

    fn start(&self) -> io::Result<(UnboundedSender<Order>, JoinHandle<()>)> {
        let (sender, receiver) = unbounded_channel();
        let shared = self.shared.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let work = move || {
            tokio::task::LocalSet::new().block_on(&runtime, run(receiver, shared));
            // A lookup of a name that takes long must not hold up the end of the program.
            runtime.shutdown_background();
        };
        Ok((sender, std::thread::Builder::new().name("peers".to_owned()).spawn(work)?))
    }

    fn order(&self, order: Order) {
        // A thread that is gone has panicked, which it reported.
        if let Some((sender, _)) = &self.thread {
            let _ = sender.send(order);
        }
    }

    /// Another process has taken over: this one sends what it still counts, to that one too, and hears nothing more.
    pub(crate) fn retire(&self) {
        self.shared.engine().retire();
        self.shared.sessions().retire();
        self.order(Order::Retire);
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            // A panic of the thread was reported by the thread.
            let _ = thread.join();
        }
    }
}

async fn run(mut orders: UnboundedReceiver<Order>, shared: Shared) {
    let collecting = shared.clone();
    let _collecting = Task(spawn_local(async move {
        let mut turns = interval(COLLECT_EVERY);
        loop {
            turns.tick().await;
            collecting.drain();
        }
    }));
    let (mut settings, mut listening, mut links) = (None, None, Vec::new());
    while let Some(order) = orders.recv().await {
        match order {
            Order::Follow(wanted) => {
                // What is on its way ends here, and is sent again over the new connections.
                drop((listening.take(), std::mem::take(&mut links)));
                shared.board().members.clear();
                settings = wanted;
                if let Some(settings) = &settings {
                    (listening, links) = begin(settings, &shared);
                }
            }
            Order::Retire => {
                drop(listening.take());
                if let Some(settings) = &settings
                    && let Ok(secrets) = Secrets::of(settings)
                {
                    links.extend(link_to_successor(settings, secrets, &shared));
                }
            }
        }
    }
    shared.drain();
    let is_owed = shared.engine().owes_successor() || shared.sessions().owes_successor();
    let (members, within) =
        if is_owed { (shared.known_members(), FLUSH_RETIRED_WITHIN) } else { (Vec::new(), FLUSH_WITHIN) };
    let until = Instant::now() + within;
    while !shared.is_flushed(&members) && Instant::now() < until {
        sleep(Duration::from_millis(5)).await;
    }
}

/// A link to the process that has taken over, which is where this one was: under the name of this instance among the members, if it has one.
fn link_to_successor(settings: &settings::Peers, secrets: Secrets, shared: &Shared) -> Vec<Task> {
    let (secrets, listen) = (Rc::new(secrets), settings.listen.to_string());
    let own: Vec<_> = {
        let board = shared.board();
        board.members.iter().filter(|(_, peer)| peer.state == PeerState::Own).map(|(key, _)| key.clone()).collect()
    };
    let places = if own.is_empty() { vec![(listen.clone(), listen)] } else { own };
    // It is to be connected before this process ends.
    places.iter().for_each(|key| shared.board().note(key, PeerState::Connecting, Some(shared.me())));
    let link = |key| Task(spawn_local(outgoing::keep(key, Rc::clone(&secrets), shared.clone())));
    places.into_iter().map(link).collect()
}

fn begin(settings: &settings::Peers, shared: &Shared) -> (Option<Task>, Vec<Task>) {
    let secrets = match Secrets::of(settings) {
        Ok(secrets) => Rc::new(secrets),
        Err(error) => {
            telemetry::log::error("TLS between peers cannot be set up", &[("error", &error)]);
            return (None, Vec::new());
        }
    };
    let listening = spawn_local(incoming::listen(settings.listen, Rc::clone(&secrets), shared.clone()));
    let link = |member: &settings::Member| {
        Task(spawn_local(outgoing::follow(member.clone(), Rc::clone(&secrets), shared.clone())))
    };
    (Some(Task(listening)), settings.members.iter().map(link).collect())
}

/// Returns what the process that follows needs of peers, and stops what would change it.
pub(crate) fn hand_over(shared: &Shared) -> Value {
    let mut engine = shared.engine();
    engine.pause(true);
    let vector = engine.hand_over().vector;
    let pair = |(instance, number): (u128, u64)| json!([format!("{instance:032x}"), number]);
    vector.into_iter().map(pair).collect::<Vec<_>>().into()
}

/// Takes over what [`hand_over`] returned.
pub(crate) fn inherit(shared: &Shared, told: &Value, lacks_tables: bool) {
    let pair = |told: &Value| Some((u128::from_str_radix(told[0].as_str()?, 16).ok()?, told[1].as_u64()?));
    let vector: Option<Vec<_>> = told.as_array().and_then(|all| all.iter().map(pair).collect());
    if let Some(vector) = vector.filter(|vector| !vector.is_empty()) {
        shared.engine().inherit(&PeersHandover { vector, lacks_tables }, Instant::now());
    }
}
