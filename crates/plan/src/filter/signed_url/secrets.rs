//! Secrets that sign links, and what they sign.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use md5::{Digest, Md5};
use model::base64::decode_url;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::filter::settings::FileText;

/// Secrets of one file: each is tried for each request.
const SECRETS_MAX: usize = 8;
const SECRET_BYTES_MIN: usize = 16;
/// The same with MD5, whose secrets were chosen elsewhere.
const MD5_SECRET_BYTES_MIN: usize = 8;

/// How links are signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Algorithm {
    #[default]
    HmacSha256,
    Md5,
}

/// See the module.
pub(super) enum Secrets {
    Hmac(Vec<hmac::Key>),
    Md5(Vec<Box<[u8]>>),
}

impl Secrets {
    /// Reads those of a file.
    ///
    /// # Errors
    /// There is none, one is too short, or there are too many. No message contains a secret.
    pub(super) fn read(file: &FileText, algorithm: Algorithm) -> Result<Self, String> {
        let mut secrets: Vec<Box<[u8]>> = Vec::new();
        let bytes_min = if algorithm == Algorithm::Md5 { MD5_SECRET_BYTES_MIN } else { SECRET_BYTES_MIN };
        for (number, line) in file.text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.len() < bytes_min {
                return Err(format!(
                    "`{}`, line {}: a secret has at least {bytes_min} bytes; create one with `openssl rand -hex 32`",
                    file.name,
                    number + 1
                ));
            }
            secrets.push(line.as_bytes().into());
        }
        match secrets.len() {
            0 => Err(format!("`{}` contains no secret", file.name)),
            1..=SECRETS_MAX => Ok(match algorithm {
                Algorithm::HmacSha256 => {
                    Self::Hmac(secrets.iter().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret)).collect())
                }
                Algorithm::Md5 => Self::Md5(secrets),
            }),
            count => Err(format!("`{}` contains {count} secrets, at most {SECRETS_MAX} are allowed", file.name)),
        }
    }

    /// Returns whether one of the secrets has signed the message, in constant time for each. `secret_at` is where MD5 has its secret.
    pub(super) fn verify(&self, message: &[u8], secret_at: Option<usize>, signature: &[u8]) -> bool {
        match self {
            Self::Hmac(keys) => keys.iter().any(|key| hmac::verify(key, message, signature).is_ok()),
            Self::Md5(secrets) => {
                let (front, behind) = message.split_at(secret_at.unwrap_or(message.len()));
                secrets.iter().any(|secret| {
                    let digest = Md5::new().chain_update(front).chain_update(secret).chain_update(behind).finalize();
                    verify_slices_are_equal(&digest, signature).is_ok()
                })
            }
        }
    }
}

/// Reads a signature of 16 or 32 bytes, in hexadecimal or in base64url with or without padding.
pub(super) fn parse_signature(text: &[u8]) -> Option<Vec<u8>> {
    if matches!(text.len(), 32 | 64) && text.iter().all(u8::is_ascii_hexdigit) {
        let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default() as u8;
        return Some(text.as_chunks::<2>().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect());
    }
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |at| at + 1);
    let is_padding = text.len() - end <= 2;
    decode_url(&text[..end]).filter(|bytes| is_padding && matches!(bytes.len(), 16 | 32))
}
