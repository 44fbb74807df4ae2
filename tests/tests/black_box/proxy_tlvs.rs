//! Values of PROXY headers of version 2: as variables, as conditions, and those that endpoints are told.

use http::Request;

use super::harness::http3::request as request3;
use super::harness::product::{command_in, folder};
use super::harness::{Message, Origin, Peer, Product, Setup, eventually, http2};
use super::http3::site;
use super::proxy_protocol::{GET, LINE, TRUSTED, Told, behind_header, binary};

/// A listener that takes headers before HTTP/1.1 and HTTP/2.
fn setup(origin: &Origin) -> Setup {
    Setup::to(origin).listener(TRUSTED).listener("http_versions: [h1, h2]")
}

/// Asks for a path over HTTP/1.1 and HTTP/2 behind this header: status and body of both.
fn ask(product: &Product, header: &[u8], path: &str) -> [(u16, String); 2] {
    let get = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    let one = Peer::sending(product.web(), [header, get.as_bytes()].concat()).response();
    let two = http2::Client::connect_behind(product.web(), header.to_vec()).get(path);
    [(one.status(), one.text()), (two.status, two.text())]
}

const SSL: &[u8] = b"\x03\0\0\0\0\x21\0\x07TLSv1.3\x22\0\x05alice";

#[test]
fn values_of_a_header_are_known_in_filters_redirects_and_logs() {
    let origin = Origin::saying("hi");
    let text = setup(&origin)
        .route(
            "filters: [{ set_request_header: { x-told: \"{proxy_tlv:authority} {proxy_tlv:unique_id} {proxy_tlv:aws_vpce_id} \
             {proxy_tlv:0xe5} {proxy_tlv:ssl_version} {proxy_tlv:ssl_cn} {proxy_tlv:netns}.\" } }]",
        )
        .route_before("{ match: { path: { exact: /go } }, redirect: { path: \"/{proxy_tlv:0xe5}\" } }")
        .text()
        .replace("access_logs: [", "access_logs: [{ path: \"DIR/line\", line: \"{proxy_tlv:aws_vpce_id} {proxy_tlv:netns}\" }, ");
    let product = Product::start(&text);
    let all: [(u8, &[u8]); 7] =
        [(2, b"Shop"), (5, b"id-7"), (0xea, b"\x01vpce-1"), (4, b"pad"), (0xe5, b"own"), (0xe5, b"late"), (0x20, SSL)];
    let header = binary(&all);
    for (status, body) in ask(&product, &header, "/") {
        assert_eq!((status, body.as_str()), (200, "hi"));
        let told = origin.requests().pop().expect("it came").field("x-told").map(str::to_owned);
        assert_eq!(told.as_deref(), Some("Shop id-7 vpce-1 own TLSv1.3 alice ."));
    }
    let mut peer = Peer::sending(product.web(), &header);
    assert_eq!(peer.get("/go").field("location"), Some("https://test/own"));
    let log = product.folder().join("line");
    eventually("they are logged", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.matches("vpce-1 -\n").count() == 3)
    });
    // Without a header of version 2.
    for header in [LINE.as_bytes().to_vec(), binary(&[])] {
        assert_eq!(ask(&product, &header, "/").map(|(status, _)| status), [200, 200]);
        assert_eq!(origin.requests().pop().expect("it came").field("x-told"), Some("."));
    }
}

#[test]
fn streams_log_the_values_of_their_header() {
    let origin = Origin::echo();
    let product = Product::start(&format!(
        "version: 1\n\
         listeners:\n  line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: database, {TRUSTED} }}\n\
         clusters:\n  database: {{ endpoints: [\"{}\"] }}\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n\
         access_logs: [{{ path: \"DIR/line\", line: \"<{{proxy_tlv:0xe0}}>\" }}]\n",
        origin.address()
    ));
    let mut peer =
        Peer::sending(product.address("line"), [&binary(&[(0xe0, b"a\n\"b\xff")]), b"x".as_slice()].concat());
    assert_eq!(peer.take(1), b"x");
    drop(peer);
    let log = product.folder().join("line");
    eventually("it is logged, in one line", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text == "<a\\x0A\\x22b\\xFF>\n")
    });
}

