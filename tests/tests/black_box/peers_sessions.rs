//! `learn` with `replicate`: a session that one instance has learned goes to the same endpoint at all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::harness::origin::ok;
use super::harness::poll::until;
use super::harness::{Origin, Product, Setup, eventually};
use super::peers::{Relay, addresses, connected};

/// Origins that answer with their place, and give out sessions that none gave out before.
fn origins(count: usize) -> Vec<Origin> {
    let sessions = Arc::new(AtomicU64::new(0));
    let origin = |place: usize| {
        let sessions = Arc::clone(&sessions);
        Origin::mortal_answering(move |request| match request.target() {
            "/login" => {
                let text = format!("{place} s{}", sessions.fetch_add(1, Ordering::Relaxed));
                let (_, id) = text.split_once(' ').expect("two words");
                format!(
                    "HTTP/1.1 200 OK\r\nSet-Cookie: sid={id}; Path=/\r\nContent-Length: {}\r\n\r\n{text}",
                    text.len()
                )
                .into_bytes()
            }
            _ => ok(&place.to_string()),
        })
    };
    (0..count).map(origin).collect()
}

const LEARN: &str = "persistence: { learn: { cookie: sid, entries_max: 500, replicate: true } }";

fn setup(endpoints: &[SocketAddr], (listen, members): (SocketAddr, &[SocketAddr]), learn: &str) -> Setup {
    let members: Vec<String> = members.iter().map(|member| format!("\"{member}\"")).collect();
    Setup::to_addresses(endpoints)
        .cluster(learn)
        .top(format!("peers: {{ listen: \"{listen}\", members: [{}] }}", members.join(", ")))
}

fn places(origins: &[Origin]) -> Vec<SocketAddr> {
    origins.iter().map(Origin::address).collect()
}

/// A session, and the place of its endpoint.
fn login(product: &Product) -> (String, String) {
    let text = product.connect().ask("GET /login HTTP/1.1\r\nHost: test\r\n\r\n").text();
    let (place, id) = text.split_once(' ').expect("two words");
    (id.to_owned(), place.to_owned())
}

fn logins(product: &Product, count: usize) -> Vec<(String, String)> {
    (0..count).map(|_| login(product)).collect()
}

fn visit(product: &Product, id: &str) -> String {
    product.connect().ask(format!("GET / HTTP/1.1\r\nHost: test\r\nCookie: sid={id}\r\n\r\n")).text()
}

fn follows(product: &Product, sessions: &[(String, String)]) -> bool {
    sessions.iter().all(|(id, place)| visit(product, id) == *place)
}

fn have(products: &[&Product], count: f64) {
    eventually(&format!("all have {count} sessions"), || {
        products.iter().all(|product| product.metric("equipoise_cluster_session_entries", &[]) == count)
    });
}

#[test]
fn a_session_goes_to_the_same_endpoint_at_three_instances_that_list_them_in_other_orders() {
    let (origins, all) = (origins(4), addresses::<3>());
    let mut order = places(&origins);
    let products = all.map(|listen| {
        order.rotate_left(1);
        setup(&order, (listen, &all), LEARN).start()
    });
    products.iter().for_each(|product| connected(product, 2));
    let sessions: Vec<_> = products.iter().flat_map(|product| logins(product, 8)).collect();
    have(&products.each_ref(), 24.0);
    for product in &products {
        assert!(follows(product, &sessions));
        assert_eq!(product.api("/api/peers")["sessions"].as_array().map(Vec::len), Some(1));
        product.expect_metric("equipoise_peers_skipped_total", &[], 0.0);
    }
    let strangers: std::collections::BTreeSet<_> = (0..12).map(|n| visit(&products[0], &format!("x{n}"))).collect();
    assert!(strangers.len() > 1, "a session that no endpoint gave out goes anywhere");
    have(&products.each_ref(), 24.0);
}

#[test]
fn one_that_was_killed_or_began_late_is_taught_and_an_upgrade_forgets_nothing() {
    let (origins, all) = (origins(4), addresses::<2>());
    let order = places(&origins);
    let start = |listen| setup(&order, (listen, &all), LEARN).start();
    let one = start(all[0]);
    let mut sessions = logins(&one, 8);
    let mut other = start(all[1]);
    connected(&one, 1);
    have(&[&one, &other], 8.0);
    sessions.extend(logins(&other, 8));
    have(&[&one, &other], 16.0);
    other.signal(libc::SIGKILL);
    other.wait_ended();
    sessions.extend(logins(&one, 4));
    assert!(follows(&one, &sessions), "also those of the one that was killed");
    let other = start(all[1]);
    have(&[&one, &other], 20.0);
    assert!(follows(&other, &sessions));
    one.upgrade();
    assert!(follows(&one, &sessions));
    connected(&one, 1);
    sessions.extend(logins(&one, 4));
    sessions.extend(logins(&other, 4));
    have(&[&one, &other], 28.0);
    assert!(follows(&one, &sessions) && follows(&other, &sessions));
}

