//! Where an entry keeps what: words of 64 bits.
//!
//! ```text
//! hash │ time of the last count (40 bits), length of the key (8), whether it is whole (1) │ key │ counters │ rates, two words each
//! ```
//!
//! A rate has the count of the present while in its first word, and in its second the number of that while (24 bits) and the count of
//! the while before (40 bits). Whiles are numbered from the epoch of the table.

use std::time::Duration;

use model::table::{Counter, Reading, Table, TableKey};

/// Bytes of a text that are kept.
pub(super) const TEXT_BYTES: usize = 32;
const ADDRESS_BYTES: usize = 16;

const HEAD: usize = 2;
const TIME_BITS: u32 = 40;
const COUNT_BITS: u32 = 40;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const NUMBER_MASK: u64 = u64::MAX >> COUNT_BITS;
const WHOLE: u64 = 1 << 48;
/// The entry is among those that peers are to hear of.
const NOTED: u64 = 1 << 49;
/// Whiles by which a clock may be behind the one that counted last. An entry that lies further back was not counted for as long as
/// numbers take to come round.
const BEHIND_MAX: u64 = 1 << 16;

/// Where each reading of a table is.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    key_words: usize,
    /// Word of each counter, by its place in [`Counter::ALL`]; 0: it has none.
    counters: [u8; Counter::ALL.len()],
    /// The same of rates, with the milliseconds of their while.
    rates: [(u8, u64); Counter::ALL.len()],
    /// What peers have not heard of each counter; none in a table that is not replicated.
    unsent: Box<[(Counter, u8)]>,
    order: Box<[Reading]>,
    words: usize,
}

/// Where a reading is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    word: usize,
    /// Milliseconds of a while; 0: it is a counter.
    period: u64,
}

/// One entry, while its lock is held.
pub(super) struct Entry<'a> {
    words: &'a mut [u64],
    key_words: usize,
}

impl Layout {
    pub(super) fn of(table: &Table) -> Self {
        let key_bytes = if matches!(table.key, TableKey::Client { .. }) { ADDRESS_BYTES } else { TEXT_BYTES };
        let key_words = key_bytes / 8;
        let (mut words, mut order) = (HEAD + key_words, Vec::new());
        let (mut counters, mut rates) = ([0; Counter::ALL.len()], [(0, 0); Counter::ALL.len()]);
        for counter in &table.counters {
            // What is there now is not kept with the entry, which may end before it.
            if !counter.is_level() {
                counters[*counter as usize] = words as u8;
                words += 1;
            }
            order.push(Reading { counter: *counter, is_rate: false });
        }
        for (counter, period) in &table.rates {
            rates[*counter as usize] = (words as u8, milliseconds(*period).max(1));
            words += 2;
            order.push(Reading { counter: *counter, is_rate: true });
        }
        let mut unsent = Vec::new();
        if table.is_replicated {
            let is_counted = |counter: &Counter| counters[*counter as usize] != 0 || rates[*counter as usize].0 != 0;
            for counter in Counter::ALL.into_iter().filter(is_counted) {
                unsent.push((counter, words as u8));
                words += 1;
            }
        }
        Self { key_words, counters, rates, unsent: unsent.into(), order: order.into(), words }
    }

    pub(super) fn words(&self) -> (usize, usize) {
        (self.words, self.key_words)
    }

    pub(super) fn entry_bytes(&self) -> usize {
        self.words * 8
    }

    pub(super) fn place(&self, Reading { counter, is_rate }: Reading) -> Option<Place> {
        let (word, period) = if is_rate { self.rates[counter as usize] } else { (self.counters[counter as usize], 0) };
        (word != 0).then_some(Place { word: usize::from(word), period })
    }

    /// All readings in the order of the settings, those included that have no place in an entry.
    pub(super) fn order(&self) -> &[Reading] {
        &self.order
    }

