//! Settings that do nothing are reported, and words of other products are understood.

use std::path::Path;

use config::Loader;
use model::filter::FilterSpec;
use serde_json::json;

use crate::support::{LOADER, load, messages};

/// The warnings of a configuration that is valid: line, message, mend.
fn warnings(lines: &str) -> Vec<String> {
    let text = format!("version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\n{lines}");
    let loaded = load(&text).unwrap_or_else(|error| panic!("{error}"));
    let line = |warning: &config::Diagnostic| match &warning.suggestion {
        Some(mend) => format!("{}: {} ({mend})", warning.line, warning.message),
        None => format!("{}: {}", warning.line, warning.message),
    };
    assert!(loaded.warnings().iter().all(|warning| warning.is_warning));
    loaded.warnings().iter().map(line).collect()
}

#[test]
fn settings_that_do_nothing_are_warned_of_where_they_stand() {
    let told = warnings(
        "routes:
  - { match: { path: { exact: /a } }, cluster: a, queue: { class: 1 }, hedge: {} }
  - { match: { path: { exact: /b } }, cluster: b, retry: { on: [reset, 302-304] } }
  - { match: { path: { exact: /c } }, cluster: c }
  - { match: { path: { exact: /d } }, cluster: d }
clusters:
  a: { endpoints: ['127.0.0.1:1'], hedge: {}, passive_health: {}, slow_start: 5s }
  b:
    endpoints: ['127.0.0.1:1', { address: '127.0.0.1:2', agent_port: 5 }]
    queue: { requests_max: 10 }
    circuit_breaker: { pending_max: 20 }
    balance: { hash: { on: source } }
    slow_start: 5s
  c:
    endpoints: ['127.0.0.1:1', '127.0.0.1:2']
    passive_health: { ejected_max: 30% }
    retry: { on: [200] }
    persistence: { source: {}, when_full: wait }
  d: { endpoints: ['127.0.0.1:1', '127.0.0.1:2'], queue: { requests_max: 1 }, connections_max: 1 }
  e: { endpoints: ['127.0.0.1:1'] }
",
    );
    assert_eq!(
        told,
        [
            "4: no request of this route waits: its cluster has no queue (give the cluster `a` a `queue`)",
            "4: with one endpoint there is no other to send a request to",
            "5: 302 is not a failure: a good response would be discarded and requested again (list statuses from 400 on)",
            "9: with one endpoint there is no other to send a request to",
            "9: the only endpoint is never ejected",
            "9: the only endpoint gets all requests from the start",
            "11: no agent is queried there (give the cluster an `agent_check`)",
            "12: no request ever waits in this queue: neither the cluster nor an endpoint has a limit (give the cluster or its endpoints a `connections_max`)",
            "13: the queue holds 10 at most, so 20 never wait",
            "15: slow start does not apply to hash balancers: keys would keep moving",
            "18: no endpoint is ever ejected: 30% of 2 endpoints is none (write 50% or more)",
            "19: 200 is not a failure: a good response would be discarded and requested again (list statuses from 400 on)",
            "20: no request waits here: the cluster has no queue (give the cluster a `queue`)",
            "22: no route and no listener uses the cluster `e`",
        ]
    );
}

