//! Filters that rewrite requests and responses, over every version towards clients.

use http::HeaderMap;

use super::harness::http2_origin::{self, Http2Origin};
use super::harness::http3_origin::{self, Http3Origin};
use super::harness::origin::{ok, ok_for};
use super::harness::tls::{self, Authority};
use super::harness::{Message, Origin, Peer, Setup, http2, http3, product};
use super::http3::{Site, site};

const VERSIONS: [&str; 3] = ["h1", "h2", "h3"];

/// A connection of some version.
#[allow(clippy::large_enum_variant, reason = "a test has one or two")]
enum Line {
    H1(Peer),
    H2(http2::Client),
    H3(http3::Client),
}

/// What came back.
struct Seen {
    status: u16,
    fields: Vec<(String, String)>,
    body: String,
}

impl Seen {
    fn all(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &**value).collect()
    }
}

impl Line {
    fn to(site: &Site, version: &str) -> Self {
        let address = site.product.web();
        let config = |protocol: &'static str| {
            tls::Client { protocols: &[protocol], ..tls::Client::trusting(&site.authority) }.config()
        };
        match version {
            "h1" => Self::H1(tls::connect(address, "shop.example", &config("http/1.1"))),
            "h2" => Self::H2(http2::Client::connect_tls(address, "shop.example", &config("h2"))),
            _ => Self::H3(site.connect()),
        }
    }

    /// Sends a request to `shop.example` and waits for its response.
    fn ask(&mut self, (method, path): (&str, &str), fields: &[(&'static str, &str)], body: &str) -> Seen {
        let head = || http2::with_fields(http3::request(method, path), fields);
        let answer = match self {
            Self::H1(peer) => return ask_http1(peer, (method, path), fields, body),
            Self::H2(client) => {
                let mut head = head();
                *head.version_mut() = http::Version::HTTP_2;
                client.ask(head, body.as_bytes())
            }
            Self::H3(client) => client.ask(head(), body.as_bytes()),
        };
        Seen { status: answer.status, fields: listed(&answer.fields), body: answer.text() }
    }

    fn get(&mut self, path: &str) -> Seen {
        self.ask(("GET", path), &[], "")
    }
}

fn ask_http1(peer: &mut Peer, (method, path): (&str, &str), fields: &[(&str, &str)], body: &str) -> Seen {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: shop.example\r\n");
    for (name, value) in fields {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    peer.send(format!("{text}\r\n{body}"));
    let response = if method == "HEAD" { peer.head() } else { peer.response() };
    Seen { status: response.status(), body: response.text(), fields: response.fields }
}

fn listed(fields: &HeaderMap) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fields.iter().map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect()
}

/// The last request that an origin got.
fn last(origin: &Origin) -> Message {
    origin.requests().pop().expect("it was passed on")
}

#[test]
fn a_method_is_changed_and_the_log_has_the_one_received() {
    let origin = Origin::answering(|request| ok(&format!("{} {}", request.method(), request.text())));
    let setup = Setup::to(&origin).route("filters: [{ rewrite: { method: PUT } }]");
    let site = site(setup, 2);
    for version in VERSIONS {
        let mut client = Line::to(&site, version);
        let path = format!("/{version}");
        assert_eq!(client.ask(("POST", &path), &[], "the body").body, "PUT the body", "{version}");
        assert_eq!(client.ask(("PATCH", "/"), &[], "").body, "PUT ", "{version}");
        let record = site.product.record("the request", |record| record["path"] == path.as_str());
        assert_eq!(record["method"], "POST", "{version}");
    }
}

#[test]
fn a_client_that_asks_for_a_head_gets_no_body_whatever_was_sent_for_it() {
    let authority = Authority::new("the origins");
    let plain = Origin::answering(move |request| ok(&said_at(request.target())));
    let second = Http2Origin::start(http2_origin::Rules::default(), move |asked| {
        let body = said_at(&asked.path());
        Box::pin(asked.answer(body))
    });
    let third = Http3Origin::start(http3_origin::Rules::of(&authority), move |asked| {
        let body = said_at(&asked.path());
        Box::pin(asked.answer(body))
    });
    let folder = product::folder();
    authority.write(folder.path(), "a.pem");
    let trusting = format!("tls: {{ authorities: \"{}\" }}", folder.path().join("a.pem").display());
    let clusters = [
        (plain.address(), vec![]),
        (second.address(), vec!["http_versions: [h2]"]),
        (third.address(), vec!["http_versions: [h3]", trusting.as_str()]),
    ];
    for (address, more) in clusters {
        let setup = Setup::to_addresses(&[address]).route("filters: [{ rewrite: { method: GET } }]");
        let site = site(more.into_iter().fold(setup, Setup::cluster), 1);
        for version in VERSIONS {
            let mut client = Line::to(&site, version);
            for path in ["/", "/long"] {
                let head = client.ask(("HEAD", path), &[], "");
                assert_eq!((head.status, head.body.as_str()), (200, ""), "{version} {address} {path}");
                let whole = client.get("/");
                assert_eq!((whole.status, whole.body.as_str()), (200, "hello"), "{version} {address} {path}");
            }
        }
    }
    assert!(plain.requests().iter().all(|request| request.method() == "GET"));
    assert!(plain.connections() <= 4, "a connection goes on after a short body that nobody gets");
}

/// What the origins say; behind `/long` it is more than is read of a body that nobody gets.
fn said_at(path: &str) -> String {
    if path == "/long" { "a".repeat(1 << 20) } else { "hello".to_owned() }
}

#[test]
fn a_client_that_waits_for_a_body_gets_an_empty_one_where_head_was_sent_for_it() {
    let plain = Origin::answering(|request| ok_for(request, "hello"));
    let site = site(Setup::to(&plain).route("filters: [{ rewrite: { method: HEAD }, when: { method: GET } }]"), 1);
    for version in VERSIONS {
        let mut client = Line::to(&site, version);
        for _ in 0..2 {
            let answer = client.get("/");
            assert_eq!((answer.status, answer.body.as_str()), (200, ""), "{version}");
            assert_eq!(answer.all("content-length"), ["0"], "{version}");
            assert_eq!(last(&plain).method(), "HEAD");
        }
        assert_eq!(client.ask(("POST", "/"), &[], "").body, "hello", "{version}");
    }
}

#[test]
fn retries_go_by_the_method_that_is_sent() {
    let sick = || Origin::answering(|_| b"HTTP/1.1 503 Sick\r\nContent-Length: 0\r\n\r\n".to_vec());
    for (filter, method, wanted) in [("POST", "GET", vec![200, 503]), ("GET", "POST", vec![200])] {
        let origins = [sick(), Origin::saying("well")];
        let setup = Setup::to_all(&origins).cluster("retry: { on: [502-504] }").workers(1);
        let product = setup.route(format!("filters: [{{ rewrite: {{ method: {filter} }} }}]")).start();
        let ask = |_| product.connect().ask(format!("{method} / HTTP/1.1\r\nHost: test\r\n\r\n")).status();
        let mut statuses: Vec<u16> = (0..8).map(ask).collect();
        statuses.sort_unstable();
        statuses.dedup();
        assert_eq!(statuses, wanted, "{method} sent as {filter}");
    }
}

#[test]
fn fields_are_removed_by_a_part_of_their_names_in_heads_and_trailers() {
    let origin = Origin::answering(|_| {
        b"HTTP/1.1 200 OK\r\nX-Debug-A: 1\r\nx-debug-b: 1\r\nX-Keep: 1\r\nContent-Length: 2\r\n\r\nok".to_vec()
    });
    let filters = "filters: [{ remove_request_header: [\"x-internal-*\", \"*-token\", \"content-*\"] }, \
                              { remove_response_header: [\"x-debug-*\", \"*length\"] }]";
    let site = site(Setup::to(&origin).route(filters), 2);
    let sent = [
        ("x-internal-user", "root"),
        ("x_internal_role", "admin"),
        ("x-internal", "kept"),
        ("my-token", "1"),
        ("content-type", "text/plain"),
    ];
    for version in VERSIONS {
        let answer = Line::to(&site, version).ask(("POST", "/"), &sent, "body");
        let request = last(&origin);
        for gone in ["x-internal-user", "x_internal_role", "my-token", "content-type"] {
            assert!(request.all(gone).is_empty(), "{version}: {request:?}");
        }
        assert_eq!((request.text(), request.field("x-internal")), ("body".to_owned(), Some("kept")), "{version}");
        assert!(answer.all("x-debug-a").is_empty() && answer.all("x-debug-b").is_empty(), "{version}");
        assert_eq!((answer.all("x-keep"), answer.body.as_str()), (vec!["1"], "ok"), "{version}");
    }
    let trailers = ["x-internal-user", "x_internal_role", "x-sum"];
    assert_eq!(trailers_left(&site, &origin, &trailers), vec!["x-sum"; 3]);
}

/// The names of those trailers that come through, for each version, all in one list.
fn trailers_left(site: &Site, origin: &Origin, names: &[&'static str]) -> Vec<String> {
    let mut map = HeaderMap::new();
    for name in names {
        map.append(*name, "1".parse().expect("a value"));
    }
    let mut left = Vec::new();
    for version in VERSIONS {
        match Line::to(site, version) {
            Line::H1(mut peer) => {
                let lines: String = names.iter().map(|name| format!("{name}: 1\r\n")).collect();
                let head = "POST / HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n";
                assert_eq!(peer.ask(format!("{head}\r\n2\r\nhi\r\n0\r\n{lines}\r\n")).status(), 200);
            }
            Line::H2(mut client) => {
                let mut stream = client.open(http2::request("POST", "/"), false);
                client.send(&mut stream, b"hi", false);
                client.send_trailers(&mut stream, map.clone());
                assert_eq!(client.answer(stream).status, 200);
            }
            Line::H3(mut client) => {
                let mut stream = client.open(http3::request("POST", "/"));
                client.send(&mut stream, b"hi");
                client.end(&mut stream, map.clone());
                assert_eq!(client.answer(stream).status, 200);
            }
        }
        left.extend(last(origin).trailers.into_iter().map(|(name, _)| name));
    }
    left
}

#[test]
fn what_filters_decide_of_a_response_comes_in_no_trailer() {
    let trailers = [("x-debug-a", "1"), ("x-mode", "raw"), ("x-keep", "1"), ("x-inner", "1"), ("grpc-status", "0")];
    let plain = Origin::answering(move |_| {
        let lines: String = trailers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n{lines}\r\n").into_bytes()
    });
    let authority = Authority::new("the origins");
    let map: HeaderMap = trailers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    let second = {
        let map = map.clone();
        Http2Origin::start(http2_origin::Rules::default(), move |asked| {
            let map = map.clone();
            Box::pin(async move {
                let mut answer = asked.begin(http::Response::new(()));
                answer.say("hi").await;
                answer.end_with(map);
            })
        })
    };
    let third = Http3Origin::start(http3_origin::Rules::of(&authority), move |asked| {
        let map = map.clone();
        Box::pin(async move {
            let mut answer = asked.begin(http::Response::new(())).await;
            answer.say("hi").await;
            answer.end_with(map).await;
        })
    });
    let folder = product::folder();
    authority.write(folder.path(), "a.pem");
    let trusting = format!("tls: {{ authorities: \"{}\" }}", folder.path().join("a.pem").display());
    let filters = "filters: [{ remove_response_header: [\"x-debug-*\", \"grpc-*\"] }, { set_response_header: { x-mode: fine } }, \
                              { remove_response_header: [x-inner], when: { not: { headers: { x-who: us } } } }]";
    for (address, more) in [
        (plain.address(), vec![]),
        (second.address(), vec!["http_versions: [h2]"]),
        (third.address(), vec!["http_versions: [h3]", trusting.as_str()]),
    ] {
        let setup = Setup::to_addresses(&[address]).route(filters);
        let site = site(more.into_iter().fold(setup, Setup::cluster), 1);
        for version in VERSIONS {
            let left = |who| trailers_answered(&site, version, who);
            assert_eq!(left("them"), ["x-keep", "grpc-status"], "{version} {address}");
            assert_eq!(left("us"), ["x-keep", "x-inner", "grpc-status"], "{version} {address}");
        }
    }
}

/// The names of the trailers that an answer has.
fn trailers_answered(site: &Site, version: &str, who: &str) -> Vec<String> {
    let named = |map: &HeaderMap| listed(map).into_iter().map(|(name, _)| name).collect();
    let fields = [("x-who", who)];
    match Line::to(site, version) {
        Line::H1(mut peer) => {
            let head = "GET / HTTP/1.1\r\nHost: shop.example\r\nTE: trailers\r\n";
            let answer = peer.ask(format!("{head}x-who: {who}\r\n\r\n"));
            assert_eq!((answer.text(), answer.field("x-mode")), ("hi".to_owned(), Some("fine")), "{version}");
            answer.trailers.into_iter().map(|(name, _)| name.to_lowercase()).collect()
        }
        Line::H2(mut client) => {
            named(&client.ask(http2::with_fields(http2::request("GET", "/"), &fields), b"").trailers)
        }
        Line::H3(mut client) => {
            named(&client.ask(http2::with_fields(http3::request("GET", "/"), &fields), b"").trailers)
        }
    }
}

#[test]
fn requests_with_unusual_names_are_refused_or_go_on_without_them() {
    let origin = Origin::saying("fine");
    let refusing = site(Setup::to(&origin).route("filters: [{ header_names: { allow: \".\", status: 431 } }]"), 2);
    let removing = site(Setup::to(&origin).route("filters: [{ header_names: { action: remove } }]"), 2);
    for version in VERSIONS {
        let mut client = Line::to(&refusing, version);
        let before = origin.requests().len();
        let answer = client.ask(("GET", "/"), &[("x_user", "root")], "");
        assert_eq!((answer.status, answer.body.as_str()), (431, "a header field has a name that is not allowed\n"));
        assert_eq!(origin.requests().len(), before, "{version}");
        assert_eq!(client.ask(("GET", "/"), &[("x.user-1", "ann")], "").status, 200, "{version}");
        assert_eq!(last(&origin).field("x.user-1"), Some("ann"), "{version}");
        let sent = [("x_user", "root"), ("x.user", "root"), ("x-user", "ann")];
        assert_eq!(Line::to(&removing, version).ask(("GET", "/"), &sent, "").status, 200);
        let request = last(&origin);
        assert_eq!((request.field("x-user"), request.all("x_user").len()), (Some("ann"), 0), "{version}");
        assert!(request.all("x.user").is_empty() && request.field("x-request-id").is_some(), "{version}");
    }
    assert_eq!(trailers_left(&removing, &origin, &["x_user", "x-sum"]), vec!["x-sum"; 3]);
}

#[test]
fn the_query_is_rewritten() {
    let origin = Origin::saying("fine");
    let filters = "filters: [{ rewrite: { host: \"{query_param:tenant}.internal\", query: { \
                   regex: { pattern: \"v=([0-9]+)\", replacement: \"version=$1\" }, \
                   remove: [tenant, \"utm_*\"], rename: { q: search }, \
                   set: { user: \"{request_header:x-user}\", page: \"1\" }, add: { via: \"a&b\" } } } }]";
    let site = site(Setup::to(&origin).route(filters), 2);
    for version in VERSIONS {
        let mut client = Line::to(&site, version);
        let target = "/p?v=7&utm_a=1&q=x+y%20z&&user=root&page=9&page=8&utm%5fb&tenant=t1&x=%2F+";
        let fields = [("x-user", "ann & bob=#")];
        assert_eq!(client.ask(("GET", target), &fields, "").status, 200, "{version}");
        let request = last(&origin);
        assert_eq!(
            request.target(),
            "/p?version=7&search=x+y%20z&&user=ann%20%26%20bob%3D%23&page=1&x=%2F+&via=a%26b",
            "{version}"
        );
        assert_eq!(request.field("host"), Some("t1.internal"), "{version}");
        // What a client writes into a variable is a value and no more.
        client.ask(("GET", "/p?tenant=t&user=root"), &[("x-user", "x&admin=1")], "");
        assert_eq!(last(&origin).target(), "/p?user=x%26admin%3D1&page=1&via=a%26b", "{version}");
        client.ask(("GET", "/p?tenant=t&user=root"), &[], "");
        assert_eq!(last(&origin).target(), "/p?page=1&via=a%26b", "{version}");
    }
}

#[test]
fn a_query_that_grows_beyond_a_target_is_answered_414() {
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin).route("filters: [{ rewrite: { query: { set: { a: \"{uri}\" } } } }]"), 2);
    for version in VERSIONS {
        let target = format!("/?{}", "%".repeat(8000));
        assert_eq!(Line::to(&site, version).get(&target).status, 414, "{version}");
        assert_eq!(Line::to(&site, version).get("/?b").status, 200, "{version}");
        assert_eq!(last(&origin).target(), "/?b&a=%2F%3Fb", "{version}");
    }
}

