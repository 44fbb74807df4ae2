//! What a filter gets while its settings are compiled: numbers for its notes, and state that outlives the plan.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use model::filter::FilterUse;
use model::{Issue, Name};

use super::events::{Counted, EventCounter};
use super::need::CalledCluster;
use crate::cache::CacheStore;
use crate::expression::{Amount, Condition, Names, Scope, Tables, Used, Value};
use crate::keyed;
use crate::limit::{LimitName, LimitState};
use crate::map::{MapPlan, Maps};
use crate::table::Table;

/// State of a filter that all workers share and that plans to come take over.
#[derive(Clone)]
pub(super) struct Kept {
    filter: &'static str,
    /// Hash of the filter's settings.
    settings: u64,
    key: String,
    state: Arc<dyn Any + Send + Sync>,
}

/// What a chain has beside its steps.
#[derive(Default)]
pub(super) struct Holdings {
    /// State for the chain that takes its place.
    pub kept: Box<[Kept]>,
    /// Clusters that its filters call, in the order of [`CalledCluster::place`].
    pub called: Box<[Called]>,
    /// What its filters count.
    pub counted: Box<[Counted]>,
    /// The tables that its filters use.
    pub tables: Box<[Arc<Table>]>,
    /// Maps that its expressions use.
    pub maps: Vec<Arc<MapPlan>>,
    /// The caches that its filters use.
    pub caches: Box<[Arc<CacheStore>]>,
}

/// One chain while it is compiled.
pub struct Compiling<'a> {
    /// The state of the chain that the route of the same name had before.
    before: &'a [Kept],
    /// Places of the state that is in use again.
    taken: Vec<usize>,
    /// Hashes of the settings of all filters of the list, and of the one that is compiled.
    settings: (Vec<u64>, u64),
    /// Those that expressions may use, and those that they do.
    maps: (Maps<'a>, Vec<Arc<MapPlan>>),
    kept: Vec<Kept>,
    notes: usize,
    called: Vec<Called>,
    counted: Vec<Counted>,
    /// The filter's place in the list, and its name.
    filter: (usize, &'static str),
    /// The whole list; empty where one filter is checked alone.
    uses: &'a [FilterUse],
    /// All tables; `None`: they are not known, as where settings are only checked.
    tables: Option<&'a [Arc<Table>]>,
    /// Those that are used.
    used: Vec<Arc<Table>>,
    /// Hash of what the route is asked for, and the filters that have an id that follows from it.
    identity: (u64, u64),
    /// Expressions compiled since this was last asked read the body of the request.
    reads_body: bool,
    /// All caches, and those that are used; `None`: they are not known, as where settings are only checked.
    caches: (Option<&'a [Arc<CacheStore>]>, Vec<Arc<CacheStore>>),
}

/// A cluster that a filter calls.
#[derive(Clone)]
pub(crate) struct Called {
    /// Its name.
    pub cluster: Name,
    /// Where the configuration names it, below the list of filters.
    pub path: String,
    /// It is called by gRPC, so that it needs HTTP/2 or HTTP/3.
    pub is_grpc: bool,
}

impl Kept {
    /// Returns the state if it is of this type.
    pub(super) fn state<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.state).downcast().ok()
    }

    /// Returns it as that of a limit, if it is one, of this route.
    pub(super) fn limit(&self, of: &str) -> Option<(LimitName, LimitState)> {
        let rates = self.state().map(LimitState::Rates);
        let state = rates.or_else(|| self.state().map(LimitState::InFlight))?;
        let name = LimitName { of: of.to_owned(), filter: self.filter, key: self.key.clone(), settings: self.settings };
        Some((name, state))
    }
}

impl<'a> Compiling<'a> {
    /// The filters of a route that has none in force, or whose settings are only checked.
    pub(super) fn alone() -> Self {
        Self::after(&[])
    }

    /// The filters of a route after those that kept this.
    pub(super) fn after(before: &'a [Kept]) -> Self {
        let (kept, called, counted, used) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (taken, settings, maps) = (Vec::new(), (Vec::new(), 0), (Maps::Unknown, Vec::new()));
        let caches = (None, Vec::new());
        Self {
            before,
            taken,
            settings,
            maps,
            kept,
            notes: 0,
            called,
            counted,
            filter: (0, ""),
            uses: &[],
            tables: None,
            used,
            identity: (0, 0),
            reads_body: false,
            caches,
        }
    }

    /// Says what the route is, by a hash that is the same in every process.
    pub(super) fn of_route(self, identity: u64) -> Self {
        Self { identity: (identity, 0), ..self }
    }

