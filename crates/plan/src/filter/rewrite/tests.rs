use model::limits::TARGET_BYTES_MAX;
use serde_json::{Value, json};

use super::super::Chain;
use super::super::testing::{answered, chain, issue, listed, passed, request};
use super::host::is_host;

fn rewrite(settings: Value) -> Chain {
    chain(json!([{ "rewrite": settings }]))
}

/// The path and query that a request for `target` has after a rewrite of its path.
fn path_after(path: &Value, target: &str) -> String {
    let head = passed(&rewrite(json!({ "path": path })), request("GET", target, &[("host", "h")]));
    let query = head.query().map_or(String::new(), |query| format!("?{}", String::from_utf8_lossy(query)));
    String::from_utf8_lossy(head.path()).into_owned() + &query
}

#[test]
fn a_prefix_is_replaced_by_whole_segments_as_the_gateway_api_says() {
    for (from, to, target, expected) in [
        ("/foo", "/xyz", "/foo/bar", "/xyz/bar"),
        ("/foo", "/xyz/", "/foo/bar", "/xyz/bar"),
        ("/foo/", "/xyz", "/foo/bar", "/xyz/bar"),
        ("/foo/", "/xyz/", "/foo/bar", "/xyz/bar"),
        ("/foo", "/xyz", "/foo", "/xyz"),
        ("/foo", "/xyz", "/foo/", "/xyz/"),
        ("/foo", "", "/foo/bar", "/bar"),
        ("/foo", "", "/foo/", "/"),
        ("/foo", "", "/foo", "/"),
        ("/foo/", "/", "/foo/", "/"),
        ("/foo", "/", "/foo", "/"),
        ("/foo", "/xyz", "/foobar", "/foobar"),
        ("/foo", "/xyz", "/other/foo", "/other/foo"),
        ("/foo", "/xyz", "/foo/bar?q=/foo", "/xyz/bar?q=/foo"),
        ("/foo", "/xyz", "/foo?", "/xyz?"),
        ("/", "/xyz", "/bar", "/xyz/bar"),
        ("/", "/xyz", "/", "/xyz/"),
        ("/", "/", "/a//b", "/a//b"),
    ] {
        let path = json!({ "prefix": { "from": from, "to": to } });
        assert_eq!(path_after(&path, target), expected, "{from} to {to}: {target}");
    }
}

#[test]
fn taking_a_prefix_away_never_leaves_a_path_that_reads_as_a_host() {
    let path = json!({ "prefix": { "from": "/app", "to": "/" } });
    assert_eq!(path_after(&path, "/app//evil.example/x"), "/evil.example/x");
    let path = json!({ "prefix": { "from": "/", "to": "/" } });
    assert_eq!(path_after(&path, "//evil.example"), "/evil.example");
}

#[test]
fn a_full_path_may_quote_the_request_and_keeps_the_query() {
    assert_eq!(path_after(&json!({ "full": "/x" }), "/a?b=1"), "/x?b=1");
    assert_eq!(path_after(&json!({ "full": "/{host}{path}" }), "/a"), "/h/a");
    assert_eq!(path_after(&json!({ "full": "{path}/more" }), "/a"), "/a/more");
    assert_eq!(
        path_after(&json!({ "full": "/{query_param:p}" }), "/?p=a%2f..#\r\nx y"),
        "/a%2f..%23%0D%0Ax%20y?p=a%2f..#\r\nx y"
    );
}

