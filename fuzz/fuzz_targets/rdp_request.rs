//! The first bytes of a client of Remote Desktop: what is said of them is said of more, and no more are wanted than a request may have.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::rdp::{Cookie, REQUEST_BYTES_MAX, Request, request};

fuzz_target!(|bytes: &[u8]| {
    let said = request(bytes);
    match &said {
        Request::NeedMore => assert!(bytes.len() < REQUEST_BYTES_MAX),
        Request::NotRdp => {}
        Request::Found(cookie) => {
            if let Some(Cookie::User(user)) = cookie {
                assert!(!user.is_empty() && user.len() < REQUEST_BYTES_MAX);
            }
            assert_eq!(request(&bytes[..bytes.len().min(REQUEST_BYTES_MAX)]), said);
        }
    }
});