    /// All readings that have a place, in the order of the settings.
    pub(super) fn readings(&self) -> impl Iterator<Item = (Reading, Place)> {
        self.order.iter().filter_map(|reading| Some((*reading, self.place(*reading)?)))
    }

    /// The counters that peers hear of, in an order that all of them have.
    pub(super) fn unsent(&self) -> &[(Counter, u8)] {
        &self.unsent
    }

    /// The rates, in the order of the settings.
    pub(super) fn rates(&self) -> impl Iterator<Item = (Counter, Place, u64)> {
        let rates = self.order.iter().filter(|reading| reading.is_rate);
        rates.filter_map(|reading| {
            Some((reading.counter, self.place(*reading)?, self.rates[reading.counter as usize].1))
        })
    }

    /// A counter of a replicated table, which may be below zero until all increments have come.
    pub(super) fn sum(&self, entry: &Entry<'_>, counter: Counter) -> Option<i64> {
        let Place { word, .. } = self.place(Reading { counter, is_rate: false })?;
        Some(entry.words[word] as i64)
    }

    pub(super) fn set_sum(&self, entry: &mut Entry<'_>, counter: Counter, sum: i64) {
        if let Some(Place { word, .. }) = self.place(Reading { counter, is_rate: false }) {
            entry.words[word] = sum as u64;
        }
    }

    /// Adds what was counted of a replicated table, here or by a peer: to rates only what is young enough for them.
    pub(super) fn add_shared(&self, entry: &mut Entry<'_>, (counter, amount): (Counter, i64), age: u64, tick: u64) {
        if let Some(sum) = self.sum(entry, counter) {
            self.set_sum(entry, counter, sum.wrapping_add(amount));
        }
        if let Some(place) = self.place(Reading { counter, is_rate: true })
            && age < place.period
            && amount > 0
        {
            self.add(entry, place, tick, amount as u64);
        }
    }

    pub(super) fn read(&self, entry: &Entry<'_>, Place { word, period }: Place, tick: u64) -> u64 {
        // Without a while, it is a counter.
        let Some(number) = tick.checked_div(period) else { return entry.words[word] };
        let (at, (present, before)) = counts_at(entry, word, number);
        let left = if at == number { period - tick % period } else { period };
        present.saturating_add((u128::from(before) * u128::from(left) / u128::from(period)) as u64)
    }

    pub(super) fn add(&self, entry: &mut Entry<'_>, Place { word, period }: Place, tick: u64, amount: u64) {
        match tick.checked_div(period) {
            None => entry.words[word] = entry.words[word].saturating_add(amount),
            Some(number) => {
                let (at, (present, before)) = counts_at(entry, word, number);
                store_counts(entry, word, at, (present.saturating_add(amount), before));
            }
        }
    }

    pub(super) fn write(&self, entry: &mut Entry<'_>, Place { word, period }: Place, tick: u64, value: u64) {
        match tick.checked_div(period) {
            None => entry.words[word] = value,
            Some(number) => {
                let (at, _) = counts_at(entry, word, number);
                store_counts(entry, word, at, (value, 0));
            }
        }
    }
}

/// The number of the while that counts, with the counts of this while and of the one before. The while is that of `number`, or the
/// one that the entry has if it is later: workers look at the clock at different times, and a rate never goes back.
fn counts_at(entry: &Entry<'_>, word: usize, number: u64) -> (u64, (u64, u64)) {
    let (present, rest) = (entry.words[word], entry.words[word + 1]);
    let stored = rest >> COUNT_BITS;
    let passed = number.wrapping_sub(stored) & NUMBER_MASK;
    let behind = stored.wrapping_sub(number) & NUMBER_MASK;
    let is_counted = present > 0 || rest & COUNT_MASK > 0;
    match passed {
        0 => (number, (present, rest & COUNT_MASK)),
        1 => (number, (0, present)),
        _ if is_counted && behind <= BEHIND_MAX => (number + behind, (present, rest & COUNT_MASK)),
        _ => (number, (0, 0)),
    }
}

