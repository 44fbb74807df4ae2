//! Places of keys and values. Hostile texts are in `tests/whole/hostile.rs`.

use super::*;
use crate::source::{Document, Documents};

fn parsed(text: &str) -> (Option<Node>, Vec<String>) {
    let mut documents = Documents::default();
    let document = Document { name: "t".into(), folder: "".into(), text: text.into(), on_disk: false };
    let file = documents.add(document);
    let (mut sink, mut budget) = (Sink::default(), Budget::default());
    let node = parse(file, text, &mut budget, &mut sink);
    let told =
        sink.finish(&documents).list.into_iter().map(|one| format!("{}:{}: {}", one.line, one.column, one.message));
    (node, told.collect())
}

fn place(node: &Node, path: &str) -> (u32, u32, u32) {
    let span = node.locate(path);
    (span.line, span.column, span.end)
}

#[test]
fn every_key_and_value_has_its_place() {
    let text = "a: one\nb:\n  - two\n  - { c: \"th ree\", ü: 4 }\nd: |\n  five\n  six\ne/f: 7\n'g': [8, 9]\n";
    let (node, told) = parsed(text);
    let node = node.unwrap();
    assert!(told.is_empty(), "{told:?}");
    assert_eq!(place(&node, "a"), (1, 4, 7));
    assert_eq!(place(&node, "b"), (2, 1, 2), "a list is shown at its key");
    assert_eq!(place(&node, "b/0"), (3, 5, 8));
    assert_eq!(place(&node, "b/1/c"), (4, 10, 18));
    assert_eq!(place(&node, "b/1/ü"), (4, 23, 24));
    assert_eq!(place(&node, "d").0, 6, "a block is shown at its first line");
    assert_eq!(place(&node, "e/f"), (8, 6, 7), "a key may hold the sign that joins paths");
    assert_eq!(place(&node, "g/1"), (9, 10, 11));
    assert_eq!(place(&node, "b/9/x"), (2, 1, 2), "the longest part that is known");
    assert_eq!(place(&node, ""), (1, 1, place(&node, "").2));
    let key = node.locate_key("b/1", "c");
    assert_eq!((key.line, key.column, key.end), (4, 7, 8));
}

#[test]
fn quotes_and_tags_say_what_is_text() {
    let (node, told) = parsed("- 5\n- '5'\n- \"5\"\n- !!str 5\n- ! 5\n- |\n 5\n");
    assert!(told.is_empty(), "{told:?}");
    let value = node.unwrap().to_value();
    assert_eq!(value, serde_json::json!([5, "5", "5", "5", "5", "5\n"]));
}

#[test]
fn a_key_stands_once_and_is_text() {
    let (node, told) = parsed("a: 1\nb: { a: 1, a: 2 }\na: 3\n? [x]\n: 4\n5: 6\n");
    assert_eq!(node.unwrap().to_value(), serde_json::json!({ "a": 1, "b": { "a": 1 }, "5": 6 }));
    assert_eq!(
        told,
        [
            "2:12: the key `a` is listed twice, first in line 2",
            "3:1: the key `a` is listed twice, first in line 1",
            "4:3: a key must be text",
        ]
    );
}

/// The first problem of a text that is not YAML, with its mend.
fn broken(text: &str) -> String {
    let mut documents = Documents::default();
    let document = Document { name: "t".into(), folder: "".into(), text: text.into(), on_disk: false };
    let file = documents.add(document);
    let (mut sink, mut budget) = (Sink::default(), Budget::default());
    parse(file, text, &mut budget, &mut sink);
    let told = sink.finish(&documents).list.into_iter().next().unwrap_or_else(|| panic!("this is YAML:\n{text}"));
    let mend = told.suggestion.map_or_else(String::new, |mend| format!(" ({mend})"));
    format!("{}:{}: {}{mend}", told.line, told.column, told.message.trim_start_matches("not YAML: "))
}

