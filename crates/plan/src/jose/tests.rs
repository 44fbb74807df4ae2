use model::base64::encode_url;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::testing::Signer;
use super::{Algorithm, Algorithms, Claims, KeySet, Lifetime, Refusal, Rules, Token, Trust};

fn keys(text: &str) -> KeySet {
    KeySet::parse(text, Trust::File).unwrap().0
}

fn verify(keys: &KeySet, token: &str) -> Result<Claims, Refusal> {
    keys.verify(&Token::parse(token.as_bytes())?, Algorithms::ALL)
}

fn set(signers: &[&Signer]) -> KeySet {
    keys(&json!({ "keys": signers.iter().map(|signer| signer.jwk()).collect::<Vec<_>>() }).to_string())
}

#[test]
fn every_algorithm_verifies_what_its_key_has_signed_and_nothing_else() {
    let claims = json!({ "sub": "ann", "n": 1 });
    for algorithm in Algorithm::ALL {
        let (signer, other) = (Signer::new(algorithm, "one"), Signer::new(algorithm, "two"));
        let token = signer.sign(&claims);
        let found = verify(&set(&[&signer]), &token).unwrap();
        assert_eq!(found.text("sub").as_deref(), Some("ann"), "{algorithm:?}");
        let bytes = token.as_bytes();
        let dot = token.rfind('.').unwrap();
        for at in [bytes.len() - 2, dot + 1, dot + 20] {
            let mut forged = bytes.to_vec();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let refusal = verify(&set(&[&signer]), std::str::from_utf8(&forged).unwrap()).unwrap_err();
            assert!(matches!(refusal, Refusal::Signature | Refusal::Malformed), "{algorithm:?} {refusal:?}");
        }
        let swapped = format!("{}.{}", encode_url(br#"{"sub":"eve"}"#), &token[dot + 1..]);
        let header = token.split('.').next().unwrap();
        assert_eq!(verify(&set(&[&signer]), &format!("{header}.{swapped}")), Err(Refusal::Signature));
        assert_eq!(verify(&set(&[&other]), &token), Err(Refusal::UnknownKey), "{algorithm:?}");
    }
}

#[test]
fn public_keys_in_pem_verify_what_their_type_can() {
    let claims = json!({ "sub": "ann" });
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.as_str().starts_with("HS")) {
        let signer = Signer::new(algorithm, "any");
        let text = format!("# keys\n{}\n{}", Signer::es256("x").pem(), signer.pem());
        let set = keys(&text);
        assert!(verify(&set, &signer.sign(&claims)).is_ok(), "{algorithm:?}");
        for other in Algorithm::ALL {
            let is_rsa = |algorithm: Algorithm| matches!(algorithm.as_str().as_bytes()[0], b'R' | b'P');
            let fits = other == algorithm || (is_rsa(other) && is_rsa(algorithm));
            assert_eq!(set.keys()[1].allows(other), fits, "{algorithm:?} {other:?}");
        }
    }
}

#[test]
fn none_is_refused_in_every_spelling_and_so_is_a_missing_signature() {
    let (signer, payload) = (Signer::rs256("a"), encode_url(br#"{"sub":"eve"}"#));
    let set = set(&[&signer]);
    for name in ["none", "None", "NONE", "nOnE", "", "HS1", "RS1", "rs256", "RSA-OAEP"] {
        let header = encode_url(format!("{{\"alg\":\"{name}\"}}").as_bytes());
        for signature in ["", "AAAA"] {
            assert_eq!(verify(&set, &format!("{header}.{payload}.{signature}")), Err(Refusal::Algorithm), "{name}");
        }
    }
    for header in [r#"{"alg":null}"#, r#"{"alg":["RS256"]}"#, "{}", r#"{"ALG":"RS256"}"#] {
        assert_eq!(verify(&set, &format!("{}.{payload}.AAAA", encode_url(header.as_bytes()))), Err(Refusal::Malformed));
    }
    let token = signer.sign(&json!({ "sub": "ann" }));
    let unsigned = &token[..=token.rfind('.').unwrap()];
    assert_eq!(verify(&set, unsigned), Err(Refusal::Malformed));
}

#[test]
fn a_public_key_is_no_shared_secret_whatever_form_it_is_taken_in() {
    let signer = Signer::rs256("a");
    let jwk = signer.jwk();
    let modulus = jwk["n"].as_str().unwrap();
    for secret in [
        signer.pem(),
        signer.pem().trim_end().to_owned(),
        signer.jwks(),
        jwk.to_string(),
        modulus.to_owned(),
        String::from_utf8_lossy(&model::base64::decode_url(modulus.as_bytes()).unwrap()).into_owned(),
    ] {
        let forged = Signer::with_secret(secret.as_bytes(), "a").sign(&json!({ "sub": "eve" }));
        assert_eq!(verify(&set(&[&signer]), &forged), Err(Refusal::Algorithm));
        assert!(verify(&keys(&signer.pem()), &forged).is_err());
    }
}

#[test]
fn a_token_cannot_use_a_key_with_an_algorithm_that_the_key_excludes() {
    let mut jwk = Signer::rs256("a").jwk();
    jwk["alg"] = json!("PS256");
    let set = keys(&jwk.to_string());
    let claims = json!({ "sub": "ann" });
    assert_eq!(verify(&set, &Signer::rs256("a").sign(&claims)), Err(Refusal::Algorithm));
    assert!(verify(&set, &Signer::rs256("a").with(Algorithm::Ps256).sign(&claims)).is_ok());
    let token = Signer::rs256("a").with(Algorithm::Ps256).sign(&claims);
    let token = Token::parse(token.as_bytes()).unwrap();
    assert_eq!(set.verify(&token, Algorithms::NONE.with(Algorithm::Rs256)), Err(Refusal::Algorithm));
}

#[test]
fn keys_that_a_token_brings_along_or_points_to_are_not_used() {
    let (ours, theirs) = (Signer::es256("ours"), Signer::es256("theirs"));
    let set = set(&[&ours]);
    let claims = r#"{"sub":"eve"}"#;
    let brought = json!({ "alg": "ES256", "kid": "ours", "jwk": theirs.jwk(), "jku": "http://evil.example/", "x5u": "http://evil.example/" });
    assert_eq!(verify(&set, &theirs.sign_texts(&brought.to_string(), claims)), Err(Refusal::Signature));
    for kid in ["theirs", "../../dev/null", "ours' OR '1'='1", "ours\u{0}", "OURS", ""] {
        let header = json!({ "alg": "ES256", "kid": kid }).to_string();
        assert_eq!(verify(&set, &theirs.sign_texts(&header, claims)), Err(Refusal::UnknownKey), "{kid:?}");
        assert_eq!(verify(&set, &ours.sign_texts(&header, claims)), Err(Refusal::UnknownKey), "{kid:?}");
    }
    // Without an identifier every key is tried.
    assert!(verify(&set, &ours.sign_texts(r#"{"alg":"ES256"}"#, claims)).is_ok());
}

#[test]
fn critical_extensions_and_encrypted_tokens_are_refused() {
    let signer = Signer::es256("a");
    for (header, refusal) in [
        (json!({ "alg": "ES256", "crit": ["exp"], "exp": 1 }), Refusal::Critical),
        (json!({ "alg": "ES256", "crit": [] }), Refusal::Critical),
        (json!({ "alg": "ES256", "b64": false }), Refusal::Critical),
        (json!({ "alg": "ES256", "enc": "A128GCM" }), Refusal::Critical),
        (json!({ "alg": "ES256", "kid": 1 }), Refusal::Malformed),
        (json!([{ "alg": "ES256" }]), Refusal::Malformed),
    ] {
        assert_eq!(verify(&set(&[&signer]), &signer.sign_texts(&header.to_string(), "{}")), Err(refusal), "{header}");
    }
}

#[test]
fn what_names_a_member_twice_is_refused() {
    let signer = Signer::es256("a");
    let set = set(&[&signer]);
    let twice = signer.sign_texts(r#"{"alg":"ES256"}"#, r#"{"sub":"ann","sub":"eve"}"#);
    assert_eq!(verify(&set, &twice), Err(Refusal::Malformed));
    let twice = signer.sign_texts(r#"{"alg":"none","alg":"ES256"}"#, "{}");
    assert_eq!(verify(&set, &twice), Err(Refusal::Malformed));
    assert!(KeySet::parse(r#"{"keys":[],"keys":[]}"#, Trust::File).is_err());
}

#[test]
fn what_is_no_token_is_malformed() {
    let token = Signer::es256("a").sign(&json!({}));
    let header = token.split('.').next().unwrap();
    let giant = format!("{header}.{}.AAAA", "A".repeat(1 << 20));
    let padded = token.clone() + "=";
    let spaced = token.replace('.', " .");
    let long_header =
        format!("{}.e30.AAAA", encode_url(format!("{{\"alg\":\"ES256\",\"x\":\"{}\"}}", "y".repeat(5000)).as_bytes()));
    for bad in [
        "",
        ".",
        "..",
        "...",
        "a.b",
        "a.b.c",
        "a.b.c.d.e",
        &giant,
        &padded,
        &spaced,
        &long_header,
        &format!("{token}."),
    ] {
        assert_eq!(Token::parse(bad.as_bytes()), Err(Refusal::Malformed), "{}", &bad[..bad.len().min(40)]);
    }
    let signer = Signer::es256("a");
    for claims in ["", "[]", "null", "\"sub\"", "{", "{}{}", "\u{feff}{}"] {
        assert_eq!(
            verify(&set(&[&signer]), &signer.sign_texts(r#"{"alg":"ES256"}"#, claims)),
            Err(Refusal::Malformed),
            "{claims}"
        );
    }
}

#[test]
fn keys_that_cannot_verify_are_left_out_and_the_reason_is_reported_without_them() {
    let good = Signer::es256("good").jwk();
    let with = |changes: Value| {
        let mut jwk = Signer::rs256("a").jwk();
        jwk.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        jwk
    };
    for (jwk, why) in [
        (json!(7), "it is not an object"),
        (json!({}), "its type (`kty`) is not supported"),
        (with(json!({ "use": "enc" })), "it is not for signatures"),
        (with(json!({ "key_ops": ["encrypt"] })), "it is not for verification"),
        (with(json!({ "alg": "RSA-OAEP" })), "its algorithm is not supported"),
        (with(json!({ "alg": "none" })), "its algorithm is not supported"),
        (with(json!({ "alg": "HS256" })), "its algorithm does not fit its type or length"),
        (with(json!({ "n": "AQAB" })), "an RSA key has 2048 to 8192 bits"),
        (with(json!({ "n": "!" })), "`n` is missing, too long, or not base64url"),
        (with(json!({ "n": "A".repeat(2000) })), "`n` is missing, too long, or not base64url"),
        (with(json!({ "e": null })), "`e` is missing, too long, or not base64url"),
        (json!({ "kty": "EC", "crv": "secp256k1", "x": "", "y": "" }), "its curve is not supported"),
        (
            json!({ "kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB" }),
            "`x` and `y` do not have the length of the curve",
        ),
        (
            json!({ "kty": "EC", "crv": "P-256", "x": encode_url(&[1; 32]), "y": encode_url(&[1; 32]) }),
            "it is not a point of its curve",
        ),
        (json!({ "kty": "OKP", "crv": "X25519", "x": encode_url(&[1; 32]) }), "its curve is not supported"),
        (json!({ "kty": "oct", "k": encode_url(&[7; 31]) }), "its algorithm does not fit its type or length"),
    ] {
        let (set, left_out) = KeySet::parse(&json!({ "keys": [jwk, good] }).to_string(), Trust::File).unwrap();
        assert_eq!((set.keys().len(), left_out), (1, vec![format!("key 1: {why}")]));
    }
    let secret = json!({ "keys": [Signer::hs256("s").jwk()] }).to_string();
    assert!(KeySet::parse(&secret, Trust::File).is_ok());
    let told = "there is no key that can verify tokens: key 1: a shared secret is accepted from files only";
    assert_eq!(KeySet::parse(&secret, Trust::Network).map(|_| ()), Err(told.to_owned()));
    let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for bad in [
        "",
        "{}",
        "{\"keys\":7}",
        "{\"keys\":[]}",
        "[]",
        "-----BEGIN PUBLIC KEY-----",
        private,
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
    ] {
        assert!(KeySet::parse(bad, Trust::File).is_err(), "{bad}");
    }
}

#[test]
fn a_shared_secret_never_stands_in_what_is_shown() {
    let set = keys(&Signer::with_secret(&[b'S'; 64], "id").jwks());
    let shown = format!("{set:?}");
    assert!(shown.contains("id") && !shown.contains("SSSS") && !shown.contains("83, 83"), "{shown}");
}

fn rules() -> Rules {
    Rules {
        issuers: Box::new(["us".to_owned(), "them".to_owned()]),
        audiences: Box::new(["shop".to_owned()]),
        leeway: 60,
        needs_expiry: true,
        age_max: Some(600),
    }
}

fn claims(value: &Value) -> Claims {
    Claims::from_json(value.to_string().as_bytes()).unwrap()
}

#[test]
fn a_token_is_good_from_its_begin_to_its_end_and_for_whom_it_is() {
    const NOW: u64 = 1_000_000;
    let check = |changes: Value| {
        let mut all = json!({ "iss": "us", "aud": ["x", "shop"], "exp": NOW + 100, "nbf": NOW - 5, "iat": NOW - 5 });
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        rules().check(&claims(&all), NOW)
    };
    assert_eq!(check(json!({})), Ok(Lifetime { ends: NOW + 160 }));
    assert_eq!(check(json!({ "aud": "shop", "iss": "them", "exp": NOW + 10_000 })), Ok(Lifetime { ends: NOW + 655 }));
    for (changes, refusal) in [
        (json!({ "exp": NOW - 60 }), Refusal::Expired),
        (json!({ "exp": 0 }), Refusal::Expired),
        (json!({ "exp": -1 }), Refusal::Expired),
        (json!({ "exp": "never" }), Refusal::Malformed),
        (json!({ "exp": null }), Refusal::Malformed),
        (json!({ "nbf": NOW + 61 }), Refusal::NotYet),
        (json!({ "nbf": 1e300 }), Refusal::NotYet),
        (json!({ "iat": NOW + 61 }), Refusal::NotYet),
        (json!({ "iat": NOW - 660 }), Refusal::TooOld),
        (json!({ "iss": "US" }), Refusal::Issuer),
        (json!({ "iss": ["us"] }), Refusal::Issuer),
        (json!({ "iss": null }), Refusal::Issuer),
        (json!({ "aud": "shops" }), Refusal::Audience),
        (json!({ "aud": [] }), Refusal::Audience),
        (json!({ "aud": [["shop"]] }), Refusal::Audience),
        (json!({ "aud": "x shop" }), Refusal::Audience),
        (json!({ "aud": { "shop": 1 } }), Refusal::Audience),
    ] {
        assert_eq!(check(changes.clone()), Err(refusal), "{changes}");
    }
    for (changes, is_good) in [
        (json!({ "exp": NOW - 59 }), true),
        (json!({ "nbf": NOW + 60 }), true),
        (json!({ "exp": 1e300 }), true),
        (json!({ "exp": NOW as f64 - 59.5 }), false),
    ] {
        assert_eq!(check(changes.clone()).is_ok(), is_good, "{changes}");
    }
    let without = claims(&json!({ "iss": "us", "aud": "shop" }));
    assert_eq!(rules().check(&without, NOW), Err(Refusal::NoExpiry));
    let lenient = Rules { needs_expiry: false, age_max: None, ..rules() };
    assert_eq!(lenient.check(&without, NOW), Ok(Lifetime { ends: u64::MAX }));
    assert_eq!(Rules { needs_expiry: false, ..rules() }.check(&without, NOW), Err(Refusal::TooOld));
}

#[test]
fn claims_are_found_by_name_or_along_dots_and_compared_by_type() {
    let all = claims(&json!({
        "scope": "read write", "groups": ["a", "b,c"], "a.b": 1, "a": { "b": 2, "c": { "d": true } }, "n": 1.5, "o": {}, "t": "read write",
    }));
    for (name, value, has) in [
        ("scope", json!("read"), true),
        ("scope", json!("read write"), false),
        ("scope", json!("rea"), false),
        ("t", json!("read"), false),
        ("groups", json!("a"), true),
        ("groups", json!("b"), false),
        ("a.b", json!(1), true),
        ("a.b", json!("1"), false),
        ("a.c.d", json!(true), true),
        ("a.c.e", json!(true), false),
        ("groups.0", json!("a"), false),
        ("", json!(""), false),
    ] {
        assert_eq!(all.has(name, &value), has, "{name} {value}");
    }
    let text = |name: &str| all.text(name);
    assert_eq!(
        (text("groups").as_deref(), text("a.c.d").as_deref(), text("n").as_deref(), text("o")),
        (Some("a"), Some("true"), Some("1.5"), None)
    );
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_pass(text in "[A-Za-z0-9_.=-]{0,200}", keys_text in "(\\PC|[{}\\[\\]\":,]){0,80}") {
        let set = keys(&Signer::hs256("s").jwks());
        if let Ok(token) = Token::parse(text.as_bytes()) {
            prop_assert!(set.verify(&token, Algorithms::ALL).is_err());
        }
        let _ = KeySet::parse(&keys_text, Trust::File);
    }

    #[test]
    fn a_token_with_any_byte_changed_is_refused(at: prop::sample::Index, byte: u8) {
        let signer = Signer::hs256("s");
        let mut token = signer.sign(&json!({ "sub": "ann", "exp": 7 })).into_bytes();
        let at = at.index(token.len());
        prop_assume!(token[at] != byte);
        token[at] = byte;
        let verified = Token::parse(&token).and_then(|token| keys(&signer.jwks()).verify(&token, Algorithms::ALL));
        prop_assert!(verified.is_err());
    }
}
