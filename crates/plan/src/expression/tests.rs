use proptest::prelude::*;

use model::facts::{ClientNames, TlsFacts};
use model::fields::Span as FieldSpan;
use model::{Facts, FieldName, Name, RequestHead, Scheme, Version};

use super::parser::parse;
use super::syntax::{Call, Kind, Operator, Term};
use super::trouble::Span;
use super::*;
use crate::filter::Notes;

/// A request over TLS with a few of everything.
fn with_subject<R>(look: impl FnOnce(Subject<'_>) -> R) -> R {
    let mut head = RequestHead::default();
    let mut load = |text: &str| {
        let start = head.fields.load(text.as_bytes());
        FieldSpan::new(start, start + text.len())
    };
    let (method, target) = (load("GET"), load("/api/v1/users?page=2&name=a%20b+c&page=3"));
    head.set_line(method, target, Version::Http2);
    for (name, value) in [
        ("Host", "Shop.Example.com:8443"),
        ("X-A", "one"),
        ("x-a", "two,three"),
        ("cookie", "id=7; theme=dark"),
        ("user-agent", "curl/8.0"),
        ("content-length", "1048577"),
        ("x-real-ip", "10.1.2.3"),
        ("x-number", "42"),
        ("x-empty", ""),
    ] {
        head.fields.append(&FieldName::new(name).unwrap(), value.as_bytes());
    }
    let tls = TlsFacts {
        server_name: Some("shop.example.com".into()),
        version: "TLSv1.3",
        cipher: "TLS13_AES_128_GCM_SHA256",
        client_subject: Some("CN=ann".into()),
        client_common_name: Some("ann".into()),
        alpn: Some("h2"),
        client_names: Some(Box::new(ClientNames {
            dns: vec!["a.example".into(), "b".into()],
            ..ClientNames::default()
        })),
    };
    let listener = Name::from("web");
    let facts = Facts {
        peer: "192.0.2.7:40000".parse().unwrap(),
        client: "192.0.2.7".parse().unwrap(),
        local: "127.0.0.1:8443".parse().unwrap(),
        scheme: Scheme::Https,
        tls: Some(&tls),
        sender: None,
        listener: &listener,
        request_id: "id-1",
        user: None,
    };
    let mut notes = Notes::default();
    notes.set_user(b"ann");
    let claims =
        br#"{"sub": "7", "roles": ["user", "admin", 5], "age": 42, "scope": "read write", "org": {"id": true}, "tenant": null}"#;
    notes.set_claims(std::sync::Arc::new(crate::jose::Claims::from_json(claims).unwrap()));
    notes.set_body(
        br#"{"model": "gpt\u002d4", "n": 3, "on": true, "none": null, "messages": [{"role": "user"}, {"role": "tool"}],
            "tags": ["a", 5, "b,c", {}], "user": {"id": 7}, "a.b": "dotted", "": "empty", "/x": "slash"}"#
            .as_slice()
            .into(),
    );
    look(Subject::of_request(&head, &facts).with_notes(&notes))
}

fn holds(text: &str) -> bool {
    let condition = Condition::compile(text, Scope::Request).unwrap_or_else(|issue| panic!("{text}: {issue}"));
    with_subject(|of| {
        let mut scratch = b"kept".to_vec();
        let holds = condition.is_true(of, &mut scratch);
        assert_eq!(scratch, b"kept", "{text}");
        holds
    })
}

fn value_of(text: &str) -> String {
    let value = Value::compile(text, Scope::Request).unwrap_or_else(|issue| panic!("{text}: {issue}"));
    with_subject(|of| {
        let (mut scratch, mut out) = (b"kept".to_vec(), Vec::new());
        value.write(of, &mut scratch, &mut out);
        assert_eq!(scratch, b"kept");
        value.fill(of, &mut scratch);
        assert_eq!(scratch, out, "{text}");
        String::from_utf8(out).unwrap()
    })
}

/// Message, suggestion and the marked part of a text that is wrong.
fn wrong(text: &str, scope: Scope) -> (String, String, String) {
    let issue = Condition::compile(text, scope).map(drop).expect_err(text);
    let (start, end) = issue.part.unwrap();
    let marked = text.get(start..end.min(text.len())).unwrap_or_else(|| panic!("{text}: {start}..{end}"));
    (issue.message, issue.suggestion.unwrap_or_default(), marked.to_owned())
}

#[test]
fn facts_have_their_values() {
    for (text, wanted) in [
        ("request.method", "GET"),
        ("request.path", "/api/v1/users"),
        ("request.query_string", "page=2&name=a%20b+c&page=3"),
        ("request.query[\"name\"]", "a b c"),
        ("request.query.page", "2"),
        ("request.uri", "/api/v1/users?page=2&name=a%20b+c&page=3"),
        ("request.host", "Shop.Example.com"),
        ("request.authority", "Shop.Example.com:8443"),
        ("request.scheme", "https"),
        ("request.protocol", "HTTP/2"),
        ("request.id", "id-1"),
        ("request.user", "ann"),
        ("request.headers[\"x-a\"]", "one, two,three"),
        ("request.headers[\"missing\"]", ""),
        ("request.cookies[\"theme\"]", "dark"),
        ("request.useragent", "curl/8.0"),
        ("request.size", "1048577"),
        ("source.address", "192.0.2.7"),
        ("source.port", "40000"),
        ("destination.port", "8443"),
        ("connection.mtls", "true"),
        ("connection.tls_version", "TLSv1.3"),
        ("connection.subject_peer_certificate", "CN=ann"),
        ("connection.common_name_peer_certificate", "ann"),
        ("connection.dns_san_peer_certificate + connection.uri_san_peer_certificate", ""),
        ("connection.alpn", "h2"),
        ("connection.sender_id", ""),
        ("connection.sender_address", ""),
        ("jwt.claims[\"sub\"]", "7"),
        ("jwt.claims.roles", "user,admin,5"),
        ("jwt.claims[\"org.id\"] + jwt.claims.age", "true42"),
        ("jwt.claims.org", ""),
        ("listener.name", "web"),
    ] {
        assert_eq!(value_of(text), wanted, "{text}");
    }
}

