//! Every version towards clients with every version towards endpoints, in every case where they have to be translated:
//! what is right for one pair is right for all.
//!
//! Bodies are a few MiB; with `EQUIPOISE_LONG` set to anything they are 100 MB. `EQUIPOISE_PAIRS=h3-h3,h1-h3` runs those pairs alone,
//! the version towards clients first. Start reading at [`Stage`], then at the
//! paths of [`origins`].

mod clients;
mod framed;
mod origins;
mod pattern;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use super::harness::poll::STEP;
use super::harness::product::folder;
use super::harness::tls::{self, Authority};
use super::harness::{Product, eventually, http3, sys};
use clients::{Ask, Framing, Head, Http1, Http2, Http3, NAME, Talk, field, send_pattern};
use origins::{Board, Endpoint};
use pattern::{Check, PIECE};

const MIB: u64 = 1024 * 1024;
/// What one stalled exchange may hold on its way: the kernel's buffers on both sides and the product's own.
const IN_TRANSIT_MAX: u64 = 24 * MIB;
/// What one stalled exchange may cost the product.
const MEMORY_MAX: u64 = 8 * MIB;
/// So long without a byte is a stall. One that is taken for a stall too early only makes a test ask for less.
const STALLED: Duration = Duration::from_millis(150);

/// Names with their values, the names in small letters.
type Fields = Vec<(String, String)>;

/// What is spoken on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// HTTP/1.1 in clear.
    H1,
    /// HTTP/1.1 in TLS.
    H1s,
    /// HTTP/2 in TLS.
    H2,
    /// HTTP/2 in clear.
    H2c,
    /// HTTP/3.
    H3,
}

impl Version {
    const DOWN: [Self; 5] = [Self::H1, Self::H1s, Self::H2, Self::H2c, Self::H3];
    const UP: [Self; 5] = [Self::H1, Self::H1s, Self::H2, Self::H2c, Self::H3];

    fn name(self) -> &'static str {
        match self {
            Self::H1 => "h1",
            Self::H1s => "h1s",
            Self::H2 => "h2",
            Self::H2c => "h2c",
            Self::H3 => "h3",
        }
    }

    /// What its cluster says of it.
    fn cluster(self) -> &'static str {
        match self {
            Self::H1 => "",
            Self::H1s => ", tls: { authorities: authority.pem }",
            Self::H2 => ", http_versions: [h2], tls: { authorities: authority.pem }",
            Self::H2c => ", http_versions: [h2]",
            Self::H3 => ", http_versions: [h3], tls: { authorities: authority.pem }",
        }
    }
}

/// Certificates for both sides.
struct Tls {
    authority: Authority,
}

impl Tls {
    fn endpoint(&self, protocols: &[&str]) -> Arc<rustls::ServerConfig> {
        let mut config = (*tls::origin(&self.authority.issue(&["127.0.0.1"]), None)).clone();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    fn client(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        tls::Client { protocols, ..tls::Client::trusting(&self.authority) }.config()
    }
}

/// A product with a listener and a cluster for every version, and an endpoint for each cluster.
struct Stage {
    product: Product,
    tls: Tls,
    endpoints: Vec<(Version, Endpoint)>,
}

/// One version towards the client and one towards the endpoint.
struct Pair<'a> {
    stage: &'a Stage,
    down: Version,
    up: Version,
    endpoint: &'a Endpoint,
}

impl Stage {
    fn set() -> Self {
        let (tls, folder) = (Tls { authority: Authority::new("the matrix") }, folder());
        tls.authority.write(folder.path(), "authority.pem");
        tls.authority.issue(&[NAME]).write(folder.path(), "site");
        let endpoints: Vec<(Version, Endpoint)> = Version::UP
            .iter()
            .map(|version| {
                let endpoint = match version {
                    Version::H1 => Endpoint::http1(None),
                    Version::H1s => Endpoint::http1(Some(&tls)),
                    Version::H2 => Endpoint::http2(Some(&tls)),
                    Version::H2c => Endpoint::http2(None),
                    Version::H3 => Endpoint::http3(&tls),
                };
                (*version, endpoint)
            })
            .collect();
        let product = Product::start_in(folder, &configuration(&endpoints), 2);
        Self { product, tls, endpoints }
    }

