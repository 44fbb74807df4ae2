//! A text of a provider beside a file: no panic, and no answer without a reason.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Err(diagnostics) = config::check_provided(text) {
        assert!(!diagnostics.to_string().is_empty());
    }
});
