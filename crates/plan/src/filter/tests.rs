//! The framework, the variables and the six header filters.

use std::collections::HashSet;

use model::Facts;
use model::facts::SenderFacts;
use model::matching::{Match, PathMatch, When};
use model::proxy_protocol::SenderTlvs;
use serde_json::json;

use super::testing::{
    Beside, World, answered, chain, flow_of, issue, listed, passed, passed_with, request, response, returned,
    returned_with, uses,
};
use super::variables::{Stage, Values, variables};
use super::*;
use crate::jose::Claims;

#[test]
fn every_filter_is_described_and_its_schema_stands_alone() {
    let mut names = HashSet::new();
    for spec in specs() {
        assert!(names.insert(spec.name), "{} twice", spec.name);
        assert!(spec.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", spec.name);
        let (summary, rest) = spec.doc.split_once('\n').unwrap();
        assert!(summary.ends_with('.') && rest.starts_with('\n'), "{}: the summary is its first line", spec.name);
        assert_eq!(spec.doc.matches("```yaml\nfilters:\n").count(), 1, "{}: one example", spec.name);
        assert!(spec.doc.contains(&format!("  - {}:", spec.name)), "{}: the example shows it", spec.name);
        let schema = (spec.schema)();
        assert!(!schema.to_string().contains("$ref") && schema.get("$schema").is_none(), "{schema}");
        assert!(schema["description"].is_string() && schema["type"].is_string(), "{schema}");
        assert!((spec.check)(&json!(null)).is_err(), "{}: settings are needed", spec.name);
    }
}

#[test]
fn an_unknown_filter_is_reported_with_the_nearest_name_and_all_others_with_their_own_place() {
    let filters = json!([
        { "set_request_headr": { "a": "b" } },
        { "cors": { "allow_origins": ["*"] } },
        { "remove_request_header": ["x y"] },
    ]);
    let issues = Chain::compile(&uses(&filters), None).unwrap_err();
    let texts: Vec<_> = issues.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "0/set_request_headr: there is no filter `set_request_headr` (did you mean `set_request_header`?)",
            "2/remove_request_header/0: `x y` is not a header field name",
        ]
    );
}

#[test]
fn an_empty_chain_holds_no_step() {
    let empty = Chain::compile(&[], None).unwrap();
    assert!(empty.is_empty() && !empty.has_response_steps());
    let one_way = chain(json!([{ "remove_request_header": ["a"] }]));
    assert!(!one_way.is_empty() && !one_way.has_response_steps());
    assert!(chain(json!([{ "remove_response_header": ["a"] }])).has_response_steps());
    assert_eq!(format!("{one_way:?}"), "Chain { request: 1, response: 0 }");
}

#[test]
fn steps_run_in_the_order_of_the_list_in_both_directions() {
    let chain = chain(json!([
        { "set_request_header": { "a": "1", "b": "{request_header:a}2" } },
        { "set_request_header": { "a": "3{request_header:b}" } },
        { "set_response_header": { "a": "1" } },
        { "set_response_header": { "a": "2{response_header:a}" } },
    ]));
    let request = passed(&chain, request("GET", "/", &[]));
    assert_eq!(listed(&request.fields), "a: 312|b: 12");
    assert_eq!(listed(&returned(&chain, &request, response(200, &[])).fields), "a: 21");
}

#[test]
fn no_step_runs_after_one_that_answers() {
    let chain = chain(json!([
        { "rewrite": { "host": "{request_header:x-tenant}" } },
        { "set_request_header": { "late": "1" } },
    ]));
    let mut head = request("GET", "/", &[]);
    assert_eq!(answered(&chain, &mut head).status, 400);
    assert_eq!(listed(&head.fields), "");
}

