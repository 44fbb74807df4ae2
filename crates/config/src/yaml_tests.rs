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
            "2:12: the key `a` stands here twice, first in line 2",
            "3:1: the key `a` stands here twice, first in line 1",
            "4:3: a key must be text",
        ]
    );
}

#[test]
fn what_is_not_yaml_gets_a_hint() {
    let hint = |line: &str| mend(line).unwrap_or_default();
    assert!(hint("\ta: 1").contains("spaces"));
    assert!(hint("a: { b: ${X} }").contains("quotes"));
    assert_eq!(hint("host: *.example.com"), "put text that begins with `*` in quotes");
    assert_eq!(hint("a: b"), "");
    assert!(parsed("a: [1").1[0].contains("not YAML"));
}
