//! Signed tokens (JWT) of the tests' own, and the key sets that verify them.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

/// Signs with ES256.
pub(crate) struct Signer {
    id: String,
    pair: EcdsaKeyPair,
}

impl Signer {
    pub(crate) fn new(id: &str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        Self { id: id.to_owned(), pair }
    }

    /// The public key as a JSON Web Key.
    pub(crate) fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({ "kty": "EC", "crv": "P-256", "alg": "ES256", "kid": self.id, "x": base64url(x), "y": base64url(y) })
    }

    /// A token with these claims, good for an hour unless they say otherwise.
    pub(crate) fn token(&self, claims: Value) -> String {
        let mut all = json!({ "iss": "https://login.example", "aud": "shop", "sub": "ann", "exp": now() + 3_600 });
        all.as_object_mut().expect("a mapping").extend(claims.as_object().expect("a mapping").clone());
        let header = json!({ "alg": "ES256", "kid": self.id });
        let signed = format!("{}.{}", base64url(header.to_string().as_bytes()), base64url(all.to_string().as_bytes()));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", base64url(signature.as_ref()))
    }
}

/// The key set of these.
pub(crate) fn jwks(signers: &[&Signer]) -> String {
    json!({ "keys": signers.iter().map(|signer| signer.jwk()).collect::<Vec<_>>() }).to_string()
}

/// A token that is signed with a public key as if it were a shared secret.
pub(crate) fn confused(secret: &str, id: &str) -> String {
    let header = json!({ "alg": "HS256", "kid": id }).to_string();
    let claims = json!({ "iss": "https://login.example", "aud": "shop", "sub": "eve", "exp": now() + 3_600 });
    let signed = format!("{}.{}", base64url(header.as_bytes()), base64url(claims.to_string().as_bytes()));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
    format!("{signed}.{}", base64url(tag.as_ref()))
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs()
}

/// HMAC-SHA256, in hexadecimal.
pub(crate) fn hmac_hex(secret: &str, message: &str) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), message.as_bytes());
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Base64 in the alphabet of URLs, without padding.
pub(crate) fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        let symbols = (0..=three.len()).map(|place| ALPHABET[(word >> (18 - 6 * place) & 63) as usize]);
        text.extend(symbols.map(char::from));
    }
    text
}
