//! What is made of answers, whatever they are.

use model::limits::CHECK_BODY_BYTES_MAX;
use wire::http3::frame::{FrameReader, Step};
use wire::http3::message::Memory;
use wire::http3::push_varint;

use super::*;
use crate::probes::http::LIMITS;
use crate::probes::http::tests::{check, expectation, wanting_field, wanting_text};

fn head(status: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    section(&[&[(":status", status)], fields].concat())
}

fn section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(&mut out, kind::HEADERS, |out| {
        qpack::begin_section(out);
        for (name, value) in fields {
            qpack::push_field(out, name.as_bytes(), value.as_bytes());
        }
    });
    out
}

fn data(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_frame_head(&mut out, kind::DATA, bytes.len() as u64);
    out.extend_from_slice(bytes);
    out
}

fn wanted_of(check: &HttpCheck) -> Wanted {
    Wanted::Http(Method::of(check.method.as_bytes()), expectation(check))
}

/// What comes of an endpoint that sends these frames, in pieces of this size, and ends its stream.
fn answered_in(size: usize, check: &HttpCheck, frames: &[Vec<u8>]) -> Result<bool, String> {
    wanted_in(size, &wanted_of(check), frames)
}

fn wanted_in(size: usize, wanted: &Wanted, frames: &[Vec<u8>]) -> Result<bool, String> {
    let mut answer = Answer::new(wanted);
    for piece in frames.concat().chunks(size) {
        answer.take(piece)?;
    }
    if !answer.is_enough {
        answer.end()?;
    }
    Ok(answer.is_enough)
}

fn answered(check: &HttpCheck, frames: &[Vec<u8>]) -> Result<bool, String> {
    all_the_same(&wanted_of(check), frames)
}

/// The same for a call after `shop`.
fn called(frames: &[Vec<u8>]) -> Result<bool, String> {
    all_the_same(&Wanted::Grpc("shop".to_owned()), frames)
}

fn all_the_same(wanted: &Wanted, frames: &[Vec<u8>]) -> Result<bool, String> {
    let whole = wanted_in(usize::MAX, wanted, frames);
    for size in [1, 2, 7] {
        assert_eq!(wanted_in(size, wanted, frames), whole, "in pieces of {size}");
    }
    whole
}

const GRPC: (&str, &str) = ("content-type", "application/grpc");
/// The message that is waited for.
const SERVING: &[u8] = &[0, 0, 0, 0, 2, 8, 1];

#[test]
fn a_question_is_a_whole_request() {
    let asked = HttpCheck {
        path: "/health?full".into(),
        host: Some("shop.example".into()),
        fields: vec![("X-Probe".into(), "1".into())],
        method: "POST".into(),
        body: b"ping"[..].into(),
        ..check()
    };
    let frame = request(&asked, "10.0.0.1:443").unwrap();
    let mut reader = FrameReader::new(HEAD_BYTES_MAX);
    // The frame of the body has its head here, and is sent behind it.
    assert_eq!(reader.next(&frame), Ok((frame.len() - 2, Step::Section)));
    assert_eq!(frame[frame.len() - 2..], [0, 4]);
    let mut read = model::RequestHead::default();
    let mut memory = Memory::default();
    wire::http3::message::read_request(reader.section(), (&LIMITS, false), &mut memory, &mut read).unwrap();
    assert_eq!(
        (read.method_bytes(), read.authority(), read.path()),
        (&b"POST"[..], &b"shop.example"[..], &b"/health"[..])
    );
    for (name, value) in [("x-probe", "1"), ("content-length", "4"), ("accept-encoding", "identity")] {
        let own = model::FieldName::new(name).unwrap();
        assert_eq!(read.fields.get(&own), Some(value.as_bytes()), "{name}");
    }
    let unsendable = HttpCheck { path: "/a b".into(), ..check() };
    assert_eq!(request(&unsendable, "a:1").unwrap_err(), "the path \"/a b\" cannot be asked for");
}

