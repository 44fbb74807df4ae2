//! Replies of Redis: whatever comes is a reply, the beginning of one, or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::resp::read_reply;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((reply, count))) = read_reply(bytes) {
        assert!(count <= bytes.len());
        assert_eq!(read_reply(&bytes[..count]), Ok(Some((reply, count))));
    }
});
