//! The PROXY protocol: whose word about a client is believed, and what endpoints are told.

use std::time::Duration;

use super::harness::origin::ok_for;
use super::harness::product::folder;
use super::harness::tls::{Authority, Client};
use super::harness::{Message, Origin, Peer, Product, Setup, eventually, http2, tls};

pub(super) const LINE: &str = "PROXY TCP4 192.0.2.7 198.51.100.1 40000 8443\r\n";
pub(super) const GET: &str = "GET / HTTP/1.1\r\nHost: test\r\n\r\n";
pub(super) const TRUSTED: &str = "proxy_protocol: { from: [127.0.0.0/8] }";

/// A header of version 2 over IPv4 from 192.0.2.7:40000 to 198.51.100.1:8443 with these TLVs.
pub(super) fn binary(tlvs: &[(u8, &[u8])]) -> Vec<u8> {
    let mut rest = vec![192, 0, 2, 7, 198, 51, 100, 1, 0x9c, 0x40, 0x20, 0xfb];
    for (kind, value) in tlvs {
        rest.push(*kind);
        rest.extend(u16::try_from(value.len()).expect("short").to_be_bytes());
        rest.extend(*value);
    }
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11".to_vec();
    header.extend(u16::try_from(rest.len()).expect("short").to_be_bytes());
    header.extend(rest);
    header
}

fn client_of(request: &Message) -> &str {
    request.field("x-forwarded-for").expect("a client")
}

#[test]
fn a_trusted_proxy_tells_who_the_client_is() {
    let origin = Origin::saying("hi");
    let product = Setup::to(&origin)
        .listener(TRUSTED)
        .route_before(
            "{ name: far, match: { source: 192.0.2.0/24, path: { prefix: /far } }, respond: { status: 204 } }",
        )
        .start();
    for header in [LINE.as_bytes().to_vec(), binary(&[])] {
        let mut peer = Peer::sending(product.web(), [&header, GET.as_bytes()].concat());
        assert_eq!(peer.response().text(), "hi");
        assert_eq!(client_of(&origin.requests().pop().expect("it came")), "192.0.2.7");
        assert_eq!(peer.get("/far").status(), 204, "conditions see it too");
        // In single bytes, as a hostile network would cut it.
        let mut slow = product.connect();
        for byte in &header {
            slow.send([*byte]);
        }
        assert_eq!(slow.get("/").text(), "hi");
        assert_eq!(client_of(&origin.requests().pop().expect("it came")), "192.0.2.7");
    }
    let record = product.record("a request", |record| record["path"] == "/");
    for (key, value) in [("client_ip", "192.0.2.7"), ("peer_ip", "192.0.2.7"), ("sender_ip", "127.0.0.1")] {
        assert_eq!(record[key], value, "{record}");
    }
    assert_eq!(record["client_port"], 40000);
    product.expect_metric("equipoise_connections_opened_total", &["listener=\"web\""], 4.0);
}

#[test]
fn what_nobody_trusted_sends_is_no_header() {
    let origin = Origin::saying("hi");
    let product = Setup::to(&origin).listener("proxy_protocol: { from: [192.0.2.0/24] }").start();
    let mut peer = Peer::sending(product.web(), [LINE, GET].concat());
    assert_eq!(peer.response().status(), 400);
    let record = product.flagged("CB");
    assert_eq!((record["client_ip"].as_str(), record["sender_ip"].as_str()), (Some("127.0.0.1"), None));
    let mut peer = Peer::sending(product.web(), binary(&[]));
    assert_eq!(peer.response().status(), 400);
    assert_eq!(product.get("/").text(), "hi");
    assert_eq!(client_of(&origin.only_request()), "127.0.0.1");
    // Nor is it where nobody is trusted.
    let product = Setup::to(&origin).start();
    assert_eq!(Peer::sending(product.web(), [LINE, GET].concat()).response().status(), 400);
}