#[test]
fn operators_and_functions_give_what_cel_says() {
    for (text, wanted) in [
        ("request.host.lowerAscii()", "shop.example.com"),
        ("\"a\" + request.method + 'b'", "aGETb"),
        ("string(1 + 2 * 3 - 4 / 2 % 3)", "5"),
        ("1.5 + double(1)", "2.5"),
        ("-request.size", "-1048577"),
        ("request.size > quantity(\"1MiB\") ? \"large\" : \"small\"", "large"),
        ("int(request.headers[\"x-number\"]) + 1", "43"),
        ("int(request.headers[\"x-a\"])", ""),
        ("1 / (request.size - request.size)", ""),
        ("9223372036854775807 + 1", ""),
        ("duration(\"1m30s\") + duration(\"500ms\")", "90.5s"),
        ("duration(\"1m30s\").getMilliseconds()", "90000"),
        ("request.path.split(\"/\")[2]", "v1"),
        ("request.path.split(\"/\")[9]", ""),
        ("request.path.split(\"/\").size()", "4"),
        ("request.path.substring(5)", "v1/users"),
        ("request.path.substring(1, 4).upperAscii()", "API"),
        ("request.path.substring(99)", ""),
        ("request.path.indexOf(\"v1\")", "5"),
        ("request.path.indexOf(request.host)", "-1"),
        ("request.path.replace(\"/\", \"::\")", "::api::v1::users"),
        ("request.path.replace(\"\", \"x\")", "/api/v1/users"),
        ("\"  a b \".trim() + \"|\"", "a b|"),
        ("\"  \".trim()", ""),
        ("\"a%2Fb+c%\".urlDecode()", "a/b c%"),
        ("ip(request.headers[\"x-real-ip\"])", "10.1.2.3"),
        ("size(request.method) + \"abc\".size()", "6"),
        (
            "(true ? request.headers[\"x-a\"] : \"\") + \"-\" + request.headers[\"x-a\"].lowerAscii()",
            "one, two,three-one, two,three",
        ),
        ("string(-9223372036854775808)", "-9223372036854775808"),
    ] {
        assert_eq!(value_of(text), wanted, "{text}");
    }
}

#[test]
fn conditions_hold_or_not() {
    for text in [
        "request.method == \"GET\" && request.path.startsWith(\"/api/\")",
        "request.method in [\"GET\", \"HEAD\"]",
        "!(request.method in [\"POST\"])",
        "request.path.matches(\"^/api/v[0-9]+/\") && matches(request.host, \"(?i)EXAMPLE\")",
        "request.path.endsWith(\"users\") && request.path.contains(\"v1\")",
        "source.address in [\"10.0.0.0/8\", \"192.0.2.0/24\"]",
        "source.address == \"192.0.2.7\" && \"10.0.0.1\" != source.address",
        "cidr(\"10.0.0.0/8\").containsIP(request.headers[\"x-real-ip\"])",
        "ip(request.headers[\"x-real-ip\"]) in [cidr(\"10.0.0.0/8\")]",
        "isIP(request.headers[\"x-real-ip\"]) && !isIP(\"10.0.0\")",
        "\"x-a\" in request.headers && !(\"x-b\" in request.headers)",
        "has(request.headers[\"x-empty\"]) && has(request.headers.host) && !has(request.headers[\"x-b\"])",
        "has(request.user) && has(source.address) && !has(connection.sender_address)",
        "\"three\" in request.headers[\"x-a\"] && !(\"two,three\" in request.headers[\"x-a\"])",
        "\"3\" in request.query[\"page\"]",
        "\"admin\" in jwt.claims[\"roles\"] && !(\"root\" in jwt.claims[\"roles\"])",
        "\"write\" in jwt.claims.scope && \"42\" in jwt.claims.age && \"5\" in jwt.claims.roles",
        "has(jwt.claims.org) && !has(jwt.claims.none) && !has(jwt.claims.tenant)",
        "\"v1\" in request.path.split(\"/\")",
        "request.headers[\"x-b\"].orValue(\"\") != \"1\"",
        "request.headers[?\"x-b\"].orValue(\"\") == \"\" && connection.?sender_id.orValue(\"-\") == \"-\"",
        "int(request.method).orValue(7) == 7 && (1 / 0).orValue(2) == 2 && double(\"x\").orValue(0.5) < 1",
        "(int(request.method) > 1).orValue(true) && connection.sender_address.orValue(\"10.0.0.1\") in [\"10.0.0.0/8\"]",
        "request.headers[\"x-empty\"] == \"\" && request.headers[\"x-a\"].orValue(\"-\") != \"-\"",
        "request.size in [1048577, 2] && 5 in [1 + 4]",
        "request.method in [request.headers[\"x-b\"], \"G\" + \"ET\"] && \"x\" + request.method == \"xGET\"",
        "request.size >= 1048577.0 && 1 < 1.5",
        "connection.tls == true && connection.mtls != false",
        "duration(\"1s\") < duration(\"1001ms\")",
        "hash(\"a\") == hash(\"a\") && hash(\"a\") != hash(\"b\") && hash(\"b\") >= 0",
        "// a comment\n  true",
    ] {
        assert!(holds(text), "{text}");
    }
}