    /// Runs a case for every pair; all that fail are named.
    fn each_pair(&self, case: impl Fn(&Pair<'_>)) {
        let mut failed = Vec::new();
        for down in Version::DOWN {
            for (up, endpoint) in &self.endpoints {
                if !is_wanted(down, *up) {
                    continue;
                }
                let pair = Pair { stage: self, down, up: *up, endpoint };
                endpoint.board.clear();
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| case(&pair))) {
                    failed.push(format!("{} to {}: {}", down.name(), up.name(), message(&*panic)));
                    // What is left of it must not disturb the next one.
                    endpoint.board.open_gate();
                    let _ =
                        catch_unwind(AssertUnwindSafe(|| eventually("the endpoint is free", || endpoint.busy() == 0)));
                }
            }
        }
        assert!(failed.is_empty(), "{} pairs failed:\n{}", failed.len(), failed.join("\n"));
    }
}

fn is_wanted(down: Version, up: Version) -> bool {
    let pair = format!("{}-{}", down.name(), up.name());
    std::env::var("EQUIPOISE_PAIRS").map_or(true, |pairs| pairs.split(',').any(|wanted| wanted == pair))
}

fn configuration(endpoints: &[(Version, Endpoint)]) -> String {
    let mut text = String::from(
        "version: 1\nlisteners:\n  clear: { bind: \"127.0.0.1:0\" }\n  \
         sealed: { bind: \"127.0.0.1:0\", http_versions: [h1, h2, h3], \
         tls: { certificates: [{ chain: site.pem, key: site.key }] } }\nroutes:\n",
    );
    for (version, _) in endpoints {
        text.push_str(&format!("  - {{ match: {{ path: {{ prefix: /{0} }} }}, cluster: {0} }}\n", version.name()));
    }
    text.push_str("clusters:\n");
    for (version, endpoint) in endpoints {
        let (name, more) = (version.name(), version.cluster());
        text.push_str(&format!("  {name}: {{ endpoints: [\"{}\"]{more} }}\n", endpoint.address()));
    }
    text.push_str("admin: { bind: \"127.0.0.1:0\" }\n");
    text
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

impl Pair<'_> {
    /// A new connection of a client.
    fn connect(&self) -> Box<dyn Talk> {
        let tls = &self.stage.tls;
        let (clear, sealed) = (self.stage.product.address("clear"), self.stage.product.address("sealed"));
        match self.down {
            Version::H1 => Box::new(Http1::connect(clear)),
            Version::H1s => Box::new(Http1::connect_tls(sealed, &tls.client(&["http/1.1"]))),
            Version::H2 => Box::new(Http2::connect_tls(sealed, &tls.client(&["h2"]))),
            Version::H2c => Box::new(Http2::connect(clear)),
            Version::H3 => Box::new(Http3::connect(sealed, &http3::trusting(&tls.authority, None))),
        }
    }

    fn ask(&self, method: &'static str, what: &str, body: Framing) -> Ask {
        Ask { method, path: format!("/{}/{what}", self.up.name()), fields: Vec::new(), body }
    }

    fn board(&self) -> &Board {
        &self.endpoint.board
    }

    /// Waits until the endpoint is at this many requests.
    fn wait_busy(&self, talk: &mut dyn Talk, wanted: usize) {
        eventually("the endpoint is at as many requests as it should be", || {
            talk.tick();
            self.endpoint.busy() == wanted
        });
    }
}

/// A body that is expected to come to its end.
fn whole(talk: &mut dyn Talk) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(bytes) = talk.piece().expect("a body that comes whole") {
        whole.extend(bytes);
    }
    whole
}

/// Asks for something small, and for nothing to be wrong with it.
fn echo(talk: &mut dyn Talk, pair: &Pair<'_>, body: &[u8], framing: Framing) {
    talk.begin(&pair.ask("POST", "echo", framing));
    assert!(talk.send(body), "the body is wanted");
    talk.end(&Vec::new());
    let head = talk.head().expect("an answer");
    assert_eq!((head.status, whole(talk)), (200, body.to_vec()));
}

fn large() -> u64 {
    match std::env::var_os("EQUIPOISE_LONG") {
        Some(_) => 100_000_000,
        None => 8_000_000,
    }
}

#[test]
fn small_exchanges_follow_each_other_between_all_versions() {
    let stage = Stage::set();
    stage.each_pair(|pair| {
        let mut talk = pair.connect();
        let talk = &mut *talk;
        for _ in 0..2 {
            echo(talk, pair, b"small", Framing::Length(5));
            echo(talk, pair, b"small", Framing::Pieces);
            talk.begin(&pair.ask("HEAD", "echo", Framing::None));
            let head = talk.head().expect("an answer");
            assert_eq!((head.status, head.field("content-length")), (200, Some("77")));
            assert_eq!(whole(talk), b"");
            talk.begin(&pair.ask("GET", "empty", Framing::None));
            assert_eq!(talk.head().expect("an answer").status, 204);
            assert_eq!(whole(talk), b"");
            talk.begin(&pair.ask("GET", "down/0", Framing::None));
            let head = talk.head().expect("an answer");
            assert_eq!((head.status, head.field("content-length")), (200, Some("0")));
            assert_eq!(whole(talk), b"");
        }
    });
}

