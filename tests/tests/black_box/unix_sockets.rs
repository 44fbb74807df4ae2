//! Unix sockets on both sides.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::harness::origin::ok_for;
use super::harness::product::{command, folder};
use super::harness::tls::{self, Authority, Client};
use super::harness::{Origin, Peer, Product, eventually};

/// An endpoint at a Unix socket that answers every request with this body.
fn origin_at(path: &Path, body: &'static str) -> Arc<AtomicUsize> {
    let listener = UnixListener::bind(path).expect("a new path");
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let counter = Arc::clone(&counter);
            std::thread::spawn(move || {
                let mut peer = Peer::unix(stream);
                while let Some(request) = peer.try_request() {
                    counter.fetch_add(1, Ordering::SeqCst);
                    if peer.try_send(ok_for(&request, body)).is_err() {
                        return;
                    }
                }
            });
        }
    });
    requests
}

/// A listener `web` at `DIR/web.sock` with these lines, before a cluster of these endpoints.
fn text(listener: &str, endpoints: &str, cluster: &str) -> String {
    format!(
        "version: 1\n\
         listeners:\n  web:\n    bind: \"unix:DIR/web.sock\"\n    {listener}\n\
         routes: [{{ cluster: site }}]\n\
         clusters:\n  site:\n    endpoints: [{endpoints}]\n    {cluster}\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n"
    )
}

fn to(origin: &Origin) -> String {
    format!("\"{}\"", origin.address())
}

fn connect(product: &Product) -> Peer {
    Peer::connect_unix(product.folder().join("web.sock"))
}

#[test]
fn requests_come_and_go_by_unix_sockets() {
    let folder = folder();
    let requests = origin_at(&folder.path().join("app.sock"), "by file");
    let check = "health_check: { http: { path: /health }, interval: 100ms, timeout: 10s }";
    let product = Product::start_in(folder, &text("", "\"unix:DIR/app.sock\"", check), 2);
    product.expect_metric("equipoise_endpoint_up", &["cluster=\"site\""], 1.0);
    let mut peer = connect(&product);
    for _ in 0..3 {
        assert_eq!(peer.get("/").text(), "by file");
    }
    for _ in 0..20 {
        assert_eq!(connect(&product).get("/").text(), "by file");
    }
    eventually("checks come too", || requests.load(Ordering::SeqCst) > 23);
    let record = product.record("a request", |record| record["path"] == "/");
    let app = format!("unix:{}", product.folder().join("app.sock").display());
    assert_eq!(
        (record["endpoint_address"].as_str(), record["client_ip"].as_str()),
        (Some(app.as_str()), Some("127.0.0.1"))
    );
    let status = product.api("/api/status");
    let web = format!("unix:{}", product.folder().join("web.sock").display());
    assert_eq!(status["listeners"][0]["address"], web.as_str());
    assert_eq!(status["clusters"][0]["endpoints"][0]["address"], app.as_str());
    product.expect_said(&[&format!("listener web on {web} (http)")]);
    let explained = product.admin("/api/explain?request=GET%20http://test/");
    assert!(explained.text().contains(&web) && explained.text().contains(&app), "{}", explained.text());
    // Framing is as strict as anywhere.
    let mut peer = connect(&product);
    peer.send("GET / HTTP/1.1\r\n\r\n");
    assert_eq!(peer.response().status(), 400);
}

#[test]
fn an_endpoint_whose_socket_is_not_there_is_answered_502() {
    let origin = Origin::saying("hi");
    let product = Product::start(&text("", "\"unix:DIR/nobody.sock\"", ""));
    assert_eq!(connect(&product).get("/").status(), 502);
    product.flagged("UC");
    let both = format!("\"unix:DIR/nobody.sock\", {}", to(&origin));
    product.reload(&text("", &both, ""));
    for _ in 0..4 {
        assert_eq!(connect(&product).get("/").text(), "hi", "another is tried");
    }
}