#[test]
fn what_is_put_into_a_path_never_leads_out_of_it() {
    let refused = |path: Value, target: &str| {
        let mut head = request("GET", target, &[("host", "h")]);
        let answer = answered(&rewrite(json!({ "path": path })), &mut head);
        assert_eq!(answer.status, 400, "{target}");
    };
    for page in ["../admin", "..", "a/../b", "%2e%2E/x", "..%2fadmin", "..\\admin", "a/.;b/c"] {
        refused(json!({ "full": "/docs/{query_param:page}" }), &format!("/?page={page}"));
    }
    refused(json!({ "regex": { "pattern": "x", "replacement": "" } }), "/.x./admin");
    // What leads nowhere, or was there before, as listeners may let it in, stays.
    assert_eq!(path_after(&json!({ "full": "/d/{query_param:p}" }), "/?p=..a/.b"), "/d/..a/.b?p=..a/.b");
    assert_eq!(path_after(&json!({ "regex": { "pattern": "a", "replacement": "b" } }), "/a/../a"), "/b/../b");
    assert_eq!(path_after(&json!({ "prefix": { "from": "/a", "to": "/b" } }), "/a/../c"), "/b/../c");
    let told = issue("rewrite", json!({ "path": { "prefix": { "from": "/a", "to": "/b/%2e%2e" } } }));
    assert_eq!(told, "path/prefix/to: the path holds a dot segment (write the path that is meant)");
}

#[test]
fn a_prefix_is_marked_as_what_the_configuration_brings_into_its_form() {
    let schema = (super::ENTRY.schema)();
    let from = &schema["properties"]["path"]["anyOf"][0]["properties"]["prefix"]["properties"]["from"];
    assert_eq!(from["format"], model::filter::PATH_FORMAT, "{schema:#}");
}

#[test]
fn every_match_of_an_expression_is_replaced() {
    let regex = |pattern: &str, replacement: &str, target: &str| {
        path_after(&json!({ "regex": { "pattern": pattern, "replacement": replacement } }), target)
    };
    assert_eq!(regex("^/u/([0-9]+)/(?<what>[a-z]+)$", "/${what}/$1", "/u/42/cart?x"), "/cart/42?x");
    assert_eq!(regex("a", "b", "/a/aa"), "/b/bb");
    assert_eq!(regex("/v[12]", "", "/v1/v2/x"), "/x");
    assert_eq!(regex("^/(x)?", "/[$1]$$", "/y"), "/[]$y");
    assert_eq!(regex("^/a", "b", "/a"), "/b");
    assert_eq!(regex("nothing", "b", "/a"), "/a");
    assert_eq!(regex("(?i)/A", "/b", "/a"), "/b");
    assert_eq!(regex(r"\d+", "n", "/7/%F0"), "/n/%Fn");
}

#[test]
fn what_is_no_path_is_left_alone() {
    let chain = rewrite(json!({ "path": { "full": "/x" } }));
    assert_eq!(passed(&chain, request("OPTIONS", "*", &[])).path(), b"*");
    assert_eq!(passed(&chain, request("CONNECT", "", &[])).path(), b"");
}

#[test]
fn a_path_that_grows_too_long_is_answered_414() {
    let long = format!("/{}", "a".repeat(TARGET_BYTES_MAX - 1));
    let filler = "b".repeat(1000);
    for pattern in ["a", ""] {
        let path = json!({ "regex": { "pattern": pattern, "replacement": filler } });
        let mut head = request("GET", &long, &[]);
        assert_eq!(answered(&rewrite(json!({ "path": path })), &mut head).status, 414);
        assert!(head.fields.capacity_bytes() < 8 * TARGET_BYTES_MAX, "the growth is bounded");
    }
    let twice = rewrite(json!({ "path": { "full": "{path}{path}" } }));
    assert_eq!(answered(&twice, &mut request("GET", &long, &[])).status, 414);
    assert_eq!(
        passed(&rewrite(json!({ "path": { "full": "{path}" } })), request("GET", &long, &[])).path().len(),
        long.len()
    );
}

#[test]
fn an_expression_that_ruins_other_engines_takes_linear_time() {
    let chain = rewrite(json!({ "path": { "regex": { "pattern": "^/(a+)+$", "replacement": "/x" } } }));
    let target = format!("/{}!", "a".repeat(10_000));
    assert_eq!(passed(&chain, request("GET", &target, &[])).path(), target.as_bytes());
}

