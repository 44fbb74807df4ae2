//! Endpoints of every version that follow one script, told by the path of a request.
//!
//! | Path | What becomes of it |
//! |---|---|
//! | `/echo` | 200 with the request's body and trailers |
//! | `/empty` | 204 |
//! | `/up` | 200 that says how much of the pattern came, and whether it was right |
//! | `/down/N`, `/pieces/N` | N bytes of the pattern, their number said or not |
//! | `/hints` | 103, then 200 |
//! | `/refused` | 417 without a look at the body |
//! | `/hang` | nothing, until the client is gone; the body is read |
//! | `/reset/first` | a reset in place of an answer |
//! | `/reset/within` | a head, and a reset once the gate is open |
//! | `/flood` | the pattern without end |
//! | `/stuck` | the body is read once the gate is open |

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h3::error::Code;
use http::Response;

use super::super::harness::http2_origin::{Asked, Http2Origin, Rules};
use super::super::harness::http3_origin::{self, Http3Origin};
use super::super::harness::origin::Visit;
use super::super::harness::poll::STEP;
use super::super::harness::{Message, Origin, Peer};
use super::clients::mapped;
use super::framed::{Body, chunk, last_chunk};
use super::pattern::{self, Check};
use super::{Fields, Tls};

/// An endless body, as far as a test is concerned.
const ENDLESS: u64 = 1 << 40;

/// What an endpoint and a test tell each other.
#[derive(Default)]
pub(super) struct Board {
    /// Opened by the test.
    gate: AtomicBool,
    /// Body bytes that were sent.
    sent: AtomicU64,
    /// Body bytes that came.
    came: Mutex<Check>,
}

impl Board {
    /// Makes it ready for another exchange.
    pub(super) fn clear(&self) {
        self.gate.store(false, Ordering::SeqCst);
        self.sent.store(0, Ordering::SeqCst);
        *self.came.lock().expect("figures") = Check::default();
    }

    pub(super) fn open_gate(&self) {
        self.gate.store(true, Ordering::SeqCst);
    }

    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    pub(super) fn came(&self) -> Check {
        *self.came.lock().expect("figures")
    }

    fn note(&self, bytes: &[u8]) {
        self.came.lock().expect("figures").take(bytes);
    }

    fn count(&self, bytes: &[u8]) {
        self.sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
    }

    fn is_open(&self) -> bool {
        self.gate.load(Ordering::SeqCst)
    }
}

enum Kind {
    One(Origin),
    Two(Http2Origin),
    Three(Http3Origin),
}

/// An endpoint and what it has written down.
pub(super) struct Endpoint {
    kind: Kind,
    pub(super) board: Arc<Board>,
}

impl Endpoint {
    /// One that speaks HTTP/1.1.
    pub(super) fn http1(tls: Option<&Tls>) -> Self {
        let board = Arc::<Board>::default();
        let shared = Arc::clone(&board);
        let script = move |visit: Visit<'_>| follow(visit, &shared);
        let kind = Kind::One(match tls {
            None => Origin::start(script),
            Some(tls) => Origin::start_tls(tls.endpoint(&["http/1.1"]), script),
        });
        Self { kind, board }
    }

    /// One that speaks HTTP/2.
    pub(super) fn http2(tls: Option<&Tls>) -> Self {
        let board = Arc::<Board>::default();
        let shared = Arc::clone(&board);
        let rules = Rules { tls: tls.map(|tls| tls.endpoint(&["h2"])), ..Rules::default() };
        let origin = Http2Origin::start(rules, move |asked| {
            let board = Arc::clone(&shared);
            Box::pin(async move { follow2(asked, &board).await })
        });
        Self { kind: Kind::Two(origin), board }
    }

    /// One that speaks HTTP/3.
    pub(super) fn http3(tls: &Tls) -> Self {
        let board = Arc::<Board>::default();
        let shared = Arc::clone(&board);
        let origin = Http3Origin::start(http3_origin::Rules::with(&tls.endpoint(&["h3"])), move |asked| {
            let board = Arc::clone(&shared);
            Box::pin(async move { follow3(asked, &board).await })
        });
        Self { kind: Kind::Three(origin), board }
    }

    pub(super) fn address(&self) -> SocketAddr {
        match &self.kind {
            Kind::One(origin) => origin.address(),
            Kind::Two(origin) => origin.address(),
            Kind::Three(origin) => origin.address(),
        }
    }

    /// Requests that it is at.
    pub(super) fn busy(&self) -> usize {
        match &self.kind {
            Kind::One(origin) => origin.busy(),
            Kind::Two(origin) => origin.busy(),
            Kind::Three(origin) => origin.busy(),
        }
    }
}

