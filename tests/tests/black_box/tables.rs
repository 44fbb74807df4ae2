//! `tables`: what routes count by client or key, what conditions make of it, and what administrators see and change.

use serde_json::{Value, json};

use super::harness::http2::{Client, request, with_fields};
use super::harness::origin::ok;
use super::harness::product::command;
use super::harness::{Origin, Peer, Product, Setup, eventually, http3, until};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

/// Clients by a field, who are refused once they have caused too many errors.
const ABUSE: &str = "tables: { abuse: { key: { header: x-api-key }, counters: [requests, errors, failures, bytes_in, bytes_out, marks], rates: { errors: 1h } } }";

fn guarded(origin: &Origin) -> Setup {
    Setup::to(origin).top(ABUSE).route(
        "filters: [{ track: { table: abuse } }, { deny: { status: 418 }, when: { table: { name: abuse, above: { errors_rate: 3 } } } }, { track: { table: abuse, mark: response }, when: { status: 404 } }]",
    )
}

/// Answers with the status that the path names, and a body of ten bytes.
fn origin() -> Origin {
    Origin::answering(|request| match request.target() {
        "/404" => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
        "/503" => b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok("0123456789"),
    })
}

fn ask(product: &Product, key: &str, path: &str) -> u16 {
    product.connect().ask(format!("GET {path} HTTP/1.1\r\nHost: test\r\nX-Api-Key: {key}\r\n\r\n")).status()
}

fn entry(product: &Product, key: &str) -> Value {
    product.api(&format!("/api/tables/abuse/entries/{key}"))["values"].clone()
}

#[test]
fn a_client_that_causes_errors_is_refused_over_all_versions_and_others_are_not() {
    let origin = origin();
    let site = site(guarded(&origin).listener_more(CLEAR), 2);
    let clear = site.product.address("clear");
    let (mut second, mut third) = (Client::connect(clear), site.connect());
    let mut over2 =
        |key: &str, path: &str| second.ask(with_fields(request("GET", path), &[("x-api-key", key)]), b"").status;
    let mut over3 =
        |key: &str, path: &str| third.ask(with_fields(http3::request("GET", path), &[("x-api-key", key)]), b"").status;
    assert_eq!(
        (over2("ann", "/404"), over3("ann", "/404"), over2("ann", "/404"), over3("ann", "/404")),
        (404, 404, 404, 404)
    );
    eventually("all four are counted", || over2("ann", "/") == 418);
    assert_eq!((over3("ann", "/"), over3("bob", "/")), (418, 200));
    site.product.expect_metric("equipoise_table_entries", &["table=\"abuse\""], 2.0);
    // Explained is not counted.
    let admin = site.product.address("admin").to_string();
    let question = ["explain", "--admin", &admin, "--listener", "clear", "--header", "x-api-key: ann", "http://test/"];
    let explained = command(&question);
    assert!(explained.stdout.contains("418"), "{}{}", explained.stdout, explained.stderr);
}

#[test]
fn what_an_exchange_was_is_counted_when_it_ends() {
    let origin = origin();
    let product = guarded(&origin).start();
    assert_eq!(
        (ask(&product, "ann", "/"), ask(&product, "ann", "/404"), ask(&product, "ann", "/503")),
        (200, 404, 503)
    );
    let sent = "POST / HTTP/1.1\r\nHost: test\r\nX-Api-Key: ann\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(product.connect().ask(sent).status(), 200);
    // Who goes away has caused no error and no failure.
    let mut gone = product.connect();
    gone.send("POST / HTTP/1.1\r\nHost: test\r\nX-Api-Key: ann\r\nContent-Length: 9\r\n\r\nhalf");
    gone.reset();
    let wanted = json!({
        "requests": 5, "errors": 1, "failures": 1, "bytes_in": 9, "bytes_out": 20, "marks": 1, "errors_rate": 1,
    });
    until("all are counted", || (entry(&product, "ann") == wanted).then_some(()));
}

