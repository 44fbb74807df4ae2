//! Which responses are coded, how, and what their heads say.

use model::fields::Span;
use model::filter::FilterUse;
use model::matching::{Match, PathMatch, When};
use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, listed, request, response};
use super::super::{Chain, Turning};
use super::*;

/// The head after the filter, and the name of the coding if there is a stage.
fn begun(chain: &Chain, request: &RequestHead, mut head: ResponseHead, extent: Extent) -> (String, bool) {
    let (world, mut beside) = (World::new(), Beside::new());
    let facts = world.facts();
    let view = world.view(request);
    let (stages, behind) = chain.begin_response_body(&mut head, &view, extent, &mut beside.turn(&facts));
    assert_eq!(behind, if stages.is_empty() { extent } else { Extent::Unknown });
    (listed(&head.fields), !stages.is_empty())
}

fn get(fields: &[(&str, &str)]) -> RequestHead {
    request("GET", "/", fields)
}

const ALL: &[(&str, &str)] = &[("accept-encoding", "gzip, deflate, br, zstd")];
const HTML: (&str, &str) = ("content-type", "text/html; charset=utf-8");

/// The coding that a client gets for what it accepts; empty: none.
fn coding(settings: Value, accepted: &[&str]) -> String {
    let fields: Vec<_> = accepted.iter().map(|value| ("Accept-Encoding", *value)).collect();
    let chain = chain(json!([{ "compress": settings }]));
    let (listed, is_coded) = begun(&chain, &get(&fields), response(200, &[HTML]), Extent::Unknown);
    assert!(listed.contains("vary: Accept-Encoding"), "{listed}");
    let (_, coding) = listed.split_once("content-encoding: ").unwrap_or_default();
    assert_eq!(is_coded, !coding.is_empty());
    coding.split('|').next().unwrap_or_default().to_owned()
}

#[test]
fn the_coding_is_the_one_that_the_client_weighs_highest_and_else_the_first() {
    for (accepted, expected) in [
        (&[][..], ""),
        (&[""], ""),
        (&["gzip, deflate, br, zstd"], "zstd"),
        (&["gzip, deflate, br"], "br"),
        (&["gzip, deflate"], "gzip"),
        (&["deflate"], ""),
        (&["gzip", "br"], "br"),
        (&["GZip;Q=0.8,BR;q=0.9"], "br"),
        (&["br;q=0.5, gzip;q=0.501"], "gzip"),
        (&["zstd;q=0, br;q=0.000, gzip;q=0.001"], "gzip"),
        (&["gzip;q=0"], ""),
        (&["x-gzip"], "gzip"),
        (&["X-GZIP;q=0.5"], "gzip"),
        (&["*"], "zstd"),
        (&["*;q=0"], ""),
        (&["gzip, *;q=0"], "gzip"),
        (&["zstd;q=0, *"], "br"),
        (&["gzip;q=0.5, *;q=0.7"], "zstd"),
        (&["identity"], ""),
        (&["identity, gzip"], "gzip"),
        (&["identity;q=1, gzip;q=0.5"], ""),
        (&["identity;q=0.5, gzip;q=0.5"], "gzip"),
        (&["identity;q=0"], ""),
        (&["identity;q=0, br"], "br"),
        // What is malformed says nothing.
        (&["gzip;q=2"], ""),
        (&["gzip;q=0.1234, br"], "br"),
        (&["gzip;q=, zstd;q=x, br;level=3"], ""),
        (&["gzip;q=0.5;q=0.7"], ""),
        (&[" , ,gzip ; q=1.0 ,"], "gzip"),
        (&["g zip, gzip2, brr"], ""),
        (&["gzip;q=0, gzip"], ""),
    ] {
        assert_eq!(coding(json!({}), accepted), expected, "{accepted:?}");
    }
    let ours = json!({ "algorithms": ["gzip", "br"] });
    for (accepted, expected) in
        [(["br, gzip, zstd"], "gzip"), (["zstd"], ""), (["br, gzip;q=0.9"], "br"), (["*"], "gzip")]
    {
        assert_eq!(coding(ours.clone(), &accepted), expected, "{accepted:?}");
    }
}

