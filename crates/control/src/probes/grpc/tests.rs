//! Endpoints that speak gRPC well, wrongly, or not at all.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response};
use model::check::{HealthCheck, HealthCheckKind};
use model::snapshot::{Pem, UpstreamTls};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::super::http::HEAD_BYTES_MAX;
use super::super::step::Shared;
use super::super::steps::Sequence;
use super::*;

/// Long enough for anything on this machine, so that a test fails rather than hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// What an endpoint that serves says.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];

fn check(name: &str) -> HealthCheck {
    let asked = GrpcCheck { name: name.into(), ..GrpcCheck::default() };
    HealthCheck::new(HealthCheckKind::Grpc(asked), Duration::from_secs(1), PATIENCE)
}

async fn attempt(address: SocketAddr, check: &HealthCheck) -> Result<(), String> {
    attempt_over(address, check, None).await
}

async fn attempt_over(address: SocketAddr, check: &HealthCheck, tls: Option<&UpstreamTls>) -> Result<(), String> {
    let shared = Shared::of(check, tls, None);
    Sequence::new(check, &shared, ("site", &address.into()), None).attempt(&mut None).await
}

/// What an endpoint answers: status, fields, body, trailers.
#[derive(Clone)]
struct Answer {
    status: u16,
    fields: Vec<(&'static str, &'static str)>,
    body: Option<Vec<u8>>,
    trailers: Option<Vec<(&'static str, &'static str)>>,
}

impl Answer {
    fn saying(body: &[u8]) -> Self {
        Self {
            status: 200,
            fields: vec![("content-type", "application/grpc")],
            body: Some(body.to_vec()),
            trailers: Some(vec![("grpc-status", "0")]),
        }
    }

    /// Only a head.
    fn bare(fields: &[(&'static str, &'static str)]) -> Self {
        let fields = [&[("content-type", "application/grpc")], fields].concat();
        Self { status: 200, fields, body: None, trailers: None }
    }

    fn ending(self, trailers: &[(&'static str, &'static str)]) -> Self {
        Self { trailers: Some(trailers.to_vec()), ..self }
    }
}

/// What was asked: method, URI, fields, body.
type Asked = (http::request::Parts, Vec<u8>);

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(stream: S, answer: &Answer, asked: &mpsc::UnboundedSender<Asked>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    // The client may go away at any time.
    while let Some(Ok((request, mut reply))) = connection.accept().await {
        let (parts, mut body) = request.into_parts();
        let (answer, asked) = (answer.clone(), asked.clone());
        tokio::spawn(async move {
            let mut got = Vec::new();
            while let Some(Ok(data)) = body.data().await {
                got.extend_from_slice(&data);
            }
            let _ = asked.send((parts, got));
            let mut head = Response::builder().status(answer.status);
            for (name, value) in &answer.fields {
                head = head.header(*name, *value);
            }
            let Ok(mut stream) = reply.send_response(head.body(()).unwrap(), answer.body.is_none()) else { return };
            let Some(body) = answer.body else { return };
            let _ = stream.send_data(Bytes::from(body), answer.trailers.is_none());
            let mut trailers = HeaderMap::new();
            for (name, value) in answer.trailers.into_iter().flatten() {
                trailers.insert(name, HeaderValue::from_static(value));
            }
            let _ = stream.send_trailers(trailers);
        });
    }
}

/// An endpoint that answers each question so.
async fn endpoint(answer: Answer) -> (SocketAddr, mpsc::UnboundedReceiver<Asked>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            converse(stream, &answer, &sender).await;
        }
    });
    (address, receiver)
}

/// An endpoint that sends these bytes to whoever comes, and closes or holds.
async fn raw(bytes: &'static [u8], holds: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 1024];
            // How much of the question came does not matter here.
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(bytes).await;
            while holds && stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        }
    });
    address
}

async fn verdict(answer: Answer) -> String {
    let (address, _asked) = endpoint(answer).await;
    attempt(address, &check("shop.Basket")).await.unwrap_err()
}