#[test]
fn a_trusted_proxy_that_sends_no_header_or_a_wrong_one_is_not_served() {
    let origin = Origin::saying("hi");
    let product = Setup::to(&origin).listener(TRUSTED).start();
    let cases: Vec<Vec<u8>> = vec![
        GET.into(),
        b"P".repeat(2),
        "PROXY TCP4 192.0.2.7 198.51.100.1 40000\r\n".into(),
        "PROXY TCP4 192.0.2.777 198.51.100.1 40000 8443\r\n".into(),
        [b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 200]].concat(),
        binary(&[(3, &[1, 2, 3, 4])]),
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c".to_vec(),
        b"\x16\x03\x01\x00\x05hello".to_vec(),
    ];
    let count = cases.len();
    for bytes in cases {
        Peer::sending(product.web(), &bytes).assert_closed();
    }
    product.expect_metric("equipoise_faults_total", &["fault=\"bad_proxy_header\""], count as f64);
    let record = product.flagged("CP");
    assert_eq!((record["client_ip"].as_str(), record["fault"].as_str()), (Some("127.0.0.1"), Some("bad_proxy_header")));
    // Cut off in the middle.
    let mut peer = Peer::sending(product.web(), &LINE[..20]);
    peer.half_close();
    peer.wait_closed();
    product.expect_metric("equipoise_faults_total", &["fault=\"bad_proxy_header\""], (count + 1) as f64);
    assert_eq!(origin.connections(), 0);
}

#[test]
fn a_header_has_its_time_and_a_look_at_the_port_is_no_fault() {
    let origin = Origin::saying("hi");
    let product = Setup::to(&origin).listener("proxy_protocol: { from: [127.0.0.0/8], timeout: 1s }").start();
    let mut silent = product.connect();
    let mut half = Peer::sending(product.web(), &LINE[..20]);
    silent.wait_closed();
    half.wait_closed();
    assert_eq!(product.flagged("CPT")["fault"], "proxy_header_timeout");
    product.expect_metric("equipoise_faults_total", &["fault=\"proxy_header_timeout\""], 2.0);
    // Load balancers look whether we listen.
    drop(product.connect());
    product.expect_metric("equipoise_connections_opened_total", &["listener=\"web\""], 3.0);
    product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
    product.expect_metric("equipoise_faults_total", &[], 2.0);
}

#[test]
fn the_time_of_a_header_is_not_that_of_what_follows() {
    let origin = Origin::saying("hi");
    let product = Setup::to(&origin).listener("proxy_protocol: { from: [127.0.0.0/8], timeout: 4s }").start();
    let mut peer = Peer::sending(product.web(), LINE);
    peer.assert_silent(Duration::from_millis(5_000));
    assert_eq!(peer.get("/").text(), "hi");
}

#[test]
fn a_proxy_that_speaks_for_itself_is_the_client() {
    let origin = Origin::saying("hi");
    let product = Setup::to(&origin).listener(TRUSTED).start();
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\0\x02??".to_vec();
    for header in [b"PROXY UNKNOWN\r\n".to_vec(), local] {
        let mut peer = Peer::sending(product.web(), [&header, GET.as_bytes()].concat());
        assert_eq!(peer.response().text(), "hi");
    }
    let clients: Vec<_> = origin.requests().iter().map(|request| client_of(request).to_owned()).collect();
    assert_eq!(clients, ["127.0.0.1", "127.0.0.1"]);
}

