//! What providers answer about tokens and with tokens: no panic, no token is good that is not active, and no answer writes a field of its own.
#![no_main]

use std::sync::LazyLock;

use equipoise_fuzz::filters::{Beside, World, chain, request};
use libfuzzer_sys::fuzz_target;
use model::{FieldName, RequestHead, ResponseHead};
use plan::filter::{Chain, Flow, Found, Need, Reply};
use serde_json::{Value, json};

static INTROSPECTION: LazyLock<Chain> = LazyLock::new(|| {
    let file = json!({ "name": "file", "text": "client:secret" });
    let settings = json!({
        "cluster": "login", "path": "/i", "credentials_file": file, "cache_time": "1ms", "claim_headers": { "x-user": "sub" },
    });
    chain("introspection", settings)
});

fuzz_target!(|input: &[u8]| {
    // The first byte says what was asked, and the rest is the answer.
    let Some((kind, body)) = input.split_first() else { return };
    let is_introspection = kind % 2 == 0;
    let fresh;
    let asked = if is_introspection {
        &*INTROSPECTION
    } else {
        // A token is kept, so that each answer has a filter of its own.
        let settings = json!({ "cluster": "login", "path": "/t", "client": { "id": "a", "secret": "b" } });
        fresh = chain("client_credentials", settings);
        &fresh
    };
    let mut head = request("GET", b"/", &[("authorization", b"Bearer theirs")]);
    let (world, mut beside, mut place) = (World::default(), Beside::default(), 0);
    let facts = world.facts();
    let mut turn = beside.turn(&facts);
    let flow = asked.on_request_from(&mut place, &mut head, &mut turn);
    let Flow::Need(Need::Apart(apart)) = flow else {
        // Without a cache no other request shares the answer.
        let flow = asked.resume(&mut place, Found::Call(Ok(reply(body))), &mut head, &mut turn);
        return judge(flow, is_introspection, &head, body);
    };
    apart.taker.take(Ok(reply(body)), turn.now);
    let flow = asked.resume(&mut place, Found::Now, &mut head, &mut turn);
    judge(flow, is_introspection, &head, body);
});

fn reply(body: &[u8]) -> Box<Reply> {
    let mut head = ResponseHead::default();
    head.status = 200;
    Box::new(Reply { head, body: body.to_vec() })
}

fn judge(flow: Flow, is_introspection: bool, head: &RequestHead, body: &[u8]) {
    let named = |name: &str| head.fields.get(&FieldName::new(name).expect("a name")).unwrap_or_default();
    match flow {
        Flow::Continue if is_introspection => {
            let said: Value = serde_json::from_slice(body).expect("JSON");
            assert_eq!(said["active"], true);
        }
        Flow::Continue => {
            let token = named("authorization").strip_prefix(b"Bearer ").expect("a token");
            assert!(!token.is_empty() && token.iter().all(u8::is_ascii_graphic));
        }
        Flow::Respond(answer) => assert!(matches!(answer.status, 401 | 503), "{}", answer.status),
        other => panic!("{other:?}"),
    }
}
