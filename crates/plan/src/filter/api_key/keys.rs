//! Consumers and the digests of their keys.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

use crate::filter::settings::FileText;

/// Keys of one list.
const KEYS_MAX: usize = 1_000_000;
/// Bytes of a key as clients send it.
pub(super) const KEY_BYTES_MAX: usize = 1024;
/// Bytes of a key that is listed as plain text, at least.
const KEY_BYTES_MIN: usize = 8;
const DIGEST_BYTES: usize = 32;
const HASHED: &str = "sha256:";

/// A digest, found by a keyed hash of it and then compared in constant time.
#[derive(Clone, Copy, Debug)]
struct Digest([u8; DIGEST_BYTES]);

impl Digest {
    fn of(key: &[u8]) -> Self {
        let mut bytes = [0; DIGEST_BYTES];
        bytes.copy_from_slice(digest(&SHA256, key).as_ref());
        Self(bytes)
    }
}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Eq for Digest {}

/// See the module.
#[derive(Default)]
pub(super) struct Keys {
    consumers: Vec<Box<str>>,
    by_digest: HashMap<Digest, u32>,
}

impl Keys {
    /// Adds a key of a consumer.
    ///
    /// # Errors
    /// The name or the key cannot be one, or the key is there already. No message contains a key.
    pub(super) fn add(&mut self, consumer: &str, written: &str) -> Result<(), String> {
        let is_name = (1..=128).contains(&consumer.len()) && !consumer.contains(|c: char| c.is_control() || c == ':');
        if !is_name || consumer.trim() != consumer {
            return Err("the name of a consumer has 1 to 128 bytes, no colon and no control characters".to_owned());
        }
        let digest = parse(written)?;
        if self.by_digest.len() >= KEYS_MAX {
            return Err(format!("there are more than {KEYS_MAX} keys"));
        }
        let place = match self.consumers.last() {
            Some(last) if **last == *consumer => self.consumers.len() - 1,
            _ => {
                self.consumers.push(consumer.into());
                self.consumers.len() - 1
            }
        };
        match self.by_digest.entry(digest) {
            Entry::Vacant(entry) => {
                entry.insert(place as u32);
                Ok(())
            }
            Entry::Occupied(entry) => {
                let other = &self.consumers[*entry.get() as usize];
                Err(format!("the key of `{consumer}` is listed already, as one of `{other}`"))
            }
        }
    }

    /// Adds those of a file.
    ///
    /// # Errors
    /// The first line that is wrong, by its number.
    pub(super) fn read(&mut self, file: &FileText) -> Result<(), String> {
        for (number, line) in file.text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |message: String| format!("`{}`, line {}: {message}", file.name, number + 1);
            // The line may be a key.
            let no_name = || at("there is no colon between consumer and key; write `consumer:key`".to_owned());
            let (consumer, key) = line.split_once(':').ok_or_else(no_name)?;
            self.add(consumer.trim_end(), key.trim_start()).map_err(at)?;
        }
        Ok(())
    }

    /// Returns the consumer that has this key.
    pub(super) fn consumer(&self, key: &[u8]) -> Option<&str> {
        self.by_digest.get(&Digest::of(key)).map(|place| &*self.consumers[*place as usize])
    }
}

fn parse(written: &str) -> Result<Digest, String> {
    if let Some(hex) = written.strip_prefix(HASHED) {
        let digits = hex.as_bytes().as_chunks::<2>().0.iter();
        let bytes: Option<Vec<u8>> = digits
            .map(|two| {
                let digit = |at: usize| char::from(two[at]).to_digit(16);
                Some((digit(0)? << 4 | digit(1)?) as u8)
            })
            .collect();
        let bytes = bytes.filter(|_| hex.len() == 2 * DIGEST_BYTES).and_then(|bytes| bytes.try_into().ok());
        return bytes.map(Digest).ok_or_else(|| {
            "behind `sha256:` there are not 64 hexadecimal digits; `printf %s KEY | sha256sum` prints them".to_owned()
        });
    }
    if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&written.len()) {
        return Err(format!(
            "a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes; create one with `openssl rand -hex 32`"
        ));
    }
    if written.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err("a key contains no spaces and no control characters".to_owned());
    }
    Ok(Digest::of(written.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The digest of some key.
    const BOB: &str = "sha256:8ee3b98b7b0a0e0d0bdb3ee9b15f7c1c4b9c1a3cb6b0a0d1d0f1d6f2b2f1d0aa";

    #[test]
    fn a_key_is_found_by_its_text_whether_listed_plain_or_as_digest() {
        let hex: String = digest(&SHA256, b"secret-of-bob").as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
        let mut keys = Keys::default();
        keys.add("ann", "secret-of-ann").unwrap();
        keys.add("ann", "another-of-ann").unwrap();
        keys.add("bob", &format!("sha256:{hex}")).unwrap();
        keys.add("eve", BOB).unwrap();
        let of = |key: &str| keys.consumer(key.as_bytes());
        assert_eq!(
            (of("secret-of-ann"), of("another-of-ann"), of("secret-of-bob")),
            (Some("ann"), Some("ann"), Some("bob"))
        );
        for wrong in ["", "secret-of-an", "secret-of-ann ", "SECRET-OF-ANN", BOB, &hex, &format!("sha256:{hex}")] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_of_two_consumers_is_refused_in_whatever_form() {
        let hex: String = digest(&SHA256, b"secret-of-ann").as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut keys = Keys::default();
        keys.add("ann", "secret-of-ann").unwrap();
        let told = Err("the key of `bob` is listed already, as one of `ann`".to_owned());
        assert_eq!(keys.add("bob", &format!("sha256:{hex}")), told);
        assert_eq!(keys.consumer(b"secret-of-ann"), Some("ann"));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic_and_no_message_holds_a_key(lines in "(\\PC|[:#\n ]|sha256:|[0-9a-f]{64}){0,40}") {
            let file = FileText { name: "k".into(), text: lines.clone() };
            if let Err(told) = Keys::default().read(&file) {
                for line in lines.lines() {
                    if let Some((_, key)) = line.split_once(':') && key.trim().len() > 9 {
                        prop_assert!(!told.contains(key.trim()), "{}", told);
                    }
                }
            }
        }
    }
}
