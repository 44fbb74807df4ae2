//! Hashes of passwords, as crypt writes them.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use md5::{Digest, Md5};
use sha_crypt::Params;

/// Rounds of SHA-crypt where none are given.
const SHA_ROUNDS: u32 = 5_000;
/// More rounds would take seconds for each password.
const SHA_ROUNDS_MAX: u32 = 1_000_000;
/// The same as a power of two.
const BCRYPT_COST_MAX: u32 = 16;
/// The alphabet of crypt.
const CRYPT64: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// One hash, ready to be compared with.
#[derive(Clone)]
pub(super) enum Hash {
    Bcrypt { text: Box<str>, cost: u32 },
    Sha { bits: Bits, salt: Box<[u8]>, params: Params, rounds: u32, wanted: Box<[u8]> },
    Apr1 { salt: Box<[u8]>, wanted: Box<[u8]> },
}

/// What decides how long a verification takes, the password apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cost {
    /// The power of two.
    Bcrypt(u32),
    /// Rounds, and the length of the salt, which is part of what each round digests.
    Sha(Bits, u32, usize),
    /// Length of the salt.
    Apr1(usize),
}

/// Which SHA-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bits {
    Sha256,
    Sha512,
}

impl Hash {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it, without the hash itself.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.get(..4).unwrap_or(text) {
            "$2a$" | "$2b$" | "$2y$" | "$2x$" => bcrypt_hash(text),
            "$apr" => apr1_hash(text),
            _ if text.starts_with("$5$") => sha_hash(text, Bits::Sha256),
            _ if text.starts_with("$6$") => sha_hash(text, Bits::Sha512),
            "{SHA" | "{SSH" => {
                Err("`{SHA}` is rejected: such hashes are guessed too fast; create one with `htpasswd -B`".to_owned())
            }
            "" => Err("there is no hash after the name; create one with `htpasswd -B`".to_owned()),
            _ => Err("this is not a bcrypt, SHA-crypt or `$apr1$` hash; create one with `htpasswd -B`".to_owned()),
        }
    }

    /// Returns what its verification costs: two hashes of equal cost take the same time for the same password.
    pub(super) fn cost(&self) -> Cost {
        match self {
            Self::Bcrypt { cost, .. } => Cost::Bcrypt(*cost),
            Self::Sha { bits, salt, rounds, .. } => Cost::Sha(*bits, *rounds, salt.len()),
            Self::Apr1 { salt, .. } => Cost::Apr1(salt.len()),
        }
    }

    /// Returns whether it is that of the password, compared in constant time.
    pub(super) fn verify(&self, password: &[u8]) -> bool {
        match self {
            Self::Bcrypt { text, .. } => bcrypt::verify(password, text).unwrap_or(false),
            Self::Sha { bits: Bits::Sha256, salt, params, wanted, .. } => {
                verify_slices_are_equal(&sha_crypt::sha256_crypt(password, salt, *params), wanted).is_ok()
            }
            Self::Sha { bits: Bits::Sha512, salt, params, wanted, .. } => {
                verify_slices_are_equal(&sha_crypt::sha512_crypt(password, salt, *params), wanted).is_ok()
            }
            Self::Apr1 { salt, wanted } => verify_slices_are_equal(&apr1(password, salt), wanted).is_ok(),
        }
    }
}

fn bcrypt_hash(text: &str) -> Result<Hash, String> {
    let wrong = || "this is not a complete bcrypt hash: it is truncated, or contains invalid characters".to_owned();
    let (cost, rest) = text[4..].split_once('$').ok_or_else(wrong)?;
    let cost: u32 = cost.parse().map_err(|_| wrong())?;
    if text.len() != 60 || rest.len() != 53 || !rest.bytes().all(|byte| CRYPT64.contains(&byte)) {
        return Err(wrong());
    }
    if !(4..=BCRYPT_COST_MAX).contains(&cost) {
        return Err(format!("a cost of {cost} is outside of 4 to {BCRYPT_COST_MAX}"));
    }
    Ok(Hash::Bcrypt { text: text.into(), cost })
}

