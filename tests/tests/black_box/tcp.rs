//! Connections passed on as bytes.

use std::time::Duration;

use super::harness::net::refusing;
use super::harness::product::{command_in, folder};
use super::harness::tls::{self, Authority, Client};
use super::harness::{Origin, Peer, Product, eventually};

/// A TCP listener `line` before one cluster; lines are added to listener and cluster.
fn start(endpoints: &str, listener: &str, cluster: &str) -> Product {
    Product::start(&format!(
        "version: 1\n\
         listeners:\n  line:\n    bind: \"127.0.0.1:0\"\n    protocol: tcp\n    cluster: database\n    {listener}\n\
         clusters:\n  database:\n    endpoints: [{endpoints}]\n    {cluster}\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n"
    ))
}

fn to(origin: &Origin) -> String {
    format!("\"{}\"", origin.address())
}

fn line(product: &Product) -> Peer {
    Peer::connect(product.address("line"))
}

#[test]
fn bytes_pass_in_both_directions_and_are_counted() {
    let origin = Origin::echo();
    let product = start(&to(&origin), "", "");
    let mut peer = line(&product);
    for _ in 0..10 {
        peer.send(b"GET / HTTP/1.1\r\n\r\n\0\x01\xff\n");
        assert_eq!(peer.take(22), b"GET / HTTP/1.1\r\n\r\n\0\x01\xff\n");
    }
    peer.half_close();
    assert_eq!(peer.rest(), b"");
    let record = product.record("the stream", |record| record["kind"] == "stream");
    assert_eq!((record["received_bytes"].as_u64(), record["sent_bytes"].as_u64()), (Some(220), Some(220)));
    assert_eq!((record["cluster"].as_str(), record["flag"].as_str()), (Some("database"), None));
    assert_eq!(record["endpoint_address"].as_str(), Some(origin.address().to_string().as_str()));
    product.expect_metric("equipoise_streams_total", &["listener=\"line\""], 1.0);
    product.expect_metric("equipoise_received_bytes_total", &["listener=\"line\""], 220.0);
    product.expect_metric("equipoise_connections_open", &["listener=\"line\""], 0.0);
}

#[test]
fn each_direction_ends_on_its_own() {
    let origin = Origin::start(|mut visit| {
        // The endpoint speaks first, as databases and mail do, and ends first.
        visit.peer.send("hello");
        visit.peer.half_close();
        visit.peer.wait_closed();
    });
    let product = start(&to(&origin), "", "");
    let mut peer = line(&product);
    assert_eq!(peer.rest(), b"hello");
    peer.send("still heard");
    eventually("it arrives", || origin.received(0) == b"still heard");
    assert_eq!(origin.open(), 1);
    peer.half_close();
    eventually("both have ended", || origin.open() == 0);
    let upper = Origin::start(|mut visit| {
        let bytes = visit.peer.rest();
        visit.peer.send(bytes.to_ascii_uppercase());
    });
    let product = start(&to(&upper), "", "");
    let mut peer = line(&product);
    peer.send("the client ends first");
    peer.half_close();
    assert_eq!(peer.rest(), b"THE CLIENT ENDS FIRST");
}

