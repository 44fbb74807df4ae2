use model::base64::{decode_url, encode_url};
use serde_json::{Value, json};

use super::*;

/// Tokens and keys that jwcrypto 1.6.1 has made, and the examples of RFC 7516 appendix A.
fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors.json")).unwrap()
}

fn keys(vectors: &Value) -> DecryptionKeys {
    DecryptionKeys::parse(&vectors["keys"].to_string()).unwrap()
}

fn decrypt(keys: &DecryptionKeys, token: &str) -> Result<Vec<u8>, Refusal> {
    keys.decrypt(&Encrypted::parse(token.as_bytes())?)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

#[test]
fn the_examples_of_rfc_7516_are_decrypted() {
    for example in list(&vectors()["rfc7516"]) {
        let keys = DecryptionKeys::parse(&example["key"].to_string()).unwrap();
        let plain = decrypt(&keys, example["token"].as_str().unwrap()).unwrap();
        assert_eq!(std::str::from_utf8(&plain).unwrap(), example["plain"].as_str().unwrap());
    }
}

#[test]
fn tokens_of_another_implementation_are_decrypted_in_each_algorithm() {
    let vectors = vectors();
    let keys = keys(&vectors);
    let mut seen = Vec::new();
    for one in list(&vectors["nested"]) {
        let token = one["token"].as_str().unwrap();
        let parsed = Encrypted::parse(token.as_bytes()).unwrap();
        assert_eq!(parsed.management.as_str(), one["alg"].as_str().unwrap());
        assert_eq!(parsed.encryption.as_str(), one["enc"].as_str().unwrap());
        assert!(parsed.is_nested);
        let plain = decrypt(&keys, token).unwrap_or_else(|why| panic!("{one}: {why:?}"));
        assert_eq!(plain, vectors["inner"].as_str().unwrap().as_bytes());
        seen.push(parsed.management);
    }
    assert!(KeyManagement::ALL.iter().all(|one| seen.contains(one)));
}

#[test]
fn a_change_of_any_part_is_noticed_and_no_change_tells_more_than_another() {
    let vectors = vectors();
    let keys = keys(&vectors);
    for one in list(&vectors["nested"]) {
        let token = one["token"].as_str().unwrap();
        let parts: Vec<&str> = token.split('.').collect();
        for (place, part) in parts.iter().enumerate().skip(1).filter(|(_, part)| !part.is_empty()) {
            let bytes = decode_url(part.as_bytes()).unwrap();
            let (mut first, mut last, short) = (bytes.clone(), bytes.clone(), bytes[..bytes.len() - 1].to_vec());
            first[0] ^= 1;
            *last.last_mut().unwrap() ^= 0x80;
            for changed in [first, last, short] {
                let mut parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
                parts[place] = encode_url(&changed);
                assert_eq!(decrypt(&keys, &parts.join(".")), Err(Refusal::Decryption), "{one} {place}");
            }
            let mut parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
            parts[place].clear();
            assert_eq!(decrypt(&keys, &parts.join(".")), Err(Refusal::Decryption), "{one} {place}");
        }
        // The header is covered by the tag.
        let mut header: Value = serde_json::from_slice(&decode_url(parts[0].as_bytes()).unwrap()).unwrap();
        header["x"] = json!(1);
        let rest = &token[parts[0].len()..];
        let changed = format!("{}{rest}", encode_url(header.to_string().as_bytes()));
        assert_eq!(decrypt(&keys, &changed), Err(Refusal::Decryption), "{one}");
    }
}

#[test]
fn algorithms_that_are_unsafe_are_refused_and_so_is_compression() {
    let vectors = vectors();
    let keys = keys(&vectors);
    for one in list(&vectors["refused"]) {
        let refusal = decrypt(&keys, one["token"].as_str().unwrap()).unwrap_err();
        assert!(matches!(refusal, Refusal::Algorithm | Refusal::Critical), "{one}: {refusal:?}");
    }
}

#[test]
fn a_token_chooses_no_algorithm_that_is_not_one_of_its_key() {
    let vectors = vectors();
    let token = |management: &str| {
        let found = list(&vectors["nested"]).iter().find(|one| one["alg"] == management && one["key"] != "x25519");
        found.unwrap()["token"].as_str().unwrap().to_owned()
    };
    let relabelled = |management: &str, header: Value| {
        let token = token(management);
        format!("{}{}", encode_url(header.to_string().as_bytes()), &token[token.find('.').unwrap()..])
    };
    let keys = keys(&vectors);
    for (made, named) in [("dir", "A128KW"), ("A128KW", "dir"), ("A256GCMKW", "RSA-OAEP"), ("RSA-OAEP", "ECDH-ES")] {
        let header = json!({ "alg": named, "enc": "A256GCM", "kid": "oct256" });
        let refusal = decrypt(&keys, &relabelled(made, header)).unwrap_err();
        assert!(matches!(refusal, Refusal::Algorithm | Refusal::Decryption), "{made} {named}");
    }
    let header = json!({ "alg": "dir", "enc": "A256GCM", "kid": "other" });
    assert_eq!(decrypt(&keys, &relabelled("dir", header)), Err(Refusal::UnknownDecryptionKey));
    // A key that names its algorithm is for no other.
    let mut jwk = list(&vectors["keys"]["keys"]).iter().find(|key| key["kid"] == "oct256").unwrap().clone();
    for (only, made, is_good) in [
        ("A256KW", "A256KW", true),
        ("A256KW", "A256GCMKW", false),
        ("dir", "A256KW", false),
        ("A256GCM", "A256KW", false),
    ] {
        jwk["alg"] = json!(only);
        let keys = DecryptionKeys::parse(&jwk.to_string()).unwrap();
        assert_eq!(decrypt(&keys, &token(made)).is_ok(), is_good, "{only} {made}");
    }
    for unusable in ["HS256", "RSA-OAEP", "A128KW", "RSA1_5"] {
        jwk["alg"] = json!(unusable);
        assert!(DecryptionKeys::parse(&jwk.to_string()).is_err(), "{unusable}");
    }
}

#[test]
fn points_of_no_curve_are_refused() {
    let vectors = vectors();
    let keys = keys(&vectors);
    for (curve, x, y) in [
        ("P-256", vec![0; 32], Some(vec![0; 32])),
        ("P-256", vec![1; 32], Some(vec![1; 32])),
        ("P-256", vec![255; 32], Some(vec![255; 32])),
        ("P-256", vec![1; 66], Some(vec![1; 66])),
        ("P-384", vec![1; 48], Some(vec![1; 48])),
        ("P-256", vec![1; 32], None),
        ("X25519", vec![0; 32], None),
    ] {
        let y_text = y.as_ref().map(|y| encode_url(y));
        let kind = if curve == "X25519" { "OKP" } else { "EC" };
        let epk = json!({ "kty": kind, "crv": curve, "x": encode_url(&x), "y": y_text });
        for kid in ["p256", "x25519"] {
            let header = json!({ "alg": "ECDH-ES", "enc": "A128GCM", "kid": kid, "epk": epk });
            let token =
                format!("{}..AAAAAAAAAAAAAAAA.AAAA.AAAAAAAAAAAAAAAAAAAAAA", encode_url(header.to_string().as_bytes()));
            let refusal = decrypt(&keys, &token).unwrap_err();
            assert!(matches!(refusal, Refusal::Decryption | Refusal::Malformed), "{curve} {refusal:?}");
        }
    }
}

#[test]
fn malformed_and_huge_tokens_are_refused() {
    let good = |header: Value| {
        format!("{}..AAAAAAAAAAAAAAAA.AAAA.AAAAAAAAAAAAAAAAAAAAAA", encode_url(header.to_string().as_bytes()))
    };
    let direct = json!({ "alg": "dir", "enc": "A256GCM" });
    assert!(Encrypted::parse(good(direct.clone()).as_bytes()).is_ok());
    let with = |name: &str, value: Value| {
        let mut header = direct.clone();
        header[name] = value;
        good(header)
    };
    let long = "A".repeat(4_000);
    for (token, refusal) in [
        ("....".to_owned(), Refusal::Malformed),
        (good(direct.clone())[1..].to_owned(), Refusal::Malformed),
        (format!("{}.", good(direct.clone())), Refusal::Malformed),
        (format!("{}{}", good(direct.clone()), "A".repeat(64)), Refusal::Malformed),
        (format!("{}{}", good(direct.clone()), "A".repeat(20_000)), Refusal::Malformed),
        (good(direct.clone()).replace("..", &format!(".{}.", "A".repeat(2_000))), Refusal::Malformed),
        (with("apu", json!(long)), Refusal::Malformed),
        (with("apv", json!(1)), Refusal::Malformed),
        (with("iv", json!(long)), Refusal::Malformed),
        (with("x", json!(long.repeat(2))), Refusal::Malformed),
        (with("epk", json!("x")), Refusal::Malformed),
        (with("epk", json!({ "kty": "RSA", "crv": "P-256" })), Refusal::Malformed),
        (with("kid", json!(["a"])), Refusal::Malformed),
        (with("zip", json!("DEF")), Refusal::Critical),
        (with("crit", json!(["exp"])), Refusal::Critical),
        (with("alg", json!("none")), Refusal::Algorithm),
        (with("alg", json!("RSA1_5")), Refusal::Algorithm),
        (with("alg", json!("PBES2-HS256+A128KW")), Refusal::Algorithm),
        (with("enc", json!("none")), Refusal::Algorithm),
        (with("enc", json!(null)), Refusal::Malformed),
    ] {
        assert_eq!(Encrypted::parse(token.as_bytes()).map(drop), Err(refusal), "{}", &token[..token.len().min(80)]);
    }
}

#[test]
fn keys_are_read_from_pem_and_bad_ones_are_refused_without_being_shown() {
    let vectors = vectors();
    let both = format!("{}\n{}", vectors["rsa_pem"].as_str().unwrap(), vectors["p256_pem"].as_str().unwrap());
    let keys = DecryptionKeys::parse(&both).unwrap();
    for one in list(&vectors["nested"]).iter().filter(|one| one["key"] == "rsa" || one["key"] == "p256") {
        assert!(decrypt(&keys, one["token"].as_str().unwrap()).is_ok(), "{one}");
    }
    let jwk = |name: &str| list(&vectors["keys"]["keys"]).iter().find(|key| key["kid"] == name).unwrap().clone();
    let changed = |name: &str, member: &str, value: Value| {
        let mut jwk = jwk(name);
        jwk[member] = value;
        jwk.to_string()
    };
    let secret = jwk("p256")["d"].as_str().unwrap().to_owned();
    for bad in [
        "".to_owned(),
        "{}".to_owned(),
        "{\"keys\":[]}".to_owned(),
        both.replace("PRIVATE KEY", "PUBLIC KEY"),
        both[..200].to_owned(),
        changed("p256", "use", json!("sig")),
        changed("p256", "key_ops", json!(["sign"])),
        changed("p256", "x", jwk("p384")["x"].clone()),
        changed("p256", "crv", json!("P-384")),
        changed("p256", "d", jwk("rsa")["e"].clone()),
        changed("rsa", "d", json!("")),
        changed("rsa", "n", jwk("rsa")["p"].clone()),
        changed("oct128", "k", json!("AAAA")),
        changed("oct128", "k", json!("A".repeat(100_000))),
    ] {
        let why = DecryptionKeys::parse(&bad).map(drop).unwrap_err();
        assert!(!why.contains(&secret), "{why}");
    }
    assert!(!format!("{keys:?}").contains("PRIVATE"));
}
