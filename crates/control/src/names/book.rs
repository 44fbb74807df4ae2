//! What is known of names: left by the tasks that look them up, taken by the owner of the configuration.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::Name;
use tokio::sync::Notify;

use super::moved::Left;

/// Changes within this time are made one.
const SETTLE: Duration = Duration::from_millis(20);
/// What publications cost is at most one part in five of all time: behind each there is a pause this many times as long.
const PAUSE_FACTOR: u32 = 4;
/// The longest pause behind a publication.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// By host name, its active addresses: one, unless clusters differ.
pub(crate) type Present = HashMap<Name, HashSet<SocketAddr>>;

#[derive(Debug, Default)]
struct Pages {
    present: Present,
    /// What names were found to have since they have these addresses.
    answers: HashMap<Name, Vec<SocketAddr>>,
    /// Those that cannot be looked up.
    failing: HashSet<Name>,
    failed: u64,
    /// Endpoints that keep an address that their names have no longer, and whether that was logged.
    left: HashMap<Left, bool>,
    /// When the next change of addresses is due.
    due: Option<Instant>,
    /// No sooner than this.
    not_before: Option<Instant>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pages: Mutex<Pages>,
    changed: Notify,
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, Pages> {
        // Each change of it is whole before anything can panic.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the active names with their addresses. Returns `false` if nothing changed.
    pub(super) fn set_present(&self, present: Present) -> bool {
        let mut pages = self.lock();
        if pages.present == present {
            return false;
        }
        let Pages { present: before, answers, failing, .. } = &mut *pages;
        // An answer from before an address became active may be older than it.
        answers.retain(|name, _| present.get(name).is_some_and(|now| before.get(name) == Some(now)));
        failing.retain(|name| present.contains_key(name));
        pages.present = present;
        true
    }

    /// Returns the active addresses of a name.
    pub(super) fn present(&self, name: &Name) -> HashSet<SocketAddr> {
        self.lock().present.get(name).cloned().unwrap_or_default()
    }

    /// Takes an answer. If an active address is missing from it, a change is due.
    pub(super) fn found(&self, name: &Name, addresses: Vec<SocketAddr>) {
        let mut pages = self.lock();
        let Some(present) = pages.present.get(name) else { return };
        let is_moved = present.iter().any(|address| !addresses.contains(address));
        let is_back = pages.failing.remove(name);
        pages.answers.insert(name.clone(), addresses);
        if is_moved {
            let due = Instant::now() + SETTLE;
            pages.due.get_or_insert(due);
            self.changed.notify_one();
        }
        drop(pages);
        if is_back {
            telemetry::log::info("the host name of an endpoint resolves again", &[("name", name)]);
        }
    }

    /// Notes that a name cannot be looked up; tells it once, until it is found again.
    pub(super) fn failed(&self, name: &Name, why: &str) {
        let mut pages = self.lock();
        if !pages.present.contains_key(name) {
            return;
        }
        pages.failed += 1;
        let is_new = pages.failing.insert(name.clone());
        drop(pages);
        if is_new {
            let pairs: telemetry::log::Pairs<'_> = &[("name", name), ("reason", &why)];
            telemetry::log::warn("the host name of an endpoint does not resolve; its last address stays in use", pairs);
        }
    }

    /// Returns the answers to apply now. From then on only new answers make a change due.
    pub(crate) fn take(&self) -> HashMap<Name, Vec<SocketAddr>> {
        let mut pages = self.lock();
        pages.due = None;
        pages.answers.clone()
    }

    /// Notes which endpoints cannot follow their names. Each is logged once, and not before it is found so again: names that change
    /// together are not looked up at the same moment.
    pub(crate) fn note_left(&self, left: Vec<Left>) {
        let mut pages = self.lock();
        let before = std::mem::take(&mut pages.left);
        let mut told = Vec::new();
        for one in left {
            let was = before.get(&one).copied();
            if was == Some(false) {
                told.push(one.clone());
            }
            pages.left.insert(one, was.is_some());
        }
        drop(pages);
        for Left { cluster, endpoint, address } in told {
            let pairs: telemetry::log::Pairs<'_> =
                &[("cluster", &cluster), ("endpoint", &endpoint), ("address", &address)];
            telemetry::log::warn("the host name of an endpoint resolves only to addresses of other endpoints", pairs);
        }
    }

    fn due(&self) -> Option<Instant> {
        let pages = self.lock();
        pages.due.map(|due| pages.not_before.map_or(due, |pause| due.max(pause)))
    }
}

/// Tells when endpoints have other addresses.
#[derive(Clone, Debug, Default)]
pub struct Inbox(pub(super) Arc<Book>);

impl Inbox {
    /// Waits until a change is due. Cancel safe.
    pub async fn next(&self) {
        loop {
            let changed = self.0.changed.notified();
            match self.0.due() {
                Some(due) if due <= Instant::now() => return,
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => changed.await,
            }
        }
    }

    /// Makes a pause behind a publication that cost so much.
    pub fn pause_after(&self, cost: Duration) {
        let pause = cost.saturating_mul(PAUSE_FACTOR).min(PAUSE_MAX);
        self.0.lock().not_before = Some(Instant::now() + pause);
    }

    /// Names that cannot be looked up now, and lookups that failed so far.
    pub(crate) fn failures(&self) -> (usize, u64) {
        let pages = self.0.lock();
        (pages.failing.len(), pages.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 80).into()
    }

    fn present(all: &[(&str, u8)]) -> Present {
        all.iter().map(|(name, last)| ((*name).into(), HashSet::from([address(*last)]))).collect()
    }

    #[test]
    fn an_answer_is_due_when_an_address_in_force_is_not_among_it() {
        let book = Book::default();
        assert!(book.set_present(present(&[("a:80", 1)])));
        assert!(!book.set_present(present(&[("a:80", 1)])));
        let name = Name::from("a:80");
        book.found(&name, vec![address(2), address(1)]);
        assert_eq!(book.due(), None, "the order of addresses does not matter");
        book.found(&Name::from("b:80"), vec![address(2)]);
        assert_eq!(book.due(), None, "it is not followed");
        book.found(&name, vec![address(2)]);
        assert!(book.due().is_some());
        assert_eq!(book.take().get(&name), Some(&vec![address(2)]));
        assert_eq!(book.due(), None);
        book.set_present(present(&[("a:80", 2)]));
        assert!(book.take().is_empty(), "what was found before an address came into force says nothing of it");
    }

    #[test]
    fn a_name_that_fails_is_counted_until_it_is_found_or_gone() {
        let inbox = Inbox::default();
        inbox.0.set_present(present(&[("a:80", 1), ("b:80", 2)]));
        let (one, other) = (Name::from("a:80"), Name::from("b:80"));
        for _ in 0..2 {
            inbox.0.failed(&one, "no answer");
        }
        inbox.0.failed(&other, "no answer");
        inbox.0.failed(&Name::from("c:80"), "no answer");
        assert_eq!(inbox.failures(), (2, 3));
        inbox.0.found(&one, vec![address(1)]);
        assert_eq!(inbox.failures(), (1, 3));
        inbox.0.set_present(present(&[("a:80", 1)]));
        assert_eq!(inbox.failures(), (0, 3));
    }
}
