//! TLS towards clients: certificates by name, versions, resumption, client certificates, and changes while running.

use std::time::Duration;

use rustls::version::{TLS12, TLS13};
use rustls::{HandshakeKind, NamedGroup, ProtocolVersion};
use tempfile::TempDir;

use super::harness::tls::{Authority, Client, Identity, connect, shown, try_connect};
use super::harness::{Message, Origin, Peer, Product, Setup, eventually, product, until};

/// A product whose listener `web` speaks TLS with these certificates, the first for any other name.
struct Site {
    authority: Authority,
    identities: Vec<Identity>,
    origin: Origin,
    folder: Option<TempDir>,
}

impl Site {
    fn with(certificates: &[&[&str]]) -> Self {
        let (authority, folder) = (Authority::new("the tests' own"), product::folder());
        let identities: Vec<Identity> = certificates.iter().map(|names| authority.issue(names)).collect();
        for (number, identity) in identities.iter().enumerate() {
            identity.write(folder.path(), &format!("site{number}"));
        }
        authority.write(folder.path(), "authority.pem");
        Self { authority, identities, origin: Origin::saying("secret"), folder: Some(folder) }
    }

    /// The configuration; `extra` goes into `tls`.
    fn text(&self, extra: &str) -> String {
        let listed: Vec<String> =
            (0..self.identities.len()).map(|n| format!("{{ chain: site{n}.pem, key: site{n}.key }}")).collect();
        Setup::to(&self.origin).listener(format!("tls: {{ certificates: [{}]{extra} }}", listed.join(", "))).text()
    }

    fn start(&mut self, extra: &str) -> Product {
        let folder = self.folder.take().expect("started once");
        Product::start_in(folder, &self.text(extra), 2)
    }
}

fn get(peer: &mut Peer) -> Message {
    peer.get("/")
}

#[test]
fn a_certificate_is_chosen_by_the_name_that_the_client_asks_for() {
    let mut site = Site::with(&[&["default.example"], &["shop.example", "www.shop.example"], &["*.wild.example"]]);
    let product = site.start("");
    let any = Client { trust: None, identity: None, versions: rustls::ALL_VERSIONS, protocols: &[] }.config();
    for (name, number) in [
        ("default.example", 0),
        ("shop.example", 1),
        ("WWW.shop.EXAMPLE", 1),
        ("a.wild.example", 2),
        ("a.b.wild.example", 0),
        ("wild.example", 0),
        ("unknown.example", 0),
        ("127.0.0.1", 0),
    ] {
        let mut peer = connect(product.web(), name, &any);
        assert_eq!(&shown(&peer), site.identities[number].certificate(), "{name}");
        assert_eq!(get(&mut peer).text(), "secret");
    }
    let trusting = Client::trusting(&site.authority).config();
    assert_eq!(get(&mut connect(product.web(), "shop.example", &trusting)).text(), "secret");
}

#[test]
fn both_versions_of_tls_are_spoken_and_endpoints_are_told_of_it() {
    let mut site = Site::with(&[&["shop.example"]]);
    let product = site.start("");
    for (version, wanted, name) in
        [(&TLS13, ProtocolVersion::TLSv1_3, "TLSv1.3"), (&TLS12, ProtocolVersion::TLSv1_2, "TLSv1.2")]
    {
        let client = Client { versions: &[version], ..Client::trusting(&site.authority) };
        let mut peer = connect(product.web(), "shop.example", &client.config());
        assert_eq!(peer.tls().protocol_version(), Some(wanted));
        assert_eq!(get(&mut peer).text(), "secret");
        let record = product.record(name, |record| record["tls_version"] == name);
        assert_eq!(
            (record["scheme"].as_str(), record["tls_server_name"].as_str()),
            (Some("https"), Some("shop.example"))
        );
        assert!(
            record["tls_cipher"].as_str().is_some_and(|cipher| cipher.contains("AES") || cipher.contains("CHACHA"))
        );
    }
    let requests = site.origin.requests();
    assert!(requests.iter().all(|request| request.field("x-forwarded-proto") == Some("https")));
}