#[test]
fn text_that_begins_with_a_sign_of_yaml_is_to_be_put_in_quotes() {
    let wildcard = "`*.a.example` is not text here: `*` refers to an anchor, and there is none of that name \
                    (put it in quotes: \"*.a.example\")";
    assert_eq!(broken("host: *.a.example\n"), format!("1:7: {wildcard}"));
    assert_eq!(broken("a: { host: *.a.example }\n"), format!("1:12: {wildcard}"));
    assert_eq!(broken("a: { host: [*.a.example, b] }\n"), format!("1:13: {wildcard}"));
    assert_eq!(
        broken("a: *\n"),
        "1:4: `*` is not text here: `*` refers to an anchor, and there is none of that name (put it in quotes: \"*\")"
    );
    assert_eq!(
        broken("a: *missing\n"),
        "1:4: no anchor `&missing` is defined before `*missing` (define `&missing` above, or put it in quotes: \"*missing\")"
    );
    assert_eq!(
        broken("a: { b: @host }\n"),
        "1:9: `@host` is not text here: text without quotes cannot begin with `@` (put it in quotes: \"@host\")"
    );
}

#[test]
fn escapes_and_quotes_are_explained_where_they_stand() {
    assert_eq!(
        broken("a: { regex: \"/x\\\\y\\.php$\" }\n"),
        "1:19: `\\.` is not a valid escape in double quotes (put the text in single quotes: '/x\\\\y\\.php$')"
    );
    assert_eq!(broken("a: \"it's \\.\"\n"), "1:10: `\\.` is not a valid escape in double quotes (write `\\\\.`)");
    let open = "the text that begins with `\"` here is never closed (add a `\"` at its end)";
    assert_eq!(broken("a:\n  b: [\"x, y]\nc: d\n"), format!("2:7: {open}"));
    assert_eq!(broken("a: \"x\n"), format!("1:4: {open}"));
}

#[test]
fn a_bracket_that_is_never_closed_is_shown_where_it_is_opened() {
    let never = |sign: char, partner: char| {
        format!("the `{sign}` that is opened here is never closed (add the `{partner}` that belongs to it)")
    };
    let brace = never('{', '}');
    assert_eq!(broken("l:\n  web: { bind: \"a\"\nroutes:\n  - cluster: a\n"), format!("2:8: {brace}"));
    assert_eq!(broken("l:\n  web: { bind: \"a\"\n  two: { bind: b }\nr: 1\n"), format!("2:8: {brace}"));
    assert_eq!(broken("c: { a: { e: [\"x\"] }\n"), format!("1:4: {brace}"));
    assert_eq!(broken("r:\n  - match: { host: a\n    cluster: b\n  - cluster: c\n"), format!("2:12: {brace}"));
    assert_eq!(broken("c:\n  a: { e: [\"x\"\n  b: { e: [] }\nr: []\n"), format!("2:11: {}", never('[', ']')));
    assert_eq!(broken("c:\n  a:\n    e: [\"x\",\n"), format!("3:8: {}", never('[', ']')));
    // Quotes and comments may hold brackets.
    assert_eq!(broken("c: { a: \"}\", # }\n     b: '}'\n"), format!("1:4: {brace}"));
    assert_eq!(
        broken("c:\n  a: { e: [\"x\" }\n"),
        "2:11: the `[` that is opened here is never closed: `}` in line 2 comes first (add the `]` that belongs to it)"
    );
}

#[test]
fn what_is_not_yaml_gets_a_hint() {
    let comma = "while parsing a flow mapping, did not find expected ',' or '}'";
    assert_eq!(
        broken("c: { e: [x] balance: y }\n"),
        format!("1:13: {comma} (a comma is missing before this, or the `{{` of line 1 is not closed)")
    );
    assert_eq!(
        broken("c: { e: [x]\n     balance: y }\nd: 1\n"),
        format!("2:6: {comma} (a comma is missing before this, or the `{{` of line 1 is not closed)")
    );
    assert_eq!(
        broken("c: { regex: ^/a{2} }\n"),
        format!("1:16: {comma} (inside `{{ }}` and `[ ]`, put text that holds brackets or commas in quotes)")
    );
    assert_eq!(
        broken("c: { regex: [a-z]+ }\n"),
        format!("1:18: {comma} (inside `{{ }}` and `[ ]`, put text that holds brackets or commas in quotes)")
    );
    assert!(broken("a: { b: ${X} }\n").ends_with("(inside `{ }` and `[ ]`, put text that holds `${…}` in quotes)"));
    assert!(broken("a:\n\tb: 1\n").ends_with("(indent with spaces: YAML does not allow tabs there)"));
    assert_eq!(broken("c: { a: 1 } }\n"), "1:13: misplaced bracket");
}
