//! What is malformed in HTTP/2 and HTTP/3 costs its stream and reaches no endpoint whole, and what is said of a message twice
//! goes on once, whatever version is spoken on either side.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::harness::frames::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, begin, block, frame, read};
use super::harness::http2_origin::{self, Http2Origin};
use super::harness::http3::Client;
use super::harness::http3_origin::{self, Http3Origin};
use super::harness::poll::PATIENCE;
use super::harness::tls::Authority;
use super::harness::{Origin, Peer, Setup, eventually, http2, http3};
use super::http3::{Site, site};

/// A field, or a pseudo-header field.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// A version that has streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    H2,
    H3,
}

const BOTH: [Version; 2] = [Version::H2, Version::H3];

impl Version {
    /// What a malformed message costs: PROTOCOL_ERROR, H3_MESSAGE_ERROR.
    fn malformed(self) -> Outcome {
        Outcome::Ended(if self == Self::H2 { 1 } else { 0x10e })
    }
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// A response has come.
    Answered,
    /// The stream was reset with this code.
    Ended(u64),
}

/// A request that is said frame by frame, whatever bytes it holds.
enum Speech {
    H2(Box<Peer>),
    H3(Box<Client>, quinn::SendStream, quinn::RecvStream),
}

/// A listener for each version, before these endpoints.
fn stage(setup: Setup) -> Site {
    site(setup.listener_more("plain: { bind: \"127.0.0.1:0\" }"), 1)
}

impl Speech {
    fn begin(site: &Site, version: Version) -> Self {
        if version == Version::H2 {
            let mut peer = Peer::connect(site.product.address("plain"));
            begin(&mut peer);
            return Self::H2(Box::new(peer));
        }
        let client = site.connect();
        let (send, receive) = client.with_quic("a stream", async |quic| quic.open_bi().await.expect("a stream"));
        Self::H3(Box::new(client), send, receive)
    }

    fn fields(&mut self, fields: &[Pair<'_>], ends: bool) {
        let end = if ends { END_STREAM } else { 0 };
        match self {
            Self::H2(peer) => peer.send(frame(HEADERS, END_HEADERS | end, 1, &block(fields))),
            Self::H3(..) => self.say_h3(1, &section(fields), ends),
        }
    }

    fn data(&mut self, bytes: &[u8], ends: bool) {
        match self {
            Self::H2(peer) => peer.send(frame(DATA, if ends { END_STREAM } else { 0 }, 1, bytes)),
            Self::H3(..) => self.say_h3(0, bytes, ends),
        }
    }

    fn say_h3(&mut self, kind: u8, payload: &[u8], ends: bool) {
        let Self::H3(client, send, _) = self else { return };
        assert!(payload.len() < 1 << 14, "a length of two bytes");
        let length = (payload.len() as u16 | 1 << 14).to_be_bytes();
        let bytes = [&[kind], &length[..], payload].concat();
        client.with_quic("bytes are taken", async |_| {
            // The other side may have stopped it already.
            let _ = send.write_all(&bytes).await;
            if ends {
                let _ = send.finish();
            }
        });
        client.flush();
    }

    fn outcome(mut self) -> Outcome {
        let code = |payload: &[u8]| u32::from_be_bytes(payload.try_into().expect("four bytes")).into();
        match &mut self {
            Self::H2(peer) => loop {
                let frame = read(peer).expect("it is told why");
                match frame.kind {
                    RST_STREAM => return Outcome::Ended(code(&frame.payload[..4])),
                    GOAWAY => return Outcome::Ended(code(&frame.payload[4..8])),
                    HEADERS => return Outcome::Answered,
                    _ => {}
                }
            },
            Self::H3(client, _, receive) => {
                client.with_quic("an outcome", async |_| match receive.read_chunk(4096, true).await {
                    Ok(Some(_)) => Outcome::Answered,
                    Err(quinn::ReadError::Reset(code)) => Outcome::Ended(code.into_inner()),
                    other => panic!("neither an answer nor a reset: {other:?}"),
                })
            }
        }
    }
}

/// Fields as HTTP/3 has them, each a literal with a literal name (RFC 9204 section 4.5.6), whatever bytes they hold.
fn section(fields: &[Pair<'_>]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in fields {
        push_length(&mut out, 0x20, 3, name.len());
        out.extend_from_slice(name);
        push_length(&mut out, 0, 7, value.len());
        out.extend_from_slice(value);
    }
    out
}

/// RFC 7541 section 5.1.
fn push_length(out: &mut Vec<u8>, first: u8, bits: u32, length: usize) {
    let most = (1 << bits) - 1;
    if length < most {
        return out.push(first | length as u8);
    }
    out.push(first | most as u8);
    let rest = length - most;
    assert!(rest < 128, "names and values are short here");
    out.push(rest as u8);
}

/// A request for `/`, and more fields.
fn asking<'a>(method: &'a [u8], scheme: &'a [u8], more: &[Pair<'a>]) -> Vec<Pair<'a>> {
    let mut fields: Vec<Pair<'a>> =
        vec![(b":method", method), (b":scheme", scheme), (b":authority", b"test"), (b":path", b"/")];
    fields.extend_from_slice(more);
    fields
}