#[test]
fn a_host_is_replaced_once_and_only_by_a_host() {
    let chain = rewrite(json!({ "host": "{request_header:x-tenant}.internal:8080" }));
    let sent = |tenant: &str| request("GET", "/", &[("host", "a"), ("x-tenant", tenant), ("Host", "b")]);
    assert_eq!(listed(&passed(&chain, sent("shop")).fields), "host: shop.internal:8080|x-tenant: shop");
    for bad in ["evil.example/", "a b", "a@b", "x\r\ny: z", "a:1", "ä", &"a".repeat(300)] {
        assert_eq!(answered(&chain, &mut sent(bad)).status, 400, "{bad}");
    }
}

#[test]
fn the_path_is_changed_before_the_host() {
    let chain = rewrite(json!({ "host": "h{query_param:n}.example", "path": { "full": "/{host}" } }));
    let head = passed(&chain, request("GET", "/?n=1", &[("host", "old")]));
    assert_eq!((head.path(), head.authority()), (&b"/old"[..], &b"h1.example"[..]));
}

#[test]
fn hosts_are_names_and_addresses_with_or_without_port() {
    for good in ["a", "A.example.com", "a_b-c.d:1", "127.0.0.1:65535", "[::1]", "[2001:db8::1]:80"] {
        assert!(is_host(good.as_bytes()), "{good}");
    }
    for bad in [
        "", ":80", "a:", "a:65536", "a:+8", "a:8x", "::1", "[::1", "::1]", "[x]", "[::1]x", "a b", "a/b", "a?", "u@h",
        "é",
    ] {
        assert!(!is_host(bad.as_bytes()), "{bad}");
    }
}

#[test]
fn mistakes_are_found_when_the_configuration_is_checked() {
    for (settings, start) in [
        (json!({}), ": one of `host`, `path`, `query` and `method` is needed"),
        (json!({ "host": "a b" }), "host: `a b` is not a host"),
        (json!({ "host": "" }), "host: `` is not a host"),
        (json!({ "hots": "a" }), ": unknown field `hots`"),
        (json!({ "path": "/x" }), ": invalid type: string"),
        (json!({ "path": {} }), "path: exactly one of full, prefix and regex is needed"),
        (
            json!({ "path": { "full": "/x", "prefix": { "from": "/", "to": "/" } } }),
            "path: exactly one of full, prefix and regex is needed",
        ),
        (json!({ "path": { "full": "x" } }), "path/full: a path begins with `/` (write `/x`)"),
        (json!({ "path": { "full": "" } }), "path/full: a path begins with `/`"),
        (json!({ "path": { "full": "/x?y" } }), "path/full: a path holds no `?` or `#`"),
        (json!({ "path": { "full": "/ü" } }), "path/full: a path holds only visible ASCII"),
        (json!({ "path": { "prefix": { "from": "", "to": "/" } } }), "path/prefix/from: a path begins with `/`"),
        (json!({ "path": { "prefix": { "from": "/", "to": "x" } } }), "path/prefix/to: a path begins with `/`"),
        (json!({ "path": { "prefix": { "from": "/", "to": "/x y" } } }), "path/prefix/to: a path holds only visible"),
    ] {
        let text = issue("rewrite", settings);
        assert!(text.starts_with(start), "{text}");
    }
}

