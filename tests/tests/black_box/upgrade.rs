//! A new program takes over, and nobody who connects is turned away.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::harness::product::{command, executable, folder};
use super::harness::{Origin, Peer, Product, Setup, eventually, http2, net, sys, until};
use super::http2_both::{proof, upgrading};
use super::reload::{echoes, tunnel, versatile};
use super::udp;

/// Clients that ask, on connections that they keep as long as they may and on new ones, until they are told to stop. Each
/// connection has to be taken, each request answered.
struct Clients {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Clients {
    fn of(product: &Product) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let threads = (0..4)
            .map(|number| {
                let (stop, done, web) = (Arc::clone(&stop), Arc::clone(&done), product.web());
                std::thread::spawn(move || {
                    let mut peer = Peer::connect(web);
                    while !stop.load(Ordering::Relaxed) {
                        let answer = peer.get("/a");
                        assert_eq!(answer.status(), 200, "{answer:?}");
                        done.fetch_add(1, Ordering::Relaxed);
                        if number % 2 == 0 || answer.field("connection") == Some("close") {
                            peer = Peer::connect(web);
                        }
                    }
                })
            })
            .collect();
        Self { stop, done, threads }
    }

    fn go_on(&self) {
        let before = self.done.load(Ordering::Relaxed);
        eventually("the clients go on", || self.done.load(Ordering::Relaxed) > before + 40);
    }

    fn end(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no connection was refused and no request failed");
        }
        self.done.load(Ordering::Relaxed)
    }
}

/// A product whose executable is a file of its own, so that a test can put another one there.
fn with_a_file_of_its_own(setup: &Setup) -> (Product, PathBuf) {
    let folder = folder();
    let program = folder.path().join("equipoise");
    put(&program, &std::fs::read(executable()).expect("the executable"));
    let configuration = setup.text().replace("DIR", folder.path().to_str().expect("a path"));
    std::fs::write(folder.path().join("equipoise.yaml"), configuration).expect("the folder is ours");
    let product = Product::spawn_program(&program, folder, &["run", "-c", "equipoise.yaml", "--workers", "2"]);
    (product, program)
}

/// Replaces a program as packages do: a new file of that name.
fn put(program: &std::path::Path, content: &[u8]) {
    let beside = program.with_extension("new");
    std::fs::write(&beside, content).expect("the folder is ours");
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o755)).expect("the file is ours");
    std::fs::rename(&beside, program).expect("the folder is ours");
}

#[test]
fn three_upgrades_in_a_row_under_load_refuse_no_connection_and_fail_no_request() {
    let origin = versatile();
    let mut product = Setup::to(&origin).top("shutdown: { drain_timeout: 5m }").start();
    let mut tunnels = vec![tunnel(&product)];
    let clients = Clients::of(&product);
    let mut served_by = vec![product.serving()];
    for _ in 0..3 {
        clients.go_on();
        served_by.push(product.upgrade());
        clients.go_on();
        for peer in &mut tunnels {
            echoes(peer);
        }
        tunnels.push(tunnel(&product));
    }
    assert!(clients.end() > 200);
    served_by.dedup();
    assert_eq!(served_by.len(), 4, "each is another process");
    assert!(product.is_running(), "a tunnel is still there");
    tunnels.iter_mut().for_each(echoes);
    drop(tunnels);
    assert_eq!(product.wait_ended().code(), Some(0), "the first ends when its last connection has ended");
    assert_eq!(product.get("/").status(), 200);
    assert_eq!(product.api("/api/status")["generation"], 4);
}

/// All at once they would begin TLS at the same moment, and wait for each other.
#[test]
fn kept_connections_are_told_to_come_anew_one_after_the_other() {
    let origin = versatile();
    let mut product = Setup::to(&origin).top("shutdown: { drain_timeout: 16s }").start();
    let mut peers: Vec<_> = (0..40).map(|_| product.connect()).collect();
    let mut ask_all = || {
        let before = peers.len();
        peers.retain_mut(|peer| {
            let answer = peer.get("/a");
            assert_eq!(answer.status(), 200, "{answer:?}");
            answer.field("connection") != Some("close")
        });
        (before - peers.len(), before)
    };
    assert_eq!(ask_all(), (0, 40));
    product.upgrade();
    let (told, _) = ask_all();
    assert!(told <= 20, "{told} of 40 at once");
    let mut most = told;
    eventually("all are told in the end", || {
        let (told, left) = ask_all();
        most = most.max(told);
        left == 0
    });
    assert!(most <= 20, "{most} of 40 at once");
    assert_eq!(product.wait_ended().code(), Some(0));
}

