//! The header of a file of a cache: no panic, no length that was not there, and what is read is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plan::cache::disk::record::{PREFIX_BYTES, decode, encode};
use plan::cache::disk::{FileName, chunks};
use plan::keyed;

/// Has the checksum hold, so that what is behind it is reached.
fn sealed(input: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::from(*b"eqpcache\x01\0\0\0");
    bytes.extend_from_slice(&(input.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&keyed::hash([0x6571_7069_6f69_7365, 1], input).to_le_bytes());
    bytes.extend_from_slice(input);
    bytes
}

fuzz_target!(|input: &[u8]| {
    let _ = decode(input);
    if let Some(name) = std::str::from_utf8(input).ok().and_then(FileName::parse) {
        assert_eq!(name.to_string().as_bytes(), input);
    }
    let Ok(record) = decode(&sealed(input)) else { return };
    assert_eq!(record.header_len as usize, PREFIX_BYTES + input.len());
    assert!(chunks::file_len(record.header_len, record.body_len) >= record.header_len);
    let Some(again) = encode(&record.entry, record.body_len, record.nonce) else { return };
    let again = decode(&again).expect("it was just written");
    assert_eq!((again.entry.key, again.entry.variant), (record.entry.key, record.entry.variant));
    assert_eq!((again.body_len, again.nonce), (record.body_len, record.nonce));
});
