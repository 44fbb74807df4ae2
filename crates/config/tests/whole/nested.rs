//! Routes below routes, and filters of listeners.

use model::matching::PathMatch;
use serde_json::{Value, json};

use crate::support::load;

/// A site with these routes, each line below `routes:`.
fn site(routes: &str) -> String {
    format!(
        "version: 1\nlisteners:\n  web: {{ bind: \"127.0.0.1:80\" }}\n  more: {{ bind: \"127.0.0.1:81\" }}\nroutes:\n{routes}\n\
         clusters:\n  a: {{ endpoints: [\"10.0.0.1:80\"] }}\n  b: {{ endpoints: [\"10.0.0.2:80\"] }}\n"
    )
}

fn routes(text: &str) -> Vec<Value> {
    let shown = load(&site(text)).unwrap_or_else(|wrong| panic!("{wrong}\n{text}")).effective();
    shown["routes"].as_array().unwrap().clone()
}

/// What is reported about a text.
fn messages(text: &str) -> Vec<String> {
    load(text).map(|_| Vec::new()).unwrap_or_else(|wrong| wrong.list.iter().map(|one| one.message.clone()).collect())
}

/// What is reported about a route `child` with these conditions below one with those.
fn reported(above: &str, own: &str) -> Vec<String> {
    let text = format!(
        "  - name: top\n    match: {above}\n    cluster: a\n    routes:\n      - {{ name: child, match: {own}, timeout: 1s }}\n  - {{ match: {{ path: {{ exact: /other }} }}, cluster: b }}\n"
    );
    match load(&site(&text)) {
        Ok(loaded) => loaded.warnings().iter().map(|warning| format!("warning: {}", warning.message)).collect(),
        Err(wrong) => wrong.list.iter().map(|one| one.message.clone()).collect(),
    }
}

/// The conditions that a route has with `own` below one with `above`.
fn joined(above: &str, own: &str) -> Value {
    let text = format!("  - match: {above}\n    routes:\n      - {{ name: child, cluster: a, match: {own} }}\n");
    routes(&text)[0]["match"].clone()
}

