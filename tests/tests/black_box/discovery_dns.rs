//! Endpoints from the domain name system, with a real name server (NSD) behind it.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::harness::net::free;
use super::harness::origin::ok;
use super::harness::poll::{SECOND, half_within};
use super::harness::{Origin, Peer, Product, eventually, sys, until};
use super::reload::Load;

/// A name server for the zone `test`.
pub(super) struct NameServer {
    folder: TempDir,
    pub(super) address: SocketAddr,
    child: Option<Child>,
}

impl NameServer {
    /// Starts one with these records, each of which lives for no time at all unless it says so.
    pub(super) fn start(records: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let mut it = Self { folder, address: free(), child: None };
        it.write(records);
        it.run("test");
        it
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub(super) fn write(&self, records: &str) {
        let start = "$ORIGIN test.\n$TTL 0\n@ IN SOA ns root 1 60 60 60 0\n@ IN NS ns\nns IN A 127.0.0.1\n";
        // Put in its place at once: NSD may read it at any time.
        std::fs::write(self.path("zone.new"), format!("{start}{records}\n")).expect("a zone");
        std::fs::rename(self.path("zone.new"), self.path("zone")).expect("a zone");
    }

    /// Runs it for the zone of this name, and waits until it answers.
    pub(super) fn run(&mut self, zone: &str) {
        let dir = self.folder.path().display();
        let (ip, port) = (self.address.ip(), self.address.port());
        let config = format!(
            "server:\n  ip-address: {ip}@{port}\n  username: \"\"\n  chroot: \"\"\n  zonesdir: \"{dir}\"\n  database: \"\"\n  \
             zonelistfile: \"{dir}/list\"\n  pidfile: \"\"\n  xfrdfile: \"{dir}/xfrd\"\n  xfrd-reload-timeout: 0\n  \
             logfile: \"{dir}/log\"\n  server-count: 1\nremote-control:\n  control-enable: no\n\
             zone:\n  name: {zone}\n  zonefile: zone\n"
        );
        std::fs::write(self.path("nsd.conf"), config).expect("a configuration");
        let program = ["/usr/sbin/nsd", "/usr/bin/nsd"].into_iter().find(|path| Path::new(path).exists());
        let program = program.expect("the Debian package nsd, which ./test installs");
        let mut command = Command::new(program);
        command.args(["-d", "-c", &self.path("nsd.conf")]).stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(command.stderr(Stdio::null()).spawn().expect("NSD starts"));
        until("NSD answers by TCP", || Peer::try_connect(self.address));
    }

    /// Other records, from now on.
    pub(super) fn change(&self, records: &str) {
        self.write(records);
        sys::signal(self.child.as_ref().expect("it runs").id(), libc::SIGHUP);
    }

    /// Whether it says at this moment that `web.test` is at 127.0.0.`last`.
    fn tells(&self, last: u8) -> bool {
        let question = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x03web\x04test\0\0\x01\0\x01";
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time-out");
        let mut answer = [0; 512];
        let got = socket.send_to(question, self.address).and_then(|_| socket.recv(&mut answer));
        // Behind the question: the name again in two bytes, type, class, time to live and length.
        let at = question.len() + 12;
        got.is_ok_and(|length| length >= at + 4) && answer[at..at + 4] == [127, 0, 0, last]
    }

    pub(super) fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            sys::signal(child.id(), libc::SIGTERM);
            child.wait().expect("a child");
        }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Origins at addresses of this machine that have the same port, each of which says its last number.
pub(super) fn fleet(last: &[u8]) -> (Vec<Origin>, u16) {
    static ONE_BY_ONE: Mutex<()> = Mutex::new(());
    let _one = ONE_BY_ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let port = free().port();
    let origin = |last: &u8| {
        let body = last.to_string();
        Origin::start_at(SocketAddr::from(([127, 0, 0, *last], port)), move |mut visit| {
            visit.answer_all(|_| Some(ok(&body)));
        })
    };
    (last.iter().map(origin).collect(), port)
}

fn text(names: &NameServer, key: &str) -> String {
    format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nroutes: [{{ cluster: site }}]\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n\
         providers: {{ names: {{ dns: {{ resolvers: [\"{}\"], ttl_min: 50ms, timeout: 5s }} }} }}\n\
         clusters: {{ site: {{ endpoints: {{ from: names, key: \"{key}\" }} }} }}\n",
        names.address
    )
}

/// How it is with the only provider.
fn provider(product: &Product) -> Value {
    product.api("/api/providers")["providers"][0].clone()
}

fn endpoints(product: &Product) -> Vec<String> {
    let cluster = product.api("/api/clusters/site/endpoints");
    let list = cluster["endpoints"].as_array().expect("a list");
    list.iter().map(|one| one["name"].as_str().expect("a name").to_owned()).collect()
}

fn says(product: &Product, body: &str) {
    eventually(&format!("the answer is {body}"), || {
        let answer = product.get("/");
        assert_eq!(answer.status(), 200, "{answer:?}");
        answer.text() == body
    });
}

#[test]
fn endpoints_follow_a_name_and_no_request_fails() {
    let (_origins, port) = fleet(&[2, 3, 4]);
    let names = NameServer::start("web A 127.0.0.2\nweb AAAA ::2");
    let product =
        Product::start(&text(&names, &format!("web.test:{port}")).replace("ttl_min", "families: [ipv4], ttl_min"));
    assert_eq!(product.get("/").text(), "2", "known before the first request");
    let load = Load::on(&product, 4);
    for round in 0..3 {
        for last in ["3", "4", "2"] {
            let begun = Instant::now();
            names.change(&format!("web A 127.0.0.{last}"));
            says(&product, last);
            println!("round {round}: 127.0.0.{last} after {:?}", begun.elapsed());
        }
    }
    names.change("web CNAME other\nother CNAME another\nanother A 127.0.0.4\nanother A 127.0.0.3");
    eventually("both are there", || endpoints(&product) == [format!("127.0.0.3:{port}"), format!("127.0.0.4:{port}")]);
    assert!(load.end() > 0);
    assert_eq!(provider(&product)["state"], "up");
}

#[test]
fn another_address_is_felt_within_a_second_of_when_the_name_server_tells_it() {
    let (_origins, port) = fleet(&[2, 3]);
    let names = NameServer::start("web A 127.0.0.2");
    let product = Product::start(&text(&names, &format!("web.test:{port}")));
    half_within(SECOND, "a change of a name", |number| {
        let last = [3, 2][number % 2];
        names.change(&format!("web A 127.0.0.{last}"));
        let mut told_since = Instant::now();
        until("the name server tells it", || {
            let asked = Instant::now();
            let is_told = names.tells(last);
            if !is_told {
                told_since = asked;
            }
            is_told.then_some(())
        });
        says(&product, &last.to_string());
        told_since.elapsed()
    });
}

#[test]
fn what_is_at_an_endpoint_that_leaves_comes_to_its_end() {
    let (_origins, port) = fleet(&[3]);
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let slow = Origin::start_at(SocketAddr::from(([127, 0, 0, 2], port)), move |mut visit| {
        visit.answer_all(|_| gone.lock().ok()?.recv().ok().map(|()| ok("late")));
    });
    let names = NameServer::start("web A 127.0.0.2");
    let product = Product::start(&text(&names, &format!("web.test:{port}")));
    let mut waiting = product.connect();
    waiting.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is there", || slow.requests().len() == 1);
    names.change("web A 127.0.0.3");
    eventually("the other is there", || endpoints(&product) == [format!("127.0.0.3:{port}")]);
    assert_eq!(product.get("/").text(), "3");
    go.send(()).expect("it waits");
    assert_eq!(waiting.response().text(), "late");
}

#[test]
fn a_name_server_that_is_away_takes_no_endpoint_and_is_followed_when_it_is_back() {
    let (_origins, port) = fleet(&[2, 3]);
    let mut names = NameServer::start("web A 127.0.0.2");
    let product = Product::start(&text(&names, &format!("web.test:{port}")));
    let load = Load::on(&product, 2);
    names.stop();
    eventually("it is told", || provider(&product)["state"] == "away");
    let reason = provider(&product)["reason"].as_str().expect("a reason").to_owned();
    assert!(reason.starts_with("web.test:") && reason.contains(&names.address.to_string()), "{reason}");
    says(&product, "2");
    // One that does not know the zone refuses, and knows nothing by that.
    names.run("elsewhere");
    eventually("it refuses", || provider(&product)["reason"].as_str().is_some_and(|why| why.contains("REFUSED")));
    says(&product, "2");
    names.stop();
    names.write("web A 127.0.0.3");
    names.run("test");
    says(&product, "3");
    eventually("it is up", || provider(&product)["state"] == "up");
    assert!(load.end() > 0);
}

#[test]
fn a_provider_that_begins_anew_keeps_what_was_known_of_names_that_fail() {
    let (_origins, port) = fleet(&[2, 3]);
    let records =
        |web: &str, host: &str| format!("web A 127.0.0.{web}\n_http._tcp SRV 10 3 {port} {host}\none A 127.0.0.3");
    let names = NameServer::start(&records("2", "one"));
    let text = text(&names, &format!("web.test:{port}"))
        .replace("routes: [", "routes: [{ match: { path: { exact: /more } }, cluster: more }, ")
        .replace("clusters: {", "clusters: { more: { endpoints: { from: names, key: \"_http._tcp.test\" } },");
    let product = Product::start(&text);
    assert_eq!((product.get("/").text(), product.get("/more").text()), ("2".to_owned(), "3".to_owned()));
    // It is not the name server's to say where that is.
    names.change(&records("2", "one.elsewhere."));
    eventually("it fails", || provider(&product)["reason"].as_str().is_some_and(|why| why.contains("_http._tcp")));
    assert_eq!(product.get("/more").text(), "3");
    let said = product.reload(&text.replace("timeout: 5s", "timeout: 6s"));
    assert!(said.contains("configuration is live"), "{said}");
    names.change(&records("3", "one.elsewhere."));
    says(&product, "3");
    eventually("it fails", || provider(&product)["reason"].as_str().is_some_and(|why| why.contains("_http._tcp")));
    assert_eq!(product.get("/more").text(), "3", "it has asked anew, in vain");
}

#[test]
fn a_name_that_is_no_more_has_no_endpoints_until_it_is_there_again() {
    let (_origins, port) = fleet(&[2]);
    let names = NameServer::start("web A 127.0.0.2");
    let product = Product::start(&text(&names, &format!("web.test:{port}")));
    for (records, why) in [("", "there is no such name"), ("web TXT only", "the name has no such records")] {
        names.change(records);
        eventually("it has none", || product.get("/").status() == 503);
        assert_eq!(provider(&product)["state"], "up", "that is an answer");
        let told = format!("web.test:{port}: {why}");
        eventually("that is told", || provider(&product)["left_out"] == serde_json::json!([told]));
        product.expect_said(&["part of a provider's state is ignored", &told]);
        names.change("web A 127.0.0.2");
        eventually("it has one", || product.get("/").status() == 200);
        eventually("nothing is told", || provider(&product)["left_out"] == serde_json::json!([]));
    }
}

#[test]
fn srv_records_say_ports_priorities_and_weights() {
    let (_origins, port) = fleet(&[2, 3]);
    let other = Origin::saying("other");
    let srv = |first: &str| {
        format!(
            "_http._tcp {first}\n_http._tcp SRV 20 5 {} one\none A 127.0.0.1\ntwo A 127.0.0.2\nthree A 127.0.0.3",
            other.address().port()
        )
    };
    let names = NameServer::start(&srv(&format!("SRV 10 3 {port} two")));
    let product = Product::start(&text(&names, "_http._tcp.test"));
    says(&product, "2");
    let cluster = product.api("/api/clusters/site/endpoints");
    let shown = |index: usize| {
        let one = &cluster["endpoints"][index];
        (one["name"].as_str().expect("a name").to_owned(), one["weight"].as_u64())
    };
    assert_eq!(shown(0), (format!("127.0.0.2:{port}"), Some(3)), "{cluster}");
    assert_eq!(shown(1), (other.address().to_string(), Some(5)), "{cluster}");
    names.change(&srv(&format!("SRV 10 3 {port} three")));
    says(&product, "3");
    names.change(&srv("TXT none"));
    says(&product, "other");
}

#[test]
fn answers_that_are_too_large_for_a_datagram_are_asked_for_by_tcp() {
    let records: Vec<String> = (0..300).map(|one| format!("web A 127.1.{}.{}", one / 100, one % 100 + 1)).collect();
    let names = NameServer::start(&records.join("\n"));
    let product = Product::start(&text(&names, "web.test:80"));
    assert_eq!(provider(&product)["endpoints"], 300);
}

#[test]
fn the_system_knows_names_without_being_asked_who_does() {
    let origin = Origin::saying("here");
    let names = NameServer::start("");
    let text = text(&names, &format!("localhost:{}", origin.address().port()));
    let own = text.replace(&format!("resolvers: [\"{}\"]", names.address), "families: [ipv4]");
    let product = Product::start(&own);
    assert_eq!(product.get("/").text(), "here", "as the hosts file says");
    assert_eq!(endpoints(&product), [origin.address().to_string()]);
}
