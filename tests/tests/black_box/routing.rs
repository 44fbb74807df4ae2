//! Which request goes where.

use super::harness::product::{command_in, folder};
use super::harness::{Message, Origin, Peer, Product, Setup, http2};
use super::http3;

/// Routes that answer with their own name, in this order, before one that answers `rest`.
fn start(routes: &[(&str, &str)]) -> Product {
    let listed: String = routes
        .iter()
        .map(|(name, rule)| format!("  - {{ name: {name}, {rule}, respond: {{ body: {name} }} }}\n"))
        .collect();
    Product::start(&format!(
        "version: 1\nlisteners:\n  web: {{ bind: \"127.0.0.1:0\" }}\n  other: {{ bind: \"127.0.0.1:0\" }}\n\
         routes:\n{listed}  - {{ name: rest, respond: {{ body: rest }} }}\n"
    ))
}

/// Which route a request takes. `request` is what stands before ` HTTP/1.1`, then fields.
fn taken(product: &Product, line: &str, fields: &str) -> String {
    product.connect().ask(format!("{line} HTTP/1.1\r\n{fields}\r\n")).text()
}

fn get(product: &Product, host: &str, target: &str) -> String {
    taken(product, &format!("GET {target}"), &format!("Host: {host}\r\n"))
}

#[test]
fn a_host_matches_exactly_before_the_longest_wildcard() {
    let product = start(&[
        ("wild", "match: { host: \"*.example.com\" }"),
        ("deep", "match: { host: \"*.shop.example.com\" }"),
        ("exact", "match: { host: www.shop.example.com }"),
        ("two", "match: { host: [one.test, two.test] }"),
        ("six", "match: { host: \"[::1]\" }"),
    ]);
    for (host, route) in [
        ("www.shop.example.com", "exact"),
        ("WWW.Shop.Example.COM:8080", "exact"),
        ("a.shop.example.com", "deep"),
        ("a.b.shop.example.com", "deep"),
        ("a.example.com", "wild"),
        ("example.com", "rest"),
        ("badexample.com", "rest"),
        ("one.test", "two"),
        ("two.test:1", "two"),
        ("[::1]:80", "six"),
        ("three.test", "rest"),
    ] {
        assert_eq!(get(&product, host, "/"), route, "{host}");
    }
}

#[test]
fn a_path_matches_exactly_then_by_the_longest_prefix_then_by_expression() {
    let product = start(&[
        ("digits", "match: { path: { regex: \"/[0-9]+\" } }"),
        ("api", "match: { path: { prefix: /api } }"),
        ("api-two", "match: { path: { prefix: /api/v2 } }"),
        ("exact", "match: { path: { exact: /api/v2/me } }"),
        ("slash", "match: { path: { prefix: /dir/ } }"),
    ]);
    for (target, route) in [
        ("/api", "api"),
        ("/api/", "api"),
        ("/api/x?y=/z", "api"),
        ("/api?x", "api"),
        ("/apix", "rest"),
        ("/API", "rest"),
        ("/api/v2", "api-two"),
        ("/api/v2/you", "api-two"),
        ("/api/v22", "api"),
        ("/api/v2/me", "exact"),
        ("/api/v2/me?x=1", "exact"),
        ("/api/v2/me/", "api-two"),
        ("/123", "digits"),
        ("/123/", "rest"),
        ("/x/123", "rest"),
        ("/123?a", "digits"),
        ("/%61pi", "api"),
        ("//api", "api"),
        ("/x/../api/./v2/m%65", "exact"),
        ("/dir/a", "slash"),
    ] {
        assert_eq!(get(&product, "test", target), route, "{target}");
    }
}

