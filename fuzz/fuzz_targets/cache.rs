//! What a cache reads of requests and responses: no panic, parts lie within their whole, and what is written is read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plan::cache::control::{Directives, SECONDS_MAX};
use plan::cache::range::{Asked, asked};
use plan::cache::{date, key};

fuzz_target!(|input: &[u8]| {
    let Some((length, text)) = input.split_first() else { return };
    let length = u64::from(*length);
    if let Asked::Part { first, last } = asked(text, length) {
        assert!(first <= last && last < length);
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
