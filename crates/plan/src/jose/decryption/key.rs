//! One key that decrypts tokens.

use std::fmt;

use aws_lc_rs::aead;
use aws_lc_rs::key_wrap::{self, AesKek, KeyWrap};
use aws_lc_rs::rsa::{OAEP_SHA1_MGF1SHA1, OAEP_SHA256_MGF1SHA256, OaepPrivateDecryptingKey, PrivateDecryptingKey};
use model::base64::decode_url;
use serde_json::{Map, Value};

use super::agreement::Agreement;
use super::rsa_der::private_key_info;
use crate::jose::encrypted::Encrypted;
use crate::jose::encryption::open_gcm;
use crate::jose::{Encryption, KeyManagement};

/// Bits of an RSA key.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// Bytes of a shared secret: the longest key of a content.
const SECRET_BYTES_MAX: usize = 64;
/// Bytes of a number of an RSA key.
const NUMBER_BYTES_MAX: usize = 1025;
/// Bytes of a private number or a coordinate of a curve.
const COORDINATE_BYTES_MAX: usize = 66;
/// What `key_ops` may say.
const OPERATIONS: [&str; 4] = ["decrypt", "unwrapKey", "deriveKey", "deriveBits"];

/// See the module. What it is made from decides the algorithms, never a token.
pub(super) struct Key {
    pub(super) id: Option<Box<str>>,
    /// The only algorithm that it is for, if it names one.
    only: Option<Only>,
    secret: Secret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Only {
    Management(KeyManagement),
    /// Used directly, with this algorithm.
    Content(Encryption),
}

enum Secret {
    Rsa(Box<OaepPrivateDecryptingKey>),
    Curve(Box<Agreement>),
    Shared(Box<[u8]>),
}

impl Key {
    /// Reads a JSON Web Key.
    ///
    /// # Errors
    /// Why the key cannot decrypt tokens. No message contains a part of the key.
    pub(super) fn from_jwk(jwk: &Map<String, Value>) -> Result<Self, String> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        if text("use").is_some_and(|used_for| used_for != "enc") {
            return Err("it is not for encryption".to_owned());
        }
        let operations = jwk.get("key_ops").and_then(Value::as_array);
        let decrypts = |operation: &Value| operation.as_str().is_some_and(|one| OPERATIONS.contains(&one));
        if operations.is_some_and(|list| !list.iter().any(decrypts)) {
            return Err("it is not for decryption".to_owned());
        }
        let only = jwk.get("alg").map(|name| {
            let name = name.as_str().unwrap_or_default();
            let management = KeyManagement::find(name).map(Only::Management);
            management.or_else(|| Encryption::find(name).map(Only::Content)).ok_or("its algorithm is not supported")
        });
        let bytes = |name: &str, bytes_max: usize| {
            let encoded = text(name).filter(|encoded| encoded.len() <= bytes_max.div_ceil(3) * 4);
            let decoded = encoded.and_then(|encoded| decode_url(encoded.as_bytes()));
            decoded.ok_or_else(|| format!("`{name}` is missing, too long, or not base64url"))
        };
        let number = |name: &str| bytes(name, NUMBER_BYTES_MAX);
        let coordinate = |name: &str| bytes(name, COORDINATE_BYTES_MAX);
        let secret = match text("kty").unwrap_or_default() {
            "RSA" => {
                let numbers = [
                    number("n")?,
                    number("e")?,
                    number("d")?,
                    number("p")?,
                    number("q")?,
                    number("dp")?,
                    number("dq")?,
                    number("qi")?,
                ];
                rsa(&private_key_info(&numbers))?
            }
            kind @ ("EC" | "OKP") => {
                let y = if kind == "EC" { coordinate("y")? } else { Vec::new() };
                let curve = text("crv").filter(|curve| (*curve == "X25519") == (kind == "OKP")).unwrap_or_default();
                let key = Agreement::of_jwk(curve, &coordinate("d")?, [&coordinate("x")?, &y]);
                Secret::Curve(Box::new(key.ok_or("it is not a private key of P-256, P-384, P-521 or X25519")?))
            }
            "oct" => Secret::Shared(bytes("k", SECRET_BYTES_MAX)?.into()),
            _ => return Err("its type (`kty`) is not supported".to_owned()),
        };
        let key = Self { id: text("kid").map(Into::into), only: only.transpose()?, secret };
        if !key.has_use() {
            return Err("its algorithm does not fit its type or length".to_owned());
        }
        Ok(key)
    }

    /// Reads a private key in DER.
    pub(super) fn from_der(der: &[u8]) -> Option<Self> {
        let curve = || Agreement::of_der(der).map(|key| Secret::Curve(Box::new(key)));
        let secret = rsa(der).ok().or_else(curve)?;
        Some(Self { id: None, only: None, secret })
    }

    fn has_use(&self) -> bool {
        KeyManagement::ALL.iter().any(|one| Encryption::ALL.iter().any(|content| self.allows(*one, *content)))
    }

    /// Returns whether it decrypts tokens with these algorithms.
    pub(super) fn allows(&self, management: KeyManagement, encryption: Encryption) -> bool {
        use KeyManagement as M;
        let is_allowed = match self.only {
            None => true,
            Some(Only::Management(only)) => only == management,
            Some(Only::Content(only)) => management == M::Direct && only == encryption,
        };
        is_allowed
            && match &self.secret {
                Secret::Rsa(_) => matches!(management, M::RsaOaep | M::RsaOaep256),
                Secret::Curve(_) => matches!(management, M::EcdhEs | M::EcdhEsA128Kw | M::EcdhEsA256Kw),
                Secret::Shared(secret) => match management {
                    M::A128Kw | M::A128GcmKw => secret.len() == 16,
                    M::A192GcmKw => secret.len() == 24,
                    M::A256Kw | M::A256GcmKw => secret.len() == 32,
                    M::Direct => secret.len() == encryption.key_bytes(),
                    M::RsaOaep | M::RsaOaep256 | M::EcdhEs | M::EcdhEsA128Kw | M::EcdhEsA256Kw => false,
                },
            }
    }