#[test]
fn a_header_that_is_not_required_may_be_missing() {
    let origin = Origin::saying("hi");
    let product = Setup::to(&origin).listener("proxy_protocol: { from: [127.0.0.1], required: false }").start();
    assert_eq!(Peer::sending(product.web(), [LINE, GET].concat()).response().text(), "hi");
    assert_eq!(product.get("/").text(), "hi");
    // Begins like a header, and is none.
    let mut peer = Peer::sending(product.web(), "P");
    peer.assert_open();
    peer.send("OST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(peer.response().text(), "hi");
    // Silent for longer than a header may take.
    let patient = "proxy_protocol: { from: [127.0.0.1], required: false, timeout: 1s }";
    let product = Setup::to(&origin).listener(patient).start();
    let mut silent = product.connect();
    silent.assert_silent(Duration::from_millis(2_000));
    assert_eq!(silent.get("/").text(), "hi");
    // So it may be after a word that a header could begin with.
    let mut slow = Peer::sending(product.web(), "P");
    slow.assert_silent(Duration::from_millis(2_000));
    slow.send("OST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(slow.response().text(), "hi");
    let clients: Vec<_> = origin.requests().iter().map(|request| client_of(request).to_owned()).collect();
    assert_eq!(clients, ["192.0.2.7", "127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1"]);
    assert_eq!(origin.requests()[2].body, b"hi");
}

#[test]
fn what_ends_before_it_is_a_header_is_passed_on_where_none_is_required() {
    let origin = Origin::echo();
    let product = Product::start(&format!(
        "version: 1\n\
         listeners:\n  line:\n    bind: \"127.0.0.1:0\"\n    protocol: tcp\n    cluster: lines\n\
         \x20   proxy_protocol: {{ from: [127.0.0.1], required: false }}\n\
         clusters:\n  lines: {{ endpoints: [\"{}\"] }}\nadmin: {{ bind: \"127.0.0.1:0\" }}\n\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n",
        origin.address()
    ));
    for word in ["P", "PROXY", "\r\n\r\n"] {
        let mut peer = Peer::sending(product.address("line"), word);
        peer.half_close();
        assert_eq!(peer.rest(), word.as_bytes());
    }
    // With the whole signature it is a header that was cut short.
    let mut peer = Peer::sending(product.address("line"), "PROXY ");
    peer.half_close();
    assert_eq!(peer.rest(), b"");
    product.flagged("CP");
}

/// A product whose listener `web` terminates TLS.
fn start_tls(origin: &Origin, authority: &Authority, proxy_protocol: &str) -> Product {
    let folder = folder();
    authority.issue(&["shop.example"]).write(folder.path(), "site");
    let text = Setup::to(origin)
        .listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }")
        .listener(proxy_protocol)
        .text();
    Product::start_in(folder, &text, 2)
}

#[test]
fn the_header_comes_before_tls() {
    let (origin, authority) = (Origin::saying("hi"), Authority::new("tests"));
    let product = start_tls(&origin, &authority, TRUSTED);
    let client = Client::trusting(&authority).config();
    for header in [LINE.as_bytes().to_vec(), binary(&[])] {
        let mut peer = tls::connect_behind(product.web(), "shop.example", &client, &header);
        assert_eq!(peer.get("/").text(), "hi");
    }
    assert!(origin.requests().iter().all(|request| client_of(request) == "192.0.2.7"));
    assert!(
        tls::try_connect(product.web(), "shop.example", &client).is_err(),
        "without a header there is no handshake"
    );
    product.flagged("CP");
    // From those who are not trusted it breaks the handshake.
    let product = start_tls(&origin, &authority, "proxy_protocol: { from: [192.0.2.0/24], required: false }");
    let mut peer = Peer::sending(product.web(), LINE);
    peer.wait_closed();
    product.flagged("CH");
    let mut peer = tls::connect(product.web(), "shop.example", &client);
    assert_eq!(peer.get("/").text(), "hi");
}

#[test]
fn what_the_sender_took_apart_is_told_on_as_https() {
    let origin = Origin::saying("hi");
    let product = Setup::to(&origin)
        .listener(TRUSTED)
        .route("filters: [{ set_request_header: { x-name: \"{tls_server_name}\" } }]")
        .start();
    let header = binary(&[(2, b"Shop.example"), (5, b"id-7"), (0x20, &[1, 0, 0, 0, 1])]);
    assert_eq!(Peer::sending(product.web(), [&header, GET.as_bytes()].concat()).response().text(), "hi");
    let request = origin.only_request();
    assert_eq!((request.field("x-forwarded-proto"), request.field("x-name")), (Some("https"), Some("shop.example")));
}

#[test]
fn filters_and_redirects_know_the_sender_and_its_id() {
    let origin = Origin::saying("hi");
    let product = Setup::to(&origin)
        .listener(TRUSTED)
        .listener("http_versions: [h1, h2]")
        .route("filters: [{ set_request_header: { x-sender: \"{sender_ip} {sender_id}\" } }]")
        .route_before("{ match: { path: { exact: /go } }, redirect: { path: \"/from/{sender_id}\" } }")
        .start();
    let header = binary(&[(5, b"id-7")]);
    let mut peer = Peer::sending(product.web(), [&header, GET.as_bytes()].concat());
    assert_eq!(peer.response().text(), "hi");
    let location = peer.get("/go").field("location").map(str::to_owned);
    assert_eq!(location.as_deref(), Some("http://test/from/id-7"));
    let mut client = http2::Client::connect_behind(product.web(), header);
    assert_eq!(client.get("/").text(), "hi");
    assert_eq!(client.get("/go").field("location"), Some("http://test/from/id-7"));
    for request in origin.requests() {
        assert_eq!(request.field("x-sender"), Some("127.0.0.1 id-7"));
    }
    // Without an id, and with one that would break a head.
    for (header, sender) in
        [(LINE.as_bytes().to_vec(), "127.0.0.1"), (binary(&[(5, b"a\r\nb: c")]), "127.0.0.1 a  b: c")]
    {
        assert_eq!(Peer::sending(product.web(), [&header, GET.as_bytes()].concat()).response().text(), "hi");
        assert_eq!(origin.requests().pop().expect("it came").field("x-sender"), Some(sender));
    }
}

#[test]
fn http2_is_spoken_behind_a_proxy_that_ended_tls_and_says_so() {
    let origin = Origin::saying("hi");
    let setup = Setup::to(&origin).listener(TRUSTED);
    let ssl: (u8, &[u8]) = (0x20, &[1, 0, 0, 0, 1]);
    for setup in [setup.clone(), setup.listener("http_versions: [h2]")] {
        let product = setup.start();
        for (tlvs, scheme) in [(vec![], "http"), (vec![ssl], "https")] {
            let mut client = http2::Client::connect_behind(product.web(), binary(&tlvs));
            assert_eq!(client.get("/").text(), "hi");
            assert_eq!(client.get("/").text(), "hi");
            let request = origin.requests().pop().expect("it came");
            assert_eq!((request.field("x-forwarded-proto"), client_of(&request)), (Some(scheme), "192.0.2.7"));
        }
    }
}

#[test]
fn streams_know_their_client_too() {
    let (one, other) = (Origin::echo(), Origin::echo());
    let product = Product::start(&format!(
        "version: 1\n\
         listeners:\n  line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: database, {TRUSTED} }}\n\
         clusters:\n  database: {{ balance: source_hash, endpoints: [\"{}\", \"{}\"] }}\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}, {{ path: \"DIR/line\", line: \"{{sender_id}}\" }}]\n",
        one.address(),
        other.address()
    ));
    let line = product.address("line");
    for client in 0..32 {
        let mut peer = Peer::sending(line, format!("PROXY TCP4 192.0.2.{client} 198.51.100.1 40000 8443\r\nhello"));
        assert_eq!(peer.take(5), b"hello");
    }
    assert!(one.connections() > 0 && other.connections() > 0, "the hash is that of the clients");
    let before = one.connections();
    for _ in 0..8 {
        let mut peer = Peer::sending(line, [&binary(&[(5, b"id-7")]), b"x".as_slice()].concat());
        assert_eq!(peer.take(1), b"x");
    }
    let gained = one.connections() - before;
    assert!(gained == 0 || gained == 8, "one client, one endpoint: {gained}");
    let record = product.record("a stream", |record| record["client_ip"] == "192.0.2.9");
    assert_eq!((record["kind"].as_str(), record["sender_ip"].as_str()), (Some("stream"), Some("127.0.0.1")));
    let log = product.folder().join("line");
    eventually("the id is logged", || std::fs::read_to_string(&log).is_ok_and(|text| text.contains("id-7")));
}

/// What an endpoint was told by a header of version 2.
#[derive(Debug, Default)]
pub(super) struct Told {
    command: u8,
    client: Vec<u8>,
    tlvs: Vec<(u8, Vec<u8>)>,
}

impl Told {
    /// Takes a header from the front of a connection.
    pub(super) fn take(bytes: &mut &[u8]) -> Self {
        assert!(bytes.starts_with(b"\r\n\r\n\0\r\nQUIT\n"), "{:?}", String::from_utf8_lossy(bytes));
        let len = usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
        let (command, family) = (bytes[12], bytes[13]);
        let mut rest = &bytes[16..16 + len];
        *bytes = &bytes[16 + len..];
        let mut told = Self { command, ..Self::default() };
        if command == 0x20 {
            return told;
        }
        assert_eq!(family, 0x11);
        told.client = [&rest[..4], &rest[8..10]].concat();
        rest = &rest[12..];
        while let [kind, high, low, after @ ..] = rest {
            let (value, after) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])));
            told.tlvs.push((*kind, value.to_vec()));
            rest = after;
        }
        assert_eq!(rest, b"");
        told
    }

    pub(super) fn tlv(&self, kind: u8) -> Option<&[u8]> {
        self.tlvs.iter().find(|(found, _)| *found == kind).map(|(_, value)| value.as_slice())
    }
}