#[test]
fn what_has_no_value_is_false_unless_another_side_decides() {
    let none = "int(request.method) > 0";
    assert!(!holds(none));
    assert!(!holds(&format!("!({none})")));
    assert!(holds(&format!("{none} || true")));
    assert!(holds(&format!("true || {none}")));
    assert!(!holds(&format!("{none} && true")));
    assert!(holds(&format!("!({none} && false)")), "false decides, whatever the other side is");
    assert!(!holds(&format!("{none} ? true : true")));
    assert!(!holds("connection.sender_address in [\"0.0.0.0/0\"]"));
    assert!(!holds("!(connection.sender_address in [\"0.0.0.0/0\"])"));
}

#[test]
fn what_is_missing_makes_a_comparison_false_and_so_its_negation() {
    for missing in [
        "request.headers[\"x-b\"] == \"1\"",
        "request.headers[\"x-b\"] != \"1\"",
        "request.headers[\"x-b\"] == \"\"",
        "request.headers[\"x-b\"].startsWith(\"\")",
        "\"a\" + request.headers[\"x-b\"] != \"a\"",
        "request.headers[\"x-b\"].size() >= 0",
        "request.headers[\"x-b\"] in [\"1\", \"\"]",
        "\"1\" in request.headers[\"x-b\"]",
        "\"a\" in request.cookies.none",
        "request.query.none == request.query.none",
        "request.cookies.none < \"a\"",
        "jwt.claims.none != \"a\"",
        "\"a\" in jwt.claims.none",
        "connection.sender_id == \"\"",
        "connection.uri_san_peer_certificate.contains(\"a\")",
        "(request.headers[\"x-b\"] == \"1\" ? true : true)",
    ] {
        assert!(!holds(missing), "{missing}");
        assert!(!holds(&format!("!({missing})")), "!({missing})");
        assert!(holds(&format!("{missing} || true")) && holds(&format!("true || {missing}")), "{missing}");
        assert!(!holds(&format!("{missing} || false")) && !holds(&format!("!({missing} || false)")), "{missing}");
        assert!(!holds(&format!("{missing} && true")) && !holds(&format!("!({missing} && true)")), "{missing}");
        assert!(holds(&format!("!({missing} && false)")) && holds(&format!("!(false && {missing})")), "{missing}");
        assert!(holds(&format!("({missing}).orValue(true)")), "{missing}");
    }
    // What every request has is never missing, but may be empty.
    assert!(holds("request.query_string != \"\" && has(request.query_string)"));
    assert!(holds("!has(connection.sender_id) && !has(request.headers[\"x-b\"]) && !(\"x-b\" in request.headers)"));
}

