//! A new program takes over, and nobody who connects is turned away.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::harness::product::{command, executable, folder};
use super::harness::{Origin, Peer, Product, Setup, eventually};
use super::reload::versatile;

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

fn tunnel(product: &Product) -> Peer {
    let mut peer = product.connect();
    peer.send("GET /tunnel HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(peer.head().status(), 101);
    peer
}

fn echoes(peer: &mut Peer) {
    peer.send("still here");
    assert_eq!(peer.take(10), b"still here");
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
    let setup = Setup::to(&origin).top("shutdown: { upgrade_timeout: 8s }");
    let (mut product, program) = with_a_file_of_its_own(&setup);
    let mut tunnel = tunnel(&product);
    let clients = Clients::of(&product);
    let good = std::fs::read(&program).expect("the program");
    let admin = product.address("admin").to_string();
    for (script, why) in [
        ("#!/bin/sh\nexit 1\n", "it ended before it was ready: exit status: 1"),
        ("#!/bin/sh\nkill -9 $$\n", "it ended before it was ready: signal: 9"),
        ("#!/bin/sh\nexec sleep 600\n", "it was not ready in time"),
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

#[test]
fn two_upgrades_at_once_are_refused_and_a_signal_to_end_ends_both() {
    let origin = versatile();
    let (mut product, program) = with_a_file_of_its_own(&Setup::to(&origin));
    put(&program, b"#!/bin/sh\nexec sleep 600\n");
    product.signal(libc::SIGUSR2);
    eventually("it has begun", || product.stderr().contains("a new process is to take over"));
    let refused = product.call("POST /api/upgrade", &[], "");
    assert_eq!(refused.status(), 409, "{}", refused.text());
    assert!(refused.text().contains("an upgrade is under way"), "{}", refused.text());
    product.signal(libc::SIGUSR2);
    eventually("it says so", || product.stderr().contains("an upgrade is under way already"));
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
    super::harness::sys::signal(pid, libc::SIGTERM);
    eventually("the last one removes it", || !path.exists());
}
