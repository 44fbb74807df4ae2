//! Where series are found by name, so that counters survive a change of configuration. They are made at first use: of what is
//! configured but never used, only the name appears.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::snapshot::Cluster;
use model::{Name, Snapshot};

use crate::expose::{self, Gauge};
use crate::figures::{self, Counts, Figures, Gone, Shard, take, tell, tell_apart};
use crate::listing::Listing;
use crate::series::{ClusterSeries, EndpointSeries, ListenerSeries, RouteSeries, Series};
use crate::summary::Summary;
use crate::trial::Trial;

#[derive(Debug)]
struct Entry<S> {
    series: Arc<Series<S>>,
    /// Configured, or asked for since the configuration changed last. Others are dropped with their last holder.
    wanted: bool,
}

#[derive(Debug)]
struct Shelf<K, S>(BTreeMap<K, Entry<S>>);

impl<K, S> Default for Shelf<K, S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone, S: Default> Shelf<K, S> {
    fn get(&mut self, key: K, workers: usize) -> Arc<Series<S>> {
        let new = || Entry { series: Arc::new(Series::new(workers)), wanted: true };
        let entry = self.0.entry(key).or_insert_with(new);
        entry.wanted = true;
        Arc::clone(&entry.series)
    }

    fn want(&mut self, wanted: impl Fn(&K) -> bool) {
        for (key, entry) in &mut self.0 {
            entry.wanted = wanted(key);
        }
    }

    /// Drops what is neither wanted nor held. No one can take hold of it meanwhile: that needs the registry's lock.
    fn prune(&mut self, mut gone: impl FnMut(&Series<S>)) {
        self.0.retain(|_, entry| {
            let keep = entry.wanted || Arc::strong_count(&entry.series) > 1;
            if !keep {
                gone(&entry.series);
            }
            keep
        });
    }

    fn find(&self, key: &K) -> Option<Arc<Series<S>>> {
        self.0.get(key).map(|entry| Arc::clone(&entry.series))
    }

    /// Returns the series that continue from these figures: created for `configured` objects, and existing ones otherwise. Objects without
    /// a series go to `gone`.
    fn heirs<'a>(
        &mut self,
        figures: &'a [(K, Counts)],
        workers: usize,
        configured: impl Fn(&K) -> bool,
        mut gone: impl FnMut(&Counts),
    ) -> Vec<(Arc<Series<S>>, &'a Counts)> {
        let heir = |(key, counts): &'a (K, Counts)| {
            let series = if configured(key) { Some(self.get(key.clone(), workers)) } else { self.find(key) };
            if series.is_none() {
                gone(counts);
            }
            Some((series?, counts))
        };
        figures.iter().filter_map(heir).collect()
    }

    /// Returns the inherited counts of objects that these figures do not contain.
    fn untold(&self, figures: &[(K, Counts)], mut tell_of: impl FnMut(&Counts))
    where
        S: Shard,
    {
        let told: BTreeSet<&K> = figures.iter().map(|(key, _)| key).collect();
        for (_, entry) in self.0.iter().filter(|(key, _)| !told.contains(key)) {
            let [_, inherited] = tell_apart(&entry.series);
            tell_of(&inherited);
        }
    }

    fn list(&self) -> Vec<(K, Arc<Series<S>>)> {
        self.0.iter().map(|(key, entry)| (key.clone(), Arc::clone(&entry.series))).collect()
    }
}

#[derive(Debug, Default)]
struct Shelves {
    listeners: Shelf<Name, crate::ListenerShard>,
    routes: Shelf<Name, crate::RouteShard>,
    clusters: Shelf<Name, crate::ClusterShard>,
    endpoints: Shelf<(Name, Name), crate::EndpointShard>,
    /// What is configured.
    snapshot: Arc<Snapshot>,
    /// What this process has counted of what is gone.
    gone: Gone,
    /// What those before have.
    gone_before: Gone,
}

impl Shelves {
    fn prune(&mut self) {
        let (gone, before) = (&mut self.gone, &mut self.gone_before);
        self.listeners.prune(|series| add_apart([&mut gone.listeners, &mut before.listeners], series));
        self.routes.prune(|_| ());
        self.clusters.prune(|series| add_apart([&mut gone.clusters, &mut before.clusters], series));
        self.endpoints.prune(|_| ());
    }
}

/// Adds what was counted of an object that goes. What processes before have is kept apart: the one before may tell it again.
fn add_apart<S: Shard>([gone, before]: [&mut Counts; 2], series: &Series<S>) {
    let [own, inherited] = tell_apart(series);
    figures::add(gone, &own);
    figures::add(before, &inherited);
}

