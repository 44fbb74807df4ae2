use model::fields::{is_field_value, is_token};
use model::limits::LEADING_EMPTY_LINES_MAX;
use proptest::prelude::*;

use super::*;

type Outcome = Option<Result<(RequestParsed, String), Fault>>;

/// Everything a head says, as text.
fn told(head: &RequestHead) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let query = head.query().map(text);
    let (method, path) = (text(head.method_bytes()), text(head.path()));
    format!("{method} {path} {query:?} {:?} {:?} {:?}", head.version, head.method, head.fields)
}

/// Feeds `bytes` in pieces that end at `cuts`, as a connection would.
fn feed(bytes: &[u8], cuts: impl Iterator<Item = usize>, limits: &HeadLimits) -> Outcome {
    let (mut scan, mut head) = (HeadScan::default(), RequestHead::default());
    for end in cuts.chain([bytes.len()]) {
        match parse_request(&bytes[..end], limits, &mut scan, &mut head) {
            Ok(None) => {}
            Ok(Some(parsed)) => return Some(Ok((parsed, told(&head)))),
            Err(fault) => return Some(Err(fault)),
        }
    }
    None
}

/// Parses at once and byte by byte, and demands the same.
fn outcome(bytes: &[u8], limits: &HeadLimits) -> Outcome {
    let whole = feed(bytes, std::iter::empty(), limits);
    assert_eq!(whole, feed(bytes, 1..bytes.len(), limits), "{:?}", String::from_utf8_lossy(bytes));
    whole
}

fn parse(text: &str) -> Result<RequestParsed, Fault> {
    outcome(text.as_bytes(), &HeadLimits::default())
        .unwrap_or_else(|| panic!("incomplete: {text:?}"))
        .map(|(parsed, _)| parsed)
}

fn head_of(text: &str) -> RequestHead {
    let mut head = RequestHead::default();
    parse_request(text.as_bytes(), &HeadLimits::default(), &mut HeadScan::default(), &mut head)
        .unwrap_or_else(|fault| panic!("{fault:?}: {text:?}"))
        .expect("a whole head");
    head
}

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

fn refused(cases: &[(&str, Fault)]) {
    for (text, fault) in cases {
        assert_eq!(parse(text), Err(*fault), "{text:?}");
    }
}

fn refused_fields(cases: &[&str]) {
    for fields in cases {
        assert_eq!(parse(&get(fields)), Err(Fault::BadRequest), "{fields:?}");
    }
}

#[test]
fn a_plain_request_is_understood() {
    let text = "POST /a/b?x=1 HTTP/1.1\r\nhOst: example.com:80\r\nContent-Length: 3\r\nX-A:  v w \r\n\r\nabc";
    let parsed = parse(text).unwrap();
    assert_eq!(
        parsed,
        RequestParsed {
            head_len: text.len() - 3,
            framing: Framing::Length(3),
            keep_alive: true,
            expects_continue: false,
            upgrade: false,
            accepts_trailers: false,
            host_differs: false,
            awaits_end: false,
        }
    );
    assert_eq!(
        told(&head_of(text)),
        "POST /a/b Some(\"x=1\") Http11 Post \
         {\"hOst\": \"example.com:80\", \"Content-Length\": \"3\", \"X-A\": \"v w\"}"
    );
}

#[test]
fn every_prefix_of_a_head_asks_for_more() {
    let text = get("A: b\r\n");
    for end in 0..text.len() {
        assert_eq!(outcome(&text.as_bytes()[..end], &HeadLimits::default()), None);
    }
}

#[test]
fn a_bare_line_feed_or_carriage_return_is_refused_wherever_it_stands() {
    let good = "GET / HTTP/1.1\r\nHost: h\r\nA: b c\r\n\r\n";
    for at in 0..=good.len() - 2 {
        for byte in ["\n", "\r"] {
            let bad = format!("{}{byte}{}", &good[..at], &good[at..]);
            // One CRLF before the request line may be ignored, and a line feed behind a CR makes one more line end.
            let fault = outcome(bad.as_bytes(), &HeadLimits::default());
            assert_eq!(fault, Some(Err(Fault::BadRequest)), "{bad:?}");
        }
    }
    for at in good.match_indices("\r\n").map(|(at, _)| at) {
        let lone_lf = format!("{}{}", &good[..at], &good[at + 1..]);
        assert_eq!(outcome(lone_lf.as_bytes(), &HeadLimits::default()), Some(Err(Fault::BadRequest)), "{lone_lf:?}");
    }
}