#[test]
fn values_that_are_hostile_or_too_long_break_nothing() {
    let origin = Origin::saying("hi");
    let product = setup(&origin)
        .route("filters: [{ set_request_header: { x-told: \"{proxy_tlv:0xe0}|{proxy_tlv:0xe1}|{proxy_tlv:0xe6}\" } }]")
        .start();
    let told = |tlvs: &[(u8, &[u8])]| {
        let answers = ask(&product, &binary(tlvs), "/");
        assert_eq!(answers.map(|(status, _)| status), [200, 200]);
        let fields: Vec<_> = origin
            .requests()
            .iter()
            .rev()
            .take(2)
            .map(|request: &Message| request.field("x-told").map(str::to_owned))
            .collect();
        assert_eq!(fields[0], fields[1]);
        fields[0].clone().expect("a field")
    };
    assert_eq!(told(&[(0xe0, b"a\r\nX-Evil: 1\0")]), "a  X-Evil: 1 ||");
    let (fits, long) = ([b'a'; 1024], [b'b'; 1025]);
    assert_eq!(told(&[(0xe0, &long), (0xe1, &fits)]), format!("|{}|", "a".repeat(1024)));
    // Of all of them 4 KiB are kept.
    let many: [(u8, &[u8]); 5] = [(0xe2, &fits), (0xe3, &fits), (0xe4, &fits), (0xe0, &fits), (0xe6, b"short")];
    assert_eq!(told(&many), "||short");
    // Cut off within a value.
    let mut cut = binary(&[(0xe0, b"abcd")]);
    let at = cut.len() - 5;
    cut[at] = 200;
    let mut peer = Peer::sending(product.web(), [&cut, GET.as_bytes()].concat());
    peer.wait_closed();
    product.flagged("CP");
}

#[test]
fn routes_and_filters_may_ask_for_values_of_a_header() {
    let origin = Origin::saying("hi");
    let route = |path: &str, asked: &str| {
        format!("{{ match: {{ path: {{ exact: {path} }}, proxy_tlvs: {{ {asked} }} }}, respond: {{ status: 204 }} }}")
    };
    let setup = setup(&origin)
        .route_before(route("/exact", "authority: shop.example"))
        .route_before(route("/regex", "aws_vpce_id: { regex: \"vpce-[0-9]+\" }"))
        .route_before(route("/present", "\"0xe0\": { present: true }"))
        .route_before(route("/absent", "unique_id: { absent: true }"))
        .route(
            "filters: [{ set_response_header: { x-in: \"yes\" }, when: { proxy_tlvs: { authority: shop.example } } }]",
        );
    let product = setup.start();
    let yes = binary(&[(2, b"shop.example"), (0xea, b"\x01vpce-12"), (0xe0, b"")]);
    let no = binary(&[(2, b"shop.examples"), (0xea, b"\x01vpce-x"), (5, b"id")]);
    for (path, header, status) in [
        ("/exact", &yes, 204),
        ("/exact", &no, 200),
        ("/regex", &yes, 204),
        ("/regex", &no, 200),
        ("/present", &yes, 204),
        ("/present", &no, 200),
        ("/absent", &yes, 204),
        ("/absent", &no, 200),
        ("/exact", &LINE.as_bytes().to_vec(), 200),
    ] {
        assert_eq!(ask(&product, header, path).map(|(status, _)| status), [status, status], "{path}");
    }
    for (header, is_in) in [(&yes, Some("yes")), (&no, None)] {
        assert_eq!(Peer::sending(product.web(), header).get("/").field("x-in"), is_in);
        assert_eq!(http2::Client::connect_behind(product.web(), header.clone()).get("/").field("x-in"), is_in);
    }
    // HTTP/3 has no such header, so there nothing was told.
    let site = site(
        Setup::to(&origin)
            .route_before(route("/exact", "authority: shop.example"))
            .route_before(route("/absent", "alpn: { absent: true }")),
        1,
    );
    let mut client = site.connect();
    assert_eq!((client.get("/exact").status, client.get("/absent").status), (200, 204));
}

const OWN: &str = "proxy_protocol: { version: v2, custom: { \"0xe0\": \"{client_ip} {{}}\", \"0xe1\": \"{request_header:x-a}\", \
                   \"0xe2\": \"{proxy_tlv:authority}\", \"0xe3\": blue } }";

