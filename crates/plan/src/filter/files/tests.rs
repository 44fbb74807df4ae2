use std::sync::Arc;

use serde_json::{Value, json};

use super::super::testing::{Beside, World, compiled, request};
use super::super::{DirectoryEntry, StreamedResponse};
use super::*;

fn step(settings: &Value) -> Box<dyn RequestStep> {
    compiled(&ENTRY, settings).request.expect("it is there")
}

fn asked_for(settings: &Value, path: &str, fields: &[(&str, &str)]) -> Result<FileAsk, Flow> {
    let mut head = request("GET", path, fields);
    match step(settings).apply(&mut head, &mut Beside::new().turn(&World::new().facts())) {
        Flow::Need(Need::File(ask)) => Ok(*ask),
        other => Err(other),
    }
}

fn resumed(settings: &Value, (path, fields): (&str, &[(&str, &str)]), found: FileFound) -> Flow {
    let mut head = request("GET", path, fields);
    head.keep_received();
    step(settings).resume(&mut head, Found::File(found), &mut Beside::new().turn(&World::new().facts()))
}

fn file(name: &str, bytes: &[u8]) -> FileFound {
    FileFound::File(Box::new(OpenedFile {
        bytes: Some(Arc::from(bytes)),
        content: None,
        length: bytes.len() as u64,
        modified: (784_111_777, 5),
        name: name.as_bytes().to_vec(),
        coding: None,
    }))
}

fn streamed(flow: Flow) -> StreamedResponse {
    match flow {
        Flow::Stream(streamed) => *streamed,
        other => panic!("{other:?}"),
    }
}

fn field<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
}

const ROOT: &str = "/srv/www";

#[test]
fn a_request_asks_for_the_file_below_the_root() {
    let settings = json!({ "root": ROOT, "strip_prefix": "/static/", "precompressed": ["br", "zstd", "gzip"] });
    let path = |path: &str| asked_for(&settings, path, &[]).map(|ask| String::from_utf8(ask.path).unwrap());
    assert_eq!(path("/static/a%20b?c").as_deref(), Ok("a b"));
    assert_eq!((path("/static").as_deref(), path("/static/").as_deref()), (Ok(""), Ok("")));
    // Links in its page are relative to it. What is not there may go on to an application.
    let Flow::Respond(redirect) = resumed(&settings, ("/static?a=b", &[]), file("index.html", b"x")) else { panic!() };
    assert_eq!((redirect.status, field(&redirect.fields, "location")), (301, Some("./static/?a=b")));
    let here = streamed(resumed(&settings, ("/static/", &[]), file("index.html", b"x")));
    assert_eq!(here.status, 200);
    for missing in ["/", "/statics/a", "/static/../a", "/static/.git/config", "/static/%2fetc"] {
        assert!(matches!(path(missing), Err(Flow::Respond(local)) if local.status == 404), "{missing}");
    }
    let codings = |text: &str| asked_for(&settings, "/static/a", &[("accept-encoding", text)]).unwrap().codings;
    assert_eq!(codings("gzip, br"), [".br", ".gz"]);
    assert_eq!(codings("gzip, br;q=0.9, zstd;q=0"), [".gz", ".br"]);
    assert!(codings("*;q=x, identity, brr, br;q=2").is_empty());
}

#[test]
fn other_methods_are_refused_or_go_on() {
    for (missing, wanted) in [("respond", Some(405)), ("continue", None)] {
        let step = step(&json!({ "root": ROOT, "missing": missing }));
        let mut head = request("DELETE", "/a", &[]);
        let flow = step.apply(&mut head, &mut Beside::new().turn(&World::new().facts()));
        let status = if let Flow::Respond(local) = flow { Some(local.status) } else { None };
        assert_eq!(status, wanted);
    }
}

