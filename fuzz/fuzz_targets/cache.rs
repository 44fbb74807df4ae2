//! What a cache reads of requests and responses: no panic, parts lie within their whole, and what is written is read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plan::cache::control::{Directives, SECONDS_MAX};
use plan::cache::range::{Asked, Sought, asked, content_range, sought};
use plan::cache::slice::{SLICE_BYTES_MIN, Slice};
use plan::cache::{date, key};

fuzz_target!(|input: &[u8]| {
    let Some((length, text)) = input.split_first() else { return };
    let length = u64::from(*length);
    if let Asked::Part { first, last } = asked(text, length) {
        assert!(first <= last && last < length);
    }
    match sought(text) {
        // What is sought before the length is known is what is asked for then.
        Some(Sought::From(from)) => match asked(text, length) {
            Asked::Part { first, .. } => assert_eq!(first, from),
            other => assert_eq!((other, from >= length), (Asked::Unsatisfiable, true)),
        },
        Some(Sought::Last) => assert_ne!(asked(text, length), Asked::Whole),
        None => assert_eq!(asked(text, length), Asked::Whole),
    }
    if let Some(part) = content_range(text) {
        assert!(part.first <= part.last && part.last < part.total && part.len() <= part.total);
        let slice = Slice::at(SLICE_BYTES_MIN, part.first);
        assert!(slice.first() <= part.first && part.first <= slice.last());
        assert!((1..=SLICE_BYTES_MIN).contains(&slice.len_of(part.total)));
        let written = format!("bytes {}-{}/{}", part.first, part.last, part.total);
        assert_eq!(content_range(written.as_bytes()), Some(part));
    }
    let plain = Directives::of([text].into_iter());
    let _ = Directives::targeted([text].into_iter());
    for seconds in [plain.max_age, plain.s_maxage, plain.stale_if_error].into_iter().flatten() {
        assert!(seconds <= SECONDS_MAX);
    }
    if let Some(second) = date::parse(text) {
        let mut written = Vec::new();
        date::write(second, &mut written);
        assert_eq!(date::parse(&written), Some(second));
    }
    if let Some(url) = key::normal_url(text) {
        assert_eq!(key::normal_url(&url), Some(url));
    }
});