/// What a snapshot holds, by name.
struct Configured<'a> {
    listeners: HashSet<&'a Name>,
    routes: HashSet<&'a Name>,
    clusters: HashMap<&'a Name, &'a Cluster>,
    /// Endpoints of the clusters that were asked about.
    endpoints: RefCell<HashMap<&'a Name, HashSet<&'a Name>>>,
}

impl<'a> Configured<'a> {
    /// Returns the same for the given clusters only: there may be very many, and few are requested.
    fn of_these(snapshot: &'a Snapshot, wanted: impl Fn(&Name) -> bool) -> Self {
        let clusters = snapshot.clusters.iter().filter(|cluster| wanted(&cluster.name));
        Self {
            listeners: snapshot.listeners.iter().map(|listener| &listener.name).collect(),
            routes: snapshot.routes.iter().map(|route| &route.name).collect(),
            clusters: clusters.map(|cluster| (&cluster.name, &**cluster)).collect(),
            endpoints: RefCell::default(),
        }
    }

    fn of(snapshot: &'a Snapshot) -> Self {
        Self::of_these(snapshot, |_| true)
    }

    fn has_endpoint(&self, cluster: &Name, endpoint: &Name) -> bool {
        let Some(cluster) = self.clusters.get(cluster) else { return false };
        let names = || cluster.endpoints.iter().map(|endpoint| &endpoint.name).collect();
        self.endpoints.borrow_mut().entry(&cluster.name).or_insert_with(names).contains(endpoint)
    }
}

/// All counters of the program.
#[derive(Debug)]
pub struct Telemetry {
    workers: usize,
    shelves: Mutex<Shelves>,
    trial: Mutex<Option<Arc<Trial>>>,
}

