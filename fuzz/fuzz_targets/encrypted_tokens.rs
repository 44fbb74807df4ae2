//! Encrypted tokens and decryption keys of strangers: no panic, and nothing decrypts that was not encrypted for a key.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use plan::jose::{DecryptionKeys, Encrypted};

/// Shared secrets and a curve, for which nothing was encrypted here: none is that of an example in the seeds.
const KEYS: &str = r#"{"keys":[
    {"kty":"oct","kid":"s","k":"VGhpcyBzZWNyZXQgaGFzIDMyIGJ5dGVzLCBubyBtb3I"},
    {"kty":"oct","kid":"t","k":"HawgguFyGrWKav7AX4VKUg"},
    {"kty":"EC","kid":"e","crv":"P-256","x":"weNJy2HscCSM6AEDTDg04biOvhFhyyWvOHQfeF_PxMQ",
     "y":"e8lnCO-AlStT-NJVX-crhB7QRYhiix03illJOVAOyck","d":"VEmDZpDXXK8p8N0Cndsxs924q6nS1RXFASRl6BfUqdw"}]}"#;

static OURS: LazyLock<DecryptionKeys> = LazyLock::new(|| DecryptionKeys::parse(KEYS).expect("three keys"));

fuzz_target!(|input: &[u8]| {
    // The first byte says what the rest is.
    let Some((kind, rest)) = input.split_first() else { return };
    if kind % 4 == 0 {
        let Ok(text) = std::str::from_utf8(rest) else { return };
        let _ = DecryptionKeys::parse(text);
    } else if let Ok(token) = Encrypted::parse(rest) {
        assert!(Encrypted::has_form(rest));
        // One who knows the curve's public key may encrypt for it.
        let is_decrypted = OURS.decrypt(&token).is_ok();
        assert!(!is_decrypted || !token.management.is_shared(), "a forged token");
    }
});
