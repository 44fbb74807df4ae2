//! Why endpoints are not healthy.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::Name;

/// Characters of a reason that are kept.
const REASON_CHARS_MAX: usize = 200;

/// Why endpoints are not well, as their last probe that failed and their agents said.
#[derive(Debug, Default)]
pub struct Reasons {
    pub(super) probe: ReasonsByEndpoint,
    pub(super) agent: ReasonsByEndpoint,
}

impl Reasons {
    /// Why the endpoint of that cluster is not well, if its last probe failed or its agent says so.
    pub fn get(&self, cluster: &Name, endpoint: &Name) -> Option<String> {
        let key = (cluster.clone(), endpoint.clone());
        self.probe.get(&key).or_else(|| self.agent.get(&key))
    }
}

/// Nothing for those that are well. As many as there are endpoints.
#[derive(Debug, Default)]
pub(super) struct ReasonsByEndpoint(Mutex<BTreeMap<(Name, Name), String>>);

impl ReasonsByEndpoint {
    fn get(&self, key: &(Name, Name)) -> Option<String> {
        self.lock().get(key).cloned()
    }

    pub(super) fn set(&self, key: &(Name, Name), reason: Option<&str>) {
        let mut reasons = self.lock();
        match reason {
            Some(reason) => _ = reasons.insert(key.clone(), reason.chars().take(REASON_CHARS_MAX).collect()),
            None => _ = reasons.remove(key),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Name, Name), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