/// The address of the client's end of a connection as version 2 writes it.
fn end_of(peer: &Peer) -> Vec<u8> {
    let port = peer.tcp().local_addr().expect("an address").port();
    [[127, 0, 0, 1].as_slice(), &port.to_be_bytes()].concat()
}

/// An endpoint that takes a header of either version before its requests.
pub(super) fn behind_header() -> Origin {
    Origin::start(|mut visit| {
        let Ok(first) = visit.peer.try_take_through(b"\n") else { return };
        if !first.starts_with(b"PROXY ") {
            let Ok(_) = visit.peer.try_take_through(b"\n\0\r\nQUIT\n") else { return };
            let fixed = visit.peer.take(4);
            visit.peer.take(usize::from(u16::from_be_bytes([fixed[2], fixed[3]])));
        }
        visit.answer_all(|request| Some(ok_for(request, "behind")));
    })
}

#[test]
fn endpoints_are_told_by_version_1_who_the_client_is() {
    let origin = behind_header();
    let product = Setup::to(&origin).cluster("proxy_protocol: v1").start();
    let mut peer = product.connect();
    assert_eq!(peer.get("/").text(), "behind");
    let (client, local) = (peer.tcp().local_addr().expect("ours"), product.web());
    let line = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}\r\n", client.port(), local.port());
    let received = origin.received(0);
    assert!(received.starts_with(line.as_bytes()), "{}", String::from_utf8_lossy(&received));
    assert_eq!(String::from_utf8_lossy(&received).matches("PROXY").count(), 1);
}