#[test]
fn large_bodies_come_down_whole_between_all_versions() {
    let stage = Stage::set();
    stage.each_pair(|pair| {
        let mut talk = pair.connect();
        for (what, says) in [("down", true), ("pieces", false)] {
            talk.begin(&pair.ask("GET", &format!("{what}/{}", large()), Framing::None));
            let head = talk.head().expect("an answer");
            let length = says.then(|| large().to_string());
            assert_eq!((head.status, head.field("content-length")), (200, length.as_deref()));
            let mut check = Check::default();
            while let Some(bytes) = talk.piece().expect("a body that comes whole") {
                check.take(&bytes);
            }
            assert_eq!(check, Check::right(large()), "{what}");
        }
    });
    expect_little_memory(&stage);
}

#[test]
fn large_bodies_go_up_whole_between_all_versions() {
    let stage = Stage::set();
    stage.each_pair(|pair| {
        let mut talk = pair.connect();
        for framing in [Framing::Length(large()), Framing::Pieces] {
            talk.begin(&pair.ask("PUT", "up", framing));
            assert!(send_pattern(&mut *talk, 0..large()), "the body is wanted");
            talk.end(&Vec::new());
            assert_eq!(talk.head().expect("an answer").status, 200);
            let verdict = String::from_utf8_lossy(&whole(&mut *talk)).into_owned();
            assert_eq!(verdict, Check::right(large()).verdict(), "{framing:?}");
        }
    });
    expect_little_memory(&stage);
}

/// However large the bodies were, the product never held more than its pools may hold.
fn expect_little_memory(stage: &Stage) {
    let most = sys::resident_bytes_max(stage.product.pid());
    assert!(most < 80 * MIB, "it held {most} bytes");
}

#[test]
fn trailers_cross_in_both_directions_between_all_versions() {
    let stage = Stage::set();
    let trailers = vec![("x-sum".to_owned(), "1234".to_owned()), ("x-note".to_owned(), "a, b".to_owned())];
    stage.each_pair(|pair| {
        let mut talk = pair.connect();
        for _ in 0..2 {
            let mut ask = pair.ask("POST", "echo", Framing::Pieces);
            ask.fields.push(("te", "trailers".to_owned()));
            if matches!(pair.down, Version::H1 | Version::H1s) {
                ask.fields.push(("connection", "te".to_owned()));
            }
            talk.begin(&ask);
            assert!(talk.send(b"body"));
            talk.end(&trailers);
            assert_eq!(talk.head().expect("an answer").status, 200);
            assert_eq!(whole(&mut *talk), b"body");
            assert_eq!(talk.trailers(), trailers);
        }
    });
}

#[test]
fn a_body_that_waits_to_be_asked_for_is_asked_for_between_all_versions() {
    let stage = Stage::set();
    stage.each_pair(|pair| {
        let mut talk = pair.connect();
        let mut ask = pair.ask("PUT", "echo", Framing::Length(4));
        ask.fields.push(("expect", "100-continue".to_owned()));
        talk.begin(&ask);
        assert_eq!(talk.interim(), Some(100));
        assert!(talk.send(b"body"));
        talk.end(&Vec::new());
        let head = talk.head().expect("an answer");
        assert_eq!((head.status, head.interim.len()), (200, 1));
        assert_eq!(whole(&mut *talk), b"body");
        // Refused without having been sent.
        let mut ask = pair.ask("PUT", "refused", Framing::Length(4));
        ask.fields.push(("expect", "100-continue".to_owned()));
        talk.begin(&ask);
        assert_eq!(talk.interim(), None);
        assert_eq!(talk.head().expect("an answer").status, 417);
        assert_eq!(whole(&mut *talk), b"no");
    });
}

#[test]
fn early_hints_come_before_the_answer_between_all_versions() {
    let stage = Stage::set();
    stage.each_pair(|pair| {
        let mut talk = pair.connect();
        for _ in 0..2 {
            talk.begin(&pair.ask("GET", "hints", Framing::None));
            let Head { status, interim, .. } = talk.head().expect("an answer");
            let hints: Vec<_> = interim.iter().map(|(status, fields)| (*status, field(fields, "link"))).collect();
            assert_eq!((status, hints), (200, vec![(103, Some("</a.css>"))]));
            assert_eq!(whole(&mut *talk), b"hinted");
        }
    });
}

