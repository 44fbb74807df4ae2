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
    product.expect_said(&["configuration is live", "origin=files"]);
}

#[test]
fn entries_are_set_and_deleted_by_the_api_and_kept_over_a_reload() {
    let origin = telling();
    let product = setup(
        &origin,
        "{ tiers: { entries: { a.example: gold, b.example: silver } }, other: { entries: { x: y } }, \
                        nets: { match: cidr, entries: { 10.0.0.0/8: office } } }",
    )
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
    for missing in ["b.example", "nope"] {
        let (is_good, told) = ctl(&["delete", "tiers", missing]);
        assert!(!is_good && told.contains(&format!("the map `tiers` has no entry `{missing}`")), "{told}");
    }
    for call in [&["get", "nets", "banana"][..], &["set", "nets", "banana", "x"], &["delete", "nets", "banana"]] {
        let (is_good, told) = ctl(call);
        assert!(
            !is_good && told.contains("`banana` cannot be a key of the map `nets`: a key is not an address"),
            "{told}"
        );
    }
    assert_eq!(ctl(&["get", "nets", "10.1.2.3"]), (true, "office\n".into()));
    let (is_good, told) = ctl(&["delete", "nets", "10.1.2.3"]);
    assert!(!is_good && told.contains("has no entry `10.1.2.3`") && told.contains("as it was written"), "{told}");
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

#[test]
fn a_database_of_countries_is_a_map_of_networks_that_is_read_again_and_kept_when_it_is_damaged() {
    let origin = Origin::answering(|request| ok(request.field("x-country").unwrap_or("none")));
    let seed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/mmdb/countries");
    let database = std::fs::read(seed).expect("the seed of a fuzz target")[1..].to_vec();
    let folder = super::harness::product::folder();
    let file = folder.path().join("countries.mmdb");
    std::fs::write(&file, &database).expect("our folder");
    let maps = "maps: { country: { file: countries.mmdb, field: country.iso_code, default: \"-\" } }";
    let filters = "filters: [{ deny: { status: 451 }, when: { expression: 'maps.country[source.address] == \"FR\"' } }, \
                   { set_request_header: { x-country: { expression: 'maps.country[source.address]' } } }]";
    let setup = Setup::to(&origin).top(maps).listener("forwarding: { trusted: [127.0.0.1] }").route(filters);
    let product = Product::start_in(folder, &setup.text(), 2);
    let ask = |client: &str| {
        let answer =
            product.connect().ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: {client}\r\n\r\n"));
        if answer.status() == 200 { answer.text() } else { answer.status().to_string() }
    };
    for (client, country) in [
        ("192.0.2.200", "DE"),
        ("198.51.100.1", "451"),
        ("198.51.101.1", "DE"),
        ("203.0.113.1", "-"),
        ("2001:db8:9::1", "451"),
        ("2001:dba::1", "DE"),
    ] {
        assert_eq!(ask(client), country, "{client}");
    }
    let replace = |text: &[u8]| {
        // In one step, as tools that fetch databases do.
        let next = file.with_extension("next");
        std::fs::write(&next, text).expect("our folder");
        std::fs::rename(&next, &file).expect("our folder");
    };
    let moved: Vec<u8> = database
        .iter()
        .enumerate()
        .map(|(at, byte)| if database[at..].starts_with(b"DE") && database[at - 1] == 0x42 { b'A' } else { *byte })
        .collect();
    replace(&moved);
    eventually("it is read again", || ask("192.0.2.200") == "AE");
    replace(&database[..database.len() / 2]);
    product.expect_said(&["cannot use `countries.mmdb`", "it is not a MaxMind DB"]);
    assert_eq!(ask("192.0.2.200"), "AE");
    replace(&database);
    eventually("a good one is taken again", || ask("192.0.2.200") == "DE");
}

#[test]
fn a_database_without_its_field_or_its_file_is_told_with_what_there_is() {
    let folder = super::harness::product::folder();
    let seed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/mmdb/countries");
    let database = std::fs::read(seed).expect("the seed of a fuzz target")[1..].to_vec();
    std::fs::write(folder.path().join("countries.mmdb"), database).expect("our folder");
    std::fs::write(folder.path().join("text.map"), "10.0.0.0/8 office\n").expect("our folder");
    let check = |map: &str| {
        let text = format!(
            "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nmaps: {{ country: {map} }}\nroutes: [{{ respond: {{ status: 200 }} }}]\n"
        );
        std::fs::write(folder.path().join("check.yaml"), text).expect("our folder");
        super::harness::product::command_in(folder.path(), &["check", "check.yaml"]).stderr
    };
    for (map, told) in [
        (
            "{ file: countries.mmdb, field: country.code }",
            "no network has the field `country.code`; the first has `country.iso_code`",
        ),
        ("{ file: countries.mmdb }", "name one of its fields, such as `field: country.iso_code`"),
        ("{ file: text.map, field: country.iso_code }", "it is not a MaxMind DB"),
        ("{ file: countries.mmdb, field: country.iso_code, match: prefix }", "a MaxMind DB has networks as keys"),
        ("{ entries: { a: b }, field: country.iso_code }", "`field` has no effect without `file`"),
    ] {
        let said = check(map);
        assert!(said.contains(told) && said.contains("check.yaml:3:"), "{map}: {said}");
    }
}
