//! Where providers leave what they want, and where the owner of the configuration takes it from: the latest of each, and not
//! more often than is good.
//!
//! ```text
//!  send ──▶ due after SETTLE, and not before the pause that publications before ask for ──▶ Inbox::next ──▶ tried
//! ```
//! The time at which a change is due is set by the first that is waiting: a stream of changes does not put it off.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

use super::backoff::backoff;
use crate::given::{Given, State};

/// Changes within this time are made one.
const SETTLE: Duration = Duration::from_millis(10);
/// What publications cost is at most one part in five of all time: each books this many times as much behind it.
const PAUSE_FACTOR: u32 = 4;
/// So much may be booked before there is a pause: a change now and then never waits for the one before.
const BOOKED_FREE: Duration = Duration::from_millis(250);
/// The longest pause behind a publication.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Longest reason that is told.
const REASON_CHARS_MAX: usize = 500;
/// Longest text of diagnostics that is told.
const PROBLEMS_CHARS_MAX: usize = 20_000;

/// Parts that are left out and told one by one.
const LEFT_OUT_MAX: usize = 20;

/// How a provider is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// It has said nothing yet.
    #[default]
    Waiting,
    /// The last time that it was asked it answered.
    Up,
    /// It cannot be asked: what it said last stays.
    Away,
}

impl Reach {
    /// As the API says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Up => "up",
            Self::Away => "away",
        }
    }
}

/// All that is known of a provider.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// `file`, `http` and so on.
    pub kind: &'static str,
    /// How it is.
    pub reach: Reach,
    /// Why it is away.
    pub reason: Option<String>,
    /// When it last answered.
    pub last_success: Option<SystemTime>,
    /// When it last wanted something else.
    pub last_change: Option<SystemTime>,
    /// States that were refused.
    pub refused: u64,
    /// What is wrong with what it wants now, if that is not in force.
    pub problems: Option<String>,
    /// Parts of what it gives that are wrong by themselves and left out, or are as they were while they were right: why, and of
    /// many the first.
    pub left_out: Vec<String>,
    /// What is in force was kept from before the program started.
    pub is_kept: bool,
    /// Texts in force.
    pub texts: usize,
    /// Keys of endpoints in force, and endpoints.
    pub keys: usize,
    /// See `keys`.
    pub endpoints: usize,
    /// Keys that clusters ask for and it does not give.
    pub missing: Vec<String>,
}

#[derive(Debug, Default)]
struct Slot {
    status: Status,
    /// What it says itself that it leaves out, and what did not fit beside all else.
    left_out: [Vec<String>; 2],
    /// What it wants.
    latest: Option<Arc<State>>,
    /// What of it is in force.
    settled: Option<Arc<State>>,
    /// What it wants was refused, and that was told.
    is_refused: bool,
    /// When that is tried again, and how often it was tried: it was not wrong by itself.
    again_at: Option<Instant>,
    tries: u32,
    /// Its place among all.
    place: usize,
}

#[derive(Debug, Default)]
struct Slots {
    by_name: BTreeMap<String, Slot>,
    due: Option<Instant>,
    /// What is in force in parts is to be tried again too.
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
        let again = self.by_name.values().filter_map(|slot| slot.again_at).min();
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

    /// The providers there are, in their order. Others are forgotten; those whose settings are others begin anew, and keep
    /// what is in force.
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

    /// A state that was kept, for as long as the provider itself says nothing.
    pub(crate) fn set_kept(&self, name: &str, state: State) {
        if let Some(slot) = self.lock().by_name.get_mut(name)
            && slot.latest.is_none()
        {
            slot.latest = Some(Arc::new(state));
            slot.status.is_kept = true;
        }
    }

    /// What a provider said last, or what was kept of it; nothing, if there is neither.
    pub(crate) fn known(&self, name: &str) -> Arc<State> {
        self.lock().by_name.get(name).and_then(|slot| slot.latest.clone()).unwrap_or_default()
    }

