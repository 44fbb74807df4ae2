//! What an instance has counted itself, by numbers: from here every peer gets each increment once.
//!
//! It is bounded. When it is full, what all peers have goes first; then segments between the positions of peers are made one, so that a
//! peer that was away for long gets one sum for each key; and only then does the oldest go, and a peer that lacks it is taught again.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};

use super::record::{BLOCK_BYTES_MAX, Block, Blocks, Record, Records, write_block};

/// Keeps what was counted, up to a bound.
#[derive(Debug)]
pub struct Journal {
    segments: VecDeque<Kept>,
    head: u64,
    bytes: usize,
    bytes_max: usize,
    dropped: u64,
}

#[derive(Debug)]
struct Kept {
    first: u64,
    last: u64,
    /// When it was written, in milliseconds of the clock of the owner.
    at: u64,
    blocks: Vec<u8>,
}

/// What is asked for is not kept any more, or only as a part of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap;

/// What is kept, as it is sent.
type Found<'a> = (u64, u64, u64, &'a [u8]);

/// Bytes of a segment beside its blocks.
const OVERHEAD_BYTES: usize = 64;

impl Journal {
    /// Creates one that keeps so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { segments: VecDeque::new(), head: 0, bytes: 0, bytes_max, dropped: 0 }
    }

    /// Returns the last number; 0: nothing was written.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Returns the bytes that it keeps.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the segments that went although a peer lacked them.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Writes blocks under the next number, and keeps to the bound. `positions` are the last numbers that peers have.
    pub fn push(&mut self, at: u64, blocks: Vec<u8>, positions: &[u64]) {
        self.head += 1;
        self.bytes += blocks.len() + OVERHEAD_BYTES;
        self.segments.push_back(Kept { first: self.head, last: self.head, at, blocks });
        if self.bytes > self.bytes_max {
            self.shrink(positions);
        }
    }

    /// Returns what follows a position: first and last number, when it was written, and its blocks. `None`: there is nothing more.
    ///
    /// # Errors
    /// It is not kept any more.
    pub fn after(&self, position: u64) -> Result<Option<Found<'_>>, Gap> {
        if position == self.head {
            return Ok(None);
        }
        let place = self.segments.partition_point(|kept| kept.first <= position);
        let kept = self.segments.get(place).filter(|kept| kept.first == position + 1).ok_or(Gap)?;
        Ok(Some((kept.first, kept.last, kept.at, &kept.blocks)))
    }

    /// Returns the bytes that follow a position.
    pub fn bytes_after(&self, position: u64) -> usize {
        self.segments.iter().rev().take_while(|kept| kept.last > position).map(|kept| kept.blocks.len()).sum()
    }

    fn shrink(&mut self, positions: &[u64]) {
        let all_have = positions.iter().copied().min().unwrap_or(self.head);
        // Room is made at once, so that this is not for each segment.
        let enough = self.bytes_max / 4 * 3;
        while self.bytes > enough && self.segments.front().is_some_and(|kept| kept.last <= all_have) {
            self.drop_front();
        }
        if self.bytes > enough {
            self.merge_all(positions);
        }
        while self.bytes > enough && self.segments.len() > 1 {
            self.drop_front();
            self.dropped += 1;
        }
    }

    fn drop_front(&mut self) {
        if let Some(kept) = self.segments.pop_front() {
            self.bytes -= kept.blocks.len() + OVERHEAD_BYTES;
        }
    }

    /// Makes one of each run of segments, as far as none becomes too long and no peer is in between.
    fn merge_all(&mut self, positions: &[u64]) {
        let all = std::mem::take(&mut self.segments);
        let run_bytes_max = BLOCK_BYTES_MAX.min(self.bytes_max / 8);
        let (mut run, mut length): (Vec<Kept>, usize) = (Vec::new(), 0);
        let mut done = VecDeque::new();
        for kept in all {
            let is_between = run.last().is_some_and(|before| positions.contains(&before.last));
            if is_between || length + kept.blocks.len() > run_bytes_max {
                done.extend(merged(std::mem::take(&mut run)));
                length = 0;
            }
            length += kept.blocks.len();
            run.push(kept);
        }
        done.extend(merged(run));
        self.bytes = done.iter().map(|kept| kept.blocks.len() + OVERHEAD_BYTES).sum();
        self.segments = done;
    }
}

/// What was counted of the keys of a table.
#[derive(Default)]
struct Sums {
    /// All entries were removed before.
    is_cleared: bool,
    /// Up to the last removal of each key, which comes first.
    removed: HashMap<Vec<u8>, (u64, Vec<i64>)>,
    counted: HashMap<Vec<u8>, (u64, Vec<i64>)>,
}

/// Makes one segment of several: one record for each key, and one more for each that was removed.
fn merged(mut run: Vec<Kept>) -> Option<Kept> {
    if run.len() < 2 {
        return run.pop();
    }
    let (first, at, last) = (run.first()?.first, run.first()?.at, run.last()?.last);
    let mut tables: Vec<(&str, u64, Sums)> = Vec::new();
    for block in run.iter().flat_map(|kept| Blocks::new(&kept.blocks)).flatten() {
        let known = tables.iter().position(|(name, print, _)| (*name, *print) == (block.table, block.fingerprint));
        let place = known.unwrap_or_else(|| {
            tables.push((block.table, block.fingerprint, Sums::default()));
            tables.len() - 1
        });
        Records::new(block.records).flatten().for_each(|record| tables[place].2.add(record));
    }
    let mut blocks = Vec::new();
    for (table, fingerprint, sums) in &tables {
        let mut records = Vec::new();
        if sums.is_cleared {
            Record { is_all: true, ..Record::default() }.write(&mut records);
        }
        for (is_reset, sums) in [(true, &sums.removed), (false, &sums.counted)] {
            for (key, (idle, values)) in sums {
                Record { key, is_reset, is_all: false, idle: *idle, values: values.clone() }.write(&mut records);
            }
        }
        write_block(&Block { table, fingerprint: *fingerprint, records: &records }, &mut blocks);
    }
    Some(Kept { first, last, at, blocks })
}

impl Sums {
    fn add(&mut self, record: Record<'_>) {
        if record.is_all {
            *self = Self { is_cleared: true, ..Self::default() };
            return;
        }
        let sums = if record.is_reset {
            if let Some(counted) = self.counted.remove(record.key) {
                add(&mut self.removed, (record.key, counted));
            }
            &mut self.removed
        } else {
            &mut self.counted
        };
        add(sums, (record.key, (record.idle, record.values)));
    }
}

fn add(sums: &mut HashMap<Vec<u8>, (u64, Vec<i64>)>, (key, (idle, values)): (&[u8], (u64, Vec<i64>))) {
    match sums.entry(key.to_vec()) {
        Entry::Vacant(place) => _ = place.insert((idle, values)),
        Entry::Occupied(mut place) => {
            let (known, sums) = place.get_mut();
            *known = idle.min(*known);
            sums.resize(sums.len().max(values.len()), 0);
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
        }
    }
}