/// What the header of each connection told under `0xe1`.
fn told(origin: &Origin) -> Vec<Option<Vec<u8>>> {
    let all = (0..origin.connections()).map(|at| Told::take(&mut origin.received(at).as_slice()));
    all.map(|told| told.tlv(0xe1).map(<[u8]>::to_vec)).collect()
}

#[test]
fn a_connection_that_shows_something_of_a_request_is_never_used_for_one_with_something_else() {
    let values = [Some("1"), Some("1"), Some("2"), Some("1"), None, Some("2"), None, Some("3"), Some("1")];
    let wanted = [Some("1"), Some("2"), None, Some("3")].map(|value| value.map(|text| text.as_bytes().to_vec()));
    // HTTP/1.1.
    let origin = behind_header();
    let product = setup(&origin).cluster(OWN).workers(1).start();
    let mut peer = Peer::sending(product.web(), binary(&[(2, b"shop")]));
    for value in values {
        let field = value.map(|value| format!("X-A: {value}\r\n")).unwrap_or_default();
        assert_eq!(peer.ask(format!("GET / HTTP/1.1\r\nHost: test\r\n{field}\r\n")).text(), "behind");
    }
    assert_eq!(told(&origin), wanted);
    let first = Told::take(&mut origin.received(0).as_slice());
    assert_eq!(first.tlv(0xe0), Some(b"192.0.2.7 {}".as_slice()));
    assert_eq!((first.tlv(0xe2), first.tlv(0xe3)), (Some(b"shop".as_slice()), Some(b"blue".as_slice())));
    // Another client shares none of them.
    let mut other = Peer::sending(product.web(), binary(&[(2, b"shop")]));
    assert_eq!(other.ask("GET / HTTP/1.1\r\nHost: test\r\nX-A: 1\r\n\r\n").text(), "behind");
    assert_eq!(origin.connections(), 5);
    // HTTP/2.
    let origin = behind_header();
    let product = setup(&origin).cluster(OWN).workers(1).start();
    let mut client = http2::Client::connect_behind(product.web(), binary(&[]));
    for value in values {
        let fields: Vec<_> = value.iter().map(|value| ("x-a", *value)).collect();
        let asked: Request<()> = http2::with_fields(http2::request("GET", "/"), &fields);
        assert_eq!(client.ask(asked, b"").text(), "behind");
    }
    assert_eq!(told(&origin), wanted);
    // HTTP/3.
    let origin = behind_header();
    let site = site(Setup::to(&origin).cluster(OWN), 1);
    let mut client = site.connect();
    for value in values {
        let mut asked = request3("GET", "/");
        if let Some(value) = value {
            asked.headers_mut().insert("x-a", value.parse().expect("a value"));
        }
        assert_eq!(client.ask(asked, b"").text(), "behind");
    }
    assert_eq!(told(&origin), wanted);
}

