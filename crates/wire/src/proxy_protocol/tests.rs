use proptest::prelude::*;

use super::*;

fn whole(bytes: &[u8]) -> Header<'_> {
    match read(bytes) {
        Proxied::Whole(header) => header,
        other => panic!("{other:?}: {:?}", String::from_utf8_lossy(bytes)),
    }
}

fn peers(source: &str, destination: &str) -> Peers {
    Peers { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

/// A header of version 2 with this command, family and rest.
fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = v2::SIGNATURE.to_vec();
    bytes.extend([command, family]);
    bytes.extend(u16::try_from(rest.len()).unwrap().to_be_bytes());
    bytes.extend(rest);
    bytes
}

/// A whole header of version 2 over IPv4 with these TLVs.
fn with_tlvs(tlvs: &[u8]) -> Vec<u8> {
    let mut rest = vec![192, 0, 2, 1, 198, 51, 100, 2, 0x1f, 0x90, 0x01, 0xbb];
    rest.extend(tlvs);
    v2(0x21, 0x11, &rest)
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
    bytes.extend(value);
    bytes
}

#[test]
fn lines_of_version_1_tell_both_ends() {
    let line = b"PROXY TCP4 192.0.2.1 198.51.100.2 8080 443\r\nGET / HTTP/1.1\r\n";
    let header = whole(line);
    assert_eq!(header.peers, Some(peers("192.0.2.1:8080", "198.51.100.2:443")));
    assert_eq!(&line[header.len..header.len + 3], b"GET");
    let header = whole(b"PROXY TCP6 2001:db8::1 ::1 65535 0\r\n");
    assert_eq!(header.peers, Some(peers("[2001:db8::1]:65535", "[::1]:0")));
    // The longest that section 2.1 gives.
    let longest = format!("PROXY UNKNOWN {0} {0} 65535 65535\r\n", "ffff:".repeat(8).trim_end_matches(':'));
    assert_eq!(longest.len(), 107);
    assert_eq!(whole(longest.as_bytes()).peers, None);
    assert_eq!(whole(b"PROXY UNKNOWN\r\n").peers, None);
    assert_eq!(whole(b"PROXY UNKNOWN what ever\r\n").peers, None);
}

#[test]
fn a_line_that_breaks_the_rules_is_malformed() {
    for line in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY UNKNOWNS\r\n",
        "PROXY tcp4 192.0.2.1 198.51.100.2 1 2\r\n",
        "PROXY TCP5 192.0.2.1 198.51.100.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 1\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 1 2 \r\n",
        "PROXY TCP4  192.0.2.1 198.51.100.2 1 2\r\n",
        "PROXY TCP4 192.0.2.01 198.51.100.2 1 2\r\n",
        "PROXY TCP4 192.0.2.256 198.51.100.2 1 2\r\n",
        "PROXY TCP4 2001:db8::1 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.1 198.51.100.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 01 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 -1 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 65536 2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2  2\r\n",
        "PROXY TCP4 192.0.2.1 198.51.100.2 1 2\n",
        "PROXY TCP4 192.0.2.1\r198.51.100.2 1 2\r\n",
        "PROXY TCP4 \u{661}92.0.2.1 198.51.100.2 1 2\r\n",
        "PROXY /index HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(read(line.as_bytes()), Proxied::Malformed, "{line:?}");
    }
    let endless = format!("PROXY UNKNOWN {}", "x".repeat(200));
    assert_eq!(read(&endless.as_bytes()[..106]), Proxied::NeedMore);
    assert_eq!(read(&endless.as_bytes()[..107]), Proxied::Malformed);
    let late = format!("PROXY UNKNOWN {}\r\n", "x".repeat(92));
    assert_eq!((late.len(), read(late.as_bytes())), (108, Proxied::Malformed));
}

#[test]
fn what_begins_otherwise_is_no_header() {
    for other in
        ["GET / HTTP/1.1\r\n", "POST ", "PRI * HTTP/2.0", "PROXYING ", "\x16\x03\x01", "\r\n\r\nGET", "\r\nGET"]
    {
        assert_eq!(read(other.as_bytes()), Proxied::Absent, "{other:?}");
    }
    for beginning in ["", "P", "PROXY", "\r", "\r\n\r\n", "\r\n\r\n\0\r\nQUIT"] {
        assert_eq!(read(beginning.as_bytes()), Proxied::NeedMore, "{beginning:?}");
    }
}

