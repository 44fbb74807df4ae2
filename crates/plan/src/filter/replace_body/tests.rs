use std::sync::Arc;

use model::FieldName;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, listed, request, response};
use super::super::{Chain, Coder, ResponseView, Turning};
use super::*;

/// A stage of a response with this type, and how long it makes the body.
fn begun(chain: &Chain, fields: &[(&str, &str)], extent: Extent) -> (String, Option<Box<dyn Coder>>, Extent) {
    let world = World::new();
    let asked = request("GET", "/path", &[("host", "www.example")]);
    let mut beside = Beside::new();
    let facts = world.facts();
    let mut head = response(200, fields);
    let view: ResponseView<'_> = world.view(&asked);
    let (mut stages, extent) = chain.begin_response_body(&mut head, &view, extent, &mut beside.turn(&facts));
    let coder = stages.pop().map(|stage| match stage {
        Stage::Coder(coder) => coder,
        _ => panic!("it changes nothing"),
    });
    (listed(&head.fields), coder, extent)
}

fn coder(replace: Value, more: Value) -> Box<dyn Coder> {
    let mut settings = more;
    settings["replace"] = replace;
    settings["types"] = json!(["*/*"]);
    let chain = chain(json!([{ "replace_body": settings }]));
    begun(&chain, &[("content-type", "text/plain")], Extent::Unknown).1.expect("it is searched")
}

/// All that comes of a body in pieces of one size, in rooms of another, flushed after every so many pieces.
fn replaced(coder: &mut dyn Coder, body: &[u8], (piece, room, flush): (usize, usize, usize)) -> Vec<u8> {
    let (mut out, mut buffer) = (Vec::new(), vec![0; room]);
    let mut drive = |mut rest: &[u8], turning: Turning| {
        loop {
            let done = coder.code(rest, &mut buffer, turning).expect("no body is bad");
            let goes_on = done.read + done.written > 0 || done.is_done;
            assert!(goes_on || turning == Turning::More && rest.is_empty(), "it goes on");
            rest = &rest[done.read..];
            out.extend_from_slice(&buffer[..done.written]);
            if done.is_done || turning == Turning::More && rest.is_empty() && done.written < room {
                break;
            }
        }
    };
    for (number, part) in body.chunks(piece).enumerate() {
        drive(part, Turning::More);
        if flush > 0 && number % flush == 0 {
            drive(b"", Turning::Flush);
        }
    }
    drive(b"", Turning::End);
    out
}

fn whole(replace: Value, more: Value, body: &str) -> String {
    let mut coder = coder(replace, more);
    String::from_utf8(replaced(&mut *coder, body.as_bytes(), (65_536, 65_536, 0))).expect("text")
}