/// The part of a path that says what to do, and the number behind it.
fn wish(path: &str) -> (&str, u64) {
    let rest = path.trim_start_matches('/').split_once('/').map_or("", |(_, rest)| rest);
    match rest.rsplit_once('/') {
        Some((what, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            (what, number.parse().expect("a number"))
        }
        _ => (rest, 0),
    }
}

/// Answers requests of HTTP/1.1 until the connection cannot go on.
fn follow(mut visit: Visit<'_>, board: &Board) {
    while let Ok(Some(head)) = visit.peer.try_head() {
        let busy = visit.book.busy();
        let went = answer(&mut visit.peer, &head, board);
        drop(busy);
        match went {
            Ok(End::Kept) => {}
            Ok(End::Reset) => return visit.peer.reset(),
            _ => return,
        }
    }
}

/// What becomes of the connection.
enum End {
    Kept,
    Closed,
    Reset,
}

fn answer(peer: &mut Peer, head: &Message, board: &Board) -> std::io::Result<End> {
    let mut body = Body::of_request(head);
    let (what, number) = wish(head.target());
    if head.field("expect").is_some() && what != "refused" {
        peer.try_send("HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    match what {
        "echo" => echo(peer, head, &mut body)?,
        "empty" => peer.try_send("HTTP/1.1 204 No Content\r\n\r\n")?,
        "up" => {
            let mut check = Check::default();
            while let Some(bytes) = body.next(peer)? {
                check.take(&bytes);
            }
            say(peer, check.verdict().as_bytes())?;
        }
        "down" => {
            peer.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {number}\r\n\r\n"))?;
            pour(peer, board, number, false)?;
        }
        "pieces" => {
            peer.try_send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            pour(peer, board, number, true)?;
            peer.try_send(last_chunk(&Vec::new()))?;
        }
        "hints" => {
            peer.try_send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n")?;
            say(peer, b"hinted")?;
        }
        "refused" => {
            peer.try_send("HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")?;
            peer.half_close();
            peer.wait_closed();
            return Ok(End::Closed);
        }
        "hang" => {
            while body.next(peer)?.is_some() {}
            peer.wait_closed();
            return Ok(End::Closed);
        }
        "reset/first" => return Ok(End::Reset),
        "reset/within" => {
            peer.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {ENDLESS}\r\n\r\n"))?;
            pour(peer, board, 1000, false)?;
            while !board.is_open() {
                std::thread::sleep(STEP);
            }
            return Ok(End::Reset);
        }
        "flood" => {
            peer.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {ENDLESS}\r\n\r\n"))?;
            pour(peer, board, ENDLESS, false)?;
        }
        "stuck" => {
            while !board.is_open() {
                std::thread::sleep(STEP);
            }
            while let Some(bytes) = body.next(peer)? {
                board.note(&bytes);
            }
            say(peer, b"read")?;
        }
        _ => panic!("nothing is known of `{}`", head.target()),
    }
    // A client of HTTP/3 may end a request of no body behind its head: then it has come as one of no chunks.
    while body.next(peer)?.is_some() {}
    Ok(End::Kept)
}

fn say(peer: &mut Peer, text: &[u8]) -> std::io::Result<()> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len()).into_bytes();
    bytes.extend_from_slice(text);
    peer.try_send(bytes)
}

/// What was sent comes back, as chunks if trailers came with it.
fn echo(peer: &mut Peer, head: &Message, body: &mut Body) -> std::io::Result<()> {
    let mut whole = Vec::new();
    while let Some(bytes) = body.next(peer)? {
        whole.extend(bytes);
    }
    if body.trailers.is_empty() {
        if head.method() == "HEAD" {
            return peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n");
        }
        return say(peer, &whole);
    }
    peer.try_send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    peer.try_send(chunk(&whole))?;
    peer.try_send(last_chunk(&body.trailers))
}

fn pour(peer: &mut Peer, board: &Board, length: u64, chunks: bool) -> std::io::Result<()> {
    let mut at = 0;
    while at < length {
        let piece = pattern::piece(at, length - at);
        match chunks {
            true => peer.try_send(chunk(piece))?,
            false => peer.try_send(piece)?,
        }
        board.count(piece);
        at += piece.len() as u64;
    }
    Ok(())
}

/// Answers a request of HTTP/2.
async fn follow2(mut asked: Asked, board: &Board) {
    let path = asked.path();
    let (what, number) = wish(&path);
    if asked.head.headers().contains_key("expect") && what != "refused" {
        let _ = asked.respond.send_informational(status(100));
    }
    match what {
        "echo" => echo2(asked).await,
        "empty" => asked.end(status(204)),
        "up" => {
            let mut check = Check::default();
            if take(&mut asked, |bytes| check.take(bytes)).await {
                asked.say(status(200), check.verdict()).await;
            }
        }
        "down" => pour2(asked, board, sized(number), number).await,
        "pieces" => pour2(asked, board, status(200), number).await,
        "hints" => {
            let mut hint = status(103);
            hint.headers_mut().insert("link", http::HeaderValue::from_static("</a.css>"));
            let _ = asked.respond.send_informational(hint);
            asked.say(sized(6), "hinted").await;
        }
        "refused" => {
            asked.say(status(417), "no").await;
        }
        "hang" => {
            if take(&mut asked, |_| {}).await {
                asked.wait_reset().await;
            }
        }
        "reset/first" => asked.respond.send_reset(Reason::INTERNAL_ERROR),
        "reset/within" => {
            let mut speech = asked.begin(sized(ENDLESS));
            speech.say(Bytes::from_static(pattern::piece(0, 1000))).await;
            wait_open(board).await;
            speech.reset(Reason::INTERNAL_ERROR);
        }
        "flood" => pour2(asked, board, sized(ENDLESS), ENDLESS).await,
        "stuck" => {
            wait_open(board).await;
            if take(&mut asked, |bytes| board.note(bytes)).await {
                asked.say(status(200), "read").await;
            }
        }
        _ => panic!("nothing is known of `{path}`"),
    }
}

