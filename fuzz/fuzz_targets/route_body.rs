//! Bodies that routes look into: JSON by a pointer, beside a parser that makes a tree; fields of protobuf; frames of gRPC.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plan::route::body::{json, protobuf};

fuzz_target!(|input: &[u8]| {
    // The first line is a pointer and a path.
    let at = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (way, body) = (String::from_utf8_lossy(&input[..at]), &input[(at + 1).min(input.len())..]);
    if let Ok(pointer) = json::pointer(&way) {
        let found = json::find(body, &pointer);
        if let Ok(tree) = serde_json::from_slice::<serde_json::Value>(body)
            && let Ok(found) = &found
        {
            assert_eq!(found.is_some(), tree.pointer(&way).is_some());
        }
        if let Ok(Some(json::Found::Text(text))) = &found {
            assert!(std::str::from_utf8(text).is_ok() && text.len() <= body.len());
        }
    }
    if let Ok(path) = protobuf::path(&way) {
        let message = protobuf::first_message(body).unwrap_or(body);
        if let Ok(Some(protobuf::Found::Bytes(bytes))) = protobuf::find(message, &path) {
            assert!(bytes.len() < message.len());
        }
    }
});
