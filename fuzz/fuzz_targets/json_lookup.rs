//! JSON in bodies, as expressions of filters read it: an index beside a parser that makes a tree, and look-ups by every form of a way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::{Facts, Name, RequestHead, Scheme};
use plan::expression::{Condition, Scope, Subject, Value};
use plan::filter::Notes;
use plan::json::{Index, Item, Path};
use plan::route::body::json;

fuzz_target!(|input: &[u8]| {
    // The first line is a pointer or a name, or the rest of an expression; what follows is the body.
    let at = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    let (way, body) = (String::from_utf8_lossy(&input[..at]), &input[(at + 1).min(input.len())..]);
    let index = Index::parse(body);
    let name = Path::Name((*way).into());
    if let Some(index) = &index {
        walk(index.find(body, &name), body.len());
        // Offsets are never trusted: another text has other values, or none.
        walk(index.find(&body[..body.len() / 2], &name), body.len());
    }
    if let Ok(pointer) = json::pointer(&way) {
        let found = json::find(body, &pointer);
        let path = Path::Steps(pointer.iter().map(|step| (**step).into()).collect());
        // A text of too many values is one to a search that keeps none.
        if let (Some(index), Ok(found)) = (&index, &found) {
            let item = index.find(body, &path);
            assert_eq!(item.is_some(), found.is_some());
            if let Some(json::Found::Text(text)) = found {
                assert_eq!(item, Some(Item::Text(text)));
            }
        }
        assert!(index.is_none() || found.is_ok());
    }
    evaluate(&way, body);
});

fn walk(item: Option<Item<'_>>, length: usize) {
    match item {
        Some(Item::Text(text) | Item::Literal(text)) => assert!(text.len() <= length),
        Some(Item::Array(items)) => items.for_each(|item| walk(Some(item), length)),
        Some(Item::Object) | None => {}
    }
}

/// Looks a way up as an expression writes it.
fn evaluate(way: &str, body: &[u8]) {
    let (head, listener) = (RequestHead::default(), Name::from("web"));
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
    notes.set_body(body.into());
    let of = Subject::of_request(&head, &facts).with_notes(&notes);
    let mut scratch = b"kept".to_vec();
    for text in [format!("request.body.json{way}"), format!("request.body.json[{way:?}]")] {
        if let Ok(value) = Value::compile(&text, Scope::Request) {
            let once = value.with(of, &mut scratch, <[u8]>::to_vec);
            assert!(once == value.with(of, &mut scratch, <[u8]>::to_vec) && once.len() <= 512 * 1024);
        }
        if let Ok(condition) = Condition::compile(&format!("\"a\" in {text} || has({text})"), Scope::Request) {
            condition.is_true(of, &mut scratch);
        }
    }
    assert_eq!(scratch, b"kept");
}
