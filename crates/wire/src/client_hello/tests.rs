use proptest::prelude::*;

use super::*;

fn vector(length_bytes: usize, bytes: &[u8]) -> Vec<u8> {
    [&bytes.len().to_be_bytes()[8 - length_bytes..], bytes].concat()
}

fn extension(kind: u16, bytes: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector(2, bytes)].concat()
}

fn name_extension(name: &[u8]) -> Vec<u8> {
    extension(0, &vector(2, &[&[0][..], &vector(2, name)].concat()))
}

/// The handshake message; `None`: no extension block at all.
fn message(extensions: Option<&[u8]>) -> Vec<u8> {
    let mut body = [&[3, 3][..], &[7; 32], &vector(1, &[9; 32]), &vector(2, &[0x13, 1]), &vector(1, &[0])].concat();
    if let Some(extensions) = extensions {
        body.extend(vector(2, extensions));
    }
    [&[1][..], &vector(3, &body)].concat()
}

/// Cuts a message into records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|piece| [&[22, 3, 1][..], &vector(2, piece)].concat()).collect()
}

fn hello(extensions: &[Vec<u8>]) -> Vec<u8> {
    records(&message(Some(&extensions.concat())), 1 << 14)
}

fn found(name: Option<&str>, alpn: &[&str]) -> Hello {
    let alpn = alpn.iter().map(|name| name.as_bytes().into()).collect();
    Hello::Found { server_name: name.map(str::to_owned), alpn }
}

/// Says what it says of every prefix as well: more bytes are needed, or the very same.
fn read_all(bytes: &[u8]) -> Hello {
    let whole = client_hello(bytes);
    for end in 0..bytes.len() {
        let part = client_hello(&bytes[..end]);
        assert!(part == Hello::NeedMore || part == whole, "{end} {part:?} {whole:?}");
    }
    whole
}

#[test]
fn application_protocols_are_told_in_the_order_of_the_client() {
    let list =
        |names: &[&[u8]]| extension(16, &vector(2, &names.iter().flat_map(|name| vector(1, name)).collect::<Vec<_>>()));
    let hello_of = |extensions: &[Vec<u8>]| read_all(&hello(extensions));
    assert_eq!(hello_of(&[list(&[b"h2", b"http/1.1"])]), found(None, &["h2", "http/1.1"]));
    assert_eq!(hello_of(&[list(&[b"acme-tls/1"]), name_extension(b"a.b")]), found(Some("a.b"), &["acme-tls/1"]));
    assert_eq!(hello_of(&[extension(16, &[])]), found(None, &[]));
    assert_eq!(hello_of(&[list(&[b""])]), Hello::NotTls, "a name without a byte");
    assert_eq!(hello_of(&[list(&[b"h2"]), list(&[b"h2"])]), Hello::NotTls, "twice");
    assert_eq!(hello_of(&[extension(16, &[0, 3, 2, b'h'])]), Hello::NotTls, "beyond the extension");
    assert_eq!(hello_of(&[extension(16, &[0, 3, 9, b'h', b'2'])]), Hello::NotTls, "beyond the list");
    let cut = records(&message(Some(&list(&[b"h2", b"http/1.1"]))), 3);
    assert_eq!(read_all(&cut), found(None, &["h2", "http/1.1"]), "over records of three bytes");
}

#[test]
fn the_server_name_is_found_lower_case_and_without_a_final_dot() {
    let alpn = extension(16, &vector(2, &vector(1, b"h2")));
    let other = extension(0x0a0a, &[]);
    assert_eq!(
        read_all(&hello(&[other.clone(), name_extension(b"Shop.EXAMPLE.com"), alpn.clone()])),
        found(Some("shop.example.com"), &["h2"])
    );
    assert_eq!(read_all(&hello(&[name_extension(b"a_b-c.d.")])), found(Some("a_b-c.d"), &[]));
    assert_eq!(read_all(&hello(&[alpn, other])), found(None, &["h2"]));
    assert_eq!(read_all(&hello(&[])), found(None, &[]));
    assert_eq!(read_all(&records(&message(None), 1 << 14)), found(None, &[]));
}

#[test]
fn a_hello_may_be_cut_into_records_anywhere_and_be_followed_by_anything() {
    let message = message(Some(&[name_extension(b"example.com"), extension(16, b"\0\x03\x02h2")].concat()));
    for size in 1..message.len() {
        let mut bytes = records(&message, size);
        assert_eq!(read_all(&bytes), found(Some("example.com"), &["h2"]), "{size}");
        bytes.extend_from_slice(b"\x14\x03\x03early data");
        assert_eq!(client_hello(&bytes), found(Some("example.com"), &["h2"]), "{size}");
    }
}

