//! Keys that sign tokens for tests.

use std::sync::LazyLock;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair,
    Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use model::base64::{encode, encode_url};
use serde_json::{Value, json};

use super::Algorithm;

/// One for all tests, because it takes long to make.
static RSA: LazyLock<RsaKeyPair> = LazyLock::new(|| RsaKeyPair::generate(KeySize::Rsa2048).unwrap());

/// Signs tokens with one key and one algorithm.
pub(crate) struct Signer {
    id: String,
    pub(crate) algorithm: Algorithm,
    secret: Secret,
}

enum Secret {
    Rsa,
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Hmac(Vec<u8>),
}

impl Signer {
    pub(crate) fn new(algorithm: Algorithm, id: &str) -> Self {
        use Algorithm as A;
        let ec = |parameters| Secret::Ec(EcdsaKeyPair::generate(parameters).unwrap());
        let secret = match algorithm {
            A::Hs256 | A::Hs384 | A::Hs512 => Secret::Hmac(id.bytes().cycle().take(64).collect()),
            A::Rs256 | A::Rs384 | A::Rs512 | A::Ps256 | A::Ps384 | A::Ps512 => Secret::Rsa,
            A::Es256 => ec(&ECDSA_P256_SHA256_FIXED_SIGNING),
            A::Es384 => ec(&ECDSA_P384_SHA384_FIXED_SIGNING),
            A::Es512 => ec(&ECDSA_P521_SHA512_FIXED_SIGNING),
            A::EdDsa => Secret::Ed(Ed25519KeyPair::generate().unwrap()),
        };
        Self { id: id.to_owned(), algorithm, secret }
    }

    pub(crate) fn es256(id: &str) -> Self {
        Self::new(Algorithm::Es256, id)
    }

    pub(crate) fn hs256(id: &str) -> Self {
        Self::new(Algorithm::Hs256, id)
    }

    pub(crate) fn rs256(id: &str) -> Self {
        Self::new(Algorithm::Rs256, id)
    }

    /// The public key, or the shared secret, as a JSON Web Key.
    pub(crate) fn jwk(&self) -> Value {
        let (id, url) = (&self.id, encode_url);
        match &self.secret {
            Secret::Rsa => {
                // RSAPublicKey: two lengths of two bytes, and a zero in front of the modulus.
                let der = RSA.public_key().as_ref().to_vec();
                json!({ "kty": "RSA", "kid": id, "n": url(&der[9..265]), "e": url(&der[der.len() - 3..]) })
            }
            Secret::Ec(pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = match x.len() {
                    32 => "P-256",
                    48 => "P-384",
                    _ => "P-521",
                };
                json!({ "kty": "EC", "kid": id, "crv": curve, "x": url(x), "y": url(y) })
            }
            Secret::Ed(pair) => {
                json!({ "kty": "OKP", "kid": id, "crv": "Ed25519", "x": url(pair.public_key().as_ref()) })
            }
            Secret::Hmac(secret) => json!({ "kty": "oct", "kid": id, "k": url(secret) }),
        }
    }

    pub(crate) fn jwks(&self) -> String {
        json!({ "keys": [self.jwk()] }).to_string()
    }

    /// The public key in PEM.
    pub(crate) fn pem(&self) -> String {
        let der: PublicKeyX509Der<'_> = match &self.secret {
            Secret::Rsa => RSA.public_key().as_der().unwrap(),
            Secret::Ec(pair) => pair.public_key().as_der().unwrap(),
            Secret::Ed(pair) => pair.public_key().as_der().unwrap(),
            Secret::Hmac(_) => panic!("a secret has no public key"),
        };
        let encoded = encode(der.as_ref());
        let lines: Vec<&str> = encoded.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
    }

    /// A token with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({ "alg": self.algorithm.as_str(), "kid": self.id, "typ": "JWT" });
        self.sign_texts(&header.to_string(), &claims.to_string())
    }

    /// A token of these two texts, whatever they are.
    pub(crate) fn sign_texts(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encode_url(header.as_bytes()), encode_url(claims.as_bytes()));
        let signature = encode_url(&self.signature(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.secret {
            Secret::Rsa => {
                let encoding: &'static dyn RsaEncoding = match self.algorithm {
                    Algorithm::Rs384 => &RSA_PKCS1_SHA384,
                    Algorithm::Rs512 => &RSA_PKCS1_SHA512,
                    Algorithm::Ps256 => &RSA_PSS_SHA256,
                    Algorithm::Ps384 => &RSA_PSS_SHA384,
                    Algorithm::Ps512 => &RSA_PSS_SHA512,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; RSA.public_modulus_len()];
                RSA.sign(encoding, &random, message, &mut signature).unwrap();
                signature
            }
            Secret::Ec(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Secret::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            Secret::Hmac(secret) => {
                let parameters = match self.algorithm {
                    Algorithm::Hs384 => hmac::HMAC_SHA384,
                    Algorithm::Hs512 => hmac::HMAC_SHA512,
                    _ => hmac::HMAC_SHA256,
                };
                hmac::sign(&hmac::Key::new(parameters, secret), message).as_ref().to_vec()
            }
        }
    }

    /// The same key with another algorithm.
    pub(crate) fn with(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// A signer whose shared secret is these bytes.
    pub(crate) fn with_secret(bytes: &[u8], id: &str) -> Self {
        Self { id: id.to_owned(), algorithm: Algorithm::Hs256, secret: Secret::Hmac(bytes.to_vec()) }
    }
}
