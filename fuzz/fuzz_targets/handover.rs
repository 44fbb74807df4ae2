//! What another process says during an upgrade: no panic; what is taken for a message or the head of a frame is written just so.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::handover::{BODY_BYTES_MAX, FrameHead, HEAD_BYTES, MESSAGE_HEAD_BYTES_MAX, Message, read_envelope};

fuzz_target!(|input: &[u8]| {
    if let Some(head) = input.first_chunk::<HEAD_BYTES>()
        && let Ok(read) = FrameHead::read(*head)
    {
        assert!(read.body_bytes <= BODY_BYTES_MAX);
        assert_eq!(read.write(), *head);
    }
    if let Some(message) = Message::read(input) {
        let length = input.len() - message.bytes.len();
        assert!(length <= MESSAGE_HEAD_BYTES_MAX);
        let mut out = b"what was there before".to_vec();
        message.write(&mut out);
        assert_eq!(out, input);
        // Cut short within its head it is none.
        assert_eq!(Message::read(&input[..length - 1]), None);
    }
    if let Some((_, rest)) = read_envelope(input) {
        assert!(input.ends_with(rest));
    }
});
