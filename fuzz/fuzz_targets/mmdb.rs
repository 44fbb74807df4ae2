//! MaxMind DB files: no panic, bounded work, and every key is a network.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::Cidr;

fuzz_target!(|input: &[u8]| {
    let Some((first, file)) = input.split_first() else { return };
    let fields = ["country.iso_code", "subdivisions.1.iso_code", "location.latitude", "country", "a"];
    let Ok(entries) = config::mmdb::entries(file, fields[usize::from(*first) % fields.len()]) else { return };
    for (key, value) in entries.iter() {
        let key = std::str::from_utf8(key).expect("it was text");
        key.parse::<Cidr>().expect("a network");
        let value = std::str::from_utf8(value).expect("it was text");
        assert!(!value.contains(char::is_control));
    }
});