#[test]
fn setting_replaces_what_the_client_sent_and_adding_keeps_it() {
    let sent = || request("GET", "/", &[("X-User", "root"), ("accept", "*/*"), ("x-user", "admin")]);
    let set = chain(json!([{ "set_request_header": { "x-user": "ann" } }]));
    assert_eq!(listed(&passed(&set, sent()).fields), "X-User: ann|accept: */*");
    let add = chain(json!([{ "add_request_header": { "x-user": "ann" } }]));
    assert_eq!(listed(&passed(&add, sent()).fields), "X-User: root|accept: */*|x-user: admin|x-user: ann");
    let remove = chain(json!([{ "remove_request_header": ["X-USER", "absent"] }]));
    assert_eq!(listed(&passed(&remove, sent()).fields), "accept: */*");
}

#[test]
fn what_endpoints_could_read_as_a_field_that_is_set_or_removed_goes_with_it() {
    let sent = || request("GET", "/", &[("X_User", "root"), ("x-user", "root"), ("x-users", "2"), ("x_USER", "root")]);
    let set = chain(json!([{ "set_request_header": { "x-user": "ann" } }]));
    assert_eq!(listed(&passed(&set, sent()).fields), "x-user: ann|x-users: 2");
    let emptied = chain(json!([{ "set_request_header": { "x-user": "{cookie:none}" } }]));
    assert_eq!(listed(&passed(&emptied, sent()).fields), "x-users: 2");
    let remove = chain(json!([{ "remove_request_header": ["x-user", "x_user"] }]));
    assert_eq!(listed(&passed(&remove, sent()).fields), "x-users: 2");
    let covers = |chain: &Chain, name: &str| chain.guarded().iter().any(|guarded| guarded.covers(name.as_bytes()));
    for chain in [&set, &remove] {
        assert!(covers(chain, "X-User") && covers(chain, "x_user") && !covers(chain, "x-users"));
    }
    // Of what only adds nothing is said, and of responses apart.
    let others = chain(json!([
        { "add_request_header": { "x-user": "ann" } },
        { "set_response_header": { "x-a": "1" } },
    ]));
    assert!(others.guarded().is_empty());
    assert_eq!(others.guarded_response().len(), 1);
    assert!(listed(&passed(&others, sent()).fields).starts_with("X_User: root|x-user: root|"));
    let reply = returned(&others, &sent(), response(200, &[("x_a", "0")]));
    assert_eq!(listed(&reply.fields), "x_a: 0|x-a: 1");
}

#[test]
fn fields_are_removed_by_a_part_of_their_names_but_never_the_framing() {
    let fields: Vec<(&str, &str)> =
        ["Host", "X-Internal-User", "x_internal_role", "X-Internal", "Content-Length", "Content-Type", "My-Token"]
            .map(|name| (name, "1"))
            .into();
    let removed = |patterns: &[&str]| {
        let filters = chain(json!([{ "remove_request_header": patterns }]));
        let left = passed(&filters, request("GET", "/", &fields)).fields;
        let names = left.iter().map(|field| String::from_utf8_lossy(field.name).into_owned());
        let gone = |name: &str| !left.iter().any(|field| field.name == name.as_bytes());
        (names.count(), fields.iter().filter(|(name, _)| gone(name)).map(|(name, _)| *name).collect::<Vec<_>>())
    };
    assert_eq!(removed(&["x-internal-*"]), (5, vec!["X-Internal-User", "x_internal_role"]));
    assert_eq!(removed(&["*-token", "x-internal"]), (5, vec!["X-Internal", "My-Token"]));
    assert_eq!(removed(&["*o*"]), (4, vec!["x_internal_role", "Content-Type", "My-Token"]));
    let reply = response(200, &[("x-a-1", "1"), ("X_A_2", "1"), ("content-length", "0"), ("X-A-3", "1")]);
    let filters = chain(json!([{ "remove_response_header": ["x-a-*", "*length"] }]));
    assert_eq!(listed(&returned(&filters, &request("GET", "/", &[]), reply).fields), "X_A_2: 1|content-length: 0");
    let filters = chain(json!([{ "remove_request_header": ["x-internal-*"] }]));
    let covers = |name: &str| filters.guarded().iter().any(|guarded| guarded.covers(name.as_bytes()));
    assert!(covers("X_Internal_Role") && !covers("x-internal"));
    for (name, told) in [
        ("*", "0: `*` matches every name (write a name, or a part of one with `*`, such as `x-internal-*`)"),
        ("a*b", "0: `a*b` has a `*` in the middle (write `*` at the beginning, at the end, or both)"),
        ("x y*", "0: `x y*` matches no header field name"),
    ] {
        assert_eq!(issue("remove_request_header", json!([name])), told);
    }
}

