//! A part of the store under one lock: entries by key, and which of them goes next.
//!
//! The order is S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", 2023): what is new stands in a small queue, and
//! comes to the main one only if it is asked for again. A scan passes through the small queue and leaves the main one alone.

use std::collections::HashMap;
use std::sync::Arc;

use model::fields::Fields;

use super::purges::Tagged;
use super::vary::{self, Varied};

/// Variants of one key; the oldest makes room.
const VARIANTS_MAX: usize = 32;
/// Hashes of keys that were evicted from the small queue, which are remembered.
const GHOSTS: usize = 1024;
/// Uses that are counted.
const USES_MAX: u8 = 3;
/// The share of the small queue: one tenth.
const SMALL_SHARE: u64 = 10;

const NONE: u32 = u32::MAX;

/// What a shard holds.
pub(super) trait Kept: Tagged {
    /// What tells it from others of its key.
    fn variant(&self) -> &[Varied];

    /// When it came, in seconds since 1970.
    fn received(&self) -> u64;

    /// Has it be validated before it is served as fresh again.
    fn mark_stale(&self);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Small,
    Main,
}

struct Slot<T> {
    entry: Arc<T>,
    hash: u64,
    bytes: u64,
    uses: u8,
    queue: Queue,
    /// Towards the tail, and towards the head.
    older: u32,
    newer: u32,
    /// The next variant of the same key.
    sibling: u32,
}

#[derive(Clone, Copy)]
struct List {
    /// The newest.
    head: u32,
    /// The oldest.
    tail: u32,
    bytes: u64,
}

/// See the module.
pub(super) struct Shard<T> {
    first: HashMap<u64, u32>,
    slots: Vec<Option<Slot<T>>>,
    free: Vec<u32>,
    small: List,
    main: List,
    ghosts: Box<[u64]>,
    /// Entries that were removed, for shards that note them.
    gone: Option<Vec<Arc<T>>>,
}

impl<T> Default for Shard<T> {
    fn default() -> Self {
        let empty = List { head: NONE, tail: NONE, bytes: 0 };
        let ghosts = Box::default();
        Self {
            first: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            small: empty,
            main: empty,
            ghosts,
            gone: None,
        }
    }
}

impl<T: Kept> Shard<T> {
    /// One that notes what is removed.
    pub(super) fn noting() -> Self {
        Self { gone: Some(Vec::new()), ..Self::default() }
    }

