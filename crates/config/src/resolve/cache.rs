//! Caches of responses.

use model::cache::Cache;

use super::Resolver;
use crate::file;

const MEMORY: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 40;

impl Resolver<'_> {
    pub(super) fn cache(&mut self, name: &str, written: &mut file::Cache) -> Option<Cache> {
        if !MEMORY.contains(&written.memory.0) {
            let mend = Some("use a size such as `256MiB`".to_owned());
            self.report(&format!("caches/{name}/memory"), "the memory of a cache is from 1MiB to 1TiB", mend);
            return None;
        }
        Some(Cache { name: name.into(), memory: written.memory.0 })
    }
}
