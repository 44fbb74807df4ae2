//! A hash with a key: no one who does not know the key can choose what falls onto what (SipHash-1-3, Aumasson and Bernstein).
//!
//! The standard library has the same, but promises nothing of what it will be in another version; tables and ids that go
//! by this one are handed to processes of other versions.

/// Returns the hash of some bytes, the same in every version and on every machine.
pub fn hash(key: [u64; 2], bytes: &[u8]) -> u64 {
    let [k0, k1] = key;
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        absorb(&mut state, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    absorb(&mut state, u64::from_le_bytes(last));
    state[2] ^= 0xff;
    for _ in 0..3 {
        round(&mut state);
    }
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    state[0] ^= word;
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use super::*;

    #[test]
    fn it_is_the_hash_that_the_standard_library_has_today() {
        for length in 0..70 {
            let bytes: Vec<u8> = (0..length).map(|byte: u8| byte.wrapping_mul(37).wrapping_add(5)).collect();
            let mut known = DefaultHasher::new();
            known.write(&bytes);
            assert_eq!(hash([0, 0], &bytes), known.finish(), "{length}");
        }
        assert_ne!(hash([1, 0], b"a"), hash([0, 1], b"a"));
    }
}
