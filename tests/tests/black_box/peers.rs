//! `peers`: what several instances count is one sum, whatever becomes of the connections and processes between them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::harness::origin::ok;
use super::harness::product::{command, folder};
use super::harness::tls::Authority;
use super::harness::{Origin, Product, Setup, eventually, net};

const TABLE: &str = "abuse: { key: { header: x-api-key }, counters: [requests], rates: { requests: 1h }, keys_max: 2000, expire: 2h, replicate: true }";

fn setup(origin: &Origin, listen: SocketAddr, members: &[SocketAddr]) -> Setup {
    shaped(origin, (listen, members), "", TABLE)
}

/// Refuses a key with more than a thousand requests.
fn shaped(origin: &Origin, (listen, members): (SocketAddr, &[SocketAddr]), more: &str, table: &str) -> Setup {
    let members: Vec<String> = members.iter().map(|member| format!("\"{member}\"")).collect();
    Setup::to(origin)
        .top(format!("peers: {{ listen: \"{listen}\", members: [{}]{more} }}", members.join(", ")))
        .top(format!("tables: {{ {table} }}"))
        .route("filters: [{ track: { table: abuse } }, { deny: { status: 418 }, when: { table: { name: abuse, above: { requests: 1000 } } } }]")
}

fn origin() -> Origin {
    Origin::answering(|_| ok("fine"))
}

fn ask(product: &Product, key: &str, times: u64) -> u16 {
    let mut peer = product.connect();
    let mut status = 0;
    for _ in 0..times {
        status = peer.ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-Api-Key: {key}\r\n\r\n")).status();
    }
    status
}

fn sum(product: &Product, key: &str) -> u64 {
    let answer = product.admin(&format!("/api/tables/abuse/entries/{key}"));
    if answer.status() != 200 {
        return 0;
    }
    let told: serde_json::Value = serde_json::from_str(&answer.text()).expect("JSON");
    told["values"]["requests"].as_u64().expect("a number")
}

/// All have this sum, and keep it.
fn expect(products: &[&Product], key: &str, wanted: u64) {
    let all = || products.iter().map(|product| sum(product, key)).collect::<Vec<_>>();
    eventually(&format!("all have {wanted} of {key}"), || all() == vec![wanted; products.len()]);
    // What would be counted twice comes within a turn or two.
    let mut turns = products.iter().map(|product| product.metric("equipoise_peers_received_total", &[])).sum::<f64>();
    for (number, product) in products.iter().enumerate() {
        ask(product, &format!("turn-{number}"), 1);
    }
    eventually("a turn passes", || {
        let now = products.iter().map(|product| product.metric("equipoise_peers_received_total", &[])).sum::<f64>();
        let is_over = products.len() < 2 || now > turns;
        turns = turns.min(now);
        is_over
    });
    assert_eq!(all(), vec![wanted; products.len()]);
}

pub(super) fn connected(product: &Product, count: usize) {
    eventually("the peers are connected", || {
        let told = product.api("/api/peers");
        let up = told["peers"].as_array().map_or(0, |all| all.iter().filter(|one| one["state"] == "connected").count());
        up == count && told["incoming"] == count
    });
}

/// Before, what is counted may come with the state instead of as records: sums are exact then, rates the higher ones.
fn settled(product: &Product) {
    eventually("it has the state", || product.api("/api/peers")["is_settled"] == true);
}

pub(super) fn addresses<const N: usize>() -> [SocketAddr; N] {
    std::array::from_fn(|_| net::free())
}

