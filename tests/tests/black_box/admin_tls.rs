//! TLS at the administrator's listener: whom a certificate lets in, what becomes of everybody else, and how `ctl` speaks it.

use std::io;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use super::admin_api::parsed;
use super::harness::product::{command_in, executable, folder};
use super::harness::tls::{Authority, Client, Identity, connect, shown, try_connect};
use super::harness::{Message, Origin, Peer, Product, Setup, until};

const PLAIN: &str = "admin: { bind: \"127.0.0.1:0\" }";
const SHOWN: &str = "certificates: [{ chain: admin.pem, key: admin.key }]";
const NEEDED: &str = ", client: { mode: required, authorities: clients.pem }";
const IDENTITIES: &str = "identities: [{ name: eye, role: read, common_name: eve }, { name: hand, role: admin, alternative_name: \"spiffe://example.com/hal\" }]";

/// Who vouches for the program, and who for those who ask it.
struct House {
    program: Authority,
    clients: Authority,
    origin: Origin,
    folder: Option<TempDir>,
}

impl House {
    fn new() -> Self {
        let (program, clients, folder) = (Authority::new("the program's"), Authority::new("the clients'"), folder());
        program.issue(&["localhost", "127.0.0.1"]).write(folder.path(), "admin");
        program.write(folder.path(), "program.pem");
        clients.write(folder.path(), "clients.pem");
        Self { program, clients, origin: Origin::saying("fine"), folder: Some(folder) }
    }

    /// The configuration; `tls` goes into `tls`, and `more` beside it.
    fn text(&self, tls: &str, more: &str) -> String {
        let admin = format!("admin: {{ bind: \"127.0.0.1:0\", tls: {{ {SHOWN}{tls} }}, {more} }}");
        let text = Setup::to(&self.origin).text();
        assert!(text.contains(PLAIN));
        text.replace(PLAIN, &admin)
    }

    fn start(&mut self, tls: &str, more: &str) -> Product {
        let text = self.text(tls, more);
        Product::start_in(self.folder.take().expect("started once"), &text, 2)
    }

    fn hal(&self) -> Identity {
        self.clients.issue_client_at("hal", "spiffe://example.com/hal")
    }

    fn eve(&self) -> Identity {
        self.clients.issue_client("eve")
    }

    /// Asks on a connection of its own; fails where nothing is answered.
    fn ask(&self, product: &Product, identity: Option<&Identity>, request: &str) -> io::Result<Message> {
        let client = Client { identity, ..Client::trusting(&self.program) };
        let mut peer = try_connect(product.address("admin"), "localhost", &client.config())?;
        ask_by(&mut peer, request, &["Connection: close"])
    }

    fn status(&self, product: &Product, identity: Option<&Identity>, request: &str) -> u16 {
        self.ask(product, identity, request).unwrap_or_else(|error| panic!("{request}: {error}")).status()
    }
}

fn ask_by(peer: &mut Peer, request: &str, fields: &[&str]) -> io::Result<Message> {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    peer.try_send(format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nX-Equipoise: 1\r\n{fields}Content-Length: 0\r\n\r\n"
    ))?;
    let mut answer = peer.try_head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
    peer.try_body(&mut answer, true)?;
    Ok(answer)
}

#[test]
fn who_shows_a_certificate_may_what_its_role_says_and_the_history_tells_whose_it_was() {
    let mut house = House::new();
    let (eve, hal) = (house.eve(), house.hal());
    let stranger = house.clients.issue_client("mallory");
    let product = house.start(NEEDED, IDENTITIES);
    for path in ["GET /healthz", "GET /", "GET /metrics", "GET /api/status"] {
        assert_eq!(house.status(&product, Some(&eve), path), 200, "{path}");
    }
    let refused = house.ask(&product, Some(&eve), "POST /api/reload").expect("an answer");
    assert_eq!(refused.status(), 403);
    assert_eq!(parsed(&refused)["message"], "the certificate of `eye` may only read");
    assert_eq!(house.status(&product, Some(&hal), "POST /api/reload"), 200);
    let history = parsed(&house.ask(&product, Some(&eve), "GET /api/generations").expect("an answer"));
    assert_eq!(
        (&history["generations"][0]["author"], &history["generations"][0]["origin"]),
        (&Value::from("hand"), &Value::from("reload"))
    );
    // Somebody vouches for him, but nobody knows him.
    let unknown = house.ask(&product, Some(&stranger), "GET /api/status").expect("an answer");
    assert_eq!(unknown.status(), 403);
    assert_eq!(parsed(&unknown)["message"], "the certificate of `CN=mallory` matches no identity");
    assert_eq!(house.status(&product, Some(&stranger), "GET /healthz"), 200);
    assert!(!product.stderr().contains("requires no credentials"), "a certificate is one");
}

