//! Endpoints that speak HTTP/2 well, wrongly, or not at all.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http::Response;
use model::check::{BodyTest, HealthCheck, HealthCheckKind, ResponseTests};
use model::snapshot::SharedVersion;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::super::step::Shared;
use super::super::steps::Sequence;
use super::*;

/// Long enough for anything on this machine, so that a test fails rather than hangs.
const PATIENCE: Duration = Duration::from_secs(20);

type Request = (http::request::Parts, Vec<u8>);

/// An endpoint that answers each request with this status and these pieces of a body, of which the last may come again and again;
/// and what it was asked.
async fn endpoint(
    status: u16,
    body: &'static [&'static [u8]],
    ends: bool,
) -> (SocketAddr, mpsc::UnboundedReceiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let asked = asked.clone();
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(answer(request, respond, (status, body, ends), asked.clone()));
                }
            });
        }
    });
    (address, requests)
}

async fn answer(
    request: http::Request<RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    (status, body, ends): (u16, &'static [&'static [u8]], bool),
    asked: mpsc::UnboundedSender<Request>,
) {
    let (parts, mut stream) = request.into_parts();
    let mut received = Vec::new();
    while let Some(Ok(data)) = stream.data().await {
        received.extend_from_slice(&data);
    }
    let _ = asked.send((parts, received));
    let head = Response::builder().status(status).header("x-role", "primary").body(()).unwrap();
    let Ok(mut stream) = respond.send_response(head, body.is_empty() && ends) else { return };
    let mut pieces = body.iter().map(|piece| Bytes::from_static(piece)).collect::<Vec<_>>();
    let last = pieces.pop();
    for piece in pieces {
        stream.send_data(piece, false).unwrap();
    }
    let Some(last) = last else { return };
    if ends {
        let _ = stream.send_data(last, true);
        return;
    }
    loop {
        stream.reserve_capacity(last.len());
        let Some(Ok(_)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
        if stream.send_data(last.clone(), false).is_err() {
            return;
        }
    }
}

async fn attempt(address: SocketAddr, check: HttpCheck, timeout: Duration) -> Result<(), String> {
    let check = HealthCheck::new(HealthCheckKind::Http(check), timeout, timeout);
    let shared = Shared::of(&check, None, Some(SharedVersion::Http2));
    Sequence::new(&check, &shared, ("site", &address.into()), None).attempt(&mut None).await
}

fn wanting(text: &str) -> HttpCheck {
    let wanted = ResponseTests { body: vec![BodyTest::Contains(text.into())], ..HttpCheck::get("/").wanted };
    HttpCheck { wanted, ..HttpCheck::get("/health?full") }
}

#[tokio::test]
async fn a_question_is_asked_whole_and_its_answer_is_looked_at() {
    let (address, mut asked) = endpoint(200, &[b"all is", b" well"], true).await;
    let check = HttpCheck {
        method: "POST".into(),
        body: b"ping"[..].into(),
        host: Some("shop.example".into()),
        fields: vec![("X-Probe".into(), "1".into())],
        ..wanting("all is well")
    };
    assert_eq!(attempt(address, check, PATIENCE).await, Ok(()));
    let (parts, body) = asked.recv().await.unwrap();
    assert_eq!((parts.method.as_str(), parts.uri.to_string().as_str()), ("POST", "http://shop.example/health?full"));
    let field = |name: &str| parts.headers[name].to_str().unwrap();
    assert_eq!([field("x-probe"), field("content-length"), field("accept-encoding")], ["1", "4", "identity"]);
    assert_eq!(body, b"ping");
    let other = attempt(address, wanting("all is lost"), PATIENCE).await;
    assert_eq!(other, Err("the body does not contain \"all is lost\"".into()));
    let (sick, _asked) = endpoint(503, &[], true).await;
    assert_eq!(attempt(sick, HttpCheck::get("/"), PATIENCE).await, Err("answered 503".into()));
}

#[tokio::test]
async fn bodies_without_end_and_what_is_not_http_2_are_failures() {
    let (endless, _asked) = endpoint(200, &[&[b'a'; 1_024]], false).await;
    let why = "within its first 65536 bytes the body does not contain \"never\"";
    assert_eq!(attempt(endless, wanting("never"), PATIENCE).await, Err(why.into()));
    assert_eq!(attempt(endless, wanting("aaa"), PATIENCE).await, Ok(()), "as soon as it is found");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 64]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        }
    });
    let told = attempt(address, HttpCheck::get("/"), PATIENCE).await.unwrap_err();
    assert!(told.starts_with("this is not HTTP/2"), "{told}");
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let late = attempt(silent.local_addr().unwrap(), HttpCheck::get("/"), Duration::from_millis(100)).await;
    assert_eq!(late, Err("no response within 100ms".into()));
}
