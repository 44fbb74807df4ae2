//! Sessions that clusters have learned, of which each instance tells all others.
//!
//! What an instance tells is numbered, so that a connection that begins again goes on where it was. Nothing is lost or doubled if that
//! fails: then all sessions are sent, and each entry of a table takes over what is newer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant, SystemTime};

use plan::{Moment, Plan, SessionCopy, SharedSessions, session_age};
use wire::peers::{
    Block, Blocks, Frame, KNOWN_MAX, NAME_BYTES_MAX, Records, SessionRecord, Sessions as Written, write,
};

use super::parts::Parts;
use super::standing::Figures;

/// Bytes that are kept for peers that do not have them yet.
const KEPT_BYTES_MAX: usize = 8 << 20;
/// What a peer lacks that is not connected is kept for so long.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// See the module.
#[derive(Default)]
pub(crate) struct Sessions {
    tables: Vec<SharedSessions>,
    kept: VecDeque<Kept>,
    bytes: usize,
    /// The last number. None is sent under it before the first session was learned.
    head: u64,
    /// What of each instance is in the tables.
    vector: HashMap<u128, u64>,
    /// What each instance that follows sessions has of this one.
    receivers: HashMap<u128, Receiver>,
    /// Changes when there is a table that knows nothing yet.
    epoch: u64,
    /// Tables of peers that are known by something else, which was logged.
    told: HashSet<(u128, String)>,
    retired_at: Option<u64>,
    pub(crate) figures: Figures,
}

/// What a receiver has, and since when it is not connected.
struct Receiver {
    has: u64,
    parted: Option<Instant>,
}

struct Kept {
    number: u64,
    at: Instant,
    blocks: Vec<u8>,
}

/// How far a link to a peer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Cursor {
    /// The peer has not asked for sessions: it has none, or is of a version without.
    #[default]
    Idle,
    /// It wants all of them.
    All,
    /// All up to this number was sent.
    After(u64),
}

/// What a connection has asked its sender for.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// The epoch of the tables at that time.
    asked: Option<u64>,
    /// All sessions were asked for, and the end of them has not come. Until then the number of a change says nothing: those before it may lack.
    awaits_all: bool,
}

impl Following {
    /// Returns whether all up to the number of a frame has come with it.
    fn has_all_up_to(&mut self, written: &Written<'_>) -> bool {
        let is_end = written.number > 0 && written.blocks.is_empty();
        self.awaits_all &= !is_end;
        written.number > 0 && !self.awaits_all
    }
}

fn moment(now: Instant) -> Moment {
    Moment { now, unix: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() }
}

/// Records of the sessions that `each` passes on, in blocks, and how many there are.
fn parts(table: &SharedSessions, each: impl FnOnce(&mut dyn FnMut(SessionCopy))) -> (Vec<Vec<u8>>, u64) {
    let (mut parts, mut count) = (Parts::new(table.name(), table.fingerprint()), 0);
    each(&mut |SessionCopy { key, endpoint, stamp, age }| {
        count += 1;
        parts.add(|out| SessionRecord { key, endpoint, stamp, age }.write(out));
    });
    (parts.finish(), count)
}

impl Sessions {
    /// Replicates the sessions of the clusters of this plan from now on.
    pub(crate) fn follow(&mut self, plan: &Plan) {
        let shared = |cluster: &plan::ClusterPlan| {
            let name = cluster.cluster.name.as_str();
            cluster.persistence.as_ref()?.shared(name).filter(|_| name.len() <= NAME_BYTES_MAX)
        };
        self.replicate(plan.clusters.iter().filter_map(|cluster| shared(cluster)).collect());
    }

    fn replicate(&mut self, tables: Vec<SharedSessions>) {
        let is_known = |table: &SharedSessions| self.tables.iter().any(|known| known.is_of_same_table(table));
        if !tables.iter().all(is_known) {
            self.epoch += 1;
            self.vector.clear();
        }
        self.tables = tables;
        self.told.clear();
    }

    pub(crate) fn table_names(&self) -> Vec<String> {
        self.tables.iter().map(|table| table.name().to_owned()).collect()
    }

    // As a sender.

    /// Collects what was learned since the last call. Returns whether anything was.
    pub(crate) fn drain(&mut self, now: Instant) -> bool {
        let (at, before) = (moment(now), self.head);
        for table in &self.tables {
            let (parts, _) = parts(table, |each| table.drain(at, each));
            for blocks in parts {
                self.head += 1;
                self.bytes += blocks.len();
                self.kept.push_back(Kept { number: self.head, at: now, blocks });
            }
        }
        self.forget(now);
        self.head != before
    }

    /// Forgets what all have, and the oldest beyond the bound: a peer that lacks it gets all sessions.
    fn forget(&mut self, now: Instant) {
        let is_gone = |at: &Instant| now.saturating_duration_since(*at) >= KEPT_FOR;
        self.receivers.retain(|_, receiver| !receiver.parted.as_ref().is_some_and(is_gone));
        let all_have = self.receivers.values().map(|receiver| receiver.has).min().unwrap_or(self.head);
        while let Some(first) = self.kept.front()
            && (first.number <= all_have || self.bytes > KEPT_BYTES_MAX)
        {
            self.bytes -= first.blocks.len();
            self.kept.pop_front();
        }
    }

    /// A receiver wants what follows a number.
    pub(crate) fn begin(&mut self, receiver: u128, after: u64) -> Cursor {
        if self.receivers.len() < KNOWN_MAX || self.receivers.contains_key(&receiver) {
            self.receivers.insert(receiver, Receiver { has: after.min(self.head), parted: None });
        }
        let is_kept = after > 0 && (self.first()..=self.head + 1).contains(&after.saturating_add(1));
        if is_kept { Cursor::After(after) } else { Cursor::All }
    }