#[test]
fn an_upgrade_is_asked_for_by_the_api_and_told_who_follows() {
    let origin = versatile();
    let mut product = Setup::to(&origin).start();
    let admin = product.address("admin").to_string();
    let told = command(&["ctl", "--admin", &admin, "upgrade"]);
    assert!(told.status.success(), "{}", told.stderr);
    // It says so itself a moment after it has taken over.
    eventually("it has said its number", || product.serving() != product.pid());
    assert_eq!(told.stdout, format!("process {} has taken over\n", product.serving()));
    assert_eq!(product.wait_ended().code(), Some(0));
    assert_eq!(product.get("/").status(), 200);
    let generations = product.api("/api/generations");
    assert_eq!(generations["generations"][0]["origin"], "upgrade", "{generations}");
}

#[test]
fn another_number_of_workers_and_other_listeners_lose_nobody() {
    let origin = versatile();
    for workers in [1, 4] {
        let (mut product, program) = with_a_file_of_its_own(&Setup::to(&origin));
        let clients = Clients::of(&product);
        let configuration = product.folder().join("equipoise.yaml");
        let text = std::fs::read_to_string(&configuration).expect("ours");
        std::fs::write(&configuration, text.replace("routes:\n", "  more: { bind: \"127.0.0.1:0\" }\nroutes:\n"))
            .expect("ours");
        let path = executable().display();
        let script = format!("#!/bin/sh\nexec {path} run -c equipoise.yaml --workers {workers}\n");
        put(&program, script.as_bytes());
        clients.go_on();
        product.upgrade();
        clients.go_on();
        clients.end();
        let status = product.api("/api/status");
        assert_eq!((&status["workers"], status["listeners"].as_array().map(Vec::len)), (&workers.into(), Some(2)));
        assert_eq!(product.wait_ended().code(), Some(0));
    }
}

#[test]
fn a_program_that_cannot_take_over_changes_nothing_and_it_is_told_why() {
    let origin = versatile();
    let (mut product, program) = with_a_file_of_its_own(&Setup::to(&origin));
    let mut tunnel = tunnel(&product);
    let clients = Clients::of(&product);
    let good = std::fs::read(&program).expect("the program");
    let admin = product.address("admin").to_string();
    for (script, why) in [
        ("#!/bin/sh\nexit 1\n", "it ended before it was ready: exit status: 1"),
        ("#!/bin/sh\nkill -9 $$\n", "it ended before it was ready: signal: 9"),
        ("no program at all", "cannot be started"),
    ] {
        put(&program, script.as_bytes());
        let said = product.upgrade_in_vain();
        assert!(said.contains(why), "{said}");
        clients.go_on();
        echoes(&mut tunnel);
    }
    put(&program, &good);
    let configuration = product.folder().join("equipoise.yaml");
    let text = std::fs::read_to_string(&configuration).expect("ours");
    std::fs::write(&configuration, text.replace("cluster: site", "cluster: sight")).expect("ours");
    let told = command(&["ctl", "--admin", &admin, "upgrade"]);
    assert_eq!(told.status.code(), Some(1));
    assert!(
        told.stderr.contains("the new process has not taken over") && told.stderr.contains("sight"),
        "{}",
        told.stderr
    );
    clients.go_on();
    echoes(&mut tunnel);
    assert!(product.is_running());
    assert_eq!(product.serving(), product.pid());
    std::fs::write(&configuration, text).expect("ours");
    assert_ne!(product.upgrade(), product.pid());
    clients.go_on();
    echoes(&mut tunnel);
    clients.end();
}