#[test]
fn what_has_a_use_is_not_warned_of() {
    let told = warnings(
        "routes:
  - { match: { path: { exact: /b } }, clusters: [{ cluster: b, weight: 1 }] }
  - { cluster: a, queue: { class: -1 }, retry: { on: [connect_failure, 503, 500-504] } }
clusters:
  a:
    endpoints: ['127.0.0.1:1', { address: '127.0.0.1:2', agent_port: 5 }]
    agent_check: {}
    adaptive_concurrency: {}
    queue: { requests_max: 100 }
    circuit_breaker: { pending_max: 50 }
    hedge: {}
    passive_health: {}
    slow_start: 5s
    persistence: { source: {} }
  b: { endpoints: [{ address: '127.0.0.1:1', connections_max: 1 }, '127.0.0.1:2'], queue: { requests_max: 1 } }
",
    );
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn what_waits_for_nothing_and_retries_that_have_nowhere_to_go_are_warned_of() {
    let told = warnings(
        "routes:
  - { match: { path: { exact: /a } }, cluster: a }
  - { match: { path: { exact: /b } }, cluster: b }
  - { match: { path: { exact: /c } }, cluster: c }
clusters:
  a: { endpoints: ['127.0.0.1:1'], retry: {} }
  b:
    endpoints: [{ address: '127.0.0.1:1', connections_max: 1, queue_max: 2 }, '127.0.0.1:2']
    queue: { requests_max: 3, use_backups: true }
  c: { endpoints: ['127.0.0.1:1'], retry: { same_endpoint: true } }
",
    );
    assert_eq!(
        told,
        [
            "8: with one endpoint there is no other to try (add `same_endpoint: true` to try it again)",
            "10: nothing waits for this endpoint alone (give the cluster a `queue`, and a `persistence` whose sessions wait)",
            "11: no endpoint of this cluster is a backup (give an endpoint `backup: true`)",
        ]
    );
    let told = warnings(
        "routes: [{ cluster: a }]
clusters:
  a:
    endpoints: [{ address: '127.0.0.1:1', connections_max: 1, queue_max: 2 }, { address: '127.0.0.1:2', backup: true }]
    queue: { requests_max: 3, use_backups: true }
    persistence: { source: {} }
    retry: {}
",
    );
    assert!(told.is_empty(), "{told:?}");
}

/// What is reported about a file that begins with its version.
fn told(lines: &str) -> Vec<String> {
    messages(&format!("version: 1\n{lines}"))
}

#[test]
fn words_of_other_products_are_understood() {
    let told = told(
        "upstreams: {}
frontends: {}
clusters:
  a: { endpoints: [{ address: '127.0.0.1:1', maxconn: 5, max_connections: 5 }], max_requests: 3, sticky: {}, slowstart: 5s }
  b: { servers: [], endpoints: ['127.0.0.1:1'], circuit_breaker: { requests_max: 5, max_requests: 1, max-retries: 2, max_pending_requests: 3 } }
  c: { endpoints: ['127.0.0.1:1'], passive_health: { max_fails: 3, fail_timeout: 10s }, balancer: random }
  d: { endpoints: ['127.0.0.1:1'], queue: { max_requests: 1 } }
",
    );
    assert_eq!(
        told,
        [
            "2: unknown key `upstreams` in the file (write a cluster: `clusters: { NAME: { endpoints: […] } }`; see docs/guides/coming-from-nginx.md)",
            "3: unknown key `frontends` in the file (did you mean `listeners`? See docs/guides/coming-from-haproxy.md)",
            "5: unknown key `maxconn` in `endpoints` of cluster `a` (did you mean `connections_max`? See docs/guides/coming-from-haproxy.md)",
            "5: unknown key `max_connections` in `endpoints` of cluster `a` (did you mean `connections_max`? See docs/guides/coming-from-envoy.md)",
            "5: unknown key `max_requests` in cluster `a` (did you mean `requests_max`? See docs/guides/coming-from-envoy.md)",
            "5: unknown key `sticky` in cluster `a` (did you mean `persistence`? See docs/guides/coming-from-nginx.md)",
            "5: unknown key `slowstart` in cluster `a` (did you mean `slow_start`? See docs/guides/coming-from-haproxy.md)",
            "6: unknown key `servers` in cluster `b` (here it is `endpoints`, which is already set: leave this out; see docs/guides/coming-from-traefik.md)",
            "6: unknown key `max_requests` in `circuit_breaker` of cluster `b` (here it is `requests_max`, which is already set: leave this out; see docs/guides/coming-from-envoy.md)",
            "6: unknown key `max-retries` in `circuit_breaker` of cluster `b` (did you mean `retries_max`? See docs/guides/coming-from-envoy.md)",
            "6: unknown key `max_pending_requests` in `circuit_breaker` of cluster `b` (did you mean `pending_max`? See docs/guides/coming-from-envoy.md)",
            "7: unknown key `max_fails` in `passive_health` of cluster `c` (did you mean `consecutive_failures`? See docs/guides/coming-from-nginx.md)",
            "7: unknown key `fail_timeout` in `passive_health` of cluster `c` (did you mean `ejection_time`? See docs/guides/coming-from-nginx.md)",
            "7: unknown key `balancer` in cluster `c` (did you mean `balance`?)",
            "8: `requests_max` is missing in `queue` of cluster `d` (add `requests_max`: limit on waiting requests, over all workers)",
            "8: unknown key `max_requests` in `queue` of cluster `d` (did you mean `requests_max`? See docs/guides/coming-from-envoy.md)",
        ]
    );
}

#[test]
fn a_single_word_where_a_map_stands_is_shown_as_that_map() {
    let told = told(
        "clusters:
  a: { endpoints: ['127.0.0.1:1'], retry: { budget: 20% } }
  b: { endpoints: ['127.0.0.1:1'], persistence: source }
  c: { endpoints: ['127.0.0.1:1'], persistence: cookie }
  d: { endpoints: ['127.0.0.1:1'], health_check: tcp }
  e: { endpoints: ['127.0.0.1:1'], health_check: grpc }
",
    );
    assert_eq!(
        told,
        [
            "3: `budget` must be a map, not the text `20%` (write `{ share: 20% }`)",
            "4: `persistence` must be a map, not the text `source` (write `{ source: {} }`)",
            "5: `persistence` must be a map, not the text `cookie` (write `{ cookie: { secret: … } }`)",
            "6: `health_check` must be a map, not the text `tcp` (write `{ tcp: {} }`)",
            "7: `health_check` must be a map, not the text `grpc` (write `{ grpc: {} }`)",
        ]
    );
}

#[test]
fn mistakes_in_a_list_of_keys_point_at_the_item() {
    let text = "version: 1
clusters:
  a: { endpoints: ['127.0.0.1:1'], queue: { requests_max: 1, fair_by: [source, sorce] } }
";
    let problems = load(text).unwrap_err();
    let told: Vec<_> = problems.list.iter().map(|one| (one.column, one.message.as_str())).collect();
    assert_eq!(
        told,
        [(80, "an item of `fair_by` must be `source`, `path` or `uri`, not the text `sorce`")],
        "{problems}"
    );
}

#[test]
fn what_http_2_and_grpc_make_useless_is_warned_of() {
    let told = warnings(
        "routes:
  - { match: { path: { exact: /a } }, cluster: a }
  - { match: { path: { exact: /b } }, cluster: b, retry: { on: [grpc_unavailable], methods: any } }
clusters:
  a:
    endpoints: ['127.0.0.1:1', '127.0.0.1:2']
    http_versions: [h2]
    health_check: { http: { path: / } }
    retry: { on: [grpc_unavailable] }
  b:
    endpoints: ['127.0.0.1:1', '127.0.0.1:2']
    http_versions: [h2]
    health_check: { http: { path: / }, port: 8080 }
",
    );
    assert_eq!(
        told,
        ["11: a gRPC call is a POST, which is not retried once an endpoint may have processed it \
             (add `methods: any` if that does no harm)",]
    );
}

#[test]
fn an_expression_that_no_path_matches_is_warned_of() {
    let told = warnings(
        r"routes:
  - { match: { path: { regex: '\.php$' } }, respond: {} }
  - { match: { path: { regex: '^api/' } }, respond: {} }
  - { match: { path: { regex: 'api|v[12]' } }, respond: {} }
  - { match: { path: { regex: '.*\.php$' } }, respond: {} }
  - { match: { path: { regex: '(?i)/API/[^/]+' }, headers: { x: { regex: 'api' } } }, respond: {} }
  - { match: { path: { regex: '[^a]+' } }, respond: {} }
  - { match: { path: { regex: '/a$b' } }, respond: {} }
  - respond: {}
    filters: [{ rewrite: {}, when: { not: { path: { regex: '\.gif' } } } }]
",
    );
    let none =
        |pattern: &str| format!("no path matches `{pattern}`: it must match the whole path, which begins with `/`");
    assert_eq!(
        told,
        [
            format!("4: {} (write `.*\\.php`)", none(r"\.php$")),
            format!("5: {} (write `/api/.*`)", none("^api/")),
            format!("6: {} (write `.*(?:api|v[12]).*`)", none("api|v[12]")),
            "10: no path matches `/a$b`: `^` stands only at the beginning of a whole path, and `$` at its end (take it out, or write \
             `\\^` or `\\$` for the character)"
                .to_owned(),
            format!("12: {} (write `.*\\.gif.*`)", none(r"\.gif")),
        ]
    );
}

#[test]
fn a_route_that_no_request_reaches_is_warned_of() {
    let told = warnings(
        "routes:
  - { name: first, match: { host: [a.example, b.example], path: { prefix: /x/ }, method: [GET, PUT] }, respond: {} }
  - { name: same, match: { host: [A.example], path: { prefix: /x }, method: [PUT, GET] }, respond: {} }
  - { name: other-host, match: { host: [a.example, c.example], path: { prefix: /x }, method: [GET, PUT] }, respond: {} }
  - { name: more, match: { host: a.example, path: { prefix: /x }, method: [GET, PUT], query: { a: b } }, respond: {} }
  - { name: fewer, match: { host: a.example, path: { prefix: /x }, method: GET }, respond: {} }
  - { name: root, match: { path: { prefix: / } }, respond: {} }
  - { name: all, respond: {} }
  - { name: above, priority: 1, match: { headers: { X: y } }, respond: {} }
  - { name: below, match: { headers: { x: y } }, respond: {} }
",
    );
    let mend = "give it another `match`, or take it out";
    let hidden = |line: u32, name: &str, first: &str, of: u32| {
        format!(
            "{line}: no request reaches route `{name}`: route `{first}` in line {of} matches the same requests and comes first ({mend})"
        )
    };
    assert_eq!(
        told,
        [
            hidden(5, "same", "first", 4),
            hidden(8, "fewer", "first", 4),
            hidden(12, "below", "above", 11).replace("comes first", "has a higher `priority`"),
        ]
    );
}

#[test]
fn a_route_is_hidden_by_a_wider_one_only_where_that_is_certainly_asked_first() {
    let hidden = |first: &str, second: &str| {
        let text = format!(
            "version: 1\nlisteners: {{ a: {{ bind: '127.0.0.1:0' }} }}\nroutes:\n  - {{ {first}, respond: {{}} }}\n  - {{ {second}, respond: {{}} }}\n"
        );
        let warnings = load(&text).unwrap_or_else(|error| panic!("{error}")).warnings().to_vec();
        assert!(warnings.iter().all(|one| one.message.starts_with("no request reaches route")), "{warnings:?}");
        warnings.len()
    };
    for (first, second) in [
        ("match: { method: [GET, POST] }", "match: { method: GET }"),
        ("match: { source: 10.0.0.0/8 }", "match: { source: [10.1.0.0/16, 10.2.0.1] }"),
        ("match: { source: '::/0' }", "match: { source: 'fd00::/8' }"),
        ("match: { headers: { X: { present: true } } }", "match: { headers: { x: a } }"),
        ("match: { path: { prefix: / }, method: GET }", "match: { method: GET }"),
        (
            "match: { host: '*.A.example', path: { regex: '/a.*' } }",
            "match: { host: '*.a.example', path: { regex: '/a.*' } }",
        ),
        ("priority: 10", "match: { host: a.example, path: { exact: /x }, headers: { a: b } }"),
        ("priority: 10", "match: { path: { regex: '/a' } }"),
        ("match: { headers: { a: b } }", "priority: -1, match: { headers: { a: b }, cookies: { c: d }, method: GET }"),
        ("priority: 1, match: { host: '*.example' }", "match: { host: ['*.b.example', a.example] }"),
        ("priority: 1, match: { path: { prefix: /a } }", "match: { path: { exact: /a/b } }"),
        ("priority: 1, match: { path: { prefix: /a } }", "match: { path: { prefix: /a/b/ } }"),
        ("priority: 1, match: { path: { prefix: /a } }", "match: { path: { exact: /a } }"),
        ("priority: 1, match: { path: { prefix: / } }", "match: { path: { exact: /a } }"),
        ("match: { path: { exact: /a } }", "priority: 1, match: { path: { prefix: /a } }"),
    ] {
        assert_eq!(hidden(first, second), 1, "{first} and {second}");
    }
    for (first, second) in [
        ("match: { method: GET }", "match: { method: [GET, POST] }"),
        ("match: { method: [GET, POST] }", "match: { method: GET, headers: { a: b } }"),
        ("match: { method: [GET, POST] }", "match: { method: GET, path: { prefix: /a } }"),
        ("match: { method: [GET, POST] }", "match: { method: GET, host: a.example }"),
        ("match: { source: 10.0.0.0/8 }", "match: { source: 0.0.0.0/0 }"),
        ("match: { source: '::/0' }", "match: { source: 10.0.0.0/8 }"),
        ("match: { source: 10.0.0.0/8 }", "match: { headers: { a: b } }"),
        ("match: { headers: { x: a } }", "match: { headers: { X: { present: true } } }"),
        ("match: { headers: { x: { present: true } } }", "match: { headers: { x: { absent: true } } }"),
        ("match: { query: { x: { present: true } } }", "match: { query: { X: a } }"),
        ("match: { path: { prefix: / } }", "match: {}"),
        ("priority: 1, match: { path: { prefix: / } }", "match: { path: { regex: '.*' } }"),
        ("priority: 1, match: { path: { exact: /a } }", "match: { path: { prefix: /a } }"),
        ("priority: 1, match: { path: { prefix: /a } }", "match: { path: { exact: /ab } }"),
        ("priority: 1, match: { host: a.example }", "match: { host: '*.a.example' }"),
        ("priority: 1, match: { host: '*.a.example' }", "match: { host: a.example }"),
        ("priority: 1, match: { host: a.example }", "match: { host: [a.example, b.example] }"),
        ("priority: 1, match: { method: GET }", "match: {}"),
        ("match: {}", "priority: 10"),
    ] {
        // The last is reached, but hides the first.
        let wanted = usize::from(second == "priority: 10");
        assert_eq!(hidden(first, second), wanted, "{first} and {second}");
    }
}

#[test]
fn routes_of_other_listeners_are_reached() {
    let told = |listeners: &str, second: &str| {
        let text = format!(
            "version: 1
listeners: {{ a: {{ bind: '127.0.0.1:0' }}, b: {{ bind: '127.0.0.1:0' }} }}
routes:
  - {{ {listeners} respond: {{}} }}
  - {{ {second} respond: {{}} }}
"
        );
        load(&text).unwrap_or_else(|error| panic!("{error}")).warnings().len()
    };
    assert_eq!(told("listeners: [a],", "listeners: [b],"), 0);
    assert_eq!(told("listeners: [a],", ""), 0, "the second has b for itself");
    assert_eq!(told("listeners: [a],", "listeners: [a, b],"), 0);
    assert_eq!(told("listeners: [a],", "listeners: [a],"), 1);
    assert_eq!(told("", "listeners: [a],"), 1);
    assert_eq!(told("priority: -1,", ""), 1, "then it is the first that is hidden");
}

#[test]
fn a_file_without_listeners_is_warned_of_unless_they_may_come_from_elsewhere() {
    let told = |lines: &str| {
        let loaded = load(&format!("version: 1\n{lines}")).unwrap_or_else(|error| panic!("{error}"));
        loaded.warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let none = "site.yaml: warning: there are no listeners: no connection is accepted\n     \
                help: add one: `listeners: { web: { bind: \"127.0.0.1:8080\" } }`";
    assert_eq!(told("routes: [{ respond: {} }]\n"), [none]);
    assert_eq!(told("providers: { names: { dns: {} } }\n"), [none]);
    assert_eq!(told("admin: { bind: '127.0.0.1:0' }\nroutes: [{ respond: {} }]\n"), [none]);
    for fine in [
        "admin: { bind: '127.0.0.1:0' }\n",
        "routes: [{ respond: {} }]\nproviders: { fleet: { file: { path: x } } }\n",
        "clusters: { a: { endpoints: ['127.0.0.1:1'] } }\nproviders: { fleet: { file: { path: x } } }\n",
    ] {
        assert_eq!(told(fine), [""; 0], "{fine}");
    }
}

/// Filters with any settings.
const ANY: [FilterSpec; 4] = [any("set_request_header"), any("basic_auth"), any("rate_limit"), any("follow_redirects")];

const fn any(name: &'static str) -> FilterSpec {
    FilterSpec { name, doc: "Does something.", schema: || json!({ "type": "object" }), check: |_| Ok(()) }
}

/// The warnings of a site with a listener that has these filters, and of these routes.
fn inherited(filters: &str, routes: &str) -> Vec<String> {
    let text = format!(
        "version: 1\nlisteners:\n  web:\n    bind: \"127.0.0.1:0\"\n    filters:\n{filters}\nroutes:\n{routes}\nclusters: {{ a: {{ endpoints: ['127.0.0.1:1'] }} }}\n"
    );
    let loader = Loader { filters: &ANY, ..LOADER };
    let loaded = loader.load_text("site.yaml", &text, Path::new("")).unwrap_or_else(|error| panic!("{error}"));
    loaded.warnings().iter().map(|warning| format!("{}: {}", warning.line, warning.message)).collect()
}

#[test]
fn limits_of_a_listener_count_for_each_route() {
    let one = "  - { cluster: a }";
    let two = "  - { match: { path: { exact: /a } }, cluster: a }\n  - { cluster: a }";
    let limit = "      - rate_limit: { rate: 5/s }";
    assert_eq!(inherited(limit, one), [""; 0]);
    assert_eq!(inherited(limit, two), ["6: `rate_limit` of a listener counts for each of its 2 routes apart"]);
    assert_eq!(inherited("      - set_request_header: { a: b }", two), [""; 0]);
}

#[test]
fn filters_that_run_again_for_a_redirect_are_warned_of() {
    let filters = "      - basic_auth: { users: x }\n      - set_request_header: { a: b }";
    let follow = "filters: [{ follow_redirects: {} }]";
    let wanted = "6: `basic_auth` runs again for each redirect that is followed to a route that has it too";
    assert_eq!(inherited(filters, &format!("  - {{ cluster: a, {follow} }}")), [wanted]);
    assert_eq!(inherited(filters, "  - { cluster: a }"), [""; 0]);
    let nested = "  - { cluster: a, filters: [{ rate_limit: { rate: 5/s } }, { follow_redirects: {} }], routes: [{ match: { method: GET }, timeout: 1s }] }";
    let told = inherited("      - set_request_header: { a: b }", nested);
    assert_eq!(told, ["8: `rate_limit` runs again for each redirect that is followed to a route that has it too"]);
    let own = "  - { cluster: a, filters: [{ rate_limit: { rate: 5/s } }, { follow_redirects: {} }] }";
    assert_eq!(inherited("      - set_request_header: { a: b }", own), [""; 0]);
}
