//! A key that is agreed upon with the sender of a token (ECDH-ES, RFC 7518 section 4.6).

use aws_lc_rs::agreement::{self, ECDH_P256, ECDH_P384, ECDH_P521, PrivateKey, UnparsedPublicKey, X25519};
use aws_lc_rs::digest::{Context, SHA256};

use crate::jose::encrypted::Ephemeral;

/// Name of the curve, algorithm, bytes of a coordinate.
const CURVES: [(&str, &agreement::Algorithm, usize); 4] =
    [("P-256", &ECDH_P256, 32), ("P-384", &ECDH_P384, 48), ("P-521", &ECDH_P521, 66), ("X25519", &X25519, 32)];

/// A private key on a curve.
pub(super) struct Agreement {
    curve: &'static str,
    /// Bytes of a public key.
    point_bytes: usize,
    key: PrivateKey,
}

impl Agreement {
    /// Returns the key with this private number and public key. Returns `None` if they do not belong together, or are not of the curve.
    pub(super) fn of_jwk(curve: &str, number: &[u8], public: [&[u8]; 2]) -> Option<Self> {
        let (curve, algorithm, coordinate) = *CURVES.iter().find(|(name, ..)| *name == curve)?;
        let own = Self::new(curve, coordinate, PrivateKey::from_private_key(algorithm, number).ok()?);
        let point = if curve == "X25519" { public[0].to_vec() } else { [&[4], public[0], public[1]].concat() };
        (own.key.compute_public_key().ok()?.as_ref() == point).then_some(own)
    }

    /// Reads a private key in DER (PKCS#8, or RFC 5915).
    pub(super) fn of_der(der: &[u8]) -> Option<Self> {
        CURVES.iter().find_map(|(curve, algorithm, coordinate)| {
            Some(Self::new(curve, *coordinate, PrivateKey::from_private_key_der(algorithm, der).ok()?))
        })
    }

    fn new(curve: &'static str, coordinate: usize, key: PrivateKey) -> Self {
        Self { curve, point_bytes: if curve == "X25519" { coordinate } else { 2 * coordinate + 1 }, key }
    }

    /// Returns whether the sender's key says that it is of the same curve, and has the length of one.
    pub(super) fn is_on(&self, sender: &Ephemeral) -> bool {
        sender.curve == self.curve && sender.point.len() == self.point_bytes
    }

    /// Returns a key of so many bytes for the algorithm of this name. Returns `None` if the sender's key is not a point of the same curve.
    pub(super) fn agree(
        &self,
        sender: &Ephemeral,
        (algorithm, bytes): (&str, usize),
        [from, to]: [&[u8]; 2],
    ) -> Option<Vec<u8>> {
        if !self.is_on(sender) {
            return None;
        }
        let point = UnparsedPublicKey::new(self.key.algorithm(), &sender.point);
        agreement::agree(&self.key, point, (), |secret| Ok(derive(secret, (algorithm, bytes), [from, to]))).ok()
    }
}

/// The Concat KDF (NIST SP 800-56A section 5.8.1) with SHA-256.
pub(super) fn derive(secret: &[u8], (algorithm, bytes): (&str, usize), [from, to]: [&[u8]; 2]) -> Vec<u8> {
    let length = |bytes: usize| (bytes as u32).to_be_bytes();
    let mut key = Vec::with_capacity(bytes + 32);
    let mut round = 1_u32;
    while key.len() < bytes {
        let mut digest = Context::new(&SHA256);
        digest.update(&round.to_be_bytes());
        digest.update(secret);
        for part in [algorithm.as_bytes(), from, to] {
            digest.update(&length(part.len()));
            digest.update(part);
        }
        digest.update(&length(bytes * 8));
        key.extend_from_slice(digest.finish().as_ref());
        round += 1;
    }
    key.truncate(bytes);
    key
}

#[cfg(test)]
mod tests {
    use model::base64::{decode_url, encode_url};

    use super::*;

    #[test]
    fn the_example_of_rfc_7518_appendix_c_gives_its_key() {
        let bytes = |text: &str| decode_url(text.as_bytes()).unwrap();
        let own = Agreement::of_jwk(
            "P-256",
            &bytes("VEmDZpDXXK8p8N0Cndsxs924q6nS1RXFASRl6BfUqdw"),
            [
                &bytes("weNJy2HscCSM6AEDTDg04biOvhFhyyWvOHQfeF_PxMQ"),
                &bytes("e8lnCO-AlStT-NJVX-crhB7QRYhiix03illJOVAOyck"),
            ],
        )
        .unwrap();
        let x = bytes("gI0GAILBdu7T53akrFmMyGcsF3n5dO7MmwNBHKW5SV0");
        let y = bytes("SLW_xSffzlPWrHEVI30DHM_4egVwt3NQqeUD7nMFpps");
        let sender = Ephemeral { curve: "P-256".to_owned(), point: [&[4], &x[..], &y].concat() };
        let key = own.agree(&sender, ("A128GCM", 16), [b"Alice", b"Bob"]).unwrap();
        assert_eq!(encode_url(&key), "VqqN6vgjbSBcIijNcacQGg");
        let mut bent = sender.point.clone();
        bent[64] ^= 1;
        for point in [bent, vec![0], vec![], vec![4; 65], [&[2], &x[..]].concat()] {
            let sender = Ephemeral { curve: "P-256".to_owned(), point };
            assert_eq!(own.agree(&sender, ("A128GCM", 16), [b"Alice", b"Bob"]), None);
        }
        let sender = Ephemeral { curve: "P-384".to_owned(), ..sender };
        assert_eq!(own.agree(&sender, ("A128GCM", 16), [b"Alice", b"Bob"]), None);
    }
}
