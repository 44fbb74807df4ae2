//! What an instance has counted and what it has of its peers. No sockets: links ask it what to send, and give it what came.
//!
//! At any time the tables hold: for each instance that is known, what it counted up to the number in `vector`; and all that was counted
//! here. From this everything follows: a segment is taken in once and in order; a receiver is taught by giving it the tables with the
//! vector; and one that is taught adds what it counted itself after the number that the teacher had of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use plan::table::{Change, Table, Totals};
use wire::peers::{Block, Blocks, Frame, Gap, Journal, KNOWN_MAX, Record, Records, Segment, write};

use super::own::{Own, own_after};
use super::parts::Parts;
use super::standing::{Figures, Learning, Succession};
use crate::chance::chance;

/// Bytes of the journal.
const JOURNAL_BYTES_MAX: usize = 16 << 20;
/// A receiver that was away for longer is taught again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);
/// An instance that found no teacher within this time goes by what it has.
const ALONE_AFTER: Duration = Duration::from_secs(2);
/// The same, while an instance that could teach it is connected.
const UNTAUGHT_MAX: Duration = Duration::from_secs(30);
/// What a connected instance has sent is given up no more often for a state without it: two that do not know each other could take turns.
const GIVEN_UP_MAX: u32 = 16;

/// See the module.
pub(crate) struct Engine {
    me: u128,
    begun: Instant,
    journal: Journal,
    /// What of each instance is in the tables.
    vector: BTreeMap<u128, (u64, Instant)>,
    /// What each receiver has.
    receivers: HashMap<u128, (u64, Instant)>,
    /// The last number that was sent to each receiver that is connected.
    sending: HashMap<u128, u64>,
    tables: Vec<Arc<Table>>,
    learning: Learning,
    succession: Succession,
    /// Tables of peers that count something else, which was logged.
    told: HashSet<(u128, String)>,
    pub(crate) figures: Figures,
}

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All up to this number is in the tables.
    Has(u64),
    /// It does not follow what is there: ask for what follows this number.
    Behind(u64),
    /// Not now.
    Paused,
    /// It is broken.
    Broken,
}

/// What a process hands to its successor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeersHandover {
    /// What is in the tables that are handed over, of each instance, this one included.
    pub(crate) vector: Vec<(u128, u64)>,
    /// Some tables were not handed over whole.
    pub(crate) lacks_tables: bool,
}

impl Engine {
    /// `me`: at random, for each process.
    pub(crate) fn new(me: u128, now: Instant) -> Self {
        Self {
            me,
            begun: now,
            journal: Journal::new(JOURNAL_BYTES_MAX),
            vector: BTreeMap::new(),
            receivers: HashMap::new(),
            sending: HashMap::new(),
            tables: Vec::new(),
            learning: Learning::default(),
            succession: Succession::default(),
            told: HashSet::new(),
            figures: Figures::default(),
        }
    }

    pub(crate) fn known(&self) -> Vec<u128> {
        self.vector.keys().copied().collect()
    }

    #[cfg(test)]
    pub(crate) fn with_journal(mut self, bytes_max: usize) -> Self {
        self.learning.patience = Duration::MAX;
        self.journal = Journal::new(bytes_max);
        self
    }

    #[cfg(test)]
    pub(crate) fn me(&self) -> u128 {
        self.me
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.learning.is_settled
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.succession.is_paused
    }

    pub(crate) fn wants_teaching_by(&self, sender: u128) -> bool {
        self.learning.wants_teaching_by(sender)
    }

    pub(crate) fn table_names(&self) -> Vec<String> {
        self.tables.iter().map(|table| table.name().to_string()).collect()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.learning.epoch
    }

    pub(crate) fn head(&self) -> u64 {
        self.journal.head()
    }

    /// Segments that went although a receiver lacked them, and entries of tables that it did not hear of.
    pub(crate) fn dropped(&self) -> u64 {
        self.journal.dropped() + self.tables.iter().map(|table| table.lost()).sum::<u64>()
    }

