//! The disk of a cache, with its settings.

use std::fmt;
use std::sync::Arc;

use model::cache::CacheDisk;

use super::content::DiskContent;
use crate::cache::validity::Validity;

/// The disk of a cache, with these settings.
#[derive(Clone)]
pub struct Disk {
    settings: CacheDisk,
    content: Arc<DiskContent>,
}

impl Disk {
    /// One with these settings. What `before` knows of the same folder stays.
    pub(in crate::cache) fn new(settings: CacheDisk, validity: &Arc<Validity>, before: Option<&Self>) -> Self {
        let same = before.filter(|before| before.settings.path == settings.path);
        let content = match same {
            Some(before) => Arc::clone(&before.content),
            None => Arc::new(DiskContent::new(settings.path.clone(), Arc::clone(validity))),
        };
        Self { settings, content }
    }

    /// The settings.
    pub fn settings(&self) -> &CacheDisk {
        &self.settings
    }

    /// What it knows of its folder.
    pub fn content(&self) -> &Arc<DiskContent> {
        &self.content
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("settings", &self.settings).finish_non_exhaustive()
    }
}
