//! Maps: values by key in expressions, from the configuration and from files, and changed by the API.

use super::harness::http2::{Client, request};
use super::harness::origin::ok;
use super::harness::product::command;
use super::harness::{Origin, Peer, Product, Setup, eventually, http3, product};
use super::http3::site;

/// A product that tells the endpoint what its maps say of the host.
fn setup(origin: &Origin, maps: &str) -> Setup {
    let filter = "filters: [{ set_request_header: { x-tier: { expression: 'map(\"tiers\", request.host)' } } }]";
    Setup::to(origin).top(format!("maps: {maps}")).route(filter)
}

fn telling() -> Origin {
    Origin::answering(|request| ok(request.field("x-tier").unwrap_or("-")))
}

fn tier(product: &Product, host: &str) -> String {
    product.connect().ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).text()
}

#[test]
fn a_map_gives_values_by_key_and_a_default_for_others() {
    let origin = telling();
    let maps = "{ tiers: { entries: { a.example: gold, b.example: 2 }, default: none } }";
    let product = setup(&origin, maps).start();
    assert_eq!(
        [tier(&product, "a.example"), tier(&product, "b.example"), tier(&product, "c.example")],
        ["gold", "2", "none"]
    );
}

#[test]
fn networks_prefixes_and_expressions_are_keys_too() {
    let origin = Origin::answering(|request| ok(request.field("x-told").unwrap_or("-")));
    let maps = "maps: { nets: { match: cidr, entries: { 10.0.0.0/8: lan, 10.1.0.0/16: lab } }, \
                paths: { match: prefix, entries: { /: root, /api: api } }, \
                agents: { match: regex, entries: { 'curl/.*': tool, '.*': browser } } }";
    let filter = "filters: [{ set_request_header: { x-told: { expression: 'map(\"nets\", source.address, \"-\") + \" \" + \
                  map(\"paths\", request.path) + \" \" + map(\"agents\", request.useragent)' } } }, \
                  { deny: { status: 418 }, when: { expression: 'source.address in maps.nets && request.path in maps.paths && \
                  request.method == \"PUT\"' } }]";
    let product = Setup::to(&origin).top(maps).listener("forwarding: { trusted: [127.0.0.1] }").route(filter).start();
    let mut peer = product.connect();
    let mut ask = |line: &str, client: &str, agent: &str| {
        let fields =
            format!("Host: test\r\nX-Forwarded-For: {client}\r\nUser-Agent: {agent}\r\nContent-Length: 0\r\n\r\n");
        let answer = peer.ask(format!("{line} HTTP/1.1\r\n{fields}"));
        if answer.status() == 200 { answer.text() } else { answer.status().to_string() }
    };
    assert_eq!(ask("GET /api/x", "10.1.2.3", "curl/8"), "lab api tool");
    assert_eq!(ask("GET /x", "10.2.0.1", "x"), "lan root browser");
    assert_eq!(ask("GET /x", "192.0.2.7", "x"), "- root browser");
    assert_eq!(
        (ask("PUT /x", "10.2.0.1", "x"), ask("PUT /x", "192.0.2.7", "x").as_str()),
        ("418".into(), "- root browser")
    );
}

#[test]
fn a_file_is_read_again_when_it_changes_and_a_bad_one_changes_nothing() {
    let origin = telling();
    let folder = product::folder();
    let file = folder.path().join("tiers.map");
    std::fs::write(&file, "# host tier\na.example gold plated\nb.example\tsilver\n").expect("our folder");
    let text = setup(&origin, "{ tiers: { file: tiers.map } }").text();
    let product = Product::start_in(folder, &text, 2);
    assert_eq!(
        [tier(&product, "a.example"), tier(&product, "b.example"), tier(&product, "c.example")],
        ["gold plated", "silver", "-"]
    );
    let swap = |text: &str| {
        std::fs::write(file.with_extension("next"), text).expect("our folder");
        std::fs::rename(file.with_extension("next"), &file).expect("our folder");
    };
    swap("c.example bronze\n");
    eventually("the new file holds", || tier(&product, "c.example") == "bronze");
    assert_eq!(tier(&product, "a.example"), "-");
    swap("c.example tin\nd.example x\nc.example lead\n");
    let told = "`tiers.map`, line 3: the key is that of line 1, with another value";
    eventually("the log names it", || product.stderr().contains(told));
    assert_eq!(tier(&product, "c.example"), "bronze");
    swap("c.example copper\n");
    eventually("a good one is taken again", || tier(&product, "c.example") == "copper");
}

