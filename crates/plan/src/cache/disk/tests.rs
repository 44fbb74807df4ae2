use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use model::cache::CacheDisk;

use super::*;
use crate::cache::entry::testing::{fields, response};
use crate::cache::fresh::{Clock, Freshness};
use crate::cache::{Begun, Body, CacheStore, Entry, Filling, Purge};

/// Jobs that nobody does until a test does.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<Vec<(DiskJob, u64)>>>);

impl DiskJobs for Waiting {
    fn submit(&self, job: (DiskJob, u64)) {
        self.0.lock().unwrap().push(job);
    }
}

struct Rig {
    store: Arc<CacheStore>,
    jobs: Waiting,
    next: u64,
}

impl Rig {
    fn new(memory: u64, max: u64) -> Self {
        let disk = Some(CacheDisk { path: "/cache".to_owned(), max });
        let store = Arc::new(CacheStore::new(model::cache::Cache { name: "a".into(), memory, disk }, None));
        let jobs = Waiting::default();
        store.disk().unwrap().content().set_max(max);
        store.disk().unwrap().content().attach(|| Box::new(jobs.clone()));
        Self { store, jobs, next: 0 }
    }

    fn content(&self) -> &DiskContent {
        self.store.disk().unwrap().content()
    }

    fn hash(&self, number: u64) -> u64 {
        self.store.hash(&key(number), &mut || 7)
    }

    fn begun(&self) -> Begun {
        Begun { at: 100, purges: self.store.purges() }
    }

    fn store(&self, number: u64, bytes: usize) {
        let begun = self.begun();
        self.store.insert(self.hash(number), entry(number, 100, bytes), begun);
    }

    /// Does what a thread would do, and returns the names of files that were removed.
    fn work(&mut self) -> Vec<FileName> {
        let mut gone = Vec::new();
        loop {
            let jobs = std::mem::take(&mut *self.jobs.0.lock().unwrap());
            if jobs.is_empty() {
                return gone;
            }
            for (job, bytes) in jobs {
                match job {
                    DiskJob::Write { hash, entry, begun } => {
                        self.next += 1;
                        let name = FileName::new(&mut || self.next);
                        let place = (name, entry.body.len(), entry.body.len() + 500);
                        if !self.content().written((hash, begun), &entry, place) {
                            gone.push(name);
                        }
                    }
                    DiskJob::Delete(name) => gone.push(name),
                    DiskJob::Flush(then) => then(),
                    _ => {}
                }
                self.content().done(bytes);
            }
        }
    }