#[test]
fn a_session_that_moves_moves_everywhere_and_the_last_move_counts_after_a_partition() {
    let (origins, all) = (origins(3), addresses::<2>());
    let order = places(&origins);
    let relays = all.map(Relay::to);
    let one = setup(&order, (all[0], &[relays[1].address]), LEARN).start();
    let other = setup(&order, (all[1], &[relays[0].address]), LEARN).start();
    connected(&one, 1);
    let sessions = logins(&one, 9);
    have(&[&one, &other], 9.0);
    relays.iter().for_each(|relay| relay.cut(true));
    eventually("it is noticed", || one.api("/api/peers")["incoming"] == 0);
    let during = (login(&one), login(&other));
    // The first endpoint goes: its sessions move, here at one, there at the other.
    origins[0].kill();
    let gone: Vec<_> = sessions.iter().filter(|(_, place)| place == "0").collect();
    assert!(!gone.is_empty());
    // A request that was under way to it gets 502.
    let answered = |product: &Product, id: &str| {
        let place = || Some(visit(product, id)).filter(|place| place.len() == 1);
        (id.to_owned(), until("another endpoint answers", place))
    };
    let moved = |product: &Product| gone.iter().map(|(id, _)| answered(product, id)).collect::<Vec<_>>();
    let first = moved(&one);
    // Stamps are tenths of a second.
    std::thread::sleep(std::time::Duration::from_millis(250));
    let last = moved(&other);
    assert!(follows(&one, &first));
    relays.iter().for_each(|relay| relay.cut(false));
    have(&[&one, &other], 11.0);
    eventually("the last move counts", || follows(&one, &last));
    assert!(follows(&other, &last));
    for (id, place) in [during.0, during.1].into_iter().filter(|(_, place)| place != "0") {
        assert_eq!((visit(&one, &id), visit(&other, &id)), (place.clone(), place));
    }
}

#[test]
fn an_endpoint_that_is_not_known_here_is_remembered_until_it_is() {
    let (origins, all) = (origins(2), addresses::<2>());
    let order = places(&origins);
    let one = setup(&order[..1], (all[0], &all), LEARN).start();
    let other = setup(&order[1..], (all[1], &all), LEARN).start();
    connected(&one, 1);
    let (id, place) = login(&one);
    have(&[&one, &other], 1.0);
    assert_eq!(place, "0");
    other.reload(&setup(&order, (all[1], &all), LEARN).text());
    assert!((0..4).all(|_| visit(&other, &id) == "0"));
}

#[test]
fn each_instance_keeps_to_its_own_bound_and_other_sessions_are_left_alone() {
    let (origins, all) = (origins(2), addresses::<3>());
    let order = places(&origins);
    let one = setup(&order, (all[0], &all), LEARN).start();
    let small = setup(&order, (all[1], &all), &LEARN.replace("500", "20")).start();
    let differs = setup(&order, (all[2], &all), &LEARN.replace("cookie: sid", "header: x-sid")).start();
    connected(&one, 2);
    let sessions = logins(&one, 100);
    have(&[&one], 100.0);
    have(&[&small], 20.0);
    eventually("the last ones came", || follows(&small, &sessions[99..]));
    differs.expect_said(&["sessions of a peer cannot be replicated", "the same cookie or header on all instances"]);
    differs.expect_metric("equipoise_cluster_session_entries", &[], 0.0);
    assert!(follows(&one, &sessions));
    // Mended while it runs, it is taught; the other way round it is left alone.
    differs.reload(&setup(&order, (all[2], &all), LEARN).text());
    have(&[&differs], 100.0);
    assert!(follows(&differs, &sessions));
    differs.reload(&setup(&order, (all[2], &all), &LEARN.replace(", replicate: true", "")).text());
    have(&[&differs], 0.0);
    let more = logins(&one, 5);
    have(&[&one], 105.0);
    assert!(follows(&one, &more));
    assert_eq!(differs.metric("equipoise_cluster_session_entries", &[]), 0.0);
}

#[test]
fn hostile_sessions_of_a_peer_break_nothing() {
    use std::io::{Read, Write};
    let (origins, all) = (origins(2), addresses::<2>());
    let order = places(&origins);
    let [one, other] = all.map(|listen| setup(&order, (listen, &all), LEARN).start());
    connected(&one, 1);
    let sessions = logins(&one, 4);
    have(&[&one, &other], 4.0);
    let hello = [&b"\0\0\0\x1e\x01EQ-PEERS\0\x01"[..], &[7; 16], &[1, 1, b'x'], b"\0\0\0\x01\x0a"].concat();
    for body in [&b"\x0c"[..], b"\x0c\0\0\0\0\0\0\0\xff", b"\x0b\0", &[&[0x0c][..], &[0xff; 300]].concat(), b"\x0d"] {
        let mut stream = std::net::TcpStream::connect(all[0]).expect("it listens");
        let framed = [&hello[..], &(body.len() as u32).to_be_bytes(), body].concat();
        let _ = stream.write_all(&framed);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let more = login(&one);
    have(&[&one, &other], 5.0);
    assert!(follows(&other, &sessions) && follows(&other, &[more]));
}