/// Texts that are wrong, with message, a part of the suggestion, and what is marked. An empty message is any.
const WRONG: &[(&str, &str, &str, &str)] = &[
    ("request.pth == \"/\"", "there is no fact `request.pth`", "did you mean `request.path`?", "request.pth"),
    ("client_ip == \"1\"", "there is no fact `client_ip`", "write `source.address`", "client_ip"),
    ("path == \"1\"", "there is no fact `path`", "write `request.path`", "path"),
    ("request == \"1\"", "`request` is a group of facts, not a value", "name one of it", "request"),
    ("request.query == \"a=1\"", "`request.query` is a map of strings, not one value", "query_string", "request.query"),
    ("request.path.startswith(\"/\")", "there is no function `startswith`", "did you mean `startsWith`?", "startswith"),
    ("request.path.hasPrefix(\"/\")", "there is no function `hasPrefix`", "did you mean `startsWith`?", "hasPrefix"),
    ("request.path.startsWith()", "`startsWith` is not called like this", "string.startsWith(string)", "startsWith"),
    ("request.size > \"5\"", "int and string cannot be compared", "write `5` without quotes", "request.size > \"5\""),
    (
        "request.size > \"1MiB\"",
        "int and string cannot be compared",
        "write `quantity(\"1MiB\")`",
        "request.size > \"1MiB\"",
    ),
    ("request.size > request.path", "int and string cannot be compared", "int(…)", "request.size > request.path"),
    (
        "request.headers.x-a == \"1\"",
        "a hyphen between names is a minus",
        "request.headers[\"x-a\"]",
        "request.headers.x-a",
    ),
    ("request.headers.x - a == 1", "there is no fact `a`", "", "a"),
    ("source.ip == ip(\"::1\")", "there is no fact `source.ip`", "write `source.address`", "source.ip"),
    (
        "request.code == 200",
        "there is no fact `request.code`",
        "write `response.code`, which is known only once",
        "request.code",
    ),
    ("client_ip == ip(\"::1\")", "there is no fact `client_ip`", "write `source.address`", "client_ip"),
    ("claim == \"1\"", "there is no fact `claim`", "write `jwt.claims[\"NAME\"]`", "claim"),
    ("request.path && true", "this is of the type string, but bool is needed", "has(…)", "request.path"),
    ("request.path", "this is of the type string, but bool is needed", "has(…)", "request.path"),
    ("\"a\" + 1 == \"a1\"", "`+` does not take string and int", "string(…)", "\"a\" + 1"),
    ("source.address < \"10.0.0.1\"", "values of the type ip have no order", "in [", "source.address < \"10.0.0.1\""),
    ("source.address == \"10.0.0.0/8\"", "`10.0.0.0/8` is not an IP address", "in [\"10.0.0.0/8\"]", "\"10.0.0.0/8\""),
    (
        "request.headers[\"x-real-ip\"] in [\"10.0.0.0/8\"]",
        "`10.0.0.0/8` is a network, but `in` looks for a string here",
        "`ip(…) in […]`",
        "\"10.0.0.0/8\"",
    ),
    ("source.address in [\"10.0.0.0/33\"]", "", "", "\"10.0.0.0/33\""),
    ("request.path.matches(\"[\")", "", "", "\"[\""),
    ("request.headers[\"a b\"] == \"\"", "`a b` is not a header field name", "", "\"a b\""),
    ("request.headers[request.path] == \"\"", "the name of an entry is a text in quotes", "maps", "request.path"),
    ("request.method = \"GET\"", "`=` is not a CEL operator", "write `==`", "="),
    (
        "request.method == \"GET\" and true",
        "`and` stands where an operator or the end must follow",
        "write `&&`",
        "and",
    ),
    ("request.method == ", "the expression ends where a value must follow", "", ""),
    ("(true", "the expression ends where `)` must follow", "", ""),
    ("", "the expression ends where a value must follow", "", ""),
    ("null == null", "there is no `null`: what is missing has no value", "has(…)", "null"),
    ("request.size.orValue(\"a\") == 1", "the value is int, the other one string", "same type", "\"a\""),
    ("[1] == [1]", "a list stands only to the right of `in`", "in [", "[1]"),
    ("\"a\" in request.path", "`in` does not look into a string", "contains", "request.path"),
    ("true ? 1 : \"a\"", "one side of `:` is int, the other string", "string(…)", "1 : \"a\""),
    (
        "timing.receive > 5",
        "`timing.receive` has no value yet: it is known only once the exchange is over",
        "",
        "timing.receive",
    ),
    (
        "response.code == 200",
        "`response.code` has no value yet: it is known only once there is a response",
        "",
        "response.code",
    ),
    ("duration(\"5\") > duration(\"1s\")", "`5` is not a duration such as 250ms, 2s or 1m30s", "", "\"5\""),
    ("has(1)", "`has` takes a fact or an entry", "has(request.headers", "1"),
    ("has(request.headers)", "`request.headers` is a map of strings", "NAME", "request.headers"),
    ("{\"a\": 1}", "maps cannot be written in an expression", "maps", "{"),
    ("5s == 5", "`5s` is no number", "write `duration(\"5s\")`", "5s"),
    ("request.foo.bar == \"\"", "there is no fact `request.foo.bar`", "", "request.foo.bar"),
    (
        "request.path.split(\",\") == \"\"",
        "list of strings and string cannot be compared",
        "in list",
        "request.path.split(\",\") == \"\"",
    ),
];

#[test]
fn what_is_wrong_points_at_its_characters_and_says_what_to_write() {
    for (text, message, suggestion, marked) in WRONG.iter().copied() {
        let (told, mend, part) = wrong(text, Scope::Request);
        assert!(message.is_empty() || told == message, "{text}: {told}");
        assert!(mend.contains(suggestion), "{text}: {mend}");
        assert_eq!(part, marked, "{text}");
    }
}

#[test]
fn values_in_a_body_are_found_by_every_form_of_their_way() {
    for (text, wanted) in [
        ("request.body.json.model", "gpt-4"),
        ("request.body.json[\"model\"].upperAscii()", "GPT-4"),
        ("request.body.json[\"/model\"]", "gpt-4"),
        ("request.body.json.messages[1].role", "tool"),
        ("request.body.json[\"messages\"][0][\"role\"]", "user"),
        ("request.body.json[\"/messages/1/role\"]", "tool"),
        ("request.body.json[\"messages.1.role\"]", "tool"),
        ("request.body.json[\"a.b\"]", "dotted"),
        ("request.body.json[\"/~1x\"]", "slash"),
        ("request.body.json[\"user.id\"]", "7"),
        ("int(request.body.json.user.id) + 1", "8"),
        ("request.body.json.tags", "a,5"),
        ("request.body.json.user", ""),
        ("request.body.json.none", ""),
        ("request.body.json[0]", ""),
        ("request.body.json.messages[2].role.orValue(\"-\")", "-"),
        ("request.body.substring(0, 8)", "{\"model\""),
    ] {
        assert_eq!(value_of(text), wanted, "{text}");
    }
    for (text, wanted) in [
        ("request.body.json.model == \"gpt-4\"", true),
        ("\"5\" in request.body.json.tags", true),
        ("\"b,c\" in request.body.json.tags", true),
        ("\"{}\" in request.body.json.tags", false),
        ("\"model\" in request.body.json && !(\"none\" in request.body.json)", true),
        ("has(request.body.json.user) && !has(request.body.json.user.name)", true),
        ("request.body.json.on == \"true\"", true),
        ("int(request.body.json.n) > 2", true),
        ("request.body.json.missing != \"x\"", false),
        ("has(request.body) && request.body.contains(\"gpt\") && request.body.matches(\"\\\"n\\\": [0-9]\")", true),
    ] {
        assert_eq!(holds(text), wanted, "{text}");
    }
}