#[test]
fn a_folded_line_is_refused() {
    refused_fields(&[
        "A: b\r\n c\r\n",
        "A: b\r\n\tc\r\n",
        "A:\r\n b\r\n",
        "A: b\r\n \r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
    ]);
}

#[test]
fn white_space_around_a_field_name_is_refused() {
    refused_fields(&["A : b\r\n", "A\t: b\r\n", " A: b\r\n", "Content-Length : 3\r\n", "\x0bA: b\r\n"]);
    refused(&[
        ("GET / HTTP/1.1\r\n Host: h\r\n\r\n", Fault::BadRequest),
        ("GET / HTTP/1.1\r\n\tHost: h\r\n\r\n", Fault::BadRequest),
        ("GET / HTTP/1.1\r\n \r\nHost: h\r\n\r\n", Fault::BadRequest),
    ]);
}

#[test]
fn a_line_without_a_name_or_colon_is_refused() {
    refused_fields(&[
        ": b\r\n",
        "A\r\n",
        "A b\r\n",
        "A B: c\r\n",
        "(A): b\r\n",
        "A,B: c\r\n",
        "\u{e4}: b\r\n",
        "\0: b\r\n",
    ]);
}

/// httparse looks at many bytes at once; this holds it to the grammar for each byte at each distance.
#[test]
fn names_values_methods_and_targets_take_exactly_the_bytes_of_the_grammar() {
    for byte in 0..=255_u8 {
        for before in [0, 1, 7, 8, 15, 16, 31, 32, 40, 63] {
            let pad = vec![b'x'; before];
            let word = [&pad[..], &[byte], &pad[..], b"y"].concat();
            let verdict = |parts: &[&[u8]]| outcome(&parts.concat(), &HeadLimits::default());
            let accepted = |parts: &[&[u8]]| matches!(verdict(parts), Some(Ok(_)));

            // A colon ends the name early, which is fine unless it leaves none.
            let name_fits = is_token(&word) || (byte == b':' && before > 0);
            assert_eq!(
                accepted(&[b"GET / HTTP/1.1\r\nHost: h\r\n", &word, b": v\r\n\r\n"]),
                name_fits,
                "name {byte:#x}"
            );
            let value_fits = is_field_value(&word);
            assert_eq!(
                accepted(&[b"GET / HTTP/1.1\r\nHost: h\r\nA: ", &word, b"\r\n\r\n"]),
                value_fits,
                "value {byte:#x}"
            );
            let target_fits = (0x21..=0x7e).contains(&byte) && byte != b'#';
            assert_eq!(accepted(&[b"GET /", &word, b" HTTP/1.1\r\nHost: h\r\n\r\n"]), target_fits, "target {byte:#x}");
            assert_eq!(
                accepted(&[b"M", &word, b" / HTTP/1.1\r\nHost: h\r\n\r\n"]),
                is_token(&word),
                "method {byte:#x}"
            );
        }
    }
}

#[test]
fn a_few_empty_lines_before_the_request_line_are_ignored_and_no_more() {
    let request = get("");
    for lines in 0..=LEADING_EMPTY_LINES_MAX {
        let text = format!("{}{request}", "\r\n".repeat(lines));
        assert_eq!(parse(&text).unwrap().head_len, text.len());
    }
    let text = format!("{}{request}", "\r\n".repeat(LEADING_EMPTY_LINES_MAX + 1));
    assert_eq!(parse(&text), Err(Fault::BadRequest));
    for bad in ["\n", "\r\r\n", " \r\n", "\r\n\n", "\r\n "] {
        assert_eq!(parse(&format!("{bad}{request}")), Err(Fault::BadRequest), "{bad:?}");
    }
}