/// A frame from a program that only says so: its kind, its body.
fn says(kind: u8, body: &str) -> String {
    raw(&format!("\\{kind:03o}\\{:03o}\\000\\000\\000\\000\\000{body}", body.len()))
}

/// These bytes, as printf(1) has them.
fn raw(bytes: &str) -> String {
    format!("printf '{bytes}' >&$EQUIPOISE_UPGRADE_FD\n")
}

const PREPARED: u8 = 2;
const READY: u8 = 4;
const REFUSED: u8 = 5;
const HANG: &str = "exec sleep 600\n";
/// What is told is wanted in two parts.
const IN_PARTS: &str = "{\"in_parts\": true}";

/// A product of which all kinds of sockets would go over, with a client of each.
struct Everything {
    product: Product,
    program: PathBuf,
    tunnel: Peer,
    stream: Peer,
    flow: udp::Client,
    /// What the flow is answered.
    answer: String,
    _endpoints: (Origin, Origin, udp::Echo),
}

impl Everything {
    fn of(top: &str) -> Self {
        let endpoints = (versatile(), Origin::echo(), udp::Echo::start("a"));
        let (product, program) = with_a_file_of_its_own(&all_kinds(&endpoints.0, &endpoints.1, &endpoints.2).top(top));
        let (tunnel, stream) = (tunnel(&product), Peer::connect(product.address("line")));
        let flow = udp::Client::of(&product);
        let answer = flow.ask("x");
        let mut all = Self { product, program, tunnel, stream, flow, answer, _endpoints: endpoints };
        all.goes_on();
        all
    }

    fn goes_on(&mut self) {
        assert_eq!(self.product.get("/").status(), 200);
        echoes(&mut self.tunnel);
        echoes(&mut self.stream);
        assert_eq!(self.flow.ask("x"), self.answer);
        assert_eq!(self.product.serving(), self.product.pid());
    }
}

/// Listeners for HTTP, streams and datagrams.
fn all_kinds(origin: &Origin, echo: &Origin, names: &udp::Echo) -> Setup {
    Setup::to(origin)
        .cluster_more(format!("database: {{ endpoints: [\"{}\"] }}", echo.address()))
        .cluster_more(format!("names: {{ endpoints: [\"{}\"] }}", names.address()))
        .listener_more("line: { bind: \"127.0.0.1:0\", protocol: tcp, cluster: database }")
        .listener_more("dns: { bind: \"127.0.0.1:0\", protocol: udp, cluster: names, idle_timeout: 60s }")
}

#[test]
fn a_program_that_says_what_it_should_not_changes_nothing_and_leaves_nothing_behind() {
    let mut all = Everything::of("");
    let before = sys::descriptors(all.product.pid());
    let half = raw("\\002\\100\\000\\000\\000\\000\\000half of it");
    let without_descriptors = raw("\\002\\000\\000\\000\\000\\003\\000");
    let thrice = says(PREPARED, IN_PARTS) + &says(PREPARED, "{}") + &says(PREPARED, "{}");
    for (script, why) in [
        (raw("GET / HTTP/1.1\\r\\n\\r\\n") + HANG, "its messages cannot be read: what came is no frame"),
        (raw("\\002\\377\\377\\377\\377\\000\\000") + HANG, "its messages cannot be read: a frame is too long"),
        (half + "exit 7\n", "it ended before it was ready: exit status: 7"),
        (without_descriptors + "exit 7\n", "it ended before it was ready: exit status: 7"),
        (says(READY, "{}") + HANG, "it sent Ready instead of Prepared"),
        (says(REFUSED, "{\"reason\": \"not today\"}") + HANG, "not today"),
        (says(REFUSED, "no reason") + HANG, "it reported that it cannot take over"),
        // From here on it has had everything.
        (says(PREPARED, "{}") + "kill -9 $$\n", "it ended before it was ready: signal: 9"),
        (says(PREPARED, "no object") + "exit 7\n", "it ended before it was ready: exit status: 7"),
        (says(PREPARED, "{}") + &says(PREPARED, "{}") + HANG, "it sent Prepared instead of Ready"),
        (says(PREPARED, "{}") + &says(REFUSED, "{\"reason\": \"too much\"}") + HANG, "too much"),
        // Or would have, after a first part.
        (says(PREPARED, IN_PARTS) + "exit 7\n", "it ended before it was ready: exit status: 7"),
        (says(PREPARED, IN_PARTS) + &says(READY, "{}") + HANG, "it sent Ready instead of Prepared"),
        (thrice + HANG, "it sent Prepared instead of Ready"),
    ] {
        put(&all.program, format!("#!/usr/bin/env bash\n{script}").as_bytes());
        let said = all.product.upgrade_in_vain();
        assert!(said.contains(why), "{script}: {said}");
        all.goes_on();
    }
    // A connection to an endpoint or two may be kept that was not there before.
    eventually("no descriptor is left", || sys::descriptors(all.product.pid()) <= before + 4);
}

