//! Requests whole, in pieces, of other protocols and hostile.

use proptest::prelude::*;

use super::*;

/// A request with this behind its headers.
fn message(rest: &[u8]) -> Vec<u8> {
    let indicator = (6 + rest.len()) as u8;
    let length = (u16::from(indicator) + 5).to_be_bytes();
    [&[3, 0, length[0], length[1], indicator, 0xe0, 0, 0, 0, 0, 0], rest].concat()
}

const NEGOTIATION: &[u8] = &[1, 0, 8, 0, 3, 0, 0, 0];

#[test]
fn users_and_hosts_are_read_and_every_piece_of_a_request_needs_more() {
    let host = SocketAddrV4::new([172, 31, 249, 216].into(), 3_389);
    for (rest, cookie) in [
        (&b"Cookie: mstshash=eltons\r\n"[..], Some(Cookie::User(b"eltons"))),
        (b"Cookie: mstshash=DOMAIN\\a b\r\n", Some(Cookie::User(b"DOMAIN\\a b"))),
        // The example of section 3.2.5.3.1.
        (b"Cookie: msts=3640205228.15629.0000\r\n", Some(Cookie::Host(host))),
        (b"", None),
        (b"Cookie: mstshash=\r\n", None),
        (b"Cookie: mstshash=eltons", None),
        (b"Cookie: other=eltons\r\n", None),
        (b"cookie: mstshash=eltons\r\n", None),
        (b"tsv://MS Terminal Services Plugin.1.Sessions\r\n", None),
        (b"Cookie: msts=3640205228.15629\r\n", None),
        (b"Cookie: msts=3640205228.15629.0000.1\r\n", None),
        (b"Cookie: msts=4294967296.15629.0000\r\n", None),
        (b"Cookie: msts=1.65536.0000\r\n", None),
        (b"Cookie: msts=-1.1.0000\r\n", None),
        (b"Cookie: msts=\xff.1.0000\r\n", None),
    ] {
        let whole = message(&[rest, NEGOTIATION].concat());
        assert_eq!(request(&whole), Request::Found(cookie), "{}", rest.escape_ascii());
        for cut in 0..whole.len() {
            assert_eq!(request(&whole[..cut]), Request::NeedMore, "{cut}");
        }
        assert_eq!(request(&[&whole[..], b"more"].concat()), Request::Found(cookie));
    }
}

#[test]
fn other_protocols_and_broken_lengths_are_no_request() {
    let longest = message(&[b'x'; 248]);
    assert_eq!((request(&longest), longest.len()), (Request::Found(None), REQUEST_BYTES_MAX));
    for other in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"\x03\x00\x00\x13\x0d\xe0",
        b"\x03\x00\xff\xff\xff\xe0",
        b"\x03\x00\x00\x0a\x05\xe0",
        b"\x03\x00\x00\x13\x0e\xd0",
        b"\x03\x00\x01\x04\xff\xe0",
    ] {
        assert_eq!(request(other), Request::NotRdp, "{}", other.escape_ascii());
    }
}

proptest! {
    #[test]
    fn what_is_said_of_some_bytes_is_said_of_more(
        start in prop_oneof![Just(message(b"Cookie: mstshash=a\r\n")), Just(vec![3, 0, 0]), Just(Vec::new())],
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        cut in 0_usize..400,
    ) {
        let whole = [start, bytes].concat();
        let part = &whole[..cut.min(whole.len())];
        let said = request(part);
        if said == Request::NeedMore {
            prop_assert!(part.len() < REQUEST_BYTES_MAX);
        } else {
            prop_assert_eq!(request(&whole), said);
        }
    }
}
