//! Who is let in at a listener, by address.

use model::AddressList;

use crate::support::{LOADER, messages};

const FILE: &str = "version: 1\nlisteners:\n  line:\n    bind: '127.0.0.1:80'\n    protocol: tcp\n    cluster: c\n    LIST\n\
                    clusters: { c: { endpoints: ['127.0.0.1:9'] } }\n";

fn text(list: &str) -> String {
    FILE.replace("LIST", list)
}

/// What a list comes to, with `list.txt` beside it.
fn list(list: &str, file: &str) -> Option<AddressList> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("list.txt"), file).unwrap();
    let loaded = LOADER.load_text("site.yaml", &text(list), folder.path()).unwrap_or_else(|wrong| panic!("{wrong}"));
    loaded.snapshot.listeners[0].address_list.clone()
}

fn shown(list: &AddressList) -> (Vec<String>, Vec<String>, bool) {
    let all = |networks: &[model::Cidr]| networks.iter().map(ToString::to_string).collect();
    (all(&list.allowed), all(&list.denied), list.lets_others_in)
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

#[test]
fn networks_are_listed_inline_and_in_files_and_others_follow_from_them() {
    assert_eq!(list("", ""), None);
    let (one, none, listed): (&[&str], &[&str], &[&str]) = (&["10.0.0.1/32"], &[], &["192.0.2.0/24", "::1/128"]);
    for (written, allowed, denied, others) in [
        ("{ allow: [10.0.0.1] }", one, none, false),
        ("{ deny: [10.0.0.1] }", none, one, true),
        ("{ deny: [10.0.0.1], allow: [] }", none, one, true),
        ("{ deny: [10.0.0.1], others: deny }", none, one, false),
        ("{ allow: [10.0.0.1], others: allow }", one, none, true),
        ("{ allow_files: [list.txt] }", listed, none, false),
        ("{ deny_files: [list.txt] }", none, listed, true),
        ("{ allow: [10.0.0.1], deny_files: [list.txt] }", one, listed, false),
    ] {
        let file = "\u{feff}# some\n192.0.2.0/24\r\n\n::1 ; of our own\n";
        let found = list(&format!("address_list: {written}"), file).expect("a list");
        assert_eq!(shown(&found), (strings(allowed), strings(denied), others), "{written}");
    }
    let empty = list("address_list: { allow_files: [list.txt] }", "# nobody\n").expect("a list");
    assert_eq!(shown(&empty), (vec![], vec![], false), "an empty file lets nobody in");
}

#[test]
fn every_protocol_has_it() {
    for protocol in ["protocol: udp\n    cluster: c", "protocol: http"] {
        let text = text("address_list: { deny: [10.0.0.1] }").replace("protocol: tcp\n    cluster: c", protocol);
        assert_eq!(messages(&text), [""; 0], "{protocol}");
    }
}

#[test]
fn mistakes_are_told_with_their_line() {
    let none =
        "7: no list is given, so the filter would have no effect (add `allow`, `deny`, `allow_files` or `deny_files`)";
    for (list, told) in [
        ("address_list: {}", &[none][..]),
        ("address_list: { others: deny }", &[none]),
        ("address_list: { allow: [], deny_files: [] }", &[none]),
        (
            "address_list: { allow: [10.0.0.0/33, home], deny: [10.0.0.0/x] }",
            &[
                "7: the prefix length of `10.0.0.0/33` is longer than 32",
                "7: `home` is not an address or a network such as 10.0.0.0/8",
                "7: `x` is not a prefix length",
            ],
        ),
        ("address_list: { deny_files: [none.txt] }", &["7: cannot read `/nowhere/none.txt`: there is no such file"]),
    ] {
        assert_eq!(messages(&text(list)), told, "{list}");
    }
    for (list, wanted) in [
        ("address_list: { deny: 10.0.0.1 }", "7: `deny` must be a list, not the text `10.0.0.1`"),
        (
            "address_list: { deny: [10.0.0.1], block: [] }",
            "7: unknown key `block` in `address_list` of listener `line`",
        ),
        ("address_list: { deny: [10.0.0.1], others: drop }", "7: `others` must be "),
        ("address_list: true", "7: `address_list` must be a map"),
    ] {
        let told = messages(&text(list));
        assert!(told.len() == 1 && told[0].starts_with(wanted), "{told:?}");
    }
}

#[test]
fn of_a_file_the_first_mistake_is_told_with_its_line_in_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("list.txt"), "10.0.0.1\n# fine\n10.0.0\nhome\n").unwrap();
    let list = text("address_list: { deny_files: [list.txt], allow: [home] }");
    let told = LOADER.load_text("site.yaml", &list, folder.path()).err().map(|told| told.to_string());
    let told = told.expect("mistakes");
    for wanted in [
        "`list.txt`, line 3 is not an address or a network such as 10.0.0.0/8",
        "`home` is not an address or a network such as 10.0.0.0/8",
    ] {
        assert!(told.contains(wanted), "{told}");
    }
    assert!(!told.contains("line 4"), "{told}");
}
