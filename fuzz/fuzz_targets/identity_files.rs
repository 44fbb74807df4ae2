//! Files with API keys and with secrets of signed URLs: no panic, and whatever they hold, a request without a key or signature does not pass.
#![no_main]

use equipoise_fuzz::filters::{Beside, World, request};
use libfuzzer_sys::fuzz_target;
use model::filter::FilterUse;
use plan::filter::{Chain, Flow};
use serde_json::json;

fuzz_target!(|input: &[u8]| {
    // The first byte says what the rest is.
    let Some((kind, rest)) = input.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let file = json!({ "name": "file", "text": text });
    let (name, settings, status) = match kind % 3 {
        0 => ("api_key", json!({ "file": file }), 401),
        1 => ("signed_url", json!({ "secret_file": file }), 403),
        _ => {
            let message = "{query_param:expires}{path}{client_ip} {secret}";
            let old = json!({ "secret_file": file, "algorithm": "md5", "signature": "md5", "message": message });
            ("signed_url", old, 403)
        }
    };
    let one = FilterUse { name: name.into(), settings, when: None, calls: Vec::new() };
    let Ok(chain) = Chain::compile(&[one], None) else { return };
    let mut head = request("GET", b"/a?b=c", &[]);
    let (world, mut beside) = (World::default(), Beside::default());
    let facts = world.facts();
    let flow = chain.on_request(&mut head, &mut beside.turn(&facts));
    let Flow::Respond(answer) = flow else { panic!("{name} lets it pass") };
    assert_eq!(answer.status, status);
});
