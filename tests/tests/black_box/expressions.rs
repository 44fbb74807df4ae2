//! Expressions: conditions of routes, filters and logs, values of header fields, and keys, in every version of HTTP.

use super::harness::http2::{Client, request, with_fields};
use super::harness::origin::ok;
use super::harness::tls::{self, Authority};
use super::harness::{Origin, Peer, Product, Setup, eventually, http3, product};
use super::http3::{Site, site};

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

#[test]
fn a_filter_applies_where_its_expression_is_true_in_every_version() {
    let origin = Origin::answering(|request| ok(request.field("x-when").unwrap_or("no")));
    let filters = "filters: [{ set_request_header: { x-when: \"yes\" }, \
                   when: { expression: 'request.path.startsWith(\"/a\") && request.headers[\"x-n\"].size() > 1' } }]";
    let site = site(Setup::to(&origin).listener_more(CLEAR).route(filters), 2);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    for (path, number, wanted) in
        [("/a", "12", "yes"), ("/a/b", "123", "yes"), ("/b", "12", "no"), ("/a", "1", "no"), ("/a", "", "no")]
    {
        let answer = first.ask(format!("GET {path} HTTP/1.1\r\nHost: test\r\nX-N: {number}\r\n\r\n"));
        assert_eq!(answer.text(), wanted, "{path} {number}");
        let fields = [("x-n", number)];
        assert_eq!(second.ask(with_fields(request("GET", path), &fields), b"").text(), wanted, "{path} {number}");
        assert_eq!(third.ask(with_fields(http3::request("GET", path), &fields), b"").text(), wanted, "{path} {number}");
    }
}

