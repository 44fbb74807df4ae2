use proptest::prelude::*;

use super::*;

type Outcome = Option<Result<(ResponseParsed, String), Fault>>;

fn told(head: &ResponseHead) -> String {
    format!("{} {:?} {:?} {:?}", head.status, String::from_utf8_lossy(head.reason()), head.version, head.fields)
}

fn feed(bytes: &[u8], cuts: impl Iterator<Item = usize>, limits: &HeadLimits, method: Method) -> Outcome {
    let (mut scan, mut head) = (HeadScan::default(), ResponseHead::default());
    for end in cuts.chain([bytes.len()]) {
        match parse_response(&bytes[..end], limits, &mut scan, method, &mut head) {
            Ok(None) => {}
            Ok(Some(parsed)) => return Some(Ok((parsed, told(&head)))),
            Err(fault) => return Some(Err(fault)),
        }
    }
    None
}

fn outcome(bytes: &[u8], limits: &HeadLimits, method: Method) -> Outcome {
    let whole = feed(bytes, std::iter::empty(), limits, method);
    assert_eq!(whole, feed(bytes, 1..bytes.len(), limits, method), "{:?}", String::from_utf8_lossy(bytes));
    whole
}

fn parse_for(method: Method, text: &str) -> Result<(ResponseParsed, String), Fault> {
    outcome(text.as_bytes(), &HeadLimits::default(), method).unwrap_or_else(|| panic!("incomplete: {text:?}"))
}

fn parse(text: &str) -> Result<ResponseParsed, Fault> {
    parse_for(Method::Get, text).map(|(parsed, _)| parsed)
}

fn ok(fields: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}\r\n")
}

#[test]
fn a_plain_response_is_understood() {
    let text = "HTTP/1.1 404 Not  Here\r\nContent-Length: 2\r\nx-a: 1\r\n\r\nab";
    let (parsed, told) = parse_for(Method::Get, text).unwrap();
    let wanted =
        ResponseParsed { head_len: text.len() - 2, framing: Framing::Length(2), keep_alive: true, switching: false };
    assert_eq!(parsed, wanted);
    assert_eq!(told, "404 \"Not  Here\" Http11 {\"Content-Length\": \"2\", \"x-a\": \"1\"}");
}

#[test]
fn a_status_line_is_taken_to_the_letter() {
    for line in
        ["HTTP/1.1 200 OK", "HTTP/1.0 200 OK", "HTTP/1.1 200 ", "HTTP/1.1 200", "HTTP/1.1 999 x", "HTTP/1.1 200 \u{e4}"]
    {
        assert!(parse(&format!("{line}\r\n\r\n")).is_ok(), "{line:?}");
    }
    for line in [
        "HTTP/1.2 200 OK",
        "HTTP/2.0 200 OK",
        "HTTP/2 200",
        "http/1.1 200 OK",
        "ICY 200 OK",
        " HTTP/1.1 200 OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1 099 x",
        "HTTP/1.1 000 x",
        "HTTP/1.1 2x0 OK",
        "HTTP/1.1\t200 OK",
        "HTTP/1.1 200\tOK",
        "HTTP/1.1 200 O\0K",
        "HTTP/1.1 200 O\x7fK",
        "HTTP/1.1",
        "\r\nHTTP/1.1 200 OK",
        "HTTP/1.1 -20 x",
        "200 OK",
        "HTTP/1.1 200 a\rb",
        "HTTP/1.1 200 a\nb",
    ] {
        let bytes = format!("{line}\r\n\r\n");
        assert_eq!(
            outcome(bytes.as_bytes(), &HeadLimits::default(), Method::Get),
            Some(Err(Fault::BadResponse)),
            "{line:?}"
        );
    }
}

#[test]
fn another_protocol_is_refused_as_soon_as_it_shows() {
    for first in [b"S".as_slice(), b"HTTPS", b"\x15\x03", b"\0", b"HTTP/2", b"\r", b"\n", b"<html>"] {
        assert_eq!(outcome(first, &HeadLimits::default(), Method::Get), Some(Err(Fault::BadResponse)), "{first:?}");
    }
}

#[test]
fn a_field_that_could_be_read_in_two_ways_is_refused() {
    for fields in [
        "A: b\r\n c\r\n",
        "A: b\r\n\tc\r\n",
        "A : b\r\n",
        " A: b\r\n",
        ": b\r\n",
        "A\r\n",
        "A: b\n",
        "A: b\rc\r\n",
        "A: b\0\r\n",
        "A: \x01\r\n",
        "A: \x7f\r\n",
        "\n",
        "Content-Length : 2\r\n",
    ] {
        let text = ok(fields);
        assert_eq!(
            outcome(text.as_bytes(), &HeadLimits::default(), Method::Get),
            Some(Err(Fault::BadResponse)),
            "{fields:?}"
        );
    }
}

#[test]
fn framing_follows_the_fields() {
    for (fields, framing) in [
        ("", Framing::UntilClose),
        ("Content-Length: 0\r\n", Framing::Length(0)),
        ("Content-Length: 12\r\n", Framing::Length(12)),
        ("Transfer-Encoding: Chunked\r\n", Framing::Chunked),
    ] {
        let parsed = parse(&ok(fields)).unwrap();
        assert_eq!(parsed.framing, framing, "{fields:?}");
        assert_eq!(parsed.keep_alive, framing != Framing::UntilClose);
    }
}

