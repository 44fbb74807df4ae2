//! Caches, with those of the plan before.

use std::sync::Arc;

use model::snapshot::{Route, Snapshot};

use super::Plan;
use crate::cache::CacheStore;
use crate::keyed;

/// Compiles the caches. One that is equal to its like in the plan before is that one; one that has other bounds takes over what that holds.
pub(super) fn compile(snapshot: &Snapshot, previous: Option<&Plan>) -> Vec<Arc<CacheStore>> {
    let compiled = |settings: &Arc<model::cache::Cache>| {
        let before = previous.and_then(|plan| plan.cache(&settings.name));
        match before.filter(|before| before.settings() == &**settings) {
            Some(same) => Arc::clone(same),
            None => Arc::new(CacheStore::new((**settings).clone(), before.map(|before| &**before))),
        }
    };
    snapshot.caches.iter().map(compiled).collect()
}

/// A hash of what a route is, the same in every process: which requests come to it, to which clusters they
/// go, and its name if it was given one. Of files it tells to
/// which route their responses belong. 0 without caches that have files.
pub(super) fn identity((route, is_unnamed): (&Route, bool), caches: &[Arc<CacheStore>]) -> u64 {
    if caches.iter().all(|cache| cache.disk().is_none()) {
        return 0;
    }
    let name = if is_unnamed { "" } else { route.name.as_str() };
    let Route { above, listeners, matches, priority, is_internal, action, .. } = route;
    let text = format!("{name:?} {above:?} {listeners:?} {matches:?} {priority} {is_internal} {:?}", action.clusters());
    keyed::hash([0, 0], text.as_bytes())
}