#[test]
fn an_older_version_than_allowed_is_refused() {
    let mut site = Site::with(&[&["shop.example"]]);
    let product = site.start(", version_min: \"1.3\"");
    let old = Client { versions: &[&TLS12], ..Client::trusting(&site.authority) };
    assert!(try_connect(product.web(), "shop.example", &old.config()).is_err());
    let new = Client { versions: &[&TLS13], ..Client::trusting(&site.authority) };
    assert_eq!(get(&mut connect(product.web(), "shop.example", &new.config())).text(), "secret");
    product.expect_metric("equipoise_tls_handshakes_total", &["result=\"failed\""], 1.0);
    product.expect_metric("equipoise_faults_total", &["fault=\"handshake_failed\""], 1.0);
}

#[test]
fn a_returning_client_resumes_its_session_whichever_worker_it_meets() {
    for version in [&TLS13, &TLS12] {
        let mut site = Site::with(&[&["shop.example"]]);
        let product = site.start("");
        let client = Client { versions: &[version], ..Client::trusting(&site.authority) }.config();
        let mut first = connect(product.web(), "shop.example", &client);
        assert_ne!(first.tls().handshake_kind(), Some(HandshakeKind::Resumed));
        assert_eq!(get(&mut first).text(), "secret");
        for _ in 0..8 {
            let mut again = connect(product.web(), "shop.example", &client);
            assert_eq!(again.tls().handshake_kind(), Some(HandshakeKind::Resumed), "{version:?}");
            assert_eq!(get(&mut again).text(), "secret");
        }
        product.expect_metric("equipoise_tls_handshakes_total", &["result=\"resumed\""], 8.0);
        product.expect_metric("equipoise_tls_handshakes_total", &["result=\"full\""], 1.0);
    }
}

