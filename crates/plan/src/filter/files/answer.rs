//! The response for a file: whole, in parts, or none of it.

use std::ops::Range;
use std::sync::LazyLock;

use model::{FieldName, LocalResponse, Method, RequestHead};

use super::super::{Flow, OpenedFile, Part, StreamedResponse};
use super::coding_of;
use super::conditions::{Validators, Verdict, allows_range, verdict};
use super::ranges::{Asked, asked};
use crate::cache::date;

static RANGE: LazyLock<FieldName> = LazyLock::new(|| super::name("range"));

/// What a file is sent with.
pub(super) struct Told<'a> {
    /// Its type.
    pub media: &'a str,
    /// What its `cache-control` says, if there is one.
    pub cache_control: Option<&'a str>,
    /// Whether other clients may get it in another coding.
    pub varies: bool,
}

/// Answers with the file. `boundary` is drawn: it separates parts.
pub(super) fn respond(head: &RequestHead, file: &OpenedFile, told: &Told<'_>, boundary: impl FnOnce() -> u64) -> Flow {
    let validators = validators(file);
    let mut fields = validating_fields(&validators, file, told);
    match verdict(head, &validators) {
        Verdict::Failed => return Flow::refuse(412, "the file is another one"),
        Verdict::NotModified => return stream(304, fields, Vec::new()),
        Verdict::Send => {}
    }
    let mut add = |name: &str, value: String| fields.push((name.to_owned(), value));
    add("accept-ranges", "bytes".to_owned());
    if let Some(coding) = file.coding {
        add("content-encoding", coding_of(coding).to_owned());
    }
    let range = head.fields.get(&RANGE).filter(|_| head.received_method() == Method::Get);
    let wanted = match range {
        Some(range) if allows_range(head, &validators) => asked(range, file.length),
        _ => Asked::Whole,
    };
    match wanted {
        Asked::Whole => {
            add("content-type", told.media.to_owned());
            stream(200, fields, vec![part(file, 0..file.length)])
        }
        Asked::Unsatisfiable => unsatisfiable(file.length),
        Asked::Parts(ranges) => match &ranges[..] {
            [one] => {
                add("content-type", told.media.to_owned());
                add("content-range", content_range(one, file.length));
                stream(206, fields, vec![part(file, one.clone())])
            }
            several => {
                let boundary = format!("equipoise-{:016x}", boundary());
                add("content-type", format!("multipart/byteranges; boundary={boundary}"));
                stream(206, fields, multipart(file, several, (&boundary, told.media)))
            }
        },
    }
}

fn stream(status: u16, fields: Vec<(String, String)>, parts: Vec<Part>) -> Flow {
    Flow::Stream(Box::new(StreamedResponse { status, fields, parts }))
}

fn unsatisfiable(length: u64) -> Flow {
    let fields = vec![
        ("content-type".to_owned(), "text/plain; charset=utf-8".to_owned()),
        ("content-range".to_owned(), format!("bytes */{length}")),
    ];
    let body = b"the file has no such bytes\n".to_vec();
    Flow::Respond(Box::new(LocalResponse { status: 416, fields, body }))
}

/// A strong tag of time and length, as is usual for files: two files of the same length, written in the same tick of the file
/// system's clock, are taken for one. A coding is part of it, as the bytes are others.
fn validators(file: &OpenedFile) -> Validators {
    let (seconds, nanos) = file.modified;
    let coding = file.coding.unwrap_or_default().replace('.', "-");
    Validators { etag: format!("\"{seconds:x}-{nanos:x}-{:x}{coding}\"", file.length), modified: seconds }
}

/// Fields that 200, 206 and 304 have alike (RFC 9110 section 15.4.5).
fn validating_fields(validators: &Validators, file: &OpenedFile, told: &Told<'_>) -> Vec<(String, String)> {
    let mut modified = Vec::new();
    date::write(file.modified.0, &mut modified);
    let mut fields = vec![
        ("etag".to_owned(), validators.etag.clone()),
        ("last-modified".to_owned(), String::from_utf8_lossy(&modified).into_owned()),
    ];
    fields.extend(told.cache_control.map(|text| ("cache-control".to_owned(), text.to_owned())));
    if told.varies {
        fields.push(("vary".to_owned(), "accept-encoding".to_owned()));
    }
    fields
}

fn part(file: &OpenedFile, range: Range<u64>) -> Part {
    match (&file.bytes, &file.content) {
        (Some(bytes), _) if range == (0..bytes.len() as u64) => Part::Bytes(bytes.clone()),
        (Some(bytes), _) => {
            let place = |at: u64| usize::try_from(at).map_or(bytes.len(), |at| at.min(bytes.len()));
            Part::Bytes(bytes[place(range.start)..place(range.end)].into())
        }
        (None, Some(content)) => Part::Range { content: content.clone(), range },
        (None, None) => Part::Bytes([].into()),
    }
}

fn content_range(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end - 1)
}

/// RFC 9110 section 14.6.
fn multipart(file: &OpenedFile, ranges: &[Range<u64>], (boundary, media): (&str, &str)) -> Vec<Part> {
    let mut parts = Vec::with_capacity(2 * ranges.len() + 1);
    for range in ranges {
        let lead = format!(
            "\r\n--{boundary}\r\ncontent-type: {media}\r\ncontent-range: {}\r\n\r\n",
            content_range(range, file.length)
        );
        parts.push(Part::Bytes(lead.into_bytes().into()));
        parts.push(part(file, range.clone()));
    }
    parts.push(Part::Bytes(format!("\r\n--{boundary}--\r\n").into_bytes().into()));
    parts
}