    /// A number that this filter of this route has in every process, while the route is asked for the same, and this text is.
    pub(super) fn stable_id(&mut self, text: &str) -> u64 {
        self.identity.1 += 1;
        keyed::hash([self.identity.0, self.identity.1], format!("{} {text}", self.filter.1).as_bytes())
    }

    /// Says which caches there are.
    pub(super) fn with_caches(self, caches: &'a [Arc<CacheStore>]) -> Self {
        Self { caches: (Some(caches), self.caches.1), ..self }
    }

    /// Returns the cache of this name. `None`: caches are not known, because settings are only checked.
    ///
    /// # Errors
    /// There is none of this name, but those of these.
    pub(super) fn known_cache(&mut self, name: &str) -> Result<Option<Arc<CacheStore>>, Vec<String>> {
        let Some(caches) = self.caches.0 else { return Ok(None) };
        let Some(cache) = caches.iter().find(|cache| cache.settings().name.as_str() == name) else {
            return Err(caches.iter().map(|cache| cache.settings().name.to_string()).collect());
        };
        self.caches.1.push(Arc::clone(cache));
        Ok(Some(Arc::clone(cache)))
    }

    /// Says which maps expressions may use.
    pub(super) fn with_maps(self, maps: Maps<'a>) -> Self {
        Self { maps: (maps, self.maps.1), ..self }
    }

    /// Says which tables there are.
    pub(super) fn beside(self, tables: &'a [Arc<Table>]) -> Self {
        Self { tables: Some(tables), ..self }
    }

    /// Returns the table of this name. `None`: tables are not known, because settings are only checked.
    ///
    /// # Errors
    /// There is none of this name, but those of these.
    pub(super) fn known_table(&mut self, name: &str) -> Result<Option<Arc<Table>>, Vec<String>> {
        let Some(tables) = self.tables else { return Ok(None) };
        let Some(table) = tables.iter().find(|table| table.name().as_str() == name) else {
            return Err(tables.iter().map(|table| table.name().to_string()).collect());
        };
        self.used.push(Arc::clone(table));
        Ok(Some(Arc::clone(table)))
    }

    /// Goes on with the filter of this name at this place in the list.
    pub(super) fn filter(&mut self, place: usize, name: &'static str) {
        self.filter = (place, name);
    }

    /// Says which filters are in the list: state goes to the one with equal settings, wherever that is.
    pub(super) fn among(self, uses: &'a [FilterUse]) -> Self {
        let all = uses.iter().map(|used| hash_of(&used.settings)).collect();
        Self { settings: (all, self.settings.1), uses, ..self }
    }

