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
        "*65\r\n",
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
