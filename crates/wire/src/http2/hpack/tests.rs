use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

type Lines = Vec<(String, String)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Lines, BadBlock> {
    let mut lines = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let decoded = decoder.decode(block, 1 << 20, |name, value| lines.push((text(name), text(value))))?;
    assert_eq!(decoded, Decoded::Whole);
    Ok(lines)
}

fn lines(pairs: &[(&str, &str)]) -> Lines {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Bytes from the way the standard writes them.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let value = |digit: u8| (digit as char).to_digit(16).expect("a digit") as u8;
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

fn check(size_max: usize, blocks: &[(&str, &[(&str, &str)])]) {
    let mut decoder = Decoder::new(size_max);
    for (block, wanted) in blocks {
        assert_eq!(decode(&mut decoder, &hex(block)), Ok(lines(wanted)), "{block}");
    }
}

const REQUEST: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
const SECOND: [(&str, &str); 5] = [REQUEST[0], REQUEST[1], REQUEST[2], REQUEST[3], ("cache-control", "no-cache")];
const THIRD: [(&str, &str); 5] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/index.html"),
    (":authority", "www.example.com"),
    ("custom-key", "custom-value"),
];

#[test]
fn single_fields_of_the_standard_are_read() {
    // RFC 7541 appendix C.2.
    let own = [("custom-key", "custom-header")];
    check(4096, &[("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", &own)]);
    check(4096, &[("040c 2f73 616d 706c 652f 7061 7468", &[(":path", "/sample/path")])]);
    check(4096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", &[("password", "secret")])]);
    check(4096, &[("82", &[(":method", "GET")])]);
}

#[test]
fn requests_of_the_standard_are_read_with_and_without_the_huffman_code() {
    // RFC 7541 appendix C.3.
    check(
        4096,
        &[
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", &REQUEST),
            ("8286 84be 5808 6e6f 2d63 6163 6865", &SECOND),
            ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", &THIRD),
        ],
    );
    // Appendix C.4.
    check(
        4096,
        &[
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", &REQUEST),
            ("8286 84be 5886 a8eb 1064 9cbf", &SECOND),
            ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", &THIRD),
        ],
    );
}

#[test]
fn responses_of_the_standard_are_read_while_entries_go() {
    let first = [
        (":status", "302"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("location", "https://www.example.com"),
    ];
    let second = [(":status", "307"), first[1], first[2], first[3]];
    let third = [
        (":status", "200"),
        ("cache-control", "private"),
        ("date", "Mon, 21 Oct 2013 20:13:22 GMT"),
        ("location", "https://www.example.com"),
        ("content-encoding", "gzip"),
        ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"),
    ];
    // RFC 7541 appendix C.5.
    check(
        256,
        &[
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32
                 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                &first,
            ),
            ("4803 3330 37c1 c0bf", &second),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970
                 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61
                 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
                &third,
            ),
        ],
    );
    // Appendix C.6.
    check(
        256,
        &[
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad
                 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                &first,
            ),
            ("4883 640e ffc1 c0bf", &second),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
                 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                &third,
            ),
        ],
    );
}

#[test]
fn blocks_that_break_the_rules_are_refused() {
    for (block, why) in [
        ("80", "no entry has the index 0"),
        ("be", "nothing is in the table yet"),
        ("ff80 01", "behind both tables"),
        ("7f00 0161", "a name of an entry that is not there"),
        ("8220", "another size behind a field"),
        ("3fe2 1f", "a size larger than allowed"),
        ("4001", "cut within a name"),
        ("4001 61", "cut before a value"),
        ("0f", "cut within an index"),
        ("0001 6181 00", "padding that is none"),
        ("0001 6184 ffff ffff", "the end as a symbol"),
        ("ffff ffff ffff 7f", "an integer without end"),
    ] {
        assert_eq!(decode(&mut Decoder::new(4096), &hex(block)), Err(BadBlock::Undecodable), "{why}");
    }
    // Allowed: twice another size, before all fields.
    assert_eq!(decode(&mut Decoder::new(4096), &hex("20 3fe1 1f 82")), Ok(lines(&[(":method", "GET")])));
    assert_eq!(decode(&mut Decoder::new(4096), b""), Ok(Vec::new()));
}

#[test]
fn a_table_that_was_made_smaller_forgets() {
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &hex("4001 6101 62")).unwrap();
    assert_eq!(decode(&mut decoder, &hex("be")), Ok(lines(&[("a", "b")])));
    assert_eq!(decode(&mut decoder, &hex("20be")), Err(BadBlock::Undecodable));
}

