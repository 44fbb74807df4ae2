use std::sync::Arc;
use std::time::Duration;

use model::filter::FilterUse;
use model::{Fault, FieldName};
use serde_json::{Value, json};

use super::super::testing::{Beside, World, request};
use super::super::{Chain, Extent, Flow, Need, Notes, ResponseSource, ResponseView, Stage};
use super::*;
use crate::cache::entry::testing::response;
use crate::cache::{CacheStore, DiskContent, DiskJob, DiskJobs, DiskRead, FileName};
use crate::map::Maps;

fn chain_with(settings: Value, caches: &[Arc<CacheStore>]) -> Result<Chain, Vec<model::Issue>> {
    let filter = FilterUse { name: "cache".into(), settings, when: None, calls: Vec::new() };
    Chain::compile_among(&[filter], None, (&[], Maps::Known(&[])), (caches, 0))
}

fn chain(settings: Value) -> Chain {
    let cache = model::cache::Cache { name: "pages".into(), memory: 1 << 20, disk: None };
    chain_with(settings, &[Arc::new(CacheStore::new(cache, None))]).unwrap()
}

fn beside_at(seconds: u64) -> Beside {
    let mut beside = Beside::new();
    beside.wall_clock = Box::new(move || Duration::from_secs(seconds));
    beside
}

/// What becomes of a request, and of the endpoint's response if it goes there.
fn exchange(chain: &Chain, at: u64, fields: &[(&str, &str)], (status, list): (u16, &[(&str, &str)])) -> Flow {
    let (world, mut beside) = (World::new(), beside_at(at));
    let mut head = request("GET", "/", fields);
    let flow = chain.on_request(&mut head, &mut beside.turn(&world.facts()));
    if flow != Flow::Continue {
        return flow;
    }
    let view = world.view(&head);
    let mut response = response(status, list);
    let flow = chain.answer(&mut 0, (&response, &view), &mut beside.turn(&world.facts()));
    if flow == Flow::Continue {
        let extent = Extent::Known(4);
        let (stages, _) = chain.begin_response_body(&mut response, &view, extent, &mut beside.turn(&world.facts()));
        for stage in stages {
            let Stage::Tap(mut tap) = stage else { panic!("a tap") };
            tap.see(b"body");
            tap.end(None);
        }
    }
    flow
}

#[test]
fn slices_have_bounds_and_fit_into_their_cache() {
    let issue = |slice: &str| {
        let cache = model::cache::Cache { name: "pages".into(), memory: 1 << 20, disk: None };
        let made = chain_with(json!({ "store": "pages", "slice": slice }), &[Arc::new(CacheStore::new(cache, None))]);
        made.err().map(|issues| issues[0].clone())
    };
    assert_eq!([issue("64KiB"), issue("256KiB")], [None, None]);
    for size in ["65535", "0", "64MB", "65MiB"].map(|size| (size, issue(size).unwrap())) {
        let is_within = size.0 == "64MB";
        assert_eq!(size.1.message.contains("is not from 64KiB to 64MiB"), !is_within, "{size:?}");
        assert!(size.1.path.ends_with("slice") && size.1.suggestion.is_some(), "{size:?}");
    }
    let large = issue("262145").unwrap();
    assert!(large.message.contains("more than a quarter of the 1048576 bytes of cache `pages`"), "{large:?}");
    assert_eq!(large.suggestion.as_deref(), Some("lower it, or raise `memory` of the cache"));
}

const FRESH: (u16, &[(&str, &str)]) = (200, &[("cache-control", "max-age=10"), ("etag", "\"1\"")]);

#[test]
fn a_response_is_served_until_it_is_stale_and_then_validated() {
    let chain = chain(json!({ "store": "pages" }));
    assert_eq!(exchange(&chain, 100, &[], FRESH), Flow::Continue);
    assert!(matches!(exchange(&chain, 109, &[], FRESH), Flow::Stored(served) if served.body() == Some((0, 4))));
    // RFC 9111 section 4.3.4.
    let confirmed = exchange(&chain, 110, &[], (304, &[("cache-control", "max-age=10"), ("etag", "W/\"1\"")]));
    assert!(matches!(confirmed, Flow::Stored(served) if served.body() == Some((0, 4))));
    assert!(matches!(exchange(&chain, 115, &[], FRESH), Flow::Stored(_)));
    // Of another response than the one that is stored.
    exchange(&chain, 120, &[], (304, &[("etag", "\"2\"")]));
    assert_eq!(exchange(&chain, 120, &[], FRESH), Flow::Continue);
}