#[test]
fn methods_headers_query_and_cookies_are_conditions_that_all_must_hold() {
    let product = start(&[
        ("both", "match: { method: POST, headers: { x-a: \"1\", x-b: { present: true } } }"),
        ("method", "match: { method: [POST, PUT] }"),
        ("header", "match: { headers: { x-version: { regex: \"v[0-9]+\" } } }"),
        ("absent", "match: { path: { exact: /absent }, headers: { x-a: { absent: true } } }"),
        ("query", "match: { query: { kind: \"a b\", other: { present: true } } }"),
        ("cookie", "match: { cookies: { group: beta } }"),
    ]);
    for (line, fields, route) in [
        ("POST /", "X-A: 1\r\nX-B: \r\n", "both"),
        ("POST /", "X-A: 2\r\nX-B: 1\r\n", "method"),
        ("POST /", "X-A: 1\r\n", "method"),
        ("PUT /", "", "method"),
        ("post /", "", "rest"),
        ("GET /", "X-VERSION: v12\r\n", "header"),
        ("GET /", "X-Version: av12\r\n", "rest"),
        ("GET /", "X-Version: v12x\r\n", "rest"),
        ("GET /absent", "", "absent"),
        ("GET /absent", "X-A: 1\r\n", "rest"),
        ("GET /?kind=a%20b&other", "", "query"),
        ("GET /?other=1&kind=a%20b", "", "query"),
        ("GET /?kind=a%20b", "", "rest"),
        ("GET /?kind=b&kind=a%20b&other", "", "rest"),
        ("GET /?Kind=a%20b&other", "", "rest"),
        ("GET /", "Cookie: a=b; group=beta\r\n", "cookie"),
        ("GET /", "Cookie: group=beta2\r\n", "rest"),
        ("GET /", "Cookie: xgroup=beta\r\n", "rest"),
        ("GET /", "Cookie: a=b\r\nCookie: group=beta\r\n", "cookie"),
    ] {
        assert_eq!(taken(&product, line, &format!("Host: test\r\n{fields}")), route, "{line} {fields}");
    }
}

#[test]
fn the_source_of_a_request_is_a_condition() {
    let product = start(&[
        ("far", "match: { source: 192.0.2.0/24 }"),
        ("near", "match: { path: { prefix: /near }, source: [\"10.0.0.0/8\", 127.0.0.0/8] }"),
    ]);
    assert_eq!(get(&product, "test", "/near"), "near");
    assert_eq!(get(&product, "test", "/"), "rest");
}

#[test]
fn the_most_specific_route_wins_whatever_the_order_and_priority_overrides() {
    let product = start(&[
        ("prefix", "match: { path: { prefix: /a } }"),
        ("methods", "match: { path: { prefix: /a }, method: GET }"),
        ("headers", "match: { path: { prefix: /a }, headers: { x-a: \"1\" } }"),
        ("hosted", "match: { host: a.test }"),
        ("first", "match: { path: { exact: /same } }"),
        ("second", "match: { path: { exact: /same } }"),
        ("forced", "match: { headers: { x-force: { present: true } } }, priority: 10"),
        ("late", "match: { path: { exact: /late } }, priority: -1"),
        ("soon", "match: { path: { prefix: /late } }"),
    ]);
    assert_eq!(get(&product, "test", "/a"), "methods");
    assert_eq!(taken(&product, "PUT /a", "Host: test\r\nX-A: 1\r\n"), "headers");
    assert_eq!(taken(&product, "PUT /a", "Host: test\r\n"), "prefix");
    assert_eq!(get(&product, "a.test", "/a"), "hosted", "the host counts before the path");
    assert_eq!(get(&product, "test", "/same"), "first");
    assert_eq!(taken(&product, "GET /same", "Host: a.test\r\nX-Force: \r\n"), "forced");
    assert_eq!(get(&product, "test", "/late"), "soon");
}

#[test]
fn a_route_may_belong_to_some_listeners_only() {
    let product = start(&[("inside", "listeners: [other]")]);
    assert_eq!(get(&product, "test", "/"), "rest");
    let mut peer = super::harness::Peer::connect(product.address("other"));
    assert_eq!(peer.get("/").text(), "inside");
}

