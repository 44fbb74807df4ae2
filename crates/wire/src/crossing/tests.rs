use super::*;
use crate::http1::{HeadScan, SendRequest, parse_request, write_request};

const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 4096, fields_max: 8 };

fn arrive(
    (method, authority, path): (&str, Option<&str>, Option<&str>),
    fields: &[(&str, &str)],
    ends: bool,
) -> Result<(RequestHead, RequestParsed), Fault> {
    let mut head = RequestHead::default();
    let (authority, path) = (authority.map(str::as_bytes), path.map(str::as_bytes));
    let pseudo = Pseudo { method: method.as_bytes(), authority, path, protocol: None };
    let mut arriving = Arriving::begin(&mut head, &pseudo, Version::Http2)?;
    for (name, value) in fields {
        arriving.field(name.as_bytes(), value.as_bytes())?;
    }
    let parsed = arriving.end(&LIMITS, ends)?;
    Ok((head, parsed))
}

fn get(fields: &[(&str, &str)]) -> Result<(RequestHead, RequestParsed), Fault> {
    arrive(("GET", Some("a.example"), Some("/p?q=1")), fields, true)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn listed(fields: &Fields) -> String {
    fields.iter().map(|field| format!("{}={};", text(field.name), text(field.value))).collect()
}

fn as_http1(head: &RequestHead, framing: Framing) -> String {
    let how = SendRequest { framing, host_fallback: "e", upgrade: false, keep_alive: true };
    let mut out = Vec::new();
    write_request(head, &how, &mut out);
    text(&out)
}

#[test]
fn a_request_becomes_one_that_http1_can_carry_with_host_first() {
    let (head, parsed) = get(&[("accept", "*/*"), ("te", "trailers"), ("x-y", "a, b")]).unwrap();
    assert_eq!((head.path(), head.query(), head.version), (&b"/p"[..], Some(&b"q=1"[..]), Version::Http2));
    assert_eq!((parsed.framing, parsed.keep_alive, parsed.accepts_trailers), (Framing::None, true, true));
    assert_eq!(
        as_http1(&head, Framing::None),
        "GET /p?q=1 HTTP/1.1\r\nHost: a.example\r\naccept: */*\r\nx-y: a, b\r\nTE: trailers\r\nConnection: TE\r\n\r\n"
    );
}

#[test]
fn the_end_of_a_body_is_known_by_its_length_or_by_the_end_of_the_stream() {
    let post = |fields: &[(&str, &str)], ends| {
        arrive(("POST", Some("a"), Some("/")), fields, ends).map(|(_, parsed)| parsed.framing)
    };
    assert_eq!(post(&[], false), Ok(Framing::Chunked));
    assert_eq!(post(&[], true), Ok(Framing::None));
    assert_eq!(post(&[("content-length", "5")], false), Ok(Framing::Length(5)));
    assert_eq!(post(&[("content-length", "0")], false), Ok(Framing::None));
    assert_eq!(post(&[("content-length", "0")], true), Ok(Framing::None));
    for lie in ["5", "+1", "1, 1", "-0", "0x1", "1 1", "99999999999999999999"] {
        assert_eq!(post(&[("content-length", lie)], true), Err(Fault::BadRequest), "{lie}");
    }
    assert_eq!(post(&[("content-length", "5"), ("content-length", "5")], false), Err(Fault::BadRequest));
}

#[test]
fn the_authority_and_host_must_agree_and_one_of_them_be_there() {
    let host = |authority, fields: &[(&str, &str)]| {
        arrive(("GET", authority, Some("/")), fields, true).map(|(head, _)| listed(&head.fields))
    };
    assert_eq!(host(Some("A.example"), &[("x", "1"), ("host", "a.example")]), Ok("Host=A.example;x=1;".to_owned()));
    assert_eq!(host(None, &[("x", "1"), ("host", "a.example:80")]), Ok("x=1;host=a.example:80;".to_owned()));
    assert_eq!(host(Some("a.example"), &[("host", "b.example")]), Err(Fault::BadRequest));
    assert_eq!(host(Some("a.example"), &[("host", "a.example"), ("host", "a.example")]), Err(Fault::BadRequest));
    assert_eq!(host(None, &[("host", "a"), ("host", "a")]), Err(Fault::BadRequest));
    assert_eq!(host(None, &[]), Err(Fault::BadRequest));
    for bad in ["", "u@h", "a b", "a/b", "a,b", ":80", "h:99999", "a\r\nX: 1"] {
        assert_eq!(host(Some(bad), &[]), Err(Fault::BadRequest), "{bad:?}");
        assert_eq!(host(None, &[("host", bad)]), Err(Fault::BadRequest), "{bad:?}");
    }
}

#[test]
fn a_path_is_in_origin_form_and_an_asterisk_only_for_options() {
    let path = |method, path| arrive((method, Some("a"), path), &[], true).map(|(head, _)| text(head.path()));
    assert_eq!(path("GET", Some("/a")), Ok("/a".to_owned()));
    assert_eq!(path("OPTIONS", Some("*")), Ok("*".to_owned()));
    for bad in
        ["", "*", "a", "http://b/", "/a b", "/a#b", "/a\r\nX: 1", "/a HTTP/1.1\r\nHost: b\r\n\r\nGET /", "/\x7f", "/ä"]
    {
        assert_eq!(path("GET", Some(bad)), Err(Fault::BadRequest), "{bad:?}");
    }
    assert_eq!(path("GET", None), Err(Fault::BadRequest));
    assert_eq!(path("GET", Some(&format!("/{}", "a".repeat(TARGET_BYTES_MAX)))), Err(Fault::TargetTooLong));
}

#[test]
fn a_method_is_a_token_and_connect_is_not_spoken() {
    let method = |method| arrive((method, Some("a"), Some("/")), &[], true).map(|_| ());
    assert_eq!(method("PROPFIND"), Ok(()));
    for bad in ["", "GET /x HTTP/1.1\r\nA: b", "G T", "GET:"] {
        assert_eq!(method(bad), Err(Fault::BadRequest), "{bad:?}");
    }
    assert_eq!(arrive(("CONNECT", Some("a:443"), None), &[], false).map(|_| ()), Err(Fault::NotImplemented));
}

#[test]
fn a_websocket_becomes_an_upgrade_and_other_protocols_are_not_spoken() {
    let begin = |method: &[u8], protocol: &[u8], fields: &[(&str, &str)]| {
        let mut head = RequestHead::default();
        let pseudo = Pseudo { method, authority: Some(b"a"), path: Some(b"/chat"), protocol: Some(protocol) };
        let mut arriving = Arriving::begin(&mut head, &pseudo, Version::Http2)?;
        for (name, value) in fields {
            arriving.field(name.as_bytes(), value.as_bytes())?;
        }
        let parsed = arriving.end(&LIMITS, false)?;
        let how =
            SendRequest { framing: parsed.framing, host_fallback: "e", upgrade: parsed.upgrade, keep_alive: true };
        let mut out = Vec::new();
        write_request(&head, &how, &mut out);
        Ok(text(&out))
    };
    assert_eq!(
        begin(b"CONNECT", b"websocket", &[("sec-websocket-version", "13")]).as_deref(),
        Ok(
            "GET /chat HTTP/1.1\r\nHost: a\r\nsec-websocket-version: 13\r\nupgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        )
    );
    assert_eq!(begin(b"CONNECT", b"connect-udp", &[]), Err(Fault::NotImplemented));
    assert_eq!(begin(b"CONNECT", b"h2c", &[]), Err(Fault::NotImplemented));
    assert_eq!(begin(b"GET", b"websocket", &[]), Err(Fault::BadRequest));
    assert_eq!(begin(b"CONNECT", b"websocket", &[("content-length", "3")]), Err(Fault::BadRequest));
    assert_eq!(begin(b"CONNECT", b"websocket", &[("upgrade", "x")]), Err(Fault::BadRequest));
}

#[test]
fn fields_that_http2_does_not_know_or_that_would_smuggle_are_refused() {
    let bad = [
        ("connection", "close"),
        ("keep-alive", "5"),
        ("proxy-connection", "x"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
        ("X-Upper", "1"),
        ("", "1"),
        (":path", "/x"),
        ("a b", "1"),
        ("a:", "1"),
        ("a\r\nb", "1"),
        ("a", "x\r\nb: 1"),
        ("a", "x\ny"),
        ("a", "\0"),
        ("a", " x"),
        ("a", "x\t"),
        ("a", "\x7f"),
    ];
    for (name, value) in bad {
        assert_eq!(get(&[(name, value)]).map(|_| ()), Err(Fault::BadRequest), "{name:?}: {value:?}");
    }
    assert_eq!(get(&[("expect", "x")]).map(|_| ()), Err(Fault::ExpectationFailed));
    assert_eq!(get(&[("a", "1"); 8]).map(|_| ()), Err(Fault::HeadTooLarge));
    assert!(get(&[("a", ""), ("b", "x\ty"), ("c", "\u{e4}")]).is_ok());
}

#[test]
fn crumbs_of_a_cookie_are_joined_at_the_place_of_the_first() {
    let (head, _) = get(&[("cookie", "a=1"), ("x", "1"), ("cookie", "b=2"), ("cookie", "c=3; d=4")]).unwrap();
    assert_eq!(listed(&head.fields), "Host=a.example;cookie=a=1; b=2; c=3; d=4;x=1;");
    let (head, _) = get(&[("cookie", "a=1"), ("cookie", ""), ("cookie", "b=2"), ("cookie", "")]).unwrap();
    assert_eq!(listed(&head.fields), "Host=a.example;cookie=a=1; b=2;", "no white space is left at an end");
}

#[test]
fn what_crossed_to_http1_reads_as_the_same_request_there() {
    let (head, parsed) =
        arrive(("PUT", Some("a.example"), Some("/p?q")), &[("a", "1"), ("content-length", "3")], false).unwrap();
    let written = as_http1(&head, parsed.framing);
    let mut again = RequestHead::default();
    let found = parse_request(written.as_bytes(), &LIMITS, &mut HeadScan::default(), &mut again).unwrap().unwrap();
    assert_eq!((found.framing, again.path(), again.query()), (parsed.framing, head.path(), head.query()));
    assert_eq!(listed(&again.fields), listed(&head.fields));
}

fn given(send: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]))) -> String {
    let mut out = String::new();
    send(&mut |name, value| out += &format!("{}={};", text(name), text(value)));
    out
}

