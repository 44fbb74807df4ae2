use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::diagnostic::Sink;
use crate::read::read_part;
use crate::source::{Document, Documents};

fn environment(name: &str) -> Option<String> {
    (name == "NUMBER").then(|| "5".to_owned())
}

fn tree(text: &str) -> Node {
    let (mut documents, mut sink) = (Documents::default(), Sink::default());
    let part = Document { name: "test".into(), folder: "".into(), text: text.into(), on_disk: false };
    let node = read_part(&mut documents, part, &environment, &mut sink).unwrap_or_else(|| panic!("{text}"));
    assert!(sink.is_empty(), "{text}");
    node
}

fn merged(files: &Node, changes: &Changes) -> Node {
    merge(files, changes.texts().map(|(place, text)| (place.to_owned(), text.map(tree))).collect())
}

const FILES: &str = "
version: 1
listeners: { web: { bind: '127.0.0.1:80' }, more: { bind: '127.0.0.1:81' } }
routes: [{ cluster: site, filters: [{ set: { a: \"x: 'y' # ${NUMBER} $${no}\" } }] }]
clusters:
  site:
    endpoints: ['127.0.0.1:1', { address: '127.0.0.1:2', weight: 3 }]
    connections_max: ${NUMBER}
  other: { endpoints: [] }
admin: { bind: '127.0.0.1:9900' }
";

#[test]
fn files_with_the_difference_are_what_was_wanted() {
    let files = tree(FILES);
    let wanted = [
        FILES.to_owned(),
        FILES.replace("weight: 3", "weight: 4"),
        FILES.replace("${NUMBER}\n", "7\n"),
        FILES.replace("other: { endpoints: [] }", "third: { endpoints: [a, {}], x: { y: [[1, two], { z: null }] } }"),
        FILES.replace("routes:", "shutdown: { drain_timeout: 5s }\nzone: 'a'\nroutes:"),
        FILES.replace("more: { bind: '127.0.0.1:81' }", "more: { bind: \"\\u0085\\t\\x7f\\\"\\\\ é\", n: ~, f: 1.5 }"),
        "version: 1\n".to_owned(),
        "version: 1\nroutes: []\nlisteners: { new: { bind: 'x', t: 'true', n: '12', ok: true } }\n".to_owned(),
    ];
    for text in &wanted {
        let wanted = tree(text);
        let changes = difference(&files, &wanted);
        let got = merged(&files, &changes);
        for key in ["listeners", "clusters"] {
            let names = |node: &Node| node.get(key).map_or(0, |map| map.entries().len());
            assert_eq!(names(&got), names(&wanted), "{key} of {text}");
        }
        assert!(difference(&wanted, &got).is_empty(), "{text}\n{changes:?}\n{got:?}");
        assert_eq!(got.get("admin").map(written), files.get("admin").map(written), "the listener of the API stays");
    }
    assert!(difference(&files, &tree(&wanted[0])).is_empty());
    assert_eq!(difference(&files, &tree(&wanted[1])).places().collect::<Vec<_>>(), [("clusters/site", true)]);
    let places: Vec<_> = difference(&files, &tree("version: 1\n")).0.into_keys().collect();
    assert_eq!(places, ["clusters/other", "clusters/site", "listeners/more", "listeners/web", "routes"]);
}

#[test]
fn what_is_changed_back_is_no_change() {
    let files = tree(FILES);
    let one = Changes::default().with(&files, "clusters/site", Some(&tree("endpoints: [a]")));
    let two = one.with(&files, "clusters/other", None);
    assert_eq!(two.places().collect::<Vec<_>>(), [("clusters/other", false), ("clusters/site", true)]);
    let other = at(&files, "clusters/other").cloned();
    let three = two.with(&files, "clusters/other", other.as_ref());
    assert_eq!(three, one);
    assert!(three.with(&files, "clusters/site", at(&files, "clusters/site")).is_empty());
    assert!(Changes::default().with(&files, "clusters/never", None).is_empty());
}

#[test]
fn the_text_of_a_tree_says_the_same_and_keeps_what_comes_from_the_environment() {
    let files = tree(FILES);
    let text = text(&files);
    assert!(text.contains("\"connections_max\": ${NUMBER}\n"), "{text}");
    let again = tree(&text);
    assert!(is_same(&files, &again), "{text}");
    assert_eq!(again.get("clusters").unwrap().get("site").unwrap().get("connections_max").unwrap().to_value(), 5);
    assert!(!is_same(&files, &tree(&FILES.replace("${NUMBER}\n", "5\n"))), "a number is not the variable");
}

#[test]
fn what_is_hidden_is_put_back_by_its_path_and_items_by_name() {
    let old = tree("{ a: { token: s1 }, list: [{ name: x, token: s2 }, { name: y, token: [s3] }], plain: [s4, b] }");
    let mut sink = Sink::default();
    let mut new = tree(
        "{ a: { token: (hidden), more: 1 }, list: [{ name: y, token: (hidden) }, { name: x, token: new }], plain: [(hidden), c] }",
    );
    restore(&mut new, Some(&old), &mut sink);
    assert!(sink.is_empty());
    let list = serde_json::json!([{ "name": "y", "token": ["s3"] }, { "name": "x", "token": "new" }]);
    let value = new.to_value();
    assert_eq!((&value["a"]["token"], &value["list"], &value["plain"][0]), (&"s1".into(), &list, &"s4".into()));
    for lost in ["{ b: (hidden) }", "{ list: [{ name: z, token: (hidden) }] }", "{ plain: [(hidden)] }"] {
        let mut sink = Sink::default();
        restore(&mut tree(lost), Some(&old), &mut sink);
        assert!(!sink.is_empty(), "{lost}");
    }
}

#[test]
fn a_secret_follows_its_item_when_items_without_names_change_places() {
    let old = tree("{ routes: [{ to: a, token: s1 }, { to: b, token: s2 }, { to: c, token: s3 }] }");
    let after = |new: &str| {
        let (mut new, mut sink) = (tree(new), Sink::default());
        restore(&mut new, Some(&old), &mut sink);
        let tokens: Vec<String> =
            new.get("routes").unwrap().items().iter().map(|item| item.to_value()["token"].to_string()).collect();
        (tokens.join(" "), sink.is_empty())
    };
    let [a, b, c] = ["a", "b", "c"].map(|to| format!("{{ to: {to}, token: (hidden) }}"));
    assert_eq!(after(&format!("{{ routes: [{b}, {a}, {c}] }}")), ("\"s2\" \"s1\" \"s3\"".to_owned(), true));
    // Also when others have gone; and one that was edited at its place keeps its own.
    assert_eq!(after(&format!("{{ routes: [{c}] }}")), ("\"s3\"".to_owned(), true));
    let edited = "{ to: d, token: (hidden) }";
    assert_eq!(after(&format!("{{ routes: [{a}, {edited}, {c}] }}")), ("\"s1\" \"s2\" \"s3\"".to_owned(), true));
    // Whose it would be is not known: it is asked for.
    assert!(!after(&format!("{{ routes: [{b}, {edited}, {c}] }}")).1);
}

/// Texts that mean something to YAML.
const TEXTS: &[&str] = &[
    "true", "~", "1e3", "0x1F", "- a", "a: b", "#", "|", "$$", "'", "", "\u{7f}", "\u{2028}", "a ", " a", "\n\n", "\\",
];

fn any_text() -> impl Strategy<Value = String> {
    let plain = vec(select("ab :-#'\"{}[],&*!|>%@`$\\\n\t".chars().collect::<Vec<_>>()), 0..12);
    prop_oneof![vec(any::<char>(), 0..12), plain].prop_map(|all| all.into_iter().collect())
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any_text().prop_map(Value::from),
        select(TEXTS.to_vec()).prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let list = vec(inner.clone(), 0..4).prop_map(Value::Array);
        let map = vec((any_text(), inner), 0..4).prop_map(|all| Value::Object(all.into_iter().collect()));
        prop_oneof![list, map]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_value_is_written_so_that_it_is_read_as_the_same(value in any_value()) {
        prop_assume!(!value.to_string().contains("${"));
        let node = from(&value);
        let again = tree(&text(&node));
        // A text alone that is empty is an empty document.
        prop_assert_eq!(again.to_value(), value);
    }
}

/// The tree of a value, all texts in quotes.
fn from(value: &Value) -> Node {
    let span = tree("a").span;
    let scalar = |text: String, plain| Kind::Scalar(Scalar { text: text.into(), plain, written: None });
    let kind = match value {
        Value::Object(map) => {
            let key = |text: &String| Key { text: text.as_str().into(), span };
            Kind::map(map.iter().map(|(name, value)| (key(name), from(value))).collect())
        }
        Value::Array(items) => Kind::list(items.iter().map(from).collect()),
        Value::String(text) => scalar(text.clone(), false),
        other => scalar(other.to_string(), true),
    };
    Node { span, kind }
}