#[test]
fn a_limit_holds_over_three_instances_and_ctl_shows_them() {
    let (origin, all) = (origin(), addresses::<3>());
    let products = all.map(|listen| setup(&origin, listen, &all).start());
    products.iter().for_each(|product| connected(product, 2));
    products.iter().for_each(settled);
    for product in &products {
        assert_eq!(ask(product, "ann", 333), 200);
    }
    expect(&products.each_ref(), "ann", 999);
    assert_eq!(ask(&products[0], "ann", 3), 418);
    expect(&products.each_ref(), "ann", 1_002);
    for product in &products {
        assert_eq!((ask(product, "ann", 1), ask(product, "bob", 1)), (418, 200));
    }
    let entry = products[0].api("/api/tables/abuse/entries/ann");
    assert!(entry["values"]["requests_rate"].as_u64().is_some_and(|rate| rate >= 1_002), "{entry}");
    let admin = products[1].address("admin").to_string();
    let shown = command(&["ctl", "--admin", &admin, "peers"]).stdout;
    assert!(shown.contains("connected") && shown.contains("own") && shown.contains("HEARD"), "{shown}");
    products[0].expect_metric("equipoise_peer_connected", &[&format!("peer=\"{}\"", all[1])], 1.0);
    expect(&products.each_ref(), "ann", 1_005);
    // What an administrator removes is removed everywhere.
    let cleared = products[2].call("DELETE /api/tables/abuse/entries/ann", &[], "");
    assert_eq!(cleared.status(), 200, "{cleared:?}");
    eventually("it is gone everywhere", || products.iter().all(|product| sum(product, "ann") == 0));
}

#[test]
fn to_clear_at_one_instance_gives_no_credit_at_another_that_has_other_entries() {
    let (origin, all) = (origin(), addresses::<2>());
    let one = setup(&origin, all[0], &all).start();
    // This one keeps an entry for a moment only.
    let other = shaped(&origin, (all[1], &all), "", &TABLE.replace("expire: 2h", "expire: 1s")).start();
    connected(&one, 1);
    settled(&other);
    ask(&one, "ann", 500);
    ask(&one, "bob", 500);
    eventually("it has heard, and forgotten", || {
        other.metric("equipoise_peers_received_total", &[]) >= 2.0 && sum(&other, "ann") + sum(&other, "bob") == 0
    });
    let before = other.metric("equipoise_peers_received_total", &[]);
    assert_eq!(one.call("DELETE /api/tables/abuse/entries/ann", &[], "").status(), 200);
    assert_eq!(one.call("DELETE /api/tables/abuse/entries", &[], "").status(), 200);
    eventually("that is there", || other.metric("equipoise_peers_received_total", &[]) >= before + 2.0);
    for key in ["ann", "bob"] {
        ask(&other, key, 1_001);
        assert_eq!(ask(&other, key, 1), 418, "{key}");
    }
}

#[test]
fn one_that_was_killed_is_taught_and_nothing_is_lost_or_doubled() {
    let (origin, all) = (origin(), addresses::<2>());
    let start = |listen| setup(&origin, listen, &all).start();
    let (one, mut other) = (start(all[0]), start(all[1]));
    connected(&one, 1);
    ask(&one, "ann", 10);
    ask(&other, "ann", 5);
    expect(&[&one, &other], "ann", 15);
    other.signal(libc::SIGKILL);
    other.wait_ended();
    one.expect_said(&["a peer has left"]);
    ask(&one, "ann", 7);
    let other = start(all[1]);
    ask(&other, "ann", 2);
    expect(&[&one, &other], "ann", 24);
    assert!(other.metric("equipoise_peers_resyncs_total", &[]) >= 1.0);
    assert_eq!(one.metric("equipoise_peers_resyncs_total", &[]), 0.0);
    ask(&other, "ann", 1);
    expect(&[&one, &other], "ann", 25);
}

