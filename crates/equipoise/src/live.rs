//! A started program: workers, configuration, probes and admin listener, from start to end. Every command that proxies
//! goes through here.

mod admin_door;
mod end;
mod memory;
mod orders;
mod serve;
mod start;
mod upgrade;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use admin::Bound;
use control::{Candidate, Cause, OrderSender, Orders, Preparation, Reconciler, Refusal, View};
use model::snapshot;
use proxy::Workers;
use telemetry::Telemetry;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::limits;
use crate::signals::{Signals, Wish};
use crate::systemd::Watchdog;
use crate::upgrade::{Program, Successor};

use admin_door::AdminDoor;
use memory::Memory;

pub(crate) use start::{block_on, cannot_start};

/// The parts of a running program.
pub(crate) struct Live {
    telemetry: Arc<Telemetry>,
    workers: Workers,
    count: usize,
    reconciler: Reconciler,
    admin_door: AdminDoor,
    /// Where the admin listener places orders.
    order_sender: OrderSender,
    orders: Orders,
    drain_timeout: Duration,
    upgrade_timeout: Duration,
    program: Option<Program>,
    predecessor: upgrade::Before,
    /// No process before this one is there any more.
    is_alone: Arc<AtomicBool>,
    /// Signals that came to the process before, and where they are put.
    notes: (UnboundedSender<Wish>, UnboundedReceiver<Wish>),
    watchdog: Watchdog,
    memory: Memory,
    /// CPU time of the threads that prepare changes.
    spent_aside: Duration,
}

/// Why a program serves no more.
pub(crate) enum After {
    /// It was asked to end.
    Shutdown,
    /// Another process has taken over.
    Followed(Successor),
}

impl Live {
    /// Applies a configuration, the admin listener included: whatever goes wrong leaves all as it was.
    fn put_into_force(&mut self, candidate: Candidate, cause: Cause) -> Result<(), Refusal> {
        let wanted = candidate.snapshot().admin.clone();
        let timeouts = (candidate.snapshot().drain_timeout, candidate.snapshot().upgrade_timeout);
        let stays = self.admin_door.stays(wanted.as_ref());
        if !stays {
            self.admin_door.close_moved();
        }
        let bound = wanted.as_ref().filter(|_| !stays).map(|wanted| self.bind_admin(wanted)).transpose()?;
        if !stays {
            // The new rules are for another address: no one comes in by the old one when they hold.
            self.admin_door.set_closed(true);
        }
        if let Err(reason) = self.reconciler.commit(candidate, cause) {
            self.admin_door.set_closed(false);
            return Err(Refusal::Unpublished(reason));
        }
        self.view().set_addresses(self.workers.addresses());
        (self.drain_timeout, self.upgrade_timeout) = timeouts;
        if !stays {
            self.admin_door.leave();
        } else if let Some(wanted) = &wanted {
            self.admin_door.permit(wanted.mode);
        }
        if let Some(bound) = bound {
            wanted.iter().for_each(admin_door::tell_rules);
            self.admin_door.open(bound, self.reconciler.view(), &self.order_sender);
        }
        Ok(())
    }

    /// Binds the admin listener, at a socket of the process before or of systemd if one is at hand.
    fn bind_admin(&mut self, wanted: &snapshot::Admin) -> Result<Bound, Refusal> {
        let offered = self.admin_door.take_offered(&wanted.bind);
        let bound = match offered.or_else(|| self.workers.take_activated(&wanted.bind)) {
            Some(socket) => self.adopt_admin(&wanted.bind, socket),
            None => self.admin_door.bind(wanted),
        };
        bound.map_err(|error| Refusal::Unpublished(format!("admin: cannot listen on {}: {error}", wanted.bind)))
    }

    /// Prepares something on a thread of lower priority than the workers: reading and compiling take milliseconds of a core, and requests
    /// must not wait for them. Names may take seconds to be found, and neither signals nor the watchdog can wait for that.
    ///
    /// Returns `None` if a signal asked for the end, and the thread is left alone; `Some(None)` if the work panicked or got no thread, and
    /// nothing of what runs was touched.
    async fn aside<T: Send + 'static>(
        &mut self,
        signals: &mut Signals,
        work: impl FnOnce(&Preparation) -> T + Send + 'static,
    ) -> Option<Option<T>> {
        let preparation = self.reconciler.preparation();
        let (sender, mut done) = oneshot::channel();
        let spawned = std::thread::Builder::new().name("prepare".into()).spawn(move || {
            limits::give_way();
            // Pages that were used before come back clean: what stays of this change shares no page with what once was there.
            crate::memory::give_back();
            let done = work(&preparation);
            // Who waits may have gone.
            let _ = sender.send((done, limits::cpu_time()));
        });
        if let Err(error) = spawned {
            telemetry::log::error("a change cannot be prepared", &[("error", &error)]);
            return Some(None);
        }
        loop {
            tokio::select! {
                done = &mut done => {
                    let Ok((done, cost)) = done else { return Some(None) };
                    self.spent_aside += cost;
                    self.memory.note_prepared();
                    return Some(Some(done));
                }
                () = signals.ended() => return None,
                () = self.watchdog.turn() => self.watchdog.beat(&self.workers),
            }
        }
    }

    /// Returns what others may read.
    pub(crate) fn view(&self) -> &View {
        self.reconciler.view()
    }

    /// Returns where the dashboard is, if a browser can reach it.
    pub(crate) fn admin_address(&self) -> Option<std::net::SocketAddr> {
        self.admin_door.address()?.ip()
    }
}

fn tell_refusal(message: &'static str, refusal: &Refusal) {
    match refusal {
        Refusal::Bad(diagnostics) => {
            // First, so that who waits for the line below has read what it is about.
            eprintln!("{diagnostics}");
            telemetry::log::error(message, &[("problems", &(diagnostics.list.len() + diagnostics.left_out))]);
        }
        other => telemetry::log::error(message, &[("reason", &other)]),
    }
}

fn reopen_logs(workers: &Workers) {
    match workers.reopen_logs() {
        Ok(()) => telemetry::log::info("access logs reopened", &[]),
        Err(error) => telemetry::log::error("an access log cannot be reopened", &[("error", &error)]),
    }
}
