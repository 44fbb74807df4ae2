//! The generations that were published, as far back as is worth keeping.

pub(crate) mod file;
pub(crate) mod writer;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use config::Whole;

use crate::difference::Differences;

/// Generations remembered; the oldest are forgotten.
pub const GENERATIONS_MAX: usize = 64;

/// Bytes of the texts of all kept generations. Beyond that, the oldest are dropped, and cannot be rolled back to.
pub const TEXT_BYTES_MAX: usize = 32 << 20;

/// What made a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program started.
    Start,
    /// The program took over from another process.
    Upgrade,
    /// A reload was requested.
    Reload,
    /// A certificate file changed.
    Certificates,
    /// A file of a map or a filter changed.
    Files,
    /// The configuration was changed over the API.
    Api,
    /// An earlier generation was restored.
    Rollback,
    /// A wish for an endpoint was set or removed; the configuration stayed.
    Endpoint,
    /// A provider gave other objects.
    Provider,
    /// A provider gave other endpoints; the configuration stayed.
    ProviderEndpoints,
    /// Host names of endpoints have other addresses; the configuration stayed.
    Names,
}

impl Origin {
    const ALL: [Self; 11] = [
        Self::Start,
        Self::Upgrade,
        Self::Reload,
        Self::Certificates,
        Self::Files,
        Self::Api,
        Self::Rollback,
        Self::Endpoint,
        Self::Provider,
        Self::ProviderEndpoints,
        Self::Names,
    ];

    /// The one that is called so.
    pub(crate) fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.as_str() == text)
    }

    /// Whether a process began with it.
    pub fn is_beginning(self) -> bool {
        matches!(self, Self::Start | Self::Upgrade)
    }

    /// As the status page and the log say it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Upgrade => "upgrade",
            Self::Reload => "reload",
            Self::Certificates => "certificates",
            Self::Files => "files",
            Self::Api => "api",
            Self::Rollback => "rollback",
            Self::Endpoint => "endpoint",
            Self::Provider => "provider",
            Self::ProviderEndpoints => "provider_endpoints",
            Self::Names => "names",
        }
    }
}

/// Why a generation is created, and who requested it.
#[derive(Clone, Debug)]
pub struct Cause {
    /// What made it.
    pub origin: Origin,
    /// The author, if it comes from the API.
    pub author: Option<Arc<str>>,
    /// How its canary ended, if it had one.
    pub tried: Option<Arc<str>>,
}

impl From<Origin> for Cause {
    fn from(origin: Origin) -> Self {
        Self { origin, author: None, tried: None }
    }
}

/// One generation.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// From 1, each publication more than the one before; where it is kept, also over the start of a process.
    pub generation: u64,
    /// When it went live.
    pub at: SystemTime,
    /// What made it.
    pub origin: Origin,
    /// Who, if it came by the API.
    pub author: Option<Arc<str>>,
    /// What is different from the generation before.
    pub differences: Arc<Differences>,
    /// How it was tried before, if it was.
    pub tried: Option<Arc<str>>,
    /// All of its configuration, secrets included. `None`: forgotten, as there was no room for it.
    pub text: Option<Whole>,
}

impl Entry {
    /// Whether a process began with it, and the next begins with the same: then there is nothing in it to go back to.
    fn is_begun_anew_by(&self, next: &Self) -> bool {
        let says_same = match (&self.text, &next.text) {
            (Some(text), Some(next)) => text == next,
            (text, _) => text.is_none(),
        };
        self.origin.is_beginning() && says_same
    }
}

/// The last generations, newest last.
#[derive(Clone, Debug, Default)]
pub struct History {
    entries: VecDeque<Entry>,
}

impl History {
    /// Adds the newest, forgetting the oldest when there are more than [`GENERATIONS_MAX`].
    /// Of endpoints that change again and again only the last is remembered: generations to go back to would be lost.
    pub fn push(&mut self, entry: Entry) {
        let endpoints = |entry: &Entry| matches!(entry.origin, Origin::ProviderEndpoints | Origin::Names);
        if endpoints(&entry) && self.entries.back().is_some_and(endpoints) {
            self.entries.pop_back();
        }
        // So would a program that is started again and again.
        if entry.origin.is_beginning() && self.entries.back().is_some_and(|last| last.is_begun_anew_by(&entry)) {
            self.entries.pop_back();
        }
        if self.entries.len() == GENERATIONS_MAX {
            // Wishes for endpoints go first: their configuration is that of a generation beside them.
            let is_wish = |at: &usize| self.entries[*at].origin == Origin::Endpoint;
            let oldest = (1..GENERATIONS_MAX - 1).find(is_wish).unwrap_or(0);
            self.entries.remove(oldest);
        }
        self.entries.push_back(entry);
        self.forget_texts();
    }

