//! What a client gets of a stored response.

use std::sync::Arc;

use model::head::reason_phrase;
use model::{FieldName, Method, RequestHead, ResponseHead, Version};

use super::date;
use super::entry::Entry;
use super::range::{self, Asked};
use super::slice::part_of;
use super::validate::{if_range_holds, is_not_modified, named};

/// In which form a stored response is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// All of it.
    Whole,
    /// The bytes from the first to the last one, both included (206).
    Part(u64, u64),
    /// The client has it (304).
    NotModified,
    /// The range has no byte of it (416).
    Unsatisfiable,
}

/// A stored response as one client gets it.
#[derive(Clone, Debug)]
pub struct Served {
    entry: Arc<Entry>,
    form: Form,
    age: u64,
    /// Of the representation: more than the stored body, if that is a slice.
    length: u64,
    is_slice: bool,
    is_relayed: bool,
}

/// Two are equal if they are the same response in the same form.
impl PartialEq for Served {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entry, &other.entry) && self.form == other.form
    }
}

impl Eq for Served {}

impl Served {
    /// Answers a request, with its own conditions and range, from a stored response.
    pub fn new(entry: Arc<Entry>, request: &RequestHead, now: u64) -> Self {
        let part = part_of(&entry.head);
        let length = part.map_or(entry.body.len(), |part| part.total);
        let form = form(&entry, (request, length));
        let age = entry.clock.age(now);
        Self { entry, form, age, length, is_slice: part.is_some(), is_relayed: false }
    }

    /// Gives out the stored body itself, also of a slice, for another exchange that puts slices together.
    pub fn plain(entry: Arc<Entry>) -> Self {
        let length = entry.body.len();
        Self { entry, form: Form::Whole, age: 0, length, is_slice: false, is_relayed: false }
    }

    /// The same response, of which the body is that of the endpoint's response that is here: only the head takes the place of its head.
    #[must_use]
    pub fn relayed(self) -> Self {
        Self { is_relayed: true, ..self }
    }

    /// Returns whether only the head is sent, before the endpoint's body.
    pub fn is_relayed(&self) -> bool {
        self.is_relayed
    }

    /// Returns whether the stored body is a slice of what is sent: the others follow from [`crate::filter::Slices`].
    pub fn is_slice(&self) -> bool {
        self.is_slice
    }

    /// The form.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The stored response.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// The place of the first byte of the body that is sent, and how many there are. `None`: the response has no body, whatever the request.
    pub fn body(&self) -> Option<(u64, u64)> {
        match self.form {
            _ if matches!(self.entry.head.status, 204 | 304) => None,
            Form::Whole => Some((0, self.length)),
            Form::Part(first, last) => Some((first, last - first + 1)),
            Form::Unsatisfiable => Some((0, 0)),
            Form::NotModified => None,
        }
    }

    /// Makes a head that of the answer.
    pub fn write_head(&self, head: &mut ResponseHead) {
        head.copy_from(&self.entry.head);
        let length = self.length;
        if self.is_slice {
            head.fields.remove_named(b"content-range");
        }
        match self.form {
            Form::Whole if self.is_slice => set_status(head, 200),
            Form::Whole => {}
            Form::Part(first, last) => {
                set_status(head, 206);
                set(head, "content-range", format_args!("bytes {first}-{last}/{length}"));
            }
            Form::NotModified => {
                set_status(head, 304);
                // RFC 9110 section 15.4.5.
                head.fields.retain(|field| !is_of_representation(field.name));
            }
            Form::Unsatisfiable => {
                set_status(head, 416);
                head.fields.retain(|field| !is_of_representation(field.name));
                set(head, "content-range", format_args!("bytes */{length}"));
            }
        }
        if let Some((_, count)) = self.body() {
            set(head, "content-length", format_args!("{count}"));
        }
        set(head, "age", format_args!("{}", self.age));
    }
}

fn set_status(head: &mut ResponseHead, status: u16) {
    let reason = head.fields.write_span(|out| out.extend_from_slice(reason_phrase(status).as_bytes()));
    head.set_line(status, reason, Version::Http11);
}

fn set(head: &mut ResponseHead, name: &str, value: std::fmt::Arguments<'_>) {
    use std::io::Write;
    if let Ok(name) = FieldName::new(name) {
        head.fields.set_with(&name, |out| drop(write!(out, "{value}")));
    }
}

/// Whether a field describes the body, which is not there.
fn is_of_representation(name: &[u8]) -> bool {
    let is_content = name.len() > 8 && name[..8].eq_ignore_ascii_case(b"content-");
    is_content
        && !name.eq_ignore_ascii_case(b"content-location")
        && !name.eq_ignore_ascii_case(b"content-security-policy")
        && !name.eq_ignore_ascii_case(b"content-security-policy-report-only")
}

fn form(entry: &Entry, (request, length): (&RequestHead, u64)) -> Form {
    // What is stored with 206 is a slice.
    if !matches!(entry.head.status, 200 | 206) {
        return Form::Whole;
    }
    let modified = entry.last_modified().or_else(|| named(&entry.head.fields, b"date").next());
    if is_not_modified(&request.fields, entry.etag(), modified.and_then(date::parse)) {
        return Form::NotModified;
    }
    // RFC 9110 section 14.2: only GET has ranges.
    let mut ranges = named(&request.fields, b"range");
    let (Some(wanted), None) = (ranges.next(), ranges.next()) else { return Form::Whole };
    if request.received_method() != Method::Get || !if_range_holds(&request.fields, entry.etag(), entry.last_modified())
    {
        return Form::Whole;
    }
    match range::asked(wanted, length) {
        Asked::Whole => Form::Whole,
        Asked::Part { first, last } => Form::Part(first, last),
        Asked::Unsatisfiable => Form::Unsatisfiable,
    }
}

/// Fields with conditions and ranges.
pub(crate) const CONDITIONS: [&str; 4] = ["if-none-match", "if-modified-since", "if-range", "range"];

/// Removes conditions and ranges, which the endpoint must not see where the whole is wanted.
pub fn strip_conditions(head: &mut RequestHead) {
    CONDITIONS.iter().for_each(|name| head.fields.remove_named(name.as_bytes()));
}

#[cfg(test)]
mod tests;