#[test]
fn permissions_are_as_configured_and_follow_a_change() {
    let origin = Origin::saying("hi");
    let product = Product::start(&text("socket: { mode: \"0600\" }", &to(&origin), ""));
    let path = product.folder().join("web.sock");
    let mode = || fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    let mut peer = connect(&product);
    assert_eq!(peer.get("/").text(), "hi");
    product.reload(&text("socket: { mode: \"0666\", backlog: 7 }", &to(&origin), ""));
    assert_eq!(mode(), 0o666);
    assert_eq!(peer.get("/").text(), "hi", "the connection is still there");
    assert_eq!(connect(&product).get("/").text(), "hi");
    let said = product.reload(&text("socket: { owner: \"no such user\" }", &to(&origin), ""));
    assert!(said.contains("`no such user` is not in /etc/passwd"), "{said}");
    assert_eq!(connect(&product).get("/").text(), "hi");
}

#[test]
fn a_change_that_is_refused_leaves_permissions_as_they_were_and_one_that_takes_them_out_undoes_them() {
    let origin = Origin::saying("hi");
    let product = Product::start(&text("", &to(&origin), ""));
    let path = product.folder().join("web.sock");
    let mode = || fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
    let made = mode();
    product.reload(&text("socket: { mode: \"0600\" }", &to(&origin), ""));
    assert_eq!(mode(), 0o600);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let more = format!("listeners:\n  zz: {{ bind: \"{}\" }}\n", taken.local_addr().expect("bound"));
    let refused = text("socket: { mode: \"0666\" }", &to(&origin), "").replace("listeners:\n", &more);
    let said = product.reload(&refused);
    assert!(said.contains("listener zz: cannot listen"), "{said}");
    assert_eq!(mode(), 0o600, "all of it is refused");
    product.reload(&text("", &to(&origin), ""));
    assert_eq!(mode(), made, "as the process makes files");
    assert_eq!(connect(&product).get("/").text(), "hi");
}

#[test]
fn one_file_by_two_paths_is_refused() {
    let origin = Origin::saying("hi");
    let product = Product::start(&text("", &to(&origin), ""));
    std::os::unix::fs::symlink(product.folder(), product.folder().join("also")).expect("our folder");
    let more = "listeners:\n  zz: { bind: \"unix:DIR/also/web.sock\" }\n";
    let said = product.reload(&text("", &to(&origin), "").replace("listeners:\n", more));
    assert!(
        said.contains("listener zz: cannot listen on unix:") && said.contains("another listener uses this file"),
        "{said}"
    );
    assert_eq!(connect(&product).get("/").text(), "hi");
    // Both new: neither listens yet when the other comes.
    let both = "listeners:\n  yy: { bind: \"unix:DIR/new.sock\" }\n  zz: { bind: \"unix:DIR/also/new.sock\" }\n";
    let said = product.reload(&text("", &to(&origin), "").replace("listeners:\n", both));
    assert!(said.contains("another listener uses this file"), "{said}");
    assert!(!product.folder().join("new.sock").exists(), "nothing is left behind");
}

#[test]
fn the_file_goes_with_its_listener() {
    let origin = Origin::saying("hi");
    let one = text("", &to(&origin), "");
    let product = Product::start(&one);
    let (first, second) = (product.folder().join("web.sock"), product.folder().join("second.sock"));
    let mut kept = connect(&product);
    assert_eq!(kept.get("/").text(), "hi");
    product.reload(&one.replace("web.sock", "second.sock"));
    assert!(!first.exists() && second.exists());
    assert_eq!(Peer::connect_unix(&second).get("/").text(), "hi");
    kept.wait_closed();
    // Another name for the same place keeps it.
    let mut kept = Peer::connect_unix(&second);
    assert_eq!(kept.get("/").text(), "hi");
    product.reload(&one.replace("web.sock", "second.sock").replace("  web:", "  other:"));
    assert_eq!(kept.get("/").text(), "hi");
    assert!(second.exists());
    let mut product = product;
    product.signal(libc::SIGTERM);
    product.wait_ended();
    assert!(!second.exists());
}