    /// The first number that is kept, or the next one.
    fn first(&self) -> u64 {
        self.kept.front().map_or(self.head + 1, |kept| kept.number)
    }

    /// A receiver has all up to a number.
    pub(crate) fn acknowledged(&mut self, receiver: u128, number: u64) {
        if let Some(receiver) = self.receivers.get_mut(&receiver) {
            receiver.has = number.min(self.head);
        }
    }

    /// A receiver is not connected any more. One that comes back and lacks what was forgotten meanwhile gets all sessions.
    pub(crate) fn part(&mut self, receiver: u128, now: Instant) {
        if let Some(receiver) = self.receivers.get_mut(&receiver) {
            receiver.parted = Some(now);
        }
    }

    /// Returns a frame for a receiver with what follows, and how far it is then.
    pub(crate) fn next_after(&mut self, cursor: Cursor, now: Instant) -> Option<(Vec<u8>, Cursor)> {
        let Cursor::After(after) = cursor else { return None };
        if after >= self.head {
            return None;
        }
        let Some(kept) = after.checked_sub(self.first() - 1).and_then(|place| self.kept.get(place as usize)) else {
            return Some((Vec::new(), Cursor::All));
        };
        let age = now.saturating_duration_since(kept.at).as_millis() as u64;
        let (number, blocks) = (kept.number, &kept.blocks);
        self.figures.sent += count(blocks);
        Some((frame(&Written { number, age, blocks }), Cursor::After(number)))
    }

    /// Returns frames with all sessions, and how far a receiver is then.
    pub(crate) fn state(&mut self, now: Instant) -> (Vec<Vec<u8>>, Cursor) {
        // A receiver that has all has a number, by which it goes on.
        self.head = self.head.max(1);
        let mut frames = Vec::new();
        for table in &self.tables {
            let (parts, count) = parts(table, |each| table.copies(moment(now), each));
            self.figures.sent += count;
            frames.extend(parts.iter().map(|blocks| frame(&Written { number: 0, age: 0, blocks })));
        }
        frames.push(frame(&Written { number: self.head, age: 0, blocks: &[] }));
        (frames, Cursor::After(self.head))
    }

    /// Returns whether a receiver has all that was learned here, as far as it wants it.
    pub(crate) fn has_all(&self, receiver: u128) -> bool {
        self.receivers.get(&receiver).is_none_or(|receiver| receiver.has >= self.head)
    }

    /// Another process has taken over.
    pub(crate) fn retire(&mut self) {
        self.retired_at = Some(self.head);
    }

    /// Returns whether something was learned that the process that follows does not have from the start.
    pub(crate) fn owes_successor(&self) -> bool {
        self.retired_at.is_some_and(|number| self.head > number)
    }

    // As a receiver.

    /// Returns what to ask a sender for, if it has not been asked or a table is new.
    pub(crate) fn ask(&self, sender: u128, following: &mut Following) -> Option<Frame<'static>> {
        if self.tables.is_empty() || following.asked == Some(self.epoch) || following.awaits_all {
            return None;
        }
        let after = self.vector.get(&sender).copied().unwrap_or(0);
        *following = Following { asked: Some(self.epoch), awaits_all: after == 0 };
        Some(Frame::FollowSessions(after))
    }

    /// Takes in what a sender tells. Returns the number up to which all of it is here now.
    pub(crate) fn take(
        &mut self,
        (sender, following): (u128, &mut Following),
        written: &Written<'_>,
        now: Instant,
    ) -> Option<u64> {
        let (at, late) = (moment(now), session_age(Duration::from_millis(written.age)));
        for block in Blocks::new(written.blocks).flatten() {
            let Some(table) = self.table_of(sender, &block) else {
                self.figures.skipped += Records::new(block.records).count() as u64;
                continue;
            };
            for record in Records::new(block.records) {
                let Some(session) = record.ok().and_then(|record| SessionRecord::of(&record)) else {
                    self.figures.skipped += 1;
                    continue;
                };
                let SessionRecord { key, endpoint, stamp, age } = session;
                table.merge(&SessionCopy { key, endpoint, stamp, age }, late, at);
                self.figures.received += 1;
            }
        }
        if !following.has_all_up_to(written) || following.asked != Some(self.epoch) {
            return None;
        }
        if self.vector.len() < KNOWN_MAX || self.vector.contains_key(&sender) {
            self.vector.insert(sender, written.number);
        }
        Some(written.number)
    }

    fn table_of(&mut self, sender: u128, block: &Block<'_>) -> Option<SharedSessions> {
        let found = self.tables.iter().find(|table| table.name() == block.table);
        let same = found.filter(|table| table.fingerprint() == block.fingerprint).cloned();
        if same.is_none() && self.told.len() < KNOWN_MAX && self.told.insert((sender, block.table.to_owned())) {
            let mend = match found {
                Some(_) => "`learn` the same cookie or header on all instances",
                None => {
                    "set `replicate: true` in `learn` of the cluster on this instance, or leave it out on the other"
                }
            };
            let (message, peer) = ("sessions of a peer cannot be replicated", format!("{sender:032x}"));
            telemetry::log::warn(message, &[("cluster", &block.table), ("instance", &peer), ("help", &mend)]);
        }
        same
    }
}

fn frame(written: &Written<'_>) -> Vec<u8> {
    let mut frame = Vec::with_capacity(written.blocks.len() + 32);
    write(&Frame::Sessions(written.clone()), &mut frame);
    frame
}

fn count(blocks: &[u8]) -> u64 {
    Blocks::new(blocks).flatten().map(|block| Records::new(block.records).count() as u64).sum()
}

#[cfg(test)]
mod tests;
