//! Tables of counters by key: what routes count into, conditions read, and the administrator shows and changes.
//!
//! A table is kept from one plan to the next as long as its name, key, size, counters and rates stay. Reading one that no entry is in
//! gives zeros. Start with [`Table::count`] and [`Table::get`]; how entries are stored is in `store.rs`.

mod layout;
mod shared;
#[cfg(test)]
mod shared_tests;
mod store;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use model::Name;
use model::table::{Counter, Reading};

use crate::limit::{InFlight, Key, Network, OpenPlace};
use layout::{Entry, Layout};
pub use shared::{Change, Totals};
use shared::{Shared, whole_key};
use store::Store;

/// What the entries of a table are by.
#[derive(Clone, Debug)]
pub enum TableKey {
    /// What every request has.
    Known(Key),
    /// The value of an expression, which is compiled where a request is counted or asked for.
    Expression(Box<str>),
}

/// A table, compiled.
pub struct Table {
    settings: Arc<model::table::Table>,
    key: TableKey,
    layout: Layout,
    state: Arc<State>,
    /// Connections that are open, by key; `None`: the table does not count them. They are kept beside the entries, which may expire or make
    /// room for others while a connection is open.
    open: Option<Arc<InFlight>>,
}

/// What is in a table. It holds no memory until the first entry.
#[derive(Default)]
struct State {
    store: OnceLock<Store>,
    /// Of a table that is replicated, which has its entries here.
    shared: Option<Box<Shared>>,
    entries: AtomicU64,
    evictions: AtomicU64,
}

/// One entry, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key as text: an address, or the value of a field, of which at most [`Table::KEY_BYTES_MAX`] bytes are kept.
    pub key: String,
    /// All readings of the table, in the order of its settings.
    pub readings: Vec<(Reading, u64)>,
    /// Time since its last count.
    pub idle: Duration,
}

/// One entry, for the process that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The bytes of the key, or those that are kept of a longer one.
    pub key: Vec<u8>,
    /// Hash of a key that is kept in part, under [`Table::hash_key`].
    pub hash: Option<u64>,
    /// Time since its last count.
    pub idle: Duration,
    /// Its counters, in the order of the settings, and then its rates.
    pub values: Vec<u64>,
}

impl Table {
    /// Bytes of a key that are kept to show it. Keys are told apart by all of their bytes.
    pub const KEY_BYTES_MAX: usize = layout::TEXT_BYTES;

    /// Compiles a table that was `before` in the plan in force. What it holds is taken over if the shape is the same; another `expire`
    /// does not change that.
    ///
    /// # Errors
    /// The name of the field that it is by is none.
    pub fn compile(settings: &Arc<model::table::Table>, before: Option<&Self>) -> Result<Self, String> {
        let key = match &settings.key {
            model::table::TableKey::Client { ipv4_prefix, ipv6_prefix } => {
                TableKey::Known(Key::Client(Network::new(*ipv4_prefix, *ipv6_prefix)))
            }
            model::table::TableKey::Header(name) => TableKey::Known(Key::header(name)?),
            model::table::TableKey::Expression(text) => TableKey::Expression(text.as_str().into()),
        };
        let is_same = |before: &&Self| {
            let (one, other) = (&before.settings, settings);
            (&one.key, one.keys_max, one.is_replicated) == (&other.key, other.keys_max, other.is_replicated)
                && (&one.counters, &one.rates) == (&other.counters, &other.rates)
        };
        let shared = || settings.is_replicated.then(Box::default);
        let fresh = || Arc::new(State { shared: shared(), ..State::default() });
        let state = before.filter(is_same).map_or_else(fresh, |before| Arc::clone(&before.state));
        let open = settings.counters.contains(&Counter::OpenConnections).then(|| {
            let same = before.filter(|before| before.settings.key == settings.key);
            same.and_then(|before| before.open.clone()).unwrap_or_default()
        });
        Ok(Self { settings: settings.clone(), key, layout: Layout::of(settings), state, open })
    }

    /// Returns its name.
    pub fn name(&self) -> &Name {
        &self.settings.name
    }

    /// Returns what was configured.
    pub fn settings(&self) -> &Arc<model::table::Table> {
        &self.settings
    }

    /// Returns whether it holds the very entries of another, which was before it or comes after it.
    pub fn has_entries_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// Returns whether it counts this.
    pub fn has(&self, reading: Reading) -> bool {
        self.layout.place(reading).is_some() || (reading.counter.is_level() && !reading.is_rate && self.open.is_some())
    }

