//! One key, with the algorithms that it verifies.

use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519, ParsedPublicKey,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, VerificationAlgorithm,
};
use model::base64::decode_url;
use serde_json::{Map, Value};

use super::{Algorithm, Algorithms};

/// Bytes of a modulus: 8192 bits.
const MODULUS_BYTES_MAX: usize = 1024;
/// Bytes of a modulus: 2048 bits (RFC 7518 section 3.3).
const MODULUS_BYTES_MIN: usize = 256;
/// Bytes of a public exponent.
const EXPONENT_BYTES_MAX: usize = 4;
/// Bytes of a shared secret.
const SECRET_BYTES_MAX: usize = 4096;

const RSA: [(Algorithm, &RsaParameters); 6] = [
    (Algorithm::Rs256, &RSA_PKCS1_2048_8192_SHA256),
    (Algorithm::Rs384, &RSA_PKCS1_2048_8192_SHA384),
    (Algorithm::Rs512, &RSA_PKCS1_2048_8192_SHA512),
    (Algorithm::Ps256, &RSA_PSS_2048_8192_SHA256),
    (Algorithm::Ps384, &RSA_PSS_2048_8192_SHA384),
    (Algorithm::Ps512, &RSA_PSS_2048_8192_SHA512),
];

/// Algorithm, name of the curve, bytes of a coordinate.
const CURVES: [(Algorithm, &dyn VerificationAlgorithm, &str, usize); 3] = [
    (Algorithm::Es256, &ECDSA_P256_SHA256_FIXED, "P-256", 32),
    (Algorithm::Es384, &ECDSA_P384_SHA384_FIXED, "P-384", 48),
    (Algorithm::Es512, &ECDSA_P521_SHA512_FIXED, "P-521", 66),
];

/// A key is at least as long as the digest (RFC 7518 section 3.2).
const HMAC: [(Algorithm, hmac::Algorithm, usize); 3] = [
    (Algorithm::Hs256, hmac::HMAC_SHA256, 32),
    (Algorithm::Hs384, hmac::HMAC_SHA384, 48),
    (Algorithm::Hs512, hmac::HMAC_SHA512, 64),
];

/// See the module. What it is made from decides the algorithms, never a token.
pub struct Key {
    id: Option<Box<str>>,
    verifiers: Box<[(Algorithm, Verifier)]>,
}

enum Verifier {
    Public(ParsedPublicKey),
    Secret(Box<hmac::Key>),
}

