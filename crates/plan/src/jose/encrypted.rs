//! An encrypted token in the compact form (RFC 7516 section 7.1).

use model::base64::decode_url;
use serde_json::{Map, Value};

use super::json;
use super::token::is_of_kind;
use super::{Encryption, KeyManagement, Refusal, TOKEN_BYTES_MAX};

/// Bytes of the decoded header.
const HEADER_BYTES_MAX: usize = 4 * 1024;
/// Bytes of an encrypted key: that of RSA with 8192 bits.
const KEY_BYTES_MAX: usize = 1024;
/// Bytes of an initialization vector.
const IV_BYTES_MAX: usize = 16;
/// Bytes of an authentication tag.
const TAG_BYTES_MAX: usize = 32;
/// Bytes of a coordinate: that of P-521.
const COORDINATE_BYTES_MAX: usize = 66;
/// Bytes of each of `apu` and `apv`.
const PARTY_BYTES_MAX: usize = 512;

/// A token that is still to be decrypted. All in it is of a stranger.
#[derive(Debug, PartialEq, Eq)]
pub struct Encrypted<'a> {
    /// How its key is encrypted or agreed upon.
    pub management: KeyManagement,
    /// How its content is encrypted.
    pub encryption: Encryption,
    /// The key that it says it is for.
    pub key_id: Option<String>,
    /// Its type (`typ`).
    pub kind: Option<String>,
    /// Whether it says that its content is a token (`cty`, RFC 7519 section 5.2).
    pub is_nested: bool,
    /// The public key of the sender, for agreements.
    pub(super) ephemeral: Option<Ephemeral>,
    /// Who has sent it and who gets it, for agreements (`apu` and `apv`).
    pub(super) parties: [Vec<u8>; 2],
    /// Vector and tag of the encrypted key, for AES-GCM.
    pub(super) wrapping: [Vec<u8>; 2],
    /// The header as it was sent, which the tag covers.
    pub(super) header: &'a [u8],
    pub(super) key: Vec<u8>,
    pub(super) iv: Vec<u8>,
    pub(super) content: Vec<u8>,
    pub(super) tag: Vec<u8>,
}

/// A public key that was made for one token (RFC 7518 section 4.6.1.1).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ephemeral {
    pub(super) curve: String,
    /// As libraries take it: both coordinates uncompressed, or that of X25519.
    pub(super) point: Vec<u8>,
}

impl<'a> Encrypted<'a> {
    /// Returns whether a text has the five parts of an encrypted token.
    pub fn has_form(text: &[u8]) -> bool {
        text.len() <= TOKEN_BYTES_MAX && text.iter().filter(|byte| **byte == b'.').count() == 4
    }

    /// Reads all parts. Keys that the header brings along or points to (`jwk`, `jku`, `x5c`, `x5u`) are ignored.
    ///
    /// # Errors
    /// It is malformed, compressed, has critical extensions, or its algorithms are not supported: such as `RSA1_5`, whose errors give plain
    /// texts away, and those of passwords, which let a stranger choose the work.
    pub fn parse(text: &'a [u8]) -> Result<Self, Refusal> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::Malformed);
        }
        let mut parts = text.split(|byte| *byte == b'.');
        let mut next = || parts.next().ok_or(Refusal::Malformed);
        let [header, key, iv, content, tag] = [next()?, next()?, next()?, next()?, next()?];
        if parts.next().is_some() {
            return Err(Refusal::Malformed);
        }
        let decoded = bounded(header, HEADER_BYTES_MAX)?;
        let Some(Value::Object(fields)) = json::parse(&decoded) else { return Err(Refusal::Malformed) };
        if ["crit", "b64", "zip"].iter().any(|name| fields.contains_key(*name)) {
            return Err(Refusal::Critical);
        }
        let algorithm = text_of(&fields, "alg")?.ok_or(Refusal::Malformed)?;
        let encryption = text_of(&fields, "enc")?.ok_or(Refusal::Malformed)?;
        Ok(Self {
            management: KeyManagement::find(algorithm).ok_or(Refusal::Algorithm)?,
            encryption: Encryption::find(encryption).ok_or(Refusal::Algorithm)?,
            key_id: text_of(&fields, "kid")?.map(str::to_owned),
            kind: text_of(&fields, "typ")?.map(str::to_owned),
            is_nested: is_of_kind(text_of(&fields, "cty")?, "JWT"),
            ephemeral: fields.get("epk").map(Ephemeral::read).transpose()?,
            parties: [bytes_of(&fields, "apu", PARTY_BYTES_MAX)?, bytes_of(&fields, "apv", PARTY_BYTES_MAX)?],
            wrapping: [bytes_of(&fields, "iv", IV_BYTES_MAX)?, bytes_of(&fields, "tag", TAG_BYTES_MAX)?],
            header,
            key: bounded(key, KEY_BYTES_MAX)?,
            iv: bounded(iv, IV_BYTES_MAX)?,
            content: bounded(content, TOKEN_BYTES_MAX)?,
            tag: bounded(tag, TAG_BYTES_MAX)?,
        })
    }
}

impl Encrypted<'_> {
    /// Returns whether the type of the token is this one, see [`super::Token::is_of_kind`].
    pub fn is_of_kind(&self, wanted: &str) -> bool {
        is_of_kind(self.kind.as_deref(), wanted)
    }
}

impl Ephemeral {
    fn read(value: &Value) -> Result<Self, Refusal> {
        let fields = value.as_object().ok_or(Refusal::Malformed)?;
        let curve = text_of(fields, "crv")?.ok_or(Refusal::Malformed)?.to_owned();
        let x = bytes_of(fields, "x", COORDINATE_BYTES_MAX)?;
        let point = match text_of(fields, "kty")? {
            Some("EC") => {
                let y = bytes_of(fields, "y", COORDINATE_BYTES_MAX)?;
                if x.len() != y.len() {
                    return Err(Refusal::Malformed);
                }
                [&[4], &x[..], &y].concat()
            }
            Some("OKP") => x,
            _ => return Err(Refusal::Malformed),
        };
        Ok(Self { curve, point })
    }
}

fn text_of<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Refusal> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Refusal::Malformed),
    }
}

/// What is missing is empty.
fn bytes_of(fields: &Map<String, Value>, name: &str, bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    text_of(fields, name)?.map_or(Ok(Vec::new()), |text| bounded(text.as_bytes(), bytes_max))
}

fn bounded(text: &[u8], bytes_max: usize) -> Result<Vec<u8>, Refusal> {
    let decoded = Some(text).filter(|text| text.len() <= bytes_max.div_ceil(3) * 4).and_then(decode_url);
    decoded.filter(|bytes| bytes.len() <= bytes_max).ok_or(Refusal::Malformed)
}