#[test]
fn a_304_that_makes_the_response_private_ends_its_storage() {
    let chain = chain(json!({ "store": "pages" }));
    exchange(&chain, 100, &[], FRESH);
    assert!(matches!(exchange(&chain, 110, &[], (304, &[("cache-control", "private")])), Flow::Stored(_)));
    assert_eq!(exchange(&chain, 110, &[], FRESH), Flow::Continue);
}

/// Whether a response is stored, where these filters have left notes before the cache and behind it.
fn is_stored_with(before: fn(&mut Notes), behind: fn(&mut Notes)) -> bool {
    let chain = chain(json!({ "store": "pages" }));
    let (world, mut beside) = (World::new(), beside_at(100));
    before(&mut beside.notes);
    let mut head = request("GET", "/", &[]);
    assert_eq!(chain.on_request(&mut head, &mut beside.turn(&world.facts())), Flow::Continue);
    behind(&mut beside.notes);
    let view = world.view(&head);
    let mut response = response(200, FRESH.1);
    chain.answer(&mut 0, (&response, &view), &mut beside.turn(&world.facts()));
    let extent = Extent::Known(4);
    let (stages, _) = chain.begin_response_body(&mut response, &view, extent, &mut beside.turn(&world.facts()));
    !stages.is_empty()
}

fn note_claims(notes: &mut Notes) {
    notes.set_claims(Arc::new(crate::jose::Claims::from_json(b"{}").unwrap()));
}

#[test]
fn a_verified_client_is_as_good_as_authorization() {
    // RFC 9111 section 3.5.
    for verify in [|notes: &mut Notes| notes.set_user(b"ann"), Notes::set_verified, note_claims] {
        assert!(!is_stored_with(verify, |_| {}));
    }
    assert!(is_stored_with(|_| {}, |_| {}));
    assert!(is_stored_with(|notes| (notes.set_verified(), notes.leave_route()).1, |_| {}));
}

#[test]
fn a_client_that_is_refused_does_not_remove_what_is_stored_for_all() {
    let private: &[(&str, &str)] = &[("cache-control", "private")];
    for (fields, status, stays) in [
        (&[("authorization", "x")][..], 200, true),
        (&[("cookie", "a=b")], 200, true),
        (&[], 401, true),
        (&[], 403, true),
        (&[], 429, true),
        (&[], 404, false),
        (&[], 410, false),
        (&[], 200, false),
    ] {
        let chain = chain(json!({ "store": "pages" }));
        exchange(&chain, 100, &[], FRESH);
        exchange(&chain, 110, fields, (status, private));
        let again = exchange(&chain, 110, &[], (304, &[("etag", "\"1\"")]));
        assert_eq!(matches!(again, Flow::Stored(_)), stays, "{fields:?} {status}");
    }
}

#[test]
fn a_second_request_waits_for_the_first_and_not_for_ever() {
    let chain = chain(json!({ "store": "pages", "lock": "1s" }));
    let (world, mut first, mut second) = (World::new(), beside_at(100), beside_at(100));
    let mut head = request("GET", "/", &[]);
    assert_eq!(chain.on_request(&mut head.clone(), &mut first.turn(&world.facts())), Flow::Continue);
    let waits = chain.on_request(&mut head, &mut second.turn(&world.facts()));
    let Flow::Need(Need::Flight(awaited)) = waits else { panic!("{waits:?}") };
    let over = |second: &mut Beside, head: &mut model::RequestHead| {
        chain.resume(&mut 0, super::super::Found::Now, head, &mut second.turn(&world.facts()))
    };
    assert!(matches!(over(&mut second, &mut head), Flow::Need(_)), "the first is not over");
    second.now = awaited.until;
    assert_eq!(over(&mut second, &mut head), Flow::Continue);
    let mut third = beside_at(100);
    first.notes.clear();
    assert_eq!(chain.on_request(&mut request("GET", "/", &[]), &mut third.turn(&world.facts())), Flow::Continue);
}

