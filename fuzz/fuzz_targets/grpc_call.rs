//! What clients and endpoints of gRPC say in fields: no panic; a time that is read can be written and is never longer then; a
//! message is one line of visible text.
#![no_main]

use libfuzzer_sys::fuzz_target;
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
    if grpc::is_grpc(input) {
        assert!(!input.to_ascii_lowercase().starts_with(b"application/grpc-web"));
    }
    if let Ok(text) = std::str::from_utf8(input) {
        let mut out = Vec::new();
        grpc::write_message(text, &mut out);
        assert!(out.iter().all(|byte| matches!(byte, b' '..=b'~')));
    }
});
