//! A signed token in the compact form (RFC 7515 section 7.1).

use model::base64::decode_url;
use serde_json::Value;

use super::json;
use super::{Algorithm, Refusal};

/// Bytes of a token. Header fields are bounded too, so that larger ones hardly arrive.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a signature: that of RSA with 8192 bits.
const SIGNATURE_BYTES_MAX: usize = 1024;
/// Bytes of the decoded header.
const HEADER_BYTES_MAX: usize = 4 * 1024;

/// A token whose signature is still to be verified.
#[derive(Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// The algorithm that it says it is signed with.
    pub algorithm: Algorithm,
    /// The key that it says it is signed with.
    pub key_id: Option<String>,
    /// Its type, such as `at+jwt`.
    pub kind: Option<String>,
    /// The bytes that are signed.
    pub(super) signed: &'a [u8],
    pub(super) signature: Vec<u8>,
    /// The claims, as base64url.
    pub(super) payload: &'a [u8],
}

impl<'a> Token<'a> {
    /// Reads the header and the signature. Keys that the header brings along or points to (`jwk`, `jku`, `x5c`, `x5u`) are ignored.
    ///
    /// # Errors
    /// It is malformed, its algorithm is `none` or unknown, or it has critical extensions.
    pub fn parse(text: &'a [u8]) -> Result<Self, Refusal> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(Refusal::Malformed);
        }
        let mut parts = text.split(|byte| *byte == b'.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Refusal::Malformed);
        };
        let decoded = Some(header).filter(|header| header.len() <= HEADER_BYTES_MAX / 3 * 4).and_then(decode_url);
        let header_object = decoded.and_then(|bytes| json::parse(&bytes));
        let Some(Value::Object(fields)) = header_object else { return Err(Refusal::Malformed) };
        if fields.contains_key("crit") || fields.contains_key("b64") || fields.contains_key("enc") {
            return Err(Refusal::Critical);
        }
        let text_of = |name: &str| match fields.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(Refusal::Malformed),
        };
        let algorithm = text_of("alg")?.ok_or(Refusal::Malformed)?;
        let algorithm = Algorithm::find(&algorithm).ok_or(Refusal::Algorithm)?;
        let signature =
            Some(signature).filter(|text| !text.is_empty() && text.len() <= SIGNATURE_BYTES_MAX.div_ceil(3) * 4);
        let signature = signature.and_then(decode_url).ok_or(Refusal::Malformed)?;
        let signed = &text[..header.len() + 1 + payload.len()];
        Ok(Self { algorithm, key_id: text_of("kid")?, kind: text_of("typ")?, signed, signature, payload })
    }

    /// Returns whether the type of the token is this one: case is ignored, and so is `application/` in front (RFC 7515 section 4.1.9).
    pub fn is_of_kind(&self, wanted: &str) -> bool {
        is_of_kind(self.kind.as_deref(), wanted)
    }
}

/// Compares the type of a token.
pub(super) fn is_of_kind(kind: Option<&str>, wanted: &str) -> bool {
    let short = |kind: &str| {
        let lower = kind.to_ascii_lowercase();
        lower.strip_prefix("application/").map_or(lower.clone(), str::to_owned)
    };
    kind.is_some_and(|kind| short(kind) == short(wanted))
}