fn status(status: u16) -> Response<()> {
    Response::builder().status(status).body(()).expect("a head")
}

fn sized(length: u64) -> Response<()> {
    Response::builder().header("content-length", length).body(()).expect("a head")
}

async fn wait_open(board: &Board) {
    while !board.is_open() {
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
}

/// Reads the body; false: it did not come whole.
async fn take(asked: &mut Asked, mut with: impl FnMut(&[u8])) -> bool {
    while let Some(piece) = asked.body.data().await {
        let Ok(piece) = piece else { return false };
        with(&piece);
        let _ = asked.body.flow_control().release_capacity(piece.len());
    }
    true
}

async fn echo2(mut asked: Asked) {
    let Ok((whole, trailers)) = asked.read().await else { return };
    if asked.head.method() == http::Method::HEAD {
        return asked.end(sized(77));
    }
    let Some(trailers) = trailers else {
        return asked.say(sized(whole.len() as u64), whole).await;
    };
    let mut speech = asked.begin(status(200));
    speech.say(whole).await;
    speech.end_with(mapped(&listed(&trailers)));
}

fn listed(trailers: &http::HeaderMap) -> Fields {
    trailers.iter().map(|(name, value)| (name.as_str().to_owned(), value.to_str().expect("text").to_owned())).collect()
}

async fn pour2(asked: Asked, board: &Board, head: Response<()>, length: u64) {
    let mut speech = asked.begin(head);
    let mut at = 0;
    while at < length {
        let piece = pattern::piece(at, length - at);
        if !speech.say(Bytes::from_static(piece)).await {
            return;
        }
        board.count(piece);
        at += piece.len() as u64;
    }
    speech.end();
}

/// Answers a request of HTTP/3.
async fn follow3(mut asked: http3_origin::Asked, board: &Board) {
    let path = asked.path();
    let (what, number) = wish(&path);
    if asked.head.headers().contains_key("expect") && what != "refused" {
        asked.hint(status(100)).await;
    }
    match what {
        "echo" => echo3(asked).await,
        "empty" => asked.end(status(204)).await,
        "up" => {
            let mut check = Check::default();
            if take3(&mut asked, |bytes| check.take(bytes)).await {
                asked.say(status(200), check.verdict()).await;
            }
        }
        "down" => pour3(asked, board, sized(number), number).await,
        "pieces" => pour3(asked, board, status(200), number).await,
        "hints" => {
            let mut hint = status(103);
            hint.headers_mut().insert("link", http::HeaderValue::from_static("</a.css>"));
            asked.hint(hint).await;
            asked.say(sized(6), "hinted").await;
        }
        "refused" => asked.say(status(417), "no").await,
        "hang" => {
            if take3(&mut asked, |_| {}).await {
                asked.wait_left().await;
            }
        }
        "reset/first" => asked.reset(Code::H3_INTERNAL_ERROR),
        "reset/within" => {
            let mut speech = asked.begin(sized(ENDLESS)).await;
            speech.say(Bytes::from_static(pattern::piece(0, 1000))).await;
            wait_open(board).await;
            speech.reset(Code::H3_INTERNAL_ERROR);
        }
        "flood" => pour3(asked, board, sized(ENDLESS), ENDLESS).await,
        "stuck" => {
            wait_open(board).await;
            if take3(&mut asked, |bytes| board.note(bytes)).await {
                asked.say(status(200), "read").await;
            }
        }
        _ => panic!("nothing is known of `{path}`"),
    }
}

/// Reads the body; false: it did not come whole.
async fn take3(asked: &mut http3_origin::Asked, mut with: impl FnMut(&[u8])) -> bool {
    loop {
        match asked.piece().await {
            Ok(Some(piece)) => with(&piece),
            Ok(None) => return true,
            Err(()) => return false,
        }
    }
}

async fn echo3(mut asked: http3_origin::Asked) {
    let Ok((whole, trailers)) = asked.read().await else { return };
    if asked.head.method() == http::Method::HEAD {
        return asked.end(sized(77)).await;
    }
    let Some(trailers) = trailers else {
        return asked.say(sized(whole.len() as u64), whole).await;
    };
    let mut speech = asked.begin(status(200)).await;
    speech.say(whole).await;
    speech.end_with(mapped(&listed(&trailers))).await;
}

async fn pour3(asked: http3_origin::Asked, board: &Board, head: Response<()>, length: u64) {
    let mut speech = asked.begin(head).await;
    let mut at = 0;
    while at < length {
        let piece = pattern::piece(at, length - at);
        if !speech.say(Bytes::from_static(piece)).await {
            return;
        }
        board.count(piece);
        at += piece.len() as u64;
    }
    speech.end().await;
}
