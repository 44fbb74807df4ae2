//! The router against a reading of its rules that has no tables.

use std::cmp::Reverse;
use std::net::IpAddr;

use model::facts::SenderFacts;
use model::matching::{Match, ValueMatch, ValueTest};
use model::proxy_protocol::SenderTlvs;
use model::snapshot::{Balance, Route};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::Config;

use super::*;
use crate::plan::{ListenerTarget, Plan};
use crate::testing::{cluster, compiled, head, http_listener, route, snapshot, weighted};

fn plan_of(routes: Vec<Route>) -> Plan {
    let cluster = cluster("c", Balance::RoundRobin, weighted(&[1]));
    compiled(snapshot(vec![http_listener("web")], routes, vec![cluster]), None)
}

fn router(plan: &Plan) -> &Router {
    match &plan.listeners[0].target {
        ListenerTarget::Http(router) => router,
        _ => panic!("no HTTP"),
    }
}

/// Routes named by their places.
fn numbered(matches: Vec<Match>) -> Vec<Route> {
    matches.into_iter().enumerate().map(|(place, matches)| route(&format!("r{place}"), matches, "c")).collect()
}

fn find(plan: &Plan, head: &RequestHead) -> Option<usize> {
    let mut scratch = Vec::new();
    router(plan).find(head, "10.1.2.3".parse::<IpAddr>().unwrap(), &mut scratch).map(|route| route.index)
}

fn get(plan: &Plan, host: &str, target: &str) -> Option<usize> {
    find(plan, &head("GET", target, &[("Host", host)]))
}

fn hosts(texts: &[&str]) -> Match {
    Match { hosts: texts.iter().map(|text| text.parse().unwrap()).collect(), ..Match::default() }
}

fn prefix(text: &str) -> Option<PathMatch> {
    Some(PathMatch::Prefix(text.into()))
}

fn exact(text: &str) -> Option<PathMatch> {
    Some(PathMatch::Exact(text.into()))
}

fn regex(text: &str) -> Option<PathMatch> {
    Some(PathMatch::Regex(text.into()))
}

fn value(name: &str, test: ValueTest) -> ValueMatch {
    ValueMatch { name: name.into(), test }
}

#[test]
fn without_routes_nothing_is_found() {
    assert_eq!(get(&plan_of(vec![]), "h", "/"), None);
}

#[test]
fn an_exact_host_wins_over_a_longer_wildcard_over_a_shorter_over_none() {
    let list = vec![Match::default(), hosts(&["*.com"]), hosts(&["*.a.com", "a.com."]), hosts(&["b.a.com"])];
    let plan = plan_of(numbered(list));
    assert_eq!(get(&plan, "B.a.COM:8080", "/"), Some(3));
    assert_eq!(get(&plan, "b.a.com.", "/"), Some(3));
    assert_eq!(get(&plan, "x.b.a.com", "/"), Some(2));
    assert_eq!(get(&plan, "a.com", "/"), Some(2));
    assert_eq!(get(&plan, "b.com", "/"), Some(1));
    assert_eq!(get(&plan, "com", "/"), Some(0));
    assert_eq!(get(&plan, "", "/"), Some(0));
}

#[test]
fn an_exact_path_wins_over_a_longer_prefix_over_a_shorter_over_an_expression_over_none() {
    let with = |path| Match { path, ..Match::default() };
    let list = vec![
        with(prefix("/")),
        with(regex("/.*\\.png")),
        with(prefix("/a/")),
        with(prefix("/a/b")),
        with(exact("/a/b")),
    ];
    let plan = plan_of(numbered(list));
    assert_eq!(get(&plan, "h", "/a/b?x"), Some(4));
    assert_eq!(get(&plan, "h", "/a/b/"), Some(3));
    assert_eq!(get(&plan, "h", "/a/b/c.png"), Some(3));
    assert_eq!(get(&plan, "h", "/a/bc"), Some(2));
    assert_eq!(get(&plan, "h", "/a"), Some(2));
    assert_eq!(get(&plan, "h", "/x.png"), Some(1));
    assert_eq!(get(&plan, "h", "/x.pngs"), Some(0));
    assert_eq!(get(&plan, "h", "/apple"), Some(0));
    assert_eq!(find(&plan, &head("OPTIONS", "*", &[])), None);
}