#[test]
fn empty_lines_alone_are_no_beginning() {
    let (mut scan, mut head) = (HeadScan::default(), RequestHead::default());
    assert_eq!(parse_request(b"\r\n\r\n", &HeadLimits::default(), &mut scan, &mut head), Ok(None));
    assert!(!scan.has_begun());
    assert_eq!(parse_request(b"\r\n\r\nG", &HeadLimits::default(), &mut scan, &mut head), Ok(None));
    assert!(scan.has_begun());
}

#[test]
fn another_protocol_is_refused_at_its_first_byte() {
    for first in [b"\x16".as_slice(), b"\x16\x03\x01", b"\0", b"\x80", b"(", b"@", b"\""] {
        assert_eq!(outcome(first, &HeadLimits::default()), Some(Err(Fault::BadRequest)), "{first:?}");
    }
}

#[test]
fn a_request_line_has_exactly_three_parts_and_two_spaces() {
    for line in [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET / a HTTP/1.1",
        "GET /",
        "GET",
        "GET / ",
        "GET  HTTP/1.1",
        "/ HTTP/1.1",
        "G@T / HTTP/1.1",
        "G(T / HTTP/1.1",
        "GET / HTTP/1.1\0",
        "GET / HTTP/1.1 x",
    ] {
        assert_eq!(parse(&format!("{line}\r\nHost: h\r\n\r\n")), Err(Fault::BadRequest), "{line:?}");
    }
}