/// An expression, its moment, what is wrong with it, what to write, and the marked part.
const WRONG_IN_BODY: &[(&str, Scope, &str, &str, &str)] = &[
    (
        "request.body.json.model == \"a\"",
        Scope::Route,
        "`request.body.json` cannot be read when the route is chosen",
        "`body` of `match`",
        "request.body.json",
    ),
    (
        "request.body == \"a\"",
        Scope::Log,
        "`request.body` cannot be read when the exchange is over",
        "set_request_header",
        "request.body",
    ),
    (
        "request.body.json(\"m\") == \"a\"",
        Scope::Request,
        "`request.body.json` is a map, not a function",
        "`request.body.json[\"m\"]`",
        "json",
    ),
    (
        "request.body.json().m == \"a\"",
        Scope::Request,
        "`request.body.json` is a map, not a function",
        "`request.body.json[\"NAME\"]`",
        "json",
    ),
    (
        "request.body.json == \"a\"",
        Scope::Request,
        "`request.body.json` is a map of strings, not one value",
        "[\"NAME\"]",
        "request.body.json",
    ),
    (
        "request.body.json.a[request.path] == \"a\"",
        Scope::Request,
        "a step is a text in quotes, or a number from 0 on",
        "maps",
        "request.path",
    ),
    ("request.body.json.a[-1] == \"a\"", Scope::Request, "a step is a text in quotes, or a number from 0 on", "", "-1"),
    (
        "request.body.json[\"/a\"].b == \"a\"",
        Scope::Request,
        "a JSON Pointer cannot be one step of several",
        "as one",
        "request.body.json[\"/a\"]",
    ),
    (
        "request.body.json[\"/a~\"] == \"a\"",
        Scope::Request,
        "`~` in the JSON pointer `/a~` is not `~0` or `~1`",
        "",
        "\"/a~\"",
    ),
    (
        "request.body.json.n > 1",
        Scope::Request,
        "string and int cannot be compared",
        "int(…)",
        "request.body.json.n > 1",
    ),
    (
        "request.body.json.on == true",
        Scope::Request,
        "string and bool cannot be compared",
        "in quotes",
        "request.body.json.on == true",
    ),
    ("request.body.jsn.a == \"\"", Scope::Request, "there is no fact `request.body.jsn.a`", "", "request.body.jsn.a"),
];

#[test]
fn a_way_into_a_body_that_is_wrong_points_at_its_step() {
    for (text, scope, message, suggestion, marked) in WRONG_IN_BODY.iter().copied() {
        let (told, mend, part) = wrong(text, scope);
        assert_eq!(told, message, "{text}");
        assert!(mend.contains(suggestion), "{text}: {mend}");
        assert_eq!(part, marked, "{text}");
    }
}

#[test]
fn a_fact_is_known_from_its_moment_on() {
    assert!(Condition::compile("has(request.user)", Scope::Route).is_err());
    assert_eq!(Condition::compile("has(request.user)", Scope::Response).unwrap().needs(), Scope::Request);
    assert_eq!(Condition::compile("response.code >= 500", Scope::Log).unwrap().needs(), Scope::Response);
    assert_eq!(Condition::compile("timing.receive > duration(\"1s\")", Scope::Log).unwrap().needs(), Scope::Log);
}

#[test]
fn expressions_are_bounded() {
    let deep = format!("{}true{}", "(".repeat(500), ")".repeat(500));
    let long = format!("{}true", "true && ".repeat(5_000));
    let chain = format!("1{} == 1", " + 1".repeat(400));
    let nots = format!("{}true", "!".repeat(400));
    let members = format!("a{}", ".b".repeat(400));
    let choices = format!("{}true", "true ? true : ".repeat(400));
    for text in [deep, long, chain, nots, members, choices] {
        assert!(Condition::compile(&text, Scope::Request).is_err(), "{text}");
    }
    assert!(holds(&format!("{}true", "true && ".repeat(500))), "side by side they do not nest");
    // Each step makes it sixteen times as long.
    let grown = format!("request.path{}.size() > 0", ".replace(\"a\", \"aaaaaaaaaaaaaaaa\")".repeat(8));
    assert!(!holds(&grown), "a text that grows beyond the bound has no value");
}

#[test]
fn nothing_is_allocated_once_the_scratch_has_its_size() {
    let text = "request.host.lowerAscii() + request.headers[\"x-a\"] + request.query[\"name\"].upperAscii()";
    let value = Value::compile(text, Scope::Request).unwrap();
    with_subject(|of| {
        let mut scratch = Vec::new();
        value.with(of, &mut scratch, |_| ());
        let capacity = scratch.capacity();
        value.with(of, &mut scratch, |value| assert_eq!(value, b"shop.example.comone, two,threeA B C"));
        assert_eq!(scratch.capacity(), capacity);
    });
}

fn term(kind: Kind) -> Term {
    Term::new(Span::default(), kind)
}