#[tokio::test]
async fn an_endpoint_that_serves_is_well_and_is_asked_as_grpc_has_it() {
    let (address, mut asked) = endpoint(Answer::saying(SERVING)).await;
    assert_eq!(attempt(address, &check("shop.Basket")).await, Ok(()));
    let (parts, body) = asked.recv().await.unwrap();
    assert_eq!(parts.method, Method::POST);
    assert_eq!(parts.uri.to_string(), "http://site/grpc.health.v1.Health/Check");
    let field = |name: &str| parts.headers[name].to_str().unwrap();
    assert_eq!((field("content-type"), field("te")), ("application/grpc", "trailers"));
    assert_eq!(field("grpc-timeout"), "20000m");
    assert!(field("user-agent").starts_with("equipoise-probe/"));
    assert_eq!(body, health_question("shop.Basket"));

    let asked_of = GrpcCheck {
        host: Some("shop.example:50051".into()),
        fields: vec![("Authorization".into(), "Bearer x".into())],
        ..GrpcCheck::default()
    };
    let steps = vec![HealthCheckKind::Grpc(asked_of).into()];
    assert_eq!(attempt(address, &HealthCheck { steps, ..check("") }).await, Ok(()));
    let (parts, body) = asked.recv().await.unwrap();
    assert_eq!(parts.uri.authority().map(|authority| authority.as_str()), Some("shop.example:50051"));
    assert_eq!((parts.headers["authorization"].to_str().unwrap(), &body[..]), ("Bearer x", &[0; 5][..]));
}

#[tokio::test]
async fn anything_but_serving_is_down_with_a_reason() {
    let says = async |message: &[u8]| verdict(Answer::saying(message)).await;
    assert_eq!(says(&[0, 0, 0, 0, 2, 8, 2]).await, "says NOT_SERVING");
    assert_eq!(says(&[0; 5]).await, "says UNKNOWN");
    assert_eq!(says(&[0, 0, 0, 0, 2, 8, 3]).await, "says SERVICE_UNKNOWN, it does not know \"shop.Basket\"");
    assert_eq!(says(&[0, 0, 0, 0, 2, 8, 9]).await, "says 9");
    assert_eq!(says(&[0, 0, 0, 0, 2, 9, 9]).await, "the answer cannot be read: the message is not protobuf");
    assert_eq!(says(b"").await, "the answer cannot be read: there is no message");
    assert_eq!(says(&[0; 2_000]).await, "the answer is longer than 1024 bytes");
}

#[tokio::test]
async fn statuses_of_grpc_and_of_http_are_told() {
    let with = |pairs: &[(&'static str, &'static str)]| Answer::bare(pairs);
    assert_eq!(
        verdict(with(&[("grpc-status", "12"), ("grpc-message", "no such method")])).await,
        "status 12 of gRPC, UNIMPLEMENTED: it has no health checks"
    );
    let unknown = "status 5 of gRPC, NOT_FOUND: it does not know \"shop.Basket\"";
    assert_eq!(verdict(with(&[("grpc-status", "5")])).await, unknown);
    let late = Answer::saying(SERVING).ending(&[("grpc-status", "14"), ("grpc-message", "going away")]);
    assert_eq!(verdict(late).await, "status 14 of gRPC, UNAVAILABLE: going away", "though the message says SERVING");
    assert_eq!(verdict(with(&[("grpc-status", "99")])).await, "status 99 of gRPC, of an unknown kind");
    assert_eq!(verdict(with(&[("grpc-status", "well")])).await, "answered with \"well\" as the status of gRPC");
    assert_eq!(verdict(with(&[("grpc-status", "0")])).await, "the answer cannot be read: there is no message");
    let without = "answered without a status of gRPC";
    assert_eq!(verdict(with(&[])).await, without);
    assert_eq!(verdict(Answer::saying(SERVING).ending(&[])).await, without);
    assert_eq!(verdict(Answer { trailers: None, ..Answer::saying(SERVING) }).await, without);
    assert_eq!(verdict(Answer { status: 503, ..with(&[]) }).await, "answered 503");
    let page = Answer { fields: vec![("content-type", "text/html")], ..Answer::saying(b"<html>") };
    assert_eq!(verdict(page).await, "the content type is \"text/html\", not that of gRPC");
    let web = Answer { fields: vec![("content-type", "application/grpc-web")], ..Answer::saying(SERVING) };
    assert!(verdict(web).await.ends_with("not that of gRPC"));
}