#[test]
fn headers_of_version_2_tell_both_ends() {
    let mut bytes = with_tlvs(&[]);
    bytes.extend(b"next");
    let header = whole(&bytes);
    assert_eq!((header.len, header.peers), (28, Some(peers("192.0.2.1:8080", "198.51.100.2:443"))));
    let mut rest = Vec::new();
    rest.extend("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    rest.extend("::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    rest.extend([0, 80, 1, 0]);
    let bytes = v2(0x21, 0x21, &rest);
    assert_eq!(whole(&bytes).peers, Some(peers("[2001:db8::1]:80", "[::1]:256")));
}

#[test]
fn who_speaks_for_itself_or_does_not_know_leaves_the_addresses_alone() {
    let skipped = [0xff; 7];
    for (command, family) in [(0x20, 0x00), (0x20, 0x11), (0x20, 0x31), (0x21, 0x00), (0x21, 0x01)] {
        let bytes = v2(command, family, &skipped);
        let header = whole(&bytes);
        assert_eq!((header.len, header.peers, header.told), (23, None, TlvFacts::default()));
    }
    // Unix sockets have no addresses of our kind, and neither has UDP on a TCP connection.
    let mut rest = vec![b'/'; 216];
    rest.extend(tlv(0x05, b"id"));
    let bytes = v2(0x21, 0x31, &rest);
    let header = whole(&bytes);
    assert_eq!((header.peers, header.told.unique_id), (None, Some(b"id".as_slice())));
    assert_eq!(whole(&v2(0x21, 0x12, &[0; 12])).peers, None);
}

#[test]
fn a_binary_header_that_breaks_the_rules_is_malformed() {
    for (command, family, rest) in [
        (0x11, 0x11, 12),
        (0x31, 0x11, 12),
        (0x22, 0x11, 12),
        (0x2f, 0x11, 12),
        (0x21, 0x13, 12),
        (0x21, 0x41, 12),
        (0x21, 0xf1, 12),
        (0x21, 0x11, 11),
        (0x21, 0x11, 0),
        (0x21, 0x11, 13),
        (0x21, 0x21, 35),
        (0x21, 0x31, 215),
        (0x21, 0x31, 217),
    ] {
        assert_eq!(read(&v2(command, family, &vec![0; rest])), Proxied::Malformed, "{command:x} {family:x} {rest}");
    }
    let mut long = v2(0x20, 0, &vec![0; 16 * 1024 - 16]);
    assert_eq!(whole(&long).len, 16 * 1024);
    long[14..16].copy_from_slice(&(16_u16 * 1024 - 15).to_be_bytes());
    assert_eq!(read(&long[..16]), Proxied::Malformed);
}

#[test]
fn tlvs_tell_more() {
    let ssl = [vec![0x07, 0, 0, 0, 0], tlv(0x21, b"TLSv1.3"), tlv(0x22, b"me"), tlv(0x23, b"AES"), tlv(0x99, b"?")];
    let all = [
        tlv(0x01, b"h2"),
        tlv(0x02, b"shop.example"),
        tlv(0x04, b"nothing"),
        tlv(0x05, &[0xff; 128]),
        tlv(0x05, b"second"),
        tlv(0x20, &ssl.concat()),
        tlv(0x30, b"blue"),
        tlv(0xe0, b"ours"),
    ];
    let bytes = with_tlvs(&all.concat());
    let told = whole(&bytes).told;
    assert_eq!((told.alpn, told.authority), (Some(b"h2".as_slice()), Some("shop.example")));
    assert_eq!((told.unique_id, told.netns), (Some([0xff; 128].as_slice()), Some("blue")));
    let ssl = told.ssl.unwrap();
    assert!(ssl.is_tls && ssl.is_verified);
    assert_eq!((ssl.version, ssl.common_name, ssl.cipher), (Some("TLSv1.3"), Some("me"), Some("AES")));
    for (client, verify) in [(0x01, 0), (0x07, 1)] {
        let bytes = with_tlvs(&tlv(0x20, &[client, 0, 0, 0, verify]));
        let ssl = whole(&bytes).told.ssl.unwrap();
        assert!(ssl.is_tls && !ssl.is_verified);
    }
}

#[test]
fn what_is_no_text_is_as_if_it_were_not_there() {
    let tlvs = [tlv(0x02, b"\xff"), tlv(0x30, b"\xc3\x28"), tlv(0x20, &[1, 0, 0, 0, 0, 0x22, 0, 1, 0xff])].concat();
    let header = with_tlvs(&tlvs);
    let told = whole(&header).told;
    assert_eq!((told.authority, told.netns), (None, None));
    assert_eq!(told.ssl.map(|ssl| (ssl.is_tls, ssl.common_name)), Some((true, None)));
}

#[test]
fn of_one_who_speaks_for_itself_the_family_is_ignored() {
    for family in [0x00, 0x13, 0x41, 0xff] {
        assert_eq!(whole(&v2(0x20, family, b"rest")).peers, None);
    }
}

#[test]
fn a_long_host_name_of_a_client_does_not_push_out_what_the_operator_wrote() {
    let (name, own) = ("a".repeat(253), [(0xe1, vec![b'x'; 256])]);
    let ssl = OutgoingSsl { version: "TLSv1.3", cipher: "TLS13_X", common_name: None, has_certificate: false };
    let outgoing = Outgoing {
        peers: Some(peers("[2001:db8::1]:1", "[2001:db8::2]:2")),
        alpn: Some(b"http/1.1"),
        authority: Some(&name),
        ssl: Some(ssl),
        custom: &own,
        checksum: true,
        ..Outgoing::default()
    };
    let mut bytes = Vec::new();
    write_v2(&outgoing, &mut bytes);
    assert!(bytes.windows(259).any(|part| part[..3] == [0xe1, 1, 0] && part[3..] == own[0].1));
    let told = whole(&bytes).told;
    assert_eq!((told.alpn, told.authority), (Some(b"http/1.1".as_slice()), None));
    assert_eq!(told.ssl.and_then(|ssl| ssl.cipher), Some("TLS_X"), "as the registry has it");
}

#[test]
fn tlvs_that_break_the_rules_are_malformed() {
    for tlvs in [
        vec![0x01],
        vec![0x01, 0],
        vec![0x01, 0, 1],
        vec![0x01, 0xff, 0xff, 0],
        tlv(0x05, b""),
        tlv(0x05, &[0; 129]),
        tlv(0x20, b""),
        tlv(0x20, &[1, 0, 0, 0]),
        tlv(0x20, &[1, 0, 0, 0, 0, 0x21, 0, 2, 0]),
        tlv(0x03, &[0; 4]),
        tlv(0x03, &[0; 3]),
        tlv(0x03, &[0; 5]),
    ] {
        assert_eq!(read(&with_tlvs(&tlvs)), Proxied::Malformed, "{tlvs:x?}");
    }
}

#[test]
fn a_checksum_holds_for_every_byte_of_its_header() {
    let mut bytes = Vec::new();
    let from = peers("192.0.2.1:8080", "198.51.100.2:443");
    let outgoing = Outgoing { peers: Some(from), authority: Some("a.example"), checksum: true, ..Outgoing::default() };
    write_v2(&outgoing, &mut bytes);
    assert_eq!(whole(&bytes).told.authority, Some("a.example"));
    // But for the byte that says that there is one: a header without a checksum is as good.
    let kind = bytes.len() - 7;
    assert_eq!(bytes[kind..kind + 3], [0x03, 0, 4]);
    for at in (0..bytes.len()).filter(|at| *at != kind) {
        let mut broken = bytes.clone();
        broken[at] ^= 0x02;
        assert!(!matches!(read(&broken), Proxied::Whole(Header { peers: Some(_), .. })), "byte {at}");
    }
    // Anywhere among the others.
    let mut early = with_tlvs(&[tlv(0x03, &[0; 4]), tlv(0x02, b"a.example")].concat());
    let sum = crc32c::crc32c([early.as_slice()]);
    early[31..35].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(whole(&early).told.authority, Some("a.example"));
}

#[test]
fn what_is_written_is_read() {
    let ssl = OutgoingSsl { version: "TLSv1.2", cipher: "X", common_name: Some("me"), has_certificate: true };
    let custom = [(0xe1, b"blue".to_vec())];
    let from = peers("[2001:db8::1]:1", "192.0.2.1:2");
    let outgoing = Outgoing {
        peers: Some(from),
        alpn: Some(b"http/1.1"),
        authority: Some("a.example"),
        unique_id: Some(b"17"),
        ssl: Some(ssl),
        custom: &custom,
        checksum: true,
    };
    let mut bytes = b"before".to_vec();
    write_v2(&outgoing, &mut bytes);
    let header = whole(&bytes[6..]);
    assert_eq!(header.len, bytes.len() - 6);
    assert_eq!(header.peers, Some(peers("[2001:db8::1]:1", "[::ffff:192.0.2.1]:2")));
    assert_eq!((header.told.alpn, header.told.unique_id), (Some(b"http/1.1".as_slice()), Some(b"17".as_slice())));
    let ssl = header.told.ssl.unwrap();
    assert!(ssl.is_tls && ssl.is_verified);
    assert_eq!((ssl.version, ssl.common_name, ssl.cipher), (Some("TLSv1.2"), Some("me"), Some("X")));
    let mut bytes = Vec::new();
    write_v2(&Outgoing { checksum: true, ..Outgoing::default() }, &mut bytes);
    assert_eq!(bytes, v2(0x20, 0, &[]));
    for (from, line) in [
        (None, "PROXY UNKNOWN\r\n"),
        (Some(peers("192.0.2.1:1", "192.0.2.2:2")), "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"),
        (Some(peers("[::ffff:192.0.2.1]:1", "192.0.2.2:2")), "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"),
        (Some(peers("[::1]:1", "[2001:db8::]:65535")), "PROXY TCP6 ::1 2001:db8:: 1 65535\r\n"),
        (Some(peers("[::1]:1", "192.0.2.2:2")), "PROXY TCP6 ::1 ::ffff:192.0.2.2 1 2\r\n"),
    ] {
        let mut bytes = Vec::new();
        write_v1(from, &mut bytes);
        assert_eq!(String::from_utf8_lossy(&bytes), line);
        whole(&bytes);
    }
}

#[test]
fn what_is_sent_fits_into_a_first_segment() {
    let custom = [(0xe1, vec![b'x'; 300]), (0xe2, vec![b'y'; 300]), (0xe3, vec![b'z'; 9])];
    let long = "h".repeat(255);
    let from = Some(peers("[::1]:1", "[::1]:2"));
    let outgoing = Outgoing {
        peers: from,
        authority: Some(&long),
        unique_id: Some(&[b'i'; 300]),
        custom: &custom,
        checksum: true,
        ..Outgoing::default()
    };
    let mut bytes = Vec::new();
    write_v2(&outgoing, &mut bytes);
    assert!(bytes.len() <= 536, "{}", bytes.len());
    let header = whole(&bytes);
    assert_eq!((header.told.authority, header.told.unique_id), (None, Some([b'i'; 128].as_slice())));
    assert!(bytes.windows(9).any(|window| window == [b'z'; 9]), "what fits behind what does not is sent");
}

proptest! {
    #[test]
    fn nothing_panics_and_no_answer_is_taken_back(
        start in prop_oneof![Just(b"PROXY ".to_vec()), Just(v2::SIGNATURE.to_vec()), Just(with_tlvs(&[])), Just(Vec::new())],
        rest in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let bytes = [start, rest].concat();
        let last = read(&bytes);
        for end in 0..bytes.len() {
            let part = read(&bytes[..end]);
            prop_assert!(part == Proxied::NeedMore || part == last);
        }
        if let Proxied::Whole(header) = last {
            prop_assert!(header.len <= bytes.len());
        }
    }
}

#[test]
fn a_signature_that_is_not_whole_may_be_anything() {
    for word in ["", "P", "PROXY", "\r\n\r\n", "\r\n\r\n\0\r\nQUIT"] {
        assert!(!has_signature(word.as_bytes()) && read(word.as_bytes()) == Proxied::NeedMore, "{word:?}");
    }
    assert!(has_signature(b"PROXY ") && has_signature(b"\r\n\r\n\0\r\nQUIT\n"));
}

/// Every value that a header tells, with its type.
fn each(header: &Header<'_>) -> Vec<(u8, Vec<u8>)> {
    let mut values = Vec::new();
    header.told.each(|kind, value| values.push((kind, value.to_vec())));
    values
}

#[test]
fn every_value_is_told_with_its_type_and_those_of_tls_among_them() {
    let ssl = [&[3, 0, 0, 0, 0][..], &tlv(0x21, b"TLSv1.3"), &tlv(0x22, b"alice")].concat();
    let all = [tlv(4, b"pad"), tlv(2, b"shop"), tlv(0x20, &ssl), tlv(0xe0, b""), tlv(0xe0, b"again")].concat();
    let wanted: [(u8, &[u8]); 5] = [(2, b"shop"), (0x21, b"TLSv1.3"), (0x22, b"alice"), (0xe0, b""), (0xe0, b"again")];
    let told = |tlvs: &[u8]| each(&whole(&with_tlvs(tlvs)));
    assert_eq!(told(&all), wanted.map(|(kind, value)| (kind, value.to_vec())));
    // A name that the sender has not verified is nobody's, and outside of SSL the types of TLS mean nothing.
    let unverified = [&[3, 0, 0, 0, 1][..], &tlv(0x21, b"TLSv1.3"), &tlv(0x22, b"alice")].concat();
    assert_eq!(told(&tlv(0x20, &unverified)), [(0x21, b"TLSv1.3".to_vec())]);
    assert!(told(&[tlv(0x22, b"alice"), tlv(0x23, b"cipher"), tlv(0x25, b"RSA2048")].concat()).is_empty());
    for none in [&b"PROXY TCP4 192.0.2.1 198.51.100.2 8080 443\r\n"[..], &v2(0x20, 0, &all), &with_tlvs(&[])] {
        assert!(each(&whole(none)).is_empty());
    }
}

proptest! {
    #[test]
    fn whatever_is_told_is_bounded_by_the_header(tlvs in proptest::collection::vec(any::<u8>(), 0..300)) {
        let bytes = with_tlvs(&tlvs);
        if let Proxied::Whole(header) = read(&bytes) {
            let total: usize = each(&header).iter().map(|(_, value)| 3 + value.len()).sum();
            prop_assert!(total <= tlvs.len());
        }
    }
}