#[test]
fn a_program_that_hangs_is_not_waited_for_longer_than_that_may_take() {
    let mut all = Everything::of("shutdown: { upgrade_timeout: 1500ms }");
    for script in [HANG.to_owned(), says(PREPARED, "{}") + HANG, says(PREPARED, IN_PARTS) + HANG] {
        put(&all.program, format!("#!/usr/bin/env bash\n{script}").as_bytes());
        let said = all.product.upgrade_in_vain();
        assert!(said.contains("it did not become ready in time"), "{said}");
        all.goes_on();
    }
}

#[test]
fn whoever_connects_while_the_old_process_is_killed_over_an_upgrade_is_answered_by_the_new_one() {
    let origin = versatile();
    let setup = Setup::to(&origin);
    let mut product = setup.start();
    // The new one has all sockets by then, and needs a while until it says so.
    std::fs::write(product.folder().join("equipoise.yaml"), setup.large_text(product.folder())).expect("it is ours");
    product.signal(libc::SIGUSR2);
    let pid = until("it has begun", || {
        product.stderr().split_once("upgrade started pid=")?.1.split(' ').next()?.parse().ok()
    });
    let sockets = sys::sockets(product.pid());
    eventually("it has sockets of the old one", || {
        sys::variables(pid).contains("EQUIPOISE_UPGRADE_FD=") && !sys::sockets(pid).is_disjoint(&sockets)
    });
    product.signal(libc::SIGKILL);
    product.wait_ended();
    let mut early = Peer::sending(product.web(), "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("another process serves", || product.serving() != product.pid());
    assert_eq!(early.response().status(), 200);
    assert_eq!(product.get("/").status(), 200);
    assert_eq!(product.api("/api/generations")["generations"][0]["origin"], "upgrade");
    product.expect_said(&["the previous process died during the upgrade"]);
    // It can be followed like any other.
    assert_ne!(product.upgrade(), product.pid());
    assert_eq!(product.get("/").status(), 200);
}

#[test]
fn two_upgrades_at_once_are_refused_and_a_signal_to_end_ends_both() {
    let origin = versatile();
    let (mut product, program) = with_a_file_of_its_own(&Setup::to(&origin));
    put(&program, b"#!/bin/sh\nexec sleep 600\n");
    product.signal(libc::SIGUSR2);
    eventually("it has begun", || product.stderr().contains("upgrade started"));
    let refused = product.call("POST /api/upgrade", &[], "");
    assert_eq!(refused.status(), 409, "{}", refused.text());
    assert!(refused.text().contains("an upgrade is in progress"), "{}", refused.text());
    product.signal(libc::SIGUSR2);
    eventually("it says so", || product.stderr().contains("an upgrade is already in progress"));
    assert_eq!(product.get("/").status(), 200);
    product.signal(libc::SIGTERM);
    assert_eq!(product.wait_ended().code(), Some(0));
}

#[test]
fn unix_sockets_go_over_with_their_files() {
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin);
    let text = setup
        .text()
        .replace("routes:\n", "  local: { bind: \"unix:DIR/web.sock\", socket: { mode: \"0600\" } }\nroutes:\n");
    let mut product = Product::start_in(folder(), &text, 2);
    let path = product.folder().join("web.sock");
    let ask = || {
        use std::io::{Read, Write};
        let mut stream = UnixStream::connect(&path).expect("it listens");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    };
    assert!(ask().ends_with("fine"));
    let pid = product.upgrade();
    assert_eq!(product.wait_ended().code(), Some(0));
    assert!(ask().ends_with("fine"), "the file is still there");
    sys::signal(pid, libc::SIGTERM);
    eventually("the last one removes it", || !path.exists());
}

