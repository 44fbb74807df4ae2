//! Maps: from a key to a value, over entries of the configuration and what the administrator has changed of them.
//!
//! A [`MapPlan`] is as immutable as the plan that it belongs to. Changes of the administrator lie beside it in [`Edits`], which the maps of
//! the same name in all plans share: a request looks there only if there are any.

mod edits;
mod nested;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use model::map::{Map, MapKind};
use model::{Issue, Name};

use edits::Edits;
pub(crate) use edits::Hit;
pub use edits::{EDITS_MAX, Edit};
use table::Table;

/// What is looked up.
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    /// A text. In a map of networks it must be an address.
    Text(&'a [u8]),
    /// An address.
    Ip(IpAddr),
}

/// A map, compiled.
pub struct MapPlan {
    map: Arc<Map>,
    table: Table,
    edits: Arc<Edits>,
}

/// An entry as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The key as it is kept.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The administrator has set it.
    pub is_edited: bool,
}

impl MapPlan {
    /// Compiles a map. What the administrator has changed of the map of the same name before stays, unless that had another kind.
    ///
    /// # Errors
    /// A key that is no regular expression, or has become too large.
    pub fn compile(map: &Arc<Map>, before: Option<&Arc<Self>>) -> Result<Arc<Self>, Issue> {
        if let Some(before) = before.filter(|before| Arc::ptr_eq(&before.map, map) || before.map == *map) {
            return Ok(Arc::clone(before));
        }
        let edits = before.filter(|before| before.map.kind == map.kind).map(|before| Arc::clone(&before.edits));
        let table = Table::new(map.kind, Arc::clone(&map.entries))?;
        Ok(Arc::new(Self { map: Arc::clone(map), table, edits: edits.unwrap_or_default() }))
    }

    /// Returns a map of this name that no one knows anything of, for checking what is not yet joined with the rest.
    pub(crate) fn unknown(name: &str) -> Arc<Self> {
        let entries = Arc::default();
        let map = Arc::new(Map { name: name.into(), kind: MapKind::Exact, default: None, file: None, entries });
        Arc::new(Self { map, table: Table::default(), edits: Arc::default() })
    }

    /// Returns what was configured.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// Returns its name.
    pub fn name(&self) -> &Name {
        &self.map.name
    }

    /// Returns what it has for a key. The default is not looked at.
    #[inline]
    pub(crate) fn find(&self, key: Key<'_>) -> Option<Hit<'_>> {
        if self.edits.are_none() {
            return self.table.find(key, |_| true).map(|found| Hit::Configured(self.table.value(found.entry)));
        }
        self.edits.find(&self.table, key)
    }

    /// Returns the value for all other keys; empty if there is none.
    pub(crate) fn default_value(&self) -> &[u8] {
        self.map.default.as_deref().unwrap_or_default().as_bytes()
    }

    /// Returns the value that applies to a key, which may be the default.
    pub fn value_for(&self, key: &str) -> Option<String> {
        let found = self.find(Key::Text(key.as_bytes()));
        let found = found.map(|hit| String::from_utf8_lossy(hit.value()).into_owned());
        found.or_else(|| self.map.default.clone())
    }

    /// Returns the entry of this very key.
    pub fn entry(&self, key: &str) -> Option<Shown> {
        let key = self.map.kind.key(key).ok()?;
        match self.edits.get(&key) {
            Some(Edit::Set(value)) => Some(Shown { key, value, is_edited: true }),
            Some(Edit::Deleted) => None,
            None => {
                let entry = self.table.entry_of(key.as_bytes())?;
                let value = String::from_utf8_lossy(self.table.value(entry)).into_owned();
                Some(Shown { key, value, is_edited: false })
            }
        }
    }

    /// Returns up to `count` entries whose keys contain this text, from the one at `skipped` on, those of the configuration first.
    pub fn entries(&self, containing: &str, (skipped, count): (usize, usize)) -> Vec<Shown> {
        let (edits, text) = (self.edits.list(), |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned());
        let finder = memchr::memmem::Finder::new(containing.as_bytes());
        let configured = self.map.entries.iter().filter(|(key, _)| finder.find(key).is_some());
        let configured = configured.filter(|(key, _)| edits.is_empty() || !edits.contains_key(&*text(key)));
        let configured = configured.map(|(key, value)| Shown { key: text(key), value: text(value), is_edited: false });
        let edited = edits.iter().filter(|(key, _)| key.contains(containing)).filter_map(|(key, edit)| match edit {
            Edit::Set(value) => Some(Shown { key: key.to_string(), value: value.clone(), is_edited: true }),
            Edit::Deleted => None,
        });
        configured.chain(edited).skip(skipped).take(count).collect()
    }

    /// Returns the number of entries, edits included.
    pub fn len(&self) -> usize {
        let mut count = self.map.entries.len();
        for (key, edit) in &*self.edits.list() {
            match (edit, self.table.entry_of(key.as_bytes())) {
                (Edit::Set(_), None) => count += 1,
                (Edit::Deleted, Some(_)) => count -= 1,
                _ => {}
            }
        }
        count
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries that the administrator has set or deleted.
    pub fn edited(&self) -> usize {
        self.edits.list().len()
    }

    /// Sets the value of a key, or deletes its entry, until the edit is taken back or the program ends.
    ///
    /// # Errors
    /// The key or the value is none for this map, or there are [`EDITS_MAX`] edits.
    pub fn edit(&self, key: &str, edit: Edit) -> Result<(), String> {
        let key = self.map.kind.key(key)?;
        self.edits.put(self.map.kind, key, edit)
    }

    /// Takes back the edit of a key, or all of them. Returns how many there were.
    pub fn reset(&self, key: Option<&str>) -> usize {
        match key {
            Some(key) => self.map.kind.key(key).map_or(0, |key| self.edits.take_back(self.map.kind, &key)),
            None => self.edits.clear(),
        }
    }
}

impl fmt::Debug for MapPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MapPlan({}, {:?})", self.map.name, self.map.entries)
    }
}

/// The maps that an expression may use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Maps<'a> {
    /// Nothing is known of them yet: any name is good.
    Unknown,
    Known(&'a [Arc<MapPlan>]),
}

impl Maps<'_> {
    /// Returns the map of this name. `None`: there is none.
    pub(crate) fn find(&self, name: &str) -> Option<Arc<MapPlan>> {
        match self {
            Self::Unknown => Some(MapPlan::unknown(name)),
            Self::Known(maps) => maps.iter().find(|map| map.name().as_str() == name).cloned(),
        }
    }

    /// Returns the names of all.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        let known = if let Self::Known(maps) = self { *maps } else { &[] };
        known.iter().map(|map| map.name().as_str())
    }

    /// Returns whether these very maps are still there.
    pub(crate) fn have(&self, used: &[Arc<MapPlan>]) -> bool {
        let Self::Known(maps) = self else { return used.is_empty() };
        used.iter().all(|map| maps.iter().any(|known| Arc::ptr_eq(known, map)))
    }
}
