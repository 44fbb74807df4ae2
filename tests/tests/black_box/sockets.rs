//! How sockets are set up, as far as it can be seen from outside.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use super::harness::origin::ok;
use super::harness::{Origin, Peer, Product, Setup, eventually, product};

/// An origin that writes down where its connections come from.
fn nosy() -> (Origin, Arc<Mutex<Vec<IpAddr>>>) {
    let seen: Arc<Mutex<Vec<IpAddr>>> = Arc::default();
    let book = Arc::clone(&seen);
    let origin = Origin::start(move |mut visit| {
        let peer = visit.peer.tcp().peer_addr().expect("connected");
        book.lock().expect("addresses").push(peer.ip());
        visit.answer_all(|_| Some(ok("seen")));
    });
    (origin, seen)
}

/// Whether the kernel holds a keep-alive timer for the connection between these two, as the first sees it.
fn is_kept_alive(here: SocketAddr, there: SocketAddr) -> bool {
    let shown = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => format!("{:08X}:{:04X}", u32::from_ne_bytes(v4.ip().octets()), v4.port()),
        SocketAddr::V6(_) => panic!("these tests use IPv4"),
    };
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    let line = table.lines().find(|line| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some(&shown(here)) && words.next() == Some(&shown(there))
    });
    // `timer_active:when`; 2 is that of keep-alive.
    line.is_some_and(|line| line.split_whitespace().nth(5).is_some_and(|timer| timer.starts_with("02:")))
}

#[test]
fn connections_are_asked_whether_they_are_there_where_that_is_configured() {
    let addresses: Arc<Mutex<Vec<(SocketAddr, SocketAddr)>>> = Arc::default();
    let book = Arc::clone(&addresses);
    let origin = Origin::start(move |mut visit| {
        let tcp = visit.peer.tcp();
        book.lock().expect("addresses").push((tcp.peer_addr().expect("one"), tcp.local_addr().expect("one")));
        visit.answer_all(|_| Some(ok("hi")));
    });
    let keepalive = "socket: { keepalive: { idle: 300s }, user_timeout: 30s, dscp: 10 }";
    let asked = Setup::to(&origin).listener(keepalive).cluster(keepalive);
    let product = asked.start();
    let mut peer = product.connect();
    assert_eq!(peer.get("/").text(), "hi");
    let client = peer.tcp().local_addr().expect("ours");
    eventually("the client is asked", || is_kept_alive(product.web(), client));
    let (here, there) = addresses.lock().expect("addresses")[0];
    eventually("the endpoint is asked", || is_kept_alive(here, there));
    // Without it, neither is; a listener that is there already takes the change up for new connections.
    product.reload(&Setup::to(&origin).text());
    for _ in 0..8 {
        // All workers have taken it up.
        let mut peer = product.connect();
        assert_eq!(peer.get("/").text(), "hi");
        assert!(!is_kept_alive(product.web(), peer.tcp().local_addr().expect("ours")));
    }
    let plain = Setup::to(&origin).start();
    let mut peer = plain.connect();
    assert_eq!(peer.get("/").text(), "hi");
    assert!(!is_kept_alive(plain.web(), peer.tcp().local_addr().expect("ours")));
    plain.reload(&asked.text());
    let mut peer = plain.connect();
    assert_eq!(peer.get("/").text(), "hi");
    let client = peer.tcp().local_addr().expect("ours");
    eventually("the listener has taken it up", || is_kept_alive(plain.web(), client));
}