    /// Takes what a provider wants. `lacking`: why some of that is only what was known before, while it cannot be asked for all.
    pub(crate) fn send(&self, name: &str, state: State, lacking: Option<&str>) {
        let mut slots = self.lock();
        let Some(slot) = slots.by_name.get_mut(name) else { return };
        match lacking {
            None => note_success(&mut slot.status),
            Some(why) => {
                slot.status.last_success = Some(SystemTime::now());
                note_failure(&mut slot.status, why);
            }
        }
        slot.status.is_kept = false;
        if slot.latest.as_deref() != Some(&state) {
            slot.latest = Some(Arc::new(state));
            (slot.is_refused, slot.again_at, slot.tries) = (false, None, 0);
            slot.status.last_change = Some(SystemTime::now());
            if slot.latest == slot.settled {
                // What is in force is wanted again.
                slot.status.problems = None;
                return self.heard.notify_all();
            }
            let due = slots.next_due();
            slots.due.get_or_insert(due);
            self.changed.notify_one();
        }
        self.heard.notify_all();
    }

    /// Tells of parts that are left out; of each once, as long as it is.
    pub(crate) fn leave_out(&self, name: &str, problems: Vec<String>) {
        let fresh = self.lock().by_name.get_mut(name).map(|slot| {
            slot.left_out[0] = problems;
            slot.tell_left_out()
        });
        log_left_out(name, fresh.unwrap_or_default());
    }

    pub(crate) fn unchanged(&self, name: &str) {
        if let Some(slot) = self.lock().by_name.get_mut(name) {
            note_success(&mut slot.status);
        }
        self.heard.notify_all();
    }