fn sha_hash(text: &str, bits: Bits) -> Result<Hash, String> {
    let mut rest = &text[3..];
    let mut rounds = SHA_ROUNDS;
    if let Some(given) = rest.strip_prefix("rounds=") {
        let (count, after) = given.split_once('$').unwrap_or((given, ""));
        rounds = count.parse().map_err(|_| format!("`{count}` is not a number of rounds"))?;
        if !(1_000..=SHA_ROUNDS_MAX).contains(&rounds) {
            return Err(format!("{rounds} rounds are outside of 1000 to {SHA_ROUNDS_MAX}"));
        }
        rest = after;
    }
    let wrong = || "this is not a complete SHA-crypt hash: it is truncated, or contains invalid characters".to_owned();
    let (salt, encoded) = rest.split_once('$').ok_or_else(wrong)?;
    if salt.len() > 16 {
        return Err(wrong());
    }
    let wanted = match bits {
        Bits::Sha256 => unscramble(encoded, &order_256()),
        Bits::Sha512 => unscramble(encoded, &order_512()),
    };
    let params = Params::new(rounds).map_err(|_| format!("{rounds} is not a number of rounds"))?;
    Ok(Hash::Sha { bits, salt: salt.as_bytes().into(), params, rounds, wanted: wanted.ok_or_else(wrong)? })
}

fn apr1_hash(text: &str) -> Result<Hash, String> {
    const ORDER: [[Option<usize>; 3]; 6] = [
        [Some(0), Some(6), Some(12)],
        [Some(1), Some(7), Some(13)],
        [Some(2), Some(8), Some(14)],
        [Some(3), Some(9), Some(15)],
        [Some(4), Some(10), Some(5)],
        [None, None, Some(11)],
    ];
    let wrong = || "this is not a complete `$apr1$` hash: it is truncated, or contains invalid characters".to_owned();
    let (salt, encoded) = text.strip_prefix("$apr1$").and_then(|rest| rest.split_once('$')).ok_or_else(wrong)?;
    if salt.is_empty() || salt.len() > 8 {
        return Err(wrong());
    }
    Ok(Hash::Apr1 { salt: salt.as_bytes().into(), wanted: unscramble(encoded, &ORDER).ok_or_else(wrong)? })
}

/// Returns the order in which crypt writes the 32 bytes of SHA-256: three at a time, the first above the others.
fn order_256() -> Vec<[Option<usize>; 3]> {
    let turned = |group: usize| [0, 10, 20].map(|first| Some((first + group * 21) % 30));
    let mut order: Vec<_> = (0..10).map(turned).collect();
    order.push([None, Some(31), Some(30)]);
    order
}

/// Returns the same for the 64 bytes of SHA-512.
fn order_512() -> Vec<[Option<usize>; 3]> {
    let turned = |group: usize| [0, 21, 42].map(|first| Some((first + group * 22) % 63));
    let mut order: Vec<_> = (0..21).map(turned).collect();
    order.push([None, None, Some(63)]);
    order
}

/// Returns the bytes of a digest as crypt writes them: in groups of three, each as four characters from the lowest bits up.
fn unscramble(encoded: &str, order: &[[Option<usize>; 3]]) -> Option<Box<[u8]>> {
    let mut bytes = vec![0; order.iter().flatten().flatten().count()];
    let mut characters = encoded.bytes();
    for group in order {
        let count = group.iter().flatten().count() + 1;
        let mut value = 0;
        for place in 0..count {
            let character = characters.next()?;
            let digit = CRYPT64.iter().position(|known| *known == character)?;
            value |= digit << (6 * place);
        }
        for (place, byte) in group.iter().rev().enumerate() {
            let part = (value >> (8 * place)) as u8;
            match byte {
                Some(byte) => bytes[*byte] = part,
                None if part != 0 => return None,
                None => {}
            }
        }
    }
    characters.next().is_none().then_some(bytes.into())
}