#[test]
fn an_administrator_shows_sets_and_clears_entries() {
    let origin = origin();
    let product = guarded(&origin).start();
    for _ in 0..3 {
        ask(&product, "ann", "/");
    }
    ask(&product, "bob", "/");
    let admin = product.address("admin").to_string();
    let ctl = |arguments: &[&str]| command(&[&["ctl", "--admin", &admin, "table"], arguments].concat());
    let listed = ctl(&[]);
    assert!(
        listed.status.success() && listed.stdout.contains("abuse") && listed.stdout.contains("x-api-key"),
        "{}{}",
        listed.stdout,
        listed.stderr
    );
    let shown = ctl(&["show", "abuse", "--by", "requests"]).stdout;
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("KEY") && lines[1].starts_with("ann") && lines[2].starts_with("bob"), "{shown}");
    assert_eq!(ctl(&["show", "abuse", "--limit", "1"]).stdout.lines().count(), 2);
    // Four errors, which were none, are one too many.
    assert!(ctl(&["set", "abuse", "bob", "errors_rate=4"]).status.success());
    assert_eq!((ask(&product, "bob", "/"), ask(&product, "ann", "/")), (418, 200));
    assert!(ctl(&["get", "abuse", "bob"]).stdout.contains("bob"));
    assert!(ctl(&["clear", "abuse", "bob"]).stdout.contains("1 entries cleared"));
    assert_eq!(ask(&product, "bob", "/"), 200);
    assert!(ctl(&["clear", "abuse"]).stdout.contains("2 entries cleared"));
    product.expect_metric("equipoise_table_entries", &["table=\"abuse\""], 0.0);
    for (arguments, told) in [
        (&["show", "abusee"][..], "there is no table `abusee`"),
        (&["show", "abuse", "--by", "hits"], "the table `abuse` does not count `hits`"),
        (&["get", "abuse", "nobody"], "the table `abuse` has no entry `nobody`"),
        (&["clear", "abuse", "nobody"], "the table `abuse` has no entry `nobody`"),
        (&["set", "abuse", "bob", "hits=1"], "the table `abuse` does not count `hits`"),
    ] {
        let refused = ctl(arguments);
        assert!(!refused.status.success() && refused.stderr.contains(told), "{arguments:?}: {}", refused.stderr);
    }
    let wrong =
        product.call("PUT /api/tables/abuse/entries/a", &["content-type: application/json"], "{\"errors\": -1}");
    assert_eq!(wrong.status(), 422);
}

#[test]
fn entries_are_kept_over_a_reload_unless_the_table_is_another_and_over_an_upgrade() {
    let origin = origin();
    let setup = guarded(&origin);
    let product = setup.start();
    ask(&product, "ann", "/");
    let text = setup.text();
    let folder = product.folder().display().to_string();
    let reload = |text: &str| {
        let said = product.reload(&text.replace("DIR", &folder));
        assert!(said.contains("configuration is live"), "{said}");
    };
    reload(&text.replace("status: 418", "status: 451"));
    ask(&product, "ann", "/");
    let requests = |key: &str| entry(&product, key)["requests"].clone();
    until("both are counted", || (requests("ann") == 2).then_some(()));
    reload(&text.replace("errors: 1h", "errors: 2h"));
    ask(&product, "ann", "/");
    until("it is another table", || (requests("ann") == 1).then_some(()));
    product.upgrade();
    until("the successor knows", || (requests("ann") == 1).then_some(()));
    assert_eq!(ask(&product, "ann", "/"), 200);
    until("it counts on", || (requests("ann") == 2).then_some(()));
}

#[test]
fn a_table_that_is_missing_or_misused_is_told_with_its_line() {
    let folder = super::harness::product::folder();
    let file = folder.path().join("equipoise.yaml");
    let check = |tables: &str, filter: &str| {
        let text = format!(
            "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\n{tables}\nroutes:\n  - respond: {{ status: 200 }}\n    filters:\n      - {filter}\n"
        );
        std::fs::write(&file, text).expect("our folder");
        let told = command(&["check", &file.display().to_string()]);
        assert!(!told.status.success());
        told.stderr + &told.stdout
    };
    let table = "tables: { abuse: { counters: [requests] } }";
    for (tables, filter, told) in [
        ("", "track: { table: abuse }", "there is no table `abuse`"),
        (table, "track: { table: abus }", "did you mean `abuse`?"),
        (table, "track: { table: abuse, mark: request }", "the table `abuse` does not count `marks`"),
        (
            table,
            "{ deny: {}, when: { table: { name: abuse, above: { errors: 1 } } } }",
            "the table `abuse` does not count `errors`",
        ),
        (table, "{ deny: {}, when: { table: { name: other, above: { errors: 1 } } } }", "there is no table `other`"),
        (table, "{ deny: {}, when: { table: { name: abuse, above: { hits: 1 } } } }", "`hits` is no counter"),
        ("tables: { abuse: {} }", "track: { table: abuse }", "the table counts nothing"),
        ("tables: { abuse: { rates: { requests: 1ms } } }", "track: { table: abuse }", "a rate counts over 1s to 24h"),
        (
            "tables: { abuse: { key: { header: x }, ipv6_prefix: 48, counters: [marks] } }",
            "track: { table: abuse }",
            "`ipv6_prefix` has no effect",
        ),
    ] {
        let said = check(tables, filter);
        assert!(said.contains(told) && said.contains("equipoise.yaml:"), "{filter}: {said}");
    }
}

/// Refuses an address with more than two connections; its table has the rate of an hour, too.
const CONNECTIONS: &str =
    "tables: { abuse: { expire: 1h, counters: [open_connections, connections], rates: { connections: 1h } } }";
const CROWDED: &str = "filters: [{ deny: { status: 418 }, when: { table: { name: abuse, above: { open_connections: 2 } } } }, \
                       { set_response_header: { x-rate: { expression: 'tables.abuse.connections_rate' } } }]";