/// Trees that the parser can make.
fn terms() -> impl Strategy<Value = Term> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Kind::Bool),
        any::<i64>().prop_map(Kind::Int),
        any::<f64>().prop_filter("finite", |number| number.is_finite()).prop_map(Kind::Double),
        "\\PC{0,8}|[\\x00-\\x1f\"'\\\\]{0,4}".prop_map(Kind::Text),
        "[a-z_][a-z0-9_]{0,6}z"
            .prop_filter("a word of its own", |name| super::lexer::tokens(name).is_ok())
            .prop_map(Kind::Name),
    ];
    let operators = prop::sample::select(vec![
        Operator::Equal,
        Operator::NotEqual,
        Operator::Less,
        Operator::LessOrEqual,
        Operator::Greater,
        Operator::GreaterOrEqual,
        Operator::In,
        Operator::Plus,
        Operator::Minus,
        Operator::Times,
        Operator::Divided,
        Operator::Modulo,
    ]);
    leaf.prop_map(term).prop_recursive(5, 40, 4, move |inner| {
        let several = prop::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            (inner.clone(), "[a-z]{1,4}z").prop_map(|(of, name)| term(Kind::Member(
                Box::new(of),
                name,
                Span::default()
            ))),
            (inner.clone(), inner.clone()).prop_map(|(of, index)| term(Kind::Index(Box::new(of), Box::new(index)))),
            (prop::option::of(inner.clone()), "[a-z]{1,4}z", prop::collection::vec(inner.clone(), 0..3)).prop_map(
                |(receiver, name, arguments)| {
                    term(Kind::Call(Box::new(Call { receiver, name, at: Span::default(), arguments })))
                }
            ),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| term(Kind::List(items))),
            inner.clone().prop_map(|of| term(Kind::Not(Box::new(of)))),
            inner
                .clone()
                .prop_filter("a number has its own sign", |of| !matches!(of.kind, Kind::Int(_) | Kind::Double(_)))
                .prop_map(|of| term(Kind::Minus(Box::new(of)))),
            (operators.clone(), inner.clone(), inner.clone())
                .prop_map(|(operator, one, other)| term(Kind::Binary(operator, Box::new((one, other))))),
            several.clone().prop_map(|parts| term(Kind::All(parts))),
            several.prop_map(|parts| term(Kind::Any(parts))),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(one, two, three)| term(Kind::Choice(Box::new([one, two, three])))),
        ]
    })
}

/// The tree without places.
fn shape(term: &Term) -> String {
    match &term.kind {
        Kind::Member(of, name, _) => format!("member({}, {name})", shape(of)),
        Kind::Index(of, index) => format!("index({}, {})", shape(of), shape(index)),
        Kind::Call(call) => {
            let receiver = call.receiver.as_ref().map(shape);
            format!("call({receiver:?}, {}, {:?})", call.name, shapes(&call.arguments))
        }
        Kind::List(items) => format!("list{:?}", shapes(items)),
        Kind::Not(of) => format!("not({})", shape(of)),
        Kind::Minus(of) => format!("minus({})", shape(of)),
        Kind::Binary(operator, sides) => format!("{operator:?}({}, {})", shape(&sides.0), shape(&sides.1)),
        Kind::All(parts) => format!("all{:?}", shapes(parts)),
        Kind::Any(parts) => format!("any{:?}", shapes(parts)),
        Kind::Choice(parts) => format!("choice{:?}", shapes(&parts[..])),
        leaf => format!("{leaf:?}"),
    }
}

fn shapes(terms: &[Term]) -> Vec<String> {
    terms.iter().map(shape).collect()
}

/// What a tree of numbers, truth values and texts gives, by the simplest of means. `None`: no value.
#[derive(Clone, Debug, PartialEq)]
enum Simple {
    Bool(bool),
    Int(i64),
    Text(Vec<u8>),
}

fn simple(term: &Term) -> Option<Simple> {
    let truth = |term: &Term| match simple(term) {
        Some(Simple::Bool(flag)) => Some(flag),
        _ => None,
    };
    Some(match &term.kind {
        Kind::Bool(flag) => Simple::Bool(*flag),
        Kind::Int(number) => Simple::Int(*number),
        Kind::Text(text) => Simple::Text(text.as_bytes().to_vec()),
        Kind::Not(of) => Simple::Bool(!truth(of)?),
        Kind::All(parts) => {
            let all: Vec<_> = parts.iter().map(truth).collect();
            if all.contains(&Some(false)) {
                Simple::Bool(false)
            } else if all.contains(&None) {
                return None;
            } else {
                Simple::Bool(true)
            }
        }
        Kind::Any(parts) => {
            let all: Vec<_> = parts.iter().map(truth).collect();
            if all.contains(&Some(true)) {
                Simple::Bool(true)
            } else if all.contains(&None) {
                return None;
            } else {
                Simple::Bool(false)
            }
        }
        Kind::Choice(parts) => simple(if truth(&parts[0])? { &parts[1] } else { &parts[2] })?,
        Kind::Binary(operator, sides) => {
            let (one, other) = (simple(&sides.0)?, simple(&sides.1)?);
            let order = match (&one, &other) {
                (Simple::Bool(one), Simple::Bool(other)) => one.cmp(other),
                (Simple::Int(one), Simple::Int(other)) => one.cmp(other),
                (Simple::Text(one), Simple::Text(other)) => one.cmp(other),
                _ => return None,
            };
            match (operator, one, other) {
                (Operator::Equal, ..) => Simple::Bool(order.is_eq()),
                (Operator::NotEqual, ..) => Simple::Bool(order.is_ne()),
                (Operator::Less, ..) => Simple::Bool(order.is_lt()),
                (Operator::GreaterOrEqual, ..) => Simple::Bool(order.is_ge()),
                (Operator::Plus, Simple::Int(one), Simple::Int(other)) => Simple::Int(one.checked_add(other)?),
                (Operator::Times, Simple::Int(one), Simple::Int(other)) => Simple::Int(one.checked_mul(other)?),
                (Operator::Divided, Simple::Int(one), Simple::Int(other)) => Simple::Int(one.checked_div(other)?),
                (Operator::Plus, Simple::Text(one), Simple::Text(other)) => Simple::Text([one, other].concat()),
                _ => return None,
            }
        }
        _ => return None,
    })
}