#[test]
fn towards_http2_nothing_is_left_that_speaks_of_a_connection() {
    let raw =
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: x-hop, upgrade\r\nX-Hop: 1\r\nUpgrade: y\r\nKeep-Alive: 5\r\n\
        TE: gzip, trailers\r\nContent-Length: 3\r\nProxy-Connection: z\r\nA: 1\r\n\r\n";
    let mut head = RequestHead::default();
    let limits = HeadLimits { fields_max: 32, ..LIMITS };
    parse_request(raw, &limits, &mut HeadScan::default(), &mut head).unwrap().unwrap();
    assert_eq!(given(|give| request_fields(&head, Framing::Length(3), give)), "Content-Length=3;A=1;te=trailers;");
    assert_eq!(given(|give| request_fields(&head, Framing::Chunked, give)), "A=1;te=trailers;");
}

fn line(status: u16) -> StatusLine {
    StatusLine { status, version: Version::Http2 }
}

#[test]
fn a_response_says_its_length_only_when_it_is_that_of_its_framing() {
    let fields: &[(&[u8], &[u8])] = &[(b"content-length", b"7"), (b"a", b"1")];
    let mut head = ResponseHead::default();
    let arriving = |head: &mut ResponseHead, status, method, ends| {
        arriving_response(head, line(status), fields.iter().copied(), (method, &LIMITS, ends))
            .map(|parsed| parsed.framing)
    };
    assert_eq!(arriving(&mut head, 200, Method::Get, false), Ok(Framing::Length(7)));
    assert_eq!(given(|give| response_fields(&head, Framing::Length(7), give)), "content-length=7;a=1;");
    assert_eq!(given(|give| response_fields(&head, Framing::Chunked, give)), "a=1;");
    assert_eq!(arriving(&mut head, 200, Method::Head, true), Ok(Framing::None));
    assert_eq!(given(|give| response_fields(&head, Framing::None, give)), "content-length=7;a=1;");
    assert_eq!(arriving(&mut head, 204, Method::Get, true), Ok(Framing::None));
    assert_eq!(given(|give| response_fields(&head, Framing::None, give)), "a=1;");
    assert_eq!(arriving(&mut head, 200, Method::Get, true), Err(Fault::BadResponse));
}