#[test]
fn doubtful_framing_is_refused() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length:\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked;x\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding:\r\n",
    ] {
        for method in [Method::Get, Method::Head] {
            assert_eq!(parse_for(method, &ok(fields)), Err(Fault::BadResponse), "{fields:?}");
        }
        assert_eq!(parse(&format!("HTTP/1.1 304 x\r\n{fields}\r\n")), Err(Fault::BadResponse), "{fields:?}");
    }
    assert_eq!(parse("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(Fault::BadResponse));
}

#[test]
fn responses_that_have_no_body_have_none_whatever_their_fields_say() {
    for fields in ["", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        let (parsed, told) = parse_for(Method::Head, &ok(fields)).unwrap();
        assert_eq!((parsed.framing, parsed.keep_alive), (Framing::None, true), "{fields:?}");
        assert_eq!(told.contains("Content-Length"), fields.contains("Content-Length"), "HEAD keeps the length");
        let parsed = parse(&format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n")).unwrap();
        assert_eq!((parsed.framing, parsed.keep_alive), (Framing::None, true), "{fields:?}");
    }
}

#[test]
fn a_204_loses_its_length_and_one_that_announces_content_ends_the_connection() {
    for (fields, lives) in [
        ("", true),
        ("Content-Length: 0\r\n", true),
        ("Content-Length: 5\r\n", false),
        ("Transfer-Encoding: chunked\r\n", false),
    ] {
        let (parsed, told) = parse_for(Method::Get, &format!("HTTP/1.1 204 No Content\r\n{fields}\r\n")).unwrap();
        assert_eq!((parsed.framing, parsed.keep_alive), (Framing::None, lives), "{fields:?}");
        assert!(!told.contains("Content-Length"), "{fields:?}");
    }
}

#[test]
fn an_interim_response_that_announces_content_is_refused() {
    for status in [100, 101, 102, 103, 199] {
        for (fields, good) in [
            ("", true),
            ("Content-Length: 0\r\n", true),
            ("Content-Length: 5\r\n", false),
            ("Transfer-Encoding: chunked\r\n", false),
        ] {
            let result = parse_for(Method::Get, &format!("HTTP/1.1 {status} x\r\n{fields}\r\n"));
            assert_eq!(result.is_ok(), good, "{status} {fields:?}");
            let Ok((parsed, told)) = result else { continue };
            assert_eq!((parsed.framing, parsed.switching), (Framing::None, status == 101));
            assert!(!told.contains("Content-Length"));
        }
    }
}

#[test]
fn a_connection_lives_on_as_version_options_and_framing_say() {
    for (head, lives) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 0", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: a, Close", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive", true),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive", false),
        ("HTTP/1.1 200 OK", false),
        ("HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: y", false),
    ] {
        assert_eq!(parse(&format!("{head}\r\n\r\n")).unwrap().keep_alive, lives, "{head:?}");
    }
}

#[test]
fn a_head_or_a_number_of_fields_over_its_bound_is_refused() {
    let text = ok("A: b\r\nC: d\r\n");
    let limits = |head_bytes_max, fields_max| HeadLimits { head_bytes_max, fields_max };
    let result = |limits| outcome(text.as_bytes(), &limits, Method::Get);
    assert!(matches!(result(limits(text.len(), 2)), Some(Ok(_))));
    assert_eq!(result(limits(text.len() - 1, 2)), Some(Err(Fault::ResponseHeadTooLarge)));
    assert_eq!(result(limits(10, 2)), Some(Err(Fault::ResponseHeadTooLarge)));
    assert_eq!(result(limits(text.len(), 1)), Some(Err(Fault::ResponseHeadTooLarge)));
}

#[test]
fn fields_that_connection_names_are_gone() {
    let (_, told) = parse_for(Method::Get, &ok("Connection: x-a, set-cookie\r\nX-A: 1\r\nSet-Cookie: c\r\n")).unwrap();
    assert!(told.contains("Set-Cookie") && !told.contains("X-A"), "{told}");
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_how_the_bytes_are_split(
        pieces in proptest::collection::vec(proptest::sample::select(vec![
            "HTTP/1.1 200 OK\r\n", "HTTP/1.0 304\r\n", "HTTP/1.1 ", "204 x\r\n", "Content-Length: 1\r\n", "A: b\r\n", "\r\n", "\n", "\r", "\0",
            "Transfer-Encoding: chunked\r\n", "Connection: a\r\n",
        ]), 0..10),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
    ) {
        let bytes = pieces.concat().into_bytes();
        let limits = HeadLimits { head_bytes_max: 90, fields_max: 3 };
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let whole = feed(&bytes, std::iter::empty(), &limits, Method::Get);
        prop_assert_eq!(feed(&bytes, cuts.into_iter(), &limits, Method::Get), whole);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), opened: bool) {
        if opened {
            bytes.splice(0..0, *b"HTTP/1.1 200 OK\r\n");
        }
        feed(&bytes, std::iter::empty(), &HeadLimits::default(), Method::Get);
    }
}