    /// Replicates these tables from now on.
    pub(crate) fn follow(&mut self, tables: Vec<Arc<Table>>) {
        let is_known = |table: &Arc<Table>| self.tables.iter().any(|known| known.has_entries_of(table));
        // A table that is new here may be full at a peer.
        if self.learning.follows && !tables.iter().all(is_known) {
            self.learning.lacks_tables = true;
            self.learning.partial.clear();
        }
        self.tables = tables;
        self.learning.follows = true;
        self.told.clear();
    }

    /// Collects what was counted since the last call.
    pub(crate) fn drain(&mut self, now: Instant) {
        if self.succession.is_paused {
            return;
        }
        let at = self.milliseconds(now);
        self.receivers.retain(|_, (_, seen)| now.saturating_duration_since(*seen) < FORGOTTEN_AFTER);
        let acknowledged = self.receivers.values().map(|(position, _)| *position);
        let positions: Vec<u64> = acknowledged.chain(self.sending.values().copied()).collect();
        for table in &self.tables {
            let mut parts = Parts::new(table.name().as_str(), table.fingerprint());
            table.drain(&mut |change| {
                let Change { key, is_reset, is_all, values } = change;
                parts.add(|out| Record { key: &key, is_reset, is_all, idle: 0, values }.write(out));
            });
            parts.finish().into_iter().for_each(|blocks| self.journal.push(at, blocks, &positions));
        }
    }