#[test]
fn a_coded_response_says_so_in_its_head() {
    let chain = chain(json!([{ "compress": {} }]));
    let sent = response(
        200,
        &[
            HTML,
            ("Content-Length", "5000"),
            ("Accept-Ranges", "bytes"),
            ("ETag", "\"a\""),
            ("Vary", "Cookie"),
            ("content-encoding", "identity"),
        ],
    );
    assert_eq!(
        begun(&chain, &get(ALL), sent, Extent::Known(5_000)),
        (
            "content-type: text/html; charset=utf-8|ETag: W/\"a\"|Vary: Cookie, Accept-Encoding|content-encoding: zstd"
                .into(),
            true
        )
    );
}

#[test]
fn the_answer_to_head_has_the_fields_of_that_to_get() {
    let chain = chain(json!([{ "compress": {} }]));
    let sent = |length: &'static str| response(200, &[HTML, ("content-length", length), ("etag", "\"a\"")]);
    let head = |length| begun(&chain, &request("HEAD", "/", ALL), sent(length), Extent::Absent);
    let (of_get, is_coded) = begun(&chain, &get(ALL), sent("5000"), Extent::Known(5_000));
    assert!(is_coded);
    assert_eq!(head("5000"), (of_get, false));
    let (short, _) = begun(&chain, &get(ALL), sent("500"), Extent::Known(500));
    assert_eq!(head("500"), (short, false));
}

#[test]
fn a_304_goes_by_its_type_or_by_what_the_client_holds() {
    let chain = chain(json!([{ "compress": {} }]));
    let answer = |held: &str, accepted: &str, fields: &[(&str, &str)]| {
        let request = get(&[("if-none-match", held), ("accept-encoding", accepted)]);
        begun(&chain, &request, response(304, fields), Extent::Absent)
    };
    let not = |text: &str| (text.to_owned(), false);
    assert_eq!(answer("W/\"a\"", "br", &[("etag", "\"a\"")]), not("etag: W/\"a\"|vary: Accept-Encoding"));
    assert_eq!(answer("\"b\", W/\"a\"", "br", &[("etag", "\"a\"")]), not("etag: W/\"a\"|vary: Accept-Encoding"));
    assert_eq!(answer("W/\"a\"", "", &[("etag", "\"a\"")]), not("etag: \"a\"|vary: Accept-Encoding"));
    assert_eq!(answer("\"a\"", "br", &[("etag", "\"a\"")]), not("etag: \"a\""), "it holds what is not coded");
    assert_eq!(
        answer("\"a\"", "br", &[HTML, ("etag", "\"a\"")]),
        not("content-type: text/html; charset=utf-8|etag: W/\"a\"|vary: Accept-Encoding")
    );
    let picture = [("content-type", "image/png"), ("etag", "\"a\"")];
    assert_eq!(answer("W/\"a\"", "br", &picture), not("content-type: image/png|etag: \"a\""));
}

#[test]
fn what_must_stay_as_it_is_is_not_touched() {
    let chain = chain(json!([{ "compress": { "types": ["*/*"] } }]));
    let untouched = |status: u16, more: &[(&str, &str)]| {
        let sent = response(status, &[&[HTML, ("etag", "\"a\"")], more].concat());
        let before = listed(&sent.fields);
        assert_eq!(begun(&chain, &get(ALL), sent, Extent::Unknown), (before, false), "{status} {more:?}");
    };
    for status in [101, 204, 205, 206] {
        untouched(status, &[]);
    }
    for field in [
        ("content-range", "bytes 0-9/100"),
        ("content-encoding", "br"),
        ("content-encoding", "identity, gzip"),
        ("cache-control", "public, No-Transform"),
        ("content-digest", "sha-256=:AAAA:"),
        ("repr-digest", "sha-256=:AAAA:"),
        ("digest", "sha-256=AAAA"),
        ("content-md5", "AAAA"),
    ] {
        untouched(200, &[field]);
    }
    for kind in ["application/grpc", "application/grpc-web+proto", "Application/gRPC; x=y"] {
        let sent = response(200, &[("content-type", kind)]);
        assert!(!begun(&chain, &get(ALL), sent, Extent::Unknown).1);
    }
    assert!(!begun(&chain, &get(ALL), response(200, &[]), Extent::Unknown).1, "without a type nothing is known");
    assert!(!begun(&chain, &request("CONNECT", "", ALL), response(200, &[HTML]), Extent::Unknown).1);
    for status in [200, 201, 302, 404, 500, 503] {
        assert!(begun(&chain, &get(ALL), response(status, &[HTML]), Extent::Unknown).1, "{status}");
    }
}

