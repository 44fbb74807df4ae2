use std::collections::BTreeMap;

use model::Cidr;
use model::map::parse;
use proptest::prelude::*;

use super::*;

fn map(kind: MapKind, text: &str) -> Arc<Map> {
    let entries = Arc::new(parse(text, kind).unwrap());
    Arc::new(Map { name: "m".into(), kind, default: None, file: None, entries })
}

fn plan(kind: MapKind, text: &str) -> Arc<MapPlan> {
    MapPlan::compile(&map(kind, text), None).unwrap()
}

fn found(map: &MapPlan, key: &str) -> Option<String> {
    map.find(Key::Text(key.as_bytes())).map(|hit| String::from_utf8(hit.value().to_vec()).unwrap())
}

/// What a map has for each key, `-` for nothing.
fn all(map: &MapPlan, keys: &[&str]) -> String {
    keys.iter().map(|key| found(map, key).unwrap_or("-".into())).collect::<Vec<_>>().join(" ")
}

#[test]
fn an_exact_map_gives_the_value_of_the_very_key() {
    let map = plan(MapKind::Exact, "a 1\nab 2\n192.0.2.7 ip\ne\n");
    assert_eq!(all(&map, &["a", "ab", "abc", "", "A", "e"]), "1 2 - - - ");
    assert!(map.find(Key::Ip("::ffff:192.0.2.7".parse().unwrap())).is_some(), "an address as it is written");
    assert_eq!(found(&plan(MapKind::Exact, ""), "a"), None);
}

#[test]
fn the_longest_prefix_applies() {
    let map = plan(MapKind::Prefix, "/ root\n/api api\n/api/v1 v1\n/apix other\n/b b\n");
    let keys = ["/", "/api", "/api/", "/api/v1/users", "/api/v2", "/apiy", "/apix", "/a", "/c", "x", ""];
    assert_eq!(all(&map, &keys), "root api api v1 api api other root root - -");
}

#[test]
fn the_first_expression_applies_that_matches_the_whole() {
    let map = plan(MapKind::Regex, "/a.* one\n/ab.* two\n.*\\.php php\n");
    assert_eq!(all(&map, &["/ab", "/x.php", "/a.php", "x.phpx"]), "one php one -");
    let wrong = MapPlan::compile(&self::map(MapKind::Regex, "( x\n"), None).unwrap_err();
    assert_eq!(wrong.path, "(");
}

#[test]
fn the_most_specific_network_applies() {
    let text = "10.0.0.0/8 ten\n10.1.0.0/16 sixteen\n10.1.2.3 host\n0.0.0.0/0 all\n2001:db8::/32 doc\n";
    let map = plan(MapKind::Cidr, text);
    let keys =
        ["10.1.2.3", "10.1.2.4", "10.2.0.0", "11.0.0.1", "2001:db8::1", "2001:db9::1", "::ffff:10.1.2.3", "x", ""];
    assert_eq!(all(&map, &keys), "host sixteen ten all doc - host - -");
    let ip = |text: &str| map.find(Key::Ip(text.parse().unwrap())).map(|hit| hit.value().to_vec());
    assert_eq!(ip("10.255.255.255").as_deref(), Some(&b"ten"[..]));
}