#[test]
fn a_response_without_length_ends_with_its_stream() {
    let mut head = ResponseHead::default();
    let mut arriving = |status, ends| {
        arriving_response(&mut head, line(status), std::iter::empty(), (Method::Get, &LIMITS, ends))
            .map(|parsed| parsed.framing)
    };
    assert_eq!(arriving(200, false), Ok(Framing::Chunked));
    assert_eq!(arriving(200, true), Ok(Framing::Length(0)));
    assert_eq!(arriving(103, false), Ok(Framing::None));
    assert_eq!(arriving(103, true), Err(Fault::BadResponse));
    assert_eq!(arriving(101, false), Err(Fault::BadResponse));
    assert_eq!(arriving(99, false), Err(Fault::BadResponse));
}

#[test]
fn a_bad_field_of_a_response_is_the_fault_of_the_endpoint() {
    let mut head = ResponseHead::default();
    for (name, value) in [("connection", "close"), ("A", "1"), ("a", "x\r\ny"), ("content-length", "1, 2")] {
        let fields = [(name.as_bytes(), value.as_bytes())];
        let outcome = arriving_response(&mut head, line(200), fields.into_iter(), (Method::Get, &LIMITS, false));
        assert_eq!(outcome.map(|_| ()), Err(Fault::BadResponse), "{name}: {value}");
    }
    let many = [(&b"a"[..], &b"1"[..]); 9];
    let outcome = arriving_response(&mut head, line(200), many.into_iter(), (Method::Get, &LIMITS, false));
    assert_eq!(outcome.map(|_| ()), Err(Fault::ResponseHeadTooLarge));
}