/// Computes Apache's variant of MD5-crypt, with a thousand rounds.
fn apr1(password: &[u8], salt: &[u8]) -> [u8; 16] {
    let joined = |parts: &[&[u8]]| -> [u8; 16] {
        let mut hasher = Md5::new();
        parts.iter().for_each(|part| hasher.update(part));
        hasher.finalize().into()
    };
    let inner = joined(&[password, salt, password]);
    let mut first = [password, b"$apr1$", salt].concat();
    first.extend(inner.iter().cycle().take(password.len()));
    let mut bits = password.len();
    while bits > 0 {
        first.push(if bits & 1 == 1 { 0 } else { password[0] });
        bits >>= 1;
    }
    let mut digest = joined(&[&first]);
    for round in 0..1_000 {
        let (odd, salted, again) = (round % 2 == 1, round % 3 != 0, round % 7 != 0);
        let mut parts: Vec<&[u8]> = vec![if odd { password } else { &digest }];
        parts.extend(salted.then_some(salt));
        parts.extend(again.then_some(password));
        parts.push(if odd { &digest } else { password });
        digest = joined(&parts);
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by OpenSSL and by the crypt of glibc's successor.
    const HASHES: [(&str, &str); 10] = [
        ("$apr1$ozAnnRQ8$nRw8p2UQymJFqVKCCtq5l1", "secret"),
        ("$apr1$12345678$f6JFfzZai7.ChdZ1tv0Q2.", "a much longer password than sixteen bytes are"),
        ("$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA", "secret"),
        ("$5$x$jPujPdjtSTUK2i0HX/RQXVgeA/.JhaN1a.Dt3vRB1q8", "ü"),
        ("$5$rounds=77777$short$Dvn1K7VcLNC1xboNjai.hqyHxPl6O0m46vESuLJFFm9", "secret"),
        (
            "$6$saltsalt$TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1",
            "secret",
        ),
        (
            "$6$abcdefghijklmnop$iT4spy0jemVuOY8f8ylnnSRgLQQkgeuGcm/hq0WwPVCW8rsILa699oBqse5.3e4cJP530PE/ycfTQLVtmOocs/",
            "a much longer password than sixteen bytes are, and longer than sixty-four of them too",
        ),
        (
            "$6$rounds=1400$anotherlongsalts$Twf2eP6WMY29NT9yg1Nff0x6Ul/TWD9vkV2VVPyEX7uifmXI0FHGx3rX27ttfZtfB9phxv3003yyBPq3nGFb8.",
            "secret",
        ),
        ("$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a", "secret"),
        ("$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a", "secret"),
    ];

    fn verifies(hash: &str, password: &str) -> bool {
        Hash::parse(hash).unwrap_or_else(|error| panic!("{hash}: {error}")).verify(password.as_bytes())
    }

    #[test]
    fn the_hashes_of_others_are_verified() {
        for (hash, password) in HASHES {
            assert!(verifies(hash, password), "{hash}");
            assert!(!verifies(hash, &format!("{password}x")) && !verifies(hash, ""), "{hash}");
        }
    }

    #[test]
    fn what_is_no_hash_or_a_poor_one_is_refused_without_being_told() {
        for (hash, told) in [
            ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", "`{SHA}` is rejected"),
            ("secret", "this is not a bcrypt, SHA-crypt"),
            ("rqXexS6ZhobKA", "this is not a bcrypt, SHA-crypt"),
            ("", "there is no hash after the name"),
            ("$2y$10$short", "this is not a complete bcrypt hash"),
            ("$2y$31$abcdefghijklmnopqrstuuOJvQsz5hVb8Y6Y5VQMN6DfI9DGiYKVC", "a cost of 31 is outside of 4 to 16"),
            ("$2y$", "this is not a complete bcrypt hash"),
            ("$5$salt$short", "this is not a complete SHA-crypt hash"),
            ("$6$rounds=999$salt$x", "999 rounds are outside of 1000 to 1000000"),
            ("$6$rounds=9999999$salt$x", "9999999 rounds are outside"),
            ("$6$", "this is not a complete SHA-crypt hash"),
            ("$apr1$salt$short", "this is not a complete `$apr1$` hash"),
            ("$apr", "this is not a complete `$apr1$` hash"),
            ("$2ü", "this is not a bcrypt, SHA-crypt"),
        ] {
            let error = Hash::parse(hash).err().unwrap_or_else(|| panic!("{hash} is taken"));
            assert!(error.starts_with(told), "{hash}: {error}");
        }
    }
}