#[test]
fn addresses_and_cookies_of_endpoints_are_made_those_that_clients_know() {
    let origin = Origin::answering(|request| {
        let status = if request.target() == "/app/err" { "500 Broken" } else { "302 Found" };
        format!(
            "HTTP/1.1 {status}\r\nLocation: http://in.test:8080/app/next?x=%2F#y\r\nRefresh: 5; url='http://in.test:8080/app/r'\r\n\
             Set-Cookie: s=1; Domain=.in.test; Path=/app/x; Max-Age=5\r\nX-Between: 1\r\nset-cookie: other=2;Secure; SameSite=None\r\n\
             Content-Length: 0\r\n\r\n"
        )
        .into_bytes()
    });
    let filters = "filters: [{ rewrite: { host: \"in.test\", path: { prefix: { from: /, to: /app } } } }, \
         { rewrite_location: [{ from: \"http://in.test:8080/app/\", to: \"{scheme}://{received_host}/\" }] }, \
         { rewrite_cookie: { name: \"s*\", domain: { from: in.test, to: shop.example }, path: { from: /app, to: / } } }, \
         { rewrite_cookie: { secure: true, http_only: true, same_site: lax } }, \
         { error_page: { status: 5xx, body: sorry, intercept: true } }]";
    let setup = Setup::to(&origin).route(filters);
    let site =
        site(setup.cluster("persistence: { cookie: { secret: a-secret-of-the-tests, name: lb, secure: false } }"), 2);
    for version in VERSIONS {
        let answer = Line::to(&site, version).get("/");
        assert_eq!(answer.status, 302, "{version}");
        assert_eq!(answer.all("location"), ["https://shop.example/next?x=%2F#y"], "{version}");
        assert_eq!(answer.all("refresh"), ["5; url='https://shop.example/r'"], "{version}");
        let ours = |cookie: &&str| cookie.starts_with("lb=");
        let cookies = answer.all("set-cookie");
        assert_eq!(
            cookies[0], "s=1; Domain=shop.example; Path=/x; Max-Age=5; Secure; HttpOnly; SameSite=Lax",
            "{version}"
        );
        assert_eq!(cookies[1], "other=2;Secure; SameSite=Lax; HttpOnly", "{version}");
        assert!(cookies.len() == 3 && ours(&cookies[2]) && !cookies[2].contains("; Secure"), "{version}: {cookies:?}");
        // Behind a page, too.
        let answer = Line::to(&site, version).get("/err");
        assert_eq!((answer.status, answer.body.as_str()), (500, "sorry"), "{version}");
        let cookies = answer.all("set-cookie");
        assert!(cookies[0].ends_with("; Secure; HttpOnly; SameSite=Lax"), "{version}: {cookies:?}");
        assert!(cookies.len() == 3 && ours(&cookies[2]) && !cookies[2].contains("; Secure"), "{version}: {cookies:?}");
    }
}

