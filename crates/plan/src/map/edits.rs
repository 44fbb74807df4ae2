//! What the administrator has changed of the entries of a map while the program runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use model::map::{Collector, MapKind, VALUE_BYTES_MAX};

use super::Key;
use super::table::Table;

/// Entries of one map that can be set or deleted while the program runs.
pub const EDITS_MAX: usize = 10_000;

/// What was changed of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// It has this value.
    Set(String),
    /// It is not there.
    Deleted,
}

/// All that was changed of a map. Those who look up find it by a counter, and take the lock only if there is anything.
#[derive(Default)]
pub(super) struct Edits {
    count: AtomicUsize,
    state: RwLock<State>,
    /// Held while a new state is made, so that lookups wait only while it is put into place.
    changing: Mutex<()>,
}

#[derive(Default)]
pub(crate) struct State {
    /// By key, as the map keeps it. Shared with those who list it.
    list: Arc<BTreeMap<Box<str>, Edit>>,
    /// The entries that are set.
    table: Table,
}

/// A value that was found.
pub(crate) enum Hit<'m> {
    /// Of the configuration.
    Configured(&'m [u8]),
    /// Of the administrator.
    Edited(Edited<'m>),
}

/// An entry that the administrator has set, which stays as it is as long as this is held.
pub(crate) struct Edited<'m>(RwLockReadGuard<'m, State>, u32);

impl Hit<'_> {
    /// Returns the value.
    pub(crate) fn value(&self) -> &[u8] {
        match self {
            Self::Configured(value) => value,
            Self::Edited(Edited(state, entry)) => state.table.value(*entry),
        }
    }
}

impl Edits {
    /// Returns whether nothing is changed.
    #[inline]
    pub(super) fn are_none(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        // Nothing is left half changed under the lock.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the value of a key over what the configuration says.
    pub(super) fn find<'m>(&'m self, configured: &'m Table, key: Key<'_>) -> Option<Hit<'m>> {
        let state = self.read();
        let is_wanted = |key: &[u8]| std::str::from_utf8(key).is_ok_and(|key| !state.list.contains_key(key));
        let (below, above) = (configured.find(key, is_wanted), state.table.find(key, |_| true));
        match (below, above) {
            // Equal ranks are those of regular expressions, of which the configuration's come first.
            (Some(below), Some(above)) if below.rank >= above.rank => {
                Some(Hit::Configured(configured.value(below.entry)))
            }
            (_, Some(above)) => Some(Hit::Edited(Edited(state, above.entry))),
            (Some(below), None) => Some(Hit::Configured(configured.value(below.entry))),
            (None, None) => None,
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<Edit> {
        self.read().list.get(key).cloned()
    }

    pub(super) fn list(&self) -> Arc<BTreeMap<Box<str>, Edit>> {
        Arc::clone(&self.read().list)
    }

    pub(super) fn put(&self, kind: MapKind, key: String, edit: Edit) -> Result<(), String> {
        if let Edit::Set(value) = &edit
            && (value.len() > VALUE_BYTES_MAX || value.contains(|c: char| c.is_control() && c != '\t'))
        {
            return Err(format!("a value has at most {VALUE_BYTES_MAX} bytes and no control characters"));
        }
        self.change(kind, |list| {
            if list.len() >= EDITS_MAX && !list.contains_key(key.as_str()) {
                return Err(format!(
                    "{EDITS_MAX} entries are changed already: put lasting ones into the configuration"
                ));
            }
            list.insert(key.into(), edit);
            Ok(())
        })
    }

    pub(super) fn take_back(&self, kind: MapKind, key: &str) -> usize {
        if self.get(key).is_none() {
            return 0;
        }
        self.change(kind, |list| Ok(usize::from(list.remove(key).is_some()))).unwrap_or(0)
    }

    pub(super) fn clear(&self) -> usize {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.write();
        let old = std::mem::take(&mut *state);
        self.count.store(0, Ordering::Release);
        // Look-ups do not wait until it is freed.
        drop(state);
        old.list.len()
    }

    /// Changes the list, and makes the table of it.
    fn change<T>(
        &self,
        kind: MapKind,
        change: impl FnOnce(&mut BTreeMap<Box<str>, Edit>) -> Result<T, String>,
    ) -> Result<T, String> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list = BTreeMap::clone(&self.list());
        let changed = change(&mut list)?;
        let mut set = Collector::new(kind);
        for (key, edit) in &list {
            if let Edit::Set(value) = edit {
                set.add(key, value)?;
            }
        }
        // Keys are unique in the list.
        let entries = set.finish().unwrap_or_default();
        let table = Table::new(kind, Arc::new(entries)).map_err(|issue| issue.message)?;
        let mut state = self.write();
        self.count.store(list.len(), Ordering::Release);
        *state = State { list: Arc::new(list), table };
        Ok(changed)
    }
}
