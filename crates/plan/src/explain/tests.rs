//! Questions against plans, and that asking changes nothing.

use std::time::Duration;

use model::AddressList;
use model::filter::FilterUse;
use model::fitness::AdminState;
use model::matching::{Match, PathMatch, ValueMatch, ValueTest};
use model::resilience::{CircuitBreaker, Resilience};
use model::snapshot::{Action, Balance, Hash, HashAlgorithm, HashKey, Listener, Protocol, Route};
use serde_json::json;

use super::*;
use crate::balance::tests::begin;
use crate::testing::{
    Worker, bounded, cluster, compiled, head, http_listener, queue, route, sessions, snapshot, weighted,
};
use crate::{Pick, Random};

fn ask(plan: &Plan, request: &str, fields: &[(&str, &str)]) -> Result<Explanation, String> {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let client = "192.0.2.7".parse().unwrap();
    let hides_values = request.ends_with("/hidden");
    let question = Question { request: request.to_owned(), fields, client, listener: None, hides_values };
    let mut random = Random::new(1);
    let at = crate::Moment { now: begin(), unix: std::time::Duration::from_secs(1_000_000_000) };
    explain(plan, &question, at, &mut || random.next_u64(), &mut |_, head, _| {
        head.fields.remove_named(b"x-forged");
        if head.path().ends_with(b"/ambiguous") { Err(Fault::AmbiguousPath) } else { Ok(()) }
    })
}

fn path(path: &str) -> Match {
    Match { path: Some(PathMatch::Prefix(path.into())), ..Match::default() }
}

fn of_routes(routes: Vec<Route>) -> Plan {
    let clusters = vec![cluster("c", Balance::RoundRobin, weighted(&[1, 1, 2]))];
    compiled(snapshot(vec![http_listener("web")], routes, clusters), None)
}

