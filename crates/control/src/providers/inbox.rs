//! The inbox: the latest state of each provider, which the owner of the configuration takes and tries, not more often than is good.
//!
//! ```text
//!  send ──▶ due after SETTLE, and not before the pause that publications before ask for ──▶ Inbox::next ──▶ tried
//! ```
//! The first change that waits sets the time at which it is due: a stream of changes does not put it off. What becomes of the state of one
//! provider is in [`slot`]; this module adds the lock, the time, and who is woken.

mod slot;
mod status;

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

use crate::given::{Given, State};

use slot::Slot;

pub use status::{Reach, Status};

/// Changes within this time are made one.
const SETTLE: Duration = Duration::from_millis(10);
/// What publications cost is at most one part in five of all time: each books this many times as much behind it.
const PAUSE_FACTOR: u32 = 4;
/// So much may be booked before there is a pause: a change now and then never waits for the one before.
const BOOKED_FREE: Duration = Duration::from_millis(250);
/// The longest pause behind a publication.
const PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Slots {
    by_name: BTreeMap<String, Slot>,
    due: Option<Instant>,
    /// States accepted only in parts are to be tried again too.
    is_again: bool,
    /// Until when all time is booked. Nothing is due sooner than [`BOOKED_FREE`] before.
    booked_until: Option<Instant>,
}

impl Slots {
    /// When something is due that is wanted now.
    fn next_due(&self) -> Instant {
        self.not_before_pause(Instant::now() + SETTLE)
    }

    fn not_before_pause(&self, due: Instant) -> Instant {
        let pause = self.booked_until.and_then(|booked| booked.checked_sub(BOOKED_FREE));
        pause.map_or(due, |pause| due.max(pause))
    }

    /// When something is to be tried, for the first time or again.
    fn next(&self) -> Option<Instant> {
        let again = self.by_name.values().filter_map(Slot::again_at).min();
        self.due.into_iter().chain(again.map(|again| self.not_before_pause(again))).min()
    }
}

