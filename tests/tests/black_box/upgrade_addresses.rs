//! The address of a listener of datagrams is another after an upgrade: of one address and all of them the kernel prefers the one,
//! whichever process has it, and nobody notices.

use std::net::SocketAddr;

use super::harness::http3::{Client, Stream, request};
use super::harness::origin::ok;
use super::harness::{Origin, Product, Setup, eventually, net, sys};
use super::http3::{Site, site};
use super::udp;

/// An address, and all of them with its port.
fn one_and_every() -> (SocketAddr, SocketAddr) {
    let one = net::free();
    (one, SocketAddr::from(([0, 0, 0, 0], one.port())))
}

/// As it is asked for where this is another address of the machine.
fn second(one: SocketAddr) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 2], one.port()))
}

fn setup(origin: &Origin) -> Setup {
    Setup::to(origin).top("shutdown: { drain_timeout: 5m }")
}

/// Has the listener of a site at an address from the next configuration on.
fn put(site: &Site, origin: &Origin, address: SocketAddr) -> String {
    let text = setup(origin)
        .listener("http_versions: [h1, h2, h3]")
        .listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }")
        .text()
        .replacen("\"127.0.0.1:0\"", &format!("\"{address}\""), 1)
        .replace("DIR", &site.product.folder().display().to_string());
    std::fs::write(site.product.folder().join("equipoise.yaml"), &text).expect("our folder");
    text
}

/// A request that is begun.
fn begin(site: &Site, address: SocketAddr) -> (Client, Stream) {
    let mut client = Client::connect(address, "shop.example", &site.tls());
    let mut stream = client.open(request("POST", "/"));
    client.send(&mut stream, b"before, ");
    (client, stream)
}

/// Finishes what was begun. All at once: a client hears nothing while another one is waited for.
fn finish(mut begun: Vec<(Client, Stream)>) {
    for (client, stream) in &mut begun {
        client.send(stream, b"after");
        client.end(stream, http::HeaderMap::new());
    }
    let answered = begun.into_iter().map(|(client, stream)| {
        assert_eq!(client.answer(stream).text(), "before, after");
        client
    });
    drop(answered.collect::<Vec<_>>());
}

#[test]
fn a_listener_of_http3_whose_address_changes_with_each_upgrade_loses_nothing_and_lets_in_who_comes() {
    let origin = Origin::answering(|request| ok(&request.text()));
    let site = site(setup(&origin), 2);
    let (one, every) = one_and_every();
    site.product.reload(&put(&site, &origin, one));
    let mut begun = Vec::new();
    for address in [one, every, one, every] {
        if !begun.is_empty() {
            put(&site, &origin, address);
            site.product.upgrade();
        }
        begun.extend((0..6).map(|_| begin(&site, one)));
        if address == every {
            begun.extend((0..2).map(|_| begin(&site, second(one))));
        }
        eventually("they are under way", || {
            begun.iter().for_each(|(client, _)| client.flush());
            origin.connections() == begun.len()
        });
    }
    // From other ports, where the kernel may give their datagrams to other workers.
    for (client, _) in begun.iter().step_by(2) {
        client.move_away();
    }
    finish(begun);
    assert_eq!(Client::connect(one, "shop.example", &site.tls()).get("/").status, 200);
    assert!(!site.product.stderr().contains("may be lost"), "{}", site.product.stderr());
}

#[test]
fn who_comes_by_an_address_that_a_listener_of_http3_has_given_up_with_an_upgrade_is_let_in_no_more() {
    let origin = Origin::answering(|request| ok(&request.text()));
    let mut site = site(setup(&origin), 2);
    let (one, every) = one_and_every();
    site.product.reload(&put(&site, &origin, every));
    let begun = vec![begin(&site, one), begin(&site, second(one))];
    eventually("they are under way", || {
        begun.iter().for_each(|(client, _)| client.flush());
        origin.connections() == 2
    });
    put(&site, &origin, one);
    let old = sys::sockets(site.product.serving());
    let new = site.product.upgrade();
    for _ in 0..4 {
        assert_eq!(Client::connect(one, "shop.example", &site.tls()).get("/").status, 200);
        let refused = Client::try_connect(second(one), "shop.example", &site.tls());
        assert!(refused.is_err(), "nobody listens there any more");
    }
    finish(begun);
    assert_eq!(site.product.wait_ended().code(), Some(0));
    // What is left is the socket of the admin listener.
    eventually("its sockets are closed", || sys::sockets(new).intersection(&old).count() <= 1);
    assert_eq!(Client::connect(one, "shop.example", &site.tls()).get("/").status, 200);
}