#[test]
fn variables_and_expressions_say_what_an_address_or_a_cookie_becomes() {
    let origin = Origin::answering(|request| {
        let host = request.field("host").unwrap_or_default().to_owned();
        format!(
            "HTTP/1.1 302 Found\r\nLocation: http://{host}/app/next\r\nSet-Cookie: a=1; Domain=.{host}; Path=/app/ann/x\r\n\
             Set-Cookie: b=2; Domain=node7.in.test; Path=/user/ann\r\nContent-Length: 0\r\n\r\n"
        )
        .into_bytes()
    });
    let filters = "filters: [{ rewrite: { host: in.test } }, \
         { rewrite_location: [{ from: \"http://{host}/app/\", to: \"{scheme}://{received_host}/\" }] }, \
         { rewrite_cookie: { name: a, domain: { from: \"{host}\", to: \"{received_host}\" }, \
                             path: { from: /app, to: \"/{request_header:x-shop}/\" } } }, \
         { rewrite_cookie: { name: b, domain: { from: { regex: '^(\\w+)[.]in[.]test$' }, to: \"$1.{received_host}\" }, \
                             path: { from: { regex: ^/user/(.+) }, to: \"/u/$1\" } } }]";
    let site = site(Setup::to(&origin).route(filters), 2);
    for version in VERSIONS {
        let mut client = Line::to(&site, version);
        let answer = client.ask(("GET", "/"), &[("x-shop", "s1")], "");
        assert_eq!(answer.all("location"), ["https://shop.example/next"], "{version}");
        let expected = ["a=1; Domain=shop.example; Path=/s1/ann/x", "b=2; Domain=node7.shop.example; Path=/u/ann"];
        assert_eq!(answer.all("set-cookie"), expected, "{version}");
        // What a client writes into a variable adds no attribute.
        let answer = client.ask(("GET", "/"), &[("x-shop", "s1; Domain=evil.example")], "");
        assert_eq!(answer.all("set-cookie")[0], "a=1; Domain=shop.example; Path=/app/ann/x", "{version}");
    }
}