#[test]
fn a_path_is_compared_as_it_came() {
    let plan = plan_of(numbered(vec![Match { path: prefix("/admin"), ..Match::default() }]));
    for path in ["/admin", "/admin/", "/admin//x", "/admin/../x"] {
        assert_eq!(get(&plan, "h", path), Some(0), "{path}");
    }
    for path in ["/Admin", "/%61dmin", "//admin", "/x/../admin", "/./admin", ""] {
        assert_eq!(get(&plan, "h", path), None, "{path}");
    }
}

#[test]
fn if_the_most_specific_fails_by_another_condition_a_less_specific_one_is_taken() {
    let post = |matches| Match { methods: vec!["POST".into()], ..matches };
    let list = vec![
        Match::default(),
        Match { path: prefix("/a"), ..Match::default() },
        post(Match { path: prefix("/a/b"), ..hosts(&["*.com"]) }),
        post(Match { path: exact("/a/b"), ..hosts(&["x.com"]) }),
    ];
    let plan = plan_of(numbered(list));
    assert_eq!(find(&plan, &head("POST", "/a/b", &[("host", "x.com")])), Some(3));
    assert_eq!(find(&plan, &head("POST", "/a/b/c", &[("host", "x.com")])), Some(2));
    assert_eq!(find(&plan, &head("GET", "/a/b", &[("host", "x.com")])), Some(1));
    assert_eq!(find(&plan, &head("BREW", "/x", &[("host", "x.com")])), Some(0));
}

#[test]
fn within_one_host_a_shorter_prefix_then_an_expression_then_no_path_is_taken_when_a_longer_one_fails() {
    let with = |method: &str, path| Match { methods: vec![method.into()], path, ..Match::default() };
    let list = vec![
        with("GET", prefix("/a")),
        with("POST", prefix("/a/b")),
        with("PUT", prefix("/a/b/c")),
        with("HEAD", exact("/a/b/c")),
        with("PATCH", regex("/.*")),
        with("DELETE", None),
    ];
    let plan = plan_of(numbered(list));
    let asked = |method| find(&plan, &head(method, "/a/b/c", &[]));
    let found = ["GET", "POST", "PUT", "HEAD", "PATCH", "DELETE", "TRACE"].map(asked);
    assert_eq!(found, [Some(0), Some(1), Some(2), Some(3), Some(4), Some(5), None]);
}

#[test]
fn priority_overrides_every_other_rule() {
    let mut routes = numbered(vec![hosts(&["a.com"]), Match::default(), Match::default()]);
    routes[1].priority = 5;
    routes[1].matches.methods = vec!["PUT".into()];
    routes[2].priority = -1;
    let plan = plan_of(routes);
    assert_eq!(find(&plan, &head("PUT", "/", &[("host", "a.com")])), Some(1));
    assert_eq!(get(&plan, "a.com", "/"), Some(0));
    assert_eq!(get(&plan, "b.com", "/"), Some(2));
}

#[test]
fn more_conditions_win_and_then_the_order_of_the_file() {
    let one = value("x-a", ValueTest::Present);
    let two = value("x-b", ValueTest::Absent);
    let list = vec![
        Match { headers: vec![one.clone()], ..Match::default() },
        Match { headers: vec![two.clone(), one.clone()], ..Match::default() },
        Match { headers: vec![one], ..Match::default() },
        Match { methods: vec!["GET".into(), "BREW".into()], ..Match::default() },
    ];
    let plan = plan_of(numbered(list));
    let asked = |method, fields: &[(&str, &str)]| find(&plan, &head(method, "/", fields));
    assert_eq!(asked("GET", &[("x-a", "")]), Some(3));
    assert_eq!(asked("BREW", &[("x-a", "")]), Some(3));
    assert_eq!(asked("PUT", &[("X-A", "")]), Some(1));
    assert_eq!(asked("PUT", &[("X-A", ""), ("x-B", "")]), Some(0));
    assert_eq!(asked("PUT", &[]), None);
}