#[test]
fn data_may_come_with_the_first_packet_on_both_sides() {
    let origin = Origin::saying("hi");
    let setup = Setup::to(&origin);
    let product = setup.clone().listener("socket: { fast_open: 100 }").cluster("socket: { fast_open: true }").start();
    for _ in 0..20 {
        let mut peer = product.connect();
        peer.send("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        assert_eq!(peer.response().text(), "hi");
    }
    // Without a use for it, on a connection where the endpoint speaks first.
    let greeting = Origin::start(|mut visit| {
        visit.peer.send("220 ready\r\n");
        visit.peer.wait_closed();
    });
    let line = format!(
        "version: 1\nlisteners:\n  line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: mail }}\n\
         clusters:\n  mail: {{ endpoints: [\"{}\"], socket: {{ fast_open: true }} }}\n",
        greeting.address()
    );
    let mail = Product::start(&line);
    for _ in 0..3 {
        assert_eq!(Peer::connect(mail.address("line")).take(11), b"220 ready\r\n");
    }
    // What is taken out again is as it was.
    product.reload(&setup.text());
    assert_eq!(product.get("/").text(), "hi");
}

#[test]
fn connections_come_from_the_address_that_is_configured() {
    let (origin, seen) = nosy();
    let setup = Setup::to(&origin);
    let product = setup.clone().cluster("socket: { source_address: 127.0.0.2 }").workers(1).start();
    let mut peer = product.connect();
    assert_eq!(peer.get("/").text(), "seen");
    assert_eq!(*seen.lock().expect("addresses"), ["127.0.0.2".parse::<IpAddr>().expect("one")]);
    // Another address is seen at once: what was kept came from the old one.
    product.reload(&setup.clone().cluster("socket: { source_address: [\"::1\", 127.0.0.3] }").text());
    assert_eq!(peer.get("/").text(), "seen");
    assert_eq!(seen.lock().expect("addresses")[1..], ["127.0.0.3".parse::<IpAddr>().expect("one")]);
    // Not ours.
    product.reload(&setup.cluster("socket: { source_address: 192.0.2.1 }").text());
    assert_eq!(peer.get("/").status(), 502);
    product.flagged("UC");
}

/// Whether this process, and so its children, may use addresses of others.
fn may_be_transparent() -> bool {
    const CAP_NET_ADMIN: u32 = 12;
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("capabilities");
    u64::from_str_radix(line.trim(), 16).expect("hexadecimal") >> CAP_NET_ADMIN & 1 == 1
}

#[test]
fn the_client_s_own_address_is_shown_where_that_is_allowed_and_refused_where_not() {
    let (origin, seen) = nosy();
    let setup = Setup::to(&origin).cluster("socket: { source_address: client }").workers(1);
    if !may_be_transparent() {
        let folder = product::folder();
        let file = folder.path().join("equipoise.yaml");
        std::fs::write(&file, setup.text().replace("DIR", folder.path().to_str().expect("UTF-8"))).expect("ours");
        let ended = product::command(&["run", "-c", file.to_str().expect("UTF-8")]);
        assert!(ended.stderr.contains("needs the capability CAP_NET_ADMIN"), "{}", ended.stderr);
        return;
    }
    let product = setup.start();
    let from = |last: u8| IpAddr::from([127, 0, 0, last]);
    let (mut one, mut other) = (Peer::connect_from(from(4), product.web()), Peer::connect_from(from(5), product.web()));
    for _ in 0..2 {
        assert_eq!(one.get("/").text(), "seen");
        assert_eq!(other.get("/").text(), "seen");
    }
    assert_eq!(*seen.lock().expect("addresses"), [from(4), from(5)], "each has a connection of its own");
}

#[test]
fn an_address_that_is_not_there_yet_can_be_listened_at() {
    let origin = Origin::saying("hi");
    let text = |socket: &str| {
        let away = format!("  away: {{ bind: \"192.0.2.77:0\"{socket} }}\nroutes:");
        Setup::to(&origin).text().replace("routes:", &away)
    };
    let product = Product::start(&text(", socket: { freebind: true }"));
    assert_eq!(product.address("away").ip(), IpAddr::from([192, 0, 2, 77]));
    assert_eq!(product.get("/").text(), "hi");
    let plain = Setup::to(&origin).start();
    let said = plain.reload(&text(""));
    assert!(said.contains("listener away: cannot listen on 192.0.2.77:0"), "{said}");
}