#[test]
fn much_data_passes_whole() {
    let origin = Origin::echo();
    let product = start(&to(&origin), "", "");
    let peer = line(&product);
    let body: Vec<u8> = (0..20_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let writer = peer.tcp().try_clone().expect("a second handle");
    let sent = body.clone();
    let sending = std::thread::spawn(move || {
        use std::io::Write;
        let mut writer = writer;
        writer.write_all(&sent).expect("all is taken");
        writer.shutdown(std::net::Shutdown::Write).expect("a half-close");
    });
    let mut peer = peer;
    assert!(peer.rest() == body);
    sending.join().expect("all was sent");
}

#[test]
fn a_reset_on_one_side_ends_the_other() {
    let origin = Origin::echo();
    let product = start(&to(&origin), "", "");
    let mut peer = line(&product);
    peer.send("x");
    assert_eq!(peer.take(1), b"x");
    peer.reset();
    eventually("the endpoint is free", || origin.open() == 0);
    let resetting = Origin::start(|mut visit| {
        let _ = visit.peer.fill();
        visit.peer.reset();
    });
    let product = start(&to(&resetting), "", "");
    let mut peer = line(&product);
    peer.send("x");
    peer.wait_closed();
}

#[test]
fn a_stream_that_moves_no_byte_is_closed_in_time_and_one_that_does_is_not() {
    let origin = Origin::echo();
    let product = start(&to(&origin), "idle_timeout: 5s", "");
    let mut idle = line(&product);
    let mut busy = line(&product);
    idle.send("x");
    assert_eq!(idle.take(1), b"x");
    for _ in 0..15 {
        busy.send("y");
        assert_eq!(busy.take(1), b"y");
        std::thread::sleep(Duration::from_millis(400));
    }
    idle.assert_closed();
    busy.send("z");
    assert_eq!(busy.take(1), b"z");
    assert_eq!(product.flagged("PI")["kind"], "stream");
}

#[test]
fn a_full_listener_takes_no_more() {
    let origin = Origin::echo();
    let product = start(&to(&origin), "connections_max: 1", "");
    let mut first = line(&product);
    first.send("x");
    assert_eq!(first.take(1), b"x");
    refused(&product);
    first.send("y");
    assert_eq!(first.take(1), b"y");
    assert_eq!(origin.connections(), 1);
    product.expect_metric_at_least("equipoise_faults_total", &["fault=\"listener_full\""], 1.0);
    drop(first);
    eventually("there is room again", || {
        let mut peer = line(&product);
        peer.try_send("z").is_ok() && peer.fill().is_ok_and(|count| count == 1)
    });
}

#[test]
fn another_endpoint_is_tried_when_one_refuses() {
    let origin = Origin::echo();
    let product = start(&format!("\"{}\", {}", refusing(), to(&origin)), "", "");
    for _ in 0..4 {
        let mut peer = line(&product);
        peer.send("x");
        assert_eq!(peer.take(1), b"x");
    }
    let none = start(&format!("\"{}\"", refusing()), "", "");
    refused(&none);
    none.flagged("UC");
}

#[test]
fn an_endpoint_gets_no_more_connections_than_it_may_and_others_wait() {
    let origin = Origin::echo();
    let endpoint = format!("{{ address: {}, connections_max: 1 }}", to(&origin));
    let product = start(&endpoint, "", "queue: { requests_max: 1, timeout: 30s }");
    let mut first = line(&product);
    first.send("a");
    assert_eq!(first.take(1), b"a");
    let mut second = line(&product);
    second.send("b");
    eventually("one waits", || product.metric("equipoise_cluster_queue_length", &[]) == 1.0);
    refused(&product);
    assert_eq!(origin.connections(), 1);
    drop(first);
    assert_eq!(second.take(1), b"b");
    product.flagged("PQ");
}

/// Asserts that a new connection is closed at once, without a byte.
fn refused(product: &Product) {
    if let Some(mut peer) = Peer::try_connect(product.address("line")) {
        peer.assert_closed();
    }
}

/// A TLS endpoint that says its name.
fn named(authority: &Authority, names: &[&str], says: &'static str) -> Origin {
    Origin::start_tls(tls::origin(&authority.issue(names), None), move |mut visit| {
        visit.peer.send(says);
        visit.peer.wait_closed();
    })
}

#[test]
fn tls_is_passed_on_untouched_by_the_name_it_asks_for() {
    let authority = Authority::new("inside");
    let shop = named(&authority, &["shop.example"], "shop");
    let wild = named(&authority, &["*.wild.example"], "wild");
    let deep = named(&authority, &["*.deep.wild.example"], "deep");
    let rest = named(&authority, &["else.invalid"], "rest");
    let clusters = [("shop", &shop), ("wild", &wild), ("deep", &deep), ("rest", &rest)]
        .map(|(name, origin)| format!("  {name}: {{ endpoints: [{}] }}\n", to(origin)))
        .concat();
    let product = Product::start(&format!(
        "version: 1\nlisteners:\n  line:\n    bind: \"127.0.0.1:0\"\n    protocol: tcp\n    sni:\n\
         \x20     names: {{ shop.example: shop, \"*.wild.example\": wild, \"*.deep.wild.example\": deep }}\n\
         \x20     otherwise: rest\nclusters:\n{clusters}\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n"
    ));
    let client = Client::trusting(&authority).config();
    for (name, says) in [
        ("shop.example", "shop"),
        ("SHOP.example", "shop"),
        ("a.wild.example", "wild"),
        ("a.deep.wild.example", "deep"),
        ("else.invalid", "rest"),
    ] {
        // The client verifies the endpoint's own certificate: nobody in between has touched the stream.
        let mut peer = tls::connect(product.address("line"), name, &client);
        assert_eq!(peer.take(4), says.as_bytes(), "{name}");
    }
    let record = product.record("the shop", |record| record["cluster"] == "shop");
    assert_eq!(record["tls_server_name"], "shop.example");
}

#[test]
fn tls_is_passed_on_by_the_application_protocol_that_its_client_offers() {
    let authority = Authority::new("inside");
    let names = &["shop.example", "blog.example"];
    let [acme, grpc, shop] = ["acme", "grpc", "shop"].map(|says| named(&authority, names, says));
    let product = Product::start(&format!(
        "version: 1\nlisteners:\n  line:\n    bind: \"127.0.0.1:0\"\n    protocol: tcp\n    sni:\n\
         \x20     alpn:\n\
         \x20       - {{ protocols: acme-tls/1, cluster: acme }}\n\
         \x20       - {{ protocols: [h2, h2c], names: shop.example, cluster: grpc }}\n\
         \x20     names: {{ shop.example: shop }}\n\
         clusters:\n  acme: {{ endpoints: [{}] }}\n  grpc: {{ endpoints: [{}] }}\n  shop: {{ endpoints: [{}] }}\n",
        to(&acme),
        to(&grpc),
        to(&shop)
    ));
    let connect = |name: &str, protocols: &'static [&'static str]| {
        let client = Client { protocols, ..Client::trusting(&authority) }.config();
        tls::try_connect(product.address("line"), name, &client).map(|mut peer| String::from_utf8(peer.take(4)))
    };
    for (name, protocols, says) in [
        ("shop.example", &["acme-tls/1"][..], "acme"),
        ("blog.example", &["acme-tls/1"], "acme"),
        ("shop.example", &["http/1.1", "h2"], "grpc"),
        ("shop.example", &["http/1.1"], "shop"),
        ("shop.example", &[], "shop"),
    ] {
        let said = connect(name, protocols).expect("a handshake").expect("text");
        assert_eq!(said, says, "{name} {protocols:?}");
    }
    assert!(connect("blog.example", &["h2"]).is_err(), "no rule is for this name, nor is it listed");
    let told = |url: &str| {
        let explain = ["explain", "-c", "equipoise.yaml", url];
        command_in(product.folder(), &explain)
            .stdout
            .lines()
            .any(|line| line.contains("cluster") && line.contains("grpc"))
    };
    assert!(told("tcp://shop.example?alpn=http/1.1,h2") && !told("tcp://shop.example?alpn=http/1.1"));
}

