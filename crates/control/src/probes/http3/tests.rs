//! What is made of answers, whatever they are.

use wire::http3::frame::push_frame_head;
use wire::http3::push_varint;

use super::*;
use crate::probes::http::tests::check;

fn wanting(body: &str) -> HttpCheck {
    HttpCheck { expected_body: Some(body.into()), ..check() }
}

fn head(status: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(&mut out, kind::HEADERS, |out| {
        qpack::begin_section(out);
        qpack::push_field(out, b":status", status.as_bytes());
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

/// What comes of an endpoint that sends these frames, in pieces of this size, and ends its stream.
fn answered_in(size: usize, check: &HttpCheck, frames: &[Vec<u8>]) -> Result<bool, String> {
    let expected = Expected::of(check).unwrap();
    let mut answer = Answer::new(&expected);
    for piece in frames.concat().chunks(size) {
        answer.take(piece)?;
    }
    if !answer.is_enough {
        answer.end()?;
    }
    Ok(answer.is_enough)
}

fn answered(check: &HttpCheck, frames: &[Vec<u8>]) -> Result<bool, String> {
    let whole = answered_in(usize::MAX, check, frames);
    for size in [1, 2, 7] {
        assert_eq!(answered_in(size, check, frames), whole, "in pieces of {size}");
    }
    whole
}

#[test]
fn a_question_is_a_whole_request() {
    let asked = HttpCheck {
        path: "/health?full".into(),
        host: Some("shop.example".into()),
        fields: vec![("X-Probe".into(), "1".into())],
        is_head: true,
        ..check()
    };
    let frame = request(&asked, "10.0.0.1:443").unwrap();
    let mut reader = FrameReader::new(HEAD_BYTES_MAX);
    assert_eq!(reader.next(&frame), Ok((frame.len(), Step::Section)));
    let mut read = model::RequestHead::default();
    let mut memory = Memory::default();
    wire::http3::message::read_request(reader.section(), (&LIMITS, true), &mut memory, &mut read).unwrap();
    assert_eq!(
        (read.method_bytes(), read.authority(), read.path()),
        (&b"HEAD"[..], &b"shop.example"[..], &b"/health"[..])
    );
    let own = model::FieldName::new("x-probe").unwrap();
    assert_eq!(read.fields.get(&own), Some(&b"1"[..]));
    let unsendable = HttpCheck { path: "/a b".into(), ..check() };
    assert_eq!(request(&unsendable, "a:1").unwrap_err(), "the path \"/a b\" cannot be asked for");
}

#[test]
fn the_status_and_the_fields_of_the_final_head_count() {
    assert_eq!(answered(&check(), &[head("204", &[])]), Ok(true));
    assert_eq!(answered(&check(), &[head("103", &[("link", "x")]), head("200", &[]), data(b"body")]), Ok(true));
    assert_eq!(answered(&check(), &[head("503", &[])]), Err("answered 503".into()));
    let wants = HttpCheck { expected_fields: vec![("X-Ready".into(), "yes".into())], ..check() };
    assert_eq!(answered(&wants, &[head("200", &[("x-ready", "yes")])]), Ok(true));
    assert_eq!(answered(&wants, &[head("200", &[])]), Err("answered 200 without the field \"X-Ready\"".into()));
    let interim = vec![head("100", &[]); 17];
    assert_eq!(answered(&check(), &interim), Err("interim answers (status 100) instead of a final one".into()));
}

#[test]
fn the_body_is_found_however_it_is_cut() {
    let wants = wanting("all is well");
    let good = [head("200", &[]), data(b"  all i"), data(b""), data(b"s well  ")];
    assert_eq!(answered(&wants, &good), Ok(true));
    let with_trailers = [head("200", &[("content-length", "11")]), data(b"all is well"), head("200", &[])];
    assert_eq!(answered(&wants, &with_trailers), Ok(true));
    let other = [head("200", &[]), data(b"nothing is well")];
    assert_eq!(answered(&wants, &other), Err("the body does not hold \"all is well\"".into()));
    assert_eq!(answered(&wants, &[head("204", &[])]), Err("the body does not hold \"all is well\"".into()));
    let long = [head("200", &[]), data(&vec![b'x'; BODY_BYTES_MAX]), data(b"all is well")];
    let too_late = Err("the first 64 KiB of the body do not hold \"all is well\"".into());
    assert_eq!(answered_in(usize::MAX, &wants, &long), too_late);
    assert_eq!(answered_in(1_200, &wants, &long), too_late);
}

#[test]
fn answers_that_are_cut_short_or_break_the_rules_are_failures() {
    let wants = wanting("never");
    let broken = |code: u64| Err(format!("the answer breaks the rules of HTTP/3 (code {code:#x})"));
    assert_eq!(answered(&check(), &[]), Err("closed within the head of its answer".into()));
    assert_eq!(
        answered(&check(), &[head("200", &[])[..3].to_vec()]),
        Err("closed within the head of its answer".into())
    );
    let cut = [head("200", &[]), data(b"cut")[..3].to_vec()];
    assert_eq!(answered(&wants, &cut), Err("closed within the body of its answer".into()));
    let short = [head("200", &[("content-length", "4")]), data(b"abc")];
    assert_eq!(answered(&wants, &short), Err("closed within the body of its answer".into()));
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
        Err("the head of the answer is longer than 16384 bytes".into())
    );
    let mut grease = Vec::new();
    for _ in 0..=IDLE_MAX {
        push_varint(&mut grease, 0x21);
        push_varint(&mut grease, 0);
    }
    assert_eq!(answered(&check(), &[grease]), Err("sends frames of no use without end".into()));
}
