//! The loop of a worker: carries out commands, and accepts at the sockets of the plan in force.
//!
//! What its connections share is in [`Worker`], which knows nothing of this.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use model::Address;
use plan::ListenerPlan;
use socket2::SockRef;
use telemetry::Telemetry;
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc::UnboundedReceiver;

use super::command::{Command, Commit, Try};
use super::{Trial, Worker};
use crate::accept::Accepting;
use crate::access_logs::{LogExpressions, WorkerLogs};
use crate::bound::{Bound, Opened, is_same_place};
use crate::clients;
use crate::handover::on_worker;
use crate::handover::retired::Retired;
use crate::listen::{self, Transport};
use crate::registry::ListenerHandle;
use crate::spool;
use crate::worker_plan::WorkerPlan;

/// How often idle upstream connections are looked over.
const SWEEP: Duration = Duration::from_secs(1);

/// A worker with its listening sockets.
struct Running {
    worker: Rc<Worker>,
    listening: RefCell<Vec<Accepting>>,
    /// Sockets whose listener is gone.
    retired: Retired,
    /// Sockets at which nothing is taken yet, while another process may still do that.
    held: RefCell<Option<Vec<Opened>>>,
    /// The program is ending: no listener begins any more.
    is_draining: Cell<bool>,
}

/// Runs a worker until a command stops it. `is_held`: it accepts nothing before a command says so.
pub(crate) fn run(
    index: usize,
    telemetry: Arc<Telemetry>,
    (open_connections, is_held): (Arc<AtomicUsize>, bool),
    commands: UnboundedReceiver<Command>,
) {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    let builder = builder.enable_all().thread_name("spool").max_blocking_threads(spool::THREADS);
    let runtime = match builder.build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => {
            telemetry::log::error("worker cannot start", &[("error", &error.to_string())]);
            return;
        }
    };
    let running = Running {
        worker: Worker::new(index, telemetry, open_connections),
        listening: RefCell::default(),
        retired: Retired::default(),
        held: is_held.then(Vec::new).into(),
        is_draining: Cell::new(false),
    };
    runtime.block_on(turn(running, commands));
}

async fn turn(running: Running, mut commands: UnboundedReceiver<Command>) {
    let worker = running.worker.clone();
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Stop) | None => return worker.outgoing.end(),
                Some(command) => obey(&running, command),
            },
            _ = sweep.tick() => {
                let now = Instant::now();
                worker.forget_last_plans();
                worker.plan().sweep(now);
                if let Some(trial) = &*worker.trial.borrow() {
                    trial.plan.sweep(now);
                }
            }
        }
    }
}

/// Carries out a command.
fn obey(running: &Running, command: Command) {
    let worker = &running.worker;
    match command {
        Command::Commit(commit) => take_over(running, *commit),
        Command::Try(tried, done) => {
            try_out(worker, tried.map(|tried| *tried));
            // The publisher may have stopped waiting.
            let _ = done.send(());
        }
        Command::Drain(done, window) => {
            running.is_draining.set(true);
            for accepting in running.listening.borrow().iter() {
                accepting.handle.parts.set(accepting.handle.is_given.get());
                accepting.end(Some(done.clone()));
            }
            worker.registry.wake_closing();
            let parting = |handle: &Rc<ListenerHandle>| handle.parts.get();
            let handles = running.listening.borrow().iter().map(|one| one.handle.clone()).filter(parting).collect();
            tokio::task::spawn_local(worker.registry.clone().part(handles, window));
        }
        Command::Cut => worker.registry.cut_all(),
        Command::Ask(question) => clients::answer(worker, question),
        Command::Offer(offers) => on_worker::offer(worker, &running.listening.borrow(), &running.retired, &offers),
        Command::Pause(is_paused, answers) => {
            on_worker::pause(worker, (&running.listening.borrow(), &running.retired), is_paused, &answers);
        }
        Command::Give(places, _done) => on_worker::give(&running.listening.borrow(), &running.retired, &places),
        Command::DuplicateRetired(address, duplicates) => {
            running.retired.duplicate(worker.index, &address, &duplicates);
        }
        Command::FreeRetired(address, freed) => {
            running.retired.free(|other| listen::overlap(other, &address), Some(&freed));
        }
        Command::Begin(sockets) => {
            let held = running.held.take().unwrap_or_default();
            let listeners = worker.plan().plan.listeners.clone();
            for opened in held.into_iter().chain(sockets) {
                start(running, &listeners, opened);
            }
        }
        Command::Pulse { .. } | Command::Stop => {}
    }
}