#[test]
fn values_are_tested_as_a_whole_queries_decoded_and_fields_any_of_several() {
    let regex = |text: &str| ValueTest::Regex(text.into());
    let list = vec![
        Match { headers: vec![value("x", regex("a+"))], ..Match::default() },
        Match { query: vec![value("q w", regex("a b|c"))], ..Match::default() },
        Match { query: vec![value("e", ValueTest::Exact("1&2".into()))], ..Match::default() },
        Match { cookies: vec![value("id", regex("[0-9]{3}"))], ..Match::default() },
    ];
    let plan = plan_of(numbered(list));
    let asked = |target, fields: &[(&str, &str)]| find(&plan, &head("GET", target, fields));
    assert_eq!(asked("/", &[("x", "b"), ("X", "aa")]), Some(0));
    assert_eq!(asked("/", &[("x", "aab")]), None);
    assert_eq!(asked("/?q+w=a%20b", &[]), Some(1));
    assert_eq!(asked("/?q%20w=c&e=1%262", &[]), Some(1));
    assert_eq!(asked("/?q%20w=d&q%20w=c", &[]), None, "the first counts");
    assert_eq!(asked("/?e=1%262", &[]), Some(2));
    assert_eq!(asked("/", &[("cookie", "a=1"), ("cookie", "b=2; id=123")]), Some(3));
    assert_eq!(asked("/", &[("cookie", "id=1234")]), None);
}

#[test]
fn a_host_of_ten_thousand_finds_its_own_route() {
    let list = (0..10_000).map(|i| Match { path: prefix(&format!("/p{i}")), ..hosts(&[&format!("h{}.com", i / 2)]) });
    let plan = plan_of(numbered(list.collect()));
    for place in [0, 1, 4_999, 9_998, 9_999] {
        assert_eq!(get(&plan, &format!("h{}.com", place / 2), &format!("/p{place}/x")), Some(place));
    }
    assert_eq!(get(&plan, "h0.com", "/p2"), None);
}

#[test]
fn a_lookup_of_hostile_length_ends_and_leaves_a_bounded_buffer() {
    let plan = plan_of(numbered(vec![hosts(&["*.com"]), Match { path: prefix("/a/b/c"), ..Match::default() }]));
    let long = format!("{}com", "a.".repeat(15_000));
    let mut scratch = Vec::new();
    let request = head("GET", &"/".repeat(16_000), &[("host", &long)]);
    assert!(router(&plan).find(&request, "::1".parse::<IpAddr>().unwrap(), &mut scratch).is_none());
    assert!(scratch.capacity() <= 2 * long.len());
}

/// The rules read aloud: every route that matches, the best of them by one comparison.
fn read_aloud(routes: &[Route], head: &RequestHead, client: IpAddr) -> Option<usize> {
    let host = String::from_utf8(head.host().to_vec()).unwrap().to_ascii_lowercase();
    let host = host.strip_suffix('.').unwrap_or(&host);
    let path = std::str::from_utf8(head.path()).unwrap();
    let fits = |(index, route): (usize, &Route)| {
        let asked = &route.matches;
        let host_rank = host_rank(&asked.hosts, host)?;
        let path_rank = path_rank(asked.path.as_ref(), path)?;
        let holds = (asked.methods.is_empty() || asked.methods.iter().any(|m| m.as_bytes() == head.method_bytes()))
            && (asked.sources.is_empty() || asked.sources.iter().any(|source| source.contains(client)))
            && values_hold(asked, head);
        let more = (Reverse(asked.headers.len()), Reverse(asked.query.len()), Reverse(asked.cookies.len()));
        let rank = (Reverse(route.priority), host_rank, path_rank, asked.methods.is_empty(), more);
        holds.then_some((rank, asked.sources.is_empty(), index))
    };
    routes.iter().enumerate().filter_map(fits).min().map(|(_, _, index)| index)
}

fn host_rank(patterns: &[HostPattern], host: &str) -> Option<(u8, Reverse<usize>)> {
    let rank = |pattern: &HostPattern| match pattern {
        HostPattern::Exact(name) => (name.trim_end_matches('.') == host).then_some((0, Reverse(0))),
        HostPattern::Suffix(_) if pattern.matches(host) => Some((1, Reverse(pattern.to_string().len()))),
        HostPattern::Suffix(_) => None,
    };
    if patterns.is_empty() { Some((2, Reverse(0))) } else { patterns.iter().filter_map(rank).min() }
}