#[test]
fn only_versions_1_0_and_1_1_are_spoken() {
    for version in ["HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "HTTP/1.9", "HTTP/3.0"] {
        let text = format!("GET / {version}\r\nHost: h\r\n\r\n");
        assert_eq!(parse(&text), Err(Fault::VersionNotSupported), "{version}");
    }
    assert_eq!(parse("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Err(Fault::VersionNotSupported));
    for version in [
        "http/1.1",
        "HTTP/1.10",
        "HTTP/11",
        "HTTP/1.",
        "HTTP/1",
        "HTTP/2",
        "HTTP",
        "HTTP/1,1",
        "HTTP/+1.1",
        "HTTPS/1.1",
        "HTTP/ 1.1",
        "HTTP/01.1",
        "HTTP/1.1.1",
        "HTTP\\1.1",
        "XTTP/1.1",
        "HTTP/x.y",
    ] {
        let text = format!("GET / {version}\r\nHost: h\r\n\r\n");
        assert_eq!(parse(&text), Err(Fault::BadRequest), "{version}");
    }
}

#[test]
fn a_target_becomes_its_origin_form_and_its_authority_becomes_host() {
    let cases = [
        ("GET /a?b?c", "GET /a Some(\"b?c\")", "h"),
        ("GET //x/..;/%zz", "GET //x/..;/%zz None", "h"),
        ("GET /?", "GET / Some(\"\")", "h"),
        ("GET http://o.example:81/a?b", "GET /a Some(\"b\")", "o.example:81"),
        ("GET HTTPS://o.example/a", "GET /a None", "o.example"),
        ("GET http://o.example", "GET / None", "o.example"),
        ("GET http://o.example?q", "GET / Some(\"q\")", "o.example"),
        ("GET http://[::1]:8080/x@y", "GET /x@y None", "[::1]:8080"),
        ("OPTIONS *", "OPTIONS * None", "h"),
        ("OPTIONS http://o.example", "OPTIONS * None", "o.example"),
        ("OPTIONS http://o.example?q", "OPTIONS / Some(\"q\")", "o.example"),
        ("OPTIONS http://o.example/", "OPTIONS / None", "o.example"),
        ("OPTIONS /x", "OPTIONS /x None", "h"),
    ];
    for (line, wanted, host) in cases {
        let head = head_of(&format!("{line} HTTP/1.1\r\nA: 1\r\nHost: h\r\nB: 2\r\n\r\n"));
        assert!(told(&head).starts_with(&format!("{wanted} Http11")), "{line}: {}", told(&head));
        assert_eq!(head.authority(), host.as_bytes(), "{line}");
        let names: Vec<_> = head.fields.iter().map(|field| field.name).collect();
        assert_eq!(names, [&b"A"[..], b"Host", b"B"]);
    }
}

#[test]
fn an_absolute_target_gives_an_http_1_0_request_its_host() {
    let head = head_of("GET http://o.example/x HTTP/1.0\r\n\r\n");
    assert_eq!((head.authority(), head.path()), (&b"o.example"[..], &b"/x"[..]));
}

#[test]
fn a_host_that_is_not_the_authority_of_an_absolute_target_is_told() {
    for (line, host, differs) in [
        ("GET http://o.example/x HTTP/1.1", "o.example", false),
        ("GET http://o.example/x HTTP/1.1", "O.Example", false),
        ("GET http://o.example/x HTTP/1.1", "h", true),
        ("GET http://o.example:80/x HTTP/1.1", "o.example", true),
        ("GET http://o.example/x HTTP/1.0", "h", true),
        ("OPTIONS http://o.example HTTP/1.1", "h", true),
        ("GET /x HTTP/1.1", "h", false),
    ] {
        let parsed = parse(&format!("{line}\r\nHost: {host}\r\n\r\n")).unwrap();
        assert_eq!(parsed.host_differs, differs, "{line} {host}");
    }
    assert!(!parse("GET http://o.example/x HTTP/1.0\r\n\r\n").unwrap().host_differs);
}

#[test]
fn an_absolute_target_was_asked_for_as_its_path_and_query() {
    for (target, path, query) in [
        ("http://o.example/a?b=http://c/", "/a", Some("b=http://c/")),
        ("HTTPS://o.example", "/", None),
        ("http://o.example?q", "/", Some("q")),
        ("/a?b", "/a", Some("b")),
    ] {
        let mut head = head_of(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        head.set_path(b"/other");
        assert_eq!(head.received_path(), path.as_bytes(), "{target}");
        assert_eq!(head.received_query(), query.map(str::as_bytes), "{target}");
    }
}

#[test]
fn a_target_that_is_none_is_refused() {
    for target in [
        "*",
        "x",
        "example.com:80",
        "example.com",
        "?q",
        "http:/x",
        "http:x",
        "http://",
        "http:///x",
        "http://?q",
        "http://u@h/",
        "http://u:p@h/",
        "http://h:x/",
        "http://h:99999/",
        "http://a,b/",
        "http://[::1/",
        "http://h\\x/",
        "ftp://h/",
        "ws://h/",
        "://h/",
        "httpx://h/",
        "/a#b",
        "/\u{e4}",
        "http://h/#f",
        "http://h#f",
        "http://%/",
        "\\",
        "**",
        "*/",
    ] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(parse(&text), Err(Fault::BadRequest), "{target:?}");
    }
    assert_eq!(parse("OPTIONS *?x HTTP/1.1\r\nHost: h\r\n\r\n"), Err(Fault::BadRequest));
}

#[test]
fn connect_is_not_implemented() {
    for target in ["h:443", "/", "*", "http://h/"] {
        let text = format!("CONNECT {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(parse(&text), Err(Fault::NotImplemented), "{target}");
    }
}

#[test]
fn host_stands_exactly_once_and_is_valid() {
    for (fields, good) in [
        ("Host: h\r\n", true),
        ("Host:\r\n", false),
        ("Host: \t\r\n", false),
        ("Host: h:80\r\n", true),
        ("", false),
        ("X-Host: h\r\n", false),
        ("Host: h\r\nHost: h\r\n", false),
        ("Host: h\r\nhost: other\r\n", false),
        ("Host:\r\nHost: h\r\n", false),
        ("Host: a b\r\n", false),
        ("Host: a/b\r\n", false),
        ("Host: a,b\r\n", false),
        ("Host: u@h\r\n", false),
        ("Host: h:port\r\n", false),
        ("Host: h:70000\r\n", false),
        ("Host: http://h\r\n", false),
        ("Host: h?x\r\n", false),
        ("Host: \u{e4}\r\n", false),
        ("Host: [::1\r\n", false),
        ("Host: \"h\"\r\n", false),
        ("Host: :80\r\n", false),
    ] {
        assert_eq!(parse(&format!("GET / HTTP/1.1\r\n{fields}\r\n")).is_ok(), good, "{fields:?}");
        // An absolute target does not excuse a missing or doubtful Host.
        assert_eq!(parse(&format!("GET http://o/ HTTP/1.1\r\n{fields}\r\n")).is_ok(), good, "{fields:?}");
        let good = good || !fields.starts_with("Host");
        assert_eq!(parse(&format!("GET / HTTP/1.0\r\n{fields}\r\n")).is_ok(), good, "{fields:?}");
    }
}

#[test]
fn a_content_length_is_one_plain_number() {
    for (value, framing) in [
        ("0", Framing::None),
        ("000", Framing::None),
        ("5", Framing::Length(5)),
        ("007", Framing::Length(7)),
        ("  5\t", Framing::Length(5)),
        ("18446744073709551615", Framing::Length(u64::MAX)),
    ] {
        assert_eq!(parse(&get(&format!("Content-Length: {value}\r\n"))).unwrap().framing, framing, "{value:?}");
    }
    refused_fields(&[
        "Content-Length:\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: 5,\r\n",
        "Content-Length: ,5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5;x\r\n",
        "Content-Length: 5.0\r\n",
        "Content-Length: 1e3\r\n",
        "Content-Length: five\r\n",
        "Content-Length: \u{0665}\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 99999999999999999999999999\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\ncontent-length: 6\r\n",
        "Content-Length: 0\r\nContent-Length: 0\r\n",
        "Content-Length: x\r\nContent-Length: 5\r\n",
    ]);
}

#[test]
fn a_transfer_encoding_is_chunked_and_nothing_else() {
    for value in ["chunked", "Chunked", "CHUNKED", " chunked\t"] {
        let parsed = parse(&get(&format!("Transfer-Encoding: {value}\r\n"))).unwrap();
        assert_eq!(parsed.framing, Framing::Chunked, "{value:?}");
    }
    for value in ["gzip, chunked", "gzip,chunked", "deflate;q=1, gzip , chunked", "identity, chunked"] {
        let text = get(&format!("Transfer-Encoding: {value}\r\n"));
        assert_eq!(parse(&text), Err(Fault::NotImplemented), "{value:?}");
    }
    assert_eq!(parse(&get("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n")), Err(Fault::NotImplemented));
    for value in [
        "",
        "identity",
        "gzip",
        "xchunked",
        "chunkedx",
        "chunked, gzip",
        "chunked, chunked",
        "chunked,",
        ",chunked",
        "chunked,,",
        "chunked;a=b",
        "chunked ;a",
        "chunked;",
        "\"chunked\"",
        "'chunked'",
        "chunk",
        "chunked chunked",
        "gzip, chunked, identity",
        "x y, chunked",
        "\u{a0}chunked",
        "ch\u{212a}unked",
        "chunked, gzip, chunked",
        "chunked\tx",
        "(x) chunked",
        "chunked\u{b}",
        "\u{b}chunked",
        "chunked\u{c}",
    ] {
        refused_fields(&[&format!("Transfer-Encoding: {value}\r\n")]);
    }
    refused_fields(&[
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-encoding: identity\r\n",
    ]);
}

#[test]
fn content_length_and_transfer_encoding_together_are_refused() {
    refused_fields(&[
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Transfer-Encoding: gzip, chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length:\r\n",
        "Transfer-Encoding:\r\nContent-Length: 5\r\n",
    ]);
}

#[test]
fn a_transfer_coding_in_http_1_0_is_refused() {
    refused(&[
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Fault::BadRequest),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", Fault::BadRequest),
    ]);
}

#[test]
fn a_body_is_allowed_for_every_method_and_its_absence_too() {
    for method in ["GET", "HEAD", "DELETE", "POST", "BREW"] {
        let text = format!("{method} / HTTP/1.1\r\nHost: h\r\n");
        assert_eq!(parse(&format!("{text}Content-Length: 2\r\n\r\n")).unwrap().framing, Framing::Length(2));
        assert_eq!(parse(&format!("{text}\r\n")).unwrap().framing, Framing::None);
    }
}

#[test]
fn a_connection_lives_on_as_its_version_and_options_say() {
    for (version, fields, lives) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: foo, CLOSE\r\n", false),
        ("1.1", "Connection: foo\r\nConnection: close\r\n", false),
        ("1.1", "Connection: keep-alive, close\r\n", false),
        ("1.1", "Connection: closed\r\n", true),
        ("1.1", "Proxy-Connection: close\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
        ("1.0", "Proxy-Connection: keep-alive\r\n", false),
        ("1.0", "Keep-Alive: timeout=5\r\n", false),
    ] {
        let text = format!("GET / HTTP/{version}\r\nHost: h\r\n{fields}\r\n");
        assert_eq!(parse(&text).unwrap().keep_alive, lives, "{version} {fields:?}");
    }
}

#[test]
fn an_expectation_is_100_continue_or_refused() {
    let expects = |text: &str| parse(text).map(|parsed| parsed.expects_continue);
    assert_eq!(expects(&get("Content-Length: 1\r\nExpect: 100-continue\r\n")), Ok(true));
    assert_eq!(expects(&get("Transfer-Encoding: chunked\r\nexpect: 100-Continue\r\n")), Ok(true));
    assert_eq!(expects(&get("Expect: 100-continue\r\n")), Ok(false), "without a body nothing waits");
    assert_eq!(expects("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"), Ok(false));
    assert_eq!(expects("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: magic\r\n\r\n"), Ok(false));
    for value in ["magic", "", "100-continue, magic", "100-continued", "100-continue;x", "200-ok"] {
        let text = get(&format!("Content-Length: 1\r\nExpect: {value}\r\n"));
        assert_eq!(expects(&text), Err(Fault::ExpectationFailed), "{value:?}");
    }
    assert_eq!(expects(&get("Expect: 100-continue\r\nExpect: x\r\n")), Err(Fault::ExpectationFailed));
}

#[test]
fn an_upgrade_needs_the_option_the_field_and_http_1_1() {
    for (fields, upgrade) in [
        ("Connection: Upgrade\r\nUpgrade: websocket\r\n", true),
        ("Connection: keep-alive, upgrade\r\nUpgrade: websocket, foo/1\r\n", true),
        ("Connection: Upgrade\r\n", false),
        ("Upgrade: websocket\r\n", false),
        ("Connection: Upgrade\r\nUpgrade:\r\n", false),
        ("Connection: Upgrade\r\nUpgrade: web socket\r\n", false),
        ("Connection: Upgrade\r\nUpgrade: a/b/c\r\n", false),
        ("Connection: Upgrade\r\nUpgrade: /1\r\n", false),
        ("Connection: Upgrade\r\nUpgrade: websocket,\r\n", false),
        ("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n", false),
        ("Connection: Upgrade\r\nUpgrade: websocket, H2C\r\n", false),
        ("Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n", false),
        ("Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n", false),
    ] {
        assert_eq!(parse(&get(fields)).unwrap().upgrade, upgrade, "{fields:?}");
        let old = format!("GET / HTTP/1.0\r\n{fields}\r\n");
        assert!(!parse(&old).unwrap().upgrade, "{fields:?}");
    }
}

#[test]
fn trailers_are_accepted_by_whoever_says_so() {
    for (value, accepts) in
        [("trailers", true), ("gzip, Trailers", true), ("trailers;q=1", true), ("trailer", false), ("", false)]
    {
        assert_eq!(parse(&get(&format!("TE: {value}\r\n"))).unwrap().accepts_trailers, accepts, "{value:?}");
    }
}

#[test]
fn fields_that_connection_names_are_gone_and_those_that_endpoints_rely_on_are_not() {
    let head = head_of(&get(
        "Connection: x-hop, close, X-Forwarded-For, host, authorization\r\nX-Hop: 1\r\nX-Forwarded-For: 1\r\n\
         Authorization: a\r\nx-HOP: 2\r\nKeep: 1\r\n",
    ));
    let names: Vec<_> = head.fields.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()).collect();
    assert_eq!(names, ["Host", "Connection", "X-Forwarded-For", "Authorization", "Keep"]);
}

#[test]
fn a_head_at_its_bound_fits_and_one_byte_more_does_not() {
    let text = get("A: bcd\r\n");
    let limits = |head_bytes_max| HeadLimits { head_bytes_max, ..HeadLimits::default() };
    assert!(matches!(outcome(text.as_bytes(), &limits(text.len())), Some(Ok(_))));
    assert_eq!(outcome(text.as_bytes(), &limits(text.len() - 1)), Some(Err(Fault::HeadTooLarge)));
    assert_eq!(outcome(&text.as_bytes()[..30], &limits(30)), Some(Err(Fault::HeadTooLarge)));
    assert_eq!(outcome(b"GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", &limits(30)), Some(Err(Fault::TargetTooLong)));
    assert_eq!(outcome(text.as_bytes(), &limits(0)), Some(Err(Fault::TargetTooLong)));
}

#[test]
fn a_target_at_its_bound_fits_and_one_byte_more_does_not() {
    for (len, wanted) in [(TARGET_BYTES_MAX, None), (TARGET_BYTES_MAX + 1, Some(Fault::TargetTooLong))] {
        let text = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(len - 1));
        let mut head = RequestHead::default();
        let result = parse_request(text.as_bytes(), &HeadLimits::default(), &mut HeadScan::default(), &mut head);
        assert_eq!(result.err(), wanted);
    }
}