impl Key {
    /// Reads a JSON Web Key. A shared secret is read only if `takes_secrets`.
    ///
    /// # Errors
    /// Why the key cannot verify tokens; RFC 7517 section 5 has such keys ignored. No message contains a part of the key.
    pub(super) fn from_jwk(jwk: &Map<String, Value>, takes_secrets: bool) -> Result<Self, String> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        if text("use").is_some_and(|used_for| used_for != "sig") {
            return Err("it is not for signatures".to_owned());
        }
        let operations = jwk.get("key_ops").and_then(Value::as_array);
        if operations.is_some_and(|list| !list.iter().any(|one| one == "verify")) {
            return Err("it is not for verification".to_owned());
        }
        let allowed = match jwk.get("alg") {
            None => Algorithms::ALL,
            Some(name) => {
                let algorithm = name.as_str().and_then(Algorithm::find);
                Algorithms::NONE.with(algorithm.ok_or("its algorithm is not supported")?)
            }
        };
        let bytes = |name: &str, bytes_max: usize| {
            let encoded = text(name).filter(|encoded| encoded.len() <= bytes_max.div_ceil(3) * 4);
            let decoded = encoded.and_then(|encoded| decode_url(encoded.as_bytes()));
            decoded.ok_or_else(|| format!("`{name}` is missing, too long, or not base64url"))
        };
        let verifiers = match text("kty").unwrap_or_default() {
            "RSA" => rsa(&bytes("n", MODULUS_BYTES_MAX + 1)?, &bytes("e", EXPONENT_BYTES_MAX)?, allowed)?,
            "EC" => {
                let curve = text("crv").unwrap_or_default();
                let found = CURVES.iter().find(|(.., name, _)| *name == curve);
                let (algorithm, parameters, _, coordinate) = *found.ok_or("its curve is not supported")?;
                let (x, y) = (bytes("x", coordinate)?, bytes("y", coordinate)?);
                if (x.len(), y.len()) != (coordinate, coordinate) {
                    return Err("`x` and `y` do not have the length of the curve".to_owned());
                }
                public(algorithm, parameters, &[&[4], &x[..], &y].concat(), allowed)?
            }
            "OKP" if text("crv") == Some("Ed25519") => public(Algorithm::EdDsa, &ED25519, &bytes("x", 32)?, allowed)?,
            "OKP" => return Err("its curve is not supported".to_owned()),
            "oct" if takes_secrets => secret(&bytes("k", SECRET_BYTES_MAX)?, allowed),
            "oct" => return Err("a shared secret is accepted from files only".to_owned()),
            _ => return Err("its type (`kty`) is not supported".to_owned()),
        };
        if verifiers.is_empty() {
            return Err("its algorithm does not fit its type or length".to_owned());
        }
        Ok(Self { id: text("kid").map(Into::into), verifiers: verifiers.into() })
    }

    /// Reads a public key in DER: a SubjectPublicKeyInfo, or the RSAPublicKey of PKCS#1.
    pub(super) fn from_der(der: &[u8]) -> Option<Self> {
        let rsa = RSA.iter().map(|(algorithm, parameters)| (*algorithm, *parameters as &dyn VerificationAlgorithm));
        let curves = CURVES.iter().map(|(algorithm, parameters, ..)| (*algorithm, *parameters));
        let all = rsa.chain(curves).chain([(Algorithm::EdDsa, &ED25519 as &dyn VerificationAlgorithm)]);
        let parsed = all.filter_map(|(algorithm, parameters)| {
            Some((algorithm, Verifier::Public(ParsedPublicKey::new(parameters, der).ok()?)))
        });
        let verifiers: Box<[_]> = parsed.collect();
        (!verifiers.is_empty()).then_some(Self { id: None, verifiers })
    }

    /// Returns the identifier (`kid`), if it has one.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns whether it verifies signatures of this algorithm.
    pub fn allows(&self, algorithm: Algorithm) -> bool {
        self.verifiers.iter().any(|(known, _)| *known == algorithm)
    }

    /// Returns whether this is the signature of a message.
    pub fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let Some((_, verifier)) = self.verifiers.iter().find(|(known, _)| *known == algorithm) else { return false };
        match verifier {
            Verifier::Public(key) => key.verify_sig(message, signature).is_ok(),
            // In constant time.
            Verifier::Secret(key) => hmac::verify(key, message, signature).is_ok(),
        }
    }
}

fn rsa(modulus: &[u8], exponent: &[u8], allowed: Algorithms) -> Result<Vec<(Algorithm, Verifier)>, String> {
    // Some write a zero in front, which RFC 7518 section 6.3.1.1 forbids.
    let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
    if !(MODULUS_BYTES_MIN..=MODULUS_BYTES_MAX).contains(&modulus.len()) || modulus[0] & 0x80 == 0 {
        return Err("an RSA key has 2048 to 8192 bits".to_owned());
    }
    let components = RsaPublicKeyComponents { n: modulus, e: exponent };
    let allowed = RSA.iter().filter(|(algorithm, _)| allowed.contains(*algorithm));
    let parse = |(algorithm, parameters): &(Algorithm, &'static RsaParameters)| -> Result<_, String> {
        let key = components.to_parsed_public_key(parameters).map_err(|_| "it is not an RSA key")?;
        Ok((*algorithm, Verifier::Public(key)))
    };
    allowed.map(parse).collect()
}

fn public(
    algorithm: Algorithm,
    parameters: &'static dyn VerificationAlgorithm,
    bytes: &[u8],
    allowed: Algorithms,
) -> Result<Vec<(Algorithm, Verifier)>, String> {
    if !allowed.contains(algorithm) {
        return Ok(Vec::new());
    }
    let key = ParsedPublicKey::new(parameters, bytes).map_err(|_| "it is not a point of its curve".to_owned())?;
    Ok(vec![(algorithm, Verifier::Public(key))])
}

fn secret(bytes: &[u8], allowed: Algorithms) -> Vec<(Algorithm, Verifier)> {
    let fits =
        HMAC.iter().filter(|(algorithm, _, bytes_min)| allowed.contains(*algorithm) && bytes.len() >= *bytes_min);
    fits.map(|(algorithm, parameters, _)| (*algorithm, Verifier::Secret(Box::new(hmac::Key::new(*parameters, bytes)))))
        .collect()
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A shared secret must not reach a log.
        let algorithms: Vec<Algorithm> = self.verifiers.iter().map(|(algorithm, _)| *algorithm).collect();
        f.debug_struct("Key").field("id", &self.id).field("algorithms", &algorithms).finish()
    }
}
