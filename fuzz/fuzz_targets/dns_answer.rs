//! Answers of resolvers, and the files that say whom to ask: no panic; what is read is bounded, sorted, and about the question.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::dns::system::{Resolving, hosts};
use wire::dns::{Answer, Kind, Meaning, Name};

fuzz_target!(|input: &[u8]| {
    let name = Name::parse("a.b").expect("a name");
    let id = input.get(..2).map_or(0, |id| u16::from_be_bytes([id[0], id[1]]));
    for kind in [Kind::A, Kind::Aaaa, Kind::Srv] {
        match Answer::read(input, id, &name, kind).map(|answer| answer.meaning()) {
            Some(Meaning::Addresses(found, ttl)) => {
                assert!(kind != Kind::Srv && !found.is_empty() && found.is_sorted() && ttl <= i32::MAX as u32);
                assert!(found.iter().all(|address| address.is_ipv4() == (kind == Kind::A)));
            }
            Some(Meaning::Places(found, ttl)) => {
                assert!(kind == Kind::Srv && !found.is_empty() && found.is_sorted() && ttl <= i32::MAX as u32);
                // Shown, whatever its labels hold.
                assert!(found.iter().all(|place| place.target.to_string().is_ascii()));
            }
            _ => {}
        }
    }
    if let Ok(text) = std::str::from_utf8(input) {
        let resolving = Resolving::parse(text);
        assert!((1..=3).contains(&resolving.resolvers.len()));
        assert!(resolving.candidates(text).iter().all(|name| name.to_string().len() <= 4 * 255));
        let _ = hosts(text, &name);
    }
});