    fn is_on_disk(&self, number: u64) -> bool {
        self.content().find((self.hash(number), &key(number)), &fields(&[])).is_some()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("0\0http://a/{number}").into_bytes()
}

fn entry(number: u64, received: u64, bytes: usize) -> Entry {
    let fresh = (Freshness { lifetime: 10, ..Freshness::default() }, Clock { received, age: 0 });
    let mut entry = Entry::new(key(number).into(), &response(200, &[]), Box::default(), fresh);
    entry.tags = [b"t".as_slice().into()].into();
    entry.body = Arc::new(Body::new(vec![vec![b'x'; bytes].into()]));
    entry
}

#[test]
fn what_is_stored_is_written_and_stays_when_memory_drops_it() {
    let mut rig = Rig::new(1 << 20, 100 << 20);
    for number in 0..40 {
        rig.store(number, 60_000);
        rig.work();
    }
    assert_eq!((rig.content().entries(), rig.content().bytes()), (40, 40 * 61_440));
    assert!(rig.store.entries() < 20 && (0..40).all(|number| rig.is_on_disk(number)));
    // A newer one takes the place of the file.
    rig.store(1, 10);
    assert!(!rig.is_on_disk(1), "what is older is never found again");
    assert_eq!(rig.work().len(), 1);
    assert!(rig.is_on_disk(1));
}

#[test]
fn the_bound_on_files_holds_and_the_queue_is_bounded() {
    let mut rig = Rig::new(1 << 20, 1 << 20);
    for number in 0..40 {
        rig.store(number, 60_000);
        rig.work();
    }
    assert!(rig.content().bytes() <= 1 << 20 && rig.content().entries() == 17);
    assert_eq!(rig.content().counts.evictions.load(Ordering::Relaxed), 23);
    for number in 0..1_000 {
        rig.store(number, 60_000);
    }
    let waiting: u64 = rig.jobs.0.lock().unwrap().iter().map(|(_, bytes)| *bytes).sum();
    assert!(waiting <= 32 << 20, "{waiting}");
    assert!(rig.content().counts.dropped.load(Ordering::Relaxed) > 400);
    rig.work();
    rig.content().pause(true);
    rig.store(5_000, 10);
    rig.work();
    assert!(!rig.is_on_disk(5_000));
}

#[test]
fn a_purge_or_a_change_between_voids_what_waits_to_be_written() {
    let mut rig = Rig::new(1 << 20, 1 << 20);
    rig.store(1, 10);
    rig.store(2, 10);
    assert_eq!(rig.store.purge(&Purge::Url(b"http://a/1".to_vec()), false), 1);
    rig.store.invalidate((rig.hash(2), &key(2)), 100);
    assert_eq!(rig.work().len(), 2);
    assert!(!rig.is_on_disk(1) && !rig.is_on_disk(2));
    rig.store(3, 10);
    rig.store(4, 10);
    rig.work();
    assert_eq!(rig.store.purge(&Purge::Tag(b"t".to_vec()), true), 2, "in memory and on disk it is one");
    let found = rig.content().find((rig.hash(3), &key(3)), &fields(&[])).unwrap();
    assert!(found.is_marked_stale());
    assert_eq!(rig.store.purge(&Purge::All, false), 2);
    assert_eq!(rig.work().len(), 2);
    assert_eq!((rig.content().bytes(), rig.content().entries()), (0, 0));
}

#[test]
fn files_that_are_found_are_taken_unless_a_newer_one_is_known_or_they_are_purged() {
    let mut rig = Rig::new(1 << 20, 1 << 20);
    rig.store(1, 10);
    rig.work();
    let (chance, mut next) = (&mut || 7, 1_000);
    let mut adopt = |number, received| {
        next += 1;
        let name = FileName::new(&mut || next);
        rig.content().adopt(&entry(number, received, 0), (name, 10, 500), chance)
    };
    assert!(!adopt(1, 99) && adopt(1, 101) && adopt(2, 50));
    assert_eq!(rig.content().entries(), 2);
    rig.store.purge(&Purge::Prefix(b"http://a/3".to_vec()), false);
    let purged = FileName::new(&mut || 5_000);
    assert!(!rig.content().adopt(&entry(3, 50, 0), (purged, 10, 500), &mut || 7));
    assert!(!rig.content().adopt(&entry(4, 50, 0), (purged, 2 << 20, 2 << 20), &mut || 7), "longer than the disk");
    let held = rig.content().find((rig.hash(2), &key(2)), &fields(&[])).unwrap();
    rig.content().discard(rig.hash(2), &held, true);
    rig.content().discard(rig.hash(2), &held, true);
    assert_eq!(rig.content().counts.bad.load(Ordering::Relaxed), 1);
}

#[test]
fn a_long_body_goes_to_disk_as_it_comes_and_a_part_of_it_leaves_nothing() {
    let rig = Rig::new(1 << 20, 2 << 20);
    let fill = |bytes: usize, expected| {
        let mut entry = entry(1, 100, 0);
        entry.body = Arc::default();
        let mut filling = Filling::new((rig.store.clone(), rig.hash(1), entry), (8 << 20, expected), rig.begun());
        for _ in 0..bytes / 10_000 {
            filling.see(&[b'x'; 10_000]);
        }
        filling
    };
    let told = || {
        let jobs = std::mem::take(&mut *rig.jobs.0.lock().unwrap());
        let mut told = (0, String::new());
        for (job, bytes) in jobs {
            rig.content().done(bytes);
            match job {
                DiskJob::Begin { .. } => told.1.push('b'),
                DiskJob::Append { bytes, .. } => told.0 += bytes.len(),
                DiskJob::Finish(_) => told.1.push('f'),
                DiskJob::Abort { .. } => told.1.push('a'),
                _ => {}
            }
        }
        told
    };
    for expected in [None, Some(1_000_000)] {
        fill(1_000_000, expected).finish();
        assert_eq!(told(), (1_000_000, "bf".to_owned()));
    }
    drop(fill(1_000_000, None));
    assert_eq!(told().1, "ba");
    fill(1_000_000, Some(1_000_001)).finish();
    assert_eq!(told().1, "ba");
    fill(4_000_000, None).finish();
    assert_eq!(told().1, "ba", "longer than the disk");
    assert_eq!((rig.content().bytes(), rig.store.bytes()), (0, 0));
}