#[test]
fn a_nested_route_has_the_conditions_filters_and_settings_of_those_above() {
    let text = "  - name: shop
    match: { host: \"*.shop.example\", path: { prefix: /api } }
    timeout: 5s
    retry: { attempts_max: 3 }
    priority: 2
    cluster: a
    filters: [{ set_request_header: { x-a: one } }]
    routes:
      - name: admin
        match: { host: admin.shop.example, headers: { x-site: north } }
        filters: [{ set_request_header: { x-b: two } }]
        cluster: b
        routes:
          - { match: { path: { exact: /api/users } }, timeout: 9s }
      - match: { method: POST }
        retry: { timeout: 1s }
  - respond: { status: 404 }";
    let all = routes(text);
    let names: Vec<&str> = all.iter().map(|route| route["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["admin.1", "admin", "shop.2", "shop", "route-2"], "what is nested comes first");
    let users = &all[0];
    assert_eq!(users["match"]["host"], json!(["admin.shop.example"]));
    assert_eq!(users["match"]["path"], json!({ "exact": "/api/users" }));
    assert_eq!(users["match"]["headers"], json!({ "x-site": "north" }));
    assert_eq!((&users["cluster"], &users["timeout"], &users["priority"]), (&json!("b"), &json!("9s"), &json!(2)));
    let filters = json!([{ "set_request_header": { "x-a": "one" } }, { "set_request_header": { "x-b": "two" } }]);
    assert_eq!(users["filters"], filters, "those above run first");
    assert_eq!((&all[1]["cluster"], &all[1]["timeout"]), (&json!("b"), &json!("5s")));
    assert_eq!(all[2]["cluster"], json!("a"));
    assert_eq!(all[2]["retry"]["attempts_max"], json!(3), "settings are joined key by key");
    assert_eq!(all[2]["retry"]["timeout"], json!("1s"));
    assert_eq!(all[3]["match"]["host"], json!("*.shop.example"));
    let snapshot = load(&site(text)).unwrap().snapshot;
    let above = |index: usize| snapshot.routes[index].above.iter().map(|name| name.as_str()).collect::<Vec<_>>();
    assert_eq!((above(0), above(1), above(3)), (vec!["shop", "admin"], vec!["shop"], vec![]));
    assert_eq!(snapshot.routes[0].matches.path, Some(PathMatch::Exact("/api/users".into())));
}

#[test]
fn a_route_that_only_holds_others_takes_no_requests() {
    let all = routes(
        "  - { match: { host: a.example }, routes: [{ cluster: a }, { match: { path: { prefix: /b } }, cluster: b }] }",
    );
    assert_eq!(all.len(), 2);
    assert_eq!((&all[0]["name"], &all[0]["match"]["host"]), (&json!("route-1.1"), &json!("a.example")));
    // One that answers itself has no use for what is for clusters.
    let all = routes(
        "  - { cluster: a, retry: { attempts_max: 2 }, timeout: 2s, routes: [{ match: { path: { exact: /x } }, respond: {} }] }",
    );
    assert_eq!((&all[0]["retry"], &all[0]["cluster"], &all[0]["timeout"]), (&Value::Null, &Value::Null, &json!("2s")));
}

#[test]
fn conditions_are_those_of_both() {
    assert_eq!(
        joined("{ host: [a.example, \"*.b.example\"] }", "{ host: [x.b.example, a.example] }")["host"],
        json!(["x.b.example", "a.example"])
    );
    assert_eq!(joined("{ host: a.example }", "{ host: \"*.example\" }")["host"], json!(["a.example"]));
    assert_eq!(joined("{ method: [GET, POST] }", "{ method: POST }")["method"], json!(["POST"]));
    assert_eq!(joined("{ source: 10.0.0.0/8 }", "{ source: [10.1.0.0/16] }")["source"], json!(["10.1.0.0/16"]));
    assert_eq!(joined("{ path: { prefix: /a } }", "{ path: { prefix: /a/b } }")["path"], json!({ "prefix": "/a/b" }));
    assert_eq!(joined("{ path: { prefix: /a/ } }", "{ path: { prefix: / } }")["path"], json!({ "prefix": "/a/" }));
    assert_eq!(
        joined("{ path: { prefix: /a } }", "{ path: { regex: \"/a/v[0-9]+\" } }")["path"],
        json!({ "regex": "/a/v[0-9]+" })
    );
    assert_eq!(
        joined("{ headers: { X-A: { present: true } } }", "{ headers: { x-a: \"1\", b: \"2\" } }")["headers"],
        json!({ "x-a": "1", "b": "2" })
    );
    assert_eq!(joined("{ query: { q: \"1\" } }", "{ query: { q: { present: true } } }")["query"], json!({ "q": "1" }));
    let both = joined("{ expression: \"request.size > 1 // much\" }", "{ expression: \"request.size < 9\" }");
    assert_eq!(both["expression"], json!("(request.size > 1 // much\n) && (request.size < 9\n)"));
}

#[test]
fn a_route_that_contradicts_the_one_above_is_reported() {
    let never = "route `child` can never match: ";
    for (above, own, wanted) in [
        (
            "{ host: a.example }",
            "{ host: b.example }",
            "the host `b.example` is outside `a.example` of the route above",
        ),
        (
            "{ host: \"*.a.example\" }",
            "{ host: [a.example] }",
            "the host `a.example` is outside `*.a.example` of the route above",
        ),
        ("{ method: GET }", "{ method: POST }", "the method `POST` is outside `GET` of the route above"),
        (
            "{ source: 10.0.0.0/8 }",
            "{ source: 11.0.0.0/8 }",
            "the network `11.0.0.0/8` is outside `10.0.0.0/8` of the route above",
        ),
        (
            "{ path: { prefix: /api } }",
            "{ path: { prefix: /users } }",
            "the path `/users` is outside prefix `/api` of the route above",
        ),
        (
            "{ path: { prefix: /api } }",
            "{ path: { exact: /apix } }",
            "the path `/apix` is outside prefix `/api` of the route above",
        ),
        (
            "{ path: { exact: /a } }",
            "{ path: { exact: /b } }",
            "the path `/b` is outside exact `/a` of the route above",
        ),
        (
            "{ headers: { a: \"1\" } }",
            "{ headers: { A: \"2\" } }",
            "the condition on the header field `a` contradicts that of the route above",
        ),
        (
            "{ cookies: { a: { absent: true } } }",
            "{ cookies: { a: x } }",
            "the condition on the value `a` contradicts that of the route above",
        ),
    ] {
        assert_eq!(reported(above, own), [format!("{never}{wanted}")], "{above} {own}");
    }
    let regex = "the expression must begin with `/api`, the path of the route above";
    assert_eq!(reported("{ path: { prefix: /api } }", "{ path: { regex: \"/a.*\" } }"), [regex]);
    assert_eq!(reported("{ path: { prefix: /api } }", "{ path: { regex: \"/api(/v1|x)\" } }"), [regex]);
    assert_eq!(
        reported("{ path: { regex: \"/a.*\" } }", "{ path: { exact: /ab } }"),
        ["a route below `regex: /a.*` cannot have another path"]
    );
    assert_eq!(
        reported("{ query: { q: { regex: a } } }", "{ query: { q: { regex: b } } }"),
        ["the route above has a condition on the value `q` too"]
    );
    let text = site("  - { listeners: [web], routes: [{ name: child, listeners: [more], cluster: a }] }");
    assert_eq!(messages(&text), [format!("{never}the route above has no listener `more`")]);
    let hidden = "warning: no request reaches route `child`: route `top` in line 6 matches the same requests and has a prefix, which \
                  comes before a regular expression";
    assert_eq!(reported("{ path: { prefix: /api } }", "{ path: { regex: \"/api/v[0-9]\" } }"), [hidden]);
    // Nothing is wrong with what both have.
    assert_eq!(
        reported("{ path: { prefix: /api }, host: a.example }", "{ path: { prefix: /api/x }, host: a.example }"),
        [""; 0]
    );
}

#[test]
fn mistakes_in_what_is_inherited_are_shown_where_they_stand() {
    let text = site(
        "  - match: { host: \"a b\" }\n    timeout: fast\n    colour: red\n    routes:\n      - { name: one, cluster: a }",
    );
    let wrong = load(&text).unwrap_err();
    let lines: Vec<u32> = wrong.list.iter().map(|one| one.line).collect();
    assert_eq!(lines, [6, 7, 8], "{wrong}");
    let text = site("  - name: one\n    routes:\n      - { name: one, cluster: a }");
    assert_eq!(messages(&text), ["the name `one` is already used by another route"]);
    let text = site("  - name: one\n    cluster: a\n    routes:\n      - { name: one, match: { method: GET } }");
    assert_eq!(messages(&text).len(), 1);
    let text = site("  - { match: { host: a.example }, routes: [{ match: { path: { exact: / } } }] }");
    assert!(messages(&text)[0].contains("`cluster`"), "{:?}", messages(&text));
    for routes in ["[]", "{ a: 1 }", "[7]", "no"] {
        assert_eq!(messages(&site(&format!("  - {{ cluster: a, routes: {routes} }}"))).len(), 1, "{routes}");
    }
}

#[test]
fn routes_are_nested_eight_levels_deep_and_no_deeper() {
    let nested = |levels: usize| {
        let inner =
            (1..levels).fold("{ name: inner, cluster: a }".to_owned(), |inner, _| format!("{{ routes: [{inner}] }}"));
        site(&format!("  - {inner}"))
    };
    assert_eq!(load(&nested(8)).unwrap().snapshot.routes.len(), 1);
    assert!(messages(&nested(9)).contains(&"routes are nested at most 8 levels deep".to_owned()));
}

#[test]
fn defaults_fill_what_no_route_of_the_way_says() {
    let text = site(
        "  - { timeout: 1s, routes: [{ name: a, match: { method: GET }, cluster: a }, { cluster: b, defaults: false }] }",
    );
    let text = format!("{text}defaults: {{ routes: {{ timeout: 9s, retry: {{ attempts_max: 4 }} }} }}\n");
    let shown = load(&text).unwrap().effective();
    assert_eq!(
        (&shown["routes"][0]["timeout"], &shown["routes"][0]["retry"]["attempts_max"]),
        (&json!("1s"), &json!(4))
    );
    assert_eq!((&shown["routes"][1]["timeout"], &shown["routes"][1]["retry"]), (&json!("1s"), &Value::Null));
}

#[test]
fn filters_of_a_listener_come_before_those_of_its_routes() {
    let text = "version: 1
listeners:
  web: { bind: \"127.0.0.1:80\", filters: [{ set_request_header: { x-w: web } }, { set_response_header: { a: b }, when: { method: GET } }] }
  more: { bind: \"127.0.0.1:81\" }
routes:
  - { name: own, listeners: [web], cluster: a, filters: [{ set_request_header: { x-r: own } }] }
  - { name: both, match: { path: { exact: /b } }, cluster: a }
  - { name: other, listeners: [more], match: { path: { exact: /c } }, cluster: a }
clusters:
  a: { endpoints: [\"10.0.0.1:80\"] }
";
    let loaded = load(text).unwrap_or_else(|wrong| panic!("{wrong}"));
    let filters = |index: usize| &loaded.snapshot.routes[index].filters;
    let settings = |index: usize| filters(index).iter().map(|used| used.settings.clone()).collect::<Vec<_>>();
    let web = [json!({ "x-w": "web" }), json!({ "a": "b" })];
    assert_eq!(settings(0), [&web[..], &[json!({ "x-r": "own" })]].concat());
    assert_eq!(settings(1), web);
    assert!(filters(2).is_empty());
    assert!(filters(0)[0].when.is_none(), "the route has no other listener");
    assert!(format!("{:?}", filters(1)[0].when).contains("listener.name == \\\"web\\\""), "{:?}", filters(1)[0].when);
    let all = &filters(1)[1].when.as_ref().unwrap().all;
    assert_eq!((all.len(), &*all[1].matches.methods[0]), (2, "GET"));
    // They are shown where they were written: in the routes, they would apply twice when sent back.
    let shown = loaded.effective();
    assert_eq!(shown["listeners"]["web"]["filters"][0], json!({ "set_request_header": { "x-w": "web" } }));
    assert_eq!(shown["routes"][0]["filters"], json!([{ "set_request_header": { "x-r": "own" } }]));
    assert_eq!(shown["routes"][1]["filters"], json!([]));
    let wrong = text.replace("x-w: web", "X-W: web");
    assert_eq!(load(&wrong).unwrap_err().list[0].line, 3);
    let tcp = text.replace("81\" }", "81\", protocol: tcp, cluster: a, filters: [] }");
    assert!(
        messages(&tcp).iter().any(|message| message.contains("`filters` is for `protocol: http`")),
        "{:?}",
        messages(&tcp)
    );
}

#[test]
fn mistakes_in_a_route_are_reported_even_if_those_below_have_their_own() {
    let wrong = |keys: &str, own: &str| {
        let text =
            site(&format!("  - name: top\n    {keys}\n    routes:\n      - {{ name: child, cluster: a, {own} }}"));
        let list = load(&text).map(|_| Vec::new()).unwrap_or_else(|wrong| wrong.list);
        list.iter().map(|one| one.line).collect::<Vec<_>>()
    };
    let filters = "filters: [{ set_request_header: { x-b: two } }]";
    for (keys, own) in [
        ("filters: { set_request_header: { x-a: one } }", filters),
        ("filters: set_request_header", filters),
        ("filters: [{ set_request_headr: { x-a: one } }]", filters),
        ("match: [{ host: a.example }]", "match: { host: b.example }"),
        ("match: { path: /api }", "match: { path: { prefix: /api } }"),
        ("match: { headers: [x-a] }", "match: { headers: { x-b: one } }"),
        ("match: { headers: { x-a: [one] } }", "match: { headers: { x-a: one } }"),
        ("match: { expression: [\"true\"] }", "match: { expression: \"true\" }"),
        ("listeners: web", "listeners: [more]"),
        ("timeout: fast", "timeout: 1s"),
    ] {
        assert_eq!(wrong(keys, own), [7], "{keys}");
        let outer = site(&format!(
            "  - name: outer\n    {keys}\n    routes:\n      - {{ name: top, routes: [{{ name: child, cluster: a, {own} }}] }}"
        ));
        assert!(load(&outer).is_err(), "{keys}, two levels up");
    }
    assert_eq!(wrong(filters, filters), [0_u32; 0]);
}

#[test]
fn an_expression_cannot_leave_the_one_above() {
    let wanted = "the expression has a bracket or quote without its counterpart";
    for own in ["true) || (true", "\\\"\\\"\\\" || true", "size(request.path", "]"] {
        assert_eq!(
            reported("{ expression: \"request.size > 1\" }", &format!("{{ expression: \"{own}\" }}")),
            [wanted],
            "{own}"
        );
    }
    let above = reported("{ expression: \"true) || (true\" }", "{ expression: \"true\" }");
    assert_eq!(above, [wanted]);
    assert_eq!(reported("{ expression: \"request.size > 1\" }", "{ expression: \" \" }"), ["the expression is empty"]);
}