    pub(crate) fn failed(&self, name: &str, why: &str) {
        if let Some(slot) = self.lock().by_name.get_mut(name) {
            note_failure(&mut slot.status, why);
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
                Reach::Away => slot.latest.is_none(),
            }
        };
        // What is left of the lock is let go.
        drop(self.heard.wait_timeout_while(self.lock(), timeout, is_waiting));
    }

    /// What providers want that is not in force, in their order, whether it was refused before or not; to be tried now. From now on only
    /// what comes anew is due. While that `waits`, what was put off is put off again.
    pub(crate) fn take_unsettled(&self, waits: bool) -> Vec<(String, Arc<State>)> {
        let mut slots = self.lock();
        slots.due = None;
        for (name, slot) in &mut slots.by_name {
            let later = |at: Instant| at.max(Instant::now() + backoff(slot.tries, name));
            slot.again_at = slot.again_at.filter(|_| waits).map(later);
        }
        drop(slots);
        self.unsettled()
    }

    /// The same, which stays due: it may be that nothing comes of trying it.
    pub(crate) fn unsettled(&self) -> Vec<(String, Arc<State>)> {
        let slots = self.lock();
        let open = slots.by_name.iter().filter(|(_, slot)| slot.latest.is_some() && slot.latest != slot.settled);
        let mut open: Vec<_> = open.map(|(name, slot)| (slot.place, name.clone(), slot.latest.clone())).collect();
        open.sort_by_key(|(place, ..)| *place);
        open.into_iter().filter_map(|(_, name, state)| Some((name, state?))).collect()
    }

    /// Tells what is in force now, and how much there is of it.
    pub(crate) fn settle(&self, given: &Given, tell: impl Fn(&mut Status)) {
        let mut slots = self.lock();
        for slot in slots.by_name.values_mut() {
            tell(&mut slot.status);
        }
        let mut fresh = Vec::new();
        for (name, wanted, texts, left_out) in given.settled() {
            let Some(slot) = slots.by_name.get_mut(name) else { continue };
            slot.settled = Some(Arc::clone(wanted));
            slot.left_out[1] = left_out;
            fresh.push((name, slot.tell_left_out()));
            if slot.latest.is_none() || slot.latest == slot.settled {
                slot.latest = slot.settled.clone();
                (slot.is_refused, slot.again_at, slot.tries) = (false, None, 0);
                slot.status.problems = None;
            }
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

    /// Makes due again what is in force only in parts: what was in its way may be gone.
    pub(crate) fn try_again(&self) {
        let mut slots = self.lock();
        slots.is_again = true;
        let due = slots.next_due();
        slots.due.get_or_insert(due);
        self.changed.notify_one();
    }

    /// Whether that was asked for since the last time.
    pub(crate) fn take_again(&self) -> bool {
        std::mem::take(&mut self.lock().is_again)
    }

    /// Whether something that a provider wants was refused.
    pub(crate) fn has_refused(&self) -> bool {
        self.lock().by_name.values().any(|slot| slot.is_refused)
    }

    /// Whether something is to be tried, now or later.
    #[cfg(test)]
    pub(crate) fn is_due(&self) -> bool {
        self.lock().next().is_some()
    }

    fn remind_within(&self, slots: &mut Slots) {
        let waits = |slot: &Slot| slot.latest.is_some() && slot.latest != slot.settled && !slot.is_refused;
        if slots.is_again || slots.by_name.values().any(waits) {
            let due = slots.next_due();
            slots.due.get_or_insert(due);
            self.changed.notify_one();
        }
    }

    /// Tells that a state is not in force because something is wrong; once for each.
    pub(crate) fn refuse(&self, name: &str, state: &Arc<State>, why: &str) {
        let mut slots = self.lock();
        let Some(slot) = slots.by_name.get_mut(name) else { return };
        if !slot.latest.as_ref().is_some_and(|latest| Arc::ptr_eq(latest, state)) {
            return;
        }
        slot.status.problems = Some(why.chars().take(PROBLEMS_CHARS_MAX).collect());
        if std::mem::replace(&mut slot.is_refused, true) {
            return;
        }
        slot.status.refused += 1;
        drop(slots);
        telemetry::log::error(
            "the new state of a provider is rejected; its last good state stays active",
            &[("provider", &name)],
        );
        eprintln!("{why}");
    }

    /// The same of one that is not wrong by itself: the data plane did not take it, which may be over in a moment. It is tried again
    /// after 1 s, and later and later up to 30 s.
    pub(crate) fn put_off(&self, name: &str, state: &Arc<State>, why: &str) {
        self.refuse(name, state, why);
        let mut slots = self.lock();
        let Some(slot) = slots.by_name.get_mut(name) else { return };
        if slot.latest.as_ref().is_some_and(|latest| Arc::ptr_eq(latest, state)) {
            slot.tries = slot.tries.saturating_add(1);
            slot.again_at = Some(Instant::now() + backoff(slot.tries, name));
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

impl Slot {
    /// Tells what is left out, of much the first. Gives what was not told before.
    fn tell_left_out(&mut self) -> Vec<String> {
        let cut = |problem: &String| problem.chars().take(REASON_CHARS_MAX).collect::<String>();
        let now: Vec<String> = self.left_out.iter().flatten().take(LEFT_OUT_MAX).map(cut).collect();
        let before = std::mem::replace(&mut self.status.left_out, now.clone());
        now.into_iter().filter(|problem| !before.contains(problem)).collect()
    }
}

fn log_left_out(provider: &str, fresh: Vec<String>) {
    for why in &fresh {
        telemetry::log::warn("part of a provider's state is ignored", &[("provider", &provider), ("why", why)]);
    }
}

fn note_success(status: &mut Status) {
    if status.reach == Reach::Away {
        telemetry::log::info("a provider is reachable again", &[("provider", &status.name)]);
    }
    status.reach = Reach::Up;
    status.reason = None;
    status.last_success = Some(SystemTime::now());
}

fn note_failure(status: &mut Status, why: &str) {
    let reason: String = why.chars().take(REASON_CHARS_MAX).collect();
    if status.reason.as_ref() != Some(&reason) {
        let pairs: telemetry::log::Pairs<'_> = &[("provider", &status.name), ("reason", &reason)];
        telemetry::log::warn("a provider is unreachable; its last state stays active", pairs);
    }
    status.reach = Reach::Away;
    status.reason = Some(reason);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> State {
        let text = crate::given::Text { text: text.to_owned(), ..<_>::default() };
        State { texts: vec![text], ..State::default() }
    }

    #[test]
    fn what_is_lacking_is_told_and_holds_up_nothing_of_the_rest() {
        let inbox = Inbox::default();
        inbox.set_providers(&[("a", "dns")]);
        inbox.send("a", text("1"), Some("b.test: no answer"));
        let status = inbox.statuses().remove(0);
        assert_eq!((status.reach, status.reason.as_deref()), (Reach::Away, Some("b.test: no answer")));
        assert!(status.last_success.is_some() && inbox.take_unsettled(false).len() == 1);
        inbox.send("a", text("1"), None);
        assert_eq!((inbox.statuses()[0].reach, &inbox.statuses()[0].reason), (Reach::Up, &None));
    }

    #[test]
    fn the_latest_of_each_is_taken_in_the_order_written_until_it_is_settled() {
        let inbox = Inbox::default();
        inbox.set_providers(&[("z", "file"), ("a", "file")]);
        for (name, wanted) in [("a", "1"), ("z", "1"), ("a", "2"), ("other", "1")] {
            inbox.send(name, text(wanted), None);
        }
        let open = inbox.take_unsettled(false);
        assert_eq!(open.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["z", "a"]);
        assert_eq!(*open[1].1, text("2"));
        assert!(inbox.lock().due.is_none(), "taken");
        inbox.send("a", text("2"), None);
        assert!(inbox.lock().due.is_none(), "the same as before is nothing new");
        assert_eq!(inbox.take_unsettled(false).len(), 2, "what was not settled is wanted still");
    }

    #[test]
    fn what_was_taken_in_vain_is_due_again_when_somebody_reminds_of_it_unless_it_was_refused() {
        let inbox = Inbox::default();
        inbox.set_providers(&[("a", "file")]);
        inbox.remind();
        assert!(inbox.lock().due.is_none(), "nothing is wanted");
        inbox.send("a", text("1"), None);
        let state = inbox.take_unsettled(false).remove(0).1;
        inbox.remind();
        assert!(inbox.lock().due.is_some());
        inbox.take_unsettled(false);
        inbox.refuse("a", &state, "it is bad");
        inbox.remind();
        assert!(inbox.lock().due.is_none());
    }

    #[test]
    fn what_the_data_plane_does_not_take_is_tried_again_and_what_is_wrong_is_not() {
        let inbox = Inbox::default();
        inbox.set_providers(&[("a", "file"), ("b", "file")]);
        inbox.send("a", text("1"), None);
        let state = inbox.take_unsettled(false).remove(0).1;
        let mut waits = Vec::new();
        for _ in 0..3 {
            inbox.put_off("a", &state, "the port is in use");
            waits.push(inbox.lock().next().expect("it is tried again").saturating_duration_since(Instant::now()));
            inbox.remind();
            assert!(inbox.lock().due.is_none(), "not before its time");
            assert_eq!(inbox.take_unsettled(false).len(), 1);
            assert_eq!(inbox.lock().next(), None);
        }
        assert!(waits[0] <= Duration::from_secs(1) && waits[2] > Duration::from_secs(2), "{waits:?}");
        assert_eq!(inbox.statuses()[0].refused, 1, "told once");
        // Reading it with the files may come to nothing, and while that waits for something else it is not tried.
        inbox.put_off("a", &state, "the port is in use");
        let due = inbox.lock().next();
        assert_eq!((inbox.unsettled().len(), inbox.lock().next()), (1, due));
        inbox.take_unsettled(true);
        assert!(inbox.lock().next().is_some_and(|later| later > Instant::now()));
        // Who wants something meanwhile does not wait for that.
        inbox.put_off("a", &state, "the port is in use");
        inbox.send("b", text("1"), None);
        assert!(inbox.lock().next() <= Some(Instant::now() + SETTLE));
        inbox.take_unsettled(false);
        inbox.put_off("a", &state, "the port is in use");
        inbox.send("a", text("2"), None);
        let other = inbox.take_unsettled(false).remove(0).1;
        inbox.refuse("a", &other, "it is wrong");
        inbox.put_off("a", &state, "too late");
        assert_eq!(inbox.lock().next(), None);
        // After something that could not even be tried.
        inbox.pause();
        inbox.put_off("a", &other, "no thread");
        inbox.take_unsettled(false);
        inbox.send("a", text("3"), None);
        inbox.pause_after(Duration::ZERO);
        let soon = Instant::now() + PAUSE_MAX / 2;
        assert!(inbox.lock().next().is_some_and(|due| due > soon), "a short pause does not end a long one");
    }

    #[test]
    fn a_stream_of_changes_does_not_put_off_the_first() {
        let inbox = Inbox::default();
        inbox.set_providers(&[("a", "file")]);
        inbox.send("a", text("1"), None);
        let due = inbox.lock().due;
        for n in 0..100 {
            inbox.send("a", text(&n.to_string()), None);
        }
        assert!(due.is_some() && inbox.lock().due == due);
        inbox.take_unsettled(false);
        inbox.pause_after(Duration::from_secs(100));
        inbox.pause_after(Duration::MAX);
        let latest = Instant::now() + PAUSE_MAX + SETTLE;
        inbox.send("a", text("next"), None);
        assert!(inbox.lock().due.is_some_and(|due| due <= latest), "no pause is longer than its bound");
    }

    #[test]
    fn changes_now_and_then_do_not_wait_for_those_before_and_a_stream_of_them_takes_its_part_of_all_time() {
        let inbox = Inbox::default();
        inbox.set_providers(&[("a", "file")]);
        let cost = Duration::from_millis(10);
        // What the test itself takes only makes less of what is booked.
        let booked = BOOKED_FREE.as_millis() / (cost * PAUSE_FACTOR).as_millis();
        let wait = |wanted: &str| {
            inbox.send("a", text(wanted), None);
            let due = inbox.lock().due.expect("it is wanted");
            inbox.take_unsettled(false);
            due.saturating_duration_since(Instant::now())
        };
        for n in 0..booked {
            assert!(wait(&n.to_string()) <= SETTLE, "{n}");
            inbox.pause_after(cost);
        }
        inbox.pause_after(Duration::from_secs(1));
        assert!(wait("one behind a change that cost much") > SETTLE);
    }

    #[test]
    fn a_refused_state_is_counted_once() {
        let inbox = Inbox::default();
        inbox.set_providers(&[("a", "file")]);
        inbox.send("a", text("bad"), None);
        let state = inbox.take_unsettled(false).remove(0).1;
        inbox.refuse("a", &state, "it is bad");
        inbox.refuse("a", &state, "it is bad still");
        let status = inbox.statuses().remove(0);
        assert_eq!((status.refused, status.problems.as_deref()), (1, Some("it is bad still")));
        inbox.send("a", text("other"), None);
        inbox.refuse("a", &state, "too late");
        assert_eq!(inbox.statuses()[0].refused, 1, "it wants something else by now");
    }

    #[test]
    fn one_that_is_away_is_waited_for_unless_something_was_kept_of_it() {
        let inbox = Inbox::default();
        inbox.set_providers(&[("a", "file")]);
        inbox.set_kept("a", text("kept"));
        inbox.failed("a", "nobody is there");
        inbox.wait_for("a", Duration::from_secs(3600));
        inbox.wait_for("nobody", Duration::from_secs(3600));
        let status = inbox.statuses().remove(0);
        assert_eq!((status.reach, status.is_kept), (Reach::Away, true));
        inbox.send("a", text("own"), None);
        inbox.set_kept("a", text("kept"));
        assert_eq!(*inbox.take_unsettled(false)[0].1, text("own"));
        assert!(!inbox.statuses()[0].is_kept);
    }
}
