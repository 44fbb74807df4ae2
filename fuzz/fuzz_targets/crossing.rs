//! A request of HTTP/2 in any bytes: no panic; what is accepted and written as HTTP/1.1 is one request there, with the same
//! method, target, host, fields and framing; what goes on to HTTP/2 is accepted there again.
#![no_main]

use equipoise_fuzz::choice_and_message;
use libfuzzer_sys::fuzz_target;
use model::{Fault, RequestHead, Version};
use wire::crossing::{Arriving, Pseudo, request_fields};
use wire::http1::{HeadLimits, HeadScan, RequestParsed, SendRequest, parse_request, write_request};

const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 1 << 16, fields_max: 16 };

type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

fn arrive(pseudo: &Pseudo<'_>, fields: &Pairs<'_>, ends: bool, head: &mut RequestHead) -> Result<RequestParsed, Fault> {
    let mut arriving = Arriving::begin(head, pseudo, Version::Http2)?;
    for (name, value) in fields {
        arriving.field(name, value)?;
    }
    arriving.end(&LIMITS, ends)
}

fuzz_target!(|input: &[u8]| {
    let (choice, message) = choice_and_message(input);
    let mut parts = message.split(|&byte| byte == 0xff);
    let method = parts.next().unwrap_or_default();
    let (authority, path) = (parts.next(), parts.next());
    let rest: Vec<&[u8]> = parts.collect();
    let fields: Pairs<'_> = rest.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let ends = choice % 2 == 0;
    let mut head = RequestHead::default();
    let authority = authority.filter(|text| !text.is_empty());
    let Ok(parsed) = arrive(&Pseudo { method, authority, path, protocol: None }, &fields, ends, &mut head) else {
        return;
    };

    let mut bytes = Vec::new();
    let how = SendRequest { framing: parsed.framing, host_fallback: "none", upgrade: false, keep_alive: true };
    write_request(&head, &how, &mut bytes);
    let mut again = RequestHead::default();
    // HTTP/1.1 needs some fields more to say the same.
    let limits = HeadLimits { fields_max: LIMITS.fields_max + 8, ..LIMITS };
    let found = parse_request(&bytes, &limits, &mut HeadScan::default(), &mut again);
    let found = found.expect("what is accepted is a request of HTTP/1.1").expect("a whole one");
    assert_eq!((found.head_len, found.framing), (bytes.len(), parsed.framing), "one request and nothing more");
    assert_eq!(again.method_bytes(), head.method_bytes());
    assert_eq!((again.path(), again.query(), again.authority()), (head.path(), head.query(), head.authority()));

    let mut sent: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    request_fields(&head, parsed.framing, |name, value| sent.push((name.to_ascii_lowercase(), value.to_vec())));
    let sent: Pairs<'_> = sent.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    let target = [head.path(), b"?", head.query().unwrap_or_default()].concat();
    let target = if head.query().is_some() { &target[..] } else { head.path() };
    let pseudo =
        Pseudo { method: head.method_bytes(), authority: Some(head.authority()), path: Some(target), protocol: None };
    let mut other = RequestHead::default();
    let other_parsed = arrive(&pseudo, &sent, ends, &mut other).expect("what goes on is a request of HTTP/2");
    assert_eq!(other_parsed.framing, parsed.framing);
});
