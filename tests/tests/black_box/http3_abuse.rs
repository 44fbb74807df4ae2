//! HTTP/3 clients that mean harm: each is bounded, told why, counted, and disturbs nobody else.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::harness::http3::{Client, Knocking, request, trusting};
use super::harness::origin::ok;
use super::harness::poll::PATIENCE;
use super::harness::tls::Authority;
use super::harness::{Origin, Setup, eventually};
use super::http3::{Site, site};

const FRAME_UNEXPECTED: u64 = 0x105;
const FRAME_ERROR: u64 = 0x106;
const EXCESSIVE_LOAD: u64 = 0x107;
const SETTINGS_ERROR: u64 = 0x109;
const DECOMPRESSION_FAILED: u64 = 0x200;
const ENCODER_STREAM_ERROR: u64 = 0x201;

/// The product, with one client that is at work beside whatever the test does.
fn with_neighbour() -> (Origin, Site, Client) {
    let origin = Origin::answering(|_| ok("fine"));
    let site = site(Setup::to(&origin), 1);
    let mut neighbour = site.connect();
    assert_eq!(neighbour.get("/").status, 200);
    (origin, site, neighbour)
}

/// Opens a stream and says this on it, and nothing more.
fn say(client: &Client, bytes: &[u8], ends: bool) {
    client.with_quic("a stream", async |quic| {
        let (mut send, receive) = quic.open_bi().await.expect("a stream");
        let _ = send.write_all(bytes).await;
        if ends {
            let _ = send.finish();
        }
        // Neither half is given up.
        std::mem::forget((send, receive));
    });
}

/// The same on a stream that goes one way.
fn say_one_way(client: &Client, bytes: &[u8]) {
    client.with_quic("a stream", async |quic| {
        let mut send = quic.open_uni().await.expect("a stream");
        let _ = send.write_all(bytes).await;
        std::mem::forget(send);
    });
}

#[test]
fn what_breaks_the_rules_of_the_connection_ends_it_with_the_reason() {
    let (_origin, site, mut neighbour) = with_neighbour();
    let streams: [(&str, &[u8], bool, u64); 6] = [
        ("DATA before a head", &[0, 1, b'x'], false, FRAME_UNEXPECTED),
        ("SETTINGS on a request stream", &[4, 0], false, FRAME_UNEXPECTED),
        ("a frame of HTTP/2", &[6, 0], false, FRAME_UNEXPECTED),
        ("an end within a frame", &[1, 9, 0], true, FRAME_ERROR),
        ("a section that needs a table", &[1, 3, 0, 0, 0x80], true, DECOMPRESSION_FAILED),
        ("an empty section", &[1, 0], true, DECOMPRESSION_FAILED),
    ];
    let one_way: [(&str, &[u8], u64); 3] = [
        ("a second control stream", &[0, 4, 0], 0x103),
        ("a push", &[1, 0], 0x103),
        ("an insertion into no table", &[2, 0xc0, 0], ENCODER_STREAM_ERROR),
    ];
    let count = streams.len() + one_way.len();
    for (name, bytes, ends, code) in streams {
        let mut client = site.connect();
        say(&client, bytes, ends);
        assert_eq!(client.ended(), Some(code), "{name}");
    }
    for (name, bytes, code) in one_way {
        let mut client = site.connect();
        say_one_way(&client, bytes);
        // Of two streams of one kind the second is one too many, whichever that is; of two encoders ours.
        let ended = client.ended();
        assert!(ended == Some(code) || ended == Some(0x103), "{name}: {ended:?}");
    }
    assert!(site.product.flagged("CY")["status"].is_null());
    site.product.expect_metric("equipoise_faults_total", &["fault=\"http3_error\""], count as f64);
    assert_eq!(neighbour.get("/").status, 200);
}

#[test]
fn settings_that_are_none_end_the_connection() {
    let (_origin, site, mut neighbour) = with_neighbour();
    let mut client = Client::silent(site.product.web(), "shop.example", &site.tls());
    say_one_way(&client, &[0, 4, 2, 3, 1]);
    assert_eq!(client.ended(), Some(SETTINGS_ERROR));
    assert_eq!(neighbour.get("/").status, 200);
}