#[test]
fn redirects_of_the_proxy_itself_stay_as_they_are() {
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin).route_before(
        "{ match: { path: { prefix: /old } }, redirect: { path: /app/x }, \
           filters: [{ set_response_header: { set-cookie: \"a=1\" } }, { rewrite_cookie: { secure: true } }, \
                     { rewrite_location: [{ pattern: /app, to: /b }] }] }",
    );
    let answer = setup.start().get("/old");
    let location = answer.field("location").expect("a redirect");
    assert!(answer.status() == 302 && location.ends_with("/app/x"), "{location}");
    assert_eq!(answer.field("set-cookie"), Some("a=1"));
}

#[test]
fn mistakes_are_told_with_their_line_and_a_mend() {
    let origin = Origin::saying("in");
    let check = |filter: &str| {
        let folder = product::folder();
        let text = Setup::to(&origin).route(format!("filters: [{filter}]")).text().replace("DIR", "/tmp");
        std::fs::write(folder.path().join("check.yaml"), text).expect("our folder");
        product::command_in(folder.path(), &["check", "-c", "check.yaml"]).stderr
    };
    for (filter, told) in [
        ("{ rewrite: { method: get } }", "`get` is not a method that endpoints know"),
        ("{ rewrite: { method: CONNECT } }", "`CONNECT` opens a tunnel and cannot replace another method"),
        ("{ rewrite: { query: {} } }", "one of `regex`, `keep`, `remove`, `rename`, `set` and `add` is needed"),
        ("{ rewrite: { query: { sett: { a: b } } } }", "did you mean `set`?"),
        ("{ rewrite: { query: { remove: [a*b] } } }", "`a*b` has a `*` in the middle"),
        ("{ remove_request_header: [\"*\"] }", "`*` matches every name"),
        ("{ remove_response_header: [\"a b*\"] }", "`a b*` matches no header field name"),
        ("{ header_names: { allow: a } }", "`a` is always allowed"),
        ("{ header_names: { action: drop } }", "`action` must be `refuse` or `remove`"),
        ("{ rewrite_location: [{ from: a }] }", "`to`"),
        ("{ rewrite_location: [{ from: a, pattern: b, to: c }] }", "exclude each other"),
        ("{ rewrite_location: [{ pattern: a, to: $1 }] }", "the pattern has no group `1`"),
        ("{ rewrite_cookie: { name: a } }", "no attribute is changed"),
        ("{ rewrite_cookie: { same_site: no } }", "`same_site` must be"),
        ("{ rewrite_cookie: { domain: \"a;b\" } }", "\"a;b\" cannot stand in a cookie"),
        ("{ rewrite_cookie: { domain: { from: { regx: a }, to: b } } }", "did you mean `regex`?"),
        ("{ rewrite_cookie: { domain: { from: { regex: ( }, to: b } } }", "`(` is not a regular expression"),
        ("{ rewrite_cookie: { path: { from: [a], to: /b } } }", "`from` must be"),
        ("{ rewrite_location: [{ from: \"http://{hots}/\", to: / }] }", "did you mean `host`?"),
    ] {
        let stderr = check(filter);
        assert!(stderr.contains(told) && stderr.contains("check.yaml:"), "{filter}: {told}\n{stderr}");
    }
}