#[test]
fn who_shows_none_or_a_foreign_or_an_expired_one_is_not_let_in() {
    let mut house = House::new();
    let hal = house.hal();
    let foreign = Authority::new("the clients'").issue_client_at("hal", "spiffe://example.com/hal");
    let expired = house.clients.issue_expired_client("eve");
    // What shows that a site is itself does not show that a client is.
    let of_a_site = house.clients.issue(&["eve"]);
    let product = house.start(NEEDED, IDENTITIES);
    let all =
        [("none", None), ("foreign", Some(&foreign)), ("expired", Some(&expired)), ("of a site", Some(&of_a_site))];
    for (what, identity) in all {
        let answer = house.ask(&product, identity, "GET /healthz");
        assert!(answer.is_err(), "{what}: {answer:?}");
    }
    product.expect_said(&["a handshake at the admin listener has failed peer=127.0.0.1:", "xpired"]);
    assert_eq!(house.status(&product, Some(&hal), "GET /api/status"), 200);
}

#[test]
fn what_is_no_tls_is_not_answered_and_ends_only_its_own_connection() {
    let mut house = House::new();
    let hal = house.hal();
    let product = house.start(NEEDED, IDENTITIES);
    let admin = product.address("admin");
    for bytes in [
        &b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        b"POST /api/reload HTTP/1.1\r\nHost: localhost\r\nX-Equipoise: 1\r\nContent-Length: 0\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\xff\xff",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\0\0\0\0\0\0",
    ] {
        let mut peer = Peer::sending(admin, bytes);
        let _ = peer.tcp().shutdown(std::net::Shutdown::Write);
        // It may be reset instead, which is no answer either.
        let said = peer.try_rest().unwrap_or_default();
        assert!(!String::from_utf8_lossy(&said).contains("HTTP"), "{said:?}");
    }
    let history = parsed(&house.ask(&product, Some(&hal), "GET /api/generations").expect("an answer"));
    assert_eq!(history["generations"].as_array().expect("a list").len(), 1, "nothing was carried out");
}

#[test]
fn a_handshake_that_never_ends_is_bounded_in_time() {
    let mut house = House::new();
    let hal = house.hal();
    let product = house.start(&format!("{NEEDED}, handshake_timeout: 4s"), IDENTITIES);
    let admin = product.address("admin");
    let mut silent = Peer::connect(admin);
    let mut half = Peer::sending(admin, b"\x16\x03\x01\x02\x00\x01");
    silent.wait_closed();
    half.wait_closed();
    // Who is through has the time that requests have.
    let client = Client { identity: Some(&hal), ..Client::trusting(&house.program) };
    let mut slow = connect(admin, "localhost", &client.config());
    slow.assert_silent(std::time::Duration::from_secs(6));
    assert_eq!(ask_by(&mut slow, "GET /api/status", &[]).expect("an answer").status(), 200);
}

#[test]
fn handshakes_that_never_end_take_no_place_from_who_has_shown_who_he_is() {
    let mut house = House::new();
    let hal = house.hal();
    let product = house.start(&format!("{NEEDED}, handshake_timeout: 60s"), IDENTITIES);
    let admin = product.address("admin");
    let client = Client { identity: Some(&hal), ..Client::trusting(&house.program) };
    let mut kept = connect(admin, "localhost", &client.config());
    assert_eq!(ask_by(&mut kept, "GET /healthz", &[]).expect("an answer").status(), 200);
    let mut silent: Vec<Peer> = (0..80).map(|_| Peer::sending(admin, b"\x16\x03\x01")).collect();
    // There are places for 64: the first of these had to go, long before their time was over.
    silent[0].wait_closed();
    assert_eq!(ask_by(&mut kept, "GET /healthz", &[]).expect("it is the oldest of all").status(), 200);
    assert_eq!(house.status(&product, Some(&hal), "GET /api/status"), 200);
}

