use model::fields::Span;

use super::*;
use crate::cache::entry::testing::{fields, response};
use crate::cache::fresh::{Clock, Freshness};

fn entry(status: u16, list: &[(&str, &str)]) -> Arc<Entry> {
    let fresh = (Freshness::default(), Clock { received: 784_111_777, age: 3 });
    Arc::new(Entry::new((*b"0\0http://a/").into(), &response(status, list), Box::default(), fresh))
}

fn request(list: &[(&str, &str)]) -> RequestHead {
    let mut head = RequestHead::default();
    head.fields = fields(list);
    let mut spans = [Span::default(); 2];
    let written = head.fields.write_span(|out| out.extend_from_slice(b"GET/"));
    spans[0] = Span { start: written.start, len: 3 };
    spans[1] = Span { start: written.start + 3, len: 1 };
    head.set_line(spans[0], spans[1], Version::Http11);
    head
}

fn head_of(entry: &Arc<Entry>, list: &[(&str, &str)]) -> (Form, ResponseHead) {
    let served = Served::new(Arc::clone(entry), &request(list), 784_111_780);
    let mut head = ResponseHead::default();
    served.write_head(&mut head);
    (served.form(), head)
}

fn field<'a>(head: &'a ResponseHead, name: &'static [u8]) -> Option<&'a str> {
    named(&head.fields, name).next().map(|value| std::str::from_utf8(value).unwrap())
}

#[test]
fn an_answer_has_the_age_and_a_304_describes_no_body() {
    let stored = entry(200, &[("etag", "\"1\""), ("content-type", "text/a"), ("content-security-policy", "x")]);
    let (form, head) = head_of(&stored, &[]);
    assert_eq!((form, field(&head, b"age"), field(&head, b"content-length")), (Form::Whole, Some("6"), Some("0")));
    // RFC 9110 section 15.4.5.
    let (form, head) = head_of(&stored, &[("if-none-match", "\"1\"")]);
    assert_eq!((form, head.status, field(&head, b"etag")), (Form::NotModified, 304, Some("\"1\"")));
    assert_eq!((field(&head, b"content-type"), field(&head, b"content-length")), (None, None));
    assert!(field(&head, b"content-security-policy").is_some() && field(&head, b"date").is_some());
    assert_eq!(head.reason(), b"Not Modified");
}

#[test]
fn a_range_of_nothing_is_416_and_other_statuses_have_neither_ranges_nor_conditions() {
    let (form, head) = head_of(&entry(200, &[]), &[("range", "bytes=0-")]);
    assert_eq!((form, head.status, field(&head, b"content-range")), (Form::Unsatisfiable, 416, Some("bytes */0")));
    let (form, head) = head_of(&entry(404, &[("etag", "\"1\"")]), &[("if-none-match", "*"), ("range", "bytes=0-")]);
    assert_eq!((form, head.status), (Form::Whole, 404));
}

fn slice(range: &str, list: &[(&str, &str)]) -> Arc<Entry> {
    let fields: Vec<_> = [("content-range", range)].into_iter().chain(list.iter().copied()).collect();
    entry(206, &fields)
}

#[test]
fn a_slice_is_answered_as_the_representation_that_it_is_of() {
    let stored = slice("bytes 100-199/250", &[("etag", "\"1\"")]);
    let (form, head) = head_of(&stored, &[]);
    assert_eq!((form, head.status, head.reason()), (Form::Whole, 200, &b"OK"[..]));
    assert_eq!((field(&head, b"content-length"), field(&head, b"content-range")), (Some("250"), None));
    let (form, head) = head_of(&stored, &[("range", "bytes=120-")]);
    assert_eq!((form, head.status), (Form::Part(120, 249), 206));
    assert_eq!(field(&head, b"content-range"), Some("bytes 120-249/250"));
    let (form, head) = head_of(&stored, &[("range", "bytes=250-")]);
    assert_eq!((form, head.status, field(&head, b"content-range")), (Form::Unsatisfiable, 416, Some("bytes */250")));
    let (form, head) = head_of(&stored, &[("if-none-match", "\"1\"")]);
    assert_eq!((form, head.status, field(&head, b"content-range")), (Form::NotModified, 304, None));
    let mut head = ResponseHead::default();
    let plain = Served::plain(stored);
    plain.write_head(&mut head);
    assert_eq!((head.status, plain.body(), plain.is_slice()), (206, Some((0, 0)), false));
}