fn forward(told: &Explanation) -> &ClusterExplanation {
    match &told.outcome {
        Outcome::Forward(clusters) => &clusters[0],
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_route_that_is_taken_is_told_with_those_before_and_after_it() {
    let mut picky = path("/api/orders");
    picky.headers = vec![ValueMatch { name: "x-beta".into(), test: ValueTest::Present }];
    let mut posts = path("/api/orders");
    posts.methods = vec!["POST".into(), "PUT".into()];
    let plan = of_routes(vec![
        route("all", Match::default(), "c"),
        route("api", path("/api"), "c"),
        route("other", path("/other"), "c"),
        route("beta", picky, "c"),
        route("posts", posts, "c"),
    ]);
    let told = ask(&plan, "GET http://a.example/api/orders?x=1", &[]).unwrap();
    let names: Vec<(&str, bool)> = told.routes.iter().map(|route| (route.name.as_str(), route.holds)).collect();
    assert_eq!(names, [("posts", false), ("beta", false), ("api", true), ("all", true)]);
    assert_eq!(told.routes[0].unmet.as_deref(), Some("the method is not POST or PUT"));
    assert_eq!(told.routes[1].unmet.as_deref(), Some("the header field `x-beta` is missing"));
    assert_eq!((told.routes[2].asks.as_str(), told.routes_unfit), ("paths below /api", 1));
    let told = ask(&plan, "GET http://a.example/api/orders", &[("X-Beta", "1")]).unwrap();
    assert!(told.routes[1].holds);
    assert_eq!(forward(&told).name, "c");
}

#[test]
fn values_that_may_be_secret_are_not_told_and_what_is_taken_from_a_client_is_not_there() {
    let mut secret = path("/");
    secret.headers = vec![ValueMatch { name: "x-forged".into(), test: ValueTest::Exact("s3cret".into()) }];
    let plan = of_routes(vec![route("secret", secret, "c")]);
    let unmet = |request: &str| ask(&plan, request, &[("x-forged", "s3cret")]).unwrap().routes[0].unmet.clone();
    assert_eq!(unmet("http://a/").as_deref(), Some("the header field `x-forged` is not `s3cret`"));
    assert_eq!(unmet("http://a/hidden").as_deref(), Some("the header field `x-forged` does not match"));
}

#[test]
fn who_cannot_connect_is_told_so_unless_a_proxy_connects_for_them() {
    let allowed = vec!["10.0.0.0/8".parse().unwrap()];
    let list = AddressList { allowed, ..AddressList::default() };
    let listener = |trusted: &[&str]| {
        let mut listener = Listener { address_list: Some(list.clone()), ..http_listener("web") };
        if let Protocol::Http(http) = &mut listener.protocol {
            http.forwarding.trusted = trusted.iter().map(|network| network.parse().unwrap()).collect();
        }
        listener
    };
    let outcome = |trusted: &[&str]| {
        let clusters = vec![cluster("c", Balance::RoundRobin, weighted(&[1]))];
        let routes = vec![route("all", Match::default(), "c")];
        ask(&compiled(snapshot(vec![listener(trusted)], routes, clusters), None), "http://a/", &[]).unwrap().outcome
    };
    let why = "the listener's `address_list` rejects this address".to_owned();
    assert_eq!(outcome(&[]), Outcome::Close { why });
    assert!(matches!(outcome(&["10.0.0.0/8"]), Outcome::Forward(_)));
}

#[test]
fn an_open_circuit_and_a_reached_bound_are_told() {
    let breaker = CircuitBreaker { requests_max: Some(1), ..CircuitBreaker::default() };
    let guarded = cluster("c", Balance::RoundRobin, weighted(&[1]))
        .with(|it| it.resilience = Resilience { breaker: Some(breaker), ..Resilience::default() });
    let routes = vec![route("all", Match::default(), "c")];
    let plan = compiled(snapshot(vec![http_listener("web")], routes, vec![guarded]), None);
    assert!(forward(&ask(&plan, "http://a/", &[]).unwrap()).endpoint.is_some());
    let mut pass = None;
    plan.clusters[0].let_in(&mut pass, begin()).unwrap();
    let told = ask(&plan, "http://a/", &[]).unwrap();
    assert_eq!(forward(&told).endpoint, None);
    assert_eq!(forward(&told).why, "`circuit_breaker.requests_max` is reached: 503");
}

#[test]
fn what_is_told_is_what_the_router_finds() {
    let hosts =
        |hosts: &[&str]| Match { hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(), ..Match::default() };
    let plan = of_routes(vec![
        route("both", hosts(&["a.example", "*.example"]), "c"),
        route("wild", hosts(&["*.example"]), "c"),
    ]);
    let told = ask(&plan, "http://a.example/", &[]).unwrap();
    let names: Vec<&str> = told.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["both", "wild"], "a route is told once");
    let told = ask(&plan, "http://other/", &[]).unwrap();
    assert_eq!(told.outcome, Outcome::Answer { status: 404, why: "no route holds".into() });
}

#[test]
fn asking_takes_no_turn_and_no_place() {
    let plan = of_routes(vec![route("all", Match::default(), "c")]);
    let shared = &plan.clusters[0];
    let mut worker = Worker::new(1);
    let held = worker.lease(shared);
    for _ in 0..3 {
        let told = ask(&plan, "http://a/", &[]).unwrap();
        let expected = forward(&told).endpoint.clone().unwrap();
        let Pick::Endpoint(lease) = worker.pick(shared) else { panic!() };
        assert_eq!(shared.endpoints[lease.endpoint_index()].endpoint.name.as_str(), expected);
    }
    drop(held);
    assert!(shared.endpoints.iter().all(|endpoint| endpoint.state.in_flight() == 0));
}

#[test]
fn shares_follow_the_weights() {
    let plan = of_routes(vec![route("all", Match::default(), "c")]);
    let told = ask(&plan, "http://a/", &[]).unwrap();
    let shares: Vec<f64> = forward(&told).endpoints.iter().map(|endpoint| endpoint.share).collect();
    assert_eq!(shares, [25.0, 25.0, 50.0]);
}

#[test]
fn a_full_cluster_says_so_and_what_follows_from_it() {
    let mut full = cluster("c", Balance::LeastRequest, bounded(&[1]));
    let routes = || vec![route("all", Match::default(), "c")];
    let plan = compiled(snapshot(vec![http_listener("web")], routes(), vec![full.clone()]), None);
    let _held = Worker::new(1).lease(&plan.clusters[0]);
    let told = ask(&plan, "http://a/", &[]).unwrap();
    assert_eq!((forward(&told).endpoint.as_deref(), forward(&told).endpoints[0].in_flight), (None, 1));
    assert_eq!(forward(&told).why, "all endpoints are full, and there is no queue: 503");
    full.queue = queue(1);
    let plan = compiled(snapshot(vec![http_listener("web")], routes(), vec![full]), Some(&plan));
    assert_eq!(forward(&ask(&plan, "http://a/", &[]).unwrap()).why, "all endpoints are full: it waits in the queue");
}

#[test]
fn a_backup_is_told_of_where_requests_use_it_and_where_they_wait_instead() {
    let mut config = cluster("c", Balance::LeastRequest, bounded(&[1, 1]));
    config.endpoints[1].placement.is_backup = true;
    let routes = || vec![route("all", Match::default(), "c")];
    let plan = compiled(snapshot(vec![http_listener("web")], routes(), vec![config.clone()]), None);
    let _held = Worker::new(1).lease(&plan.clusters[0]);
    let told = forward(&ask(&plan, "http://a/", &[]).unwrap()).clone();
    assert_eq!((told.endpoint.as_deref(), told.pick.as_deref()), (Some("127.0.0.1:9001"), Some("spill")));
    assert!(told.why.starts_with("a backup, as no regular endpoint can take the request; "), "{}", told.why);
    assert_eq!(told.endpoints.iter().map(|endpoint| endpoint.is_backup).collect::<Vec<_>>(), [false, true]);
    config.queue = queue(1);
    let plan = compiled(snapshot(vec![http_listener("web")], routes(), vec![config]), Some(&plan));
    let told = forward(&ask(&plan, "http://a/", &[]).unwrap()).clone();
    let why = "all endpoints are full but for backups, which requests in the queue do not use: it waits in the queue";
    assert_eq!((told.endpoint, told.why.as_str()), (None, why));
}

#[test]
fn a_known_session_is_told_its_endpoint_and_what_becomes_of_it_when_that_is_away() {
    use model::persistence::{Persistence, SessionBy, SessionRoute, WhenAway, WhenFull};
    let told = |otherwise, state| {
        let by = SessionBy::Route(SessionRoute { on: HashKey::Cookie("at".into()), label: "name".into() });
        let persistence = Some(Persistence { by, otherwise, when_full: WhenFull::Wait });
        let mut sticky =
            cluster("c", Balance::RoundRobin, weighted(&[1, 1, 1])).with(|it| it.persistence = persistence);
        sticky.endpoints[2].placement.labels.insert("name".into(), "third".into());
        sticky.endpoints[2].state = state;
        let routes = vec![route("all", Match::default(), "c")];
        let plan = compiled(snapshot(vec![http_listener("web")], routes, vec![sticky]), None);
        forward(&ask(&plan, "http://a/", &[("cookie", "at=third")]).unwrap()).clone()
    };
    let kept = told(WhenAway::Another, AdminState::Auto);
    assert_eq!((kept.endpoint.as_deref(), kept.why.as_str()), (Some("127.0.0.1:9002"), "its session stays with it"));
    assert_eq!(kept.endpoints[2].share, 100.0);
    let moved = told(WhenAway::Another, AdminState::Maintenance);
    assert_eq!(moved.notes, ["the endpoint of its session is not available: another takes it over"]);
    assert_ne!(moved.endpoint.as_deref(), Some("127.0.0.1:9002"));
    let refused = told(WhenAway::Refuse, AdminState::Maintenance);
    let why = "the endpoint of its session is not available, and no other may take it: 503";
    assert_eq!((refused.endpoint, refused.why.as_str()), (None, why));
}

#[test]
fn asking_about_a_session_does_not_make_it_last_longer() {
    let sticky = cluster("c", Balance::RoundRobin, weighted(&[1, 1])).with(|it| it.persistence = sessions());
    let routes = vec![route("all", Match::default(), "c")];
    let plan = compiled(snapshot(vec![http_listener("web")], routes, vec![sticky]), None);
    let after = |seconds| Moment { now: begin() + Duration::from_secs(seconds), unix: Duration::ZERO };
    let persistence = plan.clusters[0].persistence.as_deref().unwrap();
    let (user, client) = (head("GET", "/", &[("x-user", "anna")]), "192.0.2.7".parse().unwrap());
    let known = |seconds| persistence.peek(Some(&user), client, after(seconds), &mut || 7).pinned();
    let session = persistence.find(Some(&user), client, after(0), &mut || 7);
    persistence.keep(&session, 1, None, (after(0), &mut || 7));
    let fields = vec![("x-user".to_owned(), "anna".to_owned())];
    let question = Question { request: "http://a/".to_owned(), fields, client, listener: None, hides_values: false };
    let told = explain(&plan, &question, after(4), &mut || 7, &mut |_, _, _| Ok(())).unwrap();
    assert_eq!(forward(&told).endpoint.as_deref(), Some("127.0.0.1:9001"));
    // The session lives for five seconds without a request.
    assert_eq!((known(4), known(7)), (Some(1), None));
    assert_eq!(persistence.find(Some(&user), client, after(4), &mut || 7).pinned(), Some(1));
    assert_eq!(known(7), Some(1), "a request makes it last");
}

#[test]
fn the_bound_of_the_whole_cluster_is_told() {
    let bounded = cluster("c", Balance::RoundRobin, weighted(&[1, 1])).with(|it| it.connections_max = Some(1));
    let routes = vec![route("all", Match::default(), "c")];
    let plan = compiled(snapshot(vec![http_listener("web")], routes, vec![bounded]), None);
    let _held = Worker::new(1).lease(&plan.clusters[0]);
    let told = ask(&plan, "http://a/", &[]).unwrap();
    let told = (forward(&told).endpoint.as_deref(), forward(&told).why.as_str());
    assert_eq!(told, (None, "the limit of the cluster is reached, and there is no queue: 503"));
}

#[test]
fn a_hashed_request_is_told_its_own_endpoint() {
    let hash = Hash { on: vec![HashKey::Header("x-user".into())], algorithm: HashAlgorithm::Maglev, load_max: None };
    let hashed = cluster("c", Balance::Hash(hash), weighted(&[1; 20]));
    let plan =
        compiled(snapshot(vec![http_listener("web")], vec![route("all", Match::default(), "c")], vec![hashed]), None);
    let anna = ask(&plan, "http://a/", &[("x-user", "anna")]).unwrap();
    let told = forward(&anna);
    assert_eq!(
        (told.why.as_str(), told.notes[0].as_str()),
        ("it is the endpoint of the request's key", "hashed by the header field `x-user`")
    );
    assert!(
        told.endpoints
            .iter()
            .all(|endpoint| (endpoint.share == 100.0) == (Some(&endpoint.name) == told.endpoint.as_ref()))
    );
    assert_eq!(ask(&plan, "http://b/other", &[("x-user", "anna")]).unwrap().outcome, anna.outcome);
    let nobody = ask(&plan, "http://a/", &[]).unwrap();
    assert_eq!(forward(&nobody).why, "the request has no key to hash, so the choice is random");
}

#[test]
fn filters_are_told_with_what_they_change_until_one_answers() {
    let filter = |name: &str, settings| FilterUse { name: name.into(), settings, when: None, calls: Vec::new() };
    let mut filtered = route("all", Match::default(), "c");
    filtered.filters = vec![
        filter("set_request_header", json!({ "x-shop": "{host}" })),
        filter("set_response_header", json!({ "x-a": "b" })),
        filter("cors", json!({ "allow_origins": ["https://a.example"] })),
        filter("remove_request_header", json!(["x-gone"])),
    ];
    let plan = of_routes(vec![filtered]);
    let told = ask(&plan, "http://a.example/", &[("x-gone", "1")]).unwrap();
    assert_eq!(told.filters[0].changes, ["+ x-shop: a.example"]);
    assert!(told.filters[1].changes_response && told.filters[1].changes.is_empty());
    assert_eq!(told.filters[3].changes, ["- x-gone: 1"]);
    let told = ask(&plan, "http://a.example/hidden", &[]).unwrap();
    assert_eq!(told.filters[0].changes, ["+ x-shop: (hidden)"]);
    let preflight = [("origin", "https://a.example"), ("access-control-request-method", "PUT")];
    let told = ask(&plan, "OPTIONS http://a.example/", &preflight).unwrap();
    assert_eq!(told.filters.len(), 3, "nothing comes after the answer");
    assert!(matches!(&told.outcome, Outcome::Answer { why, .. } if why == "the filter `cors` answers"), "{told:?}");
}

#[test]
fn shares_of_several_clusters_are_told() {
    let clusters = ["a", "b"].map(|name| cluster(name, Balance::RoundRobin, weighted(&[1]))).to_vec();
    let split = Route {
        action: Action::Weighted(vec![("a".into(), 9), ("b".into(), 1)]),
        ..route("all", Match::default(), "a")
    };
    let plan = compiled(snapshot(vec![http_listener("web")], vec![split], clusters), None);
    let Outcome::Forward(told) = ask(&plan, "http://a/", &[]).unwrap().outcome else { panic!() };
    let shares: Vec<(&str, f64)> = told.iter().map(|cluster| (cluster.name.as_str(), cluster.share)).collect();
    assert_eq!(shares, [("a", 90.0), ("b", 10.0)]);
}

#[test]
fn a_question_that_cannot_be_understood_is_an_error_that_says_what_is_wrong() {
    let plan = of_routes(vec![route("all", Match::default(), "c")]);
    let error = |request: &str| ask(&plan, request, &[]).unwrap_err();
    assert_eq!(error(""), "`` is not a request such as `GET https://example.com/path`");
    assert_eq!(error("G@T http://a/"), "`G@T` is not a method");
    assert_eq!(
        error("a.example/x"),
        "`a.example/x` has no scheme: write `http://a.example/x` or `https://a.example/x`"
    );
    assert_eq!(error("ftp://a/"), "the scheme `ftp` is none of http, https, ws, wss and tcp");
    assert_eq!(
        error("tcp://a:1?apln=h2"),
        "`apln=h2` is nothing that a connection has; there is `alpn`, such as ?alpn=h2,http/1.1"
    );
    assert_eq!(error("http:///x"), "`` is not a host with or without a port");
    assert_eq!(error("http://a:x/"), "`x` in `a:x` is not a port from 0 to 65535");
    assert_eq!(error("http://a/\u{e9}"), "the path holds the byte 0xc3, which a URL writes as %C3");
    assert_eq!(
        error("https://a/"),
        "no listener takes https; there are `web` (http, 127.0.0.1:0); `--listener` names one"
    );
    assert!(error(&format!("http://a/{}", "x".repeat(20_000))).contains("longer than"));
    assert!(ask(&plan, "http://a/", &[("b", "\n")]).unwrap_err().contains("`b`"));
    assert!(ask(&plan, "http://a/", &[("b c", "d")]).is_err());
    assert!(ask(&plan, "http://a/", &[("b", &"x".repeat(40_000))]).unwrap_err().contains("larger than"));
}

#[test]
fn of_many_endpoints_those_are_told_that_get_work() {
    let many = cluster("c", Balance::First, weighted(&[1; 300]));
    let routes = vec![route("all", Match::default(), "c")];
    let plan = compiled(snapshot(vec![http_listener("web")], routes, vec![many]), None);
    let told = ask(&plan, "http://a/", &[]).unwrap();
    assert_eq!((forward(&told).endpoints.len(), forward(&told).left_out), (100, 200));
    assert_eq!((forward(&told).endpoints[0].share, forward(&told).endpoints[1].share), (100.0, 0.0));
}

#[test]
fn the_rules_by_which_a_request_is_carried_are_told() {
    use model::resilience::{ErrorRatio, Hedge, HedgeAfter};
    use model::retry::{Conditions, Methods, Retry};
    use std::time::Duration;

    let ratio = ErrorRatio {
        percent: 50,
        window: Duration::from_secs(10),
        requests_min: 1,
        open_for: Duration::from_secs(5),
        trial_requests: 1,
    };
    let hedge =
        Hedge { after: HedgeAfter::Percentile(95), attempts_max: 2, methods: Methods::Idempotent, budget_percent: 10 };
    let breaker = CircuitBreaker { error_ratio: Some(ratio), ..CircuitBreaker::default() };
    let mut ruled = cluster("c", Balance::RoundRobin, weighted(&[1, 1])).with(|it| {
        it.resilience = Resilience { breaker: Some(breaker), hedge: Some(hedge.clone()), ..Resilience::default() }
    });
    ruled.queue = queue(10);
    ruled.retry = Retry {
        on: Conditions { reset: true, statuses: vec![(503, 503)], ..Conditions::default() },
        ..Retry::default()
    };
    let plain = route("plain", Match::default(), "c");
    let mut own = route("own", path("/own"), "c");
    own.precedence = model::queue::Precedence { class: -2, offset_ms: -500 };
    own.retry = Some(Retry { attempts_max: 1, ..Retry::default() });
    own.hedge = Some(Hedge { after: HedgeAfter::Time(Duration::from_millis(50)), attempts_max: 3, ..hedge });
    let plan = compiled(snapshot(vec![http_listener("web")], vec![own, plain], vec![ruled]), None);
    let notes = |request: &str| forward(&ask(&plan, request, &[]).unwrap()).notes.clone();
    assert_eq!(
        notes("http://a/"),
        [
            "retried after reset, 503, 3 attempts at most (the cluster's rules)",
            "hedged: without a response within the time of 95% of recent responses it is also sent to another endpoint, to 2 at most (the cluster's rules)",
        ]
    );
    assert_eq!(
        notes("POST http://a/own"),
        [
            "in the queue it is of class -2, as if it had come 500 ms earlier",
            "never tried again (the route's rules)",
            "not hedged, because its method is not idempotent (the route's rules)",
        ]
    );
    assert_eq!(
        notes("http://a/own")[2],
        "hedged: without a response within 50ms it is also sent to another endpoint, to 3 at most (the route's rules)"
    );
    let never = "never retried, because its method is not idempotent (the cluster's rules)";
    assert_eq!(notes("POST http://a/")[0], never);

    // A circuit that opens, and is tried again.
    let cluster = &plan.clusters[0];
    let mut pass = None;
    cluster.let_in(&mut pass, begin()).unwrap();
    cluster.tell_circuit(&mut pass, false, begin() - Duration::from_secs(4));
    let told = ask(&plan, "http://a/", &[]).unwrap();
    assert_eq!(forward(&told).why, "the circuit is open for another 1.0 s, because too many requests failed: 503");
    drop(pass.take());
    let later = begin() + Duration::from_secs(2);
    cluster.let_in(&mut pass, later).unwrap();
    let told = ask(&plan, "http://a/", &[]).unwrap();
    assert_eq!(forward(&told).notes[0], "the circuit is half-open: 1 trial requests at once, 1 in flight");
    assert_eq!(forward(&told).why, "the circuit is half-open, and all trial requests are in flight: 503");
}

#[test]
fn a_request_that_is_refused_before_it_finds_a_route_is_told_with_the_reason() {
    let plan = of_routes(vec![route("all", Match::default(), "c")]);
    let told = ask(&plan, "http://a.example/ambiguous", &[]).unwrap();
    let Outcome::Answer { status: 400, why } = &told.outcome else { panic!("{told:?}") };
    assert!(why.starts_with("The request path is ambiguous") && !why.ends_with('.'), "{why}");
    assert_eq!((told.routes.len(), told.routes_unfit), (0, 1));
}