#[test]
fn open_connections_are_counted_over_all_versions_however_they_end() {
    let origin = origin();
    let setup = Setup::to(&origin).top(CONNECTIONS).route(CROWDED).listener("track: abuse");
    let site = site(setup.listener_more(CLEAR.replace(" }", ", track: [abuse] }")), 2);
    let clear = site.product.address("clear");
    let (mut first, mut second) = (Peer::connect(clear), Client::connect(clear));
    assert_eq!((first.get("/").status(), second.get("/").status), (200, 200));
    let mut third = site.connect();
    assert_eq!((third.get("/").status, first.get("/").status(), second.get("/").status), (418, 418, 418));
    assert_eq!(entry(&site.product, "127.0.0.1")["open_connections"], 3);
    // One ends in good order.
    drop(third);
    eventually("its place is free", || first.get("/").status() == 200);
    // One is reset, one ends in its handshake, one with half a request, one in its upload.
    first.reset();
    let mut cut = Peer::connect(clear);
    cut.send("GET / HT");
    cut.reset();
    site.product.connect().send("no TLS at all");
    let mut gone = Peer::connect(clear);
    gone.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\nhalf");
    gone.reset();
    eventually("only one is left", || entry(&site.product, "127.0.0.1")["open_connections"] == 1);
    let rate = second.get("/").field("x-rate").map(str::to_owned);
    assert_eq!(rate.as_deref(), Some("6"));
    assert_eq!(entry(&site.product, "127.0.0.1")["connections"], 6);
    // A reload leaves it open, and counted.
    site.product.reload_unchanged();
    assert_eq!(
        (second.get("/").status, entry(&site.product, "127.0.0.1")["open_connections"].clone()),
        (200, json!(1))
    );
    let admin = site.product.address("admin").to_string();
    let ctl = |arguments: &[&str]| command(&[&["ctl", "--admin", &admin, "table"], arguments].concat());
    let refused = ctl(&["set", "abuse", "127.0.0.1", "open_connections=0"]);
    assert!(refused.stderr.contains("`open_connections` cannot be set"), "{}", refused.stderr);
    drop(second);
    eventually("none is left", || entry(&site.product, "127.0.0.1")["open_connections"] == 0);
}

#[test]
fn a_stream_and_the_client_of_a_proxy_header_are_counted_by_their_address() {
    let origin = Origin::echo();
    let product = Product::start(&format!(
        "version: 1\n\
         tables: {{ abuse: {{ counters: [open_connections] }} }}\n\
         listeners:\n  line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: database, track: abuse, \
         proxy_protocol: {{ from: [127.0.0.1] }} }}\n\
         clusters: {{ database: {{ endpoints: [\"{}\"] }} }}\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n",
        origin.address()
    ));
    let open = || {
        let mut peer = Peer::connect(product.address("line"));
        peer.send("PROXY TCP4 192.0.2.7 198.51.100.1 4000 80\r\nx");
        assert_eq!(peer.take(1), b"x");
        peer
    };
    let (one, other) = (open(), open());
    assert_eq!(entry(&product, "192.0.2.7")["open_connections"], 2);
    one.reset();
    eventually("one is left", || entry(&product, "192.0.2.7")["open_connections"] == 1);
    drop(other);
    eventually("none is left", || entry(&product, "192.0.2.7")["open_connections"] == 0);
}

#[test]
fn a_listener_that_counts_into_a_wrong_table_is_told_with_its_line() {
    let folder = super::harness::product::folder();
    let file = folder.path().join("equipoise.yaml");
    let check = |table: &str, listener: &str| {
        let text = format!(
            "version: 1\ntables: {{ abuse: {table} }}\nlisteners:\n  web:\n    bind: \"127.0.0.1:0\"\n    {listener}\nroutes: [{{ respond: {{ status: 200 }} }}]\n"
        );
        std::fs::write(&file, text).expect("our folder");
        let told = command(&["check", "--strict", &file.display().to_string()]);
        assert!(!told.status.success());
        told.stderr + &told.stdout
    };
    let open = "{ counters: [open_connections] }";
    for (table, listener, told) in [
        (open, "track: abus", "did you mean `abuse`?"),
        ("{ counters: [requests] }", "track: [abuse]", "the table `abuse` counts no connections"),
        ("{ key: { header: x-a }, counters: [connections] }", "track: abuse", "is not by address"),
        ("{ counters: [requests], rates: { open_connections: 10s } }", "", "`open_connections` has no rate"),
        ("{ rates: { requests: 1h } }", "", "the rate counts over 1h, but entries expire after 10m"),
    ] {
        let said = check(table, listener);
        assert!(said.contains(told) && said.contains("equipoise.yaml:"), "{table} {listener}: {said}");
    }
    let udp = check(open, "protocol: udp\n    cluster: site\n    track: abuse");
    assert!(udp.contains("`track`"), "{udp}");
}
