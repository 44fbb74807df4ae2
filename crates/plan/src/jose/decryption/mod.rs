//! The private keys and shared secrets that decrypt tokens.
//!
//! ```text
//!  bytes ── Encrypted::parse ──► Encrypted ── DecryptionKeys::decrypt ──► the token inside, or claims
//! ```

mod agreement;
mod key;
mod rsa_der;

use serde_json::Value;

use self::key::Key;
use super::encrypted::Encrypted;
use super::json;
use super::pem::blocks;
use super::{KeyManagement, Refusal};

/// Bytes of a text with keys.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Keys of one set.
const KEYS_MAX: usize = 64;
/// Keys that are tried for one token: those with its identifier, or those without any.
const TRIED_MAX: usize = 4;

/// Keys, in the order in which they were listed.
#[derive(Debug, Default)]
pub struct DecryptionKeys {
    keys: Vec<Key>,
}

impl DecryptionKeys {
    /// Reads a JWK Set, a single JWK, or private keys in PEM (PKCS#8; those of curves also as RFC 5915).
    ///
    /// # Errors
    /// The text is none of these, or one of its keys cannot decrypt tokens. No message contains a part of a key.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("there are more than {TEXT_BYTES_MAX} bytes"));
        }
        let keys = if text.trim_start().starts_with('{') { jwks(text)? } else { pem(text)? };
        match keys.len() {
            0 => Err("there is no key that can decrypt tokens".to_owned()),
            1..=KEYS_MAX => Ok(Self { keys }),
            _ => Err(format!("there are more than {KEYS_MAX} keys")),
        }
    }

    /// Returns whether some key is a shared secret for tokens of this kind.
    pub fn allows(&self, management: KeyManagement) -> bool {
        super::Encryption::ALL.iter().any(|encryption| self.keys.iter().any(|key| key.allows(management, *encryption)))
    }

    /// Checks what is visible of a token without its key: whether there is one for it, and the lengths of its parts.
    ///
    /// # Errors
    /// As [`Self::decrypt`], which refuses such a token too.
    pub fn check(&self, token: &Encrypted<'_>) -> Result<(), Refusal> {
        self.fitting(token).map(drop)
    }

    /// Decrypts a token.
    ///
    /// # Errors
    /// No key is known for it, or it cannot be decrypted. Whether key, vector, content or tag is wrong is not told.
    pub fn decrypt(&self, token: &Encrypted<'_>) -> Result<Vec<u8>, Refusal> {
        self.fitting(token)?.into_iter().find_map(|key| key.decrypt(token)).ok_or(Refusal::Decryption)
    }

    /// Returns the keys to try: those that the token names, else those without an identifier.
    fn fitting(&self, token: &Encrypted<'_>) -> Result<Vec<&Key>, Refusal> {
        let wanted = token.key_id.as_deref();
        let is_named = |key: &Key| wanted.is_some() && key.id.as_deref() == wanted;
        let is_open = |key: &Key| wanted.is_none() || key.id.is_none();
        if !self.keys.iter().any(|key| is_named(key) || is_open(key)) {
            return Err(Refusal::UnknownDecryptionKey);
        }
        let allowed = || self.keys.iter().filter(|key| key.allows(token.management, token.encryption));
        let mut keys: Vec<&Key> = allowed().filter(|key| is_named(key)).collect();
        if keys.is_empty() {
            keys = allowed().filter(|key| is_open(key)).collect();
        }
        if keys.is_empty() {
            return Err(Refusal::Algorithm);
        }
        keys.retain(|key| key.takes(token));
        keys.truncate(TRIED_MAX);
        if keys.is_empty() || !token.encryption.takes(&token.iv, &token.tag) {
            return Err(Refusal::Decryption);
        }
        Ok(keys)
    }
}

fn jwks(text: &str) -> Result<Vec<Key>, String> {
    let document = json::parse(text.as_bytes()).ok_or("it is not JSON, or names a member twice")?;
    let single = std::slice::from_ref(&document);
    let list = match (document.get("keys"), document.get("kty")) {
        (Some(Value::Array(list)), _) => list,
        (None, Some(_)) => single,
        _ => return Err("it has no list `keys`".to_owned()),
    };
    let read = |(place, jwk): (usize, &Value)| {
        let read = jwk.as_object().ok_or_else(|| "it is not an object".to_owned());
        read.and_then(Key::from_jwk).map_err(|why| format!("key {}: {why}", place + 1))
    };
    list.iter().enumerate().take(KEYS_MAX + 1).map(read).collect()
}

fn pem(text: &str) -> Result<Vec<Key>, String> {
    let read = |(label, der): (&str, Vec<u8>)| {
        if !matches!(label, "PRIVATE KEY" | "EC PRIVATE KEY") {
            return Err("a block of PEM is not a private key in PKCS#8; `openssl pkcs8 -topk8 -nocrypt` writes it");
        }
        Key::from_der(&der).ok_or("a block of PEM is not a key of RSA, P-256, P-384 or P-521")
    };
    let keys: Vec<Key> = blocks(text)?.into_iter().map(read).collect::<Result<_, _>>()?;
    if keys.is_empty() {
        return Err("it is neither a JSON Web Key Set nor PEM".to_owned());
    }
    Ok(keys)
}

#[cfg(test)]
mod tests;