#[test]
fn types_and_fields_are_those_of_the_settings() {
    let settings = json!({ "root": ROOT, "cache_control": "no-cache", "types": { ".Foo": "text/x-foo", "css": "text/plain" },
        "charset": "iso-8859-1" });
    for (name, wanted) in [
        ("a.foo", "text/x-foo; charset=iso-8859-1"),
        ("a.css", "text/plain; charset=iso-8859-1"),
        ("a.PNG", "image/png"),
        ("a", "application/octet-stream"),
    ] {
        let sent = streamed(resumed(&settings, ("/a", &[]), file(name, b"x")));
        assert_eq!((sent.status, field(&sent.fields, "content-type")), (200, Some(wanted)), "{name}");
        assert_eq!(field(&sent.fields, "cache-control"), Some("no-cache"));
        assert_eq!(field(&sent.fields, "last-modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
        assert_eq!(field(&sent.fields, "etag"), Some("\"2ebc98a1-5-1\""));
    }
    let bare = json!({ "root": ROOT, "charset": "" });
    let sent = streamed(resumed(&bare, ("/a", &[]), file("a.txt", b"")));
    assert_eq!((field(&sent.fields, "content-type"), sent.length()), (Some("text/plain"), 0));
}

#[test]
fn conditions_are_taken_in_their_order() {
    let settings = json!({ "root": ROOT });
    let etag = {
        let sent = streamed(resumed(&settings, ("/a", &[]), file("a", b"abc")));
        field(&sent.fields, "etag").expect("a tag").to_owned()
    };
    let weak = format!("\"x\", W/{etag}");
    const THEN: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    let cases: [(&[(&str, &str)], u16); 12] = [
        (&[("if-none-match", &weak)], 304),
        (&[("if-none-match", "*")], 304),
        (&[("if-none-match", "\"x"), ("if-modified-since", THEN)], 200),
        (&[("if-modified-since", THEN)], 304),
        (&[("if-modified-since", BEFORE)], 200),
        (&[("if-modified-since", "yesterday")], 200),
        (&[("if-match", &weak)], 412),
        (&[("if-match", &etag), ("if-unmodified-since", BEFORE)], 200),
        (&[("if-match", "*")], 200),
        (&[("if-unmodified-since", BEFORE)], 412),
        (&[("if-unmodified-since", THEN)], 200),
        (&[("if-match", &etag), ("if-none-match", &etag)], 304),
    ];
    for (fields, wanted) in cases {
        let status = match resumed(&settings, ("/a", fields), file("a", b"abc")) {
            Flow::Stream(sent) => sent.status,
            Flow::Respond(local) => local.status,
            other => panic!("{other:?}"),
        };
        assert_eq!(status, wanted, "{fields:?}");
    }
}

#[test]
fn all_else_that_is_found_has_its_status() {
    let settings = json!({ "root": ROOT });
    for (found, wanted) in [
        (FileFound::Missing, 404),
        (FileFound::Denied, 403),
        (FileFound::Busy, 503),
        (FileFound::Failed, 500),
        (FileFound::WithoutSlash, 301),
        (FileFound::Directory(Vec::new()), 200),
    ] {
        let Flow::Respond(local) = resumed(&settings, ("/a", &[]), found) else { panic!("{wanted}") };
        assert_eq!(local.status, wanted);
    }
    // The slash is there, and a rewrite has removed it: no redirect leads further.
    let Flow::Respond(local) = resumed(&settings, ("/a/", &[]), FileFound::WithoutSlash) else { panic!("404") };
    assert_eq!(local.status, 404);
    let goes_on = json!({ "root": ROOT, "missing": "continue" });
    assert_eq!(resumed(&goes_on, ("/a", &[]), FileFound::Missing), Flow::Continue);
}

#[test]
fn listings_show_no_hidden_names_and_run_nothing() {
    let entry =
        |name: &str| DirectoryEntry { name: name.as_bytes().to_vec(), is_directory: false, length: 1, modified: 0 };
    let entries = || vec![entry("b"), entry(".a"), entry("javascript:x"), entry("\"><script>\n")];
    let Flow::Respond(page) = resumed(&json!({ "root": ROOT }), ("/", &[]), FileFound::Directory(entries())) else {
        panic!("a page")
    };
    let text = String::from_utf8(page.body).unwrap();
    assert!(text.contains("\"./javascript%3Ax\"") && !text.contains("<script") && !text.contains(".a<"), "{text}");
}

#[test]
fn settings_that_cannot_be_meant_are_issues() {
    for (settings, path) in [
        (json!({ "root": "www" }), "root"),
        (json!({ "root": ROOT, "index": ["a/b"] }), "index/0"),
        (json!({ "root": ROOT, "index": [".."] }), "index/0"),
        (json!({ "root": ROOT, "fallback": "index.html" }), "fallback"),
        (json!({ "root": ROOT, "fallback": "/../x" }), "fallback"),
        (json!({ "root": ROOT, "strip_prefix": "static" }), "strip_prefix"),
        (json!({ "root": ROOT, "strip_prefix": "/" }), "strip_prefix"),
        (json!({ "root": ROOT, "cache_control": "a\nb" }), "cache_control"),
        (json!({ "root": ROOT, "charset": "utf 8" }), "charset"),
        (json!({ "root": ROOT, "types": { "a.b": "text/x" } }), "types/a.b"),
        (json!({ "root": ROOT, "types": { "a": "text" } }), "types/a"),
    ] {
        assert_eq!((ENTRY.check)(&settings).unwrap_err().path, path, "{settings}");
    }
}
