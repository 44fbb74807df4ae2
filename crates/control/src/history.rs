//! The generations that were published, as far back as is worth keeping.

use std::collections::VecDeque;
use std::time::SystemTime;

/// Generations remembered; the oldest are forgotten.
pub const GENERATIONS_MAX: usize = 64;

/// What made a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The program started.
    Start,
    /// Somebody asked for the configuration to be read again.
    Reload,
    /// A certificate file changed.
    Certificates,
}

impl Origin {
    /// As the status page and the log say it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Reload => "reload",
            Self::Certificates => "certificates",
        }
    }
}

/// One generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From 1, each publication one more.
    pub generation: u64,
    /// When it went live.
    pub at: SystemTime,
    /// What made it.
    pub origin: Origin,
}

/// The last generations, newest last.
#[derive(Clone, Debug, Default)]
pub struct History {
    entries: VecDeque<Entry>,
}

impl History {
    /// Adds the newest, forgetting the oldest when there are more than [`GENERATIONS_MAX`].
    pub fn push(&mut self, entry: Entry) {
        if self.entries.len() == GENERATIONS_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
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

    #[test]
    fn the_history_keeps_the_newest_and_forgets_the_oldest() {
        let mut history = History::default();
        assert!(history.last().is_none());
        for generation in 1..=(GENERATIONS_MAX as u64 + 5) {
            history.push(Entry { generation, at: SystemTime::UNIX_EPOCH, origin: Origin::Reload });
        }
        let kept: Vec<u64> = history.iter().map(|entry| entry.generation).collect();
        assert_eq!(kept.len(), GENERATIONS_MAX);
        assert_eq!((kept[0], kept[GENERATIONS_MAX - 1]), (GENERATIONS_MAX as u64 + 5, 6));
        assert_eq!(history.last().unwrap().generation, kept[0]);
    }
}
