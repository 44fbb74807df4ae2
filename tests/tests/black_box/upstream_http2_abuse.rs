//! Endpoints that speak HTTP/2 and mean harm: each is bounded, costs its own connection, and disturbs no other.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::harness::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, PRIORITY, SETTINGS, WINDOW_UPDATE,
    frame, goaway, read_until,
};
use super::harness::sys::resident_bytes_max;
use super::harness::{Origin, Peer, Setup};

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Field sections with `:status: 200`, and with `:status: 103` (RFC 7541 appendix A).
const OK: &[u8] = b"\x88";
const EARLY_HINTS: &[u8] = b"\x08\x03103";

/// What an endpoint sends instead of an answer, how often, and the code that its connection ends with.
struct Attack {
    name: &'static str,
    first: Vec<u8>,
    burst: Vec<u8>,
    times: usize,
    code: u32,
}

impl Attack {
    /// Frames of no use, far more than may come at once.
    fn flood(name: &'static str, one: &[u8]) -> Self {
        Self { name, first: Vec::new(), burst: one.repeat(500), times: 100, code: ENHANCE_YOUR_CALM }
    }

    fn once(name: &'static str, bytes: Vec<u8>, code: u32) -> Self {
        Self { name, first: bytes, burst: Vec::new(), times: 0, code }
    }
}

/// A head that names a field of 4,000 bytes for the table, and then says it 1,000 times: 4 MB of fields in some 5 KB.
fn bomb() -> Vec<u8> {
    let length = [127, ((4_000 - 127) % 128) as u8 | 128, ((4_000 - 127) / 128) as u8];
    let entry = [b"\x88\x40\x01a", &length[..], &[b'v'; 4_000]].concat();
    let block = [entry, vec![0xbe; 1_000]].concat();
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)
}

fn attacks() -> Vec<Attack> {
    let window = |step: u32| frame(WINDOW_UPDATE, 0, 0, &step.to_be_bytes());
    let last = [&0x7fff_ffff_u32.to_be_bytes()[..], &[0; 4]].concat();
    let piece = frame(CONTINUATION, 0, 1, &[0; 16_384]);
    vec![
        Attack::flood("PING", &frame(PING, 0, 0, &[7; 8])),
        Attack::flood("answers to no PING", &frame(PING, 1, 0, &[7; 8])),
        Attack::flood("SETTINGS", &frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])),
        Attack::flood("PRIORITY", &frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 7])),
        Attack::flood("unknown frames", &frame(99, 0, 0, b"what")),
        Attack::flood("GOAWAY", &frame(GOAWAY, 0, 0, &last)),
        Attack::flood("tiny windows", &window(1)),
        Attack {
            name: "CONTINUATION",
            first: frame(HEADERS, 0, 1, OK),
            burst: piece,
            times: 1_000,
            code: ENHANCE_YOUR_CALM,
        },
        Attack {
            name: "empty CONTINUATION",
            first: frame(HEADERS, 0, 1, OK),
            burst: frame(CONTINUATION, 0, 1, &[]).repeat(100),
            times: 10,
            code: ENHANCE_YOUR_CALM,
        },
        Attack::once("fields that unfold", bomb(), ENHANCE_YOUR_CALM),
        Attack::once("a window beyond all", window(0x7fff_ffff), FLOW_CONTROL_ERROR),
        Attack::once("a window of nothing", window(0), PROTOCOL_ERROR),
        Attack::once("streams of its own", frame(HEADERS, END_HEADERS, 2, OK), PROTOCOL_ERROR),
        Attack::once("an answer to no request", frame(HEADERS, END_HEADERS, 77, OK), PROTOCOL_ERROR),
        Attack::once("DATA for no request", frame(DATA, 0, 77, b"data"), PROTOCOL_ERROR),
    ]
}

/// Greets, and waits for the first request. False: the connection ended before.
fn greet(peer: &mut Peer) -> bool {
    if peer.try_send(frame(SETTINGS, 0, 0, &[])).is_err() || peer.try_read(PREFACE.len()).is_none() {
        return false;
    }
    read_until(peer, HEADERS, 1);
    true
}

fn answer(peer: &mut Peer) {
    peer.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, OK));
    peer.wait_closed();
}

fn to(origin: &Origin) -> Setup {
    Setup::to(origin).cluster("http_versions: [h2]").cluster("retry: { attempts_max: 1 }").workers(1)
}

#[test]
fn endpoints_that_flood_or_break_the_rules_lose_their_connection_and_no_more() {
    for attack in attacks() {
        let (name, code) = (attack.name, attack.code);
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let origin = Origin::start(move |mut visit| {
            if !greet(&mut visit.peer) {
                return;
            }
            if visit.index > 0 {
                return answer(&mut visit.peer);
            }
            let mut goes_on = visit.peer.try_send(&attack.first).is_ok();
            for _ in 0..attack.times {
                goes_on = goes_on && visit.peer.try_send(&attack.burst).is_ok();
            }
            tell.lock().expect("no panic").send(goaway(&mut visit.peer)).expect("it is waited for");
        });
        let product = to(&origin).start();
        let before = product.resident_bytes();
        assert_eq!(product.get("/").status(), 502, "{name}");
        let told = told.recv_timeout(Duration::from_secs(20)).expect("the connection ends");
        // What was not read of a flood may end the connection before its end is read.
        assert!(told.is_none_or(|told| told == code), "{name}: {told:?}");
        assert_eq!(product.get("/").status(), 200, "{name}");
        assert_eq!(origin.connections(), 2, "{name}");
        let grown = resident_bytes_max(product.pid()).saturating_sub(before);
        assert!(grown < 8 << 20, "{name}: {grown} bytes");
    }
}

#[test]
fn an_endpoint_that_only_ever_promises_an_answer_fails_its_request() {
    let origin = Origin::start(|mut visit| {
        if greet(&mut visit.peer) {
            let hints = frame(HEADERS, END_HEADERS, 1, EARLY_HINTS).repeat(1_000);
            let _ = visit.peer.try_send(&hints);
            visit.peer.wait_closed();
        }
    });
    let product = to(&origin).start();
    let mut client = product.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    let last = std::iter::from_fn(|| Some(client.head().status())).find(|status| *status != 103);
    assert_eq!(last, Some(502));
}

#[test]
fn an_endpoint_that_sends_more_than_its_window_costs_no_more_than_that() {
    let origin = Origin::start(|mut visit| {
        if !greet(&mut visit.peer) {
            return;
        }
        visit.peer.send(frame(HEADERS, END_HEADERS, 1, OK));
        let piece = frame(DATA, 0, 1, &[b'x'; 16_384]);
        for _ in 0..4_000 {
            if visit.peer.try_send(&piece).is_err() {
                return;
            }
        }
    });
    let product = to(&origin).start();
    let before = product.resident_bytes();
    let mut client = product.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(client.head().status(), 200);
    // It reads nothing until the endpoint has sent all of it, or has been stopped.
    std::thread::sleep(Duration::from_millis(300));
    let _ = client.try_rest();
    let grown = resident_bytes_max(product.pid()).saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes");
}