#[test]
fn what_is_no_tls_is_told_at_once() {
    for bytes in [
        &b"G"[..],
        b"GET / HTTP/1.1\r\n",
        b"\x15",
        b"\x16\x02",
        b"\x80\x2e\x01",
        b"\x16\x03\x01\0\0",
        b"\x16\x03\x01\x40\x01",
        b"\0",
    ] {
        assert_eq!(client_hello(bytes), Hello::NotTls, "{bytes:?}");
    }
    assert_eq!(client_hello(b"\x16\x03\x01\0\x05\x02"), Hello::NotTls, "no ClientHello");
    assert_eq!(client_hello(b""), Hello::NeedMore);
}

#[test]
fn a_name_that_no_host_can_have_is_refused() {
    let long_label = "a".repeat(64);
    let long_name = "a.".repeat(127);
    for name in [
        "",
        ".",
        "a..b",
        ".a",
        "a b",
        "a/b",
        "\u{e4}",
        "a\0b",
        "a:443",
        "*.a",
        "[::1]",
        "a..",
        "a\r\n",
        &long_label,
        &format!("{long_name}b"),
    ] {
        assert_eq!(read_all(&hello(&[name_extension(name.as_bytes())])), Hello::NotTls, "{name:?}");
    }
    assert_eq!(read_all(&hello(&[name_extension(&[b'a'; 63])])), found(Some(&"a".repeat(63)), &[]));
}

#[test]
fn two_names_are_refused_in_whatever_way_they_are_given() {
    assert_eq!(read_all(&hello(&[name_extension(b"a"), name_extension(b"b")])), Hello::NotTls);
    let twice = [&[0][..], &vector(2, b"a"), &[0], &vector(2, b"b")].concat();
    assert_eq!(read_all(&hello(&[extension(0, &vector(2, &twice))])), Hello::NotTls);
    let other_type = [&[1][..], &vector(2, b"a")].concat();
    assert_eq!(read_all(&hello(&[extension(0, &vector(2, &other_type))])), Hello::NotTls);
    assert_eq!(read_all(&hello(&[extension(0, &[])])), Hello::NotTls);
}

#[test]
fn lengths_that_contradict_each_other_are_refused() {
    let good = hello(&[name_extension(b"example.com")]);
    // Message, session id, cipher suites, compression, extension block, extension, list, name: each high and low.
    let lengths = [6, 7, 8, 43, 76, 77, 80, 82, 83, 86, 87, 88, 89, 91, 92];
    for at in lengths {
        for change in [1_u8, 0x7f, 0xff] {
            let mut bad = good.clone();
            bad[at] = bad[at].wrapping_add(change);
            bad.resize(CLIENT_HELLO_BYTES_MAX + 100, 0);
            assert_eq!(client_hello(&bad), Hello::NotTls, "{at} {change}");
        }
    }
}

#[test]
fn an_extension_outside_its_block_or_inside_the_name_list_is_refused() {
    let (name, empty) = (name_extension(b"a"), extension(10, &[]));
    let mut outside = message(Some(&name));
    outside.extend_from_slice(&empty);
    outside[3] += 4;
    assert_eq!(read_all(&records(&outside, 1 << 14)), Hello::NotTls);
    let list = [&[0][..], &vector(2, b"a"), &empty].concat();
    assert_eq!(read_all(&hello(&[extension(0, &vector(2, &list))])), Hello::NotTls);
}

#[test]
fn a_hello_is_never_awaited_beyond_its_bound() {
    let endless = records(&message(Some(&extension(1, &vec![0; CLIENT_HELLO_BYTES_MAX - 100]))), 64);
    assert_eq!(client_hello(&endless[..CLIENT_HELLO_BYTES_MAX - 1]), Hello::NeedMore);
    assert_eq!(client_hello(&endless[..CLIENT_HELLO_BYTES_MAX]), Hello::NotTls);
    assert_eq!(client_hello(&endless), Hello::NotTls);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_more_bytes_never_change_an_answer(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
        at in any::<proptest::sample::Index>(),
        random: bool,
    ) {
        if !random {
            let mut good = hello(&[extension(5, b"xyz"), name_extension(b"example.com")]);
            let at = at.index(good.len());
            good.splice(at..(at + 2).min(good.len()), bytes.drain(..bytes.len().min(3)));
            bytes = good;
        }
        read_all(&bytes);
    }
}