    fn forget_texts(&mut self) {
        let mut left = TEXT_BYTES_MAX;
        let newest = self.entries.back().and_then(|entry| entry.text.clone());
        // As it was, and as it is kept.
        let mut newer: Option<(Whole, Whole)> = None;
        for entry in self.entries.iter_mut().rev() {
            let Some(newest) = &newest else { return };
            // One from before a start may be without, and older ones not.
            let Some(text) = &mut entry.text else { continue };
            // Generations of one text share it.
            if let Some((_, packed)) = newer.as_ref().filter(|(newer, _)| newer.is_copy_of(text)) {
                text.clone_from(packed);
                continue;
            }
            let before = text.clone();
            if left > 0 {
                text.pack(newest);
            }
            match left.checked_sub(text.bytes().max(1)) {
                Some(rest) => left = rest,
                // The newest is always kept.
                None if newer.is_none() => left = 0,
                None => {
                    left = 0;
                    entry.text = None;
                    continue;
                }
            }
            newer = Some((before, text.clone()));
        }
    }

    /// Forgets what came after a generation: it was of a process that nothing came of.
    pub(crate) fn forget_after(&mut self, generation: u64) {
        self.entries.retain(|entry| entry.generation <= generation);
    }

    /// The generation of this number, if it is remembered.
    pub fn get(&self, generation: u64) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.generation == generation)
    }

    /// The newest.
    pub fn last(&self) -> Option<&Entry> {
        self.entries.back()
    }

    /// Newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(generation: u64, text: &Arc<str>) -> Entry {
        let (at, origin) = (SystemTime::UNIX_EPOCH, Origin::Reload);
        Entry {
            generation,
            at,
            origin,
            author: None,
            differences: Arc::default(),
            tried: None,
            text: Some(Arc::clone(text).into()),
        }
    }

    #[test]
    fn the_history_keeps_the_newest_and_forgets_the_oldest() {
        let mut history = History::default();
        assert!(history.last().is_none());
        let text: Arc<str> = "text".into();
        for generation in 1..=(GENERATIONS_MAX as u64 + 5) {
            history.push(entry(generation, &text));
        }
        let kept: Vec<u64> = history.iter().map(|entry| entry.generation).collect();
        assert_eq!(kept.len(), GENERATIONS_MAX);
        assert_eq!((kept[0], kept[GENERATIONS_MAX - 1]), (GENERATIONS_MAX as u64 + 5, 6));
        assert_eq!(history.last().unwrap().generation, kept[0]);
        assert!(history.get(5).is_none() && history.get(6).is_some());
    }

    #[test]
    fn wishes_for_endpoints_push_no_configuration_out() {
        let mut history = History::default();
        let texts: Vec<Arc<str>> = (0..3).map(|n| format!("text {n}").into()).collect();
        for (generation, text) in (1..).zip(&texts) {
            history.push(Entry { origin: Origin::Api, ..entry(generation, text) });
        }
        for generation in 4..=200 {
            history.push(Entry { origin: Origin::Endpoint, ..entry(generation, &texts[2]) });
        }
        assert_eq!(history.iter().count(), GENERATIONS_MAX);
        for (generation, text) in (1..).zip(&texts) {
            assert_eq!(history.get(generation).unwrap().text.as_ref().unwrap().text(), *text);
        }
        assert!(history.get(200).is_some() && history.get(4).is_none());
    }

    #[test]
    fn starts_with_the_same_are_one_and_others_stay() {
        let mut history = History::default();
        let (first, second): (Arc<str>, Arc<str>) = ("first".into(), "second".into());
        let began = |generation, origin, text: &Arc<str>| Entry { origin, ..entry(generation, text) };
        history.push(began(1, Origin::Start, &first));
        history.push(began(2, Origin::Start, &"first".into()));
        history.push(began(3, Origin::Upgrade, &first));
        history.push(began(4, Origin::Start, &second));
        history.push(began(5, Origin::Api, &second));
        history.push(began(6, Origin::Start, &second));
        history.push(Entry { text: None, ..began(7, Origin::Start, &second) });
        history.push(began(8, Origin::Start, &first));
        let kept: Vec<u64> = history.iter().map(|entry| entry.generation).collect();
        assert_eq!(kept, [8, 6, 5, 4, 3]);
        history.forget_after(5);
        assert_eq!(history.last().map(|entry| entry.generation), Some(5));
        assert!(Origin::ALL.into_iter().all(|origin| Origin::named(origin.as_str()) == Some(origin)));
        assert_eq!(Origin::named("starts"), None);
    }

    #[test]
    fn texts_are_kept_as_far_as_there_is_room() {
        let mut history = History::default();
        let large = || -> Arc<str> { "x".repeat(TEXT_BYTES_MAX / 2).into() };
        let shared = large();
        for (generation, text) in [(1, large()), (2, shared.clone()), (3, shared), (4, large())] {
            history.push(entry(generation, &text));
        }
        let kept: Vec<bool> = history.iter().map(|entry| entry.text.is_some()).collect();
        assert_eq!(kept, [true, true, true, false]);
        let huge: Arc<str> = "x".repeat(TEXT_BYTES_MAX + 1).into();
        history.push(entry(5, &huge));
        let kept: Vec<bool> = history.iter().map(|entry| entry.text.is_some()).collect();
        assert_eq!(kept, [true, false, false, false, false]);
    }
}