#[test]
fn where_only_the_request_forbids_it_caches_learn_that_the_answer_varies() {
    let chain = chain(json!([{ "compress": {} }]));
    let old = {
        let mut head = RequestHead::default();
        let mut load = |text: &str| {
            let start = head.fields.load(text.as_bytes());
            Span::new(start, start + text.len())
        };
        let (method, target) = (load("GET"), load("/"));
        head.set_line(method, target, model::Version::Http10);
        head.fields.append(&model::FieldName::new("accept-encoding").unwrap(), b"gzip");
        head
    };
    let more = |field| get(&[ALL, &[field]].concat());
    for request in [old, more(("range", "bytes=0-9")), more(("cache-control", "max-age=0, no-transform")), get(&[])] {
        let sent = response(200, &[HTML, ("etag", "\"a\""), ("content-length", "5000"), ("accept-ranges", "bytes")]);
        let expected = format!("{}|vary: Accept-Encoding", listed(&sent.fields));
        assert_eq!(begun(&chain, &request, sent, Extent::Known(5_000)), (expected, false));
    }
}

#[test]
fn vary_names_the_field_once_and_etags_become_weak_once() {
    let chain = chain(json!([{ "compress": {} }]));
    let after = |name, value: &str| {
        let (listed, _) = begun(&chain, &get(ALL), response(200, &[HTML, (name, value)]), Extent::Unknown);
        let all: Vec<&str> = listed.split('|').filter(|field| field.starts_with(name)).collect();
        all.join("|")
    };
    for (before, expected) in [
        ("*", "vary: *"),
        ("accept-ENCODING", "vary: accept-ENCODING"),
        ("Origin,Accept-Encoding", "vary: Origin,Accept-Encoding"),
        ("Origin", "vary: Origin, Accept-Encoding"),
        ("", "vary: Accept-Encoding"),
    ] {
        assert_eq!(after("vary", before), expected);
    }
    for (before, expected) in
        [("\"a\"", "etag: W/\"a\""), ("W/\"a\"", "etag: W/\"a\""), ("\"\"", "etag: W/\"\""), ("bare", ""), ("", "")]
    {
        assert_eq!(after("etag", before), expected);
    }
    let two = response(200, &[HTML, ("vary", "a"), ("vary", "Accept-Encoding")]);
    assert!(begun(&chain, &get(ALL), two, Extent::Unknown).0.contains("vary: a|vary: Accept-Encoding|content-enc"));
}

#[test]
fn types_are_compared_without_parameters_and_case() {
    let is_coded = |settings: Value, kind: &str| {
        let sent = response(200, &[("content-type", kind)]);
        begun(&chain(json!([{ "compress": settings }])), &get(ALL), sent, Extent::Unknown).1
    };
    for (kind, expected) in [
        ("text/html", true),
        ("TEXT/HTML ;charset=utf-8", true),
        ("application/problem+json", true),
        ("application/atom+XML", true),
        ("image/svg+xml", true),
        ("application/wasm", true),
        ("text/event-stream", false),
        ("application/+json", true),
        ("application/json5", false),
        ("image/png", false),
        ("application/octet-stream", false),
        ("", false),
        ("text", false),
    ] {
        assert_eq!(is_coded(json!({}), kind), expected, "{kind}");
    }
    let ours = json!({ "types": ["text/*", "application/*+cbor", "Font/TTF"] });
    for (kind, expected) in [
        ("text/event-stream", true),
        ("text/", true),
        ("texts/a", false),
        ("application/x+cbor", true),
        ("application/cbor", false),
        ("font/ttf", true),
    ] {
        assert_eq!(is_coded(ours.clone(), kind), expected, "{kind}");
    }
}

#[test]
fn a_short_body_passes_without_vary_and_one_of_unknown_length_is_coded() {
    let is_coded = |settings: Value, extent| {
        let chain = chain(json!([{ "compress": settings }]));
        let (listed, is_coded) = begun(&chain, &get(ALL), response(200, &[HTML]), extent);
        assert_eq!(listed.contains("vary"), is_coded);
        is_coded
    };
    assert!(!is_coded(json!({}), Extent::Known(1_023)) && is_coded(json!({}), Extent::Known(1_024)));
    assert!(is_coded(json!({}), Extent::Unknown));
    let none = json!({ "size_min": 0 });
    assert!(is_coded(none.clone(), Extent::Known(1)) && !is_coded(none, Extent::Known(0)));
    assert!(!is_coded(json!({ "size_min": "4KiB" }), Extent::Known(4_095)));
}