/// Nothing that is left of a malformed request stays, and none was whole.
fn nothing_arrived(origin: &Origin, what: &str) {
    eventually("the connections of malformed requests are closed", || origin.open() == 0);
    assert!(origin.requests().is_empty(), "{what}: {:?}", origin.requests());
}

/// A stage before an endpoint of each version, each for the path of its name; all other paths are that of HTTP/1.1.
fn over_all(authority: Authority, (h1, h2, h3): (&Origin, &Http2Origin, &Http3Origin)) -> Site {
    let setup = Setup::to(h1)
        .listener_more("plain: { bind: \"127.0.0.1:0\" }")
        .route_before("{ match: { path: { prefix: /h2 } }, cluster: h2 }")
        .route_before("{ match: { path: { prefix: /h3 } }, cluster: h3 }")
        .cluster_more(format!("h2: {{ endpoints: [\"{}\"], http_versions: [h2] }}", h2.address()))
        .cluster_more(format!(
            "h3: {{ endpoints: [\"{}\"], http_versions: [h3], tls: {{ authorities: authority.pem }} }}",
            h3.address()
        ));
    Site::of(authority, "[h1, h2, h3]", "", setup, 1)
}

/// An origin, and a stage before it that keeps no connection to it.
fn before_an_origin() -> (Origin, Site) {
    let origin = Origin::saying("fine");
    let site = stage(Setup::to(&origin).cluster("pool: { idle_max: 0 }"));
    (origin, site)
}

#[test]
fn a_request_with_a_bad_scheme_is_malformed() {
    let (origin, site) = before_an_origin();
    let bad: [&[u8]; 8] =
        [b"", b"a b", b"http://evil/?", b"http:", b"http\r\nx-evil: 1", b"1http", b"http\0", b"h\xff"];
    for version in BOTH {
        for scheme in bad {
            let mut speech = Speech::begin(&site, version);
            speech.fields(&asking(b"GET", scheme, &[]), true);
            assert_eq!(speech.outcome(), version.malformed(), "{version:?} {:?}", String::from_utf8_lossy(scheme));
        }
        nothing_arrived(&origin, "a bad scheme");
    }
    for version in BOTH {
        // Which of the good ones it is, is not believed.
        for scheme in [&b"http"[..], b"https", b"HTTP", b"coap+tcp"] {
            let mut speech = Speech::begin(&site, version);
            speech.fields(&asking(b"GET", scheme, &[]), true);
            assert_eq!(speech.outcome(), Outcome::Answered, "{version:?} {:?}", String::from_utf8_lossy(scheme));
        }
    }
    assert_eq!(origin.requests().len(), 8);
}

const BAD_TRAILERS: [Pair<'static>; 9] = [
    (b"x", b"a\r\nx-evil: 1"),
    (b"x", b"a\nb"),
    (b"x", b"a\0"),
    (b"", b"x"),
    (b":path", b"/"),
    (b":unknown", b"x"),
    (b"X-Upper", b"1"),
    (b"transfer-encoding", b"chunked"),
    (b"connection", b"x"),
];