#[test]
fn facts_of_the_client_and_its_connection_can_be_asked() {
    let origin = Origin::answering(|request| ok(request.field("x-told").unwrap_or("-")));
    let filter = "filters: [{ set_request_header: { x-told: { expression: 'string(source.address) + \" \" + request.protocol + \" \" + \
                  request.query[\"q\"].orValue(\"\").upperAscii() + \" \" + string(source.address in [\"10.0.0.0/8\"])' } } }]";
    let product = Setup::to(&origin).listener("forwarding: { trusted: [127.0.0.1] }").route(filter).start();
    let mut peer = product.connect();
    let answer = peer.ask("GET /?q=a%20b HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 10.1.2.3\r\n\r\n");
    assert_eq!(answer.text(), "10.1.2.3 HTTP/1.1 A B true");
    let answer = peer.ask("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(answer.text(), "127.0.0.1 HTTP/1.1  false");
    let hostile = peer.ask("GET /?q=a%0d%0aX-Evil:1%00 HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(hostile.text(), "127.0.0.1 HTTP/1.1 A  X-EVIL:1  false", "what would begin a field becomes space");
    assert!(origin.requests().iter().all(|request| request.field("x-evil").is_none()));
}

#[test]
fn the_certificate_of_the_client_and_its_tls_can_be_asked_in_every_version() {
    let origin = Origin::answering(|request| ok(request.field("x-told").unwrap_or("-")));
    let authority = Authority::new("the clients' own");
    let uri = "spiffe://prod.example/ns/web/sa/main";
    let filter = format!(
        "filters: [{{ set_request_header: {{ x-told: {{ expression: 'string(connection.mtls) + \" \" + connection.tls_version + \" \" + \
         connection.alpn + \" \" + connection.requested_server_name + \" \" + connection.common_name_peer_certificate.orValue(\"-\") + \
         \" \" + string((\"{uri}\" in connection.uri_san_peer_certificate).orValue(false)) + \" \" + \
         string(connection.sha256_peer_certificate_digest.matches(\"^[0-9a-f]{{64}}$\").orValue(false)) + \" \" + \
         string(has(connection.serial_peer_certificate))' }} }} }}]"
    );
    let web = authority.issue_client_at("web", uri);
    let trust = "client: { mode: optional, authorities: authority.pem }";
    let site = Site::of(authority, "[h1, h2, h3]", trust, Setup::to(&origin).route(filter), 2);
    for (identity, wanted) in [
        (Some(&web), "true TLSv1.3 ALPN shop.example web true true true"),
        (None, "false TLSv1.3 ALPN shop.example - false false false"),
    ] {
        let config = |protocol: &'static str| {
            let protocols = std::slice::from_ref(&protocol);
            tls::Client { identity, protocols, ..tls::Client::trusting(&site.authority) }.config()
        };
        let address = site.product.web();
        let mut first = tls::connect(address, "shop.example", &config("http/1.1"));
        let first = first.ask("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n").text();
        let second = Client::connect_tls(address, "shop.example", &config("h2")).get("/").text();
        let mut third = http3::Client::connect(address, "shop.example", &http3::trusting(&site.authority, identity));
        let third = third.get("/").text();
        for (alpn, found) in [("http/1.1", first), ("h2", second), ("h3", third)] {
            assert_eq!(found, wanted.replace("ALPN", alpn));
        }
    }
}

#[test]
fn a_route_is_taken_where_its_expression_is_true_and_comes_before_one_without() {
    let origin = Origin::saying("site");
    let plain = "{ match: { path: { prefix: /api } }, respond: { status: 200, body: plain } }";
    let special = "{ match: { path: { prefix: /api }, expression: 'request.method in [\"PUT\", \"POST\"] || \
                   int(request.query[\"v\"]) >= 2' }, respond: { status: 200, body: special } }";
    let product = Setup::to(&origin).route_before(plain).route_before(special).workers(1).start();
    let mut peer = product.connect();
    let mut ask = |line: &str| peer.ask(format!("{line} HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n")).text();
    for (line, wanted) in [
        ("GET /api", "plain"),
        ("PUT /api", "special"),
        ("GET /api?v=2", "special"),
        ("GET /api?v=1", "plain"),
        ("GET /api?v=two", "plain"),
        ("GET /other?v=2", "site"),
    ] {
        assert_eq!(ask(line), wanted, "{line}");
    }
    let admin = product.address("admin").to_string();
    let explained = product::command(&["explain", "--admin", &admin, "http://test/api"]);
    assert!(explained.stdout.contains("the expression is not true"), "{}", explained.stdout);
}

#[test]
fn facts_of_the_response_decide_over_filters_of_responses() {
    let origin = Origin::answering(|request| {
        let status = request.target().trim_start_matches('/').to_owned();
        format!("HTTP/1.1 {status} X\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let filters = "filters: [{ set_response_header: { x-note: { expression: '\"status \" + string(response.code)' } }, \
                   when: { expression: 'response.code >= 400 && response.headers[\"content-type\"].startsWith(\"text/\") && \
                   request.method == \"GET\"' } }]";
    let product = Setup::to(&origin).route(filters).start();
    for (path, note) in [("/200", None), ("/404", Some("status 404")), ("/503", Some("status 503"))] {
        assert_eq!(product.get(path).field("x-note"), note, "{path}");
    }
}

#[test]
fn a_limit_counts_by_the_value_of_an_expression() {
    let origin = Origin::saying("in");
    let filters = "filters: [{ rate_limit: { rate: 1/h, key: { expression: 'request.host.lowerAscii() + request.headers[\"x-key\"]' } } }]";
    let product = Setup::to(&origin).route(filters).start();
    let mut peer = product.connect();
    let mut ask =
        |host: &str, key: &str| peer.ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-Key: {key}\r\n\r\n")).status();
    assert_eq!((ask("a.example", "1"), ask("A.example", "1")), (200, 429));
    assert_eq!((ask("b.example", "1"), ask("a.example", "2"), ask("b.example", "1")), (200, 200, 429));
    product.reload_unchanged();
    assert_eq!(ask("a.example", "2"), 429, "counts stay");
}

#[test]
fn tables_are_kept_by_expressions_and_read_by_them() {
    let origin = Origin::saying("in");
    let tables =
        "tables: { users: { key: { expression: 'request.headers[\"x-user\"].lowerAscii()' }, counters: [requests] } }";
    let filters = "filters: [{ track: { table: users } }, { deny: { status: 429 }, when: { expression: 'tables.users.requests > 2 && \
                   request.path != \"/free\"' } }]";
    let product = Setup::to(&origin).top(tables).route(filters).start();
    let mut peer = product.connect();
    let mut ask = |path: &str, user: &str| {
        peer.ask(format!("GET {path} HTTP/1.1\r\nHost: test\r\nX-User: {user}\r\n\r\n")).status()
    };
    assert_eq!(
        [ask("/", "ann"), ask("/", "ANN"), ask("/", "ann"), ask("/free", "ann"), ask("/", "bob")],
        [200, 200, 429, 200, 200]
    );
    product.reload_unchanged();
    assert_eq!((ask("/", "ann"), ask("/", "bob")), (429, 200), "counts stay");
    let admin = product.address("admin").to_string();
    let shown = product::command(&["ctl", "--admin", &admin, "table", "get", "users", "ann"]);
    assert!(shown.status.success() && shown.stdout.contains('5'), "{}{}", shown.stdout, shown.stderr);
}

#[test]
fn routes_and_logs_read_what_was_counted_of_their_key_or_another() {
    let origin = Origin::answering(|request| {
        let status = if request.target() == "/404" { 404 } else { 200 };
        format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let tables = "tables: { abuse: { key: { header: x-user }, counters: [requests], rates: { errors: 1h } } }";
    let slow = "{ match: { expression: 'tables.abuse.errors_rate > 1 || tables.abuse[request.query[\"who\"]].requests == 3' }, \
                respond: { status: 418 } }";
    let logs = "access_logs: [{ path: \"DIR/bad.log\", line: \"{request_header:x-user} {status}\", \
                when: { expression: 'tables.abuse.errors_rate > 0' } }, ";
    let text = Setup::to(&origin).top(tables).route_before(slow).route("filters: [{ track: { table: abuse } }]").text();
    let product = Product::start_in(product::folder(), &text.replacen("access_logs: [", logs, 1), 2);
    let mut peer = product.connect();
    let mut ask = |path: &str, user: &str| {
        peer.ask(format!("GET {path} HTTP/1.1\r\nHost: test\r\nX-User: {user}\r\n\r\n")).status()
    };
    assert_eq!(
        [ask("/", "bob"), ask("/404", "ann"), ask("/?who=bob", "bob"), ask("/404", "ann")],
        [200, 404, 200, 404]
    );
    assert_eq!([ask("/", "ann"), ask("/?who=bob", "bob"), ask("/?who=bob", "cid")], [418, 200, 418]);
    assert_eq!(ask("/?who=ann", "cid"), 200);
    // The plan that follows reads the same tables.
    product.reload_unchanged();
    assert_eq!([ask("/", "ann"), ask("/", "dan")], [418, 200]);
    let read = || std::fs::read_to_string(product.folder().join("bad.log")).unwrap_or_default();
    eventually("all of ann's is logged", || read().lines().count() == 4);
    assert_eq!(read(), "ann 404\nann 404\nann 418\nann 418\n");
    let admin = product.address("admin").to_string();
    let explain = |user: &str| {
        let field = format!("x-user: {user}");
        product::command(&["explain", "--admin", &admin, "--header", &field, "http://test/"]).stdout
    };
    assert!(explain("ann").contains("418") && !explain("dan").contains("418"), "{}", explain("ann"));
}

#[test]
fn a_value_that_is_missing_makes_a_condition_false_and_its_negation_too() {
    let origin = Origin::saying("in");
    let filters = "filters: [{ deny: { status: 401 }, when: { expression: '!(request.headers[\"x-a\"] == \"1\")' } }, \
                   { deny: { status: 402 }, when: { not: { expression: 'request.headers[\"x-b\"] != \"1\"' } } }, \
                   { deny: { status: 403 }, when: { expression: 'request.headers[\"x-c\"].orValue(\"\") != \"1\"' } }]";
    let product = Setup::to(&origin).route(filters).start();
    let mut peer = product.connect();
    let mut ask = |fields: &str| peer.ask(format!("GET / HTTP/1.1\r\nHost: test\r\n{fields}\r\n")).status();
    assert_eq!(ask("X-A: 2\r\nX-B: 2\r\nX-C: 1\r\n"), 401);
    assert_eq!(ask("X-B: 2\r\nX-C: 1\r\n"), 200, "without the field, the negation is not true either");
    assert_eq!(ask("X-A: 1\r\nX-C: 1\r\n"), 402, "`not` turns what is not true");
    assert_eq!(ask("X-A: 1\r\nX-B: 2\r\n"), 403, "`orValue` says what holds without the field");
    assert_eq!(ask("X-A: 1\r\nX-B: 2\r\nX-C: 1\r\n"), 200);
}

#[test]
fn a_log_has_only_the_exchanges_for_which_its_expression_is_true() {
    let origin = Origin::answering(|request| {
        let status = request.target().trim_start_matches('/').split('?').next().unwrap_or_default().to_owned();
        format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let logs = "access_logs: [{ path: \"DIR/bad.log\", line: \"{status} {uri}\", when: { expression: 'response.code >= 500 || \
                \"debug\" in request.query[\"log\"]' } }, { path: \"DIR/all.log\", line: \"{status} {uri}\" }, ";
    let text = Setup::to(&origin).text().replacen("access_logs: [", logs, 1);
    let folder = product::folder();
    let product = super::harness::Product::start_in(folder, &text, 2);
    let mut peer = product.connect();
    for path in ["/200", "/503", "/404", "/200?log=debug", "/500"] {
        peer.get(path);
    }
    let read = |log: &str| std::fs::read_to_string(product.folder().join(log)).unwrap_or_default();
    eventually("all is written", || read("all.log").lines().count() == 5 && read("bad.log").lines().count() == 3);
    assert_eq!(read("bad.log"), "503 /503\n200 /200?log=debug\n500 /500\n");
}

#[test]
fn a_mistake_is_shown_at_its_character_with_what_to_write() {
    let origin = Origin::saying("in");
    let check = |route: &str| {
        let folder = product::folder();
        let text = Setup::to(&origin).route(route).text().replace("DIR", "/tmp");
        std::fs::write(folder.path().join("check.yaml"), text).expect("our folder");
        product::command_in(folder.path(), &["check", "-c", "check.yaml"]).stderr
    };
    let places: [fn(&str) -> String; 2] = [
        |expression| format!("filters: [{{ deny: {{}}, when: {{ expression: '{expression}' }} }}]"),
        |expression| format!("match: {{ path: {{ prefix: / }}, expression: '{expression}' }}"),
    ];
    for (expression, told, mend, marked) in [
        ("request.pth == \"/\"", "there is no fact `request.pth`", "did you mean `request.path`?", "request.pth"),
        ("request.path.startswith(\"/a\")", "there is no function `startswith`", "`startsWith`", "startswith"),
        (
            "request.size > \"5\"",
            "int and string cannot be compared",
            "write `5` without quotes",
            "request.size > \"5\"",
        ),
        (
            "request.size > \"1MiB\"",
            "int and string cannot be compared",
            "write `quantity(\"1MiB\")`",
            "request.size > \"1MiB\"",
        ),
        ("response.code == 200", "`response.code` has no value yet", "in an access log", "response.code"),
        (
            "request.code == 200",
            "there is no fact `request.code`",
            "write `response.code`, which is known only",
            "request.code",
        ),
        (
            "request.headers.x-a == \"1\"",
            "a hyphen between names is a minus",
            "write `request.headers[\"x-a\"]`",
            "request.headers.x-a",
        ),
        ("request.headers.x-a-2 == \"1\"", "a hyphen", "write `request.headers[\"x-a-2\"]`", "request.headers.x-a-2"),
        ("source.ip in [\"10.0.0.0/8\"]", "there is no fact `source.ip`", "write `source.address`", "source.ip"),
        ("request.host in maps.tenants", "there is no map `tenants`", "define it under `maps`", "tenants"),
        ("tables.abuse.errors > 5", "there is no table `abuse`", "define it in `tables`", "abuse"),
    ] {
        for place in places {
            let stderr = check(&place(expression));
            assert!(stderr.contains(told) && stderr.contains(mend), "{stderr}");
            let mut lines = stderr.lines().skip_while(|line| !line.contains(told)).skip(1);
            let (shown, marks) = (lines.next().expect("the line"), lines.next().expect("its marks"));
            let (from, count) = (marks.find('^').expect("marks"), marks.matches('^').count());
            let under: String = shown.chars().skip(from).take(count).collect();
            assert_eq!(under, marked, "{stderr}");
        }
    }
}