#[tokio::test]
async fn what_is_not_http2_or_closes_or_stalls_is_down() {
    let of = async |bytes, holds| attempt(raw(bytes, holds).await, &check("")).await.unwrap_err();
    let told = of(b"HTTP/1.1 400 Bad Request\r\n\r\n", true).await;
    assert!(told.starts_with("this is not HTTP/2, or breaks its rules: "), "{told}");
    let told = of(b"", false).await;
    assert!(told.starts_with("the connection broke: "), "{told}");
    // SETTINGS, then GOAWAY with PROTOCOL_ERROR (RFC 9113 section 6.8).
    let told = of(b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01", true).await;
    assert!(told.contains("connection error received"), "{told}");
    // SETTINGS, then RST_STREAM of the first stream with REFUSED_STREAM (RFC 9113 section 6.4).
    let told = of(b"\0\0\0\x04\0\0\0\0\0\0\0\x04\x03\0\0\0\0\x01\0\0\0\x07", true).await;
    assert!(told.contains("stream error received"), "{told}");
    let stalls = raw(b"\0\0\0\x04\0\0\0\0\0", true).await;
    let short = HealthCheck { timeout: Duration::from_millis(100), ..check("") };
    assert_eq!(attempt(stalls, &short).await, Err("no response within 100ms".into()));
}

#[tokio::test]
async fn a_head_without_end_is_cut_off_at_the_bound() {
    let filler: &'static str = "x".repeat(HEAD_BYTES_MAX).leak();
    let told = verdict(Answer::bare(&[("grpc-status", "0"), ("x-filler", filler)])).await;
    assert!(told.starts_with("this is not HTTP/2, or breaks its rules: "), "{told}");
}

#[tokio::test]
async fn frames_and_interim_heads_without_end_are_cut_off() {
    let flood = |one: &[u8]| -> &'static [u8] { [b"\0\0\0\x04\0\0\0\0\0", &one.repeat(1_000)[..]].concat().leak() };
    let of = async |one: &[u8]| attempt(raw(flood(one), true).await, &check("")).await;
    let ping = b"\0\0\x08\x06\0\0\0\0\0pingping";
    assert_eq!(of(ping).await, Err("floods the connection with useless frames".into()));
    // `:status: 103` (RFC 7541 appendix A), again and again.
    let hints = b"\0\0\x05\x01\x04\0\0\0\x01\x08\x03103";
    assert_eq!(of(hints).await, Err("interim answers (status 103) instead of a final one".into()));
}

/// An endpoint that speaks TLS with a certificate for `localhost` and these protocols, and the authority behind it.
async fn tls_endpoint(protocols: &[&[u8]]) -> (SocketAddr, Pem) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let authority = Pem { path: "ca.pem".into(), bytes: signed.cert.pem().into_bytes().into() };
    let key = rustls_pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![signed.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (asked, _kept) = mpsc::unbounded_channel();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not like the protocols ends the handshake.
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            converse(stream, &Answer::saying(SERVING), &asked).await;
        }
    });
    (address, authority)
}

#[tokio::test]
async fn over_tls_the_endpoint_must_agree_to_http2() {
    let attempt = async |protocols: &[&[u8]]| {
        let (address, authority) = tls_endpoint(protocols).await;
        let settings = UpstreamTls {
            server_name: Some("localhost".into()),
            verify: true,
            authorities: Some(authority),
            certificate: None,
        };
        attempt_over(address, &check(""), Some(&settings)).await
    };
    assert_eq!(attempt(&[b"h2", b"http/1.1"]).await, Ok(()));
    let refused = "the endpoint does not agree to HTTP/2 in the TLS handshake";
    assert_eq!(attempt(&[]).await, Err(refused.into()));
    let told = attempt(&[b"http/1.1"]).await.unwrap_err();
    assert!(told.starts_with("the TLS handshake failed"), "{told}");
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let new = |check: &GrpcCheck, endpoint: &str| Question::new(check, endpoint, false, PATIENCE).map(drop);
    let host = |host: &str| GrpcCheck { host: Some(host.into()), ..GrpcCheck::default() };
    assert_eq!(new(&host("a b"), "site"), Err("the host \"a b\" cannot be asked for".into()));
    let fields = vec![("x".to_owned(), "a\nb".to_owned())];
    let refused = new(&GrpcCheck { fields, ..GrpcCheck::default() }, "site");
    assert_eq!(refused, Err("the field \"x\" cannot be sent".into()));
    assert_eq!(new(&GrpcCheck::default(), "[::1]:50051"), Ok(()));
}