fn path_rank(asked: Option<&PathMatch>, path: &str) -> Option<(u8, Reverse<usize>)> {
    match asked {
        None => Some((3, Reverse(0))),
        Some(PathMatch::Exact(text)) => (text == path).then_some((0, Reverse(0))),
        Some(PathMatch::Prefix(text)) if text == "/" => path.starts_with('/').then_some((3, Reverse(0))),
        Some(PathMatch::Prefix(text)) => {
            let text = text.strip_suffix('/').unwrap_or(text);
            let fits = path == text || path.starts_with(&format!("{text}/"));
            fits.then_some((1, Reverse(text.len())))
        }
        Some(PathMatch::Regex(text)) => {
            let regex = regex::Regex::new(&format!("^({text})$")).unwrap();
            regex.is_match(path).then_some((2, Reverse(0)))
        }
    }
}

/// The generated values hold no escapes, and no name occurs twice in a request.
fn values_hold(asked: &Match, head: &RequestHead) -> bool {
    let query = std::str::from_utf8(head.query().unwrap_or_default()).unwrap();
    let holds = |test: &ValueTest, value: Option<&str>| match test {
        ValueTest::Present => value.is_some(),
        ValueTest::Absent => value.is_none(),
        ValueTest::Exact(text) => value == Some(text),
        ValueTest::Regex(_) => value.is_some_and(|value| value.starts_with('1')),
    };
    let field = |name: &str| {
        let value = head.fields.get(&model::FieldName::new(name).unwrap());
        value.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    };
    let in_list = |list: &str, sign: char, name: &str| {
        let mut pairs = list.split(sign).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    let cookies = field("cookie").unwrap_or_default();
    asked.headers.iter().all(|c| holds(&c.test, field(&c.name).as_deref()))
        && asked.query.iter().all(|c| holds(&c.test, in_list(query, '&', &c.name).as_deref()))
        && asked.cookies.iter().all(|c| holds(&c.test, in_list(&cookies, ';', &c.name).as_deref()))
}

fn any_path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![6 => Just("a"), 2 => Just("b"), 1 => select(vec!["ab", "", "."])];
    vec(segment, 0..4).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn any_path_match() -> impl Strategy<Value = PathMatch> {
    prop_oneof![
        any_path().prop_map(PathMatch::Exact),
        any_path().prop_map(PathMatch::Prefix),
        Just(PathMatch::Prefix("/".into())),
        select(vec!["/a.*", "/(a|ab)/b", ".*b", "/[^/]*"]).prop_map(|text| PathMatch::Regex(text.into())),
    ]
}

fn any_tests() -> impl Strategy<Value = Vec<ValueMatch>> {
    let test = prop_oneof![
        Just(ValueTest::Present),
        Just(ValueTest::Absent),
        Just(ValueTest::Exact("1".into())),
        Just(ValueTest::Regex("1.*".into())),
    ];
    let one = (select(vec!["x", "y"]), test).prop_map(|(name, test)| value(name, test));
    prop_oneof![5 => Just(vec![]), 1 => vec(one, 1..3)]
}

const PATTERNS: &[&str] =
    &["a.com", "b.a.com", "c.b.a.com", "*.com", "*.a.com", "*.b.a.com", "a.com.", "com", "*.org", "a..com"];

#[test]
fn more_conditions_on_values_of_a_proxy_header_win_and_hold_for_what_was_sent() {
    let told = |names: &[&str]| Match {
        proxy_tlvs: names.iter().map(|name| value(name, ValueTest::Exact("shop".into()))).collect(),
        ..Match::default()
    };
    let plan = plan_of(numbered(vec![Match::default(), told(&["authority"]), told(&["authority", "0xe0"])]));
    let found = |kinds: &[u8], text: &[u8]| {
        let mut tlvs = SenderTlvs::default();
        kinds.iter().for_each(|kind| tlvs.add(*kind, text));
        let sender = SenderFacts { address: "10.0.0.1:4".parse().unwrap(), unique_id: None, tlvs };
        let caller = Caller { client: "10.1.2.3".parse().unwrap(), sender: Some(&sender), seen: None };
        router(&plan).find(&head("GET", "/", &[]), caller, &mut Vec::new()).map(|route| route.index)
    };
    assert_eq!([found(&[], b""), found(&[2], b"shop"), found(&[2, 0xe0], b"shop")], [Some(0), Some(1), Some(2)]);
    assert_eq!([found(&[2], b"shops"), found(&[0xe0], b"shop")], [Some(0), Some(0)]);
}

fn any_match() -> impl Strategy<Value = Match> {
    let hosts = prop_oneof![2 => Just(vec![]), 1 => Just(vec!["*.com"]), 2 => subsequence(PATTERNS, 1..3)];
    let methods = prop_oneof![1 => Just(vec![]), 1 => subsequence(vec!["GET", "POST", "BREW"], 1..3)];
    let sources = prop_oneof![3 => Just(vec![]), 1 => subsequence(vec!["10.0.0.0/8", "10.1.0.0/16", "::/0"], 1..3)];
    let parts = (hosts, option::of(any_path_match()), methods, any_tests(), any_tests(), any_tests(), sources);
    parts.prop_map(|(hosts, path, methods, headers, query, cookies, sources)| Match {
        hosts: hosts.iter().map(|text| text.parse().unwrap()).collect(),
        path,
        methods: methods.into_iter().map(str::to_owned).collect(),
        headers,
        query,
        cookies,
        // Asked for alone below: they do not depend on the head.
        proxy_tlvs: Vec::new(),
        sources: sources.iter().map(|text| text.parse().unwrap()).collect(),
        body: None,
        expression: None,
    })
}

fn any_request() -> impl Strategy<Value = (RequestHead, IpAddr)> {
    const HOSTS: &[&str] =
        &["a.com", "A.Com:80", "b.a.com.", "c.b.a.com", "d.c.b.a.com", "x.com", "com", "", "[::1]:1", "a..com", ".com"];
    let values = || option::of(select(vec!["1", "12", "2", ""]));
    let parts = (
        select(vec!["GET", "POST", "BREW", "get"]),
        select(HOSTS),
        prop_oneof![9 => any_path(), 1 => Just("*".to_owned())],
        [values(), values(), values(), values(), values(), values()],
        select(vec!["10.1.2.3", "10.2.2.3", "192.0.2.1", "2001:db8::1"]),
    );
    parts.prop_map(|(method, host, path, [hx, hy, qx, qy, cx, cy], client)| {
        let pairs = |x: Option<&str>, y: Option<&str>, sign: &str| {
            let texts = [x.map(|value| format!("x={value}")), y.map(|value| format!("y={value}"))];
            texts.into_iter().flatten().collect::<Vec<_>>().join(sign)
        };
        let (query, cookies) = (pairs(qx, qy, "&"), pairs(cx, cy, "; "));
        let target = if query.is_empty() { path } else { format!("{path}?{query}") };
        let mut fields = vec![("Host", host)];
        fields.extend(hx.map(|value| ("X", value)));
        fields.extend(hy.map(|value| ("y", value)));
        if !cookies.is_empty() {
            fields.push(("Cookie", &cookies));
        }
        (head(method, &target, &fields), client.parse().unwrap())
    })
}

proptest! {
    #![proptest_config(Config { cases: 1_500, failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_router_finds_what_the_rules_read_aloud_say(
        matches in vec((any_match(), prop_oneof![4 => Just(0), 1 => -1..3]), 0..14),
        requests in vec(any_request(), 1..16),
    ) {
        let priorities: Vec<i32> = matches.iter().map(|(_, priority)| *priority).collect();
        let mut routes = numbered(matches.into_iter().map(|(matches, _)| matches).collect());
        for (route, priority) in routes.iter_mut().zip(priorities) {
            route.priority = priority;
        }
        let plan = plan_of(routes.clone());
        let mut scratch = Vec::new();
        for (head, client) in requests {
            let found = router(&plan).find(&head, client, &mut scratch).map(|route| route.index);
            prop_assert_eq!(found, read_aloud(&routes, &head, client), "{:?} {:?}", head, client);
        }
    }
}
