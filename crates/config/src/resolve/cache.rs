//! Caches of responses.

use model::cache::{Cache, CacheDisk};

use super::Resolver;
use crate::file;

const MEMORY: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 40;
const DISK: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 50;

impl Resolver<'_> {
    pub(super) fn cache(&mut self, name: &str, written: &mut file::Cache) -> Option<Cache> {
        if !MEMORY.contains(&written.memory.0) {
            let mend = Some("use a size such as `256MiB`".to_owned());
            self.report(&format!("caches/{name}/memory"), "the memory of a cache is from 1MiB to 1TiB", mend);
            return None;
        }
        let disk = match &written.disk {
            Some(disk) => Some(self.cache_disk(name, disk)?),
            None => None,
        };
        Some(Cache { name: name.into(), memory: written.memory.0, disk })
    }

    fn cache_disk(&mut self, name: &str, written: &file::CacheDisk) -> Option<CacheDisk> {
        let below = format!("caches/{name}/disk");
        let segments: Vec<_> = written.path.split('/').filter(|segment| !matches!(*segment, "" | ".")).collect();
        let is_bad = segments.is_empty() || segments.contains(&"..") || written.path.contains('\0');
        if is_bad || !written.path.starts_with('/') {
            let mend = Some("use one such as `/var/cache/equipoise`".to_owned());
            self.report(
                &format!("{below}/path"),
                format!("`{}` is not the absolute path of a folder", written.path),
                mend,
            );
            return None;
        }
        if !DISK.contains(&written.max.0) {
            let mend = Some("use a size such as `10GiB`".to_owned());
            self.report(&format!("{below}/max"), "the disk of a cache is from 1MiB to 1PiB", mend);
            return None;
        }
        Some(CacheDisk { path: format!("/{}", segments.join("/")), max: written.max.0 })
    }

    /// Reports each cache whose folder is that of another.
    pub(super) fn check_cache_folders(&mut self, caches: &[Cache]) {
        for (place, cache) in caches.iter().enumerate() {
            let Some(disk) = &cache.disk else { continue };
            let is_same = |other: &&Cache| other.disk.as_ref().is_some_and(|other| other.path == disk.path);
            if let Some(other) = caches[..place].iter().find(is_same) {
                let message = format!("the caches `{}` and `{}` have the same folder", other.name, cache.name);
                let mend = Some("give each cache a folder of its own".to_owned());
                self.report(&format!("caches/{}/disk/path", cache.name), message, mend);
            }
        }
    }
}
