//! What heads say of coding a body, and what they say once it is coded.

use std::sync::Arc;

use model::fields::Fields;
use model::{FieldName, Issue, Known, Method, RequestHead, ResponseHead, Version};

use super::super::Extent;
use super::types::Types;

/// Names of the fields that are looked at.
pub(super) struct Names {
    accept_ranges: FieldName,
    cache_control: FieldName,
    content_encoding: FieldName,
    content_range: FieldName,
    content_type: FieldName,
    etag: FieldName,
    if_none_match: FieldName,
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
            range: name("range")?,
            vary: name("vary")?,
            accept_encoding: name("accept-encoding")?,
            digests: digests.into_iter().map(name).collect::<Result<_, _>>()?,
        })
    }

    /// Whether status and fields of a response let its body be coded, for clients that accept it.
    pub(super) fn may_change(&self, head: &ResponseHead, request: &RequestHead) -> bool {
        // 1xx, 204 and 205 have no body, 206 is a part of one, and after CONNECT and 101 there is a tunnel.
        let is_whole = (200..600).contains(&head.status) && !matches!(head.status, 204..=206);
        is_whole
            && request.received_method() != Method::Connect
            && head.fields.get(&self.content_range).is_none()
            && head.fields.all(&self.content_encoding).all(is_identity)
            // RFC 9111 section 5.2.2.6.
            && !self.forbids_transformation(&head.fields)
            // What the sender has signed stays as it is: without its digest a client could not verify what it asked to.
            && self.digests.iter().all(|name| head.fields.get(name).is_none())
    }

    /// Whether the request allows coding at all. HTTP/1.0 has no way to say how long a coded body is, but to close.
    pub(super) fn allows(&self, request: &RequestHead) -> bool {
        request.version != Version::Http10
            && request.fields.get(&self.range).is_none()
            // RFC 9111 section 5.2.1.6.
            && !self.forbids_transformation(&request.fields)
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

    /// Whether a body is of one of these types.
    pub(super) fn is_of(&self, types: &Types, head: &ResponseHead, request: &RequestHead) -> bool {
        match head.fields.get(&self.content_type) {
            Some(content_type) => types.hold(content_type),
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

fn is_identity(value: &[u8]) -> bool {
    members(value).all(|member| member.is_empty() || member.eq_ignore_ascii_case(b"identity"))
}

fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}
