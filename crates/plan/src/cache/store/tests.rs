use std::time::{Duration, Instant};

use super::*;
use crate::cache::Filling;
use crate::cache::entry::testing::{fields, response};
use crate::cache::fresh::{Clock, Freshness};
use crate::cache::vary;

fn store(memory: u64) -> Arc<CacheStore> {
    Arc::new(CacheStore::new(model::cache::Cache { name: "a".into(), memory, disk: None }, None))
}

fn key(number: u64) -> Vec<u8> {
    format!("0\0http://a/{number}").into_bytes()
}

fn entry(number: u64, tag: &str) -> Entry {
    let fresh = (Freshness { lifetime: 10, ..Freshness::default() }, Clock { received: 100, age: 0 });
    let mut entry = Entry::new(key(number).into(), &response(200, &[]), Box::default(), fresh);
    entry.tags = [tag.as_bytes().into()].into();
    entry
}

fn fill(store: &Arc<CacheStore>, number: u64, bytes: usize, expected: Option<u64>) -> Filling {
    let hash = store.hash(&key(number), &mut || 7);
    let begun = Begun { at: 100, purges: store.purges() };
    let mut filling = Filling::new((Arc::clone(store), hash, entry(number, "t")), (1 << 20, expected), begun);
    filling.see(&vec![b'x'; bytes]);
    filling
}

fn found(store: &CacheStore, number: u64) -> Option<u64> {
    let hash = store.hash(&key(number), &mut || 7);
    store.find((hash, &key(number)), &fields(&[])).map(|entry| entry.body.len())
}

#[test]
fn a_body_is_stored_when_it_is_whole_and_a_part_leaves_nothing() {
    let store = store(1 << 20);
    fill(&store, 1, 100_000, Some(100_000)).finish();
    fill(&store, 2, 100_000, None).finish();
    for (number, expected) in [(3, Some(100_001)), (4, Some(99_999))] {
        fill(&store, number, 100_000, expected).finish();
    }
    drop(fill(&store, 5, 100, None));
    assert_eq!([1, 2, 3, 4, 5].map(|number| found(&store, number)), [Some(100_000), Some(100_000), None, None, None]);
    assert!(store.bytes() > 200_000 && store.bytes() < 210_000, "{}", store.bytes());
    store.purge(&Purge::All, false);
    assert_eq!((store.bytes(), store.entries()), (0, 0));
}

#[test]
fn the_bound_holds_and_what_is_asked_for_again_survives_a_scan() {
    let store = store(1 << 20);
    for number in 0..20 {
        fill(&store, number, 5_000, None).finish();
        assert_eq!(found(&store, number), Some(5_000));
    }
    for number in 100..2_000 {
        fill(&store, number, 5_000, None).finish();
        assert!(store.bytes() <= 1 << 20);
    }
    let kept = (0..20).filter(|number| found(&store, *number).is_some()).count();
    assert!(kept >= 12, "{kept} of 20 are left");
    assert!(store.evictions() > 1_500);
    let smaller = CacheStore::new(model::cache::Cache { name: "a".into(), memory: 300_000, disk: None }, Some(&store));
    assert!(smaller.entries() > 100, "what it holds is taken over");
    smaller.insert(smaller.hash(&key(1), &mut || 7), entry(1, "t"), Begun { at: 100, purges: smaller.purges() });
    assert!(smaller.bytes() <= 300_000);
}

#[test]
fn responses_on_their_way_take_a_quarter_at_most() {
    let store = store(1 << 20);
    let many: Vec<_> = (0..10).map(|number| fill(&store, number, 60_000, None)).collect();
    assert_eq!(store.bytes(), 4 * 65_536);
    for mut filling in many {
        filling.finish();
    }
    assert_eq!(store.entries(), 4);
}

#[test]
fn what_is_purged_or_changed_while_it_is_fetched_is_not_stored() {
    let store = store(1 << 20);
    let hash = store.hash(&key(1), &mut || 7);
    let mut before = fill(&store, 1, 10, None);
    store.purge(&Purge::Tag(b"t".to_vec()), true);
    store.purge(&Purge::Tag(b"none".to_vec()), true);
    before.finish();
    assert_eq!(found(&store, 1), None);
    let mut before = fill(&store, 1, 10, None);
    store.invalidate((hash, &key(1)), 100);
    before.finish();
    assert_eq!((found(&store, 1), store.bytes()), (None, 0));
}

