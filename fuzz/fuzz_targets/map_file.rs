//! Files of maps: no panic, every entry is found again under its own key, and a lookup gives the value of an entry.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use model::map::{Map, MapKind, parse};
use plan::map::{Edit, MapPlan};

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let kind = MapKind::ALL[usize::from(*first) % MapKind::ALL.len()];
    // The last line is what is asked for.
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let (text, asked) = text.rsplit_once('\n').unwrap_or((text, "/a"));
    let Ok(entries) = parse(text, kind) else { return };
    let entries = Arc::new(entries);
    let map = Map { name: "m".into(), kind, default: None, file: None, entries: entries.clone() };
    let Ok(map) = MapPlan::compile(&Arc::new(map), None) else { return };
    for (key, value) in entries.iter() {
        let key = std::str::from_utf8(key).expect("it was text");
        let entry = map.entry(key).expect("its own key");
        assert_eq!(entry.value.as_bytes(), value);
    }
    let found = map.value_for(asked);
    assert!(found.is_none_or(|found| entries.iter().any(|(_, value)| value == found.as_bytes())));
    if map.edit(asked, Edit::Set("new".into())).is_ok() {
        assert_eq!(map.entry(asked).map(|entry| entry.value).as_deref(), Some("new"));
        assert_eq!(map.reset(None), 1);
    }
});