/// Trees of these types only, which the checker takes.
fn truths() -> impl Strategy<Value = Term> {
    let number = prop_oneof![Just(0), Just(1), Just(-3), Just(i64::MAX), any::<i64>()].prop_map(|n| term(Kind::Int(n)));
    let number = number.prop_recursive(3, 8, 2, |inner| {
        let operator = prop::sample::select(vec![Operator::Plus, Operator::Times, Operator::Divided]);
        (operator, inner.clone(), inner)
            .prop_map(|(operator, one, other)| term(Kind::Binary(operator, Box::new((one, other)))))
    });
    let text = "[ab]{0,3}".prop_map(|text| term(Kind::Text(text)));
    let text = text.prop_recursive(3, 8, 2, |inner| {
        (inner.clone(), inner).prop_map(|(one, other)| term(Kind::Binary(Operator::Plus, Box::new((one, other)))))
    });
    let order = || {
        let all = vec![Operator::Equal, Operator::NotEqual, Operator::Less, Operator::GreaterOrEqual];
        prop::sample::select(all)
    };
    let compared = |value: BoxedStrategy<Term>| {
        (order(), value.clone(), value)
            .prop_map(|(operator, one, other)| term(Kind::Binary(operator, Box::new((one, other)))))
    };
    let leaf = prop_oneof![
        any::<bool>().prop_map(|flag| term(Kind::Bool(flag))),
        compared(number.boxed()),
        compared(text.boxed())
    ];
    leaf.prop_recursive(4, 32, 3, |inner| {
        let several = prop::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            inner.clone().prop_map(|of| term(Kind::Not(Box::new(of)))),
            several.clone().prop_map(|parts| term(Kind::All(parts))),
            several.prop_map(|parts| term(Kind::Any(parts))),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(one, two, three)| term(Kind::Choice(Box::new([one, two, three])))),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_printed_is_parsed_to_the_same_tree(tree in terms()) {
        let text = tree.to_string();
        let parsed = parse(&text).map_err(|trouble| TestCaseError::fail(format!("{text}: {trouble:?}")))?;
        prop_assert_eq!(shape(&parsed), shape(&tree), "{}", text);
        prop_assert_eq!(parsed.to_string(), text);
    }

    #[test]
    fn an_expression_gives_what_the_simplest_evaluation_gives(tree in truths()) {
        let text = tree.to_string();
        let condition = Condition::compile(&text, Scope::Route).map_err(|issue| TestCaseError::fail(format!("{text}: {issue}")))?;
        let wanted = simple(&tree) == Some(Simple::Bool(true));
        prop_assert_eq!(with_subject(|of| condition.is_true(of, &mut Vec::new())), wanted, "{}", text);
    }

    #[test]
    fn no_text_makes_the_compiler_panic_or_point_outside(text in "\\PC{0,60}") {
        if let Err(issue) = Condition::compile(&text, Scope::Log) {
            let (start, end) = issue.part.unwrap();
            prop_assert!(start <= end && start <= text.len() && text.is_char_boundary(start));
        }
    }
}

#[test]
fn maps_give_values_and_are_asked_for_entries() {
    use crate::map::{Edit, MapPlan, Maps};
    use model::map::{Map, MapKind, parse};

    let map = |name: &str, kind, text, default: Option<&str>| {
        let (entries, default) = (std::sync::Arc::new(parse(text, kind).unwrap()), default.map(str::to_owned));
        let map = Map { name: name.into(), kind, default, file: None, entries };
        MapPlan::compile(&std::sync::Arc::new(map), None).unwrap()
    };
    let maps = [
        map("tiers", MapKind::Exact, "shop.example.com gold\nother silver\n", Some("none")),
        map("paths", MapKind::Prefix, "/api api\n", None),
        map("networks", MapKind::Cidr, "192.0.2.0/24 office\n", None),
    ];
    let value = |text: &str| {
        let value =
            Value::compile_with(text, Scope::Request, Maps::Known(&maps)).unwrap_or_else(|e| panic!("{text}: {e}"));
        with_subject(|of| value.with(of, &mut Vec::new(), |value| String::from_utf8(value.to_vec()).unwrap()))
    };
    for (text, wanted) in [
        ("map(\"tiers\", request.host.lowerAscii())", "gold"),
        ("maps.tiers[request.host]", "none"),
        ("map(\"tiers\", request.host, \"x\" + \"y\")", "xy"),
        ("maps[\"paths\"][request.path]", "api"),
        ("map(\"networks\", source.address) + \"!\"", "office!"),
        ("map(\"networks\", request.headers[\"x-real-ip\"])", ""),
        ("map(\"tiers\", request.headers[\"x-b\"]) + map(\"tiers\", request.headers[\"x-b\"], \"-\")", "none-"),
        ("request.headers[\"x-b\"] in maps.tiers", ""),
        ("request.path in maps.paths", "true"),
        ("request.host in maps.tiers", "false"),
        ("source.address in maps.networks && has(maps.paths[request.path])", "true"),
        ("has(map(\"tiers\", request.host))", "false"),
    ] {
        assert_eq!(value(text), wanted, "{text}");
    }
    maps[0].edit("Shop.Example.com", Edit::Set("edited".into())).unwrap();
    assert_eq!(value("maps.tiers[request.host] + request.method"), "editedGET");
    for (text, message, marked) in [
        ("map(\"tier\", request.host)", "there is no map `tier`", "\"tier\""),
        ("request.host in maps.nets", "there is no map `nets`", "nets"),
        ("map(request.host, request.host)", "the name of a map is a text in quotes", "request.host"),
        ("maps.tiers", "a map is not a value", "maps.tiers"),
        ("map(\"networks\", true)", "this is of the type bool, but string is needed", "true"),
    ] {
        let issue = Value::compile_with(text, Scope::Request, Maps::Known(&maps)).map(drop).unwrap_err();
        let (start, end) = issue.part.unwrap();
        assert_eq!((issue.message.as_str(), &text[start..end]), (message, marked), "{text}");
    }
    assert!(Condition::compile("request.host in maps.any", Scope::Request).is_err(), "no maps");
    assert!(Condition::compile_with("request.host in maps.any", Scope::Request, Maps::Unknown).is_ok());
}

#[test]
fn a_route_and_a_log_read_tables_by_keys_that_they_know() {
    let settings = |key: &str| model::table::Table {
        name: "users".into(),
        key: model::table::TableKey::Expression(key.into()),
        keys_max: 100,
        expire: std::time::Duration::from_secs(60),
        counters: vec![model::table::Counter::Requests],
        rates: Vec::new(),
        is_replicated: false,
    };
    let table = |key: &str| std::sync::Arc::new(crate::table::Table::compile(&settings(key).into(), None).unwrap());
    let compile = |tables: &[std::sync::Arc<crate::table::Table>], text: &str, scope| {
        let names = Names { maps: Maps::Known(&[]), tables: Tables::Known(tables), has_body: true };
        Condition::compile_with(text, scope, names)
    };
    let now = std::time::Instant::now();
    let by_method = table("request.method");
    by_method.count(b"GET", &[(model::table::Counter::Requests, 3)], now, &mut || 7);
    for scope in [Scope::Route, Scope::Request, Scope::Response, Scope::Log] {
        let condition = compile(std::slice::from_ref(&by_method), "tables.users.requests == 3", scope).unwrap();
        assert!(condition.reads_tables() && condition.needs() <= Scope::Request);
        with_subject(|of| {
            assert!(condition.is_true(of.at(now), &mut Vec::new()), "{scope:?}");
            assert!(!condition.is_true(of, &mut Vec::new()), "without a time there is no value");
        });
    }
    // The user is known only once filters have run.
    let by_user = [table("request.user")];
    let issue = compile(&by_user, "tables.users.requests > 2", Scope::Route).unwrap_err();
    assert!(issue.message.starts_with("the key of the table: `request.user` has no value yet"), "{issue}");
    assert_eq!(issue.suggestion.as_deref(), Some("give a key that is known: `tables.users[KEY].READING`"));
    assert!(compile(&by_user, "tables.users.requests > 2", Scope::Log).is_ok());
    assert!(compile(&by_user, "tables.users[request.host].requests > 2", Scope::Route).is_ok());
    assert!(compile(&[], "tables.users.requests > 2", Scope::Route).is_err());
    assert!(Value::compile("tables.users.requests", Scope::Request).is_err(), "keys of tables read no table");
}

#[test]
fn a_long_value_in_many_terms_leaves_each_term_its_room() {
    let mut head = RequestHead::default();
    let mut value = "A".repeat(32 * 1024);
    value.push_str("EVIL");
    head.fields.append(&FieldName::new("user-agent").unwrap(), value.as_bytes());
    head.fields.append(&FieldName::new("host").unwrap(), b"Admin.example.");
    let listed: String = (0..40).map(|n| format!("request.headers[\"user-agent\"].lowerAscii() + \"{n}\", ")).collect();
    let terms: String =
        (0..40).map(|n| format!("request.headers[\"user-agent\"].lowerAscii().contains(\"bot{n}\") || ")).collect();
    with_subject(|of| {
        let of = Subject { request: Some(&head), ..of };
        for text in [
            format!("{terms}request.headers[\"user-agent\"].lowerAscii().endsWith(\"evil\")"),
            format!(
                "request.headers[\"user-agent\"].lowerAscii() in [{listed}request.headers[\"user-agent\"].lowerAscii()]"
            ),
        ] {
            let mut scratch = b"kept".to_vec();
            let condition = Condition::compile(&text, Scope::Request).unwrap_or_else(|issue| panic!("{text}: {issue}"));
            assert!(condition.is_true(of, &mut scratch), "{text}");
            assert_eq!(scratch, b"kept");
        }
        // Routes ignore the dot of the root, too.
        let condition = Condition::compile("request.host.lowerAscii() == \"admin.example\"", Scope::Request).unwrap();
        assert!(condition.is_true(of, &mut Vec::new()));
    });
}