    /// Returns what was removed since the last time.
    pub(super) fn take_gone(&mut self) -> Vec<Arc<T>> {
        self.gone.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The newest of those entries of a key that were stored for such a request.
    pub(super) fn find(&mut self, (hash, key): (u64, &[u8]), request: &Fields) -> Option<Arc<T>> {
        let mut found: Option<u32> = None;
        let mut at = self.first.get(&hash).copied().unwrap_or(NONE);
        while let Some(slot) = self.slot(at) {
            let is_newer = found
                .and_then(|found| self.slot(found))
                .is_none_or(|best| best.entry.received() < slot.entry.received());
            let next = slot.sibling;
            if is_newer && slot.entry.key() == key && vary::holds(slot.entry.variant(), request) {
                found = Some(at);
            }
            at = next;
        }
        let slot = self.slot_mut(found?)?;
        slot.uses = (slot.uses + 1).min(USES_MAX);
        Some(Arc::clone(&slot.entry))
    }

    /// Returns the entry of this very variant.
    pub(super) fn of_variant(&self, (hash, key): (u64, &[u8]), variant: &[Varied]) -> Option<&Arc<T>> {
        let mut at = self.first.get(&hash).copied().unwrap_or(NONE);
        while let Some(slot) = self.slot(at) {
            if slot.entry.key() == key && slot.entry.variant() == variant {
                return Some(&slot.entry);
            }
            at = slot.sibling;
        }
        None
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.slots.iter().flatten().map(|slot| &slot.entry)
    }

    /// Puts an entry in the place of the one of the same variant, or beside the others. Returns the bytes of those that it replaces.
    pub(super) fn insert(&mut self, hash: u64, entry: Arc<T>, bytes: u64) -> u64 {
        let (mut at, mut count, mut oldest) = (self.first.get(&hash).copied().unwrap_or(NONE), 0, NONE);
        let mut freed = 0;
        while let Some(slot) = self.slot_mut(at) {
            let next = slot.sibling;
            if slot.entry.key() != entry.key() {
                // Another key of the same hash.
                freed += self.remove(at);
            } else if slot.entry.variant() == entry.variant() {
                let (before, queue) = (slot.bytes, slot.queue);
                let replaced = std::mem::replace(&mut slot.entry, entry);
                slot.bytes = bytes;
                let list = self.list(queue);
                list.bytes = list.bytes - before + bytes;
                self.note_gone(replaced);
                return freed + before;
            } else {
                (count, oldest) = (count + 1, at);
            }
            at = next;
        }
        if count >= VARIANTS_MAX {
            freed += self.remove(oldest);
        }
        let queue = if self.is_ghost(hash) { Queue::Main } else { Queue::Small };
        let sibling = self.first.get(&hash).copied().unwrap_or(NONE);
        let slot = Slot { entry, hash, bytes, uses: 0, queue, older: NONE, newer: NONE, sibling };
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place as usize] = Some(slot);
                place
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() as u32 - 1
            }
        };
        self.first.insert(hash, place);
        self.push(queue, place);
        freed
    }

    /// Removes this entry, if it is still there. Returns its bytes.
    pub(super) fn remove_entry(&mut self, hash: u64, entry: &Arc<T>) -> u64 {
        let mut at = self.first.get(&hash).copied().unwrap_or(NONE);
        while let Some(slot) = self.slot(at) {
            if Arc::ptr_eq(&slot.entry, entry) {
                return self.remove(at);
            }
            at = slot.sibling;
        }
        0
    }

    /// Removes the entry of this very variant. Returns its bytes.
    pub(super) fn remove_variant(&mut self, key: (u64, &[u8]), variant: &[Varied]) -> u64 {
        match self.of_variant(key, variant).cloned() {
            Some(entry) => self.remove_entry(key.0, &entry),
            None => 0,
        }
    }

    /// Removes all entries of a key. Returns their bytes.
    pub(super) fn remove_key(&mut self, hash: u64, key: &[u8]) -> u64 {
        let (mut at, mut freed) = (self.first.get(&hash).copied().unwrap_or(NONE), 0);
        while let Some(slot) = self.slot(at) {
            let (next, is_it) = (slot.sibling, slot.entry.key() == key);
            if is_it {
                freed += self.remove(at);
            }
            at = next;
        }
        freed
    }

    /// Removes the entries that are meant, or marks them as stale. Returns how many, and the bytes that are free.
    pub(super) fn purge(&mut self, is_soft: bool, is_meant: impl Fn(&T) -> bool) -> (u64, u64) {
        let (mut count, mut freed) = (0, 0);
        for place in 0..self.slots.len() as u32 {
            let Some(slot) = self.slot(place).filter(|slot| is_meant(&slot.entry)) else { continue };
            count += 1;
            if is_soft {
                slot.entry.mark_stale();
            } else {
                freed += self.remove(place);
            }
        }
        if self.len() == 0 {
            let gone = self.gone.take();
            *self = Self { gone, ..Self::default() };
        }
        (count, freed)
    }

    /// Evicts one entry. Returns its bytes, or `None` if there is no entry.
    pub(super) fn evict(&mut self) -> Option<u64> {
        // Each step takes an entry out, or one of its uses away.
        loop {
            let all = self.small.bytes + self.main.bytes;
            if self.main.tail == NONE || self.small.tail != NONE && self.small.bytes > all / SMALL_SHARE {
                let place = self.small.tail;
                let slot = self.slot_mut(place)?;
                if slot.uses > 0 {
                    slot.uses = 0;
                    self.unlink(place);
                    self.push(Queue::Main, place);
                    continue;
                }
                let hash = slot.hash;
                self.note_ghost(hash);
                return Some(self.remove(place));
            }
            let place = self.main.tail;
            let slot = self.slot_mut(place)?;
            if slot.uses == 0 {
                return Some(self.remove(place));
            }
            slot.uses -= 1;
            self.unlink(place);
            self.push(Queue::Main, place);
        }
    }

    fn note_gone(&mut self, entry: Arc<T>) {
        if let Some(gone) = &mut self.gone {
            gone.push(entry);
        }
    }

    fn is_ghost(&self, hash: u64) -> bool {
        self.ghosts.get(hash as usize % GHOSTS).is_some_and(|ghost| *ghost == hash)
    }

    fn note_ghost(&mut self, hash: u64) {
        if self.ghosts.is_empty() {
            self.ghosts = vec![0; GHOSTS].into();
        }
        self.ghosts[hash as usize % GHOSTS] = hash;
    }

    fn slot(&self, place: u32) -> Option<&Slot<T>> {
        self.slots.get(place as usize)?.as_ref()
    }

    fn slot_mut(&mut self, place: u32) -> Option<&mut Slot<T>> {
        self.slots.get_mut(place as usize)?.as_mut()
    }

    fn list(&mut self, queue: Queue) -> &mut List {
        match queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
        }
    }

    fn push(&mut self, queue: Queue, place: u32) {
        let Some(bytes) = self.slot(place).map(|slot| slot.bytes) else { return };
        let list = self.list(queue);
        let head = std::mem::replace(&mut list.head, place);
        list.bytes += bytes;
        if list.tail == NONE {
            list.tail = place;
        }
        if let Some(before) = self.slot_mut(head) {
            before.newer = place;
        }
        if let Some(slot) = self.slot_mut(place) {
            (slot.queue, slot.older, slot.newer) = (queue, head, NONE);
        }
    }

    fn unlink(&mut self, place: u32) {
        let Some(slot) = self.slot(place) else { return };
        let (queue, older, newer, bytes) = (slot.queue, slot.older, slot.newer, slot.bytes);
        if let Some(slot) = self.slot_mut(older) {
            slot.newer = newer;
        }
        if let Some(slot) = self.slot_mut(newer) {
            slot.older = older;
        }
        let list = self.list(queue);
        list.bytes -= bytes;
        if list.head == place {
            list.head = older;
        }
        if list.tail == place {
            list.tail = newer;
        }
    }

    /// Returns the bytes that are free.
    fn remove(&mut self, place: u32) -> u64 {
        self.unlink(place);
        let Some(slot) = self.slots.get_mut(place as usize).and_then(Option::take) else { return 0 };
        self.free.push(place);
        if self.gone.is_some() {
            self.note_gone(Arc::clone(&slot.entry));
        }
        if self.first.get(&slot.hash) == Some(&place) {
            if slot.sibling == NONE {
                self.first.remove(&slot.hash);
            } else {
                self.first.insert(slot.hash, slot.sibling);
            }
            return slot.bytes;
        }
        let mut at = self.first.get(&slot.hash).copied().unwrap_or(NONE);
        while let Some(other) = self.slot_mut(at) {
            if other.sibling == place {
                other.sibling = slot.sibling;
                break;
            }
            at = other.sibling;
        }
        slot.bytes
    }
}
