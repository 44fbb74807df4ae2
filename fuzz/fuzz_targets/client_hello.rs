//! The first bytes of a TLS connection: no panic; an answer once given is not changed by more bytes; a name is a name.
#![no_main]

use equipoise_fuzz::{choice_and_message, cuts};
use libfuzzer_sys::fuzz_target;
use wire::client_hello::{Hello, client_hello};

fuzz_target!(|input: &[u8]| {
    let (choice, message) = choice_and_message(input);
    let whole = client_hello(message);
    for end in cuts(choice, message.len()) {
        let part = client_hello(&message[..end]);
        assert!(part == Hello::NeedMore || part == whole);
    }
    let Hello::Found { server_name, alpn } = whole else { return };
    assert!(alpn.iter().all(|name| (1..=255).contains(&name.len())));
    if let Some(name) = server_name {
        assert!(!name.is_empty() && name.len() <= 253 && name.is_ascii());
        assert_eq!(name, name.to_ascii_lowercase());
        assert!(!name.contains(['/', ' ', ':', '*', '\0']));
    }
});