#[test]
fn a_client_that_begins_streams_only_to_reset_them_is_stopped() {
    let (_origin, site, mut neighbour) = with_neighbour();
    let mut client = site.connect();
    let start = Instant::now();
    while client.quic().close_reason().is_none() {
        assert!(start.elapsed() < PATIENCE, "it goes on and on");
        match client.try_open(request("GET", "/")) {
            Ok(stream) => client.cancel(stream),
            Err(_) => break,
        }
    }
    assert_eq!(client.ended(), Some(EXCESSIVE_LOAD));
    assert!(site.product.flagged("CJ")["status"].is_null());
    site.product.expect_metric("equipoise_faults_total", &["fault=\"http3_flood\""], 1.0);
    assert_eq!(neighbour.get("/").status, 200);
}

/// What it lets be answered does not pay for it.
#[test]
fn a_client_that_resets_most_of_what_it_asks_for_is_stopped() {
    let (origin, site, mut neighbour) = with_neighbour();
    let mut client = site.connect();
    let goes_on = (0..1500).all(|_| {
        let cancels = (0..3).all(|_| {
            client.try_open(request("GET", "/")).is_ok_and(|stream| {
                client.cancel(stream);
                true
            })
        });
        cancels
            && client.try_open(request("GET", "/")).is_ok_and(|mut stream| {
                client.end(&mut stream, http::HeaderMap::new());
                client.try_answer(&mut stream).is_ok()
            })
    });
    assert!(!goes_on, "{} requests got through", origin.requests().len());
    assert_eq!(client.ended(), Some(EXCESSIVE_LOAD));
    site.product.expect_metric("equipoise_faults_total", &["fault=\"http3_flood\""], 1.0);
    assert_eq!(neighbour.get("/").status, 200);
}

/// As browsers leave pages and players seek.
#[test]
fn downloads_that_are_left_in_the_middle_are_no_flood() {
    let origin = Origin::answering(|_| ok(&"x".repeat(1 << 20)));
    let site = site(Setup::to(&origin), 1);
    let mut client = site.connect();
    for index in 0..900 {
        let mut stream = client.open(request("GET", "/"));
        client.end(&mut stream, http::HeaderMap::new());
        assert_eq!(client.head(&mut stream).expect("a response").0, 200, "{index} downloads");
        client.let_go(stream);
    }
    assert_eq!(client.get("/").body.len(), 1 << 20);
}

#[test]
fn a_client_that_cancels_half_of_what_it_asks_for_stays() {
    let (_origin, site, _neighbour) = with_neighbour();
    let mut client = site.connect();
    for _ in 0..300 {
        let stream = client.open(request("GET", "/"));
        client.cancel(stream);
        assert_eq!(client.get("/").status, 200);
    }
}

#[test]
fn floods_of_frames_of_no_use_end_their_connection() {
    let (_origin, site, mut neighbour) = with_neighbour();
    let flood = || {
        let mut client = site.connect();
        // Frames of a kind that nobody knows, each of two bytes.
        let start = Instant::now();
        say(&client, &[0x21, 0].repeat(20_000), false);
        assert_eq!(client.ended(), Some(EXCESSIVE_LOAD));
        start.elapsed()
    };
    // Ten seconds later the connection is looked after anyway; a busy machine may take that long, but not each time.
    let floods = (1..=3).find(|_| flood() < Duration::from_secs(8)).expect("one is noticed while it comes");
    site.product.flagged("CJ");
    site.product.expect_metric("equipoise_faults_total", &["fault=\"http3_flood\""], f64::from(floods));
    assert_eq!(neighbour.get("/").status, 200);
}