/// Begins to try a plan, or ends it.
fn try_out(worker: &Rc<Worker>, tried: Option<Try>) {
    let now = worker.plan();
    let trial = tried.map(|Try { plan, tls, share_percent, counts }| {
        let plan = Rc::new(WorkerPlan::build(plan, tls, &now));
        Trial { plan, share_percent, counts }
    });
    worker.has_trial.set(trial.is_some());
    if let Some(old) = worker.trial.replace(trial) {
        old.plan.retire_pools(&now);
    }
}

fn take_over(running: &Running, commit: Commit) {
    let worker = &running.worker;
    let before = worker.plan();
    worker.has_trial.set(false);
    let tried = worker.trial.take().map(|trial| trial.plan);
    let built = match &tried {
        // What was tried is as it was, its kept connections included.
        Some(tried) if Arc::ptr_eq(&tried.plan, &commit.plan) => {
            tried.adopt(&before);
            tried.clone()
        }
        _ => Rc::new(WorkerPlan::build(commit.plan, commit.tls, &before)),
    };
    built.come_into_force();
    before.retire_pools(&built);
    tried.iter().for_each(|tried| tried.retire_pools(&built));
    let listeners = built.plan.listeners.clone();
    let expressions = LogExpressions::of(&built.plan);
    *worker.plan.borrow_mut() = built;
    *worker.logs.borrow_mut() = commit.logs.map(|logs| WorkerLogs::new(&logs, worker.index, expressions));
    running.listening.borrow_mut().retain_mut(|accepting| {
        let transport = accepting.bound.transport;
        let same = |listener: &Arc<ListenerPlan>| {
            Transport::of(&listener.listener).contains(&transport)
                && is_same_place(&accepting.name, &accepting.bound, &listener.listener, transport)
        };
        let place = listeners.iter().position(same);
        match place {
            Some(index) => {
                accepting.name = listeners[index].listener.name.clone();
                let listener = &listeners[index].listener;
                accepting.bound.bind = listener.bind.clone();
                let place = accepting.handle.index.replace(index);
                // The place is that of the plan before.
                if before.plan.listeners.get(place).is_some_and(|old| old.listener.socket != listener.socket) {
                    accepting.tune(&listener.socket);
                }
            }
            None => {
                // What it has accepted, or the kernel has for it, is served by the plan that it came under.
                worker.keep_last_plan(&accepting.handle, before.clone());
                running.retired.remember(accepting);
                accepting.end(None);
            }
        }
        place.is_some()
    });
    let held = &mut *running.held.borrow_mut();
    match held {
        Some(held) => held.extend(commit.sockets),
        None => commit.sockets.into_iter().for_each(|opened| start(running, &listeners, opened)),
    }
    let listening = running.listening.borrow();
    listening.iter().for_each(Accepting::review);
    running.retired.make_way(&listening);
    running.retired.free_where_others_are(&listening);
    drop(listening);
    worker.registry.wake_closing();
    // The publisher may have stopped waiting; the plan is in force all the same.
    let _ = commit.done.send(());
}

/// Takes what arrives at a socket from now on.
fn start(running: &Running, listeners: &[Arc<ListenerPlan>], opened: Opened) {
    if running.is_draining.get() {
        return;
    }
    let Some(index) = listeners.iter().position(|listener| listener.listener.name == opened.name) else { return };
    let bind = listeners[index].listener.bind.clone();
    let address = SockRef::from(&opened.socket).local_addr().ok().and_then(|address| address.as_socket());
    let address = address.map_or_else(|| bind.clone(), Address::Ip);
    let bound = Bound { bind, address, transport: opened.transport, file: None, quic: None };
    let is_adopted = opened.is_adopted;
    let is_back = opened.hub.as_ref().is_some_and(|hub| !hub.before.is_empty());
    match Accepting::start(&running.worker, bound, index, opened) {
        Ok(accepting) => {
            if is_adopted {
                accepting.tune(&listeners[index].listener.socket);
            }
            if is_back {
                running.retired.give_way(&accepting.bound.address);
            }
            running.listening.borrow_mut().push(accepting);
        }
        Err(error) => telemetry::log::error("a bound socket cannot be used", &[("error", &error.to_string())]),
    }
}
