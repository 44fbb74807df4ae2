//! Bounds and queues, as they may be written.

use std::time::Duration;

use model::limits;
use model::queue::{Precedence, Queue, Shed, ShedFrom};
use model::snapshot::{Cluster, HashKey};

use crate::support::{LOADER, load, messages};

/// A cluster with this line, and a route to it with that one.
fn with(cluster: &str, route: &str) -> String {
    format!(
        "version: 1\nclusters:\n  a:\n    endpoints: ['127.0.0.1:1', '127.0.0.1:2']\n    {cluster}\nroutes:\n  - cluster: a\n    {route}\n"
    )
}

fn cluster(line: &str) -> Cluster {
    match load(&with(line, "")) {
        Ok(loaded) => (*loaded.snapshot.clusters[0]).clone(),
        Err(diagnostics) => panic!("{diagnostics}"),
    }
}

fn queue(settings: &str) -> Queue {
    cluster(&format!("queue: {{ requests_max: 5{settings} }}")).queue.clone().expect("a queue")
}

/// What is reported about settings of the queue, without the number of the line.
fn told(settings: &str) -> Vec<String> {
    let text = with(&format!("queue: {{ requests_max: 5{settings} }}"), "");
    messages(&text).into_iter().map(|message| message.trim_start_matches("5: ").to_owned()).collect()
}

fn precedence(line: &str) -> Precedence {
    match load(&with("", line)) {
        Ok(loaded) => loaded.snapshot.routes[0].precedence,
        Err(diagnostics) => panic!("{diagnostics}"),
    }
}

#[test]
fn the_smaller_of_two_bounds_counts() {
    let bound = |line: &str| cluster(line).connections_max;
    assert_eq!(bound("connections_max: 3"), Some(3));
    assert_eq!(bound("requests_max: 4"), Some(4));
    assert_eq!(bound("balance: random"), None);
    let text = "version: 1\nclusters:\n  a:\n    connections_max: 9\n    requests_max: 8\n    endpoints: [{ address: '127.0.0.1:1', requests_max: 2, connections_max: 3 }]\n";
    let loaded = load(text).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let cluster = &loaded.snapshot.clusters[0];
    assert_eq!((cluster.connections_max, cluster.endpoints[0].connections_max), (Some(8), Some(2)));
    assert_eq!(
        messages(&with("connections_max: 0", "")),
        ["5: `connections_max` must be a whole number from 1 to 4294967295, not 0"]
    );
}

#[test]
fn a_queue_has_defaults() {
    assert_eq!(queue(""), Queue::new(5, Duration::from_secs(5)));
    let shed = Shed { target: limits::SHED_TARGET, interval: limits::SHED_INTERVAL, from: ShedFrom::Oldest };
    assert_eq!(queue(", shed: {}").shed, Some(shed));
}

#[test]
fn a_queue_may_be_fair_and_shed() {
    assert_eq!(queue(", fair_by: source").fair_by, [HashKey::Source]);
    let keys = queue(", fair_by: [{ header: X-Tenant }, source]").fair_by;
    assert_eq!(keys, [HashKey::Header("x-tenant".into()), HashKey::Source]);
    let shed = queue(", shed: { target: 20ms, interval: 2s, from: newest }").shed;
    let wanted = Shed { target: Duration::from_millis(20), interval: Duration::from_secs(2), from: ShedFrom::Newest };
    assert_eq!(shed, Some(wanted));
}

#[test]
fn a_page_is_whole_with_its_fields() {
    let page = queue(", retry_after: 1s1ms, page: { body: Busy, status: 529 }").page.expect("a page");
    assert_eq!((page.status, page.body), (529, b"Busy".to_vec()));
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(page.fields, [field("content-type", "text/plain; charset=utf-8"), field("retry-after", "2")]);
    let page = queue(", page: { body: '<p>Busy', content_type: text/html }").page.expect("a page");
    assert_eq!((page.status, &page.fields[0]), (503, &field("content-type", "text/html")));
}

#[test]
fn a_page_may_be_a_file_beside_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("busy.html"), "<h1>Busy").expect("a file");
    std::fs::write(folder.path().join("large.txt"), vec![b'x'; 70_000]).expect("a file");
    let load = |file: &str| {
        let text = with(&format!("queue: {{ requests_max: 5, page: {{ file: {file} }} }}"), "");
        let main = folder.path().join("site.yaml");
        std::fs::write(&main, text).expect("a file");
        LOADER.load_file(&main)
    };
    let page = load("busy.html").map(|loaded| loaded.snapshot.clusters[0].queue.as_ref().and_then(|q| q.page.clone()));
    let page = page.unwrap_or_else(|diagnostics| panic!("{diagnostics}")).expect("a page");
    assert_eq!((page.body.as_slice(), page.fields[0].1.as_str()), (&b"<h1>Busy"[..], "text/html; charset=utf-8"));
    let told = |file: &str| load(file).err().map(|all| all.list[0].message.clone()).unwrap_or_default();
    assert!(told("large.txt").ends_with("large.txt`: it is larger than 65536 bytes"), "{}", told("large.txt"));
    assert!(told("none.html").ends_with("none.html`: there is no such file"), "{}", told("none.html"));
}