#[test]
fn more_fields_than_allowed_are_refused() {
    let text = |fields: usize| get(&"A: b\r\n".repeat(fields - 1));
    let limits = |fields_max| HeadLimits { fields_max, ..HeadLimits::default() };
    assert!(matches!(outcome(text(5).as_bytes(), &limits(5)), Some(Ok(_))));
    assert_eq!(outcome(text(6).as_bytes(), &limits(5)), Some(Err(Fault::HeadTooLarge)));
    assert!(matches!(outcome(text(FIELDS_HARD_MAX).as_bytes(), &limits(usize::MAX)), Some(Ok(_))));
    assert_eq!(outcome(text(FIELDS_HARD_MAX + 1).as_bytes(), &limits(usize::MAX)), Some(Err(Fault::HeadTooLarge)));
}

#[test]
fn pipelined_requests_are_told_apart() {
    let (first, second) = (get("A: 1\r\n"), get("B: 2\r\n"));
    let bytes = format!("{first}{second}");
    let (mut scan, mut head) = (HeadScan::default(), RequestHead::default());
    let parsed = parse_request(bytes.as_bytes(), &HeadLimits::default(), &mut scan, &mut head).unwrap().unwrap();
    assert_eq!(parsed.head_len, first.len());
    let rest = &bytes.as_bytes()[parsed.head_len..];
    assert!(parse_request(rest, &HeadLimits::default(), &mut scan, &mut head).unwrap().is_some());
    assert!(told(&head).contains("\"B\": \"2\"") && !told(&head).contains("\"A\""));
}

