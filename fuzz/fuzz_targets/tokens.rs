//! Tokens and key sets of strangers: no panic, and no token is good that the key did not sign.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use plan::jose::{Algorithms, Claims, KeySet, Rules, Token, Trust};

/// A shared secret, a curve and Ed25519, none of which has signed anything here.
const KEYS: &str = r#"{"keys":[
    {"kty":"oct","kid":"s","k":"VGhpcyBzZWNyZXQgaXMgbG9uZyBlbm91Z2ggZm9yIEhTMjU2IGFuZCBIUzM4NCBhbmQgSFM1MTIuLi4"},
    {"kty":"EC","kid":"e","crv":"P-256","x":"axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY","y":"T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"},
    {"kty":"OKP","kid":"o","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

static OURS: LazyLock<KeySet> = LazyLock::new(|| KeySet::parse(KEYS, Trust::File).expect("three keys").0);

fuzz_target!(|input: &[u8]| {
    // The first byte says what the rest is.
    let Some((kind, rest)) = input.split_first() else { return };
    match kind % 3 {
        0 => {
            if let Ok(token) = Token::parse(rest) {
                assert!(OURS.verify(&token, Algorithms::ALL).is_err(), "a forged token");
            }
        }
        1 => {
            let Ok(text) = std::str::from_utf8(rest) else { return };
            for trust in [Trust::File, Trust::Network] {
                let Ok((keys, _)) = KeySet::parse(text, trust) else { continue };
                assert!(!keys.keys().is_empty());
                for key in keys.keys() {
                    let _ = key.verify(plan::jose::Algorithm::Es256, b"message", rest);
                }
            }
        }
        _ => {
            let Some(claims) = Claims::from_json(rest) else { return };
            let rules = Rules {
                issuers: Box::new(["us".to_owned()]),
                audiences: Box::new(["shop".to_owned()]),
                leeway: 60,
                needs_expiry: true,
                age_max: Some(60),
            };
            if let Ok(lifetime) = rules.check(&claims, 1_000) {
                assert!(lifetime.ends > 1_000);
                assert_eq!(claims.text("iss").as_deref(), Some("us"));
            }
            let _ = (claims.text("a.b"), claims.has("scope", &"x".into()), claims.weight());
        }
    }
});