#[test]
fn streams_that_end_before_they_say_what_they_are_for_are_counted() {
    let (_origin, site, mut neighbour) = with_neighbour();
    let mut client = site.connect();
    client.with_quic("the end", async |quic| {
        while let Ok(mut send) = quic.open_uni().await {
            let _ = send.finish();
        }
    });
    assert_eq!(client.ended(), Some(EXCESSIVE_LOAD));
    assert_eq!(neighbour.get("/").status, 200);
}

#[test]
fn handshakes_that_come_to_nothing_count_a_moment_longer() {
    let origin = Origin::answering(|_| ok("fine"));
    let site = site(Setup::to(&origin).listener("http3: { unproven_max: 3 }"), 1);
    let stranger = trusting(&Authority::new("another"), None);
    eventually("clients are asked to prove where they are", || {
        assert!(Client::try_connect(site.product.web(), "shop.example", &stranger).is_err());
        site.product.metric("equipoise_http3_retries_total", &[]) > 0.0
    });
    site.product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
    assert_eq!(site.connect().get("/").status, 200);
}

/// What each of six large answers of one connection has brought when they have brought a quarter of all.
fn shares(client: &Client) -> Vec<usize> {
    const MANY: usize = 6;
    const ALL: usize = 24 << 20;
    let got: Arc<[AtomicUsize; MANY]> = Arc::default();
    let sum = |got: &[AtomicUsize; MANY]| got.iter().map(|one| one.load(Ordering::Relaxed)).sum::<usize>();
    client.with_quic("bodies", async |quic| {
        let mut tasks = tokio::task::JoinSet::new();
        for index in 0..MANY {
            let (mut send, mut receive) = quic.open_bi().await.expect("a stream");
            // GET https://a/
            send.write_all(&[1, 8, 0, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0xc1]).await.expect("it is taken");
            send.finish().expect("it ends");
            let got = got.clone();
            tasks.spawn(async move {
                while let Ok(Some(chunk)) = receive.read_chunk(64 * 1024, true).await {
                    got[index].fetch_add(chunk.bytes.len(), Ordering::Relaxed);
                }
            });
        }
        while sum(&got) < ALL {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        tasks.shutdown().await;
    });
    got.iter().map(|one| one.load(Ordering::Relaxed)).collect()
}

#[test]
fn large_answers_of_one_connection_go_on_side_by_side() {
    let origin = Origin::answering(|_| ok(&"x".repeat(16 << 20)));
    let site = site(Setup::to(&origin), 1);
    // On a busy machine an origin's thread may have no turn for so long. Who has to wait for others to be done has to each time.
    let fair = (0..4).find(|_| {
        let got = shares(&site.connect());
        println!("{got:?}");
        got.iter().all(|one| *one > 256 * 1024)
    });
    assert!(fair.is_some(), "nobody waits for others to be done");
}

#[test]
fn a_flood_of_handshakes_is_bounded_and_disturbs_nobody() {
    let origin = Origin::answering(|_| ok("fine"));
    let site = site(Setup::to(&origin).listener("http3: { unproven_max: 20 }"), 1);
    let mut neighbour = site.connect();
    assert_eq!(neighbour.get("/").status, 200);
    let flood = Knocking::begin(site.product.web(), &site.tls(), 200);
    eventually("most are asked to prove where they are", || {
        flood.go_on();
        site.product.metric("equipoise_http3_retries_total", &[]) >= 180.0
    });
    assert!(site.product.metric("equipoise_connections_open", &["listener=\"web\""]) <= 21.0);
    assert_eq!(neighbour.get("/").status, 200);
    assert_eq!(site.connect().get("/").status, 200, "who is where it says gets in");
}

#[test]
fn a_handshake_that_goes_nowhere_is_given_up() {
    let origin = Origin::answering(|_| ok("fine"));
    let setup = Setup::to(&origin);
    let authority = Authority::new("the tests' own");
    let site = Site::of(authority, "[h1, h3]", "handshake_timeout: 2s", setup, 1);
    let flood = Knocking::begin(site.product.web(), &site.tls(), 5);
    eventually("all have come", || {
        flood.go_on();
        site.product.metric("equipoise_connections_opened_total", &["listener=\"web\""]) >= 5.0
    });
    site.product.flagged("CHT");
    site.product.expect_metric_at_least("equipoise_faults_total", &["fault=\"handshake_timeout\""], 5.0);
    site.product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
}

#[test]
fn datagrams_that_are_none_of_quic_are_passed_over() {
    let (_origin, site, mut neighbour) = with_neighbour();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(site.product.web()).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..4_000 {
        let mut bytes: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .take(round % 1_400)
        .collect();
        // Some look like a beginning of version 1, some like what follows one.
        if let (true, Some(head)) = (round % 3 == 0, bytes.get_mut(..6)) {
            head.copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
        } else if let (true, Some(first)) = (round % 3 == 1, bytes.first_mut()) {
            *first = 0x40 | *first & 0x3f;
        }
        let _ = socket.send(&bytes);
        if round % 500 == 0 {
            assert_eq!(neighbour.get("/").status, 200);
        }
    }
    assert_eq!(neighbour.get("/").status, 200);
    assert_eq!(site.connect().get("/").status, 200);
}

#[test]
fn a_head_that_is_too_large_is_answered_and_the_connection_goes_on() {
    let origin = Origin::answering(|_| ok("fine"));
    let site = site(Setup::to(&origin).listener("head_bytes_max: 4KiB"), 1);
    let mut client = site.connect();
    let mut large = request("GET", "/");
    large.headers_mut().insert("x-large", "v".repeat(5_000).parse().unwrap());
    // The library itself keeps to the bound that we have told it.
    assert!(client.try_open(large).is_err() || client.get("/").status == 200);
    // A section that is larger than it may be, by its frame alone.
    let raw = site.connect();
    let answered = raw.with_quic("an answer", async |quic| {
        let (mut send, mut receive) = quic.open_bi().await.expect("a stream");
        // HEADERS of 60,000 bytes.
        send.write_all(&[1, 0x80, 0, 0xea, 0x60]).await.expect("it is taken");
        receive.read_chunk(4096, true).await.expect("an answer").expect("a head").bytes
    });
    // `:status` is not among those of the static table: 431 stands there as text.
    assert!(answered.windows(3).any(|three| three == b"431"), "{answered:?}");
    site.product.record("the answer", |record| record["flag"] == "CL" && record["status"] == 431);
    // Small by its bytes, large by what they stand for: one byte for each of `:path: /`.
    let bomb = site.connect();
    let mut section = vec![0, 0];
    section.extend([0xc1; 4_000]);
    let mut bytes = vec![1, 0x4f, 0xa2];
    bytes.extend(section);
    say(&bomb, &bytes, true);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn malformed_requests_end_their_stream_alone() {
    let (origin, site, _neighbour) = with_neighbour();
    let mut client = site.connect();
    let before = origin.requests().len();
    let sections: [&[u8]; 3] = [
        // No `:path`; `:method` twice; `connection`.
        &[0, 0, 0xd1, 0xd7, 0x50, 1, b'a'],
        &[0, 0, 0xd1, 0xd1, 0xd7, 0x50, 1, b'a', 0xc1],
        &[
            0, 0, 0xd1, 0xd7, 0x50, 1, b'a', 0xc1, 0x27, 3, b'c', b'o', b'n', b'n', b'e', b'c', b't', b'i', b'o', b'n',
            1, b'x',
        ],
    ];
    for section in sections {
        let code = client.with_quic("a reset", async |quic| {
            let (mut send, mut receive) = quic.open_bi().await.expect("a stream");
            let mut bytes = vec![1, section.len() as u8];
            bytes.extend_from_slice(section);
            send.write_all(&bytes).await.expect("it is taken");
            match receive.read_to_end(1_000).await {
                Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(code))) => code.into_inner(),
                other => panic!("no reset: {other:?}"),
            }
        });
        assert_eq!(code, 0x10e, "{section:?}");
    }
    assert!(site.product.flagged("CB")["status"].is_null());
    assert_eq!(client.get("/").status, 200);
    eventually("only the good request came through", || origin.requests().len() == before + 1);
}
