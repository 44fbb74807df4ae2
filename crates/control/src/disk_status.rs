//! The disks of caches.

use std::sync::atomic::Ordering;

use plan::cache;

/// The disk of a cache as it is now.
#[derive(Clone, Debug)]
pub struct DiskStatus {
    /// The path of the folder.
    pub path: String,
    /// Bytes that its files may take.
    pub max: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Responses in files.
    pub entries: u64,
    /// Requests that were answered from a file.
    pub hits: u64,
    /// Files that made room for others.
    pub evictions: u64,
    /// Failures of reads and writes, by reason.
    pub failures: [(&'static str, u64); 3],
}

/// Returns the disk of a cache as it is now.
pub(crate) fn disk_status(disk: &cache::Disk) -> DiskStatus {
    let (settings, content) = (disk.settings(), disk.content());
    let counts = &content.counts;
    let failures = [("write", &counts.failed), ("dropped", &counts.dropped), ("bad_file", &counts.bad)];
    DiskStatus {
        path: settings.path.clone(),
        max: settings.max,
        bytes: content.bytes(),
        entries: content.entries(),
        hits: counts.hits.load(Ordering::Relaxed),
        evictions: counts.evictions.load(Ordering::Relaxed),
        failures: failures.map(|(reason, count)| (reason, count.load(Ordering::Relaxed))),
    }
}
