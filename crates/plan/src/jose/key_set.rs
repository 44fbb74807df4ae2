//! The keys that may have signed a token.

use serde_json::Value;

use super::json;
use super::pem::blocks;
use super::{Algorithms, Claims, Key, Refusal, Token};

/// Bytes of a text with keys.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Keys of one set.
const KEYS_MAX: usize = 256;
/// Keys that are tried for one token: those with its identifier, or those without any.
const TRIED_MAX: usize = 8;

/// Where keys are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// A file of the operator: shared secrets (`oct`) are keys too.
    File,
    /// An answer over the network: only public keys.
    Network,
}

/// Keys, in the order in which they were listed.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

impl KeySet {
    /// Reads a JWK Set, a single JWK, or public keys in PEM. Keys that cannot verify tokens are left out; the second value says why.
    ///
    /// # Errors
    /// The text is none of these, or no key is left. No message contains a part of a key.
    pub fn parse(text: &str, trust: Trust) -> Result<(Self, Vec<String>), String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("there are more than {TEXT_BYTES_MAX} bytes"));
        }
        let (keys, left_out) = match text.trim_start().starts_with('{') {
            true => jwks(text, trust)?,
            false => (pem(text)?, Vec::new()),
        };
        if keys.is_empty() {
            let why = left_out.first().map_or(String::new(), |first| format!(": {first}"));
            return Err(format!("there is no key that can verify tokens{why}"));
        }
        if keys.len() > KEYS_MAX {
            return Err(format!("there are more than {KEYS_MAX} keys"));
        }
        Ok((Self { keys }, left_out))
    }

    /// Returns the keys.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Verifies the signature of a token and returns what the token claims.
    ///
    /// # Errors
    /// The algorithm is not allowed, no key is known for it, the signature is wrong, or the claims are not a JSON object.
    pub fn verify(&self, token: &Token<'_>, allowed: Algorithms) -> Result<Claims, Refusal> {
        if !allowed.contains(token.algorithm) {
            return Err(Refusal::Algorithm);
        }
        let wanted = token.key_id.as_deref();
        // A key without identifier, such as one in PEM, may be the one of any token.
        let named = self.keys.iter().filter(|key| wanted.is_none() || key.id().is_none() || key.id() == wanted);
        let mut is_named = false;
        let mut tried = 0;
        for key in named {
            is_named = true;
            if !key.allows(token.algorithm) {
                continue;
            }
            if tried == TRIED_MAX {
                break;
            }
            tried += 1;
            if key.verify(token.algorithm, token.signed, &token.signature) {
                return Claims::parse(token.payload).ok_or(Refusal::Malformed);
            }
        }
        Err(match (tried, is_named) {
            (0, false) => Refusal::UnknownKey,
            // A key that the token names, and an algorithm that is none of it: a confusion of key types.
            (0, true) if wanted.is_some() => Refusal::Algorithm,
            (0, true) => Refusal::UnknownKey,
            _ => Refusal::Signature,
        })
    }
}

fn jwks(text: &str, trust: Trust) -> Result<(Vec<Key>, Vec<String>), String> {
    let document = json::parse(text.as_bytes()).ok_or("it is not JSON, or names a member twice")?;
    let single = std::slice::from_ref(&document);
    let list = match (document.get("keys"), document.get("kty")) {
        (Some(Value::Array(list)), _) => list,
        (None, Some(_)) => single,
        _ => return Err("it has no list `keys`".to_owned()),
    };
    let (mut keys, mut left_out) = (Vec::new(), Vec::new());
    for (place, jwk) in list.iter().enumerate().take(KEYS_MAX + 1) {
        let read = jwk.as_object().ok_or_else(|| "it is not an object".to_owned());
        match read.and_then(|jwk| Key::from_jwk(jwk, trust == Trust::File)) {
            Ok(key) => keys.push(key),
            Err(why) => left_out.push(format!("key {}: {why}", place + 1)),
        }
    }
    Ok((keys, left_out))
}

/// Reads public keys in PEM (RFC 7468). Private keys and certificates are refused: they belong elsewhere.
fn pem(text: &str) -> Result<Vec<Key>, String> {
    let read = |(label, der): (&str, Vec<u8>)| {
        if !matches!(label, "PUBLIC KEY" | "RSA PUBLIC KEY") {
            return Err("a block of PEM is not a public key; write `openssl pkey -pubout` to get one");
        }
        Key::from_der(&der).ok_or("a block of PEM is not a key of RSA, P-256, P-384, P-521 or Ed25519")
    };
    let keys: Vec<Key> = blocks(text)?.into_iter().map(read).collect::<Result<_, _>>()?;
    if keys.is_empty() {
        return Err("it is neither a JSON Web Key Set nor PEM".to_owned());
    }
    Ok(keys)
}