#[test]
fn connections_of_an_old_process_with_another_address_that_is_killed_are_reset() {
    let origin = Origin::answering(|request| ok(&request.text()));
    for turn in 0..2 {
        let mut site = site(setup(&origin), 2);
        let (one, every) = one_and_every();
        let (before, after) = if turn == 0 { (one, every) } else { (every, one) };
        site.product.reload(&put(&site, &origin, before));
        let mut client = Client::connect(one, "shop.example", &site.tls());
        assert_eq!(client.get("/").status, 200);
        put(&site, &origin, after);
        site.product.upgrade();
        site.product.signal(libc::SIGKILL);
        site.product.wait_ended();
        assert_eq!(Client::connect(one, "shop.example", &site.tls()).get("/").status, 200);
        // It says something, and learns that nobody knows it. By itself it would wait for minutes.
        let stream = client.try_open(request("GET", "/"));
        let error = client.with_quic("its end", async |quic| quic.closed().await);
        assert!(matches!(error, quinn::ConnectionError::Reset), "{turn}: {error:?}");
        drop(stream);
    }
}

/// A listener of UDP at an address.
fn datagrams(address: SocketAddr, echo: &udp::Echo) -> String {
    format!(
        "version: 1\nlisteners:\n  dns: {{ bind: \"{address}\", protocol: udp, cluster: echo, idle_timeout: 5m }}\n\
         clusters: {{ echo: {{ endpoints: [\"{}\"] }} }}\nshutdown: {{ drain_timeout: 5m }}\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n",
        echo.address()
    )
}

#[test]
fn flows_stay_and_others_begin_though_the_address_of_their_listener_changes_with_each_upgrade() {
    let (echo, (one, every)) = (udp::Echo::start("a"), one_and_every());
    let mut product = Product::start(&datagrams(one, &echo));
    let mut clients: Vec<udp::Client> = Vec::new();
    for address in [one, every, one, every] {
        if !clients.is_empty() {
            std::fs::write(product.folder().join("equipoise.yaml"), datagrams(address, &echo)).expect("our folder");
            product.upgrade();
        }
        clients.extend((0..6).map(|_| udp::Client::at(one)));
        if address == every {
            clients.extend((0..2).map(|_| udp::Client::at(second(one))));
        }
        for _ in 0..3 {
            clients.iter().for_each(|client| assert_eq!(client.ask("x"), "ax"));
        }
        assert_eq!(echo.sources().len(), clients.len(), "no flow has begun anew");
    }
    assert!(!product.stderr().contains("may be lost"), "{}", product.stderr());
    // The first of them has the flows of its clients still.
    product.signal(libc::SIGKILL);
    product.wait_ended();
    for _ in 0..2 {
        clients.iter().for_each(|client| assert_eq!(client.ask("x"), "ax"));
    }
    assert_eq!(echo.sources().len(), clients.len() + 6, "those of the first have begun anew, once");
}

#[test]
fn an_address_of_http3_that_becomes_one_of_datagrams_with_an_upgrade_is_told_of_with_what_to_do() {
    let (origin, echo) = (Origin::saying("fine"), udp::Echo::start("a"));
    let site = site(setup(&origin), 2);
    let (one, every) = one_and_every();
    site.product.reload(&put(&site, &origin, one));
    std::fs::write(site.product.folder().join("equipoise.yaml"), datagrams(every, &echo)).expect("our folder");
    site.product.upgrade();
    let told = "datagrams to an address that has changed with the upgrade may be lost";
    eventually("it is told of", || site.product.stderr().contains(told));
    let said = site.product.stderr();
    assert!(said.contains(&format!("before={one}")) && said.contains("change the address by a reload"), "{said}");
}