#[test]
fn a_connection_that_speaks_for_a_client_is_kept_for_that_client_alone() {
    let origin = behind_header();
    let product = Setup::to(&origin).cluster("proxy_protocol: v2").workers(1).start();
    let (mut one, mut other) = (product.connect(), product.connect());
    for _ in 0..3 {
        assert_eq!(one.get("/").text(), "behind");
        assert_eq!(other.get("/").text(), "behind");
    }
    assert_eq!(origin.connections(), 2);
    let told: Vec<_> = (0..2).map(|at| Told::take(&mut origin.received(at).as_slice()).client).collect();
    assert_eq!(told, [end_of(&one), end_of(&other)]);
    drop(one);
    eventually("what speaks for a client ends with it", || origin.open() == 1);
    assert_eq!(other.get("/").text(), "behind");
    assert_eq!(product.connect().get("/").text(), "behind");
    assert_eq!(origin.connections(), 3);
}

#[test]
fn where_no_more_are_kept_the_one_that_is_idle_longest_goes_and_none_is_kept_for_who_leaves() {
    let origin = behind_header();
    let product = Setup::to(&origin).cluster("proxy_protocol: v1").cluster("pool: { idle_max: 1 }").workers(1).start();
    let (mut one, mut two) = (product.connect(), product.connect());
    for (peer, connections) in [(&mut one, 1), (&mut two, 2)] {
        assert_eq!(peer.get("/").status(), 200);
        assert_eq!(origin.connections(), connections);
    }
    assert_eq!(two.get("/").status(), 200);
    assert_eq!(origin.connections(), 2, "the last is kept");
    let closing = "GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    assert_eq!(product.connect().ask(closing).status(), 200);
    assert_eq!(origin.connections(), 3);
    assert_eq!(two.get("/").status(), 200);
    assert_eq!(origin.connections(), 3, "who leaves has not taken its place");
}

