use proptest::prelude::*;

use super::*;

#[derive(Debug, PartialEq)]
struct Body {
    data: Vec<u8>,
    /// Bytes behind the body.
    rest: usize,
    trailers: Vec<(String, String)>,
}

/// Decodes in pieces that end at `cuts`. `Ok(None)`: the body has not ended.
fn feed(bytes: &[u8], cuts: impl Iterator<Item = usize>) -> Result<Option<Body>, BadChunk> {
    let mut decoder = ChunkDecoder::new(&HeadLimits { head_bytes_max: 0, fields_max: 8 });
    let (mut data, mut start) = (Vec::new(), 0);
    for end in cuts.chain([bytes.len()]) {
        let mut piece = bytes[start..end].to_vec();
        let decoded = decoder.decode_in_place(&mut piece)?;
        assert!(decoded.data_len <= decoded.consumed);
        assert_eq!(piece[decoded.consumed..], bytes[start + decoded.consumed..end], "the rest is untouched");
        data.extend_from_slice(&piece[..decoded.data_len]);
        if decoded.done {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let trailers = decoder.trailers().iter().map(|field| (text(field.name), text(field.value))).collect();
            return Ok(Some(Body { data, rest: bytes.len() - start - decoded.consumed, trailers }));
        }
        assert_eq!(decoded.consumed, end - start, "all is used up");
        start = end;
    }
    Ok(None)
}

fn decode(bytes: &[u8]) -> Result<Option<Body>, BadChunk> {
    let whole = feed(bytes, std::iter::empty());
    assert_eq!(whole, feed(bytes, 1..bytes.len()), "{:?}", String::from_utf8_lossy(bytes));
    whole
}

fn data_of(text: &str) -> Option<Vec<u8>> {
    decode(text.as_bytes()).unwrap_or_else(|_| panic!("refused: {text:?}")).map(|body| body.data)
}

#[test]
fn chunks_become_their_data_and_what_follows_is_left_alone() {
    let body = decode(b"5\r\nhello\r\n00A;x=\"y;z\"\r\n, world!!!\r\n0\r\n\r\nGET /").unwrap().unwrap();
    assert_eq!(body, Body { data: b"hello, world!!!".to_vec(), rest: 5, trailers: Vec::new() });
    assert_eq!(data_of("0\r\n\r\n"), Some(Vec::new()));
    assert_eq!(data_of("00\r\n\r\n"), Some(Vec::new()));
    assert_eq!(data_of("a\r\n0123456789\r\n0\r\n\r\n"), Some(b"0123456789".to_vec()));
    assert_eq!(data_of("1\t;a\r\nx\r\n0 ; b\r\n\r\n"), Some(b"x".to_vec()));
    assert_eq!(data_of("2\r\n\r\n\r\n0\r\n\r\n"), Some(b"\r\n".to_vec()));
}

#[test]
fn every_prefix_of_a_body_waits_for_the_rest() {
    let text = b"3;x\r\nabc\r\n0\r\nA: b\r\n\r\n";
    for end in 0..text.len() {
        assert_eq!(decode(&text[..end]), Ok(None));
    }
}

#[test]
fn a_chunk_line_that_others_could_read_differently_is_refused() {
    for bad in [
        "\r\n",
        "\n",
        " 5\r\n",
        "5 \r\n",
        "5\t\r\n",
        "5\n",
        "5\r",
        "5\r5",
        "5 5\r\n",
        "0x5\r\n",
        "+5\r\n",
        "-5\r\n",
        "g\r\n",
        "5g\r\n",
        ";x\r\n",
        "5,6\r\n",
        "5_0\r\n",
        "5;a\n",
        "5;a\rb\r\n",
        "5;a\0\r\n",
        "5;a\x7f\r\n",
        "5;a\r\r\n",
        "5\0\r\n",
        "\u{665}\r\n",
        "5.0\r\n",
        "00000000000000005\r\n",
        "10000000000000000\r\n",
        "5;\"a\nb\"\r\n",
        "5 x\r\n",
        "5\x0b\r\n",
    ] {
        let text = format!("{bad}hello\r\n0\r\n\r\n");
        assert_eq!(decode(text.as_bytes()), Err(BadChunk), "{bad:?}");
    }
}