#[test]
fn a_request_that_no_route_matches_is_answered_404() {
    let origin = Origin::saying("never");
    let product = Setup::to(&origin).route("match: { host: shop.example }").start();
    let mut peer = product.connect();
    assert_eq!(peer.get("/").status(), 404);
    let posted = peer.ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(posted.status(), 404);
    product.flagged("PN");
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_request_with_a_body_that_is_answered_here_leaves_the_connection_in_step_or_closed() {
    let product = start(&[]);
    let mut peer = product.connect();
    let answer = peer.ask("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 26\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n");
    assert_eq!(answer.text(), "rest");
    if answer.field("connection").is_none() {
        assert_eq!(peer.get("/").text(), "rest");
        peer.assert_open();
    } else {
        peer.assert_closed();
    }
}

#[test]
fn a_split_between_clusters_follows_the_weights() {
    let origins = ["one", "three", "never"].map(Origin::saying);
    let listed: String = ["one", "three", "never"]
        .iter()
        .zip(&origins)
        .map(|(name, origin)| format!("  {name}: {{ endpoints: [\"{}\"] }}\n", origin.address()))
        .collect();
    let product = Product::start(&format!(
        "version: 1\nlisteners:\n  web: {{ bind: \"127.0.0.1:0\" }}\nroutes:\n\
         \x20 - clusters: [{{ cluster: one, weight: 1 }}, {{ cluster: three, weight: 3 }}, {{ cluster: never, weight: 0 }}]\n\
         clusters:\n{listed}"
    ));
    let mut peer = product.connect();
    for _ in 0..1000 {
        peer.get("/");
    }
    let counts = origins.each_ref().map(|origin| origin.requests().len());
    // 250 expected; ten standard deviations (14 each) are room enough for a test that runs a million times.
    assert!((110..390).contains(&counts[0]), "{counts:?}");
    assert_eq!((counts[0] + counts[1], counts[2]), (1000, 0));
}

#[test]
fn a_redirect_keeps_what_it_does_not_change() {
    let product = Product::start(
        "version: 1\nlisteners:\n  web: { bind: \"127.0.0.1:0\" }\nroutes:\n\
         \x20 - { match: { path: { prefix: /tls } }, redirect: { scheme: https } }\n\
         \x20 - { match: { path: { prefix: /host } }, redirect: { host: new.example, status: 301 } }\n\
         \x20 - { match: { path: { prefix: /port } }, redirect: { port: 8443, scheme: https, status: 308 } }\n\
         \x20 - { match: { path: { prefix: /own } }, redirect: { port: 443, scheme: https, status: 307 } }\n\
         \x20 - { match: { path: { prefix: /path } }, redirect: { path: \"/new{path}\", status: 303 } }\n",
    );
    let location = |target: &str| -> (u16, String) {
        let answer: Message = product.connect().ask(format!("GET {target} HTTP/1.1\r\nHost: old.example:81\r\n\r\n"));
        (answer.status(), answer.field("location").unwrap_or_default().to_owned())
    };
    assert_eq!(location("/tls/a?b=c%20d").1, "https://old.example/tls/a?b=c%20d");
    let (status, host) = location("/host?x");
    assert_eq!(status, 301);
    assert!(host.starts_with("http://new.example") && host.ends_with("/host?x"), "{host}");
    assert_eq!(location("/port"), (308, "https://old.example:8443/port".into()));
    assert_eq!(location("/own"), (307, "https://old.example/own".into()));
    let (status, path) = location("/path/x?q=1");
    assert_eq!(status, 303);
    assert!(path.contains("/new/path/x") && path.contains("q=1"), "{path}");
}

#[test]
fn a_redirect_cannot_be_made_to_split_its_response() {
    let product = Product::start(
        "version: 1\nlisteners:\n  web: { bind: \"127.0.0.1:0\" }\nroutes:\n\
         \x20 - { redirect: { host: new.example, path: \"/{query_param:to}\" } }\n",
    );
    let answer = product.connect().ask("GET /?to=%0d%0aX-Evil:%201 HTTP/1.1\r\nHost: test\r\n\r\n");
    assert!(answer.all("x-evil").is_empty(), "{answer:?}");
    assert!(answer.field("location").is_some_and(|location| location.starts_with("http://new.example")));
}

#[test]
fn an_answer_that_is_given_here_is_complete() {
    let product = Product::start(
        "version: 1\nlisteners:\n  web: { bind: \"127.0.0.1:0\" }\nroutes:\n\
         \x20 - respond: { status: 418, headers: { content-type: text/plain, X-Mood: short }, body: \"a teapot\" }\n",
    );
    let mut peer = product.connect();
    let answer = peer.get("/");
    assert_eq!((answer.status(), answer.text().as_str()), (418, "a teapot"));
    assert_eq!((answer.field("x-mood"), answer.field("content-type")), (Some("short"), Some("text/plain")));
    assert_eq!(answer.field("content-length"), Some("8"));
    peer.send("HEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.head().field("content-length"), Some("8"));
    assert_eq!(peer.get("/").text(), "a teapot");
}

/// A setup whose route `/admin` lets nobody in, before one that lets everybody.
fn guarded(origin: &Origin) -> Setup {
    Setup::to(origin).route_before("{ name: admin, match: { path: { prefix: /admin } }, respond: { status: 403 } }")
}

/// Ways to write a path below `/admin` that an endpoint may understand.
const DISGUISES: [&str; 9] = [
    "/admin",
    "/%61dmin/",
    "/%61%64%6D%69%6e?a=b",
    "//admin",
    "/./admin",
    "/%2e/admin",
    "/public/../admin/x",
    "/public/%2E%2e/admin",
    "/public/x/..//../%2e//admin//",
];

#[test]
fn a_path_is_guarded_however_it_is_written_in_every_version() {
    let origin = Origin::saying("inside");
    let site = http3::site(guarded(&origin).listener_more("plain: { bind: \"127.0.0.1:0\" }"), 2);
    let plain = site.product.address("plain");
    let (mut two, mut three) = (http2::Client::connect(plain), site.connect());
    let ask = |target: &str| Peer::connect(plain).get(target).status();
    for target in DISGUISES {
        assert_eq!(ask(target), 403, "{target}");
        assert_eq!(ask(&format!("http://test{target}")), 403, "absolute: {target}");
        assert_eq!(two.get(target).status, 403, "HTTP/2: {target}");
        assert_eq!(three.get(target).status, 403, "HTTP/3: {target}");
    }
    assert_eq!(origin.requests().len(), 0);
    assert_eq!((ask("/admins"), two.get("/%41dmin").status, three.get("/admin/../x").status), (200, 200, 200));
}

#[test]
fn endpoints_are_sent_the_form_that_routes_were_compared_with() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).route("filters: [{ set_request_header: { x-path: \"{path}\" } }]").start();
    let mut peer = product.connect();
    for (target, wanted) in [
        ("/a/b.html?q=%61//../b", "/a/b.html?q=%61//../b"),
        ("/x//../%7euser/./caf%c3%a9", "/~user/caf%C3%A9"),
        ("/.well-known/a%20b", "/.well-known/a%20b"),
        ("/..", "/"),
    ] {
        assert_eq!(peer.get(target).text(), "fine");
        let request = origin.requests().pop().expect("it was passed on");
        assert_eq!(request.target(), wanted, "{target}");
        assert_eq!(request.field("x-path"), wanted.split('?').next(), "{target}");
    }
    assert_eq!(peer.ask("OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n").text(), "fine");
    assert_eq!(origin.requests().pop().expect("it was passed on").target(), "*");
    // The log has what was asked for.
    product.record("as it came", |record| record["path"] == "/x//../%7euser/./caf%c3%a9");
}