#[test]
fn a_program_that_cannot_take_over_leaves_the_files_of_unix_sockets_where_they_are() {
    let origin = Origin::saying("fine");
    let text = Setup::to(&origin)
        .text()
        .replace("routes:\n", "  local: { bind: \"unix:DIR/web.sock\", socket: { mode: \"0600\" } }\nroutes:\n")
        .replace("admin: { bind: \"127.0.0.1:0\" }", "admin: { bind: \"unix:DIR/admin.sock\" }");
    let mut product = Product::start_in(folder(), &text, 2);
    let [web, admin] = ["web.sock", "admin.sock"].map(|name| product.folder().join(name));
    let ask = |path: &PathBuf, target: &str| {
        use std::io::{Read, Write};
        let mut stream = UnixStream::connect(path).expect("it listens");
        let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer.starts_with("HTTP/1.1 200 ")
    };
    let mode = || std::fs::metadata(&web).expect("it is there").permissions().mode() & 0o777;
    let write = |text: &str| {
        let text = text.replace("DIR", product.folder().to_str().expect("a path"));
        std::fs::write(product.folder().join("equipoise.yaml"), text).expect("ours");
    };
    // By then it has the sockets of both.
    let busy = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let more = format!("  more: {{ bind: \"{}\" }}\nroutes:\n", busy.local_addr().expect("an address"));
    let open = text.replace("\"0600\"", "\"0666\"");
    write(&open.replace("routes:\n", &more));
    for _ in 0..2 {
        let said = product.upgrade_in_vain();
        assert!(said.contains("cannot listen on"), "{said}");
        assert!(ask(&web, "/") && ask(&admin, "/healthz"), "who comes by their files still finds them");
        assert_eq!(mode(), 0o600, "of the active configuration");
    }
    write(&open);
    let pid = product.upgrade();
    eventually("it sets up what it has taken over", || mode() == 0o666);
    assert_eq!(product.wait_ended().code(), Some(0));
    assert!(ask(&web, "/") && ask(&admin, "/healthz"));
    sys::signal(pid, libc::SIGTERM);
    eventually("the last one removes them", || !web.exists() && !admin.exists());
}

#[test]
fn the_admin_socket_gets_the_permissions_that_the_new_one_has_for_it() {
    let origin = Origin::saying("fine");
    let text = Setup::to(&origin)
        .text()
        .replace("admin: { bind: \"127.0.0.1:0\" }", "admin: { bind: \"unix:DIR/admin.sock\", mode: \"0660\" }");
    let product = Product::start_in(folder(), &text, 2);
    let file = product.folder().join("admin.sock");
    let mode = || std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o660);
    let text = text.replace("\"0660\"", "\"0600\"").replace("DIR", product.folder().to_str().expect("a path"));
    std::fs::write(product.folder().join("equipoise.yaml"), text).expect("ours");
    product.upgrade();
    eventually("nobody else may come in", || mode() == 0o600);
}

/// Keeps something going on threads until it is told to stop; how often it was done.
struct Going {
    stop: Arc<AtomicBool>,
    done: Vec<Arc<AtomicUsize>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Going {
    fn new() -> Self {
        Self { stop: Arc::new(AtomicBool::new(false)), done: Vec::new(), threads: Vec::new() }
    }

    /// Once more of it.
    fn with(mut self, mut once: impl FnMut() + Send + 'static) -> Self {
        let (stop, done) = (Arc::clone(&self.stop), Arc::new(AtomicUsize::new(0)));
        self.done.push(Arc::clone(&done));
        self.threads.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                once();
                done.fetch_add(1, Ordering::Relaxed);
            }
        }));
        self
    }

    /// Waits until each has gone on.
    fn go_on(&self) {
        for done in &self.done {
            let before = done.load(Ordering::Relaxed);
            eventually("all go on", || {
                let failed = self.threads.iter().any(std::thread::JoinHandle::is_finished);
                assert!(!failed, "a client has failed");
                done.load(Ordering::Relaxed) > before + 5
            });
        }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("nothing has failed");
        }
    }
}