#[test]
fn what_is_not_tls_goes_to_the_cluster_for_all_others() {
    let (shop, rest) = (Origin::saying("shop"), Origin::echo());
    let product = Product::start(&format!(
        "version: 1\nlisteners:\n  line:\n    bind: \"127.0.0.1:0\"\n    protocol: tcp\n    sni:\n\
         \x20     names: {{ shop.example: shop }}\n\x20     otherwise: rest\n\
         clusters:\n  shop: {{ endpoints: [{}] }}\n  rest: {{ endpoints: [{}] }}\n\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n",
        to(&shop),
        to(&rest)
    ));
    let mut peer = line(&product);
    peer.send("SSH-2.0-x\r\n");
    assert_eq!(peer.take(11), b"SSH-2.0-x\r\n");
    drop(peer);
    let record = product.record("the rest", |record| record["cluster"] == "rest");
    assert_eq!((&record["fault"], &record["tls_server_name"]), (&serde_json::Value::Null, &serde_json::Value::Null));
}

#[test]
fn a_stream_without_a_known_name_is_closed_and_reaches_no_endpoint() {
    let origin = Origin::echo();
    let product = Product::start_in(
        folder(),
        &format!(
            "version: 1\nlisteners:\n  line:\n    bind: \"127.0.0.1:0\"\n    protocol: tcp\n    sni:\n\
             \x20     names: {{ shop.example: shop }}\n\x20     hello_timeout: 300ms\n\
             clusters:\n  shop: {{ endpoints: [{}] }}\n\
             access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n",
            to(&origin)
        ),
        2,
    );
    let authority = Authority::new("inside");
    let client = Client::trusting(&authority).config();
    assert!(tls::try_connect(product.address("line"), "other.example", &client).is_err());
    assert!(tls::try_connect(product.address("line"), "127.0.0.1", &client).is_err(), "an address is no name");
    let mut no_tls = line(&product);
    no_tls.send("GET / HTTP/1.1\r\n\r\n");
    no_tls.wait_closed();
    let mut endless = line(&product);
    endless.send(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03");
    let started = std::time::Instant::now();
    while endless.try_send([0; 1024]).is_ok() {
        assert!(started.elapsed() < Duration::from_secs(30), "an endless hello is read for ever");
    }
    let mut silent = line(&product);
    assert!(silent.wait_closed() < Duration::from_secs(20));
    assert_eq!(origin.connections(), 0);
    product.flagged("CS");
}

#[test]
fn a_hello_that_arrives_byte_by_byte_is_understood() {
    let authority = Authority::new("inside");
    let shop = named(&authority, &["shop.example"], "shop");
    let product = Product::start(&format!(
        "version: 1\nlisteners:\n  line:\n    bind: \"127.0.0.1:0\"\n    protocol: tcp\n    sni:\n\
         \x20     names: {{ shop.example: shop }}\nclusters:\n  shop: {{ endpoints: [{}] }}\n",
        to(&shop)
    ));
    // A relay of our own that passes the client's bytes on one by one.
    let address = product.address("line");
    let trickle = Origin::start(move |mut visit| {
        let mut onward = Peer::connect(address);
        let _ = visit.peer.fill();
        for byte in visit.peer.drain() {
            onward.send([byte]);
        }
        eventually("the endpoint was reached", || onward.fill().is_ok_and(|count| count > 0));
        visit.peer.send(onward.drain());
        // Only that an answer came is of interest here.
    });
    let mut conn = rustls::ClientConnection::new(
        Client::trusting(&authority).config(),
        "shop.example".try_into().expect("a name"),
    )
    .expect("a client");
    let mut peer = Peer::connect(trickle.address());
    let mut hello = Vec::new();
    conn.write_tls(&mut hello).expect("a hello");
    peer.send(&hello);
    assert_eq!(peer.take(1), [22], "the endpoint's handshake record");
    assert_eq!(shop.connections(), 1);
}

#[test]
fn where_bytes_are_passed_on_any_application_protocol_may_be_offered() {
    let (origin, authority, folder) = (Origin::echo(), Authority::new("tests"), folder());
    authority.issue(&["db.example"]).write(folder.path(), "site");
    let text = format!(
        "version: 1\n\
         listeners:\n  line:\n    bind: \"127.0.0.1:0\"\n    protocol: tcp\n    cluster: database\n\
         \x20   tls: {{ certificates: [{{ chain: site.pem, key: site.key }}] }}\n\
         clusters:\n  database: {{ endpoints: [{}] }}\n",
        to(&origin)
    );
    let product = Product::start_in(folder, &text, 2);
    for protocols in [&["postgresql"][..], &["dot"], &["h2", "http/1.1"], &[]] {
        let client = Client { protocols, ..Client::trusting(&authority) };
        let mut peer = tls::connect(product.address("line"), "db.example", &client.config());
        assert_eq!(peer.tls().alpn_protocol(), None, "{protocols:?}");
        peer.send("hello");
        assert_eq!(peer.take(5), b"hello", "{protocols:?}");
    }
}