#[test]
fn a_reused_head_needs_no_new_memory() {
    let text = get("A: 1\r\nConnection: a\r\n").replace("GET /", "GET http://o.example?q");
    let (mut scan, mut head) = (HeadScan::default(), RequestHead::default());
    let mut parse = || {
        parse_request(text.as_bytes(), &HeadLimits::default(), &mut scan, &mut head).unwrap().unwrap();
        head.fields.capacity_bytes()
    };
    let first = parse();
    assert_eq!((parse(), parse()), (first, first));
}

/// Pieces that make heads which are nearly right.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let texts = [
        "GET / HTTP/1.1\r\n",
        "POST /x?y HTTP/1.0\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "GET http://h/p HTTP/1.1\r\n",
        "Host: h\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Connection: close, x-a\r\n",
        "X-A: b\r\n",
        "Expect: 100-continue\r\n",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        " ",
        ":",
        "\0",
        "Upgrade: a\r\n",
        "TE: trailers\r\n",
    ];
    let piece = prop_oneof![
        12 => proptest::sample::select(texts.map(|text| text.as_bytes().to_vec()).to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..4),
    ];
    let line = Just(b"GET /a HTTP/1.1\r\nHost: h\r\n".to_vec());
    (prop_oneof![3 => line, 1 => Just(Vec::new())], proptest::collection::vec(piece, 0..12))
        .prop_map(|(line, pieces)| [line, pieces.concat()].concat())
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_how_the_bytes_are_split(
        bytes in pieces(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
        head_bytes_max in prop_oneof![Just(64_usize), Just(4096)],
    ) {
        let limits = HeadLimits { head_bytes_max, fields_max: 6 };
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(feed(&bytes, cuts.into_iter(), &limits), feed(&bytes, std::iter::empty(), &limits));
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        feed(&bytes, std::iter::empty(), &HeadLimits::default());
    }
}
