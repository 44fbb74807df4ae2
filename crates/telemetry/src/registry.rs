//! Where series are found by name, so that counters survive a change of configuration.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::{Name, Snapshot};

use crate::expose::{self, Gauge};
use crate::figures::{Figures, take, tell};
use crate::series::{ClusterSeries, EndpointSeries, ListenerSeries, RouteSeries, Series};
use crate::summary::{Summary, Totals};
use crate::trial::Trial;

#[derive(Debug)]
struct Entry<S> {
    series: Arc<Series<S>>,
    /// Configured, or asked for since the configuration changed last. Others go once nobody holds them.
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

    /// Drops what is neither wanted nor held. Nobody can take hold of it meanwhile: that needs the registry's lock.
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
    /// What listeners counted that are gone, so that totals never fall.
    gone: Totals,
}

impl Shelves {
    fn prune(&mut self) {
        let gone = &mut self.gone;
        self.listeners.prune(|series| gone.add_listener(series));
        self.routes.prune(|_| ());
        self.clusters.prune(|series| gone.add_cluster(series));
        self.endpoints.prune(|_| ());
    }
}

/// Every series at a moment, in the order of names.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) listeners: Vec<(Name, Arc<ListenerSeries>)>,
    pub(crate) routes: Vec<(Name, Arc<RouteSeries>)>,
    pub(crate) clusters: Vec<(Name, Arc<ClusterSeries>)>,
    pub(crate) endpoints: Vec<((Name, Name), Arc<EndpointSeries>)>,
    pub(crate) gone: Totals,
    pub(crate) workers: usize,
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

    /// The counts of the plan that is tried, if one is.
    pub fn trial(&self) -> Option<Arc<Trial>> {
        self.trial.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says where what comes of a trial is counted, before it begins, and that it has ended.
    pub fn set_trial(&self, trial: Option<Arc<Trial>>) {
        *self.trial.lock().unwrap_or_else(PoisonError::into_inner) = trial;
    }

    /// How many workers count, at least one.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The counters of a listener, made if they are not there.
    pub fn listener(&self, name: &Name) -> Arc<ListenerSeries> {
        self.shelves().listeners.get(name.clone(), self.workers)
    }

    /// The counters of a route, made if they are not there.
    pub fn route(&self, name: &Name) -> Arc<RouteSeries> {
        self.shelves().routes.get(name.clone(), self.workers)
    }

    /// The counters of a cluster, made if they are not there.
    pub fn cluster(&self, name: &Name) -> Arc<ClusterSeries> {
        self.shelves().clusters.get(name.clone(), self.workers)
    }

    /// The counters of an endpoint of a cluster, made if they are not there.
    pub fn endpoint(&self, cluster: &Name, endpoint: &Name) -> Arc<EndpointSeries> {
        self.shelves().endpoints.get((cluster.clone(), endpoint.clone()), self.workers)
    }

    /// Drops the counters of objects that this snapshot does not hold. Those that are still in use elsewhere (an exchange
    /// is not over) stay until they are let go. Called when a snapshot has come into force.
    pub fn retain(&self, snapshot: &Snapshot) {
        let listeners: HashSet<&Name> = snapshot.listeners.iter().map(|listener| &listener.name).collect();
        let routes: HashSet<&Name> = snapshot.routes.iter().map(|route| &route.name).collect();
        let clusters: HashSet<&Name> = snapshot.clusters.iter().map(|cluster| &cluster.name).collect();
        let endpoints: HashSet<(&Name, &Name)> = snapshot
            .clusters
            .iter()
            .flat_map(|cluster| cluster.endpoints.iter().map(|endpoint| (&cluster.name, &endpoint.name)))
            .collect();
        let mut shelves = self.shelves();
        shelves.listeners.want(|name| listeners.contains(name));
        shelves.routes.want(|name| routes.contains(name));
        shelves.clusters.want(|name| clusters.contains(name));
        shelves.endpoints.want(|(cluster, endpoint)| endpoints.contains(&(cluster, endpoint)));
        shelves.prune();
    }

    /// Appends the page in the Prometheus text format 0.0.4 (`text/plain; version=0.0.4`). Values that live elsewhere are
    /// given as `gauges`; those of the process are read here.
    pub fn expose(&self, gauges: &[Gauge<'_>], out: &mut String) {
        expose::expose(&self.listing(), gauges, out);
    }

    /// All totals at this moment, to show or to subtract from later ones.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.listing())
    }

    /// What was counted so far, the figures of the process before among it, for one that follows.
    pub fn figures(&self) -> Figures {
        let listing = self.listing();
        Figures {
            listeners: listing.listeners.iter().map(|(name, series)| (name.clone(), tell(&**series))).collect(),
            routes: listing.routes.iter().map(|(name, series)| (name.clone(), tell(&**series))).collect(),
            clusters: listing.clusters.iter().map(|(name, series)| (name.clone(), tell(&**series))).collect(),
            endpoints: listing.endpoints.iter().map(|(key, series)| (key.clone(), tell(&**series))).collect(),
        }
    }

    /// Takes the figures of the process before for those from which this one counts on, in place of those that were taken
    /// before. Of what is not configured here, nothing is kept. One thread calls this.
    pub fn inherit(&self, figures: &Figures) {
        let shelves = self.shelves();
        for (name, counts) in &figures.listeners {
            shelves.listeners.find(name).iter().for_each(|series| take(&**series, counts));
        }
        for (name, counts) in &figures.routes {
            shelves.routes.find(name).iter().for_each(|series| take(&**series, counts));
        }
        for (name, counts) in &figures.clusters {
            shelves.clusters.find(name).iter().for_each(|series| take(&**series, counts));
        }
        for (key, counts) in &figures.endpoints {
            shelves.endpoints.find(key).iter().for_each(|series| take(&**series, counts));
        }
    }

    fn listing(&self) -> Listing {
        let mut shelves = self.shelves();
        shelves.prune();
        Listing {
            listeners: shelves.listeners.list(),
            routes: shelves.routes.list(),
            clusters: shelves.clusters.list(),
            endpoints: shelves.endpoints.list(),
            gone: shelves.gone.clone(),
            workers: self.workers,
        }
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        // A panic elsewhere cannot leave the maps half changed.
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