#[test]
fn values_without_variables_keep_one_connection_for_a_client() {
    let origin = behind_header();
    let own = "proxy_protocol: { version: v2, custom: { \"0xe1\": blue } }";
    let product = Setup::to(&origin).cluster(own).workers(1).start();
    let mut peer = product.connect();
    for value in ["1", "2"] {
        assert_eq!(peer.ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-A: {value}\r\n\r\n")).text(), "behind");
    }
    assert_eq!(told(&origin), [Some(b"blue".to_vec())]);
}

#[test]
fn what_clients_make_too_long_is_left_out_and_pushes_nothing_out() {
    let origin = behind_header();
    let product = setup(&origin).cluster(OWN).workers(1).start();
    let mut peer = Peer::sending(product.web(), binary(&[(2, b"shop")]));
    for length in [257, 240] {
        let request = format!("GET / HTTP/1.1\r\nHost: test\r\nX-A: {}\r\n\r\n", "x".repeat(length));
        assert_eq!(peer.ask(request).text(), "behind");
    }
    let both = [0, 1].map(|at| Told::take(&mut origin.received(at).as_slice()));
    assert_eq!(both[0].tlv(0xe1), None);
    assert_eq!(both[1].tlv(0xe1).map(<[u8]>::len), Some(240));
    for told in both {
        assert_eq!(told.tlv(0xe3), Some(b"blue".as_slice()));
        assert_eq!(told.tlv(0xe2), Some(b"shop".as_slice()));
    }
}

#[test]
fn streams_tell_endpoints_values_with_variables() {
    let origin = Origin::echo();
    let product = Product::start(&format!(
        "version: 1\n\
         listeners:\n  line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: database, {TRUSTED} }}\n\
         clusters:\n  database:\n    endpoints: [\"{}\"]\n    proxy_protocol:\n      version: v2\n      custom: {{ \"0xe0\": \
         \"{{client_ip}} {{proxy_tlv:0xe9}}\", \"0xe1\": \"{{path}}\", \"0xe2\": \"{{request_id}}\" }}\n\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n",
        origin.address()
    ));
    let peer = Peer::sending(product.address("line"), [&binary(&[(0xe9, b"zone-1")]), b"hello".as_slice()].concat());
    eventually("it arrives", || origin.received(0).ends_with(b"hello"));
    let told = Told::take(&mut origin.received(0).as_slice());
    assert_eq!(told.tlv(0xe0), Some(b"192.0.2.7 zone-1".as_slice()));
    assert_eq!(told.tlv(0xe1), None, "a stream has no path");
    drop(peer);
    let record = product.record("the stream", |record| record["kind"] == "stream");
    assert_eq!(record["request_id"].as_str().map(str::as_bytes), told.tlv(0xe2));
}

#[test]
fn what_names_no_value_or_variable_is_refused_with_its_place() {
    let check = |setup: Setup| {
        let folder = folder();
        std::fs::write(folder.path().join("check.yaml"), setup.text().replace("DIR/", "")).expect("our folder");
        command_in(folder.path(), &["check", "-c", "check.yaml"]).stderr
    };
    let setup = || Setup::to_addresses(&["127.0.0.1:9".parse().expect("an address")]);
    let own = |value: &str| {
        setup().cluster(format!("proxy_protocol: {{ version: v2, custom: {{ \"0xe1\": \"{value}\" }} }}"))
    };
    let filter = |value: &str| setup().route(format!("filters: [{{ set_request_header: {{ x-a: \"{value}\" }} }}]"));
    let route = |asked: &str| setup().route(format!("match: {{ proxy_tlvs: {{ {asked} }} }}"));
    for (setup, told) in [
        (own("{client_pi}"), "there is no variable `{client_pi}`"),
        (own("{client_pi}"), "did you mean `client_ip`?"),
        (own("{status}"), "`{status}` has no value before there is a response"),
        (own("{proxy_tlv:authorty}"), "there is no TLV `authorty`: write a name such as `authority`"),
        (own("{client_ip"), "`{` is never closed in `{client_ip`: write `{{` for a brace"),
        (filter("{proxy_tlv}"), "`{proxy_tlv}` needs a name"),
        (filter("{proxy_tlv:0x20}"), "the TLV `0x20` holds others: write `ssl_version`"),
        (filter("{proxy_tlvs:alpn}"), "did you mean `proxy_tlv`?"),
        (route("authorty: a"), "there is no TLV `authorty`"),
        (route("authorty: a"), "did you mean `authority`?"),
        (route("\"0x04\": a"), "the TLV `0x04` contains a checksum or padding, which is not kept"),
        (route("authority: { regex: \"(\" }"), "`(` is not a regular expression"),
        (route("authority: { prefix: a }"), "unknown key `prefix`"),
    ] {
        let stderr = check(setup);
        assert!(stderr.contains(told) && stderr.contains("check.yaml:"), "{told}\n{stderr}");
    }
    let text = setup().text().replace("DIR/", "");
    for (line, told) in [
        ("{proxy_tlv}", "`{proxy_tlv}` needs the name of a TLV: `{proxy_tlv:authority}`"),
        ("{proxy_tlv:x}", "there is no TLV `x`"),
    ] {
        let folder = folder();
        let text = text.replace("access_logs: [", &format!("access_logs: [{{ path: line, line: \"{line}\" }}, "));
        std::fs::write(folder.path().join("check.yaml"), text).expect("our folder");
        let stderr = command_in(folder.path(), &["check", "-c", "check.yaml"]).stderr;
        assert!(stderr.contains(told), "{told}\n{stderr}");
    }
}
