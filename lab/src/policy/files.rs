//! The files that configurations and generators need for the cells with a policy: keys, tokens, maps.

use super::MILLION;
use crate::failure::Failure;
use crate::measure::child::write_file;
use crate::net::origin;
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// 2100-01-01: the tokens do not expire while the lab lasts.
const EXPIRY: u64 = 4_102_444_800;

/// A key pair's public half, and a token that is signed by the other.
struct Signed {
    /// As in the header of tokens.
    algorithm: &'static str,
    /// The members of a JWK (RFC 7517) that are the key.
    jwk: String,
    /// A SubjectPublicKeyInfo.
    der: Vec<u8>,
    token: String,
}

/// The files that a product sends in the cells with files, under the names that the origin has for such bodies.
const FILES: [&str; 3] = ["12", "10k", "100k"];

/// Writes `es256.jwks`, `es256.pem` and `es256.token`, the same of `rs256`, and the map as `hosts.map` and `hosts.nginx`, and a
/// folder `files` into a folder, unless they are there.
pub(crate) fn ensure(folder: &Path) -> Result<(), Failure> {
    let files = folder.join("files");
    fs::create_dir_all(&files).map_err(|error| Failure::io(&files, &error))?;
    for name in FILES {
        let path = files.join(name);
        fs::write(&path, origin::body(&format!("/{name}"))).map_err(|error| Failure::io(&path, &error))?;
    }
    let last = folder.join("hosts.nginx");
    if last.exists() {
        return Ok(());
    }
    let failed = |_| Failure::new("the keys of the cells with tokens could not be made");
    for signed in [es256().map_err(failed)?, rs256().map_err(failed)?] {
        write_signed(folder, &signed)?;
    }
    write_file(&folder.join("hosts.map"), &entries(""))?;
    write_file(&last, &entries(";"))
}

fn es256() -> Result<Signed, Unspecified> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
    // SEC 1, section 2.3.3: a byte 4, then both coordinates.
    let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
    let jwk = format!(r#""kty":"EC","crv":"P-256","x":"{}","y":"{}""#, url(x), url(y));
    let input = signing_input("ES256");
    let token = format!("{input}.{}", url(pair.sign(&SystemRandom::new(), input.as_bytes())?.as_ref()));
    let der: PublicKeyX509Der<'_> = pair.public_key().as_der()?;
    Ok(Signed { algorithm: "ES256", jwk, der: der.as_ref().to_vec(), token })
}

fn rs256() -> Result<Signed, Unspecified> {
    let pair = rsa::KeyPair::generate(KeySize::Rsa2048)?;
    let key = pair.public_key();
    // RFC 8017 appendix A.1.1: a sequence of the modulus, 256 bytes behind a zero, and the exponent 65537, the last three bytes.
    let numbers = key.as_ref();
    let (n, e) = (url(&numbers[9..9 + 256]), url(&numbers[numbers.len() - 3..]));
    let jwk = format!(r#""kty":"RSA","n":"{n}","e":"{e}""#);
    let input = signing_input("RS256");
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), input.as_bytes(), &mut signature)?;
    let der: PublicKeyX509Der<'_> = key.as_der()?;
    Ok(Signed { algorithm: "RS256", jwk, der: der.as_ref().to_vec(), token: format!("{input}.{}", url(&signature)) })
}

/// Header and claims of a token, in the form that is signed (RFC 7515 section 5.1).
fn signing_input(algorithm: &str) -> String {
    let header = format!(r#"{{"alg":"{algorithm}","kid":"{algorithm}","typ":"JWT"}}"#);
    let claims =
        format!(r#"{{"iss":"https://issuer.example","aud":"lab","sub":"user-1","iat":1700000000,"exp":{EXPIRY}}}"#);
    format!("{}.{}", url(header.as_bytes()), url(claims.as_bytes()))
}

fn write_signed(folder: &Path, signed: &Signed) -> Result<(), Failure> {
    let Signed { algorithm, jwk, der, token } = signed;
    let file = |end: &str| folder.join(format!("{}.{end}", algorithm.to_ascii_lowercase()));
    let jwks = format!(r#"{{"keys":[{{{jwk},"alg":"{algorithm}","kid":"{algorithm}","use":"sig"}}]}}"#);
    write_file(&file("jwks"), &jwks)?;
    write_file(&file("pem"), &pem(der))?;
    write_file(&file("token"), token)
}

/// RFC 7468: lines of 64 characters.
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = String::from("-----BEGIN PUBLIC KEY-----\n");
    for start in (0..text.len()).step_by(64) {
        out.push_str(&text[start..text.len().min(start + 64)]);
        out.push('\n');
    }
    out + "-----END PUBLIC KEY-----\n"
}

/// A line for each entry of the map: a host and its tenant.
fn entries(end: &str) -> String {
    let mut out = String::with_capacity(MILLION * 32);
    for number in 0..MILLION {
        let _ = writeln!(out, "h{number:07}.example.com t{number:06}{end}");
    }
    out
}

fn url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, VerificationAlgorithm};

    #[test]
    fn tokens_are_signed_by_the_keys_beside_them() {
        let algorithms: [(Signed, &'static dyn VerificationAlgorithm); 2] = [
            (es256().unwrap(), &aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED),
            (rs256().unwrap(), &RSA_PKCS1_2048_8192_SHA256),
        ];
        for (signed, algorithm) in algorithms {
            let (input, signature) = signed.token.rsplit_once('.').unwrap();
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            let _ = algorithm;
            ParsedPublicKey::new(algorithm, &signed.der).unwrap().verify_sig(input.as_bytes(), &signature).unwrap();
            assert!(pem(&signed.der).lines().all(|line| line.len() <= 64), "{}", signed.algorithm);
        }
    }

    #[test]
    fn the_host_that_is_asked_for_is_in_the_map() {
        let text = entries(";");
        let line = text.lines().find(|line| line.starts_with(super::super::MAPPED_HOST)).unwrap();
        assert_eq!((line, text.lines().count()), ("h0500000.example.com t500000;", MILLION));
    }
}