#[test]
fn a_request_with_bad_trailers_is_malformed() {
    let (origin, site) = before_an_origin();
    for version in BOTH {
        for trailer in BAD_TRAILERS {
            // Without a length an endpoint is sent chunks, with one it is not.
            for (method, length) in [(&b"POST"[..], None), (b"POST", Some(&b"4"[..])), (b"GET", Some(b"0"))] {
                let length = length.map(|length| (&b"content-length"[..], length));
                let mut speech = Speech::begin(&site, version);
                speech.fields(&asking(method, b"http", length.as_slice()), false);
                if method == b"POST" {
                    speech.data(b"body", false);
                }
                speech.fields(&[(b"x-good", b"1"), trailer], true);
                let shown = (String::from_utf8_lossy(trailer.0), String::from_utf8_lossy(trailer.1));
                assert_eq!(speech.outcome(), version.malformed(), "{version:?} {method:?} {length:?} {shown:?}");
            }
        }
        nothing_arrived(&origin, "bad trailers");
    }
    for version in BOTH {
        for more in [&[][..], &[(&b"content-length"[..], &b"4"[..])]] {
            let mut speech = Speech::begin(&site, version);
            speech.fields(&asking(b"POST", b"http", more), false);
            speech.data(b"body", false);
            // One that may not be a trailer is left out, and nothing is wrong with the message.
            speech.fields(&[(b"x-good", b"1"), (b"authorization", b"x")], true);
            assert_eq!(speech.outcome(), Outcome::Answered, "{version:?}");
        }
    }
    let requests = origin.requests();
    assert_eq!(requests.len(), 4);
    for request in requests {
        assert_eq!(request.text(), "body");
        assert!(request.trailers.iter().all(|(name, _)| name == "x-good"), "{request:?}");
    }
}

#[test]
fn content_beyond_its_length_leaves_the_endpoint_without_a_whole_request() {
    let (origin, site) = before_an_origin();
    let mut connections = 0;
    for version in BOTH {
        for ends in [true, false] {
            let mut speech = Speech::begin(&site, version);
            speech.fields(&asking(b"POST", b"http", &[(b"content-length", b"5")]), false);
            speech.data(b"abcde", false);
            // What is here of the body has gone on before the rest comes.
            eventually("the endpoint has most of it", || origin.received(connections).ends_with(b"\r\n\r\nabcd"));
            connections += 1;
            speech.data(b"f", ends);
            assert_eq!(speech.outcome(), version.malformed(), "{version:?} {ends}");
            nothing_arrived(&origin, "more than five bytes");
            assert_eq!(origin.connections(), connections);
        }
    }
}

#[test]
fn content_beyond_its_length_is_refused_however_it_is_cut() {
    let (origin, site) = before_an_origin();
    for version in BOTH {
        // At once, and one byte at a time.
        for pieces in [&[&b"abcdef"[..]][..], &[b"a", b"b", b"c", b"d", b"e", b"f"], &[b"abcde", b"f"]] {
            let mut speech = Speech::begin(&site, version);
            speech.fields(&asking(b"POST", b"http", &[(b"content-length", b"5")]), false);
            pieces.iter().for_each(|piece| speech.data(piece, false));
            assert_eq!(speech.outcome(), version.malformed(), "{version:?} {pieces:?}");
            nothing_arrived(&origin, "more than five bytes");
        }
    }
}

#[test]
fn content_that_ends_before_its_length_leaves_the_endpoint_without_a_whole_request() {
    let (origin, site) = before_an_origin();
    for version in BOTH {
        for pieces in [&[&b"abcd"[..]][..], &[b"a", b""], &[b""]] {
            let mut speech = Speech::begin(&site, version);
            speech.fields(&asking(b"POST", b"http", &[(b"content-length", b"5")]), false);
            for (index, piece) in pieces.iter().enumerate() {
                speech.data(piece, index + 1 == pieces.len());
            }
            assert_eq!(speech.outcome(), version.malformed(), "{version:?} {pieces:?}");
        }
        // Trailers end it, too.
        let mut speech = Speech::begin(&site, version);
        speech.fields(&asking(b"POST", b"http", &[(b"content-length", b"5")]), false);
        speech.data(b"abcd", false);
        speech.fields(&[(b"x", b"1")], true);
        assert_eq!(speech.outcome(), version.malformed(), "{version:?} trailers");
        nothing_arrived(&origin, "less than five bytes");
    }
}