#[test]
fn the_protocol_inside_is_agreed_and_an_unknown_one_refused() {
    let mut site = Site::with(&[&["shop.example"]]);
    let product = site.start("");
    let client = Client { protocols: &["http/1.1"], ..Client::trusting(&site.authority) };
    let mut peer = connect(product.web(), "shop.example", &client.config());
    assert_eq!(peer.tls().alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(get(&mut peer).text(), "secret");
    // RFC 7301 section 3.2: no common protocol is a fatal alert.
    let other = Client { protocols: &["postgresql"], ..Client::trusting(&site.authority) };
    assert!(try_connect(product.web(), "shop.example", &other.config()).is_err());
}

#[test]
fn keys_are_exchanged_in_a_way_that_withstands_quantum_computers() {
    let mut site = Site::with(&[&["shop.example"]]);
    let product = site.start("");
    let peer = connect(product.web(), "shop.example", &Client::trusting(&site.authority).config());
    let group = peer.tls().negotiated_key_exchange_group().expect("a handshake was done");
    assert_eq!(group.name(), NamedGroup::X25519MLKEM768);
}

#[test]
fn a_client_certificate_is_needed_where_it_is_required() {
    let mut site = Site::with(&[&["shop.example"]]);
    let (alice, mallory) = (site.authority.issue_client("alice"), Authority::new("another").issue_client("alice"));
    let product = site.start(", client: { mode: required, authorities: authority.pem, identity_header: x-client }");
    let plain = Client::trusting(&site.authority);
    for identity in [None, Some(&mallory)] {
        // With TLS 1.3 the client learns of it with its first read.
        let refused = try_connect(product.web(), "shop.example", &Client { identity, ..plain }.config())
            .and_then(|mut peer| {
                peer.try_send("GET / HTTP/1.1\r\nHost: test\r\n\r\n")?;
                peer.try_head()
            })
            .map(|head| head.is_none());
        assert!(matches!(refused, Err(_) | Ok(true)), "{refused:?}");
    }
    assert_eq!(site.origin.connections(), 0);
    let mut peer = connect(product.web(), "shop.example", &Client { identity: Some(&alice), ..plain }.config());
    peer.ask("GET / HTTP/1.1\r\nHost: test\r\nX-Client: CN=root\r\nx-client: CN=admin\r\n\r\n");
    assert_eq!(site.origin.only_request().field("x-client"), Some("CN=alice"));
    let record = product.record("the exchange", |record| record["status"] == 200);
    assert_eq!(record["tls_client_subject"], "CN=alice");
    product.expect_metric("equipoise_faults_total", &["fault=\"handshake_failed\""], 2.0);
}

#[test]
fn a_client_certificate_may_be_optional_and_its_field_cannot_be_forged() {
    let mut site = Site::with(&[&["shop.example"]]);
    let alice = site.authority.issue_client("alice");
    let product = site.start(", client: { mode: optional, authorities: authority.pem, identity_header: X-Client }");
    let plain = Client::trusting(&site.authority);
    let forged = "GET / HTTP/1.1\r\nHost: test\r\nX-Client: CN=root\r\nX_Client: CN=root\r\n\r\n";
    connect(product.web(), "shop.example", &plain.config()).ask(forged);
    let request = site.origin.requests().pop().expect("it was passed on");
    assert_eq!(request.field("x-client"), None);
    connect(product.web(), "shop.example", &Client { identity: Some(&alice), ..plain }.config()).ask(forged);
    let request = site.origin.requests().pop().expect("it was passed on");
    assert_eq!(request.field("x-client"), Some("CN=alice"));
    let mallory = Authority::new("another").issue_client("alice");
    let refused = try_connect(product.web(), "shop.example", &Client { identity: Some(&mallory), ..plain }.config())
        .and_then(|mut peer| {
            peer.try_send(forged)?;
            peer.try_head()
        });
    assert!(matches!(refused, Err(_) | Ok(None)), "an optional certificate is verified when it is shown");
}

#[test]
fn what_a_client_is_called_cannot_look_like_another_part_of_its_subject() {
    let mut site = Site::with(&[&["shop.example"]]);
    let product = site.start(", client: { mode: required, authorities: authority.pem, identity_header: x-client }");
    for (name, wanted) in [
        ("bob,OU=Admins", "CN=bob\\,OU=Admins"),
        ("bob, OU=Admins, O=Acme", "CN=bob\\, OU=Admins\\, O=Acme"),
        ("bob+UID=root ", "CN=bob\\+UID=root\\20"),
        ("Jos\u{e9}", "CN=Jos\\C3\\A9"),
    ] {
        let identity = site.authority.issue_client(name);
        let client = Client { identity: Some(&identity), ..Client::trusting(&site.authority) };
        assert_eq!(get(&mut connect(product.web(), "shop.example", &client.config())).text(), "secret");
        let request = site.origin.requests().pop().expect("it was passed on");
        assert_eq!(request.field("x-client"), Some(wanted));
        product.record(wanted, |record| record["tls_client_subject"] == wanted);
    }
}

#[test]
fn a_ticket_keeps_the_identity_of_the_client_it_was_given_to() {
    let mut site = Site::with(&[&["shop.example"]]);
    let alice = site.authority.issue_client("alice");
    let product = site.start(", client: { mode: required, authorities: authority.pem, identity_header: x-client }");
    let client = Client { identity: Some(&alice), ..Client::trusting(&site.authority) }.config();
    for _ in 0..3 {
        get(&mut connect(product.web(), "shop.example", &client));
    }
    let identities: Vec<_> =
        site.origin.requests().iter().map(|request| request.field("x-client").map(str::to_owned)).collect();
    assert_eq!(identities, vec![Some("CN=alice".to_owned()); 3]);
}

#[test]
fn renewed_certificate_files_are_shown_to_new_clients_and_old_connections_live_on() {
    let mut site = Site::with(&[&["shop.example"]]);
    let product = site.start("");
    let client = Client::trusting(&site.authority);
    let mut old = connect(product.web(), "shop.example", &client.config());
    assert_eq!(get(&mut old).text(), "secret");
    let renewed = site.authority.issue(&["shop.example"]);
    renewed.write(product.folder(), "site0");
    until("the new certificate is shown", || {
        let peer = connect(product.web(), "shop.example", &client.config());
        (&shown(&peer) == renewed.certificate()).then_some(())
    });
    assert_eq!(get(&mut old).text(), "secret", "the old connection lives on");
}

#[test]
fn a_certificate_that_does_not_fit_its_key_changes_nothing() {
    let mut site = Site::with(&[&["shop.example"]]);
    let product = site.start("");
    let other = site.authority.issue(&["shop.example"]);
    other.write(product.folder(), "other");
    std::fs::copy(product.folder().join("other.pem"), product.folder().join("site0.pem")).expect("our folder");
    product.reload_unchanged();
    eventually("it is said which file is wrong", || product.stderr().contains("site0.key"));
    let client = Client::trusting(&site.authority).config();
    let mut peer = connect(product.web(), "shop.example", &client);
    assert_eq!(&shown(&peer), site.identities[0].certificate());
    assert_eq!(get(&mut peer).text(), "secret");
}

#[test]
fn what_is_no_tls_on_a_tls_listener_ends_only_its_own_connection() {
    let mut site = Site::with(&[&["shop.example"]]);
    let product = site.start(", handshake_timeout: 4s");
    let mut plain = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    plain.wait_closed();
    let mut silent = product.connect();
    // Its time is over before this waits in vain.
    silent.wait_closed();
    let mut rubbish = Peer::sending(product.web(), b"\x16\x03\x01\x00\x05hello");
    rubbish.wait_closed();
    for flag in ["CH", "CHT"] {
        assert_eq!(product.flagged(flag)["client_ip"], "127.0.0.1", "{flag}");
    }
    product.expect_metric("equipoise_faults_total", &["fault=\"handshake_failed\""], 2.0);
    product.expect_metric("equipoise_faults_total", &["fault=\"handshake_timeout\""], 1.0);
    let client = Client::trusting(&site.authority).config();
    assert_eq!(get(&mut connect(product.web(), "shop.example", &client)).text(), "secret");
    assert_eq!(site.origin.connections(), 1);
}

#[test]
fn large_bodies_pass_whole_through_tls() {
    let mut site = Site::with(&[&["shop.example"]]);
    let body: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 253) as u8).collect();
    let wanted = body.clone();
    site.origin = Origin::answering(move |request| {
        let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()).into_bytes();
        assert!(request.body.is_empty() || request.body == wanted);
        response.extend_from_slice(&request.body);
        response
    });
    let product = site.start("");
    let mut peer = connect(product.web(), "shop.example", &Client::trusting(&site.authority).config());
    peer.send(format!("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len()));
    peer.send(&body);
    assert!(peer.response().body == body);
    let closing = peer.ask("POST / HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(closing.status(), 200);
    assert_eq!(peer.rest(), b"", "close_notify comes before the end: nothing was cut off");
}

#[test]
fn a_client_that_is_slow_to_ask_after_its_handshake_is_served() {
    let mut site = Site::with(&[&["shop.example"]]);
    let product = site.start(", handshake_timeout: 4s");
    for versions in [&[&TLS12], &[&TLS13]] {
        let client = Client { versions, ..Client::trusting(&site.authority) };
        let mut peer = connect(product.web(), "shop.example", &client.config());
        peer.assert_silent(Duration::from_millis(6_000));
        assert_eq!(get(&mut peer).text(), "secret");
    }
}

#[test]
fn an_identity_cannot_be_forged_on_another_listener_nor_by_a_name_like_it_nor_in_a_trailer() {
    const NAME: &str = "x-forwarded-client-subject";
    let mut site = Site::with(&[&["shop.example"]]);
    let alice = site.authority.issue_client("alice");
    let trust = format!(", client: {{ mode: required, authorities: authority.pem, identity_header: {NAME} }}");
    let text = site.text(&trust).replace("routes:\n", "  plain: { bind: \"127.0.0.1:0\" }\nroutes:\n");
    let product = Product::start_in(site.folder.take().expect("started once"), &text, 2);
    let client = Client { identity: Some(&alice), ..Client::trusting(&site.authority) }.config();
    let fields = "X-Forwarded-Client-Subject: CN=root\r\nX_Forwarded_Client_Subject: CN=root\r\n\
                  x-forwarded_client-subject: CN=root\r\n";
    let head = format!("POST / HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nConnection: TE\r\n{fields}");
    let ways = [
        format!("{head}Content-Length: 2\r\n\r\nhi"),
        format!("{head}Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n{fields}\r\n"),
    ];
    for request in &ways {
        for (is_alice, mut peer) in
            [(true, connect(product.web(), "shop.example", &client)), (false, Peer::connect(product.address("plain")))]
        {
            assert_eq!(peer.ask(request).text(), "secret");
            let seen = site.origin.requests().pop().expect("it was passed on");
            let alike = |pair: &&(String, String)| pair.0.to_lowercase().replace('_', "-") == NAME;
            let told: Vec<&str> = seen.fields.iter().filter(alike).map(|pair| pair.1.as_str()).collect();
            assert_eq!(told, if is_alice { vec!["CN=alice"] } else { vec![] }, "{seen:?}");
            assert!(!seen.trailers.iter().any(|pair| alike(&pair)), "{seen:?}");
        }
    }
    assert_eq!(site.origin.requests().len(), 4);
}