    /// Counts a new connection from an address, in a table by address. It counts as open until what this returns is dropped, whatever
    /// becomes of its entry meanwhile. `chance` as in [`Self::count`].
    pub fn connect(&self, address: IpAddr, now: Instant, chance: &mut dyn FnMut() -> u64) -> Option<OpenPlace> {
        let TableKey::Known(Key::Client(network)) = &self.key else { return None };
        network.with(address, |key| {
            self.count(key, &[(Counter::Connections, 1)], now, chance);
            OpenPlace::take(self.open.as_ref()?, key, chance)
        })
    }

    /// Returns the bytes that each entry takes.
    pub fn entry_bytes(&self) -> usize {
        self.layout.entry_bytes()
    }

    /// Returns the entries that made room for others before their time.
    pub fn evictions(&self) -> u64 {
        self.state.evictions.load(Ordering::Relaxed)
    }

    /// Returns the number of entries, those included whose time is over and whose place is free for others.
    pub fn entries(&self) -> u64 {
        self.state.entries.load(Ordering::Relaxed)
    }

    /// Returns the number of entries whose time is not over. It looks at all of them.
    #[cfg(test)]
    fn alive(&self, now: Instant) -> usize {
        let mut count = 0;
        self.each(now, |_, _| count += 1);
        count
    }

    /// Returns what its entries are by.
    pub fn key(&self) -> &TableKey {
        &self.key
    }

    /// Adds to the entry of a key, which is made if there is none. Returns a number by which [`Self::count_more`] finds it again.
    /// What the table does not count is passed over. `chance` gives the key of its hash, once.
    pub fn count(&self, key: &[u8], amounts: &[(Counter, u64)], now: Instant, chance: &mut dyn FnMut() -> u64) -> u64 {
        let Some(store) = self.state.store.get() else { return self.count_first(key, amounts, now, chance) };
        let (tick, hash) = (store.tick(now), store.hash(key));
        store.with_bucket(hash, |bucket| {
            let place = self.place(bucket, (hash, Some(key)), self.time(tick));
            self.add(&mut bucket.entry(place), amounts, tick);
        });
        hash
    }

    /// Adds to an entry that was counted before. One that is gone since is made again; its key is shown with its next request.
    pub fn count_more(&self, entry: u64, amounts: &[(Counter, u64)], now: Instant) {
        let Some(store) = self.state.store.get() else { return self.count_more_shared(entry, amounts, now) };
        let tick = store.tick(now);
        store.with_bucket(entry, |bucket| {
            let place = self.place(bucket, (entry, None), self.time(tick));
            self.add(&mut bucket.entry(place), amounts, tick);
        });
    }

    /// Returns what an entry has counted: 0 if there is none, or the table does not count this. A rate is the count of the last while,
    /// to which the while before adds as much of its own as is not over yet.
    pub fn get(&self, key: &[u8], reading: Reading, now: Instant) -> u64 {
        if reading.counter.is_level() {
            return self.level(key);
        }
        let Some(store) = self.state.store.get() else { return self.get_shared(key, reading, now) };
        let Some(place) = self.layout.place(reading) else { return 0 };
        let (tick, hash) = (store.tick(now), store.hash(key));
        store.with_bucket(hash, |bucket| {
            let found = bucket.find(hash, self.time(tick));
            found.map_or(0, |found| self.layout.read(&bucket.entry(found), place, tick))
        })
    }

    /// Sets counters and rates of a key to values, for the administrator; the entry is made if there is none.
    pub fn set(&self, key: &[u8], values: &[(Reading, u64)], now: Instant, chance: &mut dyn FnMut() -> u64) {
        let (store, key) = (self.store(now, chance), self.kept_key(key));
        let (tick, hash) = (store.tick(now), store.hash(&key));
        store.with_bucket(hash, |bucket| {
            let place = self.place(bucket, (hash, Some(&key)), self.time(tick));
            let mut entry = bucket.entry(place);
            for (reading, value) in values {
                if let Some(place) = self.layout.place(*reading) {
                    let before = self.layout.read(&entry, place, tick);
                    self.layout.write(&mut entry, place, tick, *value);
                    self.note_set(&mut entry, *reading, (before, *value));
                }
            }
        });
    }