#[test]
fn an_extension_outside_the_grammar_is_refused() {
    for bad in [
        "5;\r\n",
        "5; \r\n",
        "5;;a\r\n",
        "5;a;\r\n",
        "5;=b\r\n",
        "5;a=\r\n",
        "5;a= \r\n",
        "5;a=;b\r\n",
        "5;a=b=c\r\n",
        "5;a=b c\r\n",
        "5;a b\r\n",
        "5;a,b\r\n",
        "5;a \r\n",
        "5;a=b \r\n",
        "5;a=\"b\" \r\n",
        "5;bad[=x\r\n",
        "5;a=[\r\n",
        "5;\"a\"\r\n",
        "5;a=\"\r\n",
        "5;a=\"b\r\n",
        "5;a=\"b\\\"\r\n",
        "5;a=\"b\"c\r\n",
        "5;a=\"b\"=c\r\n",
        "5;a=\"b\"\"c\"\r\n",
        "5;a=b\"c\"\r\n",
        "5;a=\"\x01\"\r\n",
        "5;a=\"\\\x01\"\r\n",
        "5;a=\"\x7f\"\r\n",
        "5;a=\"b\rc\"\r\n",
        "5;a=\"b\\\nc\"\r\n",
        "5;\u{ff}\r\n",
        "5;a=\u{ff}\r\n",
        "5;a\u{ff}\r\n",
    ] {
        let text = format!("{bad}hello\r\n0\r\n\r\n");
        assert_eq!(decode(text.as_bytes()), Err(BadChunk), "{bad:?}");
    }
}

#[test]
fn extensions_of_the_grammar_are_passed_over() {
    for good in [
        ";a",
        ";a=b",
        ";a=\"\"",
        ";a=\"b;c=d, \t\\\"\\\\\\x\u{ff}\"",
        ";a=\"\\\u{ff}\"",
        ";a;b=c;d=\"e\"",
        " ; a = b ; c = \"d\" ; e",
        "\t;\ta\t=\t\"b\"\t;\tc",
        ";!#$%&'*+-.^_`|~0aZ=!#$%&'*+-.^_`|~0aZ",
    ] {
        let text = format!("5{good}\r\nhello\r\n0{good}\r\n\r\n");
        assert_eq!(data_of(&text), Some(b"hello".to_vec()), "{good:?}");
    }
    // Obs-text is any byte, whether UTF-8 or not.
    assert!(decode(b"5;a=\"\xff\\\xfe\"\r\nhello\r\n0\r\n\r\n").is_ok_and(|body| body.is_some()));
}

#[test]
fn white_space_counts_as_an_extension() {
    let one = format!("1{};a\r\na\r\n", " ".repeat(1000));
    assert!(feed(one.repeat(16).as_bytes(), std::iter::empty()).is_ok());
    assert_eq!(feed(one.repeat(17).as_bytes(), std::iter::empty()), Err(BadChunk));
}

/// The grammar of chunk extensions (section 7.1.1), read by backtracking: slow, and as plain as it can be.
fn is_extension(text: &[u8]) -> bool {
    fn past_space(text: &[u8]) -> &[u8] {
        let end = text.iter().position(|byte| !b" \t".contains(byte)).unwrap_or(text.len());
        &text[end..]
    }
    fn past_token(text: &[u8]) -> Option<&[u8]> {
        let end = text.iter().position(|byte| !is_token(&[*byte])).unwrap_or(text.len());
        (end > 0).then(|| &text[end..])
    }
    fn past_quoted(text: &[u8]) -> Option<&[u8]> {
        let mut rest = text.strip_prefix(b"\"")?;
        loop {
            rest = match rest {
                [b'"', rest @ ..] => return Some(rest),
                [b'\\', b'\t' | b' '..=b'~' | 0x80.., rest @ ..] => rest,
                [b'\t' | b' '..=b'[' | b']'..=b'~' | 0x80.., rest @ ..] => rest,
                _ => return None,
            };
        }
    }
    let mut rest = text;
    while !rest.is_empty() {
        let Some(behind) = past_space(rest).strip_prefix(b";") else { return false };
        let Some(behind) = past_token(past_space(behind)) else { return false };
        rest = behind;
        if let Some(value) = past_space(behind).strip_prefix(b"=") {
            let value = past_space(value);
            let Some(behind) = past_token(value).or_else(|| past_quoted(value)) else { return false };
            rest = behind;
        }
    }
    true
}