#[test]
fn responses_are_changed_likewise_and_see_the_request() {
    let request = request("GET", "/a?b", &[("Host", "Shop.example.com:81")]);
    let sent = || response(404, &[("Server", "origin/1"), ("vary", "accept")]);
    let filters = chain(json!([
        { "remove_response_header": ["server"] },
        { "add_response_header": { "vary": "cookie" } },
        { "set_response_header": { "x-from": "{status} {cluster} {endpoint} {host} {uri} {response_header:vary}" } },
    ]));
    assert_eq!(
        listed(&returned(&filters, &request, sent()).fields),
        "vary: accept|vary: cookie|x-from: 404 api 127.0.0.1:9001 Shop.example.com /a?b accept, cookie"
    );
}

#[test]
fn a_condition_of_a_response_filter_looks_at_the_request_when_it_is_its_turn() {
    let matches = Match { path: Some(PathMatch::Prefix("/account".into())), ..Match::default() };
    let below = When { matches, ..When::default() };
    let mut filters = uses(&json!([
        { "set_response_header": { "x-before": "1" } },
        { "set_response_header": { "x-not": "1" } },
        { "rewrite": { "path": { "prefix": { "from": "/account", "to": "/" } } } },
        { "set_response_header": { "x-after": "1" } },
    ]));
    filters[0].when = Some(below.clone());
    filters[1].when = Some(When { not: Some(Box::new(below.clone())), ..When::default() });
    filters[3].when = Some(below);
    let chain = Chain::compile(&filters, None).unwrap();
    let mut own = passed_with(&chain, request("GET", "/account/me", &[]));
    assert_eq!(own.0.path(), b"/me");
    assert_eq!(listed(&returned_with(&chain, &mut own, response(200, &[])).fields), "x-before: 1");
    let mut other = passed_with(&chain, request("GET", "/other", &[]));
    assert_eq!(listed(&returned_with(&chain, &mut other, response(200, &[])).fields), "x-not: 1");
    // Where no filter had its turn, it is asked for what is there.
    let unseen = request("GET", "/account", &[]);
    assert_eq!(listed(&returned(&chain, &unseen, response(500, &[])).fields), "x-before: 1|x-after: 1");
}

#[test]
fn a_local_answer_has_neither_cluster_nor_endpoint() {
    let filters =
        chain(json!([{ "set_response_header": { "x-from": "{cluster}{endpoint}", "x-status": "{status}" } }]));
    let (world, request) = (World::new(), request("GET", "/", &[]));
    let view = ResponseView {
        request: &request,
        cluster: None,
        endpoint: None,
        source: ResponseSource::Local(None),
        elapsed: <_>::default(),
    };
    let mut head = response(503, &[("x-from", "forged")]);
    filters.on_response(&mut head, &view, &mut Beside::new().turn(&world.facts()));
    assert_eq!(listed(&head.fields), "x-status: 503");
}

#[test]
fn a_value_that_turns_out_empty_takes_the_field_away() {
    let set = chain(json!([{ "set_request_header": { "x-subject": "{tls_client_subject}" } }]));
    let sent = || request("GET", "/", &[("x-subject", "CN=forged"), ("cookie", "a= ")]);
    assert_eq!(listed(&passed(&set, sent()).fields), "cookie: a= ");
    let world = World::new();
    let mut head = sent();
    flow_of(&set, &mut head, &world.tls_facts());
    assert_eq!(listed(&head.fields), "x-subject: CN=ann|cookie: a= ");
    let add = chain(json!([{ "add_request_header": { "x-a": " {cookie:a} " } }]));
    assert_eq!(listed(&passed(&add, sent()).fields), "x-subject: CN=forged|cookie: a= ");
}

