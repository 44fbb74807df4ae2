//! Answers of services that filters call by gRPC: no panic, nothing breaks out of a field, and a request that passes is one that was
//! allowed.
#![no_main]

use std::sync::LazyLock;

use equipoise_fuzz::filters::{Beside, World, chain, chain_of, request, view};
use libfuzzer_sys::fuzz_target;
use model::ResponseHead;
use model::fields::{is_field_value, is_token};
use plan::filter::{Chain, Flow, Found, Need, Reply, ResponseSource};
use serde_json::json;
use wire::grpc::unary;

static CHAINS: LazyLock<[Chain; 2]> = LazyLock::new(|| {
    let limits = json!({ "cluster": "a", "domain": "d", "descriptors": [{ "k": "v" }], "headers": true, "x_ratelimit_headers": true });
    [
        chain_of([
            ("ext_authz", json!({ "cluster": "a", "trusted_headers": ["x-user"] })),
            ("set_request_header", json!({ "x-told": "{ext_authz:a} {ext_authz:a.b}" })),
        ]),
        chain("rate_limit_service", limits),
    ]
});

fuzz_target!(|input: &[u8]| {
    if let Ok(message) = unary::answer(Some(b"application/grpc-web"), None, input) {
        assert!(message.len() + 10 <= input.len());
    }
    let world = World::default();
    let facts = world.facts();
    for chain in &*CHAINS {
        let (mut head, mut beside) = (request("GET", b"/?a=b", &[]), Beside::default());
        let mut turn = beside.turn(&facts);
        assert!(matches!(chain.on_request(&mut head, &mut turn), Flow::Need(Need::Grpc(_))));
        let reply = Reply { head: ResponseHead::default(), body: input.to_vec() };
        match chain.resume(&mut 0, Found::Call(Ok(Box::new(reply))), &mut head, &mut turn) {
            Flow::Continue | Flow::Respond(_) => {}
            other => panic!("{other:?}"),
        }
        let mut response = ResponseHead::default();
        let view = view(&head, ResponseSource::Endpoint);
        chain.on_response(&mut response, &view, &mut turn);
        for field in head.fields.iter().chain(response.fields.iter()) {
            assert!(is_token(field.name) && is_field_value(field.value));
            assert!(!field.known.is_hop_by_hop());
        }
    }
});
