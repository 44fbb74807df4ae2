//! What heads say of coded bodies (RFC 9110 section 8.4), before and after a filter codes or decodes one.

use std::sync::Arc;

use model::fields::Fields;
use model::{FieldName, Issue, Known, Method, RequestHead, ResponseHead, Version};

use super::Extent;
use super::quality::weight;

/// Names of the fields that are looked at.
pub(super) struct Names {
    accept_ranges: FieldName,
    cache_control: FieldName,
    content_encoding: FieldName,
    content_range: FieldName,
    content_type: FieldName,
    etag: FieldName,
    if_none_match: FieldName,
    last_modified: FieldName,
    range: FieldName,
    vary: FieldName,
    pub(super) accept_encoding: FieldName,
    /// Digests of the content or of the representation with its coding (RFC 9530 sections 2 and 3, RFC 3230, RFC 1864).
    pub(super) digests: Arc<[FieldName]>,
}

impl Names {
    pub(super) fn new() -> Result<Self, Issue> {
        let name = |text| FieldName::new(text).map_err(|message| Issue::at("", message));
        let digests = ["content-digest", "repr-digest", "digest", "content-md5"];
        Ok(Self {
            accept_ranges: name("accept-ranges")?,
            cache_control: name("cache-control")?,
            content_encoding: name("content-encoding")?,
            content_range: name("content-range")?,
            content_type: name("content-type")?,
            etag: name("etag")?,
            if_none_match: name("if-none-match")?,
            last_modified: name("last-modified")?,
            range: name("range")?,
            vary: name("vary")?,
            accept_encoding: name("accept-encoding")?,
            digests: digests.into_iter().map(name).collect::<Result<_, _>>()?,
        })
    }

    /// Whether status and fields of a response let its body be coded, for clients that accept it.
    pub(super) fn may_code(&self, head: &ResponseHead, request: &RequestHead) -> bool {
        self.may_change(head, request) && self.is_plain(&head.fields)
    }

    /// Whether status and fields of a response let its body be coded or decoded.
    pub(super) fn may_change(&self, head: &ResponseHead, request: &RequestHead) -> bool {
        // 1xx, 204 and 205 have no body, 206 is a part of one, and after CONNECT and 101 there is a tunnel.
        let is_whole = (200..600).contains(&head.status) && !matches!(head.status, 204..=206);
        is_whole && request.received_method() != Method::Connect && self.may_change_body(&head.fields)
    }

    /// Whether the fields of a message let its body be coded or decoded.
    pub(super) fn may_change_body(&self, fields: &Fields) -> bool {
        fields.get(&self.content_range).is_none()
            // RFC 9111 sections 5.2.1.6 and 5.2.2.6.
            && !self.forbids_transformation(fields)
            // What the sender has signed stays as it is: without its digest a receiver could not verify what it asked to.
            && self.digests.iter().all(|name| fields.get(name).is_none())
    }

    /// The coding of a body, if it has exactly one.
    pub(super) fn coding<'a>(&'a self, fields: &'a Fields) -> Option<&'a [u8]> {
        let is_coding = |member: &&[u8]| !member.is_empty() && !member.eq_ignore_ascii_case(b"identity");
        let mut codings = fields.all(&self.content_encoding).flat_map(members).filter(is_coding);
        codings.next().filter(|_| codings.next().is_none())
    }

    /// The fields of a message whose body is decoded.
    pub(super) fn decoded(&self, fields: &mut Fields, scratch: &mut Vec<u8>) {
        fields.remove_known(Known::ContentLength);
        fields.remove(&self.content_encoding);
        fields.remove(&self.accept_ranges);
        self.weaken(fields, scratch);
    }

    /// Whether the request allows coding at all. HTTP/1.0 has no way to say how long a coded body is, but to close.
    pub(super) fn allows(&self, request: &RequestHead) -> bool {
        request.version != Version::Http10
            && request.fields.get(&self.range).is_none()
            // RFC 9111 section 5.2.1.6.
            && !self.forbids_transformation(&request.fields)
    }

    /// Whether a client says that it accepts this coding. One that says nothing may not know it.
    pub(super) fn accepts(&self, fields: &Fields, coding: &[u8]) -> bool {
        let mut others = false;
        for member in fields.all(&self.accept_encoding).flat_map(members) {
            let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let is_accepted = parts.next().is_none_or(|parameter| weight(parameter).is_some_and(|weight| weight > 0));
            if is_same(name, coding) {
                return is_accepted;
            }
            others |= name == b"*" && is_accepted;
        }
        others
    }

    fn forbids_transformation(&self, fields: &Fields) -> bool {
        fields.all(&self.cache_control).flat_map(members).any(|member| member.eq_ignore_ascii_case(b"no-transform"))
    }