impl Telemetry {
    /// Counters for this many workers, at least one.
    pub fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self { workers: workers.max(1), shelves: Mutex::default(), trial: Mutex::default() })
    }

    /// Returns the counts of the canary, if one is running.
    pub fn trial(&self) -> Option<Arc<Trial>> {
        self.trial.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says where what comes of a trial is counted, before it begins, and that it has ended.
    pub fn set_trial(&self, trial: Option<Arc<Trial>>) {
        *self.trial.lock().unwrap_or_else(PoisonError::into_inner) = trial;
    }

    /// Returns the number of workers that count, at least one.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Returns the counters of a listener, and creates missing ones.
    pub fn listener(&self, name: &Name) -> Arc<ListenerSeries> {
        self.shelves().listeners.get(name.clone(), self.workers)
    }

    /// Returns the counters of a route, and creates missing ones.
    pub fn route(&self, name: &Name) -> Arc<RouteSeries> {
        self.shelves().routes.get(name.clone(), self.workers)
    }

    /// Returns the counters of a cluster, and creates missing ones.
    pub fn cluster(&self, name: &Name) -> Arc<ClusterSeries> {
        self.shelves().clusters.get(name.clone(), self.workers)
    }

    /// Returns the counters of an endpoint of a cluster, and creates missing ones.
    pub fn endpoint(&self, cluster: &Name, endpoint: &Name) -> Arc<EndpointSeries> {
        self.shelves().endpoints.get((cluster.clone(), endpoint.clone()), self.workers)
    }

    /// Drops the counters of objects that this snapshot does not hold. Those that are still in use elsewhere (an exchange
    /// is not over) stay until they are let go. Called when a snapshot has become active. Those that it holds are reported from now
    /// on by [`Self::expose`], also while nothing was counted for them.
    pub fn retain(&self, snapshot: &Arc<Snapshot>) {
        let used: HashSet<Name> = {
            let shelves = self.shelves();
            shelves.clusters.0.keys().chain(shelves.endpoints.0.keys().map(|(cluster, _)| cluster)).cloned().collect()
        };
        // Not under the lock: anyone who meets something for the first time waits for it, and that may be requests.
        let known = Configured::of_these(snapshot, |name| used.contains(name));
        let mut shelves = self.shelves();
        // Of what was met meanwhile, which is little if anything.
        let late = |name: &Name| snapshot.clusters.iter().find(|cluster| cluster.name == *name);
        shelves.listeners.want(|name| known.listeners.contains(name));
        shelves.routes.want(|name| known.routes.contains(name));
        shelves.clusters.want(|name| match used.contains(name) {
            true => known.clusters.contains_key(name),
            false => late(name).is_some(),
        });
        shelves.endpoints.want(|(cluster, endpoint)| match used.contains(cluster) {
            true => known.has_endpoint(cluster, endpoint),
            false => late(cluster).is_some_and(|cluster| cluster.endpoints.iter().any(|one| one.name == *endpoint)),
        });
        shelves.snapshot = Arc::clone(snapshot);
        shelves.prune();
    }

    /// Appends the page in the Prometheus text format 0.0.4 (`text/plain; version=0.0.4`). Values that live elsewhere are
    /// given as `gauges`; those of the process are read here.
    pub fn expose(&self, gauges: &[Gauge<'_>], out: &mut String) {
        let mut listing = self.listing();
        let snapshot = Arc::clone(&self.shelves().snapshot);
        listing.add_unused(&snapshot);
        expose::expose(&listing, gauges, out);
    }

    /// Returns all totals at this moment, to show or to subtract from later ones, without objects that were never used.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.listing())
    }

    /// Returns all counts so far, including those of the previous process, for the next process.
    pub fn figures(&self) -> Figures {
        let listing = self.listing();
        Figures {
            listeners: listing.listeners.iter().map(|(name, series)| (name.clone(), tell(&**series))).collect(),
            routes: listing.routes.iter().map(|(name, series)| (name.clone(), tell(&**series))).collect(),
            clusters: listing.clusters.iter().map(|(name, series)| (name.clone(), tell(&**series))).collect(),
            endpoints: listing.endpoints.iter().map(|(key, series)| (key.clone(), tell(&**series))).collect(),
            gone: listing.gone,
        }
    }

    /// Takes the figures of the process before for those from which this one counts on, in place of those that were taken
    /// before: of all that is configured here, whether it was used here yet or not. Of what is not configured here, only totals are
    /// kept. One thread calls this, and not before [`Self::retain`].
    pub fn inherit(&self, figures: &Figures) {
        loop {
            let snapshot = Arc::clone(&self.shelves().snapshot);
            let known = Configured::of(&snapshot);
            let shelves = self.shelves();
            // What is no longer configured is not to be made again by what was configured a moment ago.
            if Arc::ptr_eq(&shelves.snapshot, &snapshot) {
                return self.inherit_into(shelves, figures, &known);
            }
        }
    }

    fn inherit_into(&self, mut shelves: MutexGuard<'_, Shelves>, figures: &Figures, known: &Configured<'_>) {
        let workers = self.workers;
        let mut gone = figures.gone.clone();
        let is_known = |name: &Name| known.listeners.contains(name);
        let add = |counts: &Counts| figures::add(&mut gone.listeners, counts);
        let listeners = shelves.listeners.heirs(&figures.listeners, workers, is_known, add);
        let is_known = |name: &Name| known.routes.contains(name);
        let routes = shelves.routes.heirs(&figures.routes, workers, is_known, |_| ());
        let is_known = |name: &Name| known.clusters.contains_key(name);
        let add = |counts: &Counts| figures::add(&mut gone.clusters, counts);
        let clusters = shelves.clusters.heirs(&figures.clusters, workers, is_known, add);
        let is_known = |(cluster, endpoint): &(Name, Name)| known.has_endpoint(cluster, endpoint);
        let endpoints = shelves.endpoints.heirs(&figures.endpoints, workers, is_known, |_| ());
        // What the process before has dropped meanwhile it tells among what is gone, and here it still counts by its name.
        shelves.listeners.untold(&figures.listeners, |counts| figures::subtract(&mut gone.listeners, counts));
        shelves.clusters.untold(&figures.clusters, |counts| figures::subtract(&mut gone.clusters, counts));
        shelves.gone_before = gone;
        // Anyone who meets something for the first time waits for the lock, and that may be requests.
        drop(shelves);
        listeners.iter().for_each(|(series, counts)| take(&**series, counts));
        routes.iter().for_each(|(series, counts)| take(&**series, counts));
        clusters.iter().for_each(|(series, counts)| take(&**series, counts));
        endpoints.iter().for_each(|(series, counts)| take(&**series, counts));
    }

    fn listing(&self) -> Listing {
        let mut shelves = self.shelves();
        shelves.prune();
        let mut gone = shelves.gone.clone();
        gone.add(&shelves.gone_before);
        Listing {
            listeners: shelves.listeners.list(),
            routes: shelves.routes.list(),
            clusters: shelves.clusters.list(),
            endpoints: shelves.endpoints.list(),
            gone,
            workers: self.workers,
        }
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        // A panic elsewhere cannot leave the maps half changed.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
