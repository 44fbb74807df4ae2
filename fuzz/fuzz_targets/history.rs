//! A history of generations as a file keeps it: no panic, no refusal without a reason, and what is taken is read back the same when
//! it is written anew.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match config::read_history(text) {
        Ok(all) => {
            assert!(all.windows(2).all(|pair| pair[0].generation < pair[1].generation));
            assert_eq!(config::read_history(&config::write_history(&all)), Ok(all));
        }
        Err(why) => assert!(!why.is_empty()),
    }
});