#[test]
fn the_status_and_the_fields_of_the_final_head_count() {
    assert_eq!(answered(&check(), &[head("204", &[])]), Ok(true));
    assert_eq!(answered(&check(), &[head("103", &[("link", "x")]), head("200", &[]), data(b"body")]), Ok(true));
    assert_eq!(answered(&check(), &[head("503", &[])]), Err("answered 503".into()));
    let wants = wanting_field("X-Ready", "yes");
    assert_eq!(answered(&wants, &[head("200", &[("x-ready", "yes")])]), Ok(true));
    assert_eq!(answered(&wants, &[head("200", &[])]), Err("the header `X-Ready` is missing, expected \"yes\"".into()));
    let interim = vec![head("100", &[]); 17];
    assert_eq!(answered(&check(), &interim), Err("interim responses (status 100) instead of a final one".into()));
}

#[test]
fn the_body_is_found_however_it_is_cut() {
    let wants = wanting_text("all is well");
    let good = [head("200", &[]), data(b"  all i"), data(b""), data(b"s well  ")];
    assert_eq!(answered(&wants, &good), Ok(true));
    let with_trailers = [head("200", &[("content-length", "11")]), data(b"all is well"), head("200", &[])];
    assert_eq!(answered(&wants, &with_trailers), Ok(true));
    let other = [head("200", &[]), data(b"nothing is well")];
    assert_eq!(answered(&wants, &other), Err("the body does not contain \"all is well\"".into()));
    assert_eq!(answered(&wants, &[head("204", &[])]), Err("the body does not contain \"all is well\"".into()));
    let long = [head("200", &[]), data(&vec![b'x'; CHECK_BODY_BYTES_MAX]), data(b"all is well")];
    let too_late = Err("within its first 65536 bytes the body does not contain \"all is well\"".into());
    assert_eq!(answered_in(usize::MAX, &wants, &long), too_late);
    assert_eq!(answered_in(1_200, &wants, &long), too_late);
}

#[test]
fn answers_that_are_cut_short_or_break_the_rules_are_failures() {
    let wants = wanting_text("never");
    let broken = |code: u64| Err(format!("the answer breaks the rules of HTTP/3 (code {code:#x})"));
    assert_eq!(answered(&check(), &[]), Err("closed within the response head".into()));
    assert_eq!(answered(&check(), &[head("200", &[])[..3].to_vec()]), Err("closed within the response head".into()));
    let cut = [head("200", &[]), data(b"cut")[..3].to_vec()];
    assert_eq!(answered(&wants, &cut), Err("closed within the response body".into()));
    let short = [head("200", &[("content-length", "4")]), data(b"abc")];
    assert_eq!(answered(&wants, &short), Err("closed within the response body".into()));
    let long = [head("200", &[("content-length", "2")]), data(b"abc")];
    assert_eq!(answered(&wants, &long), broken(code::MESSAGE_ERROR));
    assert_eq!(answered(&check(), &[data(b"early")]), broken(code::FRAME_UNEXPECTED));
    assert_eq!(answered(&check(), &[head("101", &[])]), broken(code::MESSAGE_ERROR));
    assert_eq!(answered(&check(), &[head("2000", &[])]), broken(code::MESSAGE_ERROR));
    let mut dynamic = Vec::new();
    write_frame(&mut dynamic, kind::HEADERS, |out| out.extend_from_slice(&[0xff, 0xff, 0x80]));
    assert_eq!(answered(&check(), &[dynamic]), broken(code::DECOMPRESSION_FAILED));
    let endless = "x".repeat(HEAD_BYTES_MAX);
    assert_eq!(
        answered(&check(), &[head("200", &[("x-filler", &endless)])]),
        Err("the response head is longer than 16384 bytes".into())
    );
    let mut grease = Vec::new();
    for _ in 0..=IDLE_MAX {
        push_varint(&mut grease, 0x21);
        push_varint(&mut grease, 0);
    }
    assert_eq!(answered(&check(), &[grease]), Err("floods the connection with useless frames".into()));
}

