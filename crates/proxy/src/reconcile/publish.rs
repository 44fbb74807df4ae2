//! The path of a plan to the workers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use model::{Issue, Name};
use plan::{Plan, Trial};
use telemetry::AccessLogs;

use super::shared::{ACKNOWLEDGE, Published, Shared};
use crate::bound::{Bound, Opened};
use crate::disk_cache;
use crate::listen::{self, Transport};
use crate::socket;
use crate::socket_file::Undo;
use crate::tls::TlsMaterial;
use crate::worker::command::{Command, Commit, Try};

impl Shared {
    /// Puts a plan in force on all workers.
    ///
    /// # Errors
    /// What of it cannot be had; nothing has changed.
    pub(super) fn publish(&self, plan: Arc<Plan>) -> Result<(), String> {
        let mut published = self.published();
        let tls = match &published.tried {
            // Its connections are those of this very TLS.
            Some((tried, tls)) if Arc::ptr_eq(tried, &plan) => tls.clone(),
            _ => Arc::new(TlsMaterial::build(&plan, &published.tls).map_err(|issues| join(&issues))?),
        };
        socket::check(&plan.clusters)?;
        disk_cache::prepare(&plan)?;
        let logs = self.open_logs(&plan, &published).map_err(|error| error.to_string())?;
        let (bound, sockets) = self.bind(&plan, &published)?;
        // At those of a process before this one listens, which may have to go on with them as they are.
        let is_held = self.inheritance().is_held;
        let is_due = |opened: &&Opened| opened.transport == Transport::Stream && !(opened.is_adopted && is_held);
        for opened in sockets.iter().flatten().filter(is_due) {
            let Some(listener) = plan.listener(&opened.name).map(|plan| &plan.listener) else { continue };
            listen::listen(&opened.socket, &listener.socket)
                .map_err(|error| format!("listener {}: cannot listen: {error}", opened.name))?;
        }
        let permitted = permit(&plan, &bound)?;
        // Nothing is left that could refuse it.
        permitted.into_iter().for_each(Undo::keep);
        if let Some(before) = &published.plan {
            plan.take_effect(before);
        }
        disk_cache::use_folders(&plan);
        let (done, acknowledged) = channel();
        for (worker, sockets) in self.commands.iter().zip(sockets) {
            let (plan, tls, logs, done) = (plan.clone(), tls.clone(), logs.clone(), done.clone());
            let commit = Commit { plan, tls, sockets, logs, done };
            worker.send(Command::Commit(Box::new(commit))).map_err(|_| "a worker has ended".to_owned())?;
        }
        let before = std::mem::take(&mut *published);
        let old = before.leaving.into_iter().chain(before.bound.into_values());
        let leaving = old.filter(|old| old.is_in_use() && !bound.values().any(|new| old.is_of(new))).collect();
        // The old ones may have to be written to their end: not while the figures are waited for.
        let _old = std::mem::replace(&mut *self.logs(), logs);
        *published = Published { tls, plan: Some(plan), tried: None, bound, leaving };
        for _ in &self.commands {
            if acknowledged.recv_timeout(ACKNOWLEDGE).is_err() {
                // It has the plan and takes it over when it wakes: there is no way back.
                telemetry::log::warn("a worker is late in applying a configuration", &[]);
            }
        }
        Ok(())
    }

    /// Tries a plan beside the one in force, or ends that. Nothing is bound or opened: it has the listeners and the logs of the plan in
    /// force.
    pub(super) fn try_out(&self, trial: Option<Trial>) -> Result<(), String> {
        let mut published = self.published();
        let Some(Trial { plan, share_percent }) = trial else {
            published.tried = None;
            self.tell_all_and_wait(|done| Command::Try(None, done));
            return Ok(());
        };
        let same = published.plan.as_ref().is_some_and(|now| now.snapshot.listeners == plan.snapshot.listeners);
        let counts = self.telemetry.trial().filter(|_| same).ok_or("its listeners are not those of the active plan")?;
        let tls = Arc::new(TlsMaterial::build(&plan, &published.tls).map_err(|issues| join(&issues))?);
        socket::check(&plan.clusters)?;
        published.tried = Some((plan.clone(), tls.clone()));
        self.tell_all_and_wait(|done| {
            let (plan, tls, counts) = (plan.clone(), tls.clone(), counts.clone());
            Command::Try(Some(Box::new(Try { plan, tls, share_percent, counts })), done)
        });
        Ok(())
    }

    fn tell_all_and_wait(&self, command: impl Fn(Sender<()>) -> Command) {
        let (done, acknowledged) = channel();
        self.tell_all(|| command(done.clone()));
        drop(done);
        for _ in &self.commands {
            if acknowledged.recv_timeout(ACKNOWLEDGE).is_err() {
                telemetry::log::warn("a worker is late in starting or ending a canary", &[]);
                return;
            }
        }
    }

    fn open_logs(&self, plan: &Plan, published: &Published) -> io::Result<Option<Arc<AccessLogs>>> {
        let wanted = &plan.snapshot.access_logs;
        if published.plan.as_ref().is_some_and(|before| before.snapshot.access_logs == *wanted) {
            return Ok(self.logs().clone());
        }
        if wanted.is_empty() {
            return Ok(None);
        }
        AccessLogs::open(wanted, self.commands.len()).map(Some)
    }
}

/// Gives the files of Unix sockets the permissions that are wanted now. What comes back takes them back.
fn permit<'a>(plan: &Plan, bound: &'a HashMap<(Name, Transport), Bound>) -> Result<Vec<Undo<'a>>, String> {
    let mut permitted = Vec::new();
    for listener in &plan.snapshot.listeners {
        let place = bound.get(&(listener.name.clone(), Transport::Stream));
        if let Some(file) = place.and_then(|place| place.file.as_deref()) {
            let failed = |error| format!("listener {}: cannot set up {}: {error}", listener.name, listener.bind);
            if file.is_ours() {
                permitted.push(file.permit(&listener.socket.file).map_err(failed)?);
            } else {
                // Another process may have to go on with it as it is.
                file.check(&listener.socket.file).map_err(failed)?;
            }
        }
    }
    Ok(permitted)
}

fn join(issues: &[Issue]) -> String {
    issues.iter().map(Issue::to_string).collect::<Vec<_>>().join("; ")
}
