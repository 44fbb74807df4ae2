//! An endpoint's answer to gRPC's question of health: no panic; only one way to end and to be whole; what serves says so.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::grpc::{Serving, health_answer, health_question};

fuzz_target!(|input: &[u8]| {
    let answer = health_answer(input);
    if let Ok(serving) = answer {
        assert_eq!(input[0], 0);
        let length = u32::from_be_bytes(input[1..5].try_into().expect("four bytes"));
        assert_eq!(length as usize, input.len() - 5);
        // A number may be longer than it must be: 1 is 81 00 too, as protobuf has it.
        assert!(serving != Serving::Yes || input[5..].iter().any(|byte| byte & 0x7f == 1));
        // Cut short it is no answer, and neither is more of it.
        assert!(health_answer(&input[..input.len() - 1]).is_err());
        assert!(health_answer(&[input, &[0]].concat()).is_err());
        // A field that is not known changes nothing.
        let message = [&input[5..], &[0x10, 0]].concat();
        let length = u32::try_from(message.len()).expect("short").to_be_bytes();
        assert_eq!(health_answer(&[&[0], &length[..], &message].concat()), Ok(serving));
    }
    // A question is a message of its own kind: its text is no number.
    let name = String::from_utf8_lossy(input);
    assert_eq!(health_answer(&health_question(&name)), Ok(Serving::Unknown));
});
