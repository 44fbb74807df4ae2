//! `envoy.service.auth.v3.CheckResponse`: what becomes of a request.

use model::protobuf::{Reader, Value};
use model::{FieldName, LocalResponse, RequestHead};

use crate::filter::changes::{Action, FieldChanges};
use crate::filter::field_changes::{BadAnswer, header_value, push, push_option};
use crate::filter::fields::changeable_name;
use crate::filter::variables::Stage;
use crate::route::query::{encode_from, equals_decoded, split_at_equals};

/// Fields to remove, and parameters of the query to set or remove.
const LIST_MAX: usize = 64;
/// Bytes of parameters that are set.
const QUERY_BYTES_MAX: usize = 8 << 10;

/// What the service says.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::filter) enum Verdict {
    /// The request passes, with these changes.
    Allowed(Box<Allowed>),
    /// It is answered so.
    Denied(Box<LocalResponse>),
}

/// Changes of a request that passes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::filter) struct Allowed {
    request: FieldChanges,
    remove: Vec<FieldName>,
    query_set: Vec<(Vec<u8>, Vec<u8>)>,
    query_remove: Vec<Vec<u8>>,
    /// Changes of the response.
    pub(super) response: FieldChanges,
}

impl Verdict {
    /// Reads an answer.
    ///
    /// # Errors
    /// It is malformed, or allows the request with changes that are not possible.
    pub(in crate::filter) fn read(message: &[u8]) -> Result<Self, BadAnswer> {
        let (mut status, mut denied, mut allowed) = (0, None, None);
        for field in Reader::new(message) {
            match field {
                Ok((1, Value::Bytes(bytes))) => status = number_of(bytes)?,
                // They are one choice: the last counts.
                Ok((2, Value::Bytes(bytes))) => (denied, allowed) = (Some(bytes), None),
                Ok((3, Value::Bytes(bytes))) => (denied, allowed) = (None, Some(bytes)),
                Ok(_) => {}
                // A denial is no failure, which may let the request pass, because the rest of it cannot be read.
                Err(_) if status != 0 => break,
                Err(malformed) => return Err(malformed.into()),
            }
        }
        match status {
            0 if denied.is_some() => Err(BadAnswer),
            0 => Ok(Self::Allowed(Box::new(Allowed::read(allowed.unwrap_or_default())?))),
            _ => Ok(Self::Denied(Box::new(response(denied.unwrap_or_default())))),
        }
    }
}

/// Reads field 1 of a message, a number: the code of a `google.rpc.Status` and of a `HttpStatus`.
fn number_of(message: &[u8]) -> Result<u64, BadAnswer> {
    let mut number = 0;
    for field in Reader::new(message) {
        if let (1, Value::Number(one)) = field? {
            number = one;
        }
    }
    Ok(number)
}

/// Reads a `DeniedHttpResponse`. What a response cannot have, or cannot be read, is left out: the request is denied all the same.
fn response(message: &[u8]) -> LocalResponse {
    let (mut status, mut body) = (0, &[][..]);
    let mut fields: Vec<(String, String)> = Vec::new();
    for field in Reader::new(message) {
        match field {
            Ok((1, Value::Bytes(bytes))) => status = number_of(bytes).unwrap_or_default(),
            Ok((2, Value::Bytes(bytes))) if fields.len() < LIST_MAX => {
                fields.extend(response_field(bytes).unwrap_or_default());
            }
            Ok((3, Value::Bytes(bytes))) => body = bytes,
            _ => {}
        }
    }
    if !body.is_empty() && !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        fields.push(("content-type".to_owned(), "text/plain; charset=utf-8".to_owned()));
    }
    let status = u16::try_from(status).ok().filter(|status| (200..600).contains(status)).unwrap_or(403);
    LocalResponse { status, fields, body: body.to_vec() }
}

fn response_field(option: &[u8]) -> Result<Option<(String, String)>, BadAnswer> {
    let mut header = &[][..];
    for field in Reader::new(option) {
        if let (1, Value::Bytes(bytes)) = field? {
            header = bytes;
        }
    }
    let (name, value) = header_value(header)?;
    let is_good = push(&mut FieldChanges::default(), Stage::Response, (name, value), Action::Append).is_ok();
    let value = std::str::from_utf8(value).ok().filter(|_| is_good);
    Ok(value.map(|value| (name.to_owned(), value.trim_matches([' ', '\t']).to_owned())))
}

impl Allowed {
    /// Reads an `OkHttpResponse`.
    fn read(message: &[u8]) -> Result<Self, BadAnswer> {
        let mut all = Self::default();
        let mut query_bytes = 0;
        for field in Reader::new(message) {
            match field? {
                (2, Value::Bytes(bytes)) => push_option(&mut all.request, Stage::Request, bytes, Action::Set)?,
                (5, Value::Bytes(bytes)) => {
                    let name = std::str::from_utf8(bytes).map_err(|_| BadAnswer)?;
                    all.remove.push(changeable_name(name, Stage::Request).map_err(|_| BadAnswer)?);
                }
                (6, Value::Bytes(bytes)) => push_option(&mut all.response, Stage::Response, bytes, Action::Append)?,
                (7, Value::Bytes(bytes)) => {
                    let (name, value) = header_value(bytes)?;
                    query_bytes += name.len() + value.len();
                    all.query_set.push((name.as_bytes().to_vec(), value.to_vec()));
                }
                (8, Value::Bytes(bytes)) => all.query_remove.push(bytes.to_vec()),
                _ => {}
            }
            let lengths = [all.remove.len(), all.query_set.len(), all.query_remove.len()];
            if lengths.iter().any(|length| *length > LIST_MAX) || query_bytes > QUERY_BYTES_MAX {
                return Err(BadAnswer);
            }
        }
        let is_named = |(name, _): &(Vec<u8>, Vec<u8>)| !name.is_empty();
        if all.query_set.iter().all(is_named) { Ok(all) } else { Err(BadAnswer) }
    }

    /// Changes the request. `scratch` as in [`super::Turn`].
    pub(super) fn apply(&self, head: &mut RequestHead, scratch: &mut Vec<u8>) {
        self.request.apply_to_request(head);
        for name in &self.remove {
            head.fields.remove_alike(name);
        }
        if !self.query_set.is_empty() || !self.query_remove.is_empty() {
            self.edit_query(head, scratch);
        }
    }

    fn edit_query(&self, head: &mut RequestHead, query: &mut Vec<u8>) {
        query.clear();
        let is_replaced = |raw: &[u8]| {
            let set = self.query_set.iter().map(|(name, _)| name);
            set.chain(&self.query_remove).any(|name| equals_decoded(raw, name))
        };
        for pair in head.query().unwrap_or_default().split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()) {
            if !is_replaced(split_at_equals(pair).0) {
                separate(query);
                query.extend_from_slice(pair);
            }
        }
        for (place, (name, value)) in self.query_set.iter().enumerate() {
            // Of two of a name the last counts.
            if self.query_set[place + 1..].iter().any(|(later, _)| later == name) {
                continue;
            }
            separate(query);
            encode(query, name);
            query.push(b'=');
            encode(query, value);
        }
        head.set_query(query);
    }
}

fn separate(query: &mut Vec<u8>) {
    if !query.is_empty() {
        query.push(b'&');
    }
}

fn encode(query: &mut Vec<u8>, text: &[u8]) {
    let start = query.len();
    query.extend_from_slice(text);
    encode_from(query, start);
}
