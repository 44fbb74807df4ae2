//! Ranges of strangers: no panic; parts are bounded in number, lie inside the file, are not empty, and hold no more bytes than it has.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plan::filter::files::{Asked, asked};

fuzz_target!(|input: &[u8]| {
    let Some((length, value)) = input.split_first_chunk::<8>() else { return };
    let length = u64::from_le_bytes(*length);
    if let Asked::Parts(parts) = asked(value, length) {
        assert!((1..=16).contains(&parts.len()));
        assert!(parts.iter().all(|part| part.start < part.end && part.end <= length));
        let bytes: u128 = parts.iter().map(|part| u128::from(part.end - part.start)).sum();
        assert!(bytes <= u128::from(length));
    }
});