/// The latest state of each provider; see the module.
#[derive(Debug, Default)]
pub struct Inbox {
    slots: Mutex<Slots>,
    changed: Notify,
    heard: Condvar,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        // Each change of it is whole before anything can panic.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the providers, in their order. Others are forgotten; a provider of another kind begins again, and keeps its accepted state.
    pub(crate) fn set_providers(&self, providers: &[(&str, &'static str)]) {
        let mut slots = self.lock();
        slots.by_name.retain(|name, _| providers.iter().any(|(wanted, _)| wanted == name));
        for (place, (name, kind)) in providers.iter().enumerate() {
            let slot = slots.by_name.entry((*name).to_owned()).or_default();
            if slot.status.kind != *kind {
                (slot.left_out, slot.status.left_out) = <_>::default();
            }
            (slot.place, slot.status.kind) = (place, kind);
            slot.status.name = (*name).to_owned();
        }
    }

    /// Sets a state that was saved, for as long as the provider itself says nothing.
    pub(crate) fn set_kept(&self, name: &str, state: State) {
        if let Some(slot) = self.lock().by_name.get_mut(name) {
            slot.set_kept(state);
        }
    }

    /// Returns what a provider said last, or what was saved of it, or nothing.
    pub(crate) fn known(&self, name: &str) -> Arc<State> {
        self.lock().by_name.get(name).and_then(|slot| slot.latest().cloned()).unwrap_or_default()
    }

    /// Takes what a provider wants. `lacking`: why some of that is only what was known before, while it cannot be asked for all.
    pub(crate) fn send(&self, name: &str, state: State, lacking: Option<&str>) {
        let mut slots = self.lock();
        let Some(slot) = slots.by_name.get_mut(name) else { return };
        match lacking {
            None => slot.status.note_success(),
            Some(why) => {
                slot.status.last_success = Some(SystemTime::now());
                slot.status.note_failure(why);
            }
        }
        slot.status.is_kept = false;
        if slot.send(state) {
            self.make_due(&mut slots);
        }
        self.heard.notify_all();
    }

    /// Notes and logs parts that a provider leaves out itself; each once, as long as it is left out.
    pub(crate) fn leave_out(&self, name: &str, problems: Vec<String>) {
        let fresh = self.lock().by_name.get_mut(name).map(|slot| {
            slot.left_out[0] = problems;
            slot.tell_left_out()
        });
        log_left_out(name, fresh.unwrap_or_default());
    }

    /// Notes that a provider answered and wants nothing new.
    pub(crate) fn unchanged(&self, name: &str) {
        if let Some(slot) = self.lock().by_name.get_mut(name) {
            slot.status.note_success();
        }
        self.heard.notify_all();
    }

    /// Notes that a provider cannot be asked.
    pub(crate) fn failed(&self, name: &str, why: &str) {
        if let Some(slot) = self.lock().by_name.get_mut(name) {
            slot.status.note_failure(why);
        }
        self.heard.notify_all();
    }

    /// Waits until a provider has said something, or is away and something was kept of it.
    pub(crate) fn wait_for(&self, name: &str, timeout: Duration) {
        let is_waiting = |slots: &mut Slots| {
            let Some(slot) = slots.by_name.get(name) else { return false };
            match slot.status.reach {
                Reach::Up => false,
                Reach::Waiting => true,
                Reach::Away => slot.latest().is_none(),
            }
        };
        // Only the wait matters, not the lock.
        drop(self.heard.wait_timeout_while(self.lock(), timeout, is_waiting));
    }

    /// Takes what providers want that is not in force, in their order, whether it was refused before or not, to be tried now. From now on
    /// only what is sent later is due. If that `waits`, what was put off is put off again.
    pub(crate) fn take_unsettled(&self, waits: bool) -> Vec<(String, Arc<State>)> {
        let mut slots = self.lock();
        slots.due = None;
        slots.by_name.values_mut().for_each(|slot| slot.take(waits));
        drop(slots);
        self.unsettled()
    }

    /// Returns the same, which stays due: the try may come to nothing.
    pub(crate) fn unsettled(&self) -> Vec<(String, Arc<State>)> {
        let slots = self.lock();
        let open = |(name, slot): (&String, &Slot)| Some((slot.place, name.clone(), Arc::clone(slot.unsettled()?)));
        let mut open: Vec<_> = slots.by_name.iter().filter_map(open).collect();
        open.sort_by_key(|(place, ..)| *place);
        open.into_iter().map(|(_, name, state)| (name, state)).collect()
    }

    /// Notes the accepted state; `tell` counts its parts.
    pub(crate) fn settle(&self, given: &Given, tell: impl Fn(&mut Status)) {
        let mut slots = self.lock();
        for slot in slots.by_name.values_mut() {
            tell(&mut slot.status);
        }
        let mut fresh = Vec::new();
        for (name, wanted, texts, left_out) in given.settled() {
            let Some(slot) = slots.by_name.get_mut(name) else { continue };
            slot.settle(wanted);
            slot.left_out[1] = left_out;
            fresh.push((name, slot.tell_left_out()));
            slot.status.texts = texts;
        }
        // What was in force before this came into force, and was wanted again meanwhile, has not been due yet.
        self.remind_within(&mut slots);
        drop(slots);
        fresh.into_iter().for_each(|(name, fresh)| log_left_out(name, fresh));
    }

    /// Makes due again what was taken without anything having come of it. What was refused waits for other news.
    pub(crate) fn remind(&self) {
        self.remind_within(&mut self.lock());
    }

    /// Makes states due again that are accepted only in parts: the obstacle may be gone.
    pub(crate) fn try_again(&self) {
        let mut slots = self.lock();
        slots.is_again = true;
        self.make_due(&mut slots);
    }

    /// Returns whether [`Self::try_again`] was called since the last time.
    pub(crate) fn take_again(&self) -> bool {
        std::mem::take(&mut self.lock().is_again)
    }

    /// Returns whether something that a provider wants was refused.
    pub(crate) fn has_refused(&self) -> bool {
        self.lock().by_name.values().any(Slot::is_refused)
    }

    /// Whether something is to be tried, now or later.
    #[cfg(test)]
    pub(crate) fn is_due(&self) -> bool {
        self.lock().next().is_some()
    }

    fn remind_within(&self, slots: &mut Slots) {
        if slots.is_again || slots.by_name.values().any(Slot::is_waiting) {
            self.make_due(slots);
        }
    }

    fn make_due(&self, slots: &mut Slots) {
        let due = slots.next_due();
        slots.due.get_or_insert(due);
        self.changed.notify_one();
    }

    /// Refuses a state because something is wrong with it; logs that once.
    pub(crate) fn refuse(&self, name: &str, state: &Arc<State>, why: &str) {
        let mut slots = self.lock();
        let Some(slot) = slots.by_name.get_mut(name) else { return };
        if !slot.refuse(state, why) {
            return;
        }
        drop(slots);
        telemetry::log::error(
            "the new state of a provider is rejected; its last good state stays active",
            &[("provider", &name)],
        );
        eprintln!("{why}");
    }

    /// Refuses a state that is not wrong by itself: the data plane did not take it, which may be over in a moment. It is tried again after
    /// 1 s, then after longer and longer waits of up to 30 s.
    pub(crate) fn put_off(&self, name: &str, state: &Arc<State>, why: &str) {
        self.refuse(name, state, why);
        if self.lock().by_name.get_mut(name).is_some_and(|slot| slot.put_off(state)) {
            self.changed.notify_one();
        }
    }

    /// Waits until something new is wanted and it is due. Dropping the future loses nothing.
    pub async fn next(&self) {
        loop {
            let changed = self.changed.notified();
            let due = self.lock().next();
            match due {
                Some(due) if due <= Instant::now() => return,
                // Another provider may want something before that.
                Some(due) => drop(tokio::time::timeout_at(due.into(), changed).await),
                None => changed.await,
            }
        }
    }

    /// Asks for the longest of pauses: nothing could even be tried.
    pub fn pause(&self) {
        self.pause_after(BOOKED_FREE + PAUSE_MAX);
    }

    /// Books time behind a publication that cost so much. When publications cost too much together there is a pause: what waits meanwhile
    /// is made one.
    pub fn pause_after(&self, cost: Duration) {
        let now = Instant::now();
        let mut slots = self.lock();
        let from = slots.booked_until.map_or(now, |booked| booked.max(now));
        let until = from
            .checked_add(cost.saturating_mul(PAUSE_FACTOR))
            .map_or(from, |until| until.min(now + BOOKED_FREE + PAUSE_MAX));
        slots.booked_until = Some(until);
        let due = slots.due.map(|due| slots.not_before_pause(due));
        slots.due = due;
    }

    /// Returns all providers and their status, in the order of the configuration.
    pub fn statuses(&self) -> Vec<Status> {
        let slots = self.lock();
        let mut all: Vec<_> = slots.by_name.values().map(|slot| (slot.place, slot.status.clone())).collect();
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, status)| status).collect()
    }
}

fn log_left_out(provider: &str, fresh: Vec<String>) {
    for why in &fresh {
        telemetry::log::warn("part of a provider's state is ignored", &[("provider", &provider), ("why", why)]);
    }
}

#[cfg(test)]
mod tests;