#[test]
fn a_condition_says_where_it_applies() {
    let matches = Match { path: Some(PathMatch::Prefix("/a".into())), ..Match::default() };
    let uses = [FilterUse {
        name: "compress".into(),
        settings: json!({}),
        when: Some(When { matches, ..When::default() }),
        calls: Vec::new(),
    }];
    let chain = Chain::compile(&uses, None).unwrap();
    for (target, expected) in [("/a/b", true), ("/b", false)] {
        let (world, mut beside) = (World::new(), Beside::new());
        let facts = world.facts();
        let (mut sent, mut head) = (request("GET", target, ALL), response(200, &[HTML]));
        chain.on_request(&mut sent, &mut beside.turn(&facts));
        let view = world.view(&sent);
        let (stages, _) = chain.begin_response_body(&mut head, &view, Extent::Unknown, &mut beside.turn(&facts));
        assert_eq!(stages.len(), usize::from(expected), "{target}");
    }
}

#[test]
fn the_stage_codes_the_body() {
    let (chain, world, mut beside) = (chain(json!([{ "compress": {} }])), World::new(), Beside::new());
    let (sent, mut head) = (get(&[("accept-encoding", "gzip")]), response(200, &[HTML]));
    let (mut stages, _) =
        chain.begin_response_body(&mut head, &world.view(&sent), Extent::Unknown, &mut beside.turn(&world.facts()));
    let Some(Stage::Coder(coder)) = stages.first_mut() else { panic!("no coder") };
    let mut room = [0; 200];
    let coded = coder.code(b"hello", &mut room, Turning::End).unwrap();
    assert!(coded.is_done && room.starts_with(&[0x1f, 0x8b]), "{coded:?}");
}

#[test]
fn mistakes_are_found_when_the_configuration_is_checked() {
    for (settings, told) in [
        (json!({ "algorithms": [] }), "algorithms: the list is empty (name an algorithm, or leave the filter out)"),
        (json!({ "algorithms": ["br", "br"] }), "algorithms/1: `br` is listed twice"),
        (json!({ "algorithms": ["lz4"] }), ": unknown variant `lz4`, expected one of `zstd`, `br`, `gzip`"),
        (json!({ "levels": { "gzip": 10 } }), "levels/gzip: 10 is not a level of `gzip` (use 1 to 9)"),
        (json!({ "levels": { "br": 12 } }), "levels/br: 12 is not a level of `br` (use 0 to 11)"),
        (json!({ "levels": { "zstd": 0 } }), "levels/zstd: 0 is not a level of `zstd` (use 1 to 19)"),
        (
            json!({ "algorithms": ["br"], "levels": { "gzip": 5 } }),
            "levels/gzip: a level of `gzip` has no effect: `algorithms` does not name it (leave it out, or add it to `algorithms`)",
        ),
        (json!({ "types": [] }), "types: the list is empty (name a type, or leave `types` out)"),
        (json!({ "types": vec!["a/b"; 257] }), "types: 257 types are more than 256"),
        (json!({ "types": ["*"] }), "types/0: `*` is not a media type (write `*/*` for all types)"),
        (
            json!({ "types": ["a/b", "html"] }),
            "types/1: `html` is not a media type (write it as `text/html` or `text/*`)",
        ),
        (
            json!({ "types": ["Text/HTML; charset=utf-8"] }),
            "types/0: `Text/HTML; charset=utf-8` is not a media type (parameters do not count: write `text/html`)",
        ),
        (
            json!({ "types": ["text/x*"] }),
            "types/0: `text/x*` is not a media type (`*` stands for a whole part, or before a suffix as in `application/*+json`)",
        ),
        (
            json!({ "types": ["*/html"] }),
            "types/0: `*/html` is not a media type (`*` stands for a whole part, or before a suffix as in `application/*+json`)",
        ),
        (
            json!({ "types": ["application/grpc+proto"] }),
            "types/0: bodies of `application/grpc+proto` cannot be changed: gRPC frames and compresses its messages itself (leave it out)",
        ),
        (json!({ "size_min": "1 XB" }), ": `1 XB` is not a size such as 16KiB, 1MB or 100"),
    ] {
        assert_eq!(issue("compress", settings), told);
    }
}
