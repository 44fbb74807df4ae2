//! gRPC-Web: calls of browsers, by HTTP/1.1, to endpoints that speak gRPC.

use http::{HeaderMap, HeaderValue, Response};

use super::harness::http2_origin::{Http2Origin, Rules};
use super::harness::{Message, Product, Setup};

fn start(origin: &Http2Origin, more: &str) -> Product {
    Setup::to_addresses(&[origin.address()]).cluster("http_versions: [h2]").cluster(more).workers(1).start()
}

/// A message of gRPC: not compressed, its length, itself.
fn message(text: &str) -> Vec<u8> {
    [&[0][..], &(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn head() -> Response<()> {
    Response::builder().header("content-type", "application/grpc+proto").body(()).expect("a head")
}

fn ask(product: &Product, content_type: &str) -> Message {
    let body = message("a pear");
    let head = format!(
        "POST /shop.Cart/Add HTTP/1.1\r\nHost: shop.example\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    product.connect().ask([head.as_bytes(), &body].concat())
}

#[test]
fn a_call_of_grpc_web_is_one_of_grpc_to_the_endpoint_and_its_trailers_end_the_body() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let Ok((body, _)) = asked.read().await else { return };
            let mut speech = asked.begin(head());
            speech.say(body).await;
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            speech.end_with(trailers);
        })
    });
    let product = start(&origin, "grpc_web: true");
    let answer = ask(&product, "application/grpc-web+proto");
    assert_eq!((answer.status(), answer.field("content-type")), (200, Some("application/grpc-web+proto")));
    let trailers = b"\x80\0\0\0\x10grpc-status: 0\r\n";
    assert_eq!(answer.body, [&message("a pear")[..], trailers].concat());
    assert!(answer.trailers.is_empty());
    let asked = origin.only_head();
    let field = |name: &str| asked.headers().get(name).map(|value| value.to_str().expect("text"));
    assert_eq!((field("content-type"), field("te")), (Some("application/grpc+proto"), Some("trailers")));
}

#[test]
fn a_status_alone_stays_in_the_head_and_faults_are_statuses_too() {
    let origin = Http2Origin::start(Rules::default(), |mut asked| {
        Box::pin(async move {
            let _ = asked.read().await;
            if asked.index > 0 {
                return asked.respond.send_reset(h2::Reason::INTERNAL_ERROR);
            }
            let mut head = head();
            head.headers_mut().insert("grpc-status", HeaderValue::from_static("5"));
            asked.end(head);
        })
    });
    let product = start(&origin, "grpc_web: true");
    let answer = ask(&product, "application/grpc-web");
    assert_eq!((answer.field("grpc-status"), answer.body.len()), (Some("5"), 0));
    assert_eq!(answer.field("content-type"), Some("application/grpc-web+proto"));
    let failed = ask(&product, "application/grpc-web");
    assert_eq!((failed.status(), failed.field("grpc-status")), (200, Some("14")));
    assert_eq!(failed.field("content-type"), Some("application/grpc-web"));
    product.flagged("UR");
}

#[test]
fn what_is_not_asked_for_is_not_done() {
    let origin = Http2Origin::start(Rules::default(), |asked| Box::pin(asked.answer("plain")));
    let product = start(&origin, "grpc_web: false");
    assert_eq!(ask(&product, "application/grpc-web").text(), "plain");
    let product = start(&origin, "grpc_web: true");
    assert_eq!(ask(&product, "application/json").text(), "plain");
    let types: Vec<_> = origin.heads().iter().map(|head| head.headers()["content-type"].clone()).collect();
    assert_eq!(types, ["application/grpc-web", "application/json"]);
}

#[test]
fn an_endpoint_whose_calls_end_with_unavailable_is_left_out_as_one_that_answers_503() {
    let ending = |status: &'static str| {
        Http2Origin::start(Rules::default(), move |mut asked| {
            Box::pin(async move {
                let _ = asked.read().await;
                let mut head = head();
                head.headers_mut().insert("grpc-status", HeaderValue::from_static(status));
                asked.end(head);
            })
        })
    };
    // NOT_FOUND is what a client brings about.
    let (ill, well) = (ending("14"), ending("5"));
    let product = Setup::to_addresses(&[ill.address(), well.address()])
        .cluster("http_versions: [h2]")
        .cluster("grpc_web: true")
        .cluster("passive_health: { consecutive_5xx: 2, ejected_max: 50%, ejection_time: 10m, ejection_time_max: 10m }")
        .workers(1)
        .start();
    let statuses: Vec<_> =
        (0..12).map(|_| ask(&product, "application/grpc-web").field("grpc-status").map(str::to_owned)).collect();
    let failed = statuses.iter().filter(|status| status.as_deref() == Some("14")).count();
    assert_eq!((failed, ill.streams(), well.streams()), (2, 2, 10), "{statuses:?}");
}
