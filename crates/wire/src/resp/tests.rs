//! Commands and replies, whole, in pieces and broken.

use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Result<Option<(Reply, usize)>, BadReply> {
    read_reply(text.as_bytes())
}

#[test]
fn commands_are_lists_of_texts() {
    let mut out = Vec::new();
    write_command(&[b"EVALSHA", b"", b"a\r\nb"], &mut out);
    assert_eq!(out, b"*3\r\n$7\r\nEVALSHA\r\n$0\r\n\r\n$4\r\na\r\nb\r\n");
}

#[test]
fn replies_of_all_kinds_are_read_and_what_follows_them_is_not() {
    for (text, wanted) in [
        ("+OK\r\n", Reply::Status(b"OK".to_vec())),
        ("-NOSCRIPT none\r\n", Reply::Error(b"NOSCRIPT none".to_vec())),
        (":-7\r\n", Reply::Number(-7)),
        ("$3\r\na\r\n\r\n", Reply::Text(Some(b"a\r\n".to_vec()))),
        ("$0\r\n\r\n", Reply::Text(Some(Vec::new()))),
        ("$-1\r\n", Reply::Text(None)),
        ("*-1\r\n", Reply::List(None)),
        ("*0\r\n", Reply::List(Some(Vec::new()))),
        (
            "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
            Reply::List(Some(vec![Reply::Number(1), Reply::List(Some(vec![Reply::Text(Some(b"x".to_vec()))]))])),
        ),
    ] {
        assert_eq!(read(&format!("{text}+more")), Ok(Some((wanted, text.len()))), "{text:?}");
        for cut in 0..text.len() {
            assert_eq!(read(&text[..cut]), Ok(None), "{:?}", &text[..cut]);
        }
    }
}

#[test]
fn what_is_no_reply_or_too_large_is_an_error() {
    let deep = "*1\r\n".repeat(5);
    let long = format!("+{}", "a".repeat(4 << 10));
    for text in [
        "\r\n",
        "OK\r\n",
        ":x\r\n",
        ":\r\n",
        "$-2\r\n",
        "$65537\r\n",
        "*16385\r\n",
        "$1\r\nab\r\n",
        "+a\rb",
        ":99999999999999999999\r\n",
        &deep,
        &long,
    ] {
        assert_eq!(read(text), Err(BadReply), "{text:?}");
    }
}

proptest! {
    #[test]
    fn no_bytes_panic_and_a_whole_reply_stays_the_same_with_more_behind_it(
        bytes in prop::collection::vec(prop_oneof![Just(b'*'), Just(b'$'), Just(b':'), Just(b'\r'), Just(b'\n'), Just(b'1'), any::<u8>()], 0..200),
    ) {
        if let Ok(Some((reply, count))) = read_reply(&bytes) {
            prop_assert!(count <= bytes.len());
            prop_assert_eq!(read_reply(&bytes[..count]), Ok(Some((reply, count))));
            prop_assert!((0..count).all(|cut| read_reply(&bytes[..cut]) == Ok(None)));
        }
    }
}

mod cluster {
    use super::super::cluster::*;
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // `CLUSTER KEYSLOT` says so.
        for (key, slot) in [
            ("", 0),
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{user1000}.following", 3_443),
            ("{user1000}.followers", 3_443),
            ("user1000", 3_443),
            ("foo{{bar}}zap", slot_of(b"{bar")),
            ("foo{bar}{zap}", slot_of(b"bar")),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_ne!(slot_of(b"foo{}{bar}"), slot_of(b"bar"), "an empty tag is none");
        assert_ne!(slot_of(b"foo{bar"), slot_of(b"bar"));
    }

    fn node(host: Option<&str>, port: u16) -> Node {
        Node { host: host.map(Into::into), port }
    }

    #[test]
    fn redirects_are_read_and_other_errors_are_none() {
        let read = |text: &str| Redirect::read(text.as_bytes());
        let moved = |host, port| Some(Redirect { is_ask: false, slot: 3_999, node: node(host, port) });
        assert_eq!(read("MOVED 3999 127.0.0.1:6381"), moved(Some("127.0.0.1"), 6_381));
        assert_eq!(read("MOVED 3999 ::1:6381"), moved(Some("::1"), 6_381));
        assert_eq!(read("MOVED 3999 :6381"), moved(None, 6_381));
        assert_eq!(read("MOVED 3999 ?:6381"), moved(None, 6_381));
        assert!(read("ASK 3999 a.test:1").is_some_and(|redirect| redirect.is_ask));
        for text in [
            "",
            "MOVED",
            "MOVED 3999",
            "MOVED 16384 a:1",
            "MOVED -1 a:1",
            "MOVED 1 a",
            "MOVED 1 a:0",
            "MOVED 1 a:65536",
            "MOVED 1 a\tb:1",
            "MOVEDX 1 a:1",
            "TRYAGAIN Multiple keys",
            &format!("ASK 1 {}:1", "a".repeat(254)),
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(Redirect::read(b"MOVED 1 \xff:1"), None);
    }

    fn range(first: i64, last: i64, host: Option<&str>, port: i64) -> Reply {
        let host = Reply::Text(host.map(|host| host.as_bytes().to_vec()));
        let node = Reply::List(Some(vec![host, Reply::Number(port), Reply::Text(Some(b"id".to_vec()))]));
        Reply::List(Some(vec![Reply::Number(first), Reply::Number(last), node.clone(), node]))
    }

    #[test]
    fn a_map_has_the_ranges_that_can_be_understood() {
        let ranges = vec![
            range(0, 99, Some("10.0.0.1"), 6_379),
            range(100, 16_383, None, 6_380),
            range(5, 5, Some(""), 6_380),
            range(7, 16_384, Some("bad"), 1),
            range(-1, 5, Some("bad"), 1),
            range(9, 8, Some("none"), 1),
            range(0, 5, Some("bad"), 0),
            range(0, 5, Some("b d"), 1),
            Reply::List(None),
            Reply::Number(1),
        ];
        let mut map = SlotMap::read(&Reply::List(Some(ranges))).unwrap();
        assert_eq!(map.owner(99), Some(&node(Some("10.0.0.1"), 6_379)));
        assert_eq!((map.owner(100), map.owner(5)), (Some(&node(None, 6_380)), Some(&node(None, 6_380))));
        assert_eq!((map.owner(16_384), map.owner(0)), (None, Some(&node(Some("10.0.0.1"), 6_379))));
        map.set(100, &node(Some("10.0.0.2"), 1));
        assert_eq!((map.owner(100), map.owner(101)), (Some(&node(Some("10.0.0.2"), 1)), Some(&node(None, 6_380))));
        for other in [Reply::List(None), Reply::List(Some(Vec::new())), Reply::Status(b"OK".to_vec())] {
            assert_eq!(SlotMap::read(&other), None);
        }
    }

    #[test]
    fn a_map_of_too_many_nodes_is_bounded() {
        let mut map = SlotMap::default();
        (1..2_000).for_each(|port| map.set(port, &node(None, port)));
        let known = (0..SLOTS).filter(|slot| map.owner(*slot).is_some()).count();
        assert_eq!((known, map.owner(1), map.owner(1_999)), (NODES_MAX, Some(&node(None, 1)), None));
    }
}