    /// Forgets an entry, or all of them. Returns how many there were.
    pub fn clear(&self, key: Option<&[u8]>, now: Instant) -> usize {
        let Some(store) = self.known() else { return 0 };
        let time = self.time(store.tick(now));
        let mut is_told = true;
        let mut forget = |mut entry: Entry<'_>, is_alive| {
            is_told &= self.note_removed(&entry, is_alive);
            entry.forget();
        };
        let count = match key {
            Some(key) => {
                let hash = store.hash(&self.kept_key(key));
                store.with_bucket(hash, |bucket| {
                    let found = bucket.find(hash, time);
                    found.into_iter().for_each(|place| forget(bucket.entry(place), true));
                    usize::from(found.is_some())
                })
            }
            None => store.clear(time, forget),
        };
        if !is_told {
            self.note_cleared(key.is_some());
        }
        self.state.entries.fetch_sub(count as u64, Ordering::Relaxed);
        count
    }

    /// Returns the entry of a key.
    pub fn row(&self, key: &[u8], now: Instant) -> Option<Row> {
        let store = self.known()?;
        let (tick, hash) = (store.tick(now), store.hash(&self.kept_key(key)));
        store.with_bucket(hash, |bucket| {
            let place = bucket.find(hash, self.time(tick))?;
            Some(self.shown(&bucket.entry(place), tick))
        })
    }

    /// Returns the entries that have most of a reading, at most `max`, the greatest first. It looks at all of them.
    pub fn top(&self, by: Reading, max: usize, now: Instant) -> Vec<Row> {
        if !self.has(by) {
            return Vec::new();
        }
        let value = |entry: &Entry<'_>, tick| match self.layout.place(by) {
            Some(place) => self.shown_value(self.layout.read(entry, place, tick)),
            None => self.level(&entry.key().unwrap_or_default()),
        };
        // The least of those kept is at the top of the heap.
        let mut kept = std::collections::BinaryHeap::with_capacity(max.min(1024) + 1);
        self.each(now, |entry, tick| {
            let value = value(entry, tick);
            if kept.len() < max {
                kept.push((std::cmp::Reverse(value), entry.hash()));
            } else if kept.peek().is_some_and(|(least, _)| value > least.0) {
                kept.pop();
                kept.push((std::cmp::Reverse(value), entry.hash()));
            }
        });
        let Some(store) = self.known() else { return Vec::new() };
        let tick = store.tick(now);
        let row = |hash: u64| {
            store.with_bucket(hash, |bucket| {
                let place = bucket.find(hash, self.time(tick))?;
                Some(self.shown(&bucket.entry(place), tick))
            })
        };
        kept.into_sorted_vec().into_iter().filter_map(|(_, hash)| row(hash)).collect()
    }

    /// Reads a key as a person writes it: an address, or the value of the field.
    ///
    /// # Errors
    /// It is no address.
    pub fn parse_key(&self, text: &str) -> Result<Vec<u8>, String> {
        match &self.key {
            TableKey::Known(Key::Header(_)) | TableKey::Expression(_) => Ok(text.as_bytes().to_vec()),
            TableKey::Known(Key::Client(network)) => {
                let address: IpAddr = text.parse().map_err(|_| format!("`{text}` is not an address"))?;
                Ok(network.with(address, <[u8]>::to_vec))
            }
        }
    }

    /// Returns a text that two tables of the same shape have in common.
    pub fn shape(&self) -> String {
        let settings = &self.settings;
        format!("{:?} {:?} {:?}", settings.key, settings.counters, settings.rates)
    }

    /// Returns what the process that follows needs, the entries counted last first, at most `max`, and none that was idle for longer than
    /// `since`. Entries whose key is not known at all are left out.
    pub fn hand_over(&self, max: usize, since: Duration, now: Instant) -> Vec<Handed> {
        let mut all = Vec::new();
        self.each(now, |entry, tick| {
            let is_wanted = !entry.is_nameless() && entry.idle(tick) <= since;
            if let Some(key) = entry.key().filter(|_| is_wanted) {
                let value = |(reading, place)| self.handed_value(entry, reading, self.layout.read(entry, place, tick));
                let values = self.layout.readings().map(value).collect();
                let hash = (!entry.is_key_whole()).then(|| entry.hash());
                all.push(Handed { key: key.to_vec(), hash, idle: entry.idle(tick), values });
            }
            // No more than twice as many as are wanted are held.
            if all.len() >= 2 * max.max(1) {
                all.select_nth_unstable_by_key(max, |handed| handed.idle);
                all.truncate(max);
            }
        });
        all.sort_unstable_by_key(|handed: &Handed| handed.idle);
        all.truncate(max);
        all
    }

    /// Returns the key of the hashes of its entries. `None` before the first entry.
    pub fn hash_key(&self) -> Option<[u64; 2]> {
        self.known().map(Store::key)
    }

    /// Takes in what [`Self::hand_over`] gave of a table of the same shape. Entries of another number of values are passed over, and so are
    /// keys in part if the table has another [`Self::hash_key`]. Without one, `chance` gives it.
    pub fn inherit(
        &self,
        (handed, hash_key): (&[Handed], Option<[u64; 2]>),
        now: Instant,
        chance: &mut dyn FnMut() -> u64,
    ) {
        let places: Vec<_> = self.layout.readings().map(|(_, place)| place).collect();
        let mut given = hash_key.into_iter().flatten();
        let store = self.store(self.begins(now), &mut || given.next().unwrap_or_else(&mut *chance));
        let (tick, is_same) = (store.tick(now), hash_key == Some(store.key()));
        // Those counted last come last, so that they push out others and not others them.
        for one in handed.iter().rev().filter(|one| one.values.len() == places.len() && one.idle < self.settings.expire)
        {
            let hash = match one.hash {
                None => store.hash(&one.key),
                Some(hash) if is_same => hash,
                Some(_) => continue,
            };
            let counted_at = tick.saturating_sub(one.idle.as_millis() as u64);
            store.with_bucket(hash, |bucket| {
                let time = store::Time { now: counted_at, ..self.time(tick) };
                let place = self.place(bucket, (hash, Some(&one.key)), time);
                let mut entry = bucket.entry(place);
                if one.hash.is_some() {
                    entry.name_in_part(&one.key);
                }
                for (place, value) in places.iter().zip(&one.values) {
                    self.layout.write(&mut entry, *place, tick, *value);
                }
            });
        }
    }

    fn add(&self, entry: &mut Entry<'_>, amounts: &[(Counter, u64)], tick: u64) {
        for (counter, amount) in amounts.iter().filter(|(_, amount)| *amount > 0) {
            for is_rate in [false, true] {
                if let Some(place) = self.layout.place(Reading { counter: *counter, is_rate }) {
                    self.layout.add(entry, place, tick, *amount);
                }
            }
        }
    }

    /// Returns where the entry of a key is, which is made if there was none.
    fn place(&self, bucket: &mut store::Bucket<'_>, key: (u64, Option<&[u8]>), time: store::Time) -> usize {
        let found = bucket.find_or_make(key, time);
        self.count_found(&found);
        found.place
    }

    fn count_found(&self, found: &store::Found) {
        if found.has_evicted {
            self.state.evictions.fetch_add(1, Ordering::Relaxed);
        }
        if found.is_more {
            self.state.entries.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn shown(&self, entry: &Entry<'_>, tick: u64) -> Row {
        let kept = entry.key().unwrap_or_default();
        let key = &*kept;
        let text = match (&self.key, key.len()) {
            (TableKey::Known(Key::Client(_)), 4) => {
                IpAddr::from(<[u8; 4]>::try_from(key).unwrap_or_default()).to_string()
            }
            (TableKey::Known(Key::Client(_)), 16) => {
                IpAddr::from(<[u8; 16]>::try_from(key).unwrap_or_default()).to_string()
            }
            _ => String::from_utf8_lossy(key).into_owned() + if entry.is_key_whole() { "" } else { "…" },
        };
        let read = |reading: &Reading| match self.layout.place(*reading) {
            Some(place) => (*reading, self.shown_value(self.layout.read(entry, place, tick))),
            None => (*reading, self.level(key)),
        };
        Row { key: text, readings: self.layout.order().iter().map(read).collect(), idle: entry.idle(tick) }
    }

    /// Connections of a key that are open.
    fn level(&self, key: &[u8]) -> u64 {
        self.open.as_ref().map_or(0, |open| open.count(key).into())
    }

    fn each(&self, now: Instant, mut look: impl FnMut(&Entry<'_>, u64)) {
        let Some(store) = self.known() else { return };
        let tick = store.tick(now);
        store.each(self.time(tick), |entry| look(&entry, tick));
    }

    fn store(&self, now: Instant, chance: &mut dyn FnMut() -> u64) -> &Store {
        let keys_max = self.settings.keys_max as usize;
        let place = self.state.shared.as_ref().map_or(&self.state.store, |shared| &shared.store);
        place.get_or_init(|| Store::new(keys_max, self.layout.words(), now, [chance(), chance()]))
    }

    fn known(&self) -> Option<&Store> {
        self.state.store.get().or_else(|| self.state.shared.as_ref()?.store.get())
    }

    /// The key that the entries of a key are by.
    fn kept_key<'a>(&self, key: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_replicated() { whole_key(key) } else { key.into() }
    }

    /// The present, and the last moment at which an entry must have been counted to be alive.
    fn time(&self, tick: u64) -> store::Time {
        store::Time { now: tick, alive_from: (tick + 1).saturating_sub(self.settings.expire.as_millis() as u64) }
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("settings", &self.settings).finish_non_exhaustive()
    }
}