#[test]
fn an_endpoint_learns_that_its_client_has_left_between_all_versions() {
    let stage = Stage::set();
    stage.each_pair(|pair| {
        for (framing, sends) in [(Framing::None, false), (Framing::Length(100), true), (Framing::Pieces, true)] {
            let mut talk = pair.connect();
            talk.begin(&pair.ask("POST", "hang", framing));
            if sends {
                assert!(talk.send(b"half"));
            }
            pair.wait_busy(&mut *talk, 1);
            talk.cancel();
            pair.wait_busy(&mut *talk, 0);
        }
        // Whoever comes next gets an answer.
        echo(&mut *pair.connect(), pair, b"small", Framing::Length(5));
    });
}

#[test]
fn an_answer_that_breaks_never_looks_whole_between_all_versions() {
    let stage = Stage::set();
    stage.each_pair(|pair| {
        let mut talk = pair.connect();
        talk.begin(&pair.ask("POST", "reset/first", Framing::Length(4)));
        talk.send(b"body");
        talk.end(&Vec::new());
        assert_eq!(talk.head().expect("an answer").status, 502);
        let mut talk = pair.connect();
        talk.begin(&pair.ask("GET", "reset/within", Framing::None));
        assert_eq!(talk.head().expect("an answer").status, 200);
        let mut check = Check::default();
        check.take(&talk.piece().expect("bytes").expect("bytes"));
        pair.board().open_gate();
        let broken = loop {
            match talk.piece() {
                Ok(Some(bytes)) => check.take(&bytes),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        assert!(broken.is_some(), "{check:?} of a body that broke looked like all of it");
        assert_eq!(check, Check::right(1000));
        echo(&mut *pair.connect(), pair, b"small", Framing::Length(5));
    });
}

/// Waits until a figure has not grown for a while.
fn settled(talk: &mut dyn Talk, figure: impl Fn() -> u64) -> u64 {
    let mut seen = figure();
    loop {
        let start = std::time::Instant::now();
        while start.elapsed() < STALLED {
            talk.tick();
            std::thread::sleep(STEP);
        }
        let now = figure();
        if now == seen && now > 0 {
            return now;
        }
        seen = now;
    }
}

#[test]
fn a_client_that_reads_slowly_holds_the_endpoint_back_between_all_versions() {
    let stage = Stage::set();
    stage.each_pair(|pair| {
        let mut talk = pair.connect();
        echo(&mut *talk, pair, b"warm", Framing::Length(4));
        let before = stage.product.resident_bytes();
        talk.begin(&pair.ask("GET", "flood", Framing::None));
        assert_eq!(talk.head().expect("an answer").status, 200);
        let stalled = settled(&mut *talk, || pair.board().sent());
        assert!(stalled < IN_TRANSIT_MAX, "{stalled} bytes were taken for a client that does not read");
        let grown = stage.product.resident_bytes().saturating_sub(before);
        assert!(grown < MEMORY_MAX, "a stalled answer costs {grown} bytes");
        // It goes on when the client does.
        let mut check = Check::default();
        while check.seen < stalled + MIB {
            check.take(&talk.piece().expect("bytes").expect("bytes"));
        }
        assert!(!check.wrong, "the answer came through changed");
        talk.cancel();
        pair.wait_busy(&mut *talk, 0);
    });
}

#[test]
fn an_endpoint_that_reads_slowly_holds_the_client_back_between_all_versions() {
    let stage = Stage::set();
    stage.each_pair(|pair| {
        let mut talk = pair.connect();
        echo(&mut *talk, pair, b"warm", Framing::Length(4));
        let before = stage.product.resident_bytes();
        talk.begin(&pair.ask("POST", "stuck", Framing::Length(1 << 30)));
        let mut sent = 0;
        while sent < IN_TRANSIT_MAX {
            let piece = pattern::piece(sent, PIECE as u64);
            sent += piece.len() as u64;
            if !talk.offer(piece, STALLED) {
                break;
            }
        }
        assert!(sent < IN_TRANSIT_MAX, "up to {sent} bytes were taken for an endpoint that does not read");
        let grown = stage.product.resident_bytes().saturating_sub(before);
        assert!(grown < MEMORY_MAX, "a stalled request costs {grown} bytes");
        // It goes on when the endpoint does.
        pair.board().open_gate();
        assert!(send_pattern(&mut *talk, sent..sent + MIB), "the body is wanted");
        eventually("all of it has come", || {
            talk.tick();
            pair.board().came().seen == sent + MIB
        });
        assert_eq!(pair.board().came(), Check::right(sent + MIB));
        talk.cancel();
        pair.wait_busy(&mut *talk, 0);
    });
}
