//! Texts of expressions, and requests that they are asked about: no panic, no endless work, and what is wrong is within the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::fields::Span;
use model::{Facts, FieldName, Name, RequestHead, Scheme, Version};
use plan::expression::{Condition, Scope, Subject, Value};
use plan::filter::Notes;

fuzz_target!(|input: &[u8]| {
    // The first line is the expression, the others are the target and field values of a request.
    let mut lines = input.split(|byte| *byte == b'\n');
    let Ok(text) = std::str::from_utf8(lines.next().unwrap_or_default()) else { return };
    let mut head = RequestHead::default();
    let start = head.fields.load(b"GET");
    let method = Span::new(start, start + 3);
    let target = lines.next().unwrap_or_default();
    let start = head.fields.load(target);
    head.set_line(method, Span::new(start, start + target.len()), Version::Http11);
    for (name, value) in ["host", "x-a", "x-a", "cookie"].into_iter().zip(lines) {
        head.fields.append(&FieldName::new(name).expect("a name"), value);
    }
    let listener = Name::from("web");
    let peer: std::net::SocketAddr = "192.0.2.7:40000".parse().expect("an address");
    let facts = Facts {
        peer,
        client: peer.ip(),
        local: peer,
        scheme: Scheme::Http,
        tls: None,
        sender: None,
        listener: &listener,
        request_id: "id",
        user: None,
    };
    let mut notes = Notes::default();
    notes.set_user(b"ann");
    let of = Subject::of_request(&head, &facts).with_notes(&notes);
    let mut scratch = b"kept".to_vec();
    match Condition::compile(text, Scope::Log) {
        Ok(condition) => {
            condition.is_true(of, &mut scratch);
        }
        Err(issue) => {
            let (start, end) = issue.part.expect("a place");
            assert!(start <= end && start <= text.len() && text.is_char_boundary(start));
        }
    }
    if let Ok(value) = Value::compile(text, Scope::Log) {
        let once = value.with(of, &mut scratch, <[u8]>::to_vec);
        let twice = value.with(of, &mut scratch, <[u8]>::to_vec);
        assert!(once == twice && once.len() <= 512 * 1024);
    }
    assert_eq!(scratch, b"kept");
});