/// Asks on a connection of HTTP/2 for as long as it may, then on the next. One that has told that it ends, and which streams
/// it has not taken, has failed nothing (RFC 9113 section 6.8).
fn asks_by_http2(web: std::net::SocketAddr) -> impl FnMut() {
    let mut client = http2::Client::connect(web);
    move || {
        for _ in 0..3 {
            let stream = client.try_open(http2::request("GET", "/a"), true);
            match stream.and_then(|stream| client.try_answer(stream)) {
                Ok(answer) => return assert_eq!((answer.status, answer.text().as_str()), (200, "fine")),
                Err(error) if error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR) => {
                    client = http2::Client::connect(web);
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("three connections have ended before they took anything");
    }
}

fn websocket(product: &Product) -> Peer {
    let mut peer = product.connect();
    let key = "dGhlIHNhbXBsZSBub25jZQ==";
    peer.send(format!(
        "GET /chat HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: {key}\r\n\r\n"
    ));
    let head = peer.head();
    assert_eq!((head.status(), head.field("sec-websocket-accept")), (101, Some(proof(key).as_str())));
    peer
}

#[test]
fn under_load_of_every_kind_nothing_fails_and_no_tunnel_ends() {
    let (origin, chat, echo, names) = (versatile(), upgrading(true), Origin::echo(), udp::Echo::start("a"));
    let setup = all_kinds(&origin, &echo, &names)
        .cluster_more(format!("chat: {{ endpoints: [\"{}\"] }}", chat.address()))
        .route_before("{ name: chat, match: { path: { prefix: /chat } }, cluster: chat }")
        .top("shutdown: { drain_timeout: 5m }");
    let product = setup.start();
    let (web, line, dns) = (product.web(), product.address("line"), product.address("dns"));
    let clients = Clients::of(&product);
    let mut going = Going::new();
    for _ in 0..2 {
        let flow = udp::Client::at(dns);
        going = going
            .with(asks_by_http2(web))
            .with(move || echoes(&mut Peer::connect(line)))
            .with(move || assert_eq!(flow.ask("kept"), "akept"))
            .with(move || assert_eq!(udp::Client::at(dns).ask("new"), "anew"));
    }
    let mut tunnels = vec![websocket(&product), tunnel(&product), Peer::connect(line)];
    for _ in 0..2 {
        clients.go_on();
        going.go_on();
        product.upgrade();
        tunnels.iter_mut().for_each(echoes);
        clients.go_on();
        going.go_on();
        tunnels.extend([websocket(&product), Peer::connect(line)]);
        tunnels.iter_mut().for_each(echoes);
    }
    going.end();
    clients.end();
    tunnels.iter_mut().for_each(echoes);
    let failed =
        ["4xx", "5xx"].map(|class| product.metric("equipoise_http_requests_total", &[&format!("class=\"{class}\"")]));
    assert_eq!(failed, [0.0, 0.0]);
}

#[test]
fn an_address_of_datagrams_that_changes_with_an_upgrade_is_told_of_with_what_to_do() {
    let (echo, address) = (udp::Echo::start("a"), net::free());
    let text = |host: &str| {
        format!(
            "version: 1\nlisteners:\n  dns: {{ bind: \"{host}:{}\", protocol: udp, cluster: echo }}\n\
             clusters: {{ echo: {{ endpoints: [\"{}\"] }} }}\n",
            address.port(),
            echo.address()
        )
    };
    let product = Product::start(&text("127.0.0.1"));
    std::fs::write(product.folder().join("equipoise.yaml"), text("0.0.0.0")).expect("our folder");
    product.upgrade();
    let told = "datagrams to an address that changed with the upgrade may be lost";
    eventually("it is told of", || product.stderr().contains(told));
    let said = product.stderr();
    assert!(said.contains(&format!("before={address}")) && said.contains("change the address with a reload"), "{said}");
}