#[test]
fn mistakes_in_a_queue_are_told_with_what_to_write() {
    assert_eq!(told(", fair_by: user"), ["`fair_by` must be `source`, `path` or `uri`, not the text `user`"]);
    assert_eq!(told(", fair_by: [{ header: 'a b' }]"), ["`a b` is not the name of a header field"]);
    assert_eq!(told(", shed: { from: middle }"), ["`from` must be `oldest` or `newest`, not the text `middle`"]);
    assert_eq!(told(", page: {}"), ["`queue.page` of cluster `a` needs one of `file` or `body`"]);
    assert_eq!(
        told(", page: { file: a, body: b }"),
        [
            "cannot read `/nowhere/a`: there is no such file",
            "`file` and `body` exclude each other in `queue.page` of cluster `a` (keep one of them)"
        ]
    );
    assert_eq!(told(", page: { body: b, status: 200 }"), ["`status` must be a whole number from 400 to 599, not 200"]);
    assert_eq!(
        told(", page: { body: b, content_type: \"a\\nb\" }"),
        ["the value of a header field cannot contain control characters"]
    );
    let large = format!(", page: {{ body: {} }}", "x".repeat(70_000));
    assert_eq!(told(&large), ["the page has 70000 bytes (at most 64 KiB)"]);
}

#[test]
fn a_route_has_a_turn() {
    assert_eq!(precedence(""), Precedence::default());
    assert_eq!(precedence("queue: { class: -7, offset: -500ms }"), Precedence { class: -7, offset_ms: -500 });
    assert_eq!(precedence("queue: { offset: 1m30s }"), Precedence { class: 0, offset_ms: 90_000 });
    let told = |line: &str| messages(&with("", line));
    assert_eq!(told("queue: { class: 101 }"), ["8: `class` must be a whole number from -100 to 100, not 101"]);
    assert_eq!(told("queue: { offset: -2h }"), ["8: `offset`: `-2h` is more than an hour"]);
    assert_eq!(
        told("queue: { offset: soon }"),
        ["8: `offset`: `soon` is not a time offset (write it like `2s` or `-500ms`)"]
    );
    assert_eq!(
        told("queue: { offset: -3 }"),
        ["8: `offset` must be a time such as `2s` or `-500ms`, not the number -3 (did you mean `-3s`?)"]
    );
    let text = "version: 1\nroutes:\n  - respond: {}\n    queue: { class: 1 }\n";
    assert_eq!(
        messages(text),
        ["4: `queue` has no effect for a route that forwards to no cluster (leave it out, or name a cluster)"]
    );
}

#[test]
fn a_queue_may_leave_backups_to_those_that_would_wait() {
    assert!(!queue("").use_backups);
    assert!(queue(", use_backups: true").use_backups);
    assert_eq!(told(", use_backups: 1"), ["`use_backups` must be `true` or `false`, not the number 1"]);
}

#[test]
fn so_many_may_wait_for_one_endpoint_alone() {
    let with = |max: &str| {
        format!(
            "version: 1\nclusters:\n  a:\n    endpoints: [{{ address: '127.0.0.1:1', queue_max: {max} }}]\n    queue: {{ requests_max: 5 }}\n"
        )
    };
    let loaded = load(&with("3")).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    assert_eq!(loaded.snapshot.clusters[0].endpoints[0].queue_max.map(|max| max.get()), Some(3));
    assert_eq!(messages(&with("0")), ["4: `queue_max` must be a whole number from 1 to 4294967295, not 0"]);
}

#[test]
fn rules_for_retries_say_whether_one_endpoint_is_asked_twice_and_when_the_last_attempt_begins() {
    let retry = |settings: &str| cluster(&format!("retry: {{ {settings} }}")).retry.clone();
    let by_default = retry("");
    assert_eq!((by_default.same_endpoint, by_default.time_max), (false, None));
    let written = retry("same_endpoint: true, time_max: 10s");
    assert_eq!((written.same_endpoint, written.time_max), (true, Some(Duration::from_secs(10))));
    assert_eq!(
        messages(&with("retry: { time_max: soon }", "")),
        ["5: `time_max`: `soon` is not a duration (write it like `250ms`, `5s` or `1m30s`)"]
    );
}