#[test]
fn the_largest_size_is_counted_and_does_not_overflow() {
    let mut decoder = ChunkDecoder::new(&HeadLimits::default());
    let mut bytes = *b"ffffffffffffffff\r\nabc";
    let decoded = decoder.decode_in_place(&mut bytes).unwrap();
    assert_eq!((decoded.data_len, decoded.consumed, decoded.done), (3, 21, false));
    assert_eq!(decoder.size, u64::MAX - 3);
}

#[test]
fn data_must_end_where_its_size_says() {
    for bad in ["2\r\nabc\r\n", "2\r\nab\n", "2\r\nab0\r\n\r\n", "2\r\nab\r0", "2\r\nab\r\r\n", "2\r\nab \r\n"] {
        assert_eq!(decode(bad.as_bytes()), Err(BadChunk), "{bad:?}");
    }
}

#[test]
fn a_broken_body_stays_broken() {
    let mut decoder = ChunkDecoder::new(&HeadLimits::default());
    assert_eq!(decoder.decode_in_place(&mut b"x".to_vec()), Err(BadChunk));
    assert_eq!(decoder.decode_in_place(&mut b"0\r\n\r\n".to_vec()), Err(BadChunk));
    decoder.reset();
    assert!(decoder.decode_in_place(&mut b"0\r\n\r\n".to_vec()).unwrap().done);
    let after = decoder.decode_in_place(&mut b"more".to_vec()).unwrap();
    assert_eq!((after.consumed, after.done), (0, true), "nothing behind the end is taken");
}

#[test]
fn a_chunk_line_has_a_bound_and_so_have_all_extensions_together() {
    let with = |extension: usize| format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(extension));
    assert!(feed(with(CHUNK_LINE_BYTES_MAX - 3).as_bytes(), std::iter::empty()).is_ok());
    assert_eq!(feed(with(CHUNK_LINE_BYTES_MAX - 2).as_bytes(), std::iter::empty()), Err(BadChunk));
    let one = format!("1;{}\r\na\r\n", "x".repeat(1000));
    assert!(feed(one.repeat(16).as_bytes(), std::iter::empty()).is_ok());
    assert_eq!(feed(one.repeat(17).as_bytes(), std::iter::empty()), Err(BadChunk));
    assert!(feed("1;x=y\r\na\r\n".repeat(10_000).as_bytes(), std::iter::empty()).is_ok(), "short ones may be many");
}

#[test]
fn trailers_are_read_and_those_that_may_not_be_trailers_are_dropped() {
    let text = b"0\r\nChecksum: abc \r\nContent-Length: 5\r\nHost: h\r\nAuthorization: x\r\nX-B:\r\nTransfer-Encoding: chunked\r\n\r\n";
    let body = decode(text).unwrap().unwrap();
    assert_eq!(body.trailers, [("Checksum".into(), "abc".into()), ("X-B".into(), String::new())]);
    for name in [
        "Cookie",
        "Set-Cookie",
        "If-Match",
        "X-Forwarded-For",
        "x-forwarded-other",
        "Trailer",
        "TE",
        "Range",
        "Connection",
    ] {
        let body = decode(format!("0\r\n{name}: x\r\n\r\n").as_bytes()).unwrap().unwrap();
        assert!(body.trailers.is_empty(), "{name}");
    }
}

#[test]
fn a_malformed_trailer_section_is_refused() {
    for bad in [
        "A: b\n\r\n",
        "A: b\r\n\n",
        "A : b\r\n\r\n",
        " A: b\r\n\r\n",
        "A: b\r\n c\r\n\r\n",
        "A\r\n\r\n",
        ": b\r\n\r\n",
        "A: \0\r\n\r\n",
        "A: b\rc\r\n\r\n",
        "\rX",
        "\n",
        "A: b\r\n\rX",
    ] {
        assert_eq!(decode(format!("0\r\n{bad}").as_bytes()), Err(BadChunk), "{bad:?}");
    }
}

