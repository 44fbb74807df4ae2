//! Conditions of requests (RFC 9110 section 13), for a file whose tag and time are known.

use std::sync::LazyLock;

use model::{FieldName, Fields, RequestHead};

use crate::cache::date;

/// What a file is recognised by.
#[derive(Debug)]
pub(super) struct Validators {
    /// A strong tag, with its quotes.
    pub etag: String,
    /// When it was changed, in seconds since 1970.
    pub modified: u64,
}

/// What follows from the conditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The file is sent.
    Send,
    /// The client has it (304).
    NotModified,
    /// The client wants another (412).
    Failed,
}

struct Names {
    if_match: FieldName,
    if_unmodified_since: FieldName,
    if_none_match: FieldName,
    if_modified_since: FieldName,
    if_range: FieldName,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| Names {
    if_match: super::name("if-match"),
    if_unmodified_since: super::name("if-unmodified-since"),
    if_none_match: super::name("if-none-match"),
    if_modified_since: super::name("if-modified-since"),
    if_range: super::name("if-range"),
});

/// Evaluates them, in the order of RFC 9110 section 13.2.2.
pub(super) fn verdict(head: &RequestHead, file: &Validators) -> Verdict {
    let (fields, names) = (&head.fields, &*NAMES);
    if fields.get(&names.if_match).is_some() {
        if !lists(fields, &names.if_match, &file.etag, false) {
            return Verdict::Failed;
        }
    } else if time(fields, &names.if_unmodified_since).is_some_and(|since| file.modified > since) {
        return Verdict::Failed;
    }
    if fields.get(&names.if_none_match).is_some() {
        if lists(fields, &names.if_none_match, &file.etag, true) {
            return Verdict::NotModified;
        }
    } else if time(fields, &names.if_modified_since).is_some_and(|since| file.modified <= since) {
        return Verdict::NotModified;
    }
    Verdict::Send
}

/// Whether a range may be answered in part: there is no `if-range`, or it names this very file.
pub(super) fn allows_range(head: &RequestHead, file: &Validators) -> bool {
    match head.fields.get(&NAMES.if_range) {
        None => true,
        Some(value) if value.starts_with(b"\"") => value == file.etag.as_bytes(),
        Some(value) => date::parse(value) == Some(file.modified),
    }
}

fn time(fields: &Fields, name: &FieldName) -> Option<u64> {
    fields.get(name).and_then(date::parse)
}

/// Whether the tags of a field have this one. A weak one counts only where that is said.
fn lists(fields: &Fields, name: &FieldName, etag: &str, counts_weak: bool) -> bool {
    fields.all(name).any(|value| value.trim_ascii() == b"*" || has_tag(value, etag.as_bytes(), counts_weak))
}

fn has_tag(mut rest: &[u8], etag: &[u8], counts_weak: bool) -> bool {
    loop {
        let skipped = rest.iter().take_while(|byte| matches!(byte, b',' | b' ' | b'\t')).count();
        rest = &rest[skipped..];
        let is_weak = rest.starts_with(b"W/");
        rest = rest.strip_prefix(b"W/").unwrap_or(rest);
        let Some(inside) = rest.strip_prefix(b"\"") else { return false };
        let Some(end) = inside.iter().position(|byte| *byte == b'"') else { return false };
        if &rest[..end + 2] == etag && (counts_weak || !is_weak) {
            return true;
        }
        rest = &inside[end + 1..];
    }
}