    /// Returns the first filter of these names that is listed behind this one.
    pub(super) fn listed_behind(&self, names: &[&str]) -> Option<&'a str> {
        let behind = self.uses.iter().skip(self.filter.0 + 1);
        behind.map(|used| &*used.name).find(|name| names.contains(name))
    }

    /// Goes on with a filter of these settings.
    pub(super) fn with_settings(&mut self, settings: &serde_json::Value) {
        self.settings.1 = hash_of(settings);
    }

    /// Numbers for notes, see [`super::Notes::set`]: those of a filter are not those of another of its route.
    pub fn note(&mut self) -> usize {
        self.notes += 1;
        self.notes - 1
    }

    /// The state that this filter of this route had in the plan before, if it was made with an equal `key`; else a new one. A route
    /// that has the filter several times has as many states of a key. A filter takes that of the one with equal settings, or else the
    /// first that belongs to no filter of the list.
    pub fn kept<T: Any + Send + Sync>(&mut self, key: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let is_same = |kept: &Kept| kept.filter == self.filter.1 && kept.key == key;
        let (all, own) = (&self.settings.0, self.settings.1);
        let free = || {
            let before = self.before.iter().enumerate();
            before.filter(|(place, kept)| is_same(kept) && !self.taken.contains(place))
        };
        let equal = free().find(|(_, kept)| kept.settings == own);
        let found = equal.or_else(|| free().find(|(_, kept)| !all.contains(&kept.settings)));
        let state = found.and_then(|(_, kept)| kept.state()).unwrap_or_else(|| Arc::new(make()));
        let place = found.map(|(place, _)| place);
        self.taken.extend(place);
        self.kept.push(Kept { filter: self.filter.1, settings: own, key: key.to_owned(), state: state.clone() });
        state
    }

    /// A cluster that the filter calls, see [`super::Need::Call`]. Whether there is one of this name is found out with the plan, and
    /// again with each plan after it; `path` says where the settings name it.
    pub fn cluster(&mut self, name: &str, path: &str) -> CalledCluster {
        self.called_by(false, name, path)
    }

    /// The same for one that is called by gRPC, see [`super::Need::Grpc`]. That it speaks HTTP/2 or HTTP/3 is checked with the plan, too.
    pub fn grpc_cluster(&mut self, name: &str, path: &str) -> CalledCluster {
        self.called_by(true, name, path)
    }

    fn called_by(&mut self, is_grpc: bool, name: &str, path: &str) -> CalledCluster {
        let (place, filter) = self.filter;
        self.called.push(Called { cluster: name.into(), path: format!("{place}/{filter}/{path}"), is_grpc });
        CalledCluster(self.called.len() - 1)
    }

    /// Counts events of the filter, which the page of metrics shows by route, filter and event. `event` is a word or two in the past
    /// tense, such as `limited`.
    pub fn counter(&mut self, event: &'static str) -> EventCounter {
        let count = self.kept(&format!("counted {event}"), AtomicU64::default);
        self.counted.push(Counted::new(self.filter.1, event, Arc::clone(&count)));
        EventCounter::new(count)
    }

    /// Shows a count that something else keeps, as [`Self::counter`] does.
    pub(super) fn show_count(&mut self, event: &'static str, count: Arc<AtomicU64>) {
        self.counted.push(Counted::new(self.filter.1, event, count));
    }

    /// Compiles an expression that is true or false.
    ///
    /// # Errors
    /// What is wrong with it, and at which character; the path is empty.
    pub fn condition(&mut self, text: &str, scope: Scope) -> Result<Condition, Issue> {
        let compiled = Condition::compile_with(text, scope, self.names())?;
        self.keep_used(compiled.used());
        self.reads_body |= compiled.reads_body();
        Ok(compiled)
    }

    /// Compiles an expression whose value is used as text.
    ///
    /// # Errors
    /// What is wrong with it, and at which character; the path is empty.
    pub fn value(&mut self, text: &str, scope: Scope) -> Result<Value, Issue> {
        let compiled = Value::compile_with(text, scope, self.names())?;
        self.keep_used(compiled.used());
        self.reads_body |= compiled.reads_body();
        Ok(compiled)
    }

    /// Compiles an expression that gives a whole number.
    ///
    /// # Errors
    /// What is wrong with it, and at which character; the path is empty.
    pub fn amount(&mut self, text: &str, scope: Scope) -> Result<Amount, Issue> {
        let compiled = Amount::compile_with(text, scope, self.names())?;
        self.keep_used(compiled.used());
        self.reads_body |= compiled.reads_body();
        Ok(compiled)
    }

    /// What expressions may name.
    fn names(&self) -> Names<'a> {
        Names { maps: self.maps.0, tables: self.tables.map_or(Tables::Unknown, Tables::Known), has_body: true }
    }

    /// Returns whether expressions that were compiled since this was last asked read the body of the request.
    pub(super) fn take_reads_body(&mut self) -> bool {
        std::mem::take(&mut self.reads_body)
    }

    fn keep_used(&mut self, used: &Used) {
        self.maps.1.extend_from_slice(&used.maps);
        self.used.extend_from_slice(&used.tables);
    }

    /// What the chain has beside its steps.
    pub(super) fn finish(self) -> Holdings {
        Holdings {
            kept: self.kept.into(),
            called: self.called.into(),
            counted: self.counted.into(),
            tables: self.used.into(),
            maps: self.maps.1,
            caches: self.caches.1.into(),
        }
    }
}

fn hash_of(settings: &serde_json::Value) -> u64 {
    keyed::hash([0, 0], settings.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_found_again_by_filter_key_and_place() {
        let mut first = Compiling::alone();
        first.filter(0, "a");
        let (one, two) = (first.kept("k", || 1_u8), first.kept("k", || 2_u8));
        let other = first.kept("x", || 3_u8);
        let kept = first.finish().kept;
        let mut second = Compiling::after(&kept);
        second.filter(0, "a");
        assert!(Arc::ptr_eq(&second.kept("x", || 0_u8), &other));
        assert!(Arc::ptr_eq(&second.kept("k", || 0_u8), &one));
        assert!(Arc::ptr_eq(&second.kept("k", || 0_u8), &two));
        assert_eq!(*second.kept("k", || 9_u8), 9, "a third is new");
        assert_eq!(*second.kept("x", || 7_u16), 7, "what has become of another kind is new");
        second.filter(1, "b");
        assert_eq!(*second.kept("k", || 8_u8), 8);
        let numbers = [second.note(), second.note()];
        assert_eq!(numbers, [0, 1]);
    }
}