#[test]
fn entries_are_set_and_deleted_by_the_api_and_kept_over_a_reload() {
    let origin = telling();
    let product =
        setup(&origin, "{ tiers: { entries: { a.example: gold, b.example: silver } }, other: { entries: { x: y } } }")
            .start();
    let admin = product.address("admin").to_string();
    let ctl = |words: &[&str]| {
        let mut all = vec!["ctl", "--admin", &admin, "map"];
        all.extend(words);
        let done = command(&all);
        (done.status.success(), format!("{}{}", done.stdout, done.stderr))
    };
    let tiers = |product: &Product| ["a.example", "b.example", "c.example"].map(|host| tier(product, host));
    assert!(ctl(&["set", "tiers", "c.example", "bronze"]).0);
    assert!(ctl(&["set", "tiers", "a.example", "-1"]).0);
    assert!(ctl(&["delete", "tiers", "b.example"]).0);
    assert_eq!(tiers(&product), ["-1", "-", "bronze"]);
    product.reload_unchanged();
    assert_eq!(tiers(&product), ["-1", "-", "bronze"], "a reload keeps them");
    let (_, listed) = ctl(&["list"]);
    assert!(listed.lines().any(|line| line.starts_with("tiers") && line.contains("exact")), "{listed}");
    let (_, listed) = ctl(&["list", "tiers", "--containing", "example"]);
    assert!(listed.contains("a.example") && listed.contains("c.example") && !listed.contains("b.example"), "{listed}");
    assert_eq!(ctl(&["get", "tiers", "c.example"]), (true, "bronze\n".into()));
    let (is_good, told) = ctl(&["get", "tiers", "b.example"]);
    assert!(!is_good && told.contains("the map `tiers` has no value for `b.example`"), "{told}");
    let (is_good, told) = ctl(&["set", "tires", "a", "b"]);
    assert!(!is_good && told.contains("did you mean `tiers`?"), "{told}");
    let (is_good, told) = ctl(&["set", "tiers", "a", "b\nc"]);
    assert!(!is_good && told.contains("no control characters"), "{told}");
    assert!(ctl(&["reset", "tiers", "a.example"]).0);
    assert_eq!(tiers(&product), ["gold", "-", "bronze"]);
    assert!(ctl(&["reset", "tiers"]).0);
    assert_eq!(tiers(&product), ["gold", "silver", "-"]);
}

#[test]
fn a_mistake_in_a_map_is_shown_with_its_line() {
    let check = |maps: &str| {
        let folder = product::folder();
        let text = Setup::to(&telling()).top(format!("maps: {maps}")).text().replace("DIR", "/tmp");
        std::fs::write(folder.path().join("check.yaml"), text).expect("our folder");
        product::command_in(folder.path(), &["check", "-c", "check.yaml"]).stderr
    };
    for (maps, told) in [
        (
            "{ m: { match: cidr, entries: { 10.0.0.0/40: x } } }",
            "a key is not an address or a network such as 10.0.0.0/8",
        ),
        ("{ m: { match: regex, entries: { '(': x } } }", "`(` is not a regular expression"),
        ("{ m: { match: cidr, entries: { 10.0.0.0/8: x, 10.1.0.0/8: y } } }", "the key is that in line"),
        ("{ m: { file: none.map } }", "cannot read `none.map`: there is no such file"),
        ("{ m: { match: exat, entries: { a: b } } }", "exact"),
        ("{ m: {} }", "entries"),
        ("{ m: { entries: { a: [b] } } }", "m"),
    ] {
        let stderr = check(maps);
        assert!(stderr.contains(told) && stderr.contains("check.yaml:"), "{told}\n{stderr}");
    }
}

/// Routes that redirect by a map, and by a parameter of the query.
fn moved(origin: &Origin) -> Setup {
    let maps = "maps: { moved: { entries: { /old: /new, /away: 'https://shop.example/x y', /lines: \"/a\\tb\" } } }";
    let mapped = "{ match: { expression: 'request.path in maps.moved' }, redirect: { status: 301, to: { expression: \
                  'maps.moved[request.path]' } } }";
    let sent =
        "{ match: { path: { exact: /next } }, redirect: { to: { expression: 'request.query[\"to\"].urlDecode()' } } }";
    Setup::to(origin).top(maps).route_before(mapped).route_before(sent)
}

#[test]
fn a_map_redirects_old_paths_in_every_version() {
    let origin = Origin::saying("site");
    let clear = "clear: { bind: \"127.0.0.1:0\" }";
    let site = site(moved(&origin).listener_more(clear), 2);
    let address = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(address), Client::connect(address), site.connect());
    for (path, status, wanted) in [
        ("/old?x=1", 301, Some("/new")),
        ("/away", 301, Some("https://shop.example/x%20y")),
        ("/lines", 301, Some("/a%09b")),
        ("/other", 200, None),
    ] {
        let told = |status: u16, location: Option<&str>| (status, location.map(str::to_owned));
        let one = first.ask(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        let two = second.ask(request("GET", path), b"");
        let three = third.ask(http3::request("GET", path), b"");
        for (found, location) in [
            told(one.status(), one.field("location")),
            told(two.status, two.field("location")),
            told(three.status, three.field("location")),
        ] {
            assert_eq!((found, location.is_some()), (status, wanted.is_some()), "{path}");
            assert!(wanted.is_none_or(|wanted| location.unwrap_or_default().ends_with(wanted)), "{path}");
        }
    }
}

#[test]
fn a_redirect_by_what_a_client_sends_stays_on_the_site_and_in_its_field() {
    let origin = Origin::saying("site");
    let product = moved(&origin).start();
    let mut peer = product.connect();
    let mut ask = |to: &str| {
        let answer = peer.ask(format!("GET /next{to} HTTP/1.1\r\nHost: test\r\n\r\n"));
        assert!(answer.field("x-evil").is_none());
        (answer.status(), answer.field("location").unwrap_or_default().to_owned())
    };
    for (to, location) in [
        ("https://evil.example/", "http://test/https://evil.example/"),
        ("//evil.example/", "http://test//evil.example/"),
        ("%5C%5Cevil.example", "http://test/%5C%5Cevil.example"),
        ("%0d%0aX-Evil:%201", "http://test/%0D%0AX-Evil:%201"),
        ("%250d%250aX-Evil:%201", "http://test/%0D%0AX-Evil:%201"),
        ("@evil.example", "http://test/@evil.example"),
        (".evil.example", "http://test/.evil.example"),
        ("/%C3%A4%00", "http://test/%C3%A4%00"),
    ] {
        assert_eq!(ask(&format!("?to={to}")), (302, location.to_owned()), "{to}");
    }
    assert_eq!((ask(""), ask("?to=")), ((404, String::new()), (404, String::new())));
}
