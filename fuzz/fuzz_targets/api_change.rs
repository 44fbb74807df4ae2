//! What somebody sends to the API to change the configuration: no panic, no refusal without a reason, and what is taken can be
//! read back and put again.
#![no_main]

use equipoise_fuzz::choice_and_message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (choice, message) = choice_and_message(input);
    let Ok(text) = std::str::from_utf8(message) else { return };
    if let Err(diagnostics) = config::check_change(choice, text) {
        assert!(!diagnostics.to_string().is_empty());
    }
});
