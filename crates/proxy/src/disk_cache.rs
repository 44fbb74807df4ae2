//! The files of caches: what is stored is written by a thread, found again after a start by another, and read by those that read files.
//!
//! Everything here blocks, and no worker comes here but to leave a job. A folder is always reached by its descriptor, and no link in it is followed.
//!
//! | File | |
//! |---|---|
//! | `folder.rs` | the folder: making it, opening, writing and removing files in it |
//! | `write.rs` | the thread that does jobs |
//! | `scan.rs` | the thread that looks through the folder |
//! | `read.rs` | one response read from its file |

mod folder;
mod read;
mod scan;
mod write;

pub(crate) use read::read;

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use model::Issue;
use plan::Plan;
use plan::cache::{Disk, DiskJob, DiskJobs};

use folder::{Folder, Unusable};

/// What threads are sent. The second end of the channel ends the scans.
struct Jobs {
    jobs: Mutex<Sender<(DiskJob, u64)>>,
    _scans: Mutex<Sender<()>>,
}

impl DiskJobs for Jobs {
    fn submit(&self, job: (DiskJob, u64)) {
        // Its thread has ended only if it has panicked, which it has said.
        let _ = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
    }
}

/// Reports folders that are there and cannot be used.
///
/// # Errors
/// Each of them.
pub(crate) fn check(plan: &Plan) -> Result<(), Vec<Issue>> {
    let bad = |cache: &Arc<plan::cache::CacheStore>| {
        let disk = cache.disk()?;
        let (told, mend) = folder::check(&disk.settings().path).err()?.told(&disk.settings().path);
        Some(Issue::at(format!("caches/{}/disk/path", cache.settings().name), told).suggest(mend))
    };
    let issues: Vec<_> = plan.caches.iter().filter_map(bad).collect();
    if issues.is_empty() { Ok(()) } else { Err(issues) }
}

/// Makes the folders of a plan.
///
/// # Errors
/// One cannot be made, or not be written to.
pub(crate) fn prepare(plan: &Plan) -> Result<(), String> {
    for cache in &plan.caches {
        let Some(disk) = cache.disk() else { continue };
        let path = &disk.settings().path;
        Folder::make(path).map_err(Unusable::from).and_then(|folder| folder.try_to_write()).map_err(|unusable| {
            let (told, mend) = unusable.told(path);
            format!("cache {}: {told}; {mend}", cache.settings().name)
        })?;
    }
    Ok(())
}

/// Begins to use the folders of a plan that is in force.
pub(crate) fn use_folders(plan: &Plan) {
    for disk in plan.caches.iter().filter_map(|cache| cache.disk()) {
        disk.content().set_max(disk.settings().max);
        disk.content().attach(|| start(disk));
    }
}

/// Has no folder be looked through again: the process ends soon, and what another one writes there is not for it.
pub(crate) fn end_scans() {
    scan::IS_OVER.store(true, Ordering::Relaxed);
}

fn start(disk: &Disk) -> Box<dyn DiskJobs> {
    let (jobs, to_do) = channel();
    let (scans, end) = channel();
    let content = Arc::downgrade(disk.content());
    let other = content.clone();
    let path = disk.settings().path.clone();
    let thread = |name: &str, run: Box<dyn FnOnce() + Send>| {
        let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        if let Err(error) = &spawned {
            telemetry::log::warn("cannot start a thread for the files of a cache", &[("error", error)]);
        }
        spawned.is_ok()
    };
    if !thread("cache-write", Box::new(move || write::run(&content, &path, &to_do))) {
        disk.content().pause(true);
    }
    let path = disk.settings().path.clone();
    if !thread("cache-scan", Box::new(move || scan::run(&other, &path, &end))) {
        // What is stored from now on is written and found all the same.
        disk.content().end_first_scan();
    }
    Box::new(Jobs { jobs: Mutex::new(jobs), _scans: Mutex::new(scans) })
}

#[cfg(test)]
mod tests;