#[test]
fn an_optional_certificate_leaves_health_to_everybody_and_the_api_to_tokens_too() {
    let mut house = House::new();
    let (eve, stranger) = (house.eve(), house.clients.issue_client("mallory"));
    let foreign = Authority::new("another").issue_client("eve");
    let tokens = "tokens: [{ name: deploy, role: admin, token: 0123456789abcdef }]";
    let product =
        house.start(", client: { mode: optional, authorities: clients.pem }", &format!("{IDENTITIES}, {tokens}"));
    assert_eq!(house.status(&product, None, "GET /healthz"), 200);
    for nobody in [None, Some(&stranger)] {
        let refused = house.ask(&product, nobody, "GET /api/status").expect("an answer");
        assert_eq!((refused.status(), refused.field("www-authenticate")), (401, Some("Bearer realm=\"equipoise\"")));
    }
    assert_eq!(house.status(&product, Some(&eve), "GET /api/status"), 200);
    assert!(house.ask(&product, Some(&foreign), "GET /healthz").is_err(), "what is shown is verified");
    let client = Client::trusting(&house.program).config();
    let by_token = |identity: Option<&Identity>, token: &str| {
        let client = Client { identity, ..Client::trusting(&house.program) };
        let mut peer = connect(product.address("admin"), "localhost", &client.config());
        ask_by(&mut peer, "POST /api/reload", &[&format!("Authorization: Bearer {token}")]).expect("an answer").status()
    };
    assert_eq!(by_token(None, "0123456789abcdef"), 200);
    assert_eq!(by_token(Some(&eve), "0123456789abcdef"), 200, "the token is good for more than the certificate");
    assert_eq!(by_token(Some(&eve), "fedcba9876543210"), 401, "a wrong one is not made good by a certificate");
    let mut peer = connect(product.address("admin"), "localhost", &client);
    assert_eq!(ask_by(&mut peer, "GET /api/config?as=written", &[]).expect("an answer").status(), 401);
}

#[test]
fn renewed_files_are_taken_up_and_another_trust_ends_what_was_proven_by_the_old() {
    let mut house = House::new();
    let hal = house.hal();
    let product = house.start(NEEDED, IDENTITIES);
    let admin = product.address("admin");
    let client = Client { identity: Some(&hal), ..Client::trusting(&house.program) };
    let mut kept = connect(admin, "localhost", &client.config());
    assert_eq!(ask_by(&mut kept, "GET /api/status", &[]).expect("an answer").status(), 200);
    let renewed = house.program.issue(&["localhost", "127.0.0.1"]);
    renewed.write(product.folder(), "admin");
    until("the new certificate is shown", || {
        let peer = connect(admin, "localhost", &client.config());
        // The client is patient meanwhile, and not silent for longer than it may be.
        let answer = ask_by(&mut kept, "GET /api/status", &[]).expect("its connection lives on");
        assert_eq!(answer.status(), 200);
        (&shown(&peer) == renewed.certificate()).then_some(())
    });
    let others = Authority::new("others");
    let newcomer = others.issue_client_at("hal", "spiffe://example.com/hal");
    others.write(product.folder(), "fresh.pem");
    std::fs::rename(product.folder().join("fresh.pem"), product.folder().join("clients.pem")).expect("our folder");
    let last = until("the connection that was there is told to begin anew", || {
        let answer = ask_by(&mut kept, "GET /api/status", &[]).expect("an answer");
        (answer.status() != 200).then_some(answer)
    });
    assert_eq!((last.status(), last.field("connection")), (503, Some("close")));
    assert_eq!(parsed(&last)["message"], "the access rules have changed since this connection began");
    assert!(house.ask(&product, Some(&hal), "GET /healthz").is_err(), "nobody vouches for it any more");
    assert_eq!(house.status(&product, Some(&newcomer), "GET /api/status"), 200);
}

#[test]
fn files_that_do_not_fit_change_nothing_and_check_tells_the_line() {
    let mut house = House::new();
    let hal = house.hal();
    let text = house.text(NEEDED, IDENTITIES);
    let product = house.start(NEEDED, IDENTITIES);
    let other = house.program.issue(&["localhost"]);
    other.write(product.folder(), "other");
    std::fs::copy(product.folder().join("other.key"), product.folder().join("admin.key")).expect("our folder");
    let said = product.reload(&text);
    assert!(said.contains("admin.key does not belong to the certificate"), "{said}");
    assert_eq!(house.status(&product, Some(&hal), "GET /api/status"), 200);
    let checked = command_in(product.folder(), &["check", "-c", "equipoise.yaml"]);
    assert_eq!(checked.status.code(), Some(1), "{}", checked.stderr);
    let line = text.lines().position(|line| line.starts_with("admin:")).expect("it is there") + 1;
    assert!(checked.stderr.contains(&format!("equipoise.yaml:{line}:")), "{}", checked.stderr);
    other.write(product.folder(), "admin");
    let open = text.replace("bind: \"127.0.0.1:0\", tls", "bind: \"0.0.0.0:0\", tls");
    std::fs::write(product.folder().join("open.yaml"), open.replace("DIR", "/tmp")).expect("our folder");
    let checked = command_in(product.folder(), &["check", "-c", "open.yaml"]);
    assert!(checked.status.success(), "who shows a certificate may come from outside: {}", checked.stderr);
}

