//! What clients and endpoints of gRPC say in fields: no panic; a time that is read can be written and is never longer then; a
//! message is one line of visible text. And the text form of gRPC-Web: the same in pieces as whole, and the same as is read of it
//! elsewhere where it is one segment.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::base64::{self, Decoder};
use wire::grpc::call as grpc;

fuzz_target!(|input: &[u8]| {
    if let Some(time) = grpc::parse_timeout(input) {
        let mut out = Vec::new();
        grpc::write_timeout(time, &mut out);
        let again = grpc::parse_timeout(&out).expect("what we write can be read");
        assert!(again <= time && out.len() <= 9);
    }
    if let Some(number) = grpc::status_number(input) {
        assert_eq!(number.to_string().as_bytes(), input);
    }
    let read = |size: usize| {
        let (mut decoder, mut out) = (Decoder::default(), Vec::new());
        for piece in input.chunks(size) {
            let mut piece = piece.to_vec();
            let count = decoder.decode_in_place(&mut piece).ok()?;
            out.extend_from_slice(&piece[..count]);
        }
        decoder.is_between().then_some(out)
    };
    let whole = read(usize::MAX);
    assert!((1..5).all(|size| read(size) == whole));
    if let Some(one) = base64::decode(input) {
        assert_eq!(whole.as_ref(), Some(&one));
        assert_eq!(base64::decode(base64::encode(&one).as_bytes()), Some(one));
    }
    if grpc::is_grpc(input) {
        assert!(!input.to_ascii_lowercase().starts_with(b"application/grpc-web"));
    }
    if let Ok(text) = std::str::from_utf8(input) {
        let mut out = Vec::new();
        grpc::write_message(text, &mut out);
        assert!(out.iter().all(|byte| matches!(byte, b' '..=b'~')));
    }
});