/// Passes connections on, until it is cut.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    pub(super) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let relay = Self {
            address: listener.local_addr().expect("an address"),
            is_cut: Arc::default(),
            streams: Arc::default(),
        };
        let (is_cut, streams) = (Arc::clone(&relay.is_cut), Arc::clone(&relay.streams));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(target) else { continue };
                let mut held = streams.lock().expect("no one panicked");
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    std::thread::spawn(move || pass(from, to));
                }
                held.extend([client, server]);
            }
        });
        relay
    }

    pub(super) fn cut(&self, is_cut: bool) {
        let mut streams = self.streams.lock().expect("no one panicked");
        self.is_cut.store(is_cut, Ordering::SeqCst);
        for stream in streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[test]
fn what_is_counted_during_a_partition_is_added_up_when_it_is_over() {
    let (origin, all) = (origin(), addresses::<2>());
    let relays = all.map(Relay::to);
    let one = setup(&origin, all[0], &[relays[1].address]).start();
    let other = setup(&origin, all[1], &[relays[0].address]).start();
    let mut wanted = 0;
    for turn in 0..4 {
        connected(&one, 1);
        ask(&one, "ann", 3);
        ask(&other, "ann", 4);
        expect(&[&one, &other], "ann", wanted + 7);
        // In the middle of what is sent.
        ask(&one, "ann", 20);
        relays.iter().for_each(|relay| relay.cut(true));
        eventually("it is noticed", || one.api("/api/peers")["incoming"] == 0);
        ask(&one, "ann", 5);
        ask(&other, "ann", 6);
        assert!(sum(&one, "ann") < wanted + 38, "turn {turn}");
        relays.iter().for_each(|relay| relay.cut(false));
        wanted += 38;
        expect(&[&one, &other], "ann", wanted);
    }
    assert_eq!(one.metric("equipoise_peers_resyncs_total", &[]), 0.0);
}

#[test]
fn only_instances_with_a_certificate_of_the_authority_are_peers() {
    let (origin, all) = (origin(), addresses::<3>());
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let named = |listen, authority: &Authority, names: &[&str]| {
        let folder = folder();
        authority.issue_peer(names).write(folder.path(), "node");
        authority.write(folder.path(), "ca.pem");
        let tls =
            ", tls: { certificate: { chain: node.pem, key: node.key }, authorities: ca.pem, server_name: peers.test }";
        Product::start_in(folder, &shaped(&origin, (listen, &all), tls, TABLE).text(), 1)
    };
    let start = |listen, authority: &Authority| named(listen, authority, &["127.0.0.1", "peers.test"]);
    let (one, other, stranger) = (start(all[0], &ours), start(all[1], &ours), start(all[2], &theirs));
    connected(&one, 1);
    ask(&one, "ann", 3);
    ask(&other, "ann", 1);
    ask(&stranger, "ann", 90);
    expect(&[&one, &other], "ann", 4);
    stranger.expect_said(&["not connected to a peer", "the handshake failed"]);
    one.expect_said(&["a connection to the port of peers was refused"]);
    one.expect_metric_at_least("equipoise_peers_refused_total", &[], 1.0);
    assert_eq!(stranger.api("/api/peers")["incoming"], 0);
    drop(stranger);
    // Nor is one of the same authority that bears another name.
    let refused = one.metric("equipoise_peers_refused_total", &[]);
    let namesake = named(all[2], &ours, &["127.0.0.1", "other.test"]);
    ask(&namesake, "ann", 90);
    eventually("it is refused", || one.metric("equipoise_peers_refused_total", &[]) >= refused + 3.0);
    expect(&[&one, &other], "ann", 4);
    assert_eq!(one.api("/api/peers")["incoming"], 1);
    // In clear, no one is let in either.
    let mut plain = TcpStream::connect(all[0]).expect("it listens");
    plain.write_all(b"\0\0\0\x2aEQ-PEERS").expect("a socket");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.windows(8).any(|part| part == b"EQ-PEERS"));
}

#[test]
fn tables_that_count_something_else_are_left_alone_and_the_log_says_how_to_mend_it() {
    let (origin, all) = (origin(), addresses::<2>());
    let one = setup(&origin, all[0], &all).start();
    let table = TABLE.replace("rates: { requests: 1h }", "rates: { requests: 2h }");
    let other = shaped(&origin, (all[1], &all), "", &table).start();
    connected(&one, 1);
    ask(&one, "ann", 3);
    other.expect_said(&["a table of a peer cannot be replicated", "table=abuse", "the same values on all instances"]);
    other.expect_metric_at_least("equipoise_peers_skipped_total", &[], 1.0);
    assert_eq!(sum(&other, "ann"), 0);
    // Who is still waiting for a teacher itself does not teach.
    eventually("it knows all that it will", || one.api("/api/peers")["is_settled"] == true);
    // Mended while it runs, it is taught.
    other.reload(&setup(&origin, all[1], &all).text());
    expect(&[&one, &other], "ann", 3);
}