#[test]
fn who_is_connected_when_tls_begins_has_to_begin_anew() {
    let mut house = House::new();
    let hal = house.hal();
    let with = house.text(NEEDED, IDENTITIES);
    let plain = Setup::to(&house.origin).text();
    let product = Product::start_in(house.folder.take().expect("started once"), &plain, 2);
    let admin = product.address("admin");
    let mut kept = Peer::connect(admin);
    assert_eq!(ask_by(&mut kept, "GET /api/status", &[]).expect("an answer").status(), 200);
    assert!(product.reload(&with).contains("configuration is live"));
    assert_eq!(ask_by(&mut kept, "GET /api/status", &[]).expect("an answer").status(), 503);
    assert!(ask_by(&mut Peer::connect(admin), "GET /healthz", &[]).is_err(), "it is not spoken in the clear any more");
    let client = Client { identity: Some(&hal), ..Client::trusting(&house.program) };
    let mut kept = connect(admin, "localhost", &client.config());
    assert_eq!(ask_by(&mut kept, "GET /api/status", &[]).expect("an answer").status(), 200);
    assert!(product.reload(&plain).contains("configuration is live"));
    assert_eq!(ask_by(&mut kept, "GET /api/status", &[]).expect("an answer").status(), 503);
    assert_eq!(product.admin("/api/status").status(), 200);
}

#[test]
fn ctl_speaks_tls_with_files_that_flags_or_variables_name() {
    let mut house = House::new();
    house.hal().write(house.folder.as_ref().expect("it is there").path(), "hal");
    house.eve().write(house.folder.as_ref().expect("it is there").path(), "eve");
    let product = house.start(NEEDED, IDENTITIES);
    let (address, place) = (format!("https://{}", product.address("admin")), product.folder());
    let ctl = |files: &[&str], call: &str| command_in(place, &[&["ctl", "--admin", &address], files, &[call]].concat());
    let trusting = ["--ca-file", "program.pem"];
    let hal = ["--ca-file", "program.pem", "--cert-file", "hal.pem", "--key-file", "hal.key"];
    let eve = ["--ca-file", "program.pem", "--cert-file", "eve.pem", "--key-file", "eve.key"];
    for (files, call) in [(&hal, "status"), (&hal, "reload"), (&eve, "status")] {
        let told = ctl(files, call);
        assert!(told.status.success(), "{call}: {}{}", told.stdout, told.stderr);
    }
    let refused = |files: &[&str], call: &str, wanted: &str| {
        let told = ctl(files, call);
        assert_eq!((told.status.code(), told.stderr.contains(wanted)), (Some(1), true), "{}", told.stderr);
    };
    refused(&eve, "reload", "the certificate of `eye` may only read");
    refused(&trusting, "reload", "present a certificate: --cert-file FILE --key-file FILE");
    refused(&[], "status", "help: pass the CA that issued its certificate: --ca-file FILE");
    refused(&["--ca-file", "clients.pem"], "status", "help: clients.pem has not issued it");
    refused(&hal[..4], "status", "a certificate needs its key");
    refused(&["--ca-file", "nowhere.pem"], "status", "cannot read nowhere.pem");
    let mixed = ["--ca-file", "program.pem", "--cert-file", "hal.pem", "--key-file", "eve.key"];
    let told = ctl(&mixed, "status");
    assert!(told.stderr.contains("hal.pem: ") && !told.stderr.contains("Is the program running"), "{}", told.stderr);
    let plain = command_in(place, &["ctl", "--admin", &product.address("admin").to_string(), "status"]);
    assert!(plain.stderr.contains(&format!("If its `admin` has `tls`, it is {address}")), "{}", plain.stderr);
    let told = Command::new(executable())
        .args(["explain", "--admin", &address, "http://anything/"])
        .current_dir(place)
        .env("EQUIPOISE_CA_FILE", "program.pem")
        .env("EQUIPOISE_CERT_FILE", "eve.pem")
        .env("EQUIPOISE_KEY_FILE", "eve.key")
        .output()
        .expect("the product starts");
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
}