#[test]
fn version_2_tells_tls_names_ids_and_what_one_likes() {
    let (origin, authority) = (behind_header(), Authority::new("tests"));
    let folder = folder();
    authority.issue(&["shop.example"]).write(folder.path(), "site");
    authority.write(folder.path(), "clients.pem");
    let alice = authority.issue_client_below("Users", "alice");
    let text = Setup::to(&origin)
        .listener(
            "tls: { certificates: [{ chain: site.pem, key: site.key }], \
             client: { mode: optional, authorities: clients.pem } }",
        )
        .cluster(
            "proxy_protocol: { version: v2, tlvs: [alpn, authority, ssl, unique_id, crc32c], custom: { \"0xe1\": blue } }",
        )
        .text();
    let product = Product::start_in(folder, &text, 2);
    let client = Client { identity: Some(&alice), protocols: &["http/1.1"], ..Client::trusting(&authority) };
    let mut peer = tls::connect(product.web(), "shop.example", &client.config());
    assert_eq!(peer.get("/").text(), "behind");
    let received = origin.received(0);
    let mut rest = received.as_slice();
    let told = Told::take(&mut rest);
    assert!(rest.starts_with(b"GET / HTTP/1.1\r\n"));
    assert_eq!((told.command, told.client.clone()), (0x21, end_of(&peer)));
    assert_eq!(told.tlv(0x01), Some(b"http/1.1".as_slice()));
    assert_eq!(told.tlv(0x02), Some(b"shop.example".as_slice()));
    assert_eq!(told.tlv(0xe1), Some(b"blue".as_slice()));
    assert_eq!(told.tlv(0x03).map(<[u8]>::len), Some(4));
    let request = origin.only_request();
    assert_eq!(told.tlv(0x05), request.field("x-request-id").map(str::as_bytes));
    let ssl = told.tlv(0x20).expect("TLS");
    assert_eq!(ssl[..5], [0x07, 0, 0, 0, 0]);
    let ssl = String::from_utf8_lossy(ssl);
    assert!(ssl.contains("TLSv1.3") && ssl.contains("TLS_AES_"), "{ssl}");
    assert!(ssl.contains("alice") && !ssl.contains("Users"), "the most specific of its common names: {ssl}");
    // A client that shows nothing.
    let mut peer = tls::connect(product.web(), "shop.example", &Client::trusting(&authority).config());
    assert_eq!(peer.get("/").text(), "behind");
    let told = Told::take(&mut origin.received(1).as_slice());
    assert_eq!(told.tlv(0x20).expect("TLS")[..5], [0x01, 0, 0, 0, 1]);
}

