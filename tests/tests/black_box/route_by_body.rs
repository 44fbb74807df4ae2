//! Routes by values in the body of a request: it is held only for them, and sent whole to the endpoint of the route.

use super::harness::http2::{Client, request};
use super::harness::origin::ok;
use super::harness::{Origin, Peer, Setup, http3};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

/// Says its name and the length of the body.
fn named(name: &'static str) -> Origin {
    Origin::answering(move |request| ok(&format!("{name} {}", request.text().len())))
}

fn setup(origins: &[Origin]) -> Setup {
    let [rest, big, form, call] = origins else { panic!("four") };
    let cluster = |name: &str, origin: &Origin| format!("{name}: {{ endpoints: [\"{}\"] }}", origin.address());
    let api = "path: { prefix: /v1 }, method: POST";
    Setup::to(rest)
        .route_before(format!(
            "{{ name: big, match: {{ {api}, body: {{ json: {{ /model: {{ regex: \"big-.*\" }}, /stream: {{ absent: true }} }} }} }}, cluster: big }}"
        ))
        .route_before(format!("{{ name: form, match: {{ {api}, body: {{ form: {{ grant: \"a b\" }}, max: 64 }} }}, cluster: form }}"))
        .route_before(format!("{{ name: call, match: {{ {api}, body: {{ grpc: {{ \"3.1\": \"7\" }} }} }}, cluster: call }}"))
        .cluster_more(cluster("big", big))
        .cluster_more(cluster("form", form))
        .cluster_more(cluster("call", call))
}

fn origins() -> [Origin; 4] {
    ["rest", "big", "form", "call"].map(named)
}

fn post(body: &[u8], fields: &str) -> Vec<u8> {
    let head = format!("POST /v1/x HTTP/1.1\r\nHost: test\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[test]
fn a_value_of_the_body_selects_the_route_over_every_version() {
    let origins = origins();
    let site = site(setup(&origins).listener_more(CLEAR), 1);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    for (body, wanted) in [
        (&b"{\"model\": \"big-1\", \"n\": [1, {}]}"[..], "big"),
        (b"{\"model\": \"big-1\", \"stream\": true}", "rest"),
        (b"{\"model\": \"small\"}", "rest"),
        (b"{\"model\": \"small\", \"model\": \"big-2\"}", "big"),
        (b"{\"model\": \"big-1\"", "rest"),
        (b"x=1&grant=a+b", "form"),
        (b"grant=a%20b", "form"),
        (b"\0\0\0\0\x04\x1a\x02\x08\x07", "call"),
        (b"\x01\0\0\0\x04\x1a\x02\x08\x07", "rest"),
        (b"", "rest"),
    ] {
        let (shown, wanted) = (String::from_utf8_lossy(body), format!("{wanted} {}", body.len()));
        assert_eq!(first.ask(post(body, "")).text(), wanted, "{shown}");
        let chunked = [
            format!(
                "POST /v1/x HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n",
                body.len().max(1)
            )
            .as_bytes(),
            if body.is_empty() { b" " } else { body },
            b"\r\n0\r\n\r\n",
        ]
        .concat();
        if !body.is_empty() {
            assert_eq!(first.ask(chunked).text(), wanted, "chunked {shown}");
        }
        assert_eq!(second.ask(request("POST", "/v1/x"), body).text(), wanted, "h2 {shown}");
        assert_eq!(third.ask(http3::request("POST", "/v1/x"), body).text(), wanted, "h3 {shown}");
    }
    assert_eq!(first.get("/v1/x").text(), "rest 0", "another method has no such route");
    site.product.record("one by its model", |record| record["route"] == "big");
}

#[test]
fn a_body_that_is_encoded_or_too_long_holds_no_condition() {
    let origins = origins();
    let product = setup(&origins).start();
    let mut peer = product.connect();
    let model = b"{\"model\": \"big-1\"}";
    assert_eq!(peer.ask(post(model, "Content-Encoding: gzip\r\n")).text(), "rest 18");
    let long = [b"grant=a+b&".to_vec(), vec![b'x'; 64]].concat();
    assert_eq!(peer.ask(post(&long, "")).text(), "rest 74", "beyond its own `max`");
    let huge = [&model[..], &vec![b' '; 70_000]].concat();
    assert_eq!(peer.ask(post(&huge, "")).text(), "rest 70018");
    // Its length is not known ahead, and what is read cannot be given back.
    let endless = format!(
        "POST /v1/x HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        70_000,
        "x".repeat(70_000)
    );
    assert_eq!(product.connect().ask(endless).status(), 413);
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let origins = origins();
    let product = setup(&origins).start();
    let mut peer = product.connect();
    peer.send("POST /v1/x HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 18\r\n\r\n");
    assert_eq!(peer.head().status(), 100);
    peer.send("{\"model\": \"big-1\"}");
    assert_eq!(peer.response().text(), "big 18");
    assert_eq!(peer.get("/plain").text(), "rest 0");
}
