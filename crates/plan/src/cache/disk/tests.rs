use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use model::cache::CacheDisk;

use super::*;
use crate::cache::entry::testing::{fields, response};
use crate::cache::fresh::{Clock, Freshness};
use crate::cache::shard::Kept;
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
                    DiskJob::Write { hash, entry, begun, copy: _copy } => {
                        self.next += 1;
                        let name = FileName::new(&mut || self.next);
                        let place = (name, entry.body.len(), entry.body.len() + 500);
                        if !self.content().insert((hash, begun), &entry, place) {
                            gone.push(name);
                        }
                    }
                    DiskJob::Delete(name) => gone.push(name),
                    DiskJob::Flush(then) => then(true),
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

/// A body that is in a file, of zeros.
struct Zeros;

impl crate::content::Content for Zeros {
    fn read_at(&self, room: &mut [u8], _: u64) -> std::io::Result<usize> {
        room.fill(0);
        Ok(room.len())
    }
}

impl Rig {
    /// Takes a file into the index, and returns what that holds.
    fn take(&mut self, number: u64, received: u64, body_len: u64) -> Arc<DiskEntry> {
        self.next += 1;
        let next = self.next;
        let place = (FileName::new(&mut || next), body_len, body_len + 500);
        assert!(self.content().insert((self.hash(number), self.begun()), &entry(number, received, 0), place));
        self.content().find((self.hash(number), &key(number)), &fields(&[])).unwrap()
    }

    /// What a 304 does to a body that is in a file.
    fn validate(&self, number: u64, received: u64, body_len: u64) -> bool {
        let mut entry = entry(number, received, 0);
        entry.body = Arc::new(Body::in_file(Arc::new(Zeros), body_len));
        self.store.insert(self.hash(number), entry, self.begun())
    }

    fn in_memory(&self, number: u64) -> Option<Arc<Entry>> {
        self.store.find((self.hash(number), &key(number)), &fields(&[]))
    }
}

#[test]
fn what_was_read_comes_to_memory_marked_and_not_before_what_is_newer() {
    let mut rig = Rig::new(1 << 20, 1 << 20);
    let held = rig.take(1, 50, 10);
    let read = Arc::new(entry(1, 50, 10));
    assert_eq!(rig.store.purge(&Purge::All, true), 1);
    rig.store.promote((rig.hash(1), rig.begun()), &read, &held);
    assert!(rig.in_memory(1).unwrap().is_marked_stale(), "marked between the read and this");
    let held = rig.take(2, 50, 10);
    rig.store(2, 20);
    rig.store.promote((rig.hash(2), rig.begun()), &Arc::new(entry(2, 50, 10)), &held);
    assert_eq!(rig.in_memory(2).unwrap().body.len(), 20);
    rig.work();
    assert_eq!(rig.store.purge(&Purge::All, false), 2, "of each two are one");
}

#[test]
fn what_is_read_again_and_again_does_not_outlive_a_purge() {
    let mut rig = Rig::new(1 << 20, 1 << 20);
    for round in 0..2_000 {
        let held = rig.take(1, 50 + round, 10);
        let read = Arc::new(entry(1, 50 + round, 10));
        let (store, hash, begun) = (Arc::clone(&rig.store), rig.hash(1), rig.begun());
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    // As of a request that has found the file before the purge, and counts it as known.
                    let begun = Begun { purges: begun.purges + 1, ..begun };
                    store.promote((hash, begun), &read, &held);
                }
            });
            store.purge(&Purge::All, false);
            is_over.store(true, Ordering::SeqCst);
        });
        assert!(rig.in_memory(1).is_none() && !rig.is_on_disk(1), "round {round}");
    }
}

#[test]
fn a_body_in_a_file_is_copied_once_at_a_time_and_not_too_often() {
    let mut rig = Rig::new(1 << 20, 100 << 20);
    (1..6).for_each(|number| drop(rig.take(number, 50, 5 << 20)));
    assert!(!rig.validate(1, 109, 5 << 20), "it was written lately");
    assert!(rig.validate(1, 110, 5 << 20));
    assert!(!rig.validate(1, 110, 5 << 20), "it waits already");
    assert!(rig.validate(2, 110, 5 << 20));
    assert!(!rig.validate(3, 110, 5 << 20), "two wait");
    assert_eq!(rig.jobs.0.lock().unwrap().len(), 2);
    rig.work();
    assert!(rig.validate(3, 110, 5 << 20));
    assert!(!rig.validate(1, 169, 5 << 20) && rig.validate(1, 170, 5 << 20));
    rig.work();
    assert!(rig.take(6, 50, 10_000).received() == 50 && rig.validate(6, 51, 10_000), "a short one costs little");
}

#[test]
fn room_for_long_bodies_and_a_lower_bound_are_made_by_all_shards() {
    let mut rig = Rig::new(1 << 20, 8 << 20);
    (0..1_000).for_each(|number| drop(rig.take(number, 50, 3_000)));
    let shards = |rig: &Rig| {
        let kept = (0..1_000).filter(|number| rig.is_on_disk(*number));
        kept.map(|number| rig.hash(number) >> 32 & 63).collect::<std::collections::HashSet<_>>().len()
    };
    assert_eq!(shards(&rig), 64);
    assert!((0..100).all(|_| rig.content().take_room(65_536)));
    assert!(shards(&rig) > 40 && rig.content().entries() == 448, "{}", shards(&rig));
    rig.content().set_max(7 << 20);
    assert!(shards(&rig) > 24 && rig.content().entries() == 192, "{}", shards(&rig));
}

#[test]
fn purges_count_for_files_that_are_not_found_yet_and_wait_for_them() {
    let mut rig = Rig::new(1 << 20, 1 << 20);
    let tag = |name: &str| Purge::Tag(name.as_bytes().to_vec());
    for number in 0..500 {
        rig.store.purge(&tag(&format!("other-{number}")), false);
    }
    let is_gone = Arc::new(Mutex::new(false));
    let told = Arc::clone(&is_gone);
    rig.store.when_gone(Box::new(move |all| *told.lock().unwrap() = all));
    rig.work();
    assert!(!*is_gone.lock().unwrap(), "there may be files that are not known");
    rig.take(1, 50, 10);
    rig.store.purge(&tag("t"), false);
    let late = |rig: &Rig, number| {
        let place = (FileName::new(&mut || 9_000 + number), 10, 500);
        rig.content().adopt(&entry(number, 50, 0), place, &mut || 7)
    };
    assert!(!late(&rig, 2), "it is purged");
    rig.content().end_first_scan();
    rig.work();
    assert!(*is_gone.lock().unwrap());
    let mut rig = Rig::new(1 << 20, 1 << 20);
    (0..4_097).for_each(|_| assert_eq!(rig.store.purge(&tag("other"), false), 0));
    assert!(!late(&rig, 1), "not all of them are known");
    rig.work();
}