#[test]
fn a_request_that_finds_nothing_after_two_waits_fetches_beside_the_others() {
    let chain = chain(json!({ "store": "pages", "lock": "60s" }));
    let (world, mut first, mut second) = (World::new(), beside_at(100), beside_at(100));
    let mut head = request("GET", "/", &[]);
    assert_eq!(chain.on_request(&mut head.clone(), &mut first.turn(&world.facts())), Flow::Continue);
    assert!(matches!(chain.on_request(&mut head, &mut second.turn(&world.facts())), Flow::Need(Need::Flight(_))));
    let mut next = |head: &mut model::RequestHead| {
        // Its pilot goes without a response, and another one comes before those who waited.
        first.notes.clear();
        assert_eq!(chain.on_request(&mut head.clone(), &mut first.turn(&world.facts())), Flow::Continue);
        chain.resume(&mut 0, super::super::Found::Now, head, &mut second.turn(&world.facts()))
    };
    assert!(matches!(next(&mut head), Flow::Need(Need::Flight(_))));
    assert_eq!(next(&mut head), Flow::Continue);
}

#[test]
fn no_request_waits_for_a_key_whose_responses_end_with_the_connection() {
    let chain = chain(json!({ "store": "pages" }));
    let (world, mut first) = (World::new(), beside_at(100));
    let head = request("GET", "/", &[]);
    let ask = |beside: &mut Beside| chain.on_request(&mut head.clone(), &mut beside.turn(&world.facts()));
    assert_eq!(ask(&mut first), Flow::Continue);
    assert!(matches!(ask(&mut beside_at(100)), Flow::Need(_)));
    // As for a request with content, which says nothing about those of others.
    first.notes.store_nothing();
    let (mut second, mut third) = (beside_at(100), beside_at(101));
    assert_eq!(ask(&mut second), Flow::Continue);
    assert!(matches!(ask(&mut third), Flow::Need(_)));
    second.notes.store_none();
    let (mut fourth, mut fifth) = (beside_at(101), beside_at(101));
    assert_eq!([ask(&mut fourth), ask(&mut fifth)], [Flow::Continue, Flow::Continue]);
}

#[test]
fn an_error_is_hidden_by_a_stale_response_only_within_its_time() {
    let chain = chain(json!({ "store": "pages", "stale_if_error": "60s" }));
    exchange(&chain, 100, &[], FRESH);
    assert!(matches!(exchange(&chain, 170, &[], (503, &[])), Flow::Stored(_)));
    assert_eq!(exchange(&chain, 170, &[], (501, &[("cache-control", "no-store")])), Flow::Continue);
    let (world, mut beside) = (World::new(), beside_at(165));
    let mut head = request("GET", "/", &[]);
    chain.on_request(&mut head, &mut beside.turn(&world.facts()));
    let view = ResponseView { source: ResponseSource::Local(Some(Fault::Refused)), ..world.view(&head) };
    let refused = chain.answer(&mut 0, (&response(503, &[]), &view), &mut beside.turn(&world.facts()));
    assert_eq!(refused, Flow::Continue, "a refusal of a filter stands");
    assert_eq!(exchange(&chain, 171, &[], (503, &[])), Flow::Continue);
}

#[test]
fn a_rehearsal_and_requests_for_more_than_a_url_pass_by() {
    let chain = chain(json!({ "store": "pages", "status_field": true }));
    exchange(&chain, 100, &[], FRESH);
    for fields in [
        [("if-match", "\"1\"")],
        [("if-match", "0")],
        [("content-length", "3")],
        [("transfer-encoding", "chunked")],
        [("upgrade", "websocket")],
    ] {
        assert_eq!(exchange(&chain, 101, &fields, (500, &[])), Flow::Continue, "{fields:?}");
    }
    let (world, mut beside) = (World::new(), beside_at(101));
    beside.is_rehearsal = true;
    assert_eq!(chain.on_request(&mut request("GET", "/", &[]), &mut beside.turn(&world.facts())), Flow::Continue);
    assert!(matches!(exchange(&chain, 101, &[], FRESH), Flow::Stored(_)));
}