#[test]
fn expressions_and_replacements_are_checked_too() {
    let of = |pattern: &str, replacement: &str| {
        issue("rewrite", json!({ "path": { "regex": { "pattern": pattern, "replacement": replacement } } }))
    };
    for (pattern, replacement, part) in [
        ("(", "/", "path/regex/pattern: `(` is not a regular expression: unclosed group"),
        ("(?:a{1,1000}){1,1000}", "/", "path/regex/pattern: the expression is too large once compiled"),
        ("a(?=b)", "/", "look-around"),
        ("(a)", "/$2", "path/regex/replacement: the pattern has no group `2`"),
        ("(a)", "/${x}", "the pattern has no group `x`"),
        ("(a)", "/$1x", "(write `${1}x`)"),
        ("(a)", "/${1", "`${` is never closed"),
        ("(a)", "/$", "(write `$$` for a dollar sign)"),
        ("(a)", "/$99999999999999999999", "the pattern has no group"),
        ("(a)", "/$1?x=1", "path/regex/replacement: a path holds no `?`"),
    ] {
        let text = of(pattern, replacement);
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_method_is_replaced_and_the_received_one_is_still_known() {
    let head = passed(&rewrite(json!({ "method": "POST", "host": "{method}.example" })), request("GET", "/", &[]));
    assert_eq!((head.method_bytes(), head.received_method_bytes()), (&b"POST"[..], &b"GET"[..]));
    assert_eq!(head.authority(), b"GET.example", "the method comes last");
    let chain = rewrite(json!({ "method": "GET", "query": { "set": { "a": "1" } } }));
    let head = passed(&chain, request("OPTIONS", "*", &[]));
    assert_eq!((head.method_bytes(), head.path(), head.query()), (&b"OPTIONS"[..], &b"*"[..], None));
}

#[test]
fn methods_are_checked() {
    for (method, told) in [
        ("", "method: `` is not a method"),
        ("GET /", "method: `GET /` is not a method"),
        ("get", "method: `get` is not a method that endpoints know (write `GET`: methods are case-sensitive)"),
        ("CONNECT", "method: `CONNECT` opens a tunnel and cannot replace another method (use another method)"),
    ] {
        assert_eq!(issue("rewrite", json!({ "method": method })), told);
    }
}

/// The query that a request for `/a` has after these changes; `None` without `?`.
fn query_after(changes: &Value, query: &str) -> Option<String> {
    let sent = request("GET", &format!("/a{query}"), &[("host", "h"), ("x", "a b&c=d+%\u{e9}"), ("empty", "")]);
    let head = passed(&rewrite(json!({ "query": changes })), sent);
    assert_eq!(head.path(), b"/a");
    head.query().map(|query| String::from_utf8(query.to_vec()).unwrap())
}

#[test]
fn parameters_are_removed_renamed_set_and_added_and_the_rest_stays_byte_for_byte() {
    for (changes, query, expected) in [
        (json!({ "remove": ["a"] }), "?a=1&b=2&a&c", "b=2&c"),
        (json!({ "remove": ["a"] }), "?%61=1&A=2", "A=2"),
        (json!({ "remove": ["a b"] }), "?a+b=1&a%20b=2&a%2bb=3&a=4", "a%2bb=3&a=4"),
        (json!({ "remove": ["utm_*"] }), "?utm_a=1&x=+%20%2B&utm%5fb&xutm_&&y=", "x=+%20%2B&xutm_&&y="),
        (json!({ "remove": ["*_id", "*bug*"] }), "?s_id=1&debug=2&bug&id=3", "id=3"),
        (json!({ "remove": ["x"] }), "?&&a==&=b&", "&&a==&=b&"),
        (json!({ "rename": { "a": "b c" } }), "?a=%20+&b=1&a&%61=2", "b%20c=%20+&b=1&b%20c&b%20c=2"),
        (json!({ "rename": { "a": "b", "b": "a" } }), "?a=1&b=2", "b=1&a=2"),
        (json!({ "set": { "a": "x" } }), "?b=1&a=2&c&a=3", "b=1&a=x&c"),
        (json!({ "set": { "a": "x" } }), "?%61=1", "%61=x"),
        (json!({ "set": { "a": "x" } }), "", "a=x"),
        (json!({ "set": { "a": "x" } }), "?", "a=x"),
        (json!({ "set": { "a": "" } }), "?a=1", "a="),
        (json!({ "set": { "ü &": "x=y&z #%" } }), "?b", "b&%C3%BC%20%26=x%3Dy%26z%20%23%25"),
        (json!({ "set": { "a": "{request_header:x}" } }), "", "a=a%20b%26c%3Dd%2B%25%C3%A9"),
        (json!({ "set": { "a": "<{request_header:empty}>" } }), "", "a=%3C%3E"),
        (json!({ "set": { "a": "{query_param:b}" } }), "?b=%20+%41", "b=%20+%41&a=%20+%41"),
        (json!({ "set": { "a": "{path}?{query}" } }), "?b=1", "b=1&a=%2Fa%3Fb%3D1"),
        (json!({ "set": { "a": "{request_header:empty}" } }), "?b&a=1", "b"),
        (json!({ "add": { "a": "x", "b": "{method}" } }), "?a=1", "a=1&a=x&b=GET"),
        (json!({ "add": { "a": "{request_header:empty}" } }), "?b", "b"),
        (json!({ "rename": { "old": "new" }, "set": { "new": "1" } }), "?old=a&new=b", "new=1"),
        (json!({ "remove": ["a"], "set": { "a": "1" } }), "?a=2&b", "b&a=1"),
        (
            json!({ "regex": { "pattern": "(^|&)v=([0-9]+)", "replacement": "${1}version=$2&$$" } }),
            "?v=1&w&v=2",
            "version=1&$&w&version=2&$",
        ),
        (json!({ "regex": { "pattern": "b", "replacement": "a" }, "remove": ["a"] }), "?b=1&c", "c"),
    ] {
        assert_eq!(query_after(&changes, query).as_deref(), Some(expected), "{changes}: {query}");
    }
}

#[test]
fn an_empty_query_loses_its_question_mark_only_where_something_was_done() {
    assert_eq!(query_after(&json!({ "remove": ["a"] }), "?a=1"), None);
    assert_eq!(query_after(&json!({ "set": { "a": "{request_header:empty}" } }), "?a=1"), None);
    assert_eq!(query_after(&json!({ "remove": ["a"] }), "?").as_deref(), Some(""));
    assert_eq!(query_after(&json!({ "remove": ["a"] }), ""), None);
    assert_eq!(query_after(&json!({ "regex": { "pattern": ".*", "replacement": "x" } }), ""), None);
    assert_eq!(query_after(&json!({ "regex": { "pattern": "^.*$", "replacement": "" } }), "?x"), None);
}

#[test]
fn the_host_sees_the_query_as_it_was() {
    let chain = rewrite(json!({ "host": "{query_param:tenant}.example", "query": { "remove": ["tenant"] } }));
    let head = passed(&chain, request("GET", "/?tenant=a&x", &[("host", "h")]));
    assert_eq!((head.authority(), head.query()), (&b"a.example"[..], Some(&b"x"[..])));
}

#[test]
fn a_query_that_grows_too_long_is_answered_414() {
    let long = format!("/?{}", "a".repeat(TARGET_BYTES_MAX - 2));
    let filler = "b".repeat(1000);
    for changes in [
        json!({ "regex": { "pattern": "a", "replacement": filler } }),
        json!({ "set": { "a": "1" } }),
        json!({ "add": { "a": "{query}", "b": "{query}" } }),
        json!({ "rename": { "a".repeat(TARGET_BYTES_MAX - 2): "c".repeat(TARGET_BYTES_MAX) } }),
    ] {
        let mut head = request("GET", &long, &[]);
        assert_eq!(answered(&rewrite(json!({ "query": changes })), &mut head).status, 414);
        assert!(head.fields.capacity_bytes() < 16 * TARGET_BYTES_MAX, "the growth is bounded");
    }
    let untouched = rewrite(json!({ "query": { "remove": ["b"] } }));
    assert_eq!(passed(&untouched, request("GET", &long, &[])).query().unwrap().len(), TARGET_BYTES_MAX - 2);
}

#[test]
fn changes_of_the_query_are_checked() {
    let many: serde_json::Map<String, Value> = (0..65).map(|number| (format!("p{number}"), json!("x"))).collect();
    for (query, told) in [
        (json!({}), ": one of `regex`, `keep`, `remove`, `rename`, `set` and `add` is needed"),
        (json!({ "remove": [] }), "/remove: the list is empty (name the parameters to remove, or leave `remove` out)"),
        (
            json!({ "remove": ["a", "b*c"] }),
            "/remove/1: `b*c` has a `*` in the middle (write `*` at the beginning, at the end, or both)",
        ),
        (json!({ "set": {} }), "/set: no parameter is named (write NAME: TEXT, or leave it out)"),
        (json!({ "set": { "": "x" } }), "/set: the name of a parameter is empty"),
        (json!({ "rename": { "a": "" } }), "/rename/a: the name of a parameter is empty"),
        (json!({ "add": { "a": "{hots}" } }), "/add/a: there is no variable `{hots}` (did you mean `host`?)"),
        (json!({ "set": many }), "/set: 65 parameters are set, at most 64 may be (list the filter twice)"),
        (
            json!({ "regex": { "pattern": "a", "replacement": "b#" } }),
            "/regex/replacement: a query holds only visible ASCII characters and no `#` (percent-encode the others, such as %20)",
        ),
        (
            json!({ "regex": { "pattern": "a", "replacement": "$1" } }),
            "/regex/replacement: the pattern has no group `1`",
        ),
    ] {
        assert_eq!(issue("rewrite", json!({ "query": query })), format!("query{told}"));
    }
}

#[test]
fn matches_in_the_host_are_replaced_whatever_its_case() {
    let regex = |pattern: &str, replacement: &str| {
        rewrite(json!({ "host": { "regex": { "pattern": pattern, "replacement": replacement } } }))
    };
    let chain = regex("^([a-z]+)\\.shop\\.example(:[0-9]+)?$", "$1.internal{path}");
    let host = |chain: &Chain, host: &str| {
        let head = passed(chain, request("GET", "/", &[("host", host)]));
        String::from_utf8_lossy(head.authority()).into_owned()
    };
    let port = regex("^([a-z]+)\\.shop\\.example(:[0-9]+)?$", "$1.internal$2");
    assert_eq!(host(&port, "Ann.Shop.Example:8080"), "Ann.internal:8080");
    assert_eq!(host(&port, "ann.other.example"), "ann.other.example");
    let refused = answered(&chain, &mut request("GET", "/", &[("host", "ann.shop.example")]));
    assert_eq!(refused.status, 400, "a host holds no slash");
    let many = regex("a", "{request_header:x}");
    let long = "b".repeat(200);
    let refused = answered(&many, &mut request("GET", "/", &[("host", "aaaa"), ("x", &long)]));
    assert_eq!(refused.status, 400);
    for (settings, said) in [
        (json!({ "regex": { "pattern": "(", "replacement": "" } }), "host/regex/pattern: "),
        (json!({ "regex": { "pattern": "a)|(b", "replacement": "" } }), "host/regex/pattern: "),
        (
            json!({ "regex": { "pattern": "a", "replacement": "$1" } }),
            "host/regex/replacement: the pattern has no group `1`",
        ),
        (json!({ "pattern": "a" }), "is not a host: write a text or"),
    ] {
        let told = issue("rewrite", json!({ "host": settings }));
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn all_parameters_but_those_that_are_kept_go() {
    let chain = rewrite(json!({ "query": { "keep": ["id", "page*"], "set": { "v": "2" } } }));
    for (target, query) in [
        ("/?id=1&x=2&page_size=3&%69d=4&ID=5", "id=1&page_size=3&%69d=4&v=2"),
        ("/?x=1", "v=2"),
        ("/", "v=2"),
        ("/?v=1&id=1", "id=1&v=2"),
        ("/?&=1&&id=1", "id=1&v=2"),
    ] {
        let head = passed(&chain, request("GET", target, &[("host", "h")]));
        assert_eq!(String::from_utf8_lossy(head.query().unwrap()), query, "{target}");
    }
    let both = rewrite(json!({ "query": { "keep": ["a*"], "remove": ["ab"] } }));
    let head = passed(&both, request("GET", "/?a=1&ab=2&c=3", &[("host", "h")]));
    assert_eq!(head.query(), Some(&b"a=1"[..]));
    assert!(issue("rewrite", json!({ "query": { "keep": [] } })).contains("query/keep: the list is empty"));
}
