//! Cookies of strangers: no panic; what is removed is gone and nothing else is; what decodes is written in one way only.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::cookie;
use model::{FieldName, Fields, Known};

fuzz_target!(|input: &[u8]| {
    let name = FieldName::new("Cookie").expect("a name");
    let mut fields = Fields::default();
    for line in input.split(|&b| b == b'\n') {
        fields.append(&name, line);
    }
    let count = |fields: &Fields, name: &[u8]| cookie::values(fields, name).count();
    let (ours, others) = (count(&fields, b"id"), count(&fields, b"a"));
    let others_values: Vec<Vec<u8>> = cookie::values(&fields, b"a").map(<[u8]>::to_vec).collect();
    assert_eq!(cookie::remove(&mut fields, &name, b"id", &mut Vec::new()), ours > 0);
    assert_eq!((count(&fields, b"id"), count(&fields, b"a")), (0, others));
    assert!(cookie::values(&fields, b"a").eq(others_values.iter().map(Vec::as_slice)));
    assert!(ours == 0 || fields.all_known(Known::Cookie).count() <= 1);
    if let Some(value) = cookie::value_set(input, b"id") {
        assert!(!value.is_empty() && !value.contains(&b';'));
    }
    if let Some(bytes) = cookie::decode::<33>(input) {
        let mut text = Vec::new();
        cookie::encode(&bytes, &mut text);
        assert_eq!(text, input);
    }
});
