//! How far endpoints may send ahead of readers, near and far.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use http::Response;

use super::harness::http2_origin::{Http2Origin, Rules};
use super::harness::{Setup, frames};

const START: u32 = 128 * 1024;
const MAX: u32 = 1024 * 1024;

/// A way to an endpoint that takes its time, and knows what went there.
struct Way {
    address: SocketAddr,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Way {
    fn to(endpoint: SocketAddr, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let sent = Arc::new(Mutex::new(Vec::new()));
        let journal = Arc::clone(&sent);
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                let far = TcpStream::connect(endpoint).expect("the endpoint");
                let twins = (near.try_clone().expect("a socket"), far.try_clone().expect("a socket"));
                carry((near, far), delay, Some(Arc::clone(&journal)));
                carry((twins.1, twins.0), delay, None);
            }
        });
        Self { address, sent }
    }

    /// What SETTINGS said of windows, one after the other, and how many PINGs asked.
    fn told(&self) -> (Vec<u32>, usize) {
        let sent = self.sent.lock().expect("no panic");
        let (mut windows, mut pings) = (Vec::new(), 0);
        let mut rest = &sent[frames::PREFACE.len()..];
        while let Some(head) = rest.get(..9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let Some(payload) = rest.get(9..9 + length) else { break };
            pings += usize::from(head[3] == frames::PING && head[4] == 0);
            if head[3] == frames::SETTINGS {
                let settings = payload.chunks_exact(6).filter(|setting| setting[..2] == [0, 4]);
                windows.extend(
                    settings.map(|setting| u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]])),
                );
            }
            rest = &rest[9 + length..];
        }
        (windows, pings)
    }
}

/// Carries bytes from one to the other, each `delay` after it came.
fn carry((mut from, mut to): (TcpStream, TcpStream), delay: Duration, journal: Option<Arc<Mutex<Vec<u8>>>>) {
    let (give, take) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut room = vec![0; 256 * 1024];
        while let Ok(count @ 1..) = from.read(&mut room) {
            if let Some(journal) = &journal {
                journal.lock().expect("no panic").extend_from_slice(&room[..count]);
            }
            if give.send((Instant::now() + delay, room[..count].to_vec())).is_err() {
                break;
            }
        }
    });
    std::thread::spawn(move || {
        while let Ok((due, bytes)) = take.recv() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Answers with as many bytes as the path says.
fn origin() -> Http2Origin {
    Http2Origin::start(Rules::default(), |asked| {
        Box::pin(async move {
            let size: usize = asked.path()[1..].parse().expect("a size");
            asked.say(Response::new(()), vec![b'x'; size]).await;
        })
    })
}

#[test]
fn the_window_towards_an_endpoint_far_away_grows_while_its_reader_keeps_up() {
    let origin = origin();
    let way = Way::to(origin.address(), Duration::from_millis(25));
    let product = Setup::to_addresses(&[way.address]).cluster("http_versions: [h2]").workers(1).start();
    let size = 12 << 20;
    assert_eq!(product.get(&format!("/{size}")).body.len(), size);
    let (windows, pings) = way.told();
    assert_eq!(windows[0], START);
    assert!(windows.windows(2).all(|pair| pair[1] == pair[0] * 2), "{windows:?}");
    assert!((MAX / 2..=MAX).contains(windows.last().expect("some")), "{windows:?}");
    assert!(pings <= 5, "{pings} PINGs");
}

#[test]
fn small_answers_from_far_away_ask_and_change_nothing() {
    let origin = origin();
    let way = Way::to(origin.address(), Duration::from_millis(5));
    let product = Setup::to_addresses(&[way.address]).cluster("http_versions: [h2]").workers(1).start();
    let mut client = product.connect();
    for _ in 0..30 {
        assert_eq!(client.get("/10000").body.len(), 10_000);
    }
    assert_eq!(way.told(), (vec![START], 0));
}