#[test]
fn a_flood_of_keys_is_bounded_on_both_sides() {
    let (origin, all) = (origin(), addresses::<2>());
    let [one, other] = all.map(|listen| setup(&origin, listen, &all).start());
    connected(&one, 1);
    let before = other.resident_bytes();
    let mut peer = one.connect();
    for key in 0..6_000 {
        peer.ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-Api-Key: flood-{key}\r\n\r\n"));
    }
    ask(&one, "ann", 3);
    expect(&[&one, &other], "ann", 3);
    for product in [&one, &other] {
        assert!(product.metric("equipoise_table_entries", &[]) <= 2_000.0);
    }
    assert!(other.resident_bytes() < before + (64 << 20));
}

#[test]
fn reloads_and_upgrades_under_traffic_lose_and_double_nothing() {
    let (origin, all) = (origin(), addresses::<2>());
    let text = setup(&origin, all[0], &all);
    let (one, other) = (text.start(), setup(&origin, all[1], &all).start());
    connected(&one, 1);
    let stop = AtomicBool::new(false);
    let total = std::thread::scope(|scope| {
        let clients: Vec<_> = [&one, &one, &other]
            .into_iter()
            .map(|product| {
                scope.spawn(|| {
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) {
                        ask(product, "ann", 5);
                        count += 5;
                    }
                    count
                })
            })
            .collect();
        let moves = |product: &Product| {
            let before = sum(product, "ann");
            eventually("the clients go on", || sum(product, "ann") > before + 50);
        };
        moves(&other);
        one.reload(&format!("{}\n# again", text.text()));
        moves(&other);
        // Other connections, the same counts.
        one.reload(&setup(&origin, all[0], &[all[1]]).text());
        moves(&other);
        one.upgrade();
        moves(&one);
        moves(&other);
        other.upgrade();
        moves(&one);
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("no request fails")).sum::<u64>()
    });
    expect(&[&one, &other], "ann", total);
}

#[test]
fn hostile_bytes_end_their_connection_and_nothing_else() {
    let (origin, all) = (origin(), addresses::<2>());
    let [one, other] = all.map(|listen| setup(&origin, listen, &all).start());
    connected(&one, 1);
    let hello = [&b"\0\0\0\x1e\x01EQ-PEERS\0\x01"[..], &[7; 16], &[1, 1, b'x'], b"\0\0\0\x01\x0a"].concat();
    let follows = [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0xff; 64],
        b"\0\0\0\0",
        &[&hello[..], b"\xff\xff\xff\xff"].concat(),
        &[&hello[..], b"\0\0\0\x19\x06\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0"].concat(),
        &[&hello[..], b"\0\0\0\x1d\x06\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x01tab"].concat(),
        &[&hello[..], b"\0\0\0\x0b\x09\0\0\0\0\0\0\0\0\xff\xff"].concat(),
        &[&hello[..], &b"\0\0\0\x02\xc8\0".repeat(10_000)[..]].concat(),
    ];
    for bytes in follows {
        let mut stream = TcpStream::connect(all[0]).expect("it listens");
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    // Many that say nothing do not keep others out for long, and take no memory.
    let silent: Vec<_> = (0..200).filter_map(|_| TcpStream::connect(all[0]).ok()).collect();
    ask(&one, "ann", 3);
    ask(&other, "ann", 4);
    expect(&[&one, &other], "ann", 7);
    drop(silent);
    assert!(one.metric("equipoise_peers_refused_total", &[]) >= 4.0);
}