#[test]
fn a_list_has_a_bound_however_few_bytes_it_takes_and_the_table_stays_in_step() {
    let mut decoder = Decoder::new(4096);
    // An entry of 1 + 3000 + 32 bytes, and a byte for each time that it is meant.
    let mut block = hex("4001 61");
    block.extend(hex("7fb9 16"));
    block.extend(std::iter::repeat_n(b'v', 3000));
    block.extend(std::iter::repeat_n(0xbe, 20));
    let mut bytes = 0;
    let decoded = decoder.decode(&block, 10_000, |name, value| bytes += name.len() + value.len() + 32);
    assert_eq!((decoded, bytes), (Ok(Decoded::TooLarge), 3 * 3033));
    // What comes behind the bound is remembered all the same.
    let mut late = vec![0xbe; 4];
    late.extend(hex("4001 6301 64"));
    assert_eq!(decoder.decode(&late, 10_000, |_, _| {}), Ok(Decoded::TooLarge));
    assert_eq!(decode(&mut decoder, &hex("be")), Ok(lines(&[("c", "d")])));
    // What is many times as large is not read to its end.
    let far = b"\xbe".repeat(3_000);
    assert_eq!(decoder.decode(&far, 10_000, |_, _| {}), Err(BadBlock::FarTooLarge));
    let exact = |bytes_max| Decoder::new(0).decode(&hex("82"), bytes_max, |_, _| {});
    assert_eq!((exact(42), exact(41)), (Ok(Decoded::Whole), Ok(Decoded::TooLarge)));
}

#[test]
fn every_entry_of_the_static_table_is_found() {
    let mut decoder = Decoder::new(0);
    for (place, (name, value)) in table::TABLE.iter().enumerate() {
        let block = [0x80 | (place + 1) as u8];
        assert_eq!(decode(&mut decoder, &block), Ok(lines(&[(*name, *value)])));
        let first = usize::from(table::find_name(name.as_bytes()).unwrap());
        assert!(first <= place + 1 && table::TABLE[first - 1].0 == *name, "{name}");
    }
}

#[test]
fn responses_are_read_as_they_were_written_and_nothing_is_remembered() {
    for strings in [Strings::Shorter, Strings::Plain] {
        let (mut encoder, mut decoder) = (Encoder::new(strings), Decoder::new(4096));
        for status in [100, 103, 200, 204, 206, 302, 304, 400, 404, 418, 500, 599] {
            let mut block = Vec::new();
            encoder.begin(&mut block);
            // RFC 7541 section 4.2: once, and first.
            assert_eq!(block, if status == 100 { &b"\x20"[..] } else { b"" });
            encoder.push_status(&mut block, status);
            encoder.push_field(&mut block, b"Content-Type", b"text/plain");
            encoder.push_field(&mut block, b"X-Own-Name", b"");
            encoder.push_field(&mut block, b"A-Name-That-Is-Longer-Than-Any-Of-The-Table", b"\xff\0");
            let status = status.to_string();
            let read = decode(&mut decoder, &block).unwrap();
            let wanted = [(":status", status.as_str()), ("content-type", "text/plain"), ("x-own-name", "")];
            assert_eq!(read[..3], lines(&wanted));
            assert_eq!(read[3].0, "a-name-that-is-longer-than-any-of-the-table");
            // Nothing lies behind the static table.
            assert_eq!(decode(&mut decoder, &[0xbe]), Err(BadBlock::Undecodable));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_again(
        fields in vec(("[a-z][a-z0-9-]{0,40}", vec(any::<u8>(), 0..200)), 0..20),
        is_plain in any::<bool>(),
    ) {
        let mut encoder = Encoder::new(if is_plain { Strings::Plain } else { Strings::Shorter });
        let mut decoder = Decoder::new(TABLE_BYTES);
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in &fields {
            encoder.push_field(&mut block, name.to_ascii_uppercase().as_bytes(), value);
        }
        let mut read = Vec::new();
        let decoded = decoder.decode(&block, 1 << 20, |name, value| {
            read.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
        });
        prop_assert_eq!(decoded, Ok(Decoded::Whole));
        prop_assert_eq!(read, fields);
    }

    #[test]
    fn no_blocks_make_it_panic_or_hold_much(blocks in vec(vec(any::<u8>(), 0..200), 1..20)) {
        let mut decoder = Decoder::new(200);
        for block in blocks {
            let mut bytes = 0;
            let decoded = decoder.decode(&block, 1_000, |name, value| bytes += name.len() + value.len() + 32);
            prop_assert!(bytes <= 1_000);
            if decoded.is_err() {
                break;
            }
        }
    }
}