#[test]
fn a_variable_cannot_begin_a_new_field() {
    let filters = chain(json!([
        { "set_request_header": { "x-q": "{query_param:q}", "x-path": "{path}" } },
        { "set_response_header": { "x-q": "{query_param:q}" } },
    ]));
    let head = passed(&filters, request("GET", "/\r\nevil: 1\0?q=a\r\nEvil:%0d%0a1\r\n", &[]));
    assert_eq!(listed(&head.fields), "x-q: a  Evil:%0d%0a1|x-path: /  evil: 1");
    assert_eq!(listed(&returned(&filters, &head, response(200, &[])).fields), "x-q: a  Evil:%0d%0a1");
}

#[test]
fn every_variable_is_written() {
    let world = World::new();
    let target = "/p/q?a=1&%62%20c=%0d2&b+c=3&flag&=e";
    let fields =
        [("host", "[::1]:8443"), ("accept", "x"), ("cookie", "k=1; k2=a=b"), ("Cookie", "k3=3;k=9"), ("Accept", "y")];
    let head = request("MKCOL", target, &fields);
    let mut tlvs = SenderTlvs::default();
    tlvs.add(0xea, b"\x01vpce-1");
    let sender = SenderFacts { address: "10.0.0.1:4".parse().unwrap(), unique_id: Some((*b"id-7").into()), tlvs };
    let facts = Facts { sender: Some(&sender), user: Some(b"ann"), ..world.tls_facts() };
    let reply = response(418, &[("x-r", "1"), ("X-R", "2")]);
    let mut notes = Notes::default();
    let claims = json!({ "sub": "ann", "groups": ["a", "b"], "realm": { "role": "clerk" } });
    notes.set_claims(Claims::from_json(claims.to_string().as_bytes()).unwrap().into());
    let told = Claims::from_json(br#"{"team":"red","org":{"id":7}}"#).unwrap();
    notes.add_metadata(0, Box::new(told));
    notes.set_user(b"ann");
    notes.raise_limit(LimitStatus::Delayed);
    (0..2).for_each(|_| notes.count_redirect());
    notes.set_cache_status(CacheStatus::Hit);
    let values = Values::of_response(&reply, &world.view(&head), &facts).with_notes(&notes);
    let mut told = String::new();
    for (text, expected) in [
        ("{client_ip} {client_port} {peer_ip} {local_ip} {local_port}", "192.0.2.7 40000 192.0.2.7 127.0.0.1 8080"),
        ("{sender_ip} {sender_id} {proxy_tlv:aws_vpce_id} {proxy_tlv:0xe1}.", "10.0.0.1 id-7 vpce-1 ."),
        ("{scheme} {host} {method} {path}", "https [::1] MKCOL /p/q"),
        ("{received_host}", "[::1]:8443"),
        ("{query}", "a=1&%62%20c=%0d2&b+c=3&flag&=e"),
        ("{uri} {listener} {request_id}", "/p/q?a=1&%62%20c=%0d2&b+c=3&flag&=e web id-1"),
        ("{tls_version} {tls_cipher}", "TLSv1.3 TLS13_AES_128_GCM_SHA256"),
        ("{tls_server_name} {tls_client_subject} {user}", "shop.example.com CN=ann ann"),
        ("{tls_client_issuer} {tls_client_dns} {tls_client_uri}.", "CN=us a.example spiffe://a.example/b."),
        ("{claim:sub} {claim:groups} {claim:realm.role} {claim:none}.", "ann a,b clerk ."),
        ("{ext_authz:team} {ext_authz:org.id} {ext_authz:none}.", "red 7 ."),
        ("{request_header:ACCEPT} {request_header:cookie}", "x, y k=1; k2=a=b; k3=3;k=9"),
        ("{query_param:a} {query_param:b c} {query_param:flag}.", "1 %0d2 ."),
        ("{cookie:k} {cookie:k2} {cookie:k3} {cookie:K}.", "1 a=b 3 ."),
        ("{limit_status} {redirects} {cache_status}", "delayed 2 hit"),
        ("{status} {response_header:x-r} {cluster} {endpoint}", "418 1, 2 api 127.0.0.1:9001"),
    ] {
        let mut out = Vec::new();
        Template::compile(text, Stage::Response).unwrap().write(&values, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{text}");
        told += text;
    }
    for name in variables().map(|spec| spec.name) {
        assert!(told.contains(&format!("{{{name}}}")) || told.contains(&format!("{{{name}:")), "{name} is not tried");
    }
}

#[test]
fn a_client_told_by_a_proxy_has_an_address_but_no_port() {
    let world = World::new();
    let facts = Facts { client: "::ffff:203.0.113.9".parse().unwrap(), ..world.facts() };
    let head = request("GET", "/", &[]);
    let mut out = Vec::new();
    let template = Template::compile("{client_ip}:{client_port}", Stage::Request).unwrap();
    template.write(&Values::of_request(&head, &facts), &mut out);
    assert_eq!(out, b"203.0.113.9:");
}

#[test]
fn a_broken_query_or_cookie_is_just_absent() {
    let template = Template::compile("{query_param:a}{cookie:a}.", Stage::Request).unwrap();
    let world = World::new();
    let facts = world.facts();
    for (target, cookie) in [("/?", ""), ("/?&&&=&%", ";;=;"), ("/?%6", "a"), ("/?a%", " = "), ("*", "\t")] {
        let head = request("GET", target, &[("cookie", cookie)]);
        let mut out = Vec::new();
        template.write(&Values::of_request(&head, &facts), &mut out);
        assert_eq!(out, b".", "{target} {cookie}");
    }
}

#[test]
fn a_mistake_in_a_template_names_the_mend() {
    let of = |value: &str| issue("set_request_header", json!({ "x-a": value }));
    assert_eq!(of("{client_iq}"), "x-a: there is no variable `{client_iq}` (did you mean `client_ip`?)");
    assert!(of("{nonsense}").contains("(there are 32, such as `"), "{}", of("{nonsense}"));
    assert!(!of("{nonsense}").contains("endpoint"), "a request step has no endpoint to name");
    assert!(of("{status}").starts_with("x-a: `{status}` has no value before there is a response"));
    assert!(of("{host:x}").ends_with("takes no argument (write {host})"));
    assert!(of("{cookie}").ends_with("(write {cookie:NAME})"));
    assert!(of("{cookie:}").ends_with("(write {cookie:NAME})"));
    assert!(of("{request_header:a b}").contains("`a b` is not a header field name"));
    assert!(of("{").contains("never closed"));
    assert!(of("a\r\nb: c").contains("cannot hold line breaks"));
    assert!(of("a{host}\0").contains("cannot hold line breaks"));
    assert!(of(" ").contains("the value is empty"));
}

#[test]
fn fields_of_framing_and_connection_cannot_be_changed() {
    for name in
        ["Content-Length", "transfer-encoding", "connection", "TE", "upgrade", "keep-alive", "trailer", "expect"]
    {
        for filter in ["set_request_header", "add_request_header"] {
            assert!(issue(filter, json!({ name: "1" })).contains("cannot be changed by a filter"), "{filter} {name}");
        }
        assert!(issue("remove_request_header", json!(["a", name])).starts_with("1: "), "{name}");
    }
    for name in ["content-length", "Transfer-Encoding", "connection", "Proxy-Connection", "upgrade"] {
        assert!(issue("set_response_header", json!({ name: "1" })).contains("cannot be changed"), "{name}");
        assert!(issue("add_response_header", json!({ name: "1" })).contains("cannot be changed"), "{name}");
        assert!(issue("remove_response_header", json!([name])).contains("cannot be changed"), "{name}");
    }
    assert!(issue("set_request_header", json!({ "host": "a" })).contains("(use the filter rewrite"));
}

#[test]
fn bad_names_and_twins_are_refused() {
    for name in ["", "a b", ":path", "a:", "x\r\ny", "ä"] {
        assert!(issue("set_request_header", json!({ name: "1" })).contains("is not a header field name"), "{name}");
        assert!(issue("remove_response_header", json!([name])).contains("is not a header field name"), "{name}");
    }
    assert!(issue("set_request_header", json!({ "x-a": "1", "X-A": "2" })).starts_with("X-A: `X-A` is listed twice"));
    assert!(issue("remove_request_header", json!(["a", "A"])).starts_with("1: `A` is listed twice"));
    assert_eq!(
        issue("set_request_header", json!({ "x-a": "1", "X_A": "2" })),
        "X_A: many endpoints read `X_A` and `x-a`, listed earlier, as the same field (keep one of them)"
    );
    let both = json!([
        { "add_request_header": { "x-a": "1", "x_a": "2" } },
        { "set_response_header": { "a-b": "1", "a_b": "2" } },
    ]);
    assert!(Chain::compile(&uses(&both), None).is_ok());
    assert!(issue("remove_request_header", json!([])).starts_with(": the list is empty"));
    assert!(issue("add_response_header", json!({})).starts_with(": no field is named"));
}

#[test]
fn what_the_schema_forbids_is_an_issue_here_too() {
    assert!(issue("set_request_header", json!({ "x-a": "1", "x-b": 2 })).contains("invalid type"));
    assert!(issue("set_request_header", json!(["x-a"])).contains("expected a mapping"));
    assert!(issue("remove_request_header", json!(["a", null])).contains("invalid type"));
}

#[test]
fn durations_are_numbers_with_units_from_the_longest_down() {
    use std::time::Duration;
    let read = |text: &str| serde_json::from_value::<settings::DurationText>(json!(text)).ok().map(|read| read.0);
    for (text, millis) in [("250ms", 250), ("90s", 90_000), ("1m30s", 90_000), ("1h5ms", 3_600_005)] {
        assert_eq!(read(text), Some(Duration::from_millis(millis)), "{text}");
    }
    assert_eq!(read("8760h"), Some(Duration::from_secs(8_760 * 3_600)));
    for bad in ["", "s", "1", "-1s", "1.5s", "1 s", "1S", "1d", "１s", "0s", "30s1m", "1s1s", "8761h", "99999999999h"]
    {
        assert_eq!(read(bad), None, "{bad}");
    }
}

#[test]
fn every_variable_can_be_found_by_its_name() {
    for spec in variables() {
        let argument = if spec.name == "proxy_tlv" { "alpn" } else { "x" };
        let argument = spec.takes_name.then_some(argument);
        assert!(super::variables::Variable::find(spec.name, argument, Stage::Response).is_ok(), "{}", spec.name);
        assert!(spec.doc.ends_with('.'), "{}", spec.name);
    }
}

#[test]
fn header_steps_reuse_the_memory_of_the_exchange_before() {
    let filters = chain(json!([
        { "set_request_header": { "x-a": "{client_ip} {request_header:user-agent} {uri}", "x-b": "2" } },
        { "add_request_header": { "x-c": "{host}" } },
    ]));
    let world = World::new();
    let (mut beside, mut capacities) = (Beside::new(), HashSet::new());
    let model = request("GET", "/a?b=c", &[("host", "h"), ("user-agent", "tester")]);
    let mut head = RequestHead::default();
    for _ in 0..3 {
        head.clear();
        let start = head.fields.load(b"GET/a?b=c");
        let span = |from, to| model::fields::Span::new(start + from, start + to);
        head.set_line(span(0, 3), span(3, 9), model.version);
        for field in model.fields.iter() {
            let name = model::FieldName::new(str::from_utf8(field.name).unwrap()).unwrap();
            head.fields.append(&name, field.value);
        }
        assert_eq!(filters.on_request(&mut head, &mut beside.turn(&world.facts())), Flow::Continue);
        capacities.insert((head.fields.capacity_bytes(), beside.scratch_capacity()));
    }
    assert_eq!(capacities.len(), 1, "{capacities:?}");
    assert!(listed(&head.fields).ends_with("x-a: 192.0.2.7 tester /a?b=c|x-b: 2|x-c: h"), "{:?}", head.fields);
}
