//! Texts that mean harm, or nothing.

use std::fmt::Write;

use config::check_text;
use proptest::prelude::*;

use crate::support::{load, messages, set_certs};

fn first(text: &str) -> String {
    check_text(text).unwrap_err().list.remove(0).message
}

#[test]
fn a_billion_laughs_are_stopped() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..30 {
        let list = vec![format!("*a{}", n - 1); 10].join(", ");
        let _ = writeln!(text, "a{n}: &a{n} [{list}]");
    }
    assert_eq!(first(&text), "the configuration holds more than 1000000 values");
}

#[test]
fn few_aliases_to_a_large_text_are_stopped() {
    let mut text = format!("a: &a {}\nb: [", "x".repeat(1 << 20));
    text.push_str(&vec!["*a"; 100].join(", "));
    text.push(']');
    assert_eq!(first(&text), "aliases expand to more than 16777216 bytes");
}

#[test]
fn aliases_that_deepen_are_stopped() {
    let mut text = String::from("a0: &a0 [x]\n");
    for n in 1..100 {
        let _ = writeln!(text, "a{n}: &a{n} [*a{}]", n - 1);
    }
    assert_eq!(first(&text), "nested deeper than 64 levels once this alias is expanded");
    assert_eq!(first("a: &a [*a]"), "this alias is inside its own anchor");
    assert!(first("a: *nowhere").starts_with("not YAML: "));
}

#[test]
fn depth_bombs_are_stopped() {
    for bomb in ["[", "{a: ", "- ", "? "] {
        let text = bomb.repeat(100_000);
        assert!(check_text(&text).is_err(), "{bomb}");
    }
    assert_eq!(first(&"[".repeat(100)), "nested deeper than 64 levels");
    let mut text = String::new();
    for depth in 0..2_000 {
        let _ = writeln!(text, "{}a:", " ".repeat(depth));
    }
    assert_eq!(first(&text), "nested deeper than 64 levels");
}

#[test]
fn large_texts_are_refused_or_read_in_time() {
    assert_eq!(first(&"a".repeat((16 << 20) + 1)), "it is larger than 16777216 bytes");
    let many = "- a\n".repeat(3_000_000);
    assert_eq!(first(&many), "the configuration holds more than 1000000 values");
    let long = format!("version: 1\nx: {}\n", "y".repeat(10 << 20));
    let told = check_text(&long).unwrap_err();
    assert!(told.to_string().len() < 1_000);
    let long_key = format!("{}: 1\nversion: 1\n", "k".repeat(1_000));
    assert!(check_text(&long_key).is_err());
    let keys: String = (0..100_000).map(|n| format!("key{n}: 1\n")).collect();
    let told = check_text(&keys).unwrap_err();
    assert_eq!(told.list.len() + told.left_out, 100_001);
}

#[test]
fn odd_characters_are_read_or_refused() {
    let good = "version: 1\nclusters: { a: { endpoints: ['127.0.0.1:1'] } }\n";
    assert!(load(good).is_ok());
    assert!(load(&format!("\u{feff}{good}")).is_ok());
    assert!(load(&good.replace('\n', "\r\n")).is_ok());
    assert!(load(&format!("%YAML 1.2\n---\n{good}...\n")).is_ok());
    assert_eq!(first("version: 1\na: \0b\n"), "a character that YAML does not allow");
    assert_eq!(first("version: 1\u{1b}[31m"), "a character that YAML does not allow");
    assert_eq!(
        messages("version: 1\nclusters:\n\ta: {}\n"),
        [
            "3: not YAML: tabs disallowed within this context (block indentation) (indent with spaces: YAML does not allow tabs there)"
        ]
    );
    assert_eq!(
        messages("version: 1\r\n\r\nadmn: 1\r\n"),
        ["3: unknown key `admn` in the file (did you mean `admin`?)"]
    );
}

