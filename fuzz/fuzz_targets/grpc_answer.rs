//! Answers of services that filters call by gRPC: no panic, nothing breaks out of a field, and a request that passes is one that was
//! allowed.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use model::fields::{Span, is_field_value, is_token};
use model::filter::FilterUse;
use model::{Facts, Name, RequestHead, ResponseHead, Scheme, Version};
use plan::filter::{Chain, Flow, Found, Need, Notes, Reply, ResponseSource, ResponseView, Turn};
use serde_json::{Value, json};
use wire::grpc::unary;

fn chain(name: &str, settings: Value) -> Chain {
    Chain::compile(&[FilterUse { name: name.into(), settings, when: None, calls: Vec::new() }], None)
        .expect("good settings")
}

static CHAINS: LazyLock<[Chain; 2]> = LazyLock::new(|| {
    let limits = json!({ "cluster": "a", "domain": "d", "descriptors": [{ "k": "v" }], "headers": true, "x_ratelimit_headers": true });
    [chain("ext_authz", json!({ "cluster": "a", "trusted_headers": ["x-user"] })), chain("rate_limit_service", limits)]
});

fuzz_target!(|input: &[u8]| {
    if let Ok(message) = unary::answer(Some(b"application/grpc-web"), None, input) {
        assert!(message.len() + 10 <= input.len());
    }
    let (listener, peer) = (Name::from("web"), "192.0.2.7:40000".parse::<std::net::SocketAddr>().expect("an address"));
    let facts = Facts {
        peer,
        client: peer.ip(),
        local: peer,
        scheme: Scheme::Http,
        tls: None,
        sender: None,
        listener: &listener,
        request_id: "",
        user: None,
    };
    for chain in &*CHAINS {
        let mut head = RequestHead::default();
        let start = head.fields.load(b"GET/?a=b");
        head.set_line(Span::new(start, start + 3), Span::new(start + 3, start + 8), Version::Http11);
        let (mut notes, mut scratch) = (Notes::default(), Vec::new());
        let mut turn = Turn {
            facts: &facts,
            now: std::time::Instant::now(),
            wall_clock: &|| Duration::from_secs(1),
            chance: &mut || 7,
            notes: &mut notes,
            scratch: &mut scratch,
            is_rehearsal: false,
        };
        assert!(matches!(chain.on_request(&mut head, &mut turn), Flow::Need(Need::Grpc(_))));
        let reply = Reply { head: ResponseHead::default(), body: input.to_vec() };
        match chain.resume(&mut 0, Found::Call(Ok(Box::new(reply))), &mut head, &mut turn) {
            Flow::Continue | Flow::Respond(_) => {}
            other => panic!("{other:?}"),
        }
        let mut response = ResponseHead::default();
        let view = ResponseView {
            request: &head,
            cluster: None,
            endpoint: None,
            source: ResponseSource::Endpoint,
            elapsed: <_>::default(),
        };
        chain.on_response(&mut response, &view, &mut turn);
        for field in head.fields.iter().chain(response.fields.iter()) {
            assert!(is_token(field.name) && is_field_value(field.value));
            assert!(!field.known.is_hop_by_hop());
        }
    }
});
