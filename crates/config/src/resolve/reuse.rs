//! What clusters take from an earlier configuration, and from each other.

use std::collections::VecDeque;
use std::sync::Arc;

use model::snapshot::{Cluster, ClusterSettings};

use crate::tree::Node;

/// Settings of clusters that are looked through for equal ones.
const SETTINGS_MAX: usize = 16;

/// What an earlier tree came to.
#[derive(Clone, Copy)]
pub(crate) struct Before<'a> {
    pub(crate) tree: &'a Node,
    /// In the order of the tree.
    pub(crate) clusters: &'a [Arc<Cluster>],
    /// As in [`super::Resolved`].
    pub(crate) contained: &'a [bool],
    pub(crate) own_zone: Option<&'a str>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Reuse<'a> {
    pub before: Option<Before<'a>>,
    /// A file was read for the object that is resolved, so that it must be read again.
    pub looks_outside: bool,
    /// A host name was looked up for the cluster that is resolved.
    pub has_names: bool,
    /// Some that clusters have, so that those that are set up alike share one copy.
    settings: VecDeque<Arc<ClusterSettings>>,
}

impl Reuse<'_> {
    /// Returns one copy of settings that are equal.
    pub(super) fn shared(&mut self, settings: ClusterSettings) -> Arc<ClusterSettings> {
        if self.settings.is_empty() {
            for cluster in self.before.map_or(&[][..], |before| before.clusters) {
                let is_known = self.settings.iter().any(|known| Arc::ptr_eq(known, &cluster.settings));
                if !is_known {
                    self.settings.push_back(Arc::clone(&cluster.settings));
                }
                if self.settings.len() == SETTINGS_MAX {
                    break;
                }
            }
        }
        if let Some(known) = self.settings.iter().find(|known| ***known == settings) {
            return Arc::clone(known);
        }
        if self.settings.len() == SETTINGS_MAX {
            self.settings.pop_front();
        }
        let settings = Arc::new(settings);
        self.settings.push_back(Arc::clone(&settings));
        settings
    }
}