#[test]
fn a_body_that_is_kept_for_another_attempt_must_have_its_length_too() {
    for rules in ["retry: { on: [reset] }", "hedge: { after: 60s }"] {
        let origin = Origin::saying("fine");
        let site = stage(Setup::to(&origin).cluster("pool: { idle_max: 0 }").cluster(rules));
        for version in BOTH {
            for (pieces, ends) in [(&[&b"abcdef"[..]][..], false), (&[b"abcde", b"f"], true), (&[b"abcd"], true)] {
                let mut speech = Speech::begin(&site, version);
                speech.fields(&asking(b"PUT", b"http", &[(b"content-length", b"5")]), false);
                for (index, piece) in pieces.iter().enumerate() {
                    speech.data(piece, ends && index + 1 == pieces.len());
                }
                assert_eq!(speech.outcome(), version.malformed(), "{rules} {version:?} {pieces:?}");
            }
            let mut speech = Speech::begin(&site, version);
            speech.fields(&asking(b"PUT", b"http", &[(b"content-length", b"5")]), false);
            speech.data(b"abcd", false);
            speech.fields(&[(b"x", b"1")], true);
            assert_eq!(speech.outcome(), version.malformed(), "{rules} {version:?} trailers");
            nothing_arrived(&origin, "another length than five");
        }
    }
}

