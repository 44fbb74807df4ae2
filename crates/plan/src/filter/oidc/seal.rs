//! Texts that only holders of a secret can write or read, and numbers that no one can guess.
//!
//! What is sealed is AES-256-GCM: nonce, ciphertext, tag, in base64url. Keys are derived from the secret by HMAC-SHA256 with a label each. The
//! nonce is derived from the plaintext too, so that two texts never share one, however random the bits are that a worker draws
//! (as AES-SIV, RFC 5297, has it).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use model::base64::{decode_url, encode_url};

use crate::filter::Turn;

/// How many bytes longer than the text its seal is, before base64.
pub(super) const SEAL_BYTES: usize = NONCE_LEN + 16;
const SECRET_BYTES_MIN: usize = 32;
/// Secrets of one file: the first seals, and all of them open.
const SECRETS_MAX: usize = 4;

/// See the module.
pub(super) struct Sealer {
    /// The first one seals.
    keys: Vec<LessSafeKey>,
    nonces: hmac::Key,
    draws: hmac::Key,
    drawn: Arc<AtomicU64>,
}

impl Sealer {
    /// Reads the secrets of a text, one on each line. `name` says where it is from.
    ///
    /// # Errors
    /// There is none, one is too short, or there are too many. No message contains a secret.
    pub(super) fn read(name: &str, text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let secrets: Vec<&str> = lines.collect();
        if secrets.is_empty() || secrets.len() > SECRETS_MAX {
            return Err(format!("`{name}` contains {} secrets instead of 1 to {SECRETS_MAX}", secrets.len()));
        }
        if secrets.iter().any(|secret| secret.len() < SECRET_BYTES_MIN) {
            return Err(format!(
                "`{name}`: a secret has at least {SECRET_BYTES_MIN} bytes; create one with `openssl rand -hex 32`"
            ));
        }
        let derive = |secret: &str, label: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
            hmac::sign(&key, label.as_bytes())
        };
        let keys = secrets.iter().map(|secret| {
            let key = UnboundKey::new(&AES_256_GCM, derive(secret, "equipoise oidc seal").as_ref());
            key.map(LessSafeKey::new).map_err(|_| "no key can be derived".to_owned())
        });
        let hmac_key = |label| hmac::Key::new(hmac::HMAC_SHA256, derive(secrets[0], label).as_ref());
        Ok(Self {
            keys: keys.collect::<Result<_, _>>()?,
            nonces: hmac_key("equipoise oidc nonce"),
            draws: hmac_key("equipoise oidc draw"),
            drawn: Arc::default(),
        })
    }

    /// Goes on with this count of draws.
    pub(super) fn counting(self, drawn: Arc<AtomicU64>) -> Self {
        Self { drawn, ..self }
    }

    /// Seals a text for one purpose.
    pub(super) fn seal(&self, purpose: &str, plain: &[u8], turn: &mut Turn<'_>) -> Option<String> {
        let mut signing = hmac::Context::with_key(&self.nonces);
        signing.update(&self.unique(turn));
        signing.update(purpose.as_bytes());
        signing.update(&[0]);
        signing.update(plain);
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&signing.sign().as_ref()[..NONCE_LEN]);
        let mut sealed = plain.to_vec();
        let aad = Aad::from(purpose.as_bytes());
        self.keys[0].seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
        Some(encode_url(&[&nonce[..], &sealed].concat()))
    }

    /// Opens a text that was sealed for the same purpose. Returns `None` if it was not.
    pub(super) fn open(&self, purpose: &str, text: &[u8]) -> Option<Vec<u8>> {
        let bytes = decode_url(text)?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        self.keys.iter().find_map(|key| {
            let mut sealed = sealed.to_vec();
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let plain = key.open_in_place(nonce, Aad::from(purpose.as_bytes()), &mut sealed).ok()?;
            Some(plain.to_vec())
        })
    }

    /// Returns 32 bytes in base64url that no one can guess, and that do not come twice. The random bits of a worker are not secret: the
    /// key makes them so.
    pub(super) fn draw(&self, turn: &mut Turn<'_>) -> String {
        encode_url(hmac::sign(&self.draws, &self.unique(turn)).as_ref())
    }

    /// Returns bytes that do not come twice.
    fn unique(&self, turn: &mut Turn<'_>) -> [u8; 40] {
        let mut bytes = [0; 40];
        let numbers = [
            self.drawn.fetch_add(1, Ordering::Relaxed),
            (turn.wall_clock)().as_nanos() as u64,
            (turn.chance)(),
            (turn.chance)(),
            u64::from(turn.facts.peer.port()),
        ];
        for (place, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::super::testing::{Beside, World};
    use super::*;

    fn sealer(secrets: &[&str]) -> Sealer {
        Sealer::read("s", &secrets.join("\n")).unwrap()
    }

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const TWO: &str = "another secret of thirty-two bytes";

    #[test]
    fn what_was_sealed_is_opened_for_its_purpose_only_and_unchanged() {
        let (world, mut beside) = (World::new(), Beside::new());
        let facts = world.facts();
        let sealer = sealer(&[ONE]);
        let sealed = sealer.seal("a", b"text", &mut beside.turn(&facts)).unwrap();
        assert_eq!(sealer.open("a", sealed.as_bytes()).as_deref(), Some(&b"text"[..]));
        assert_eq!(sealer.open("b", sealed.as_bytes()), None);
        for at in 0..sealed.len() {
            let mut forged = sealed.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(sealer.open("a", &forged), None, "{at}");
            assert_eq!(sealer.open("a", &sealed.as_bytes()[..at]), None, "{at}");
        }
        for bad in ["", "AAAA", "!", &"A".repeat(40)] {
            assert_eq!(sealer.open("a", bad.as_bytes()), None);
        }
    }

    #[test]
    fn secrets_can_be_rotated() {
        let (world, mut beside) = (World::new(), Beside::new());
        let facts = world.facts();
        let sealed = sealer(&[ONE]).seal("a", b"text", &mut beside.turn(&facts)).unwrap();
        assert!(sealer(&[TWO, ONE]).open("a", sealed.as_bytes()).is_some());
        assert!(sealer(&[TWO]).open("a", sealed.as_bytes()).is_none());
    }

    #[test]
    fn nothing_comes_twice_though_chance_is_always_the_same() {
        let (world, mut beside) = (World::new(), Beside::new());
        let facts = world.facts();
        let sealer = sealer(&[ONE]);
        let mut turn = beside.turn(&facts);
        let drawn: HashSet<String> = (0..1000).map(|_| sealer.draw(&mut turn)).collect();
        let sealed: HashSet<String> = (0..1000).map(|_| sealer.seal("a", b"x", &mut turn).unwrap()).collect();
        assert_eq!((drawn.len(), sealed.len()), (1000, 1000));
    }

    #[test]
    fn short_secrets_are_refused_without_being_shown() {
        for text in ["", "# none", "short secret", &format!("{ONE}\n").repeat(5)] {
            let told = Sealer::read("s", text).err().unwrap();
            assert!(!told.contains("short secret"), "{told}");
        }
    }
}