#[test]
fn what_a_dead_process_left_is_taken_over_and_what_lives_is_not() {
    let origin = Origin::saying("hi");
    let folder = folder();
    let path = folder.path().join("web.sock");
    drop(UnixListener::bind(&path).expect("a new path"));
    assert!(fs::metadata(&path).expect("left behind").file_type().is_socket());
    let product = Product::start_in(folder, &text("", &to(&origin), ""), 2);
    assert_eq!(connect(&product).get("/").text(), "hi");
    // A second process with the same path.
    let file = product.folder().join("equipoise.yaml");
    let second = command(&["run", "-c", file.to_str().expect("UTF-8")]);
    assert!(!second.status.success());
    assert!(second.stderr.contains("listener web: cannot listen on unix:"), "{}", second.stderr);
    assert_eq!(connect(&product).get("/").text(), "hi", "the first goes on");
    // What is no socket is nobody's to remove.
    let taken = product.folder().join("taken");
    fs::write(&taken, "precious").expect("our folder");
    let said = product.reload(&text("", &to(&origin), "").replace("web.sock", "taken"));
    assert!(said.contains("the file is not a socket"), "{said}");
    assert_eq!(fs::read_to_string(&taken).expect("still there"), "precious");
    assert_eq!(connect(&product).get("/").text(), "hi");
}

#[test]
fn streams_and_names_without_a_file_work_too() {
    let origin = Origin::echo();
    let name = format!("equipoise-test-{}", std::process::id());
    let product = Product::start(&format!(
        "version: 1\n\
         listeners:\n\
         \x20 near: {{ bind: \"unix:DIR/near.sock\", protocol: tcp, cluster: far, proxy_protocol: {{ from: [127.0.0.1] }} }}\n\
         \x20 far: {{ bind: \"unix:@{name}\", protocol: tcp, cluster: echo }}\n\
         clusters:\n\
         \x20 far: {{ endpoints: [\"unix:@{name}\"] }}\n\
         \x20 echo: {{ endpoints: [\"{}\"] }}\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n",
        origin.address()
    ));
    let mut peer = Peer::connect_unix(product.folder().join("near.sock"));
    peer.send("PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\nhello");
    assert_eq!(peer.take(5), b"hello");
    let much: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
    peer.send(&much[..100_000]);
    assert_eq!(peer.take(100_000), &much[..100_000]);
    peer.half_close();
    assert_eq!(peer.rest(), b"");
    let record = product.record("the near stream", |record| record["listener"] == "near");
    assert_eq!(record["client_ip"], "192.0.2.7");
    assert_eq!(record["endpoint_address"], format!("unix:@{name}").as_str());
    eventually("both have ended", || origin.open() == 0);
}

#[test]
fn tls_is_spoken_over_unix_sockets_on_both_sides() {
    let (origin, authority) = (Origin::saying("sealed"), Authority::new("tests"));
    let folder = folder();
    authority.issue(&["shop.example"]).write(folder.path(), "site");
    authority.write(folder.path(), "authority.pem");
    let product = Product::start_in(
        folder,
        &format!(
            "version: 1\n\
             listeners:\n\
             \x20 outer: {{ bind: \"unix:DIR/outer.sock\" }}\n\
             \x20 inner:\n    bind: \"unix:DIR/inner.sock\"\n    tls: {{ certificates: [{{ chain: site.pem, key: site.key }}] }}\n\
             routes: [{{ listeners: [outer], cluster: inner }}, {{ listeners: [inner], cluster: site }}]\n\
             clusters:\n\
             \x20 inner: {{ endpoints: [\"unix:DIR/inner.sock\"], tls: {{ server_name: shop.example, authorities: authority.pem }} }}\n\
             \x20 site: {{ endpoints: [\"{}\"] }}\n\
             admin: {{ bind: \"127.0.0.1:0\" }}\n",
            origin.address()
        ),
        2,
    );
    assert_eq!(Peer::connect_unix(product.folder().join("outer.sock")).get("/").text(), "sealed");
    let unix = UnixStream::connect(product.folder().join("inner.sock")).expect("it listens");
    let client = Client::trusting(&authority).config();
    let mut peer = tls::over(std::os::fd::OwnedFd::from(unix).into(), "shop.example", &client).expect("a handshake");
    assert_eq!(peer.get("/").text(), "sealed");
}