#[test]
fn a_purge_of_others_leaves_what_is_fetched_unless_there_are_too_many() {
    let store = store(1 << 20);
    let others =
        [Purge::Tag(b"none".to_vec()), Purge::Url(b"http://a/2".to_vec()), Purge::Prefix(b"http://b".to_vec())];
    store.purge(&Purge::All, false);
    let mut before = fill(&store, 1, 10, None);
    for other in others.iter().cycle().take(64) {
        store.purge(other, false);
    }
    before.finish();
    assert_eq!(found(&store, 1), Some(10));
    let mut before = fill(&store, 2, 10, None);
    for other in others.iter().cycle().take(65) {
        store.purge(other, false);
    }
    before.finish();
    assert_eq!(found(&store, 2), None, "the first of them is forgotten");
    for purge in [Purge::All, Purge::Url(b"http://a/3".to_vec()), Purge::Prefix(b"http://a/".to_vec())] {
        let mut before = fill(&store, 3, 10, None);
        store.purge(&purge, false);
        before.finish();
        assert_eq!(found(&store, 3), None, "{purge:?}");
    }
}

#[test]
fn an_invalidation_whose_place_is_taken_still_counts() {
    let store = store(1 << 20);
    let hash = store.hash(&key(1), &mut || 7);
    let mut before = fill(&store, 1, 10, None);
    store.invalidate((hash, &key(1)), 100);
    store.invalidate((hash ^ 1 << 60, b"other"), 101);
    before.finish();
    assert_eq!(found(&store, 1), None);
}

#[test]
fn variants_of_a_key_stand_beside_each_other_and_are_bounded() {
    let store = store(1 << 20);
    let hash = store.hash(&key(1), &mut || 7);
    let add = |lang: &str| {
        let head = response(200, &[("vary", "x-lang")]);
        let variant = vary::of(&head.fields, &fields(&[("x-lang", lang)])).unwrap();
        let fresh = (Freshness { lifetime: 10, ..Freshness::default() }, Clock { received: 100, age: 0 });
        assert!(store.insert(
            hash,
            Entry::new(key(1).into(), &head, variant, fresh),
            Begun { at: 101, purges: store.purges() }
        ));
    };
    let has = |lang: &str| store.find((hash, &key(1)), &fields(&[("x-lang", lang)])).is_some();
    add("de");
    add("en");
    add("de");
    assert_eq!((has("de"), has("en"), has("fr"), store.entries()), (true, true, false, 2));
    (0..100).for_each(|number| add(&format!("l{number}")));
    assert!(store.entries() <= 32 && has("l99") && !has("de"));
    store.invalidate((hash, &key(1)), 100);
    assert_eq!((store.entries(), store.bytes()), (0, 0));
}

#[test]
fn purges_go_by_url_prefix_and_tag() {
    let store = store(1 << 20);
    for (number, tag) in [(1, "a"), (12, "b"), (2, "a")] {
        let hash = store.hash(&key(number), &mut || 7);
        store.insert(hash, entry(number, tag), Begun { at: 100, purges: store.purges() });
    }
    assert_eq!(store.purge(&Purge::Url(b"http://a/1".to_vec()), true), 1);
    let hash = store.hash(&key(1), &mut || 7);
    assert!(store.find((hash, &key(1)), &fields(&[])).unwrap().fresh_for(100) < 0);
    assert_eq!(store.purge(&Purge::Prefix(b"http://a/1".to_vec()), false), 2);
    assert_eq!(store.purge(&Purge::Tag(b"a".to_vec()), false), 1);
    assert_eq!((store.entries(), store.purged()), (0, 4));
}

#[test]
fn many_threads_keep_the_count_of_bytes() {
    let store = store(1 << 20);
    let until = Instant::now() + Duration::from_millis(300);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                let mut number = thread;
                while Instant::now() < until {
                    number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let one = number >> 33 & 255;
                    fill(store, one, 4_000, None).finish();
                    found(store, one);
                    match number >> 60 {
                        0 => drop(store.purge(&Purge::Url(format!("http://a/{one}").into_bytes()), false)),
                        1 => store.invalidate((store.hash(&key(one), &mut || 7), &key(one)), 0),
                        _ => {}
                    }
                }
            });
        }
    });
    store.purge(&Purge::All, false);
    assert_eq!((store.bytes(), store.entries()), (0, 0));
}