#[test]
fn a_call_is_a_whole_request_with_its_message() {
    let asked = GrpcCheck {
        name: "shop".into(),
        host: Some("shop.example".into()),
        fields: vec![("Authorization".into(), "Bearer x".into()), ("User-Agent".into(), "me".into())],
    };
    let frames = call(&asked, "10.0.0.1:443", Duration::from_millis(2_500)).unwrap();
    let mut reader = FrameReader::new(HEAD_BYTES_MAX);
    let (used, step) = reader.next(&frames).unwrap();
    assert_eq!(step, Step::Section);
    let mut read = model::RequestHead::default();
    let mut memory = Memory::default();
    wire::http3::message::read_request(reader.section(), (&LIMITS, false), &mut memory, &mut read).unwrap();
    assert_eq!(
        (read.method_bytes(), read.authority(), read.path()),
        (&b"POST"[..], &b"shop.example"[..], HEALTH_PATH.as_bytes())
    );
    for (name, value) in
        [GRPC, ("te", "trailers"), ("grpc-timeout", "2500m"), ("authorization", "Bearer x"), ("user-agent", "me")]
    {
        let name = model::FieldName::new(name).unwrap();
        assert_eq!(read.fields.all(&name).collect::<Vec<_>>(), [value.as_bytes()], "{name:?}");
    }
    reader.expect(wire::http3::frame::Expected::Body);
    let message = health_question("shop");
    let (more, step) = reader.next(&frames[used..]).unwrap();
    assert_eq!((&frames[used + more..], step), (&message[..], Step::Data(message.len())));
    let unsendable = GrpcCheck { host: Some("a b".into()), ..GrpcCheck::default() };
    let second = Duration::from_secs(1);
    assert_eq!(call(&unsendable, "a:1", second).unwrap_err(), "the host \"a b\" cannot be asked for");
    let fields = vec![("x".to_owned(), "a\nb".to_owned())];
    let unsendable = GrpcCheck { fields, ..GrpcCheck::default() };
    assert_eq!(call(&unsendable, "a:1", second).unwrap_err(), "the field \"x\" cannot be sent");
}

#[test]
fn a_call_is_answered_well_by_serving_and_a_good_status_alone() {
    let good = section(&[("grpc-status", "0")]);
    assert_eq!(called(&[head("200", &[GRPC]), data(SERVING), good.clone()]), Ok(true));
    let cut = [head("103", &[]), head("200", &[GRPC]), data(&SERVING[..3]), data(&SERVING[3..]), good.clone()];
    assert_eq!(called(&cut), Ok(true));
    // Whose status stands in the head, which nobody has to do who sends a message.
    assert_eq!(called(&[head("200", &[GRPC, ("grpc-status", "0")]), data(SERVING)]), Ok(true));
    let says = |message: &[u8]| called(&[head("200", &[GRPC]), data(message), good.clone()]).unwrap_err();
    assert_eq!(says(&[0, 0, 0, 0, 2, 8, 2]), "says NOT_SERVING");
    assert_eq!(says(&[0, 0, 0, 0, 2, 8, 3]), "says SERVICE_UNKNOWN, it does not know \"shop\"");
    assert_eq!(says(b""), "the answer cannot be read: there is no message");
    assert_eq!(says(&[0; 2_000]), "the answer is longer than 1024 bytes");
}

#[test]
fn how_a_call_went_is_read_from_trailers_or_from_a_head_alone() {
    let ends = |trailers: &[(&str, &str)]| called(&[head("200", &[GRPC]), data(SERVING), section(trailers)]);
    let away = [("grpc-status", "14"), ("grpc-message", "going away")];
    let told = "status 14 of gRPC, UNAVAILABLE: going away".to_owned();
    assert_eq!(ends(&away), Err(told.clone()), "though the message says SERVING");
    assert_eq!(called(&[head("200", &[&[GRPC], &away[..]].concat())]), Err(told));
    let without = Err("answered without a status of gRPC".to_owned());
    assert_eq!(ends(&[]), without);
    assert_eq!(ends(&[("x-other", "0")]), without);
    assert_eq!(called(&[head("200", &[GRPC]), data(SERVING)]), without);
    assert_eq!(ends(&[("grpc-status", "well")]), Err("answered with \"well\" as the status of gRPC".into()));
    assert_eq!(
        called(&[head("200", &[GRPC, ("grpc-status", "0")])]),
        Err("the answer cannot be read: there is no message".into())
    );
    assert_eq!(called(&[head("503", &[GRPC])]), Err("answered 503".into()));
    let page = [head("200", &[("content-type", "text/html")]), data(b"<html>")];
    assert_eq!(called(&page), Err("the content type is \"text/html\", not that of gRPC".into()));
    let broken = |code: u64| Err(format!("the answer breaks the rules of HTTP/3 (code {code:#x})"));
    assert_eq!(ends(&[(":status", "200")]), broken(code::MESSAGE_ERROR));
    let cut = [head("200", &[GRPC]), data(SERVING)[..4].to_vec()];
    assert_eq!(called(&cut), Err("closed within the response body".into()));
}
