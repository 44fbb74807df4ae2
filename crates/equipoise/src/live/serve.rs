//! Serving: signals, orders of the API, providers, host names and watched files, one after the other.

use std::sync::Arc;
use std::time::Duration;

use control::history::Origin;
use control::{Candidate, Cause, Change, Preparation, ProviderOutcome, Reconciler, Refusal, Wanted};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::MissedTickBehavior;

use super::{After, Live, reopen_logs, tell_refusal};
use crate::limits;
use crate::signals::{Signals, Wish};
use crate::systemd;

/// How often certificate files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Live {
    /// Serves signals, orders, providers, names and watched files, until a signal asks for the end or another process has taken over.
    pub(crate) async fn serve(&mut self, signals: &mut Signals) -> After {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (provided, names) = (self.reconciler.inbox(), self.reconciler.names());
        loop {
            self.memory.rest();
            tokio::select! {
                wish = next(signals, &mut self.notes.1) => match wish {
                    Wish::Reload => {
                        if self.reload(signals).await.is_none() {
                            return After::Shutdown;
                        }
                    }
                    Wish::ReopenLogs => reopen_logs(&self.workers),
                    Wish::Upgrade => {
                        if let Some(after) = self.upgrade(signals, None).await {
                            return after;
                        }
                    }
                    Wish::End => return After::Shutdown,
                },
                (order, answer) = self.orders.next() => {
                    // Who asked may have gone meanwhile, before it was begun or after.
                    if answer.is_closed() {
                        continue;
                    }
                    if order.change == Change::Upgrade {
                        if let Some(after) = self.upgrade(signals, Some((order, answer))).await {
                            return after;
                        }
                        continue;
                    }
                    let Some(done) = self.carry_out(&Arc::new(order), signals).await else { return After::Shutdown };
                    let _ = answer.send(done);
                }
                () = provided.next() => {
                    // Not by the clock: a change that waits long for a core costs no more by that, and would wait again for it.
                    let (here, aside) = (limits::cpu_time(), self.spent_aside);
                    if self.take_provided(signals).await.is_none() {
                        return After::Shutdown;
                    }
                    provided.pause_after(limits::cpu_time() - here + (self.spent_aside - aside));
                }
                () = names.next() => {
                    let (here, aside) = (limits::cpu_time(), self.spent_aside);
                    if self.take_names(signals).await.is_none() {
                        return After::Shutdown;
                    }
                    names.pause_after(limits::cpu_time() - here + (self.spent_aside - aside));
                }
                _ = looks.tick() => {
                    self.look_after();
                    if self.look_at_configuration(signals).await.is_none() {
                        return After::Shutdown;
                    }
                }
                () = self.watchdog.turn() => self.watchdog.beat(&self.workers),
            }
        }
    }

    /// Reads the configuration again. Returns `None` if a signal asked for the end meanwhile.
    pub(super) async fn reload(&mut self, signals: &mut Signals) -> Option<()> {
        self.reconciler.note_configuration();
        systemd::reloading();
        self.read_anew(signals, |_, _| true).await?;
        systemd::ready();
        Some(())
    }

    /// Reads the files and applies them if they are `wanted`. Returns `None` as [`Self::reload`] does.
    async fn read_anew(&mut self, signals: &mut Signals, wanted: fn(&Reconciler, &Candidate) -> bool) -> Option<()> {
        let prepared = self.aside(signals, |preparation| preparation.prepare().map_err(Refusal::Bad)).await?;
        let done = match prepared.unwrap_or(Err(Refusal::Failed)) {
            Ok(candidate) if wanted(&self.reconciler, &candidate) => self.put_read(candidate, signals).await?,
            Ok(_) => Ok(()),
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = done {
            tell_refusal("configuration rejected; the previous one stays active", &refusal);
        }
        self.reconciler.remind_of_providers();
        self.reconciler.watch_configuration();
        Some(())
    }

    /// Applies what was read. Where the data plane does not take it, what providers want again may be to blame: then the
    /// files become active without that, and each provider is tried by itself. Returns `None` as [`Self::reload`] does.
    async fn put_read(&mut self, candidate: Candidate, signals: &mut Signals) -> Option<Result<(), Refusal>> {
        let has_news = self.reconciler.has_news(&candidate);
        let refusal = match self.put_into_force(candidate, Origin::Reload.into()) {
            Err(refusal) if has_news => refusal,
            done => return Some(done),
        };
        match self.aside(signals, |preparation| preparation.without_news().prepare()).await? {
            Some(Ok(candidate)) => Some(self.put_into_force(candidate, Origin::Reload.into())),
            _ => Some(Err(refusal)),
        }
    }

    /// Applies the configuration if its files have changed and are watched. Returns `None` as [`Self::reload`]
    /// does.
    async fn look_at_configuration(&mut self, signals: &mut Signals) -> Option<()> {
        if self.reconciler.has_canary() || !self.reconciler.look_at_configuration() {
            return Some(());
        }
        self.read_anew(signals, |reconciler, candidate| !reconciler.is_in_force(candidate)).await
    }

    /// Applies what providers want, as far as it fits and the data plane takes it. Returns `None` as
    /// [`Self::reload`] does.
    async fn take_provided(&mut self, signals: &mut Signals) -> Option<()> {
        let Some(outcome) = self.aside(signals, Preparation::prepare_provided).await? else {
            // What they want waits, and is tried again after the longest of pauses: no thread can be had, or the work has failed.
            self.reconciler.remind_of_providers();
            self.reconciler.inbox().pause();
            return Some(());
        };
        for one in self.put_provided(outcome, None) {
            // One that cannot be published must not hold up the others.
            let alone = one.clone();
            match self.aside(signals, move |preparation| preparation.prepare_wanted(vec![alone])).await? {
                Some(outcome) => drop(self.put_provided(outcome, Some(one))),
                None => self.reconciler.remind_of_providers(),
            }
        }
        Some(())
    }

    /// Applies what fits of what providers want. What comes back is not taken by the data plane as it is together:
    /// that is not reported yet. `alone`: it is for the sake of this one, and nothing comes back.
    fn put_provided(&mut self, outcome: ProviderOutcome, alone: Option<Wanted>) -> Vec<Wanted> {
        let ProviderOutcome { candidate, origin, taken, refused } = outcome;
        self.reconciler.refuse(&refused);
        let Some(candidate) = candidate else { return Vec::new() };
        let names: Vec<&str> = taken.iter().map(|(name, _)| name.as_str()).collect();
        let author = format!("provider {}", names.join(", "));
        match self.put_into_force(candidate, Cause { author: Some(author.into()), ..origin.into() }) {
            Err(_) if taken.len() > 1 && alone.is_none() => return taken,
            Err(refusal) => {
                // It was compiled and found right: what is in its way may go. Others of which something did not fit are tried along.
                let blamed = taken.into_iter().filter(|one| alone.as_ref().is_none_or(|alone| alone.0 == one.0));
                self.reconciler.put_off(&blamed.collect::<Vec<_>>(), &refusal);
            }
            Ok(()) => {}
        }
        Vec::new()
    }

    /// Applies the new addresses of endpoints whose host names have others. Returns `None` as [`Self::reload`] does.
    async fn take_names(&mut self, signals: &mut Signals) -> Option<()> {
        let done = match self.aside(signals, Preparation::prepare_names).await? {
            Some(Ok(None)) => Ok(()),
            Some(Ok(Some((candidate, moves)))) => {
                self.put_into_force(candidate, Origin::Names.into()).inspect(|()| moves.tell())
            }
            Some(Err(wrong)) => Err(Refusal::Bad(wrong)),
            None => Err(Refusal::Failed),
        };
        if let Err(refusal) = done {
            // The next lookup of the same name tries it again.
            tell_refusal("endpoints keep addresses that their host names no longer resolve to", &refusal);
        }
        Some(())
    }

    /// Performs the tasks that are due once a second.
    fn look_after(&mut self) {
        self.admin_door.look_after();
        self.memory.look_after();
        self.reconciler.keep_again();
        self.judge_canary();
        // New certificates wait until it is known which configuration they are for.
        if !self.reconciler.has_canary() {
            self.look_at_files();
        }
    }

    fn look_at_files(&mut self) {
        if let Err(refusal) = self.reconciler.look_at_files() {
            tell_refusal("changed files rejected; the previous ones stay active", &refusal);
        }
    }
}

/// Waits for the next signal to this process, or to the one before while that was still there.
async fn next(signals: &mut Signals, notes: &mut UnboundedReceiver<Wish>) -> Wish {
    tokio::select! {
        wish = signals.next() => wish,
        Some(wish) = notes.recv() => wish,
    }
}