fn store_counts(entry: &mut Entry<'_>, word: usize, number: u64, (present, before): (u64, u64)) {
    entry.words[word] = present;
    entry.words[word + 1] = number << COUNT_BITS | before.min(COUNT_MASK);
}

fn milliseconds(time: Duration) -> u64 {
    time.as_millis() as u64
}

impl<'a> Entry<'a> {
    pub(super) fn over(words: &'a mut [u64], key_words: usize) -> Self {
        Self { words, key_words }
    }

    pub(super) fn hash(&self) -> u64 {
        self.words[0]
    }

    /// When it was last counted, plus one; 0: it is no one's.
    pub(super) fn counted_at(&self) -> u64 {
        self.words[1] & TIME_MASK
    }

    pub(super) fn idle(&self, tick: u64) -> Duration {
        Duration::from_millis((tick + 1).saturating_sub(self.counted_at()))
    }

    pub(super) fn touch(&mut self, tick: u64) {
        // Workers look at the clock at different times: it never goes back.
        let at = (tick + 1).min(TIME_MASK).max(self.counted_at());
        self.words[1] = self.words[1] & !TIME_MASK | at;
    }

    /// Makes it that of a hash, with nothing counted and no key.
    pub(super) fn begin(&mut self, hash: u64) {
        self.words.fill(0);
        self.words[0] = hash;
    }

    /// Returns whether it has neither a key nor the beginning of one.
    pub(super) fn is_nameless(&self) -> bool {
        self.words[1] & !(TIME_MASK | NOTED) == 0
    }

    /// Keeps the key, to show it.
    pub(super) fn name(&mut self, key: &[u8]) {
        let kept = &key[..key.len().min(self.key_words * 8)];
        let is_whole = if kept.len() == key.len() { WHOLE } else { 0 };
        self.words[1] = self.words[1] & (TIME_MASK | NOTED) | (kept.len() as u64) << TIME_BITS | is_whole;
        for (word, bytes) in self.words[HEAD..].iter_mut().zip(kept.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(eight);
        }
    }

    /// Keeps the beginning of a key.
    pub(super) fn name_in_part(&mut self, key: &[u8]) {
        self.name(key);
        self.words[1] &= !WHOLE;
    }

    /// Notes that peers are to hear of it. Returns whether that was not noted before.
    pub(super) fn note(&mut self) -> bool {
        let is_new = self.words[1] & NOTED == 0;
        self.words[1] |= NOTED;
        is_new
    }

    /// Returns whether it was noted, and is no more.
    pub(super) fn unnote(&mut self) -> bool {
        let was_noted = self.words[1] & NOTED != 0;
        self.words[1] &= !NOTED;
        was_noted
    }

    pub(super) fn unsent(&self, word: u8) -> i64 {
        self.words[usize::from(word)] as i64
    }

    pub(super) fn set_unsent(&mut self, word: u8, value: i64) {
        self.words[usize::from(word)] = value as u64;
    }

    pub(super) fn forget(&mut self) {
        self.words.fill(0);
    }

    pub(super) fn is_key_whole(&self) -> bool {
        self.words[1] & WHOLE != 0
    }

    /// The bytes of the key that are kept.
    pub(super) fn key(&self) -> Option<Key> {
        let length = (self.words[1] >> TIME_BITS & 0xff) as usize;
        let mut bytes = [0; TEXT_BYTES];
        for (eight, word) in bytes.chunks_mut(8).zip(&self.words[HEAD..HEAD + self.key_words]) {
            eight.copy_from_slice(&word.to_ne_bytes());
        }
        (length <= TEXT_BYTES).then_some(Key { bytes, length })
    }
}

/// A key that was kept, or the beginning of one.
#[derive(Clone, Copy, Default)]
pub(super) struct Key {
    bytes: [u8; TEXT_BYTES],
    length: usize,
}

impl std::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