#[test]
fn settings_that_cannot_be_are_issues() {
    for (settings, path) in [
        (json!({ "store": "page" }), "0/cache/store"),
        (json!({ "store": "pages", "ttl": { "ok": "1s" } }), "0/cache/ttl/ok"),
        (json!({ "store": "pages", "override_ttl": { "600": "1s" } }), "0/cache/override_ttl/600"),
        (json!({ "store": "pages", "tags": "a b" }), "0/cache/tags"),
        (json!({ "store": "pages", "min_uses": 0 }), "0/cache/min_uses"),
        (json!({ "store": "pages", "key": { "ignore": ["a"], "only": ["b"] } }), "0/cache/key/ignore"),
        (json!({ "store": "pages", "key": { "add": [{ "expression": "1 +" }] } }), "0/cache/key/add/0/expression"),
        (json!({ "store": "pages", "bypass": { "expression": "1" } }), "0/cache/bypass/expression"),
    ] {
        let cache = model::cache::Cache { name: "pages".into(), memory: 1 << 20, disk: None };
        let issues = chain_with(settings, &[Arc::new(CacheStore::new(cache, None))]).err().unwrap();
        assert_eq!(issues[0].path, path);
    }
    assert!((ENTRY.check)(&json!({ "store": "anything" })).is_ok(), "caches are not known there");
    let _ = FieldName::new("a");
}

/// Does what is written at once, in no file.
struct Written(Arc<DiskContent>);

impl DiskJobs for Written {
    fn submit(&self, (job, bytes): (DiskJob, u64)) {
        if let DiskJob::Write { hash, entry, begun, .. } = job {
            let place = (FileName::new(&mut || 1), entry.body.len(), 500);
            assert!(self.0.insert((hash, begun), &entry, place));
        }
        self.0.done(bytes);
    }
}

#[test]
fn a_disk_that_fails_is_asked_once_by_a_request() {
    let disk = Some(model::cache::CacheDisk { path: "/cache".to_owned(), max: 1 << 30 });
    // Nothing fits into memory.
    let cache = model::cache::Cache { name: "pages".into(), memory: 600, disk };
    let store = Arc::new(CacheStore::new(cache, None));
    let content = Arc::clone(store.disk().unwrap().content());
    content.set_max(1 << 30);
    content.attach(|| Box::new(Written(Arc::clone(&content))));
    let chain = chain_with(json!({ "store": "pages" }), &[store]).unwrap();
    assert_eq!(exchange(&chain, 100, &[], FRESH), Flow::Continue);
    for (read, asks_again) in [(DiskRead::Gone, true), (DiskRead::Failed, false)] {
        let (world, mut beside) = (World::new(), beside_at(101));
        let mut head = request("GET", "/", &[]);
        let asks = |flow: Flow| matches!(flow, Flow::Need(Need::Cached(_)));
        assert!(asks(chain.on_request(&mut head, &mut beside.turn(&world.facts()))));
        let found = super::super::Found::Cached(read);
        assert_eq!(asks(chain.resume(&mut 0, found, &mut head, &mut beside.turn(&world.facts()))), asks_again);
    }
}

#[test]
fn keys_that_are_made_of_the_same_have_the_same_settings() {
    let told = |settings: Value| super::settings::canonical_of(settings);
    assert_eq!(told(json!({ "ignore": ["a", "b"] })), told(json!({ "ignore": ["b", "a", "a"] })));
    assert_ne!(told(json!({ "ignore": ["a"] })), told(json!({})));
    assert_ne!(told(json!({ "only": [] })), told(json!({})));
    assert_ne!(
        told(json!({ "add": [{ "expression": "a" }, { "expression": "b" }] })),
        told(json!({ "add": [{ "expression": "b" }, { "expression": "a" }] }))
    );
}