/// What texts become of a body, found by the plainest means.
fn plainly(pairs: &[(String, String)], once: bool, body: &[u8]) -> Vec<u8> {
    let (mut out, mut at, mut spent) = (Vec::new(), 0, vec![false; pairs.len()]);
    while at < body.len() {
        let found = pairs.iter().position(|(text, _)| body[at..].starts_with(text.as_bytes()));
        match found {
            Some(pair) => {
                let (text, with) = &pairs[pair];
                out.extend_from_slice(if once && spent[pair] { text.as_bytes() } else { with.as_bytes() });
                spent[pair] = true;
                at += text.len();
            }
            None => {
                out.push(body[at]);
                at += 1;
            }
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn texts_are_replaced_wherever_the_body_is_split(
        pairs in proptest::collection::vec(("[ab]{1,5}", "[abx]{0,6}"), 1..5),
        body in "[abc]{0,400}", once in any::<bool>(), (piece, room, flush) in (1_usize..50, 1_usize..40, 0_usize..4),
    ) {
        let list: Vec<Value> = pairs.iter().map(|(text, with)| json!({ "text": text, "with": with })).collect();
        let mut coder = coder(json!(list), json!({ "once": once }));
        let got = replaced(&mut *coder, body.as_bytes(), (piece, room, flush));
        prop_assert_eq!(String::from_utf8(got), String::from_utf8(plainly(&pairs, once, body.as_bytes())));
    }

    #[test]
    fn matches_of_expressions_are_replaced_wherever_the_body_is_split(
        pattern in prop::sample::select(vec!["a+b", "[ab]{2,4}c", "\\bab", "b$", "(?m)^a", "a(b|c)?", "ab|abc", "(a)(c+)"]),
        body in "[abc \n]{0,400}", piece in 1_usize..50, room in 1_usize..40, flush in 0_usize..4,
    ) {
        let mut coder = coder(json!([{ "regex": pattern, "with": "<x>" }]), json!({ "match_max": "400" }));
        let got = replaced(&mut *coder, body.as_bytes(), (piece, room, flush));
        let wanted = crate::route::expression::anywhere(pattern).unwrap().replace_all(body.as_bytes(), &b"<x>"[..]).into_owned();
        prop_assert_eq!(String::from_utf8(got), String::from_utf8(wanted));
    }

    #[test]
    fn long_bodies_are_replaced_as_short_ones_are(seed in any::<u64>(), piece in 1_usize..70_000, room in 1_usize..70_000) {
        let mut state = seed | 1;
        let body: Vec<u8> = (0..200_000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            b"abcd"[(state >> 62) as usize]
        }).collect();
        let pairs = [("abca".to_owned(), "<1>".to_owned()), ("dd".to_owned(), String::new()), ("b".repeat(9), "B".to_owned())];
        let list: Vec<Value> = pairs.iter().map(|(text, with)| json!({ "text": text, "with": with })).collect();
        let wanted = plainly(&pairs, false, &body);
        let mut texts = coder(json!(list), json!({}));
        prop_assert!(replaced(&mut *texts, &body, (piece, room, 0)) == wanted);
        let list: Vec<Value> = pairs.iter().map(|(text, with)| json!({ "regex": text, "with": with })).collect();
        let mut expressions = coder(json!(list), json!({}));
        prop_assert!(replaced(&mut *expressions, &body, (piece, room, 0)) == wanted);
    }
}

#[test]
fn the_first_entry_that_matches_at_a_place_applies_and_what_it_inserts_is_not_searched() {
    let list =
        json!([{ "text": "ab", "with": "abc" }, { "text": "abc", "with": "no" }, { "regex": "c+", "with": "[$0]" }]);
    assert_eq!(whole(list, json!({}), "abcc xabc"), "abc[cc] xabc[c]");
}

#[test]
fn groups_variables_case_and_once() {
    let name = json!([{ "regex": "(?P<first>[a-z]+) ([a-z]+)", "with": "$2 ${first}$$ {{{method}}}" }]);
    assert_eq!(whole(name, json!({}), "one two"), "two one$ {GET}");
    let host = json!([{ "text": "http://internal/", "with": "{scheme}://{host}/" }]);
    assert_eq!(
        whole(host.clone(), json!({}), "a HTTP://internal/ http://internal/x"),
        "a HTTP://internal/ http://www.example/x"
    );
    assert_eq!(whole(host, json!({ "ignore_case": true }), "HTTP://INTERNAL/x"), "http://www.example/x");
    let both = json!([{ "text": "a", "with": "1" }, { "regex": "b+", "with": "2" }]);
    assert_eq!(whole(both, json!({ "once": true, "ignore_case": true }), "xAabBb b a"), "x1a2 b a");
    // A dollar sign of a text is one.
    assert_eq!(whole(json!([{ "text": "é", "with": "$1" }]), json!({}), "caf\u{e9}"), "caf$1");
    let mixed = json!([{ "text": "é", "with": "e" }, { "regex": "z", "with": "s" }]);
    assert_eq!(whole(mixed, json!({}), "ézé"), "ese");
}

#[test]
fn a_flush_brings_out_all_but_what_may_begin_a_match() {
    for (pair, text, held) in [
        (json!({ "text": "secret", "with": "***" }), "event 1\n", 0),
        (json!({ "text": "secret", "with": "***" }), "a secret se", 2),
        (json!({ "regex": "build [0-9]+", "with": "***" }), "event 1\n", 0),
        (json!({ "regex": "build [0-9]+", "with": "***" }), "now build 12", 8),
    ] {
        let mut coder = coder(json!([pair]), json!({}));
        let mut room = [0; 100];
        let done = coder.code(text.as_bytes(), &mut room, Turning::Flush).unwrap();
        assert!(done.is_done && done.read == text.len());
        let out = String::from_utf8(room[..done.written].to_vec()).unwrap();
        assert_eq!(out, text[..text.len() - held].replace("secret", "***"), "{text}");
        // A pause that lasts brings nothing more.
        let done = coder.code(b"", &mut room, Turning::Flush).unwrap();
        assert_eq!((done.read, done.written, done.is_done), (0, 0, true));
    }
}

#[test]
fn a_body_of_beginnings_alone_takes_no_more_memory_than_a_window() {
    let engine = Engine::compile(&[Pattern::Text("a".repeat(4_000) + "b")], false, 1_024).unwrap();
    let with: With = Arc::from([Replacement::of_text(Box::from(&b"x"[..]))]);
    let mut coder = Replacer::new(&Arc::new(engine), with, false, &Arc::from([]));
    let out = replaced(&mut coder, &[b'a'; 300_000], (50_000, 50_000, 1));
    assert!(out.len() == 300_000);
    assert!(coder.held() <= 64 << 10, "{}", coder.held());
}

const PAGE: [(&str, &str); 4] = [
    ("content-type", "text/html; charset=utf-8"),
    ("content-length", "9"),
    ("etag", "\"a\""),
    ("accept-ranges", "bytes"),
];

#[test]
fn heads_say_what_the_body_has_become() {
    let longer = chain(json!([{ "replace_body": { "replace": [{ "text": "a", "with": "bb" }] } }]));
    let (head, coder, extent) = begun(&longer, &PAGE, Extent::Known(9));
    assert_eq!((head.as_str(), extent), ("content-type: text/html; charset=utf-8|etag: W/\"a\"", Extent::Unknown));
    assert!(coder.is_some());
    let (head, coder, extent) = begun(&longer, &PAGE, Extent::Absent);
    assert_eq!((head.as_str(), extent), ("content-type: text/html; charset=utf-8|etag: W/\"a\"", Extent::Absent));
    assert!(coder.is_none(), "of HEAD there is no body");
    let equal = chain(json!([{ "replace_body": { "replace": [{ "text": "aé", "with": "bbb" }] } }]));
    let (head, _, extent) = begun(&equal, &PAGE, Extent::Known(9));
    let kept = "content-type: text/html; charset=utf-8|content-length: 9|etag: W/\"a\"";
    assert_eq!((head.as_str(), extent), (kept, Extent::Known(9)));
    let variable = chain(json!([{ "replace_body": { "replace": [{ "text": "abcdefgh", "with": "{method}" }] } }]));
    let dated: Vec<_> = PAGE.into_iter().chain([("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT")]).collect();
    for extent in [Extent::Known(9), Extent::Absent] {
        let (head, _, behind) = begun(&variable, &dated, extent);
        assert_eq!(
            head, "content-type: text/html; charset=utf-8",
            "the values may change while the endpoint's page does not"
        );
        assert_eq!(behind, if extent == Extent::Absent { extent } else { Extent::Unknown });
        assert!(begun(&longer, &dated, extent).0.contains("last-modified"));
    }
}

#[test]
fn what_must_not_be_changed_passes_as_it_is() {
    let chain = chain(json!([{ "replace_body": { "replace": [{ "text": "a", "with": "bb" }] } }]));
    for (name, value) in [
        ("content-type", "text/css"),
        ("content-encoding", "gzip"),
        ("cache-control", "no-transform"),
        ("content-digest", "sha-256=:AA==:"),
        ("content-range", "bytes 0-8/20"),
    ] {
        let fields: Vec<_> =
            [(name, value)].into_iter().chain(PAGE.into_iter().filter(|field| field.0 != name)).collect();
        let before = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("|");
        let (head, coder, extent) = begun(&chain, &fields, Extent::Known(9));
        assert_eq!((head, coder.is_none(), extent), (before, true, Extent::Known(9)));
    }
}

#[test]
fn bodies_of_requests_are_changed_where_that_is_asked_for_and_for_each_attempt() {
    let settings = json!({ "replace": [{ "text": "a", "with": "{host}" }], "requests": true, "responses": false, "types": ["text/*"] });
    let chain = chain(json!([{ "replace_body": settings }]));
    let (world, mut beside) = (World::new(), Beside::new());
    let facts = world.facts();
    let mut head = request("POST", "/", &[("host", "h"), ("content-type", "text/plain"), ("content-length", "2")]);
    let (make, extent) = chain.begin_request_body(&mut head, Extent::Known(2), &mut beside.turn(&facts));
    assert_eq!((listed(&head.fields).as_str(), extent), ("host: h|content-type: text/plain", Extent::Unknown));
    for _ in 0..2 {
        let Stage::Coder(mut coder) = make[0]() else { panic!("a tap changes nothing") };
        assert_eq!(replaced(&mut *coder, b"xa", (1, 1, 0)), b"xh");
    }
    assert!(!chain.has_response_bodies());
    let mut other = request("POST", "/", &[("content-type", "image/png")]);
    assert!(chain.begin_request_body(&mut other, Extent::Known(2), &mut beside.turn(&facts)).0.is_empty());
}

#[test]
fn digests_in_trailers_go_with_the_bytes_that_they_were_of() {
    let mut coder = coder(json!([{ "text": "a", "with": "b" }]), json!({}));
    let mut trailers = response(200, &[("content-digest", "x"), ("a", "b")]).fields;
    coder.trailers(&mut trailers);
    assert_eq!(listed(&trailers), "a: b");
    assert!(FieldName::new("content-digest").is_ok());
}

#[test]
fn wrong_settings_are_issues_with_their_place() {
    let pair = json!({ "text": "a", "with": "b" });
    for (settings, said) in [
        (json!({ "replace": [] }), "replace: 0 entries are not from 1 to 256"),
        (json!({ "replace": [pair], "responses": false }), "responses: neither bodies of requests nor"),
        (json!({ "replace": [pair], "types": ["html"] }), "types/0: `html` is not a media type"),
        (json!({ "replace": [pair], "match_max": "1MiB" }), "match_max: it is not from 1 to 32KiB"),
        (json!({ "replace": [pair, { "with": "b" }] }), "replace/1: exactly one of `text` and `regex` is needed"),
        (json!({ "replace": [{ "text": "", "with": "b" }] }), "replace/0/text: 0 bytes are not from 1 to 4096"),
        (json!({ "replace": [{ "regex": "a*", "with": "b" }] }), "replace/0/regex: `a*` matches an empty text"),
        (json!({ "replace": [{ "regex": "(", "with": "b" }] }), "replace/0/regex: `(` is not a regular expression"),
        (json!({ "replace": [{ "regex": "a", "with": "$1" }] }), "replace/0/with: the pattern has no group `1`"),
        (json!({ "replace": [{ "text": "a", "with": "{what}" }] }), "replace/0/with: "),
        (json!({ "replace": [{ "text": "a", "with": "{status}" }], "requests": true }), "replace/0/with: "),
        (
            json!({ "replace": [{ "regex": "a", "with": "$0".repeat(17) }] }),
            "replace/0/with: it quotes more than 16 groups",
        ),
    ] {
        let told = issue("replace_body", settings.clone());
        assert!(told.contains(said), "{settings}: {told}");
    }
}