#[test]
fn a_path_that_can_be_read_in_several_ways_is_refused() {
    let origin = Origin::saying("inside");
    let product = guarded(&origin).start();
    let slashes = ["/%2fadmin", "/public/..%2Fadmin", "/a%5cb", "/a\\..\\admin"];
    let others = ["/admin%00", "/%", "/%zz", "/..;/admin", "/;/admin", "/;x=1/admin"];
    // It may be the connection of a proxy, with others' requests to come.
    let mut peer = product.connect();
    for target in slashes.into_iter().chain(others) {
        assert_eq!(peer.get(target).status(), 400, "{target}");
    }
    let answer = peer.ask("POST /a%2Fb HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!((answer.status(), peer.get("/b").text()), (400, "inside".into()), "what is here of a body is read");
    peer.send("POST /a%2Fb HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(peer.response().status(), 400);
    peer.wait_closed();
    let mut client = http2::Client::connect(product.web());
    assert_eq!((client.get("/a%2Fb").status, client.get("/a").status), (400, 200), "its connection lives on");
    assert_eq!(product.flagged("CA")["fault"], "ambiguous_path");
    product.expect_metric("equipoise_faults_total", &["fault=\"ambiguous_path\""], 13.0);
    assert_eq!(origin.requests().len(), 2);
    let product = guarded(&origin).listener("paths: { escaped_slashes: keep }").start();
    for target in ["/public/..%2Fadmin", "/public/..\\admin", "/x%2F..%2F..%2Fadmin"] {
        assert_eq!(product.get(target).status(), 400, "{target}");
    }
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_route_guards_its_path_in_whatever_form_the_configuration_writes_it() {
    let origin = Origin::saying("inside");
    for (written, target) in [
        ("/caf%c3%a9/intern", "/caf%c3%a9/intern"),
        ("/caf%c3%a9/intern", "/caf%C3%A9/intern/x"),
        ("/%7Eops", "/~ops"),
        ("/a//b/./c", "/a/b/c"),
    ] {
        let guard =
            format!("{{ name: guard, match: {{ path: {{ prefix: '{written}' }} }}, respond: {{ status: 403 }} }}");
        let product = Setup::to(&origin).route_before(guard).start();
        assert_eq!(product.get(target).status(), 403, "{written}: {target}");
        let filter = format!(
            "filters: [{{ address_list: {{ allow: ['192.0.2.1'] }}, when: {{ path: {{ prefix: '{written}' }} }} }}, \
             {{ rewrite: {{ path: {{ prefix: {{ from: '{written}', to: /new }} }} }} }}]"
        );
        assert_eq!(
            Setup::to(&origin).route(filter).start().get(target).status(),
            403,
            "a filter of {written}: {target}"
        );
        let rewriting =
            format!("filters: [{{ rewrite: {{ path: {{ prefix: {{ from: '{written}', to: /new }} }} }} }}]");
        assert_eq!(Setup::to(&origin).route(rewriting).start().get(target).status(), 200);
        let request = origin.requests().pop().expect("it was passed on");
        assert!(request.target().starts_with("/new"), "{written}: {}", request.target());
    }
}

#[test]
fn a_listener_says_what_becomes_of_slashes_and_whether_paths_stay_as_they_came() {
    let origin = Origin::saying("inside");
    for (paths, target, sent) in [
        ("{ escaped_slashes: keep }", "/%2fadmin", Some("/%2Fadmin")),
        ("{ escaped_slashes: keep }", "/api/group%2Fproject//x", Some("/api/group%2Fproject/x")),
        ("{ escaped_slashes: decode }", "/public/..%2fadmin", None),
        ("{ escaped_slashes: decode }", "/a%5Cb", Some("/a/b")),
        ("{ merge_slashes: false }", "//admin", Some("//admin")),
        ("{ merge_slashes: false }", "/./admin", None),
        ("{ normalize: false }", "/%61dmin", Some("/%61dmin")),
        ("{ normalize: false }", "/x/../a%2fb\\%zz", Some("/x/../a%2fb\\%zz")),
    ] {
        let product = guarded(&origin).listener(format!("paths: {paths}")).start();
        let before = origin.requests().len();
        assert_eq!(product.get(target).status(), if sent.is_some() { 200 } else { 403 }, "{paths} {target}");
        let requests = origin.requests();
        let seen: Vec<&str> = requests[before..].iter().map(Message::target).collect();
        assert_eq!(seen, Vec::from_iter(sent), "{paths} {target}");
    }
}

/// A site whose route lets requests name a cluster; `more` goes into `cluster`.
fn naming(origins: &[Origin; 3], more: &str) -> Setup {
    let address = |place: usize| origins[place].address();
    let route = format!(
        "{{ name: named, filters: [{{ remove_request_header: [x-gone] }}], cluster: {{ from: \"shop{{request_header:x-cluster}}{{request_header:x-gone}}\", \
         allowed: [shop-b, shop-a]{more} }} }}"
    );
    Setup::to(&origins[2])
        .cluster_more(format!("shop-a: {{ endpoints: [\"{}\"] }}", address(0)))
        .cluster_more(format!("shop-b: {{ endpoints: [\"{}\"] }}", address(1)))
        .route_before(route)
}

/// Asks over every version with this value of a field, if it has one: status and body.
fn ask_all(site: &http3::Site, plain: &Product, value: Option<&[u8]>) -> [(u16, String); 3] {
    let mut request = b"GET / HTTP/1.1\r\nHost: test\r\nX-Gone: x\r\n".to_vec();
    let mut http = http2::request("GET", "/");
    http.headers_mut().insert("x-gone", http::HeaderValue::from_static("x"));
    if let Some(value) = value {
        request.extend([b"X-Cluster: ", value, b"\r\n"].concat());
        http.headers_mut().insert("x-cluster", http::HeaderValue::from_bytes(value).expect("a value"));
    }
    request.extend(b"\r\n");
    let first = plain.connect().ask(request);
    let second = http2::Client::connect(plain.web()).ask(http.clone(), b"");
    let third = site.connect().ask(http, b"");
    [(first.status(), first.text()), (second.status, second.text()), (third.status, third.text())]
}

#[test]
fn a_request_names_a_cluster_of_those_that_its_route_allows() {
    let origins = [Origin::saying("a"), Origin::saying("b"), Origin::saying("rest")];
    for (more, other) in [(", otherwise: site", (200, "rest")), (", otherwise: shop-a", (200, "a")), ("", (404, ""))] {
        let setup = naming(&origins, more);
        let (plain, site) = (setup.clone().listener("http_versions: [h1, h2]").start(), http3::site(setup, 2));
        for (value, body) in [("-a", "a"), ("-b", "b")] {
            let told = ask_all(&site, &plain, Some(value.as_bytes()));
            assert_eq!(told, [(); 3].map(|()| (200, body.to_owned())), "{value}");
        }
        let long = [b"-a".as_slice(), &[b'x'; 9_000]].concat();
        let hostile: [&[u8]; 8] = [b"-A", b"-", b"-a\xff", b"\xff\xfe", b"-a,-b", b"-c", b"{x}", &long];
        for value in hostile.map(Some).into_iter().chain([None]) {
            for (status, body) in ask_all(&site, &plain, value) {
                assert_eq!(status, other.0, "{value:?}");
                assert!(status != 200 || body == other.1, "{value:?} {body}");
            }
        }
        for product in [&plain, &site.product] {
            if other.0 == 404 {
                let record = product.flagged("PU");
                assert_eq!(record["fault"], "unknown_cluster");
                assert!(record["cluster"].is_null() && record["route"] == "named", "{record}");
            } else {
                assert!(product.records().iter().all(|record| record["flag"] != "PU"));
            }
        }
    }
}

#[test]
fn it_is_explained_which_cluster_a_request_names() {
    let origins = [Origin::saying("a"), Origin::saying("b"), Origin::saying("rest")];
    let place = folder();
    let explain = |more: &str, value: &str| {
        let text = naming(&origins, more).text().replace("DIR", ".");
        std::fs::write(place.path().join("site.yaml"), text).expect("our folder");
        let field = format!("x-cluster: {value}");
        let ended = command_in(place.path(), &["explain", "-c", "site.yaml", "http://test/", "-H", &field]);
        assert!(ended.status.success(), "{}", ended.stderr);
        ended.stdout
    };
    let told = explain("", "-b");
    assert!(told.contains("cluster `shop-b`") && told.contains("the request names this cluster"), "{told}");
    let told = explain(", otherwise: site", "-c");
    let note = "the request names no cluster that its route allows";
    assert!(told.contains("cluster `site`") && told.contains(note), "{told}");
    let told = explain("", "-c");
    assert!(told.contains("404") && told.contains("names a cluster that its route does not allow"), "{told}");
}

#[test]
fn a_choice_of_clusters_may_change_and_its_variables_are_checked() {
    let origins = [Origin::saying("a"), Origin::saying("b"), Origin::saying("rest")];
    let setup = naming(&origins, "");
    let product = setup.start();
    let mut peer = product.connect();
    let mut ask = |value: &str| peer.ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-Cluster: {value}\r\n\r\n")).text();
    assert_eq!(ask("-b"), "b");
    let text = setup.text();
    let said = product.reload(&text.replace("allowed: [shop-b, shop-a]", "allowed: [shop-a], otherwise: site"));
    assert!(said.contains("configuration is live"), "{said}");
    assert_eq!((ask("-b"), ask("-a")), ("rest".to_owned(), "a".to_owned()));
    for (wrong, message) in [
        ("{request_heade:x-cluster}", "there is no variable `{request_heade}`"),
        ("{status}", "`{status}` has no value before there is a response"),
    ] {
        let said = product.reload(&text.replace("{request_header:x-cluster}", wrong));
        assert!(said.contains(message), "{said}");
    }
    assert_eq!(ask("-a"), "a");
}