#[test]
fn content_of_a_request_that_says_it_has_none_is_malformed() {
    let (origin, site) = before_an_origin();
    for version in BOTH {
        for method in [&b"POST"[..], b"GET"] {
            let mut speech = Speech::begin(&site, version);
            speech.fields(&asking(method, b"http", &[(b"content-length", b"0")]), false);
            speech.data(b"x", true);
            assert_eq!(speech.outcome(), version.malformed(), "{version:?} {method:?}");
        }
        nothing_arrived(&origin, "no content");
    }
    for version in BOTH {
        // An end of its own is no content.
        let mut speech = Speech::begin(&site, version);
        speech.fields(&asking(b"POST", b"http", &[(b"content-length", b"0")]), false);
        speech.data(b"", true);
        assert_eq!(speech.outcome(), Outcome::Answered, "{version:?}");
    }
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn content_whose_end_comes_later_is_whole_then() {
    let (origin, site) = before_an_origin();
    for version in BOTH {
        for pieces in [&[&b"abcde"[..], b""][..], &[b"a", b"b", b"cde", b""], &[b"abcd", b"e"]] {
            let before = origin.requests().len();
            let mut speech = Speech::begin(&site, version);
            speech.fields(&asking(b"POST", b"http", &[(b"content-length", b"5")]), false);
            for (index, piece) in pieces.iter().enumerate() {
                speech.data(piece, index + 1 == pieces.len());
            }
            assert_eq!(speech.outcome(), Outcome::Answered, "{version:?} {pieces:?}");
            assert_eq!(origin.requests()[before].text(), "abcde");
        }
    }
}

#[test]
fn content_beyond_its_length_ends_the_stream_of_an_endpoint_that_has_one() {
    let authority = Authority::new("the tests' own");
    let (whole, broken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = |is_whole| if is_whole { whole.clone() } else { broken.clone() };
    let counts = [counted(false), counted(true)];
    let h2 = Http2Origin::start(http2_origin::Rules::default(), move |mut asked| {
        let counts = counts.clone();
        Box::pin(async move {
            counts[usize::from(asked.read().await.is_ok())].fetch_add(1, SeqCst);
        })
    });
    let counts = [counted(false), counted(true)];
    let h3 = Http3Origin::start(http3_origin::Rules::of(&authority), move |mut asked| {
        let counts = counts.clone();
        Box::pin(async move {
            counts[usize::from(asked.read().await.is_ok())].fetch_add(1, SeqCst);
        })
    });
    let site = over_all(authority, (&Origin::saying("unused"), &h2, &h3));
    let mut count = 0;
    for version in BOTH {
        for path in [&b"/h2"[..], b"/h3"] {
            let mut speech = Speech::begin(&site, version);
            let mut head = asking(b"POST", b"http", &[(b"content-length", b"5")]);
            head[3].1 = path;
            speech.fields(&head, false);
            speech.data(b"abcde", false);
            eventually("the endpoint has its head", || h2.heads().len() + h3.heads().len() > count);
            count += 1;
            speech.data(b"f", true);
            assert_eq!(speech.outcome(), version.malformed(), "{version:?} {path:?}");
            eventually("the endpoint's stream is reset", || broken.load(SeqCst) == count);
            assert_eq!(whole.load(SeqCst), 0);
        }
    }
}

#[test]
fn a_length_goes_on_as_its_number_from_every_version_to_every_other() {
    let authority = Authority::new("the tests' own");
    let h1 = Origin::saying("fine");
    let h2 = Http2Origin::saying("fine");
    let h3 = Http3Origin::saying(&authority, "fine");
    let site = over_all(authority, (&h1, &h2, &h3));
    let zeros = "0".repeat(60);
    for length in ["0", "00", &zeros] {
        for path in ["/h1", "/h2", "/h3"] {
            let mut peer = Peer::connect(site.product.address("plain"));
            let answer = peer.ask(format!("PUT {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n"));
            assert_eq!(answer.text(), "fine", "{length} {path}");
            for version in BOTH {
                let mut speech = Speech::begin(&site, version);
                let mut head = asking(b"PUT", b"http", &[(b"content-length", length.as_bytes())]);
                head[3].1 = path.as_bytes();
                speech.fields(&head, true);
                assert_eq!(speech.outcome(), Outcome::Answered, "{version:?} {length} {path}");
            }
        }
    }
    eventually("all have come", || h1.requests().len() + h2.heads().len() + h3.heads().len() == 27);
    for request in h1.requests() {
        assert_eq!(request.all("content-length"), ["0"]);
    }
    for head in h2.heads().iter().chain(&h3.heads()) {
        let lengths: Vec<_> = head.headers().get_all("content-length").iter().collect();
        assert_eq!(lengths, ["0"]);
    }
}

#[test]
fn the_length_of_a_response_without_content_is_its_number_from_every_version_to_every_other() {
    let authority = Authority::new("the tests' own");
    let h1 = Origin::answering(|request| match request.method() {
        "HEAD" => b"HTTP/1.1 200 OK\r\nContent-Length: 0005\r\n\r\n".to_vec(),
        _ => b"HTTP/1.1 304 Not Modified\r\nContent-Length: 0005\r\n\r\n".to_vec(),
    });
    let head = |method: &http::Method| {
        let status = if method == http::Method::HEAD { 200 } else { 304 };
        let response = http::Response::builder().status(status).header("content-length", "0005");
        response.body(()).expect("a head")
    };
    let h2 = Http2Origin::start(http2_origin::Rules::default(), move |asked| {
        Box::pin(async move {
            let head = head(asked.head.method());
            asked.end(head);
        })
    });
    let h3 = Http3Origin::start(http3_origin::Rules::of(&authority), move |mut asked| {
        Box::pin(async move {
            let head = head(asked.head.method());
            let _ = asked.stream.send_response(head).await;
            let _ = asked.stream.finish().await;
        })
    });
    let site = over_all(authority, (&h1, &h2, &h3));
    let mut over_h3 = site.connect();
    let mut over_h2 = http2::Client::connect(site.product.address("plain"));
    for (method, status) in [("HEAD", 200), ("GET", 304)] {
        for path in ["/h1", "/h2", "/h3"] {
            let mut peer = Peer::connect(site.product.address("plain"));
            peer.send(format!("{method} {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
            let answer = peer.head();
            assert_eq!((answer.status(), answer.all("content-length")), (status, vec!["5"]), "h1 {method} {path}");
            for answer in
                [over_h2.ask(http2::request(method, path), b""), over_h3.ask(http3::request(method, path), b"")]
            {
                assert_eq!((answer.status, answer.field("content-length")), (status, Some("5")), "{method} {path}");
            }
        }
    }
}

#[test]
fn an_authority_that_is_empty_or_not_that_of_host_reaches_no_endpoint() {
    let (origin, site) = before_an_origin();
    let cases: [(Option<&[u8]>, &[Pair<'_>]); 10] = [
        (Some(b""), &[]),
        (Some(b""), &[(b"host", b"test")]),
        (Some(b"test"), &[(b"host", b"")]),
        (Some(b"test"), &[(b"host", b"other")]),
        (Some(b"test"), &[(b"host", b"test:80")]),
        (Some(b"test"), &[(b"host", b"test"), (b"host", b"test")]),
        (Some(b"user@test"), &[]),
        (None, &[]),
        (None, &[(b"host", b"")]),
        (None, &[(b"host", b"a b")]),
    ];
    for version in BOTH {
        for (authority, more) in &cases {
            let mut head = asking(b"GET", b"http", more);
            match authority {
                Some(authority) => head[2].1 = authority,
                None => drop(head.remove(2)),
            }
            let mut speech = Speech::begin(&site, version);
            speech.fields(&head, true);
            assert_eq!(speech.outcome(), Outcome::Answered, "{version:?} {authority:?} {more:?}");
        }
    }
    nothing_arrived(&origin, "a bad authority");
    eventually("all are logged", || site.product.records().len() == BOTH.len() * cases.len());
    for record in site.product.records() {
        assert_eq!((&record["status"], &record["fault"]), (&json!(400), &json!("bad_request")), "{record}");
    }
    for version in BOTH {
        for (at, more) in [(None, (&b"host"[..], &b"test"[..])), (Some(()), (b"host", b"TEST"))] {
            let mut head = asking(b"GET", b"http", &[more]);
            if at.is_none() {
                head.remove(2);
            }
            let mut speech = Speech::begin(&site, version);
            speech.fields(&head, true);
            assert_eq!(speech.outcome(), Outcome::Answered, "{version:?} {more:?}");
        }
    }
    assert!(origin.requests().iter().all(|request| request.all("host") == ["test"]), "{:?}", origin.requests());
}

#[test]
fn a_chunked_response_that_breaks_the_grammar_is_no_answer_in_any_version() {
    const BAD: &str = "5;bad[=x";
    let origin = Origin::answering(|request| {
        match request.target() {
            "/later" => format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n{BAD}\r\nhello\r\n0\r\n\r\n"
            ),
            _ => format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{BAD}\r\nhello\r\n0\r\n\r\n"),
        }
        .into_bytes()
    });
    let site = stage(Setup::to(&origin));
    let mut peer = Peer::connect(site.product.address("plain"));
    assert_eq!(peer.get("/").status(), 502);
    let mut over_h2 = http2::Client::connect(site.product.address("plain"));
    assert_eq!(over_h2.get("/").status, 502);
    assert_eq!(site.connect().get("/").status, 502);
    // In what came with the head and behind it there is no difference.
    assert_eq!(Peer::connect(site.product.address("plain")).get("/later").status(), 502);
    site.product.flagged("UB");
}

#[test]
fn a_response_is_cut_off_where_its_chunks_break_the_grammar() {
    let (go_on, may_go_on) = channel();
    let may_go_on = Mutex::new(may_go_on);
    let origin = Origin::start(move |mut visit| {
        if visit.request().is_some() {
            visit.peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
            let _ = may_go_on.lock().expect("a channel").recv_timeout(PATIENCE);
            let _ = visit.peer.try_send("5;a=\"\r\nworld\r\n0\r\n\r\n");
            visit.peer.wait_closed();
        }
    });
    let site = stage(Setup::to(&origin));
    let mut peer = Peer::connect(site.product.address("plain"));
    peer.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(peer.head().status(), 200);
    assert_eq!(peer.take(10), b"5\r\nhello\r\n");
    go_on.send(()).expect("the origin waits");
    peer.assert_closed();
    let mut over_h2 = http2::Client::connect(site.product.address("plain"));
    let mut stream = over_h2.open(http2::request("GET", "/"), true);
    over_h2.head(&mut stream).expect("a response");
    let first = over_h2.chunk(&mut stream).expect("a body").expect("body bytes");
    assert_eq!(first, &b"hello"[..]);
    go_on.send(()).expect("the origin waits");
    assert!(over_h2.chunk(&mut stream).is_some_and(|chunk| chunk.is_err()));
    let mut over_h3 = site.connect();
    let mut stream = over_h3.open(http3::request("GET", "/"));
    over_h3.end(&mut stream, http::HeaderMap::new());
    over_h3.head(&mut stream).expect("a response");
    assert_eq!(over_h3.chunk(&mut stream).expect("body bytes").as_deref(), Some(&b"hello"[..]));
    go_on.send(()).expect("the origin waits");
    assert!(over_h3.chunk(&mut stream).is_err());
    site.product.flagged("UF");
}
