//! How the content of an encrypted token is encrypted (RFC 7518 section 5).

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{self, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;

/// An algorithm for contents. All of them notice a change of content or header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the algorithm of its name")]
pub enum Encryption {
    A128Gcm,
    A192Gcm,
    A256Gcm,
    A128CbcHs256,
    A192CbcHs384,
    A256CbcHs512,
}

impl Encryption {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::A128Gcm, Self::A192Gcm, Self::A256Gcm, Self::A128CbcHs256, Self::A192CbcHs384, Self::A256CbcHs512];

    /// Returns the algorithm of this name, which is case-sensitive.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == name)
    }

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::A128Gcm => "A128GCM",
            Self::A192Gcm => "A192GCM",
            Self::A256Gcm => "A256GCM",
            Self::A128CbcHs256 => "A128CBC-HS256",
            Self::A192CbcHs384 => "A192CBC-HS384",
            Self::A256CbcHs512 => "A256CBC-HS512",
        }
    }

    /// Returns the bytes of its key.
    pub(super) fn key_bytes(self) -> usize {
        match self {
            Self::A128Gcm => 16,
            Self::A192Gcm => 24,
            Self::A256Gcm | Self::A128CbcHs256 => 32,
            Self::A192CbcHs384 => 48,
            Self::A256CbcHs512 => 64,
        }
    }

    /// Returns whether vector and tag have their lengths (RFC 7518 sections 5.2 and 5.3).
    pub(super) fn takes(self, iv: &[u8], tag: &[u8]) -> bool {
        let lengths = match self {
            Self::A128Gcm | Self::A192Gcm | Self::A256Gcm => (12, 16),
            Self::A128CbcHs256 | Self::A192CbcHs384 | Self::A256CbcHs512 => (16, self.key_bytes() / 2),
        };
        (iv.len(), tag.len()) == lengths
    }

    /// Decrypts a content. Returns `None` if the key, the vector or the tag is not the right one.
    pub(super) fn open(self, key: &[u8], header: &[u8], parts: [&[u8]; 3]) -> Option<Vec<u8>> {
        if key.len() != self.key_bytes() {
            return None;
        }
        match self {
            Self::A128Gcm => open_gcm(&aead::AES_128_GCM, key, header, parts),
            Self::A192Gcm => open_gcm(&aead::AES_192_GCM, key, header, parts),
            Self::A256Gcm => open_gcm(&aead::AES_256_GCM, key, header, parts),
            Self::A128CbcHs256 => open_cbc((&cipher::AES_128, hmac::HMAC_SHA256), key, header, parts),
            Self::A192CbcHs384 => open_cbc((&cipher::AES_192, hmac::HMAC_SHA384), key, header, parts),
            Self::A256CbcHs512 => open_cbc((&cipher::AES_256, hmac::HMAC_SHA512), key, header, parts),
        }
    }
}

/// Decrypts with AES-GCM: a vector of 96 bits and a tag of 128 (RFC 7518 section 5.3).
pub(super) fn open_gcm(
    algorithm: &'static aead::Algorithm,
    key: &[u8],
    header: &[u8],
    [iv, content, tag]: [&[u8]; 3],
) -> Option<Vec<u8>> {
    let nonce = Nonce::try_assume_unique_for_key(iv).ok()?;
    if tag.len() != algorithm.tag_len() {
        return None;
    }
    let key = LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?);
    let mut plain = content.to_vec();
    key.open_in_place_separate_tag(nonce, Aad::from(header), tag, &mut plain).ok()?;
    Some(plain)
}

/// Verifies the tag, and only then decrypts (RFC 7518 section 5.2.2.2): a padding tells nothing of what was not verified.
fn open_cbc(
    (block, digest): (&'static cipher::Algorithm, hmac::Algorithm),
    key: &[u8],
    header: &[u8],
    [iv, content, tag]: [&[u8]; 3],
) -> Option<Vec<u8>> {
    let (mac, encryption) = key.split_at(key.len() / 2);
    let vector = DecryptionContext::Iv128(<[u8; 16]>::try_from(iv).ok()?.into());
    let mut signing = hmac::Context::with_key(&hmac::Key::new(digest, mac));
    let header_bits = (header.len() as u64 * 8).to_be_bytes();
    for part in [header, iv, content, &header_bits] {
        signing.update(part);
    }
    let wanted = signing.sign();
    verify_slices_are_equal(&wanted.as_ref()[..mac.len()], tag).ok()?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(UnboundCipherKey::new(block, encryption).ok()?).ok()?;
    let mut plain = content.to_vec();
    let bytes = key.decrypt(&mut plain, vector).ok()?.len();
    plain.truncate(bytes);
    Some(plain)
}
