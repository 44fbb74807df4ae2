use super::*;
use crate::http3::qpack::push_field;

const LIMITS: HeadLimits = HeadLimits { head_bytes_max: 1_000, fields_max: 8 };

fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    qpack::begin_section(&mut out);
    fields.iter().for_each(|(name, value)| push_field(&mut out, name.as_bytes(), value.as_bytes()));
    out
}

fn read(section: &[u8], ends: bool) -> Result<(RequestHead, RequestParsed), BadHead> {
    let mut head = RequestHead::default();
    let parsed = read_request(section, (&LIMITS, ends), &mut Memory::default(), &mut head)?;
    Ok((head, parsed))
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/p?q=1")];

fn get(more: &[(&str, &str)]) -> Result<(RequestHead, RequestParsed), BadHead> {
    read(&section(&[&GET, more].concat()), true)
}

#[test]
fn a_request_is_read_with_host_as_its_first_field() {
    let (head, parsed) = get(&[("cookie", "a=1"), ("x-own", "v"), ("cookie", "b=2")]).unwrap();
    assert_eq!((head.method, head.path(), head.query()), (Method::Get, &b"/p"[..], Some(&b"q=1"[..])));
    assert_eq!((head.version, parsed.framing), (Version::Http3, Framing::None));
    let fields: Vec<_> = head.fields.iter().map(|field| (field.name, field.value)).collect();
    assert_eq!(fields[0].1, b"a.example");
    assert!(fields.contains(&(&b"cookie"[..], &b"a=1; b=2"[..])));
    // Without any field beside them.
    assert!(read(&section(&GET), true).is_ok());
    assert_eq!(read(&section(&GET), false).unwrap().1.framing, Framing::Chunked);
}

#[test]
fn malformed_requests_are_told_from_those_that_are_answered() {
    let malformed = Err(BadHead::Malformed(Fault::BadRequest));
    let of = |fields: &[(&str, &str)]| read(&section(fields), true).map(|_| ());
    let without = |name: &str| GET.iter().copied().filter(|(own, _)| *own != name).collect::<Vec<_>>();
    for missing in [":method", ":scheme", ":path"] {
        assert_eq!(of(&without(missing)), malformed, "{missing}");
    }
    for twice in GET {
        assert_eq!(get(&[]).and_then(|_| get(&[twice]).map(|_| ())), malformed);
        assert_eq!(of(&[&[twice], &GET[..]].concat()), malformed);
    }
    assert_eq!(of(&[&[(":status", "200")], &GET[..]].concat()), malformed);
    assert_eq!(of(&[&[("x", "y")], &GET[..]].concat()), malformed);
    assert_eq!(get(&[("connection", "close")]).map(|_| ()), malformed);
    assert_eq!(get(&[("transfer-encoding", "chunked")]).map(|_| ()), malformed);
    assert_eq!(get(&[("te", "gzip")]).map(|_| ()), malformed);
    assert_eq!(get(&[("x", "a\nb")]).map(|_| ()), malformed);
    // Names in upper case do not come out of our writer.
    let mut upper = section(&GET);
    upper.extend_from_slice(b"\x22Xy\x01v");
    assert_eq!(read(&upper, true).map(|_| ()), malformed);
    // RFC 9114 section 4.1.2: a length that is not that of the content; and what no line of HTTP/1.1 could hold.
    assert_eq!(get(&[("content-length", "5")]).map(|_| ()), malformed);
    for (place, value) in [(0, "G T"), (2, "a b"), (3, "/a b")] {
        let mut fields = GET;
        fields[place].1 = value;
        assert_eq!(of(&fields), malformed, "{value}");
    }
    let answered = Err(BadHead::Fault(Fault::BadRequest));
    assert_eq!(get(&[("host", "other")]).map(|_| ()), answered);
    assert_eq!(of(&without(":authority")), answered);
}

#[test]
fn a_head_has_a_bound_in_bytes_and_in_fields() {
    let too_large = Err(BadHead::Fault(Fault::HeadTooLarge));
    assert_eq!(get(&[("x", &"v".repeat(900))]).map(|_| ()), too_large);
    assert_eq!(get(&[("x", "v"); 8]).map(|_| ()), too_large);
    assert!(get(&[("x", "v"); 7]).is_ok());
    assert_eq!(read(b"\x00\x00\x80", true).map(|_| ()), Err(BadHead::Undecodable));
}

#[test]
fn connect_is_for_websockets() {
    let connect = [(":method", "CONNECT"), (":protocol", "websocket")];
    let (head, parsed) = read(&section(&[&connect[..], &GET[1..]].concat()), false).unwrap();
    assert_eq!((head.method, parsed.upgrade, parsed.framing), (Method::Get, true, Framing::None));
    let other = [(":method", "CONNECT"), (":authority", "a.example:443")];
    assert_eq!(read(&section(&other), false).map(|_| ()), Err(BadHead::Fault(Fault::NotImplemented)));
    let whole = [(":method", "CONNECT"), (":authority", "a.example:443"), (":path", "/")];
    assert_eq!(read(&section(&whole), false).map(|_| ()), Err(BadHead::Malformed(Fault::BadRequest)));
}

#[test]
fn a_response_that_is_written_is_read_again() {
    let mut memory = Memory::default();
    let mut head = ResponseHead::default();
    let fields = [(&b"content-type"[..], &b"text/html"[..]), (b"x-own", b"1")];
    let how = (Method::Get, &LIMITS, false);
    let line = crossing::StatusLine { status: 418, version: Version::Http3 };
    crossing::arriving_response(&mut head, line, fields.into_iter(), how).unwrap();
    let mut out = Vec::new();
    write_response(&head, 418, Framing::Length(7), &mut out);
    let mut back = ResponseHead::default();
    let parsed = read_response(&out, how, &mut memory, &mut back).unwrap();
    assert_eq!((back.status, parsed.framing, back.version), (418, Framing::Length(7), Version::Http3));
    let names: Vec<_> = back.fields.iter().map(|field| field.name).collect();
    assert_eq!(names, [&b"content-type"[..], b"x-own", b"content-length"]);
}

#[test]
fn malformed_responses_are_refused() {
    let read = |fields: &[(&str, &str)]| {
        let how = (Method::Get, &LIMITS, false);
        read_response(&section(fields), how, &mut Memory::default(), &mut ResponseHead::default()).map(|_| ())
    };
    let malformed = Err(BadHead::Malformed(Fault::BadResponse));
    assert_eq!(read(&[]), malformed);
    assert_eq!(read(&[(":status", "20")]), malformed);
    assert_eq!(read(&[(":status", "2x0")]), malformed);
    assert_eq!(read(&[(":status", "200"), (":status", "200")]), malformed);
    assert_eq!(read(&[("x", "y"), (":status", "200")]), malformed);
    assert_eq!(read(&[(":path", "/"), (":status", "200")]), malformed);
    assert_eq!(read(&[(":status", "101")]), malformed);
    assert_eq!(read(&[(":status", "200")]), Ok(()));
}

#[test]
fn trailers_are_read_without_what_may_not_stand_there() {
    let mut memory = Memory::default();
    let mut read = |fields: &[(&str, &str)]| read_trailers(&section(fields), 1_000, &mut memory);
    let trailers = read(&[("grpc-status", "0"), ("content-length", "5")]).unwrap().unwrap();
    let names: Vec<_> = trailers.iter().map(|field| field.name).collect();
    assert_eq!(names, [b"grpc-status"]);
    assert!(read(&[]).unwrap().is_none());
    for (name, value) in [(":status", "200"), ("", "x"), ("x", "a\r\nb"), ("transfer-encoding", "chunked")] {
        let outcome = read(&[(name, value)]).map(|_| ());
        assert_eq!(outcome, Err(BadHead::Malformed(Fault::BadRequest)), "{name:?}");
    }
}

/// Bytes of a seed, changed here and there.
fn changed(seed: &[u8], mut state: u64) -> Vec<u8> {
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = seed.to_vec();
    for _ in 0..next() % 5 {
        let place = next() as usize % (bytes.len() + 1);
        match next() % 3 {
            0 if place < bytes.len() => bytes[place] = next() as u8,
            1 if place < bytes.len() => drop(bytes.remove(place)),
            _ => bytes.insert(place, next() as u8),
        }
    }
    bytes
}

#[test]
fn whatever_comes_nothing_panics_and_pieces_make_no_difference() {
    use crate::http3::frame::{FrameReader, Step, kind, push_frame_head};
    use crate::http3::uni::{PeerState, UniReader, begin_control, push_goaway};
    let head = section(&[&GET[..], &[("x-own", "value"), ("cookie", "a=1")]].concat());
    let mut message = Vec::new();
    push_frame_head(&mut message, kind::HEADERS, head.len() as u64);
    message.extend_from_slice(&head);
    push_frame_head(&mut message, kind::DATA, 3);
    message.extend_from_slice(b"abc");
    let mut control = Vec::new();
    begin_control(&mut control, 1 << 15, true);
    push_goaway(&mut control, 4);
    let mut memory = Memory::default();
    let one_way = |bytes: &[u8], size| {
        let (mut reader, mut peer) = (UniReader::default(), PeerState::default());
        let end = bytes.chunks(size).try_fold((), |(), piece| reader.take(piece, true, &mut peer).map(|_| ()));
        end.map(|()| peer)
    };
    let frames = |bytes: &[u8], size| {
        let mut reader = FrameReader::new(200);
        let mut steps = Vec::new();
        for mut piece in bytes.chunks(size) {
            loop {
                let (used, step) = reader.next(piece)?;
                piece = &piece[used..];
                match step {
                    Step::More => break,
                    Step::Data(count) => {
                        steps.extend_from_slice(&piece[..count]);
                        piece = &piece[count..];
                    }
                    Step::Section => {
                        steps.extend_from_slice(reader.section());
                        reader.expect(crate::http3::frame::Expected::Body);
                    }
                }
            }
        }
        Ok::<_, crate::http3::frame::BadFrame>(steps)
    };
    for seed in 1..20_000u64 {
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let section = changed(&head, state);
        let _ = read_request(&section, (&LIMITS, true), &mut memory, &mut RequestHead::default());
        let _ = read_trailers(&section, 500, &mut memory);
        let how = (Method::Get, &LIMITS, false);
        let _ = read_response(&section, how, &mut memory, &mut ResponseHead::default());
        let size = (seed % 7 + 1) as usize;
        let bytes = changed(&message, state);
        assert_eq!(frames(&bytes, size), frames(&bytes, usize::MAX), "seed {seed}");
        let bytes = changed(&control, state);
        assert_eq!(one_way(&bytes, size), one_way(&bytes, usize::MAX), "seed {seed}");
    }
}

#[test]
fn a_request_that_is_written_is_read_again() {
    let (mut head, _) = get(&[("x-own", "v"), ("te", "trailers"), ("content-length", "4")]).unwrap_or_else(|_| {
        read(&section(&[&GET[..], &[("x-own", "v"), ("te", "trailers"), ("content-length", "4")]].concat()), false)
            .unwrap()
    });
    head.fields.append(&model::FieldName::new("Connection").unwrap(), b"close");
    let mut out = Vec::new();
    write_request(&head, (Framing::Length(4), false), b"fallback.example", &mut out);
    let (again, parsed) = read(&out, false).unwrap();
    assert_eq!((again.method, again.path(), again.query()), (Method::Get, &b"/p"[..], Some(&b"q=1"[..])));
    assert_eq!((again.authority(), parsed.framing), (&b"a.example"[..], Framing::Length(4)));
    assert_eq!(again.fields.iter().filter(|field| field.name == b"connection").count(), 0);
}

#[test]
fn a_websocket_is_written_as_a_connect_that_names_it() {
    let mut head = read(&section(&GET), true).unwrap().0;
    head.fields.append(&model::FieldName::new("Upgrade").unwrap(), b"websocket");
    head.fields.append(&model::FieldName::new("Sec-WebSocket-Key").unwrap(), b"dGhlIHNhbXBsZSBub25jZQ==");
    let mut out = Vec::new();
    write_request(&head, (Framing::None, true), b"", &mut out);
    let (again, parsed) = read(&out, false).unwrap();
    assert!(parsed.upgrade && again.method == Method::Get);
    assert!(again.fields.iter().all(|field| field.name != b"sec-websocket-key"));
}

#[test]
fn bytes_that_no_uri_has_are_encoded() {
    let path = [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/a\"b?<c>`")];
    let head = read(&section(&path), true).unwrap().0;
    let mut out = Vec::new();
    write_request(&head, (Framing::None, false), b"", &mut out);
    let again = read(&out, true).unwrap().0;
    assert_eq!((again.path(), again.query()), (&b"/a%22b"[..], Some(&b"%3Cc%3E%60"[..])));
}
