//! What a token costs, in microseconds: to verify it, by algorithm, and to find it again in the cache of `jwt`. `cargo run --release -p
//! equipoise-plan --example token_cost`.

use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use model::base64::{encode, encode_url};
use model::filter::FilterUse;
use model::{Facts, FieldName, Name, RequestHead, Scheme};
use plan::filter::{Chain, Flow, Notes, Turn};
use plan::jose::{Algorithms, KeySet, Token, Trust};
use serde_json::{Value, json};

const CLAIMS: &str = r#"{"iss":"https://login.example.com/realms/shop","aud":["shop","account"],"sub":"f3a1c9d2-4c5e-4f0a-9a57-0d9c2f1b7e66",
    "exp":4000000000,"iat":1700000000,"jti":"9c1e2a53-1c1f-4f7c-8f15-1d2f0a6b9f10","azp":"shop-web","scope":"openid profile email read write",
    "realm_access":{"roles":["staff","offline_access","uma_authorization","default-roles-shop"]},"email":"ann@shop.example",
    "preferred_username":"ann","given_name":"Ann","family_name":"Example","email_verified":true}"#;

/// A token, and the public key in PEM that verifies it.
struct Signed {
    token: String,
    pem: String,
}

fn signed(algorithm: &str, public: &PublicKeyX509Der<'_>, sign: impl Fn(&[u8]) -> Vec<u8>) -> Signed {
    let header = json!({ "alg": algorithm, "typ": "JWT" }).to_string();
    let text = format!("{}.{}", encode_url(header.as_bytes()), encode_url(CLAIMS.as_bytes()));
    let token = format!("{text}.{}", encode_url(&sign(text.as_bytes())));
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", encode(public.as_ref()));
    Signed { token, pem }
}

fn rsa(size: KeySize) -> Signed {
    let pair = RsaKeyPair::generate(size).expect("a key");
    signed("RS256", &pair.public_key().as_der().expect("DER"), |message| {
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).expect("a signature");
        signature
    })
}

fn ec(algorithm: &str, parameters: &'static EcdsaSigningAlgorithm) -> Signed {
    let pair = EcdsaKeyPair::generate(parameters).expect("a key");
    let public = pair.public_key().as_der().expect("DER");
    signed(algorithm, &public, |message| {
        pair.sign(&SystemRandom::new(), message).expect("a signature").as_ref().to_vec()
    })
}

fn main() {
    let ed = Ed25519KeyPair::generate().expect("a key");
    let all = [
        ("RS256, 2048 bits", rsa(KeySize::Rsa2048)),
        ("RS256, 4096 bits", rsa(KeySize::Rsa4096)),
        ("RS256, 8192 bits", rsa(KeySize::Rsa8192)),
        ("ES256", ec("ES256", &ECDSA_P256_SHA256_FIXED_SIGNING)),
        ("ES384", ec("ES384", &ECDSA_P384_SHA384_FIXED_SIGNING)),
        ("ES512", ec("ES512", &ECDSA_P521_SHA512_FIXED_SIGNING)),
        (
            "EdDSA",
            signed("EdDSA", &ed.public_key().as_der().expect("DER"), |message| ed.sign(message).as_ref().to_vec()),
        ),
    ];
    println!("a token of {} bytes", all[0].1.token.len());
    for (title, signed) in &all {
        let (keys, _) = KeySet::parse(&signed.pem, Trust::File).expect("a key");
        measure(title, 2_000, || {
            let token = Token::parse(black_box(signed.token.as_bytes())).expect("a token");
            assert!(keys.verify(&token, Algorithms::ALL).is_ok());
        });
    }
    let settings = json!({ "keys_file": { "name": "k", "text": all[0].1.pem }, "claim_headers": { "x-user": "sub" } });
    filter("jwt, cached", "jwt", settings, ("authorization", &format!("Bearer {}", all[0].1.token)));
    let settings = json!({ "keys": { "ann": "secret-of-ann" }, "consumer_header": "x-consumer" });
    filter("api_key", "api_key", settings, ("x-api-key", "secret-of-ann"));
}

fn measure(title: &str, rounds: u32, mut run: impl FnMut()) {
    let begin = Instant::now();
    (0..rounds).for_each(|_| run());
    println!("{title:20} {:8.2} us", begin.elapsed().as_secs_f64() * 1e6 / f64::from(rounds));
}

/// Measures a filter, and what filling the head for it takes.
fn filter(title: &str, name: &str, settings: Value, field: (&str, &str)) {
    let used = FilterUse { name: name.into(), settings, when: None, calls: Vec::new() };
    let chain = Chain::compile(&[used], None).expect("good settings");
    let (listener, address) = (Name::from("web"), "192.0.2.7:40000".parse().expect("an address"));
    let facts = Facts {
        peer: address,
        client: address.ip(),
        local: address,
        scheme: Scheme::Http,
        tls: None,
        sender: None,
        listener: &listener,
        request_id: "",
        user: None,
    };
    let (mut scratch, mut notes, mut chance) = (Vec::new(), Notes::default(), || 7);
    let (mut head, field_name, now) =
        (RequestHead::default(), FieldName::new(field.0).expect("a name"), Instant::now());
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    measure("  filling the head", 200_000, || {
        head.clear();
        head.fields.append(&field_name, black_box(field.1.as_bytes()));
    });
    measure(title, 200_000, || {
        head.clear();
        head.fields.append(&field_name, black_box(field.1.as_bytes()));
        notes.clear();
        let mut turn = Turn {
            facts: &facts,
            now,
            wall_clock: &clock,
            chance: &mut chance,
            notes: &mut notes,
            scratch: &mut scratch,
            is_rehearsal: false,
        };
        assert_eq!(chain.on_request(&mut head, &mut turn), Flow::Continue);
    });
}