#[test]
fn what_the_administrator_changes_lies_over_the_configuration_and_can_be_taken_back() {
    let set = |value: &str| Edit::Set(value.into());
    let map = plan(MapKind::Prefix, "/a one\n/a/b two\n");
    map.edit("/a/b", Edit::Deleted).unwrap();
    map.edit("/a/c", set("three")).unwrap();
    assert_eq!(all(&map, &["/a/b/x", "/a/c/x", "/a"]), "one three one");
    assert_eq!((map.len(), map.edited()), (2, 2));
    map.edit("/a", set("new")).unwrap();
    assert_eq!(all(&map, &["/a/b/x", "/a/c/x", "/a"]), "new three new");
    assert_eq!((map.reset(Some("/a")), map.reset(Some("/a"))), (1, 0));
    assert_eq!(all(&map, &["/a/b/x", "/a/c/x"]), "one three");
    assert_eq!((map.reset(None), map.edited()), (2, 0));
    assert_eq!(all(&map, &["/a/b/x", "/a/c/x"]), "two one");

    let map = plan(MapKind::Cidr, "10.0.0.0/8 ten\n10.1.0.0/16 sixteen\n");
    map.edit("10.1.9.9/16", Edit::Deleted).unwrap();
    map.edit("10.1.2.3", set("host")).unwrap();
    assert_eq!(all(&map, &["10.1.2.3", "10.1.2.4"]), "host ten");
    assert!(map.edit("ten", set("x")).is_err());

    let map = plan(MapKind::Regex, "a.* one\nb.* two\n");
    map.edit("a.*", set("last")).unwrap();
    map.edit(".*", set("any")).unwrap();
    map.edit("b.*", Edit::Deleted).unwrap();
    assert_eq!(all(&map, &["ab", "bb"]), "any any", "those that are set are tried in the order of their texts");
    assert!(map.edit("(", set("x")).is_err());
    assert_eq!(map.edited(), 3, "what is refused changes nothing");
}

#[test]
fn changes_stay_when_the_configuration_changes_but_not_when_keys_are_compared_in_another_way() {
    let before = plan(MapKind::Exact, "a 1\n");
    before.edit("a", Edit::Set("2".into())).unwrap();
    let same = MapPlan::compile(&map(MapKind::Exact, "a 1\n"), Some(&before)).unwrap();
    assert!(Arc::ptr_eq(&same, &before));
    let after = MapPlan::compile(&map(MapKind::Exact, "a 3\nb 4\n"), Some(&before)).unwrap();
    assert_eq!(all(&after, &["a", "b"]), "2 4");
    after.edit("b", Edit::Deleted).unwrap();
    assert_eq!(all(&before, &["a", "b"]), "2 -", "a plan that is still in use sees it too");
    let other = MapPlan::compile(&map(MapKind::Prefix, "a 3\n"), Some(&after)).unwrap();
    assert_eq!((found(&other, "a").as_deref(), other.edited()), (Some("3"), 0));
}

#[test]
fn changes_are_bounded_and_values_are_plain() {
    let map = plan(MapKind::Exact, "");
    assert!(map.edit("a", Edit::Set("x\ny".into())).is_err());
    assert!(map.edit("a", Edit::Set("x".repeat(10_000))).is_err());
    assert!(map.edit(&"k".repeat(5_000), Edit::Deleted).is_err());
}