#[test]
fn what_one_proxy_told_is_told_to_the_next() {
    let origin = behind_header();
    let product = Setup::to(&origin).listener(TRUSTED).cluster("proxy_protocol: v1").start();
    assert_eq!(Peer::sending(product.web(), [LINE, GET].concat()).response().text(), "behind");
    assert!(origin.received(0).starts_with(LINE.as_bytes()));
}

#[test]
fn the_header_goes_before_tls_to_the_endpoint_and_before_a_stream() {
    let authority = Authority::new("inside");
    // The product itself is the endpoint: it takes the header and speaks TLS behind it.
    let folder_of_next = folder();
    authority.issue(&["127.0.0.1"]).write(folder_of_next.path(), "site");
    let origin = Origin::saying("hi");
    let text = Setup::to(&origin)
        .listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }")
        .listener(TRUSTED)
        .text();
    let next = Product::start_in(folder_of_next, &text, 1);
    let folder = folder();
    authority.write(folder.path(), "authority.pem");
    let first = Setup::to_addresses(&[next.web()])
        .listener(TRUSTED)
        .cluster("tls: { authorities: authority.pem }")
        .cluster("proxy_protocol: { version: v2, tlvs: [crc32c] }")
        .text();
    let first = Product::start_in(folder, &first, 1);
    assert_eq!(Peer::sending(first.web(), [LINE, GET].concat()).response().text(), "hi");
    let record = next.record("the request", |record| record["path"] == "/");
    assert_eq!((record["peer_ip"].as_str(), record["sender_ip"].as_str()), (Some("192.0.2.7"), Some("127.0.0.1")));
    // A stream, whose id stands in the log.
    let origin = Origin::echo();
    let product = Product::start(&format!(
        "version: 1\n\
         listeners:\n  line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: database }}\n\
         clusters:\n  database: {{ endpoints: [\"{}\"], proxy_protocol: {{ version: v2, tlvs: [unique_id] }} }}\n\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n",
        origin.address()
    ));
    let mut peer = Peer::sending(product.address("line"), "hello");
    eventually("it arrives", || origin.received(0).ends_with(b"hello"));
    let received = origin.received(0);
    let mut rest = received.as_slice();
    let told = Told::take(&mut rest);
    assert_eq!((rest, told.client.clone()), (b"hello".as_slice(), end_of(&peer)));
    peer.half_close();
    peer.wait_closed();
    let record = product.record("the stream", |record| record["kind"] == "stream");
    assert_eq!(record["request_id"].as_str().map(str::as_bytes), told.tlv(0x05));
}

#[test]
fn checks_speak_for_themselves() {
    for (version, wanted) in
        [("v1", b"PROXY UNKNOWN\r\nGET ".as_slice()), ("v2", b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0GET ")]
    {
        let origin = behind_header();
        let product = Setup::to(&origin)
            .cluster(format!("proxy_protocol: {version}"))
            .cluster("health_check: { http: { path: /health }, interval: 100ms, timeout: 10s }")
            .start();
        product.expect_metric("equipoise_endpoint_up", &["cluster=\"site\""], 1.0);
        eventually("it is asked", || origin.connections() > 0 && !origin.requests().is_empty());
        assert!(origin.received(0).starts_with(wanted), "{:?}", String::from_utf8_lossy(&origin.received(0)));
    }
}

#[test]
fn a_change_of_what_endpoints_are_told_ends_what_was_kept() {
    let origin = behind_header();
    let setup = Setup::to(&origin).workers(1);
    let product = setup.clone().cluster("proxy_protocol: v1").start();
    let mut peer = product.connect();
    assert_eq!(peer.get("/").text(), "behind");
    product.reload(&setup.cluster("proxy_protocol: v2").text());
    assert_eq!(peer.get("/").text(), "behind");
    assert_eq!(origin.connections(), 2);
    assert_eq!(Told::take(&mut origin.received(1).as_slice()).client, end_of(&peer));
    eventually("the first is closed", || origin.open() == 1);
}