#[test]
fn a_response_head_is_as_large_as_its_fields_count_in_http_2() {
    let limits = HeadLimits { head_bytes_max: 100, fields_max: 9 };
    let mut head = ResponseHead::default();
    let mut of_size = |value: usize| {
        let value = vec![b'x'; value];
        let fields = [(&b"name"[..], &value[..]), (b"a", b"1")];
        arriving_response(&mut head, line(200), fields.into_iter(), (Method::Get, &limits, false)).map(|_| ())
    };
    // RFC 9113 section 6.5.2: 32 for each field beside its name and value.
    assert_eq!((of_size(30), of_size(31)), (Ok(()), Err(Fault::ResponseHeadTooLarge)));
}

#[test]
fn only_what_may_be_a_trailer_is_passed_on_as_one() {
    let mut fields = Fields::default();
    for (name, value) in [("grpc-status", "0"), ("host", "x"), ("set-cookie", "a=1"), ("content-length", "5")] {
        assert_eq!(arriving_trailer(&mut fields, name.as_bytes(), value.as_bytes()), Ok(()), "{name}");
    }
    assert_eq!(listed(&fields), "grpc-status=0;");
    assert_eq!(given(|give| trailer_fields(&fields, give)), "grpc-status=0;");
}

#[test]
fn a_trailer_that_may_stand_in_no_message_is_malformed() {
    let mut fields = Fields::default();
    for (name, value) in [
        ("X", "1"),
        ("y", " 1"),
        ("y", "1\t"),
        ("", "1"),
        (":path", "/"),
        (":status", "200"),
        ("x y", "1"),
        ("x\r\ny", "1"),
        ("y", "1\r\nx-evil: 1"),
        ("y", "1\n"),
        ("y", "\0"),
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("upgrade", "x"),
        ("te", "gzip"),
    ] {
        assert_eq!(
            arriving_trailer(&mut fields, name.as_bytes(), value.as_bytes()),
            Err(Malformed),
            "{name:?} {value:?}"
        );
    }
    assert!(fields.is_empty());
    for _ in 0..=FIELDS_HARD_MAX {
        assert_eq!(arriving_trailer(&mut fields, b"x", b"1"), Ok(()));
    }
    assert_eq!(fields.len(), FIELDS_HARD_MAX, "what is kept has a bound");
}

#[test]
fn a_length_goes_on_as_its_number() {
    let mut fields = Fields::default();
    fields.append(&FieldName::new("content-length").unwrap(), b"0005");
    let response = |status| {
        let mut head = ResponseHead::default();
        head.fields = fields.clone();
        head.set_line(status, Span::default(), Version::Http11);
        head
    };
    for status in [200, 304] {
        assert_eq!(given(|give| response_fields(&response(status), Framing::None, give)), "content-length=5;");
    }
    assert_eq!(given(|give| response_fields(&response(204), Framing::None, give)), "");
    let mut head = RequestHead::default();
    head.fields.append(&FieldName::new("content-length").unwrap(), b"0000");
    assert_eq!(given(|give| request_fields(&head, Framing::None, give)), "content-length=0;");
}

#[test]
fn content_that_is_said_to_be_none_is_awaited_until_the_stream_ends() {
    let mut head = RequestHead::default();
    let pseudo = Pseudo { method: b"GET", authority: Some(b"h"), path: Some(b"/"), protocol: None };
    for (length, ends, awaits) in [(Some("0"), false, true), (Some("0"), true, false), (None, false, false)] {
        let mut arriving = Arriving::begin(&mut head, &pseudo, Version::Http2).unwrap();
        length.into_iter().for_each(|length| arriving.field(b"content-length", length.as_bytes()).unwrap());
        assert_eq!(arriving.end(&LIMITS, ends).unwrap().awaits_end, awaits, "{length:?} {ends}");
    }
}