#[test]
fn entries_are_listed_in_pages_with_what_was_changed_of_them() {
    let map = plan(MapKind::Exact, "a 1\nb 2\nab 3\n");
    map.edit("b", Edit::Set("9".into())).unwrap();
    map.edit("c", Edit::Set("8".into())).unwrap();
    map.edit("a", Edit::Deleted).unwrap();
    let list = |containing: &str, page| {
        let shown = map.entries(containing, page);
        let one = |shown: &Shown| format!("{}={}{}", shown.key, shown.value, if shown.is_edited { "!" } else { "" });
        shown.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(list("", (0, 9)), "ab=3 b=9! c=8!");
    assert_eq!(list("", (1, 1)), "b=9!");
    assert_eq!(list("b", (0, 9)), "ab=3 b=9!");
    assert_eq!(map.entry("b").map(|entry| entry.value).as_deref(), Some("9"));
    assert_eq!((map.entry("a"), map.entry("zz")), (None, None));
}

#[test]
fn a_million_entries_are_found_and_take_little_memory() {
    let text: String = (0..1_000_000).map(|number| format!("host-{number:07}.example v{}\n", number % 100)).collect();
    let map = plan(MapKind::Exact, &text);
    for number in (0..1_000_000).step_by(9_973) {
        let wanted = format!("v{}", number % 100);
        assert_eq!(found(&map, &format!("host-{number:07}.example")), Some(wanted));
    }
    assert_eq!(found(&map, "host-1000000.example"), None);
}

/// The value of the key that is best, of all that fit.
fn best<K>(entries: &BTreeMap<String, String>, rank: impl Fn(&str) -> Option<K>) -> Option<String>
where
    K: Ord,
{
    let fitting = entries.iter().filter_map(|(key, value)| rank(key).map(|rank| (rank, value)));
    fitting.max_by(|one, other| one.0.cmp(&other.0)).map(|(_, value)| value.clone())
}

proptest! {
    #[test]
    fn prefixes_are_found_as_by_trying_all(
        keys in prop::collection::btree_map("[ab]{1,6}", "[xyz]", 0..30),
        edits in prop::collection::vec(("[ab]{1,6}", prop::option::of("[uvw]")), 0..10),
        asked in prop::collection::vec("[abc]{0,8}", 1..20),
    ) {
        let text: String = keys.iter().map(|(key, value)| format!("{key} {value}\n")).collect();
        let map = plan(MapKind::Prefix, &text);
        let mut wanted = keys;
        for (key, value) in edits {
            match &value {
                Some(value) => wanted.insert(key.clone(), value.clone()),
                None => wanted.remove(&key),
            };
            map.edit(&key, value.map_or(Edit::Deleted, Edit::Set)).unwrap();
        }
        prop_assert_eq!(map.len(), wanted.len());
        for key in asked {
            let naive = best(&wanted, |prefix| key.starts_with(prefix).then_some(prefix.len()));
            prop_assert_eq!(found(&map, &key), naive, "{}", key);
        }
    }

    #[test]
    fn networks_are_found_as_by_trying_all(
        keys in prop::collection::vec((0_u32..64, 24_u8..=32, "[xyz]"), 0..30),
        edits in prop::collection::vec((0_u32..64, 24_u8..=32, prop::option::of("[uvw]")), 0..10),
        asked in prop::collection::vec(0_u32..80, 1..20),
    ) {
        let network = |low: u32, bits: u8| {
            Cidr::new(std::net::Ipv4Addr::from_bits(0x0a00_0000 | low << 2).into(), bits).unwrap().to_string()
        };
        let mut wanted: BTreeMap<String, String> = BTreeMap::new();
        for (low, bits, value) in keys {
            wanted.insert(network(low, bits), value);
        }
        let text: String = wanted.iter().map(|(key, value)| format!("{key} {value}\n")).collect();
        let map = plan(MapKind::Cidr, &text);
        for (low, bits, value) in edits {
            let key = network(low, bits);
            match &value {
                Some(value) => wanted.insert(key.clone(), value.clone()),
                None => wanted.remove(&key),
            };
            map.edit(&key, value.map_or(Edit::Deleted, Edit::Set)).unwrap();
        }
        for low in asked {
            let ip = IpAddr::from(std::net::Ipv4Addr::from_bits(0x0a00_0000 | low << 1));
            let naive = best(&wanted, |key| {
                let network: Cidr = key.parse().unwrap();
                network.contains(ip).then_some(network.bits())
            });
            let hit = map.find(Key::Ip(ip)).map(|hit| String::from_utf8(hit.value().to_vec()).unwrap());
            prop_assert_eq!(hit, naive, "{}", ip);
        }
    }

    #[test]
    fn exact_keys_are_found_as_by_trying_all(
        keys in prop::collection::btree_map("[a-d]{1,3}", "[xyz]", 0..60),
        asked in prop::collection::vec("[a-d]{0,4}", 1..20),
    ) {
        let text: String = keys.iter().map(|(key, value)| format!("{key} {value}\n")).collect();
        let map = plan(MapKind::Exact, &text);
        for key in asked {
            prop_assert_eq!(found(&map, &key), keys.get(&key).cloned());
        }
    }
}