#[test]
fn what_is_no_configuration_is_told_so() {
    assert_eq!(messages(""), ["1: `version` is missing in the file (add `version`: version of this format)"]);
    assert_eq!(messages("# nothing\n").len(), 1);
    assert_eq!(messages("just text"), ["1: the file must be a map, not the text `just text`"]);
    assert_eq!(messages("- 1\n- 2\n"), ["1: the file must be a map, not a list"]);
    assert_eq!(messages("null"), ["1: the file is empty, but must be a map (it needs at least `version`)"]);
    assert_eq!(
        messages("version: 1\n---\nversion: 1\n"),
        ["2: a second document in the same file (keep one; `include:` joins several files)"]
    );
    assert_eq!(
        messages("version: 1\nversion: 1\n"),
        ["2: the key `version` is listed twice, first in line 1 (keep one of them)"]
    );
    assert_eq!(messages("version: !!int 1\n"), ["1: the tag `tag:yaml.org,2002:!int` is not supported (remove it)"]);
    assert_eq!(messages("version: 1\n? [a]\n: b\n"), ["2: a key must be text (write `key: value`)"]);
    assert_eq!(
        messages("version: 1\nclusters: &c { a: { endpoints: ['127.0.0.1:1'] } }\nlisteners: { <<: *c }\n"),
        ["3: `<<` is not supported (merge keys are not part of YAML 1.2; use an alias where its value is needed)"]
    );
}

#[test]
fn a_text_alone_reads_no_files_and_asks_for_no_names() {
    set_certs(std::path::Path::new("/"));
    let text = "version: 1
include: /etc/hostname
clusters: { a: { endpoints: ['localhost:80'] }, b: { endpoints: ['${HOME}:1'] } }
listeners: { a: { bind: '127.0.0.1:0', tls: { certificates: [{ chain: /etc/hostname, key: /etc/hostname }] } } }
";
    let told: Vec<String> = check_text(text).unwrap_err().list.into_iter().map(|one| one.message).collect();
    assert_eq!(told, ["files are not read here", "the environment variable `HOME` is not set"]);
    let told: Vec<String> =
        check_text(&text.replace("include", "#")).unwrap_err().list.into_iter().map(|one| one.message).collect();
    assert_eq!(told.len(), 4);
    assert!(
        told.iter()
            .any(|message| message == "the name `localhost` cannot be looked up: host names are not resolved here")
    );
}

/// Pieces of configurations, so that random texts get past the parser.
const PIECES: [&str; 48] = [
    "version: 1\n",
    "listeners:\n",
    "  web:\n",
    "    bind: '127.0.0.1:80'\n",
    "routes:\n",
    "  - ",
    "match: ",
    "{ ",
    " }",
    "[",
    "]",
    "cluster: a\n",
    "clusters:\n",
    "  a: { endpoints: ['127.0.0.1:1'] }\n",
    "${",
    "}",
    "$${A}",
    "${A:-b}",
    ": ",
    ", ",
    "\n",
    "  ",
    "&x ",
    "*x",
    "!!str ",
    "'",
    "\"",
    "|\n",
    ">-\n",
    "# c\n",
    "---\n",
    "...\n",
    "? ",
    "%YAML 1.2\n",
    "\t",
    "é",
    "\u{feff}",
    "5s",
    "0x1F",
    "null",
    "tls: ",
    "true",
    "timeout: 5\n",
    "path: { prefix: /a }",
    "endpoints: ",
    "- '127.0.0.1:2'\n",
    "<<: ",
    "\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        let _ = check_text(&text);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = check_text(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_mix_of_pieces_makes_it_panic(pieces in proptest::collection::vec(0..PIECES.len(), 0..60)) {
        let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        if let Err(told) = load(&text) {
            prop_assert!(!told.list.is_empty());
            let _ = told.to_string();
        }
    }

    #[test]
    fn every_cut_of_a_good_file_is_told_or_loads(cut in 0..600_usize, drop in 0..40_usize) {
        let good = include_str!("../../../../examples/routing.yaml");
        let keep = |text: &str, at: usize| text.char_indices().nth(at).map_or(text.len(), |(at, _)| at);
        let (from, to) = (keep(good, cut * 7), keep(good, cut * 7 + drop));
        let text = format!("{}{}", &good[..from], &good[to..]);
        if let Err(told) = load(&text) {
            prop_assert!(!told.list.is_empty());
        }
    }
}
