//! Callbacks and session cookies of strangers before the filter `oidc`: no panic, nobody is let in, no code is redeemed for a login that
//! was not begun, and no answer leads to another host than the provider's.
#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use model::fields::Span;
use model::filter::FilterUse;
use model::{Facts, FieldName, Name, RequestHead, Scheme, Version};
use plan::filter::{Chain, Flow, Notes, Turn};
use serde_json::json;

/// One key, which has signed nothing here.
const JWKS: &str =
    r#"{"keys":[{"kty":"OKP","kid":"o","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

static CHAIN: LazyLock<Chain> = LazyLock::new(|| {
    let settings = json!({
        "issuer": "https://login.example", "cluster": "login", "client": { "id": "shop" },
        "session": { "keys_file": { "name": "keys", "text": "0123456789abcdef0123456789abcdef" } },
        "endpoints": {
            "authorization_url": "https://login.example/auth", "token_url": "https://login.example/token",
            "end_session_url": "https://login.example/end", "keys_file": { "name": "jwks", "text": JWKS },
        },
    });
    let one = FilterUse { name: "oidc".into(), settings, when: None, calls: Vec::new() };
    Chain::compile(&[one], None).expect("good settings")
});

fuzz_target!(|input: &[u8]| {
    // The first line is the target, or the query of the callback, and each of the others a field `cookie`.
    let mut lines = input.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let target = if first.starts_with(b"/") { first.to_vec() } else { [b"/oauth2/callback?", first].concat() };
    let mut head = RequestHead::default();
    let start = head.fields.load(b"GET");
    let method = Span::new(start, start + 3);
    let start = head.fields.load(&target);
    let span = Span::new(start, start + target.len());
    head.set_line(method, span, Version::Http11);
    head.receive_target(span);
    let name = |text| FieldName::new(text).expect("a name");
    head.fields.append(&name("host"), b"shop.example");
    head.fields.append(&name("accept"), b"text/html");
    lines.for_each(|line| head.fields.append(&name("cookie"), line));
    let (listener, peer) = (Name::from("web"), "192.0.2.7:40000".parse::<std::net::SocketAddr>().expect("an address"));
    let facts = Facts {
        peer,
        client: peer.ip(),
        local: peer,
        scheme: Scheme::Https,
        tls: None,
        sender: None,
        listener: &listener,
        request_id: "",
        user: None,
    };
    let (mut scratch, mut notes, mut chance) = (Vec::new(), Notes::default(), || 7);
    let mut turn = Turn {
        facts: &facts,
        now: std::time::Instant::now(),
        wall_clock: &|| Duration::from_secs(2_000_000_000),
        chance: &mut chance,
        notes: &mut notes,
        scratch: &mut scratch,
        is_rehearsal: false,
    };
    let Flow::Respond(answer) = CHAIN.on_request(&mut head, &mut turn) else { panic!("let in, or asked for") };
    assert!(matches!(answer.status, 302 | 400 | 403), "{}", answer.status);
    for (name, value) in &answer.fields {
        assert!(value.bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{name}");
        assert!(name != "location" || value.starts_with("https://login.example/"), "{value}");
    }
    assert_eq!(notes.user(), None);
});