    /// Returns whether the encrypted key of a token has the length, and the sender's key the curve, of those that are for this key.
    pub(super) fn takes(&self, token: &Encrypted<'_>) -> bool {
        let wrapped = match token.management {
            KeyManagement::EcdhEs => 0,
            // RFC 3394 adds eight bytes.
            _ => token.encryption.key_bytes() + 8,
        };
        match &self.secret {
            Secret::Rsa(key) => token.key.len() == key.key_size_bytes(),
            Secret::Curve(key) => {
                token.key.len() == wrapped && token.ephemeral.as_ref().is_some_and(|sender| key.is_on(sender))
            }
            Secret::Shared(_) => true,
        }
    }

    /// Decrypts the content of a token. Returns `None` whatever is wrong.
    pub(super) fn decrypt(&self, token: &Encrypted<'_>) -> Option<Vec<u8>> {
        let found = self.content_key(token);
        // A wrong key takes as long as a wrong tag (RFC 7516 section 11.5).
        let key = found.clone().unwrap_or_else(|| vec![0; token.encryption.key_bytes()]);
        let plain = token.encryption.open(&key, token.header, [&token.iv, &token.content, &token.tag]);
        plain.filter(|_| found.is_some())
    }

    fn content_key(&self, token: &Encrypted<'_>) -> Option<Vec<u8>> {
        use KeyManagement as M;
        let key = match (&self.secret, token.management) {
            (Secret::Rsa(key), M::RsaOaep) => decrypt_rsa(key, &OAEP_SHA1_MGF1SHA1, &token.key),
            (Secret::Rsa(key), M::RsaOaep256) => decrypt_rsa(key, &OAEP_SHA256_MGF1SHA256, &token.key),
            (Secret::Curve(key), M::EcdhEs) if token.key.is_empty() => {
                agree(key, token, token.encryption.as_str(), token.encryption.key_bytes())
            }
            (Secret::Curve(key), M::EcdhEsA128Kw) => {
                unwrap(&key_wrap::AES_128, &agree(key, token, token.management.as_str(), 16)?, &token.key)
            }
            (Secret::Curve(key), M::EcdhEsA256Kw) => {
                unwrap(&key_wrap::AES_256, &agree(key, token, token.management.as_str(), 32)?, &token.key)
            }
            (Secret::Shared(secret), M::A128Kw) => unwrap(&key_wrap::AES_128, secret, &token.key),
            (Secret::Shared(secret), M::A256Kw) => unwrap(&key_wrap::AES_256, secret, &token.key),
            (Secret::Shared(secret), M::A128GcmKw) => unwrap_gcm(&aead::AES_128_GCM, secret, token),
            (Secret::Shared(secret), M::A192GcmKw) => unwrap_gcm(&aead::AES_192_GCM, secret, token),
            (Secret::Shared(secret), M::A256GcmKw) => unwrap_gcm(&aead::AES_256_GCM, secret, token),
            (Secret::Shared(secret), M::Direct) if token.key.is_empty() => Some(secret.to_vec()),
            _ => None,
        };
        key.filter(|key| key.len() == token.encryption.key_bytes())
    }
}

fn rsa(der: &[u8]) -> Result<Secret, String> {
    let key = PrivateDecryptingKey::from_pkcs8(der).map_err(|_| "it is not a private key of RSA")?;
    if !RSA_BITS.contains(&key.key_size_bits()) {
        return Err("an RSA key has 2048 to 8192 bits".to_owned());
    }
    let key = OaepPrivateDecryptingKey::new(key).map_err(|_| "it is not a private key of RSA")?;
    Ok(Secret::Rsa(Box::new(key)))
}

fn decrypt_rsa(
    key: &OaepPrivateDecryptingKey,
    algorithm: &'static aws_lc_rs::rsa::OaepAlgorithm,
    encrypted: &[u8],
) -> Option<Vec<u8>> {
    let mut room = vec![0; key.min_output_size()];
    Some(key.decrypt(algorithm, encrypted, &mut room, None).ok()?.to_vec())
}

fn agree(key: &Agreement, token: &Encrypted<'_>, algorithm: &str, bytes: usize) -> Option<Vec<u8>> {
    let [from, to] = &token.parties;
    key.agree(token.ephemeral.as_ref()?, (algorithm, bytes), [from, to])
}

/// Unwraps a key (RFC 3394).
fn unwrap(cipher: &'static key_wrap::AesBlockCipher, secret: &[u8], wrapped: &[u8]) -> Option<Vec<u8>> {
    if !(24..=SECRET_BYTES_MAX + 8).contains(&wrapped.len()) {
        return None;
    }
    let mut room = vec![0; wrapped.len()];
    Some(AesKek::new(cipher, secret).ok()?.unwrap(wrapped, &mut room).ok()?.to_vec())
}

fn unwrap_gcm(algorithm: &'static aead::Algorithm, secret: &[u8], token: &Encrypted<'_>) -> Option<Vec<u8>> {
    let [iv, tag] = &token.wrapping;
    open_gcm(algorithm, secret, &[], [iv, &token.key, tag])
}

/// Without the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).field("only", &self.only).finish_non_exhaustive()
    }
}