#[test]
fn a_trailer_section_has_a_bound_in_bytes_and_in_fields() {
    let long = |len: usize| format!("0\r\nA: {}\r\n\r\n", "x".repeat(len));
    assert!(feed(long(TRAILER_BYTES_MAX - 5).as_bytes(), std::iter::empty()).is_ok());
    assert_eq!(feed(long(TRAILER_BYTES_MAX - 4).as_bytes(), std::iter::empty()), Err(BadChunk));
    let many = |count: usize| format!("0\r\n{}\r\n", "A: b\r\n".repeat(count));
    assert!(decode(many(8).as_bytes()).is_ok());
    assert_eq!(decode(many(9).as_bytes()), Err(BadChunk));
}

#[test]
fn a_chunk_head_stands_right_before_its_data() {
    for (len, wanted) in
        [(1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (65_536, "10000\r\n"), (usize::MAX, "ffffffffffffffff\r\n")]
    {
        let mut out = [b'?'; CHUNK_HEAD_BYTES_MAX + 2];
        let start = write_chunk_head(len, &mut out);
        assert_eq!(&out[start..], wanted.as_bytes());
        assert!(out[..start].iter().all(|&byte| byte == b'?'));
    }
}

#[test]
fn the_last_chunk_carries_the_trailers_that_may_be_sent() {
    let mut fields = Fields::default();
    for (name, value) in [("Grpc-Status", "0"), ("Content-Length", "3")] {
        fields.append(&model::FieldName::new(name).unwrap(), value.as_bytes());
    }
    let mut out = Vec::new();
    write_last_chunk(&fields, &mut out);
    assert_eq!(out, b"0\r\nGrpc-Status: 0\r\n\r\n");
}

proptest! {
    #[test]
    fn what_is_written_in_chunks_is_read_back_however_it_is_split(
        chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..6),
        trailers in proptest::collection::vec("[a-z]{3,9}", 0..3),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
    ) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            let mut head = [0; CHUNK_HEAD_BYTES_MAX];
            let start = write_chunk_head(chunk.len(), &mut head);
            bytes.extend_from_slice(&head[start..]);
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(CHUNK_TAIL);
        }
        let mut fields = Fields::default();
        let mut wanted = Vec::new();
        for trailer in trailers {
            let name = format!("x-{trailer}");
            fields.append(&model::FieldName::new(&name).unwrap(), trailer.as_bytes());
            wanted.push((name, trailer));
        }
        write_last_chunk(&fields, &mut bytes);
        bytes.extend_from_slice(b"next");
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let body = feed(&bytes, cuts.iter().copied()).unwrap().unwrap();
        prop_assert_eq!(body.data, chunks.concat());
        prop_assert_eq!(body.trailers, wanted);
    }

    #[test]
    fn the_result_does_not_depend_on_how_the_bytes_are_split(
        pieces in proptest::collection::vec(proptest::sample::select(vec![
            "1\r\n", "a\r\n", "0\r\n", "\r\n", "3;x\r\nabc\r\n", "A: b\r\n", "2\r\nxy\r\n", "\n", " ", ";", "Host: h\r\n",
            "3", "=", "\"", "\\", "a=\"b\\\"c\"",
        ]), 0..10),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
    ) {
        let bytes = pieces.concat().into_bytes();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        // A piece behind the end of the body is not fed: drop what both leave over.
        let told = |result: Result<Option<Body>, BadChunk>| result.map(|body| body.map(|body| (body.data, body.trailers)));
        prop_assert_eq!(told(feed(&bytes, cuts.into_iter())), told(feed(&bytes, std::iter::empty())));
    }

    #[test]
    fn an_extension_is_accepted_exactly_if_the_grammar_has_it(
        pieces in proptest::collection::vec(proptest::sample::select(vec![
            &b";"[..], b"=", b"\"", b"\\", b" ", b"\t", b"a", b"b1", b"[", b"\x7f", b"\xff", b";a", b"=\"x\"", b"\r", b"\n",
        ]), 0..9),
    ) {
        let text = pieces.concat();
        let body = [b"3", &text[..], b"\r\nabc\r\n0\r\n\r\n"].concat();
        let is_accepted = decode(&body).is_ok_and(|body| body.is_some_and(|body| body.data == b"abc"));
        prop_assert_eq!(is_accepted, is_extension(&text));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = feed(&bytes, std::iter::empty());
    }
}