    /// Looks whether there is no one to learn from. `has_teacher`: an instance is connected that knows more.
    pub(crate) fn settle_if_alone(&mut self, has_teacher: bool, now: Instant) {
        let waits = if has_teacher { UNTAUGHT_MAX } else { ALONE_AFTER };
        if !self.learning.is_settled
            && self.learning.teacher.is_none()
            && now.saturating_duration_since(self.begun) >= waits
        {
            self.learning.is_settled = true;
        }
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.begun).as_millis() as u64
    }

    // As a sender.

    /// A receiver wants what follows a number, and has what `known` have sent.
    ///
    /// # Errors
    /// That is not kept, or is not all that the receiver lacks: it is to be taught.
    pub(crate) fn begin(&mut self, receiver: u128, (after, known): (u64, &[u128]), now: Instant) -> Result<(), Gap> {
        let lacks = |instance: &u128| *instance != receiver && !known.contains(instance);
        if after == 0 && self.vector.keys().any(lacks) {
            return Err(Gap);
        }
        self.journal.after(after)?;
        self.acknowledged(receiver, after, now);
        self.sending.insert(receiver, after);
        Ok(())
    }

    /// Returns a frame for a receiver with what follows a number, and its last number.
    ///
    /// # Errors
    /// It is not kept any more.
    pub(crate) fn next_after(
        &mut self,
        receiver: u128,
        position: u64,
        now: Instant,
    ) -> Result<Option<(Vec<u8>, u64)>, Gap> {
        let Some((first, last, at, blocks)) = self.journal.after(position)? else { return Ok(None) };
        let age = self.milliseconds(now).saturating_sub(at);
        let mut frame = Vec::with_capacity(blocks.len() + 64);
        write(&Frame::Segment(Segment { first, last, age, blocks }), &mut frame);
        self.figures.sent +=
            Blocks::new(blocks).flatten().map(|block| Records::new(block.records).count()).sum::<usize>() as u64;
        self.sending.insert(receiver, last);
        Ok(Some((frame, last)))
    }

    /// A receiver is not connected any more.
    pub(crate) fn part(&mut self, receiver: u128) {
        self.sending.remove(&receiver);
    }

    /// A receiver has all up to a number.
    pub(crate) fn acknowledged(&mut self, receiver: u128, position: u64, now: Instant) {
        if position <= self.head() && (self.receivers.len() < KNOWN_MAX || self.receivers.contains_key(&receiver)) {
            self.receivers.insert(receiver, (position, now));
        }
    }

    /// Returns whether a receiver has all that was counted.
    pub(crate) fn has_all(&self, receiver: u128) -> bool {
        self.receivers.get(&receiver).is_some_and(|(position, _)| *position == self.head())
    }

    /// Bytes that a receiver lacks, and for how long it has lacked the oldest of them.
    pub(crate) fn lag(&self, receiver: u128, now: Instant) -> (usize, Duration) {
        let position = self.receivers.get(&receiver).map_or(self.head(), |(position, _)| *position);
        let at = self.journal.after(position).ok().flatten().map(|(_, _, at, _)| at);
        let age = at.map_or(0, |at| self.milliseconds(now).saturating_sub(at));
        (self.journal.bytes_after(position), Duration::from_millis(age))
    }

    /// Returns frames with all that this instance knows; `None`: it knows too little itself.
    pub(crate) fn state(&mut self, now: Instant) -> Option<Vec<Vec<u8>>> {
        if !self.learning.is_settled || self.succession.is_paused || self.succession.is_retired {
            return None;
        }
        self.drain(now);
        let mut frames = Vec::new();
        for table in &self.tables {
            let mut parts = Parts::new(table.name().as_str(), table.fingerprint());
            // An empty block says that the table is here, and has nothing.
            parts.flush();
            table.totals(now, |key, idle, values| {
                parts.add(|out| Record { key, idle, values, ..Record::default() }.write(out))
            });
            for blocks in parts.finish() {
                let mut frame = Vec::with_capacity(blocks.len() + 8);
                write(&Frame::State(&blocks), &mut frame);
                frames.push(frame);
            }
        }
        let vector = self.vector.iter().map(|(instance, (number, _))| (*instance, *number)).collect();
        let mut end = Vec::new();
        write(&Frame::StateEnd { head: self.head(), vector }, &mut end);
        frames.push(end);
        Some(frames)
    }

    // As a receiver.

    /// Returns what to ask a sender for; `None`: nothing yet, another teaches.
    pub(crate) fn ask(&mut self, sender: u128, now: Instant) -> Option<Frame<'static>> {
        self.learning.senders.insert(sender);
        if !self.learning.wants_teaching_by(sender) {
            let after = self.vector.get(&sender).map_or(0, |(number, _)| *number);
            return Some(Frame::Follow { after, known: self.known() });
        }
        if self.learning.teacher.is_some_and(|teacher| teacher != sender) || self.succession.is_paused {
            return None;
        }
        if self.learning.has_better(sender, now) {
            return None;
        }
        self.learning.teacher = Some(sender);
        Some(Frame::Teach)
    }

    /// A sender knows too little itself. Tables that are lacking are no reason to wait for it.
    pub(crate) fn not_yet(&mut self, sender: u128, now: Instant) {
        self.release(sender);
        if self.learning.is_settled && !self.learning.needs_teaching {
            self.learning.note_partial(sender, now);
        }
    }

    /// A sender does not teach, or not any more.
    pub(crate) fn release(&mut self, sender: u128) {
        if self.learning.teacher == Some(sender) {
            self.learning.teacher = None;
        }
    }

    /// A sender is not connected any more.
    pub(crate) fn leave(&mut self, sender: u128) {
        self.release(sender);
        self.learning.leave(sender);
    }

    /// A sender does not have what this instance lacks; `known`: it has what these have sent. To be taught by it is put off while that would
    /// lose what another has sent, who is not connected now.
    pub(crate) fn lacks(&mut self, sender: u128, known: &[u128], now: Instant) {
        let is_known = |instance: u128| known.contains(&instance);
        // The first of those who lack something is who the others wait for.
        self.learning.needs_teaching |= self.may_adopt((sender, &is_known), now);
    }

    fn may_adopt(&mut self, (teacher, is_known): (u128, &dyn Fn(u128) -> bool), now: Instant) -> bool {
        let (_, since) = *self.learning.lacking_since.get_or_insert((teacher, now));
        let is_over = now.saturating_duration_since(since) >= self.learning.patience;
        is_over || self.missing(teacher, is_known).iter().all(|one| self.learning.senders.contains(one))
    }

    /// Instances that have sent something here of which a teacher has nothing.
    fn missing(&self, teacher: u128, is_known: &dyn Fn(u128) -> bool) -> Vec<u128> {
        let known = self.vector.iter().filter(|(_, (number, _))| *number > 0).map(|(instance, _)| *instance);
        known.filter(|instance| *instance != teacher && !is_known(*instance)).collect()
    }

    /// Takes in what a sender has counted.
    pub(crate) fn take(&mut self, sender: u128, segment: &Segment<'_>, now: Instant) -> Taken {
        let has = self.vector.get(&sender).map_or(0, |(number, _)| *number);
        if self.succession.is_paused || self.succession.is_retired {
            return Taken::Paused;
        }
        if segment.last <= has {
            return Taken::Has(has);
        }
        if segment.first != has + 1 {
            return Taken::Behind(has);
        }
        // Looked at as a whole first: half of a segment is never taken in.
        let is_whole = |block: Result<Block<'_>, _>| {
            block.is_ok_and(|block| Records::new(block.records).all(|record| record.is_ok()))
        };
        if !Blocks::new(segment.blocks).all(is_whole) {
            return Taken::Broken;
        }
        for block in Blocks::new(segment.blocks).flatten() {
            self.take_block(sender, &block, segment.age, now);
        }
        self.note(sender, segment.last, now);
        self.learning.forget_lack(sender);
        Taken::Has(segment.last)
    }

    fn take_block(&mut self, sender: u128, block: &Block<'_>, age: u64, now: Instant) {
        let Some(table) = self.table_of(sender, block) else {
            self.figures.skipped += Records::new(block.records).count() as u64;
            return;
        };
        for record in Records::new(block.records).flatten() {
            let Record { key, is_reset, is_all, values, .. } = record;
            let change = Change { key: key.to_vec(), is_reset, is_all, values };
            if table.apply(&change, age, (now, &mut chance)) {
                self.figures.received += 1;
            } else {
                self.figures.skipped += 1;
            }
        }
    }

    /// Returns the table that a block is about, if it counts the same here.
    pub(crate) fn table_of(&mut self, sender: u128, block: &Block<'_>) -> Option<Arc<Table>> {
        let found = self.tables.iter().find(|table| table.name().as_str() == block.table);
        let same = found.filter(|table| table.fingerprint() == block.fingerprint).cloned();
        if same.is_none() && self.told.len() < KNOWN_MAX && self.told.insert((sender, block.table.to_owned())) {
            let mend = match found {
                Some(_) => "give `key`, the prefixes, `counters` and `rates` the same values on all instances",
                None => "define the table with `replicate: true` on this instance, or without on the other",
            };
            let (message, peer) = ("a table of a peer cannot be replicated", format!("{sender:032x}"));
            telemetry::log::warn(message, &[("table", &block.table), ("instance", &peer), ("help", &mend)]);
        }
        same
    }

    fn note(&mut self, instance: u128, number: u64, now: Instant) {
        if self.vector.len() >= KNOWN_MAX && !self.vector.contains_key(&instance) {
            let oldest = self.vector.iter().min_by_key(|(_, (_, seen))| *seen).map(|(instance, _)| *instance);
            oldest.iter().for_each(|oldest| _ = self.vector.remove(oldest));
        }
        self.vector.insert(instance, (number, now));
    }

    /// Takes over all that a teacher knows. One that does not have all tables of this instance is passed over, as long as another may. If there
    /// is none, its tables are taken over as far as that neither loses nor doubles what is in the others.
    pub(crate) fn adopt(
        &mut self,
        teacher: u128,
        (mut totals, head, vector): (HashMap<String, Totals>, u64, &[(u128, u64)]),
        now: Instant,
    ) {
        self.release(teacher);
        let is_whole = self.tables.iter().all(|table| totals.contains_key(table.name().as_str()));
        let theirs: BTreeMap<u128, u64> = vector.iter().copied().collect();
        let number = |one: &u128| if *one == teacher { head } else { theirs.get(one).copied().unwrap_or(0) };
        let is_ahead = self.vector.iter().all(|(one, (has, _))| number(one) >= *has);
        if !is_whole && !self.learning.may_take_part(teacher, is_ahead, now) {
            return;
        }
        let own = own_after(&self.journal, &self.tables, theirs.get(&self.me).copied().unwrap_or(0));
        let is_known = |instance: u128| theirs.contains_key(&instance);
        // For tables alone that are lacking, nothing is given up: the teacher may be one that has just begun.
        let is_for_tables = self.learning.is_settled && !self.learning.needs_teaching;
        let is_loss = is_for_tables && !self.missing(teacher, &is_known).is_empty();
        if is_loss || self.learning.is_settled && own.is_some() && !self.may_adopt((teacher, &is_known), now) {
            self.learning.needs_teaching = false;
            self.learning.note_partial(teacher, now);
            return;
        }
        // What others have sent that the teacher does not know at all comes again from those who are there.
        let missing = self.missing(teacher, &is_known);
        let can_come_again =
            self.learning.given_up < GIVEN_UP_MAX && missing.iter().all(|one| self.learning.senders.contains(one));
        let is_exact = own.is_some() && (missing.is_empty() || can_come_again) && (is_whole || is_ahead);
        self.learning.given_up += u32::from(is_exact && !missing.is_empty());
        let (own, nothing) = (own.unwrap_or_default(), Own::default());
        for table in &self.tables {
            let name = table.name().as_str();
            if let Some(totals) = totals.remove(name) {
                let own = own.get(name).unwrap_or(&nothing);
                let totals = if own.is_cleared { Totals::new() } else { totals };
                table.adopt(totals, (&own.sums, is_exact), (now, &mut chance));
            }
        }
        if is_exact {
            self.vector.clear();
        }
        let me = self.me;
        for (instance, number) in theirs.into_iter().filter(|(instance, _)| *instance != me) {
            let has = self.vector.get(&instance).map_or(0, |(number, _)| *number);
            self.note(instance, number.max(has), now);
        }
        self.note(teacher, head, now);
        (self.learning.is_settled, self.learning.needs_teaching, self.learning.lacking_since) = (true, false, None);
        self.learning.lacks_tables = !is_whole;
        self.learning.epoch += 1;
        self.figures.resyncs += 1;
    }

    // Between processes.

    /// Stops collecting and taking in, so that what is handed over belongs together; `false` goes on.
    pub(crate) fn pause(&mut self, is_paused: bool) {
        self.succession.is_paused = is_paused;
    }

    /// Another process has taken over.
    pub(crate) fn retire(&mut self) {
        (self.succession.is_paused, self.succession.is_retired) = (false, true);
        self.succession.retired_at = self.head();
    }

    /// Returns whether something was counted that the process that follows does not have from the start.
    pub(crate) fn owes_successor(&self) -> bool {
        self.succession.is_retired && self.head() > self.succession.retired_at
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.succession.is_retired
    }

    pub(crate) fn hand_over(&self) -> PeersHandover {
        let others = self.vector.iter().map(|(instance, (number, _))| (*instance, *number));
        PeersHandover { vector: others.chain([(self.me, self.head())]).collect(), lacks_tables: false }
    }

    pub(crate) fn inherit(&mut self, handed: &PeersHandover, now: Instant) {
        for (instance, number) in handed.vector.iter().take(KNOWN_MAX) {
            self.note(*instance, *number, now);
        }
        self.learning.is_settled = true;
        self.learning.lacks_tables |= handed.lacks_tables;
    }
}

#[cfg(test)]
mod tests;
