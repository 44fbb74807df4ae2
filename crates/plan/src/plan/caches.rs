//! Caches, with those of the plan before.

use std::sync::Arc;

use model::snapshot::Snapshot;

use super::Plan;
use crate::cache::CacheStore;

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