    /// Says that the answer depends on `accept-encoding`, once (RFC 9110 section 12.5.5).
    pub(super) fn vary(&self, fields: &mut Fields, scratch: &mut Vec<u8>) {
        let covers = |member: &[u8]| member == b"*" || member.eq_ignore_ascii_case(b"accept-encoding");
        if fields.all(&self.vary).flat_map(members).any(covers) {
            return;
        }
        let Some(place) = fields.find_from(&self.vary, 0) else {
            return fields.append(&self.vary, b"Accept-Encoding");
        };
        scratch.clear();
        scratch.extend_from_slice(fields.value_at(place));
        scratch.extend_from_slice(if scratch.is_empty() { b"Accept-Encoding" } else { b", Accept-Encoding" });
        fields.set_at(place, scratch);
    }

    /// The head of a response whose body is coded with this token. That of 304 says nothing of the coding (RFC 9110 section 15.4.5).
    pub(super) fn coded(&self, head: &mut ResponseHead, token: &str, scratch: &mut Vec<u8>) {
        let fields = &mut head.fields;
        fields.remove_known(Known::ContentLength);
        // A range of what is coded here would be one of another coding the next time.
        fields.remove(&self.accept_ranges);
        if head.status != 304 {
            fields.set(&self.content_encoding, token.as_bytes());
        }
        self.weaken(fields, scratch);
    }

    /// The fields of a message whose body is changed in place. `keeps_length`: it is as long as before.
    pub(super) fn rewritten(&self, fields: &mut Fields, keeps_length: bool, scratch: &mut Vec<u8>) {
        if !keeps_length {
            fields.remove_known(Known::ContentLength);
        }
        // Ranges would be ones of what the sender has.
        fields.remove(&self.accept_ranges);
        self.weaken(fields, scratch);
    }

    /// Takes the validators out of a message whose body is another for each request: an endpoint that says it has not changed cannot know.
    pub(super) fn drop_validators(&self, fields: &mut Fields) {
        fields.remove(&self.etag);
        fields.remove(&self.last_modified);
    }

    /// Whether a body is in no content coding.
    pub(super) fn is_plain(&self, fields: &Fields) -> bool {
        fields.all(&self.content_encoding).all(is_identity)
    }

    /// The media type of a message, if it says one.
    pub(super) fn content_type<'a>(&self, fields: &'a Fields) -> Option<&'a [u8]> {
        fields.get(&self.content_type)
    }

    /// The coded bytes are not the same each time, so the tag that names them is weak (RFC 9110 section 8.8.1).
    fn weaken(&self, fields: &mut Fields, scratch: &mut Vec<u8>) {
        let Some(tag) = fields.get(&self.etag) else { return };
        if tag.starts_with(b"W/") {
            return;
        }
        if !tag.starts_with(b"\"") {
            fields.remove(&self.etag);
            return;
        }
        scratch.clear();
        scratch.extend_from_slice(b"W/");
        scratch.extend_from_slice(tag);
        fields.set(&self.etag, scratch);
    }

    /// Whether a body is of a type that `is_it` takes.
    pub(super) fn is_of(&self, is_it: impl FnOnce(&[u8]) -> bool, head: &ResponseHead, request: &RequestHead) -> bool {
        match head.fields.get(&self.content_type) {
            Some(content_type) => is_it(content_type),
            // A 304 mostly does not say its type (RFC 9110 section 15.4.5). What the client holds does.
            None => head.status == 304 && self.holds_weakened(&head.fields, request),
        }
    }

    /// Whether the client of a 304 holds a response whose tag was weakened.
    fn holds_weakened(&self, fields: &Fields, request: &RequestHead) -> bool {
        let Some(tag) = fields.get(&self.etag) else { return false };
        let is_it = |member: &[u8]| member.strip_prefix(b"W/").is_some_and(|held| held == tag);
        request.fields.all(&self.if_none_match).flat_map(members).any(is_it)
    }
}

/// How long the body is, or would be.
pub(super) fn length(fields: &Fields, extent: Extent) -> Option<u64> {
    match extent {
        Extent::Known(length) => Some(length),
        Extent::Unknown => None,
        Extent::Absent => std::str::from_utf8(fields.get_known(Known::ContentLength)?).ok()?.parse().ok(),
    }
}

/// Whether two tokens name one coding: `x-gzip` is `gzip` (RFC 9110 section 8.4.1.3).
pub(super) fn is_same(name: &[u8], coding: &[u8]) -> bool {
    plain(name).eq_ignore_ascii_case(plain(coding))
}

fn plain(coding: &[u8]) -> &[u8] {
    if coding.eq_ignore_ascii_case(b"x-gzip") { b"gzip" } else { coding }
}

fn is_identity(value: &[u8]) -> bool {
    members(value).all(|member| member.is_empty() || member.eq_ignore_ascii_case(b"identity"))
}

fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}
