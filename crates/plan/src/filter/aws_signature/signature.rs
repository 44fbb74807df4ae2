//! Signature Version 4 (docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html).

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use model::RequestHead;
use model::head::percent_encoded;

use super::credentials::Credentials;
use crate::route::query::{decoded, encode_from, split_at_equals};

/// The payload is not signed.
pub(super) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// What a signature is good for.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) region: String,
    /// The name of the service.
    pub(super) signed_for: String,
    /// Paths are encoded once, and by others twice.
    pub(super) is_s3: bool,
}

impl Scope {
    /// Returns the field `authorization` of a request, which has all other fields. `time` is from [`time`], `payload` from [`hash`].
    pub(super) fn authorization(
        &self,
        credentials: &Credentials,
        head: &RequestHead,
        time: &str,
        payload: &str,
    ) -> String {
        let fields = fields(head);
        let names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let mut request = head.method_bytes().to_vec();
        request.push(b'\n');
        push_path(&mut request, head.path(), self.is_s3);
        request.push(b'\n');
        request.extend_from_slice(&query(head.query().unwrap_or_default()));
        request.push(b'\n');
        for (name, value) in &fields {
            request.extend_from_slice(name.as_bytes());
            request.push(b':');
            request.extend_from_slice(value);
            request.push(b'\n');
        }
        request.extend_from_slice(format!("\n{names}\n{payload}").as_bytes());
        let day = &time[..8];
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.signed_for);
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hash(&request));
        let mut key = credentials.secret.as_bytes().to_vec();
        for part in [day, &self.region, &self.signed_for, "aws4_request", &text] {
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes());
            key.clear();
            key.extend_from_slice(tag.as_ref());
        }
        let (id, signature) = (&credentials.id, hex(&key));
        format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}")
    }
}

/// Returns the SHA-256 digest in hexadecimal.
pub(super) fn hash(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    let digit = |bits: u8| char::from_digit(u32::from(bits), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns a moment in seconds since 1970 as `20150830T123600Z`, of the years up to 9999.
pub(super) fn time(seconds: u64) -> String {
    const LAST: u64 = 253_402_300_799;
    let seconds = seconds.min(LAST);
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the leap day is the last (H. Hinnant, "chrono-compatible low-level date algorithms").
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

/// Writes spaces of the query as `%20`: endpoints differ about `+`.
pub(super) fn settle_query(head: &mut RequestHead, scratch: &mut Vec<u8>) {
    let Some(query) = head.query().filter(|query| query.contains(&b'+')) else { return };
    scratch.clear();
    for &byte in query {
        if byte == b'+' {
            scratch.extend_from_slice(b"%20");
        } else {
            scratch.push(byte);
        }
    }
    head.set_query(scratch);
}

/// Returns the fields that are signed, by their names in lower case, in order.
fn fields(head: &RequestHead) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    for field in head.fields.iter() {
        let name = String::from_utf8_lossy(field.name).to_ascii_lowercase();
        if name != "host" && name != "content-type" && !name.starts_with("x-amz-") {
            continue;
        }
        let mut value = Vec::new();
        for word in field.value.split(|byte| *byte == b' ').filter(|word| !word.is_empty()) {
            if !value.is_empty() {
                value.push(b' ');
            }
            value.extend_from_slice(word);
        }
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => {
                values.push(b',');
                values.extend_from_slice(&value);
            }
            None => all.push((name, value)),
        }
    }
    all.sort();
    all
}

fn push_path(out: &mut Vec<u8>, path: &[u8], is_decoded: bool) {
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        let mut byte = first;
        if is_decoded
            && first == b'%'
            && let Some((digits, after)) = tail.split_at_checked(2)
            && let Some(value) = std::str::from_utf8(digits).ok().and_then(|text| u8::from_str_radix(text, 16).ok())
        {
            (byte, rest) = (value, after);
        }
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&percent_encoded(byte));
        }
    }
}

/// Returns the parameters, encoded in one way, in order.
fn query(query: &[u8]) -> Vec<u8> {
    let pairs = query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(split_at_equals);
    let encoded = |raw: &[u8]| {
        let mut text: Vec<u8> = decoded(raw).collect();
        encode_from(&mut text, 0);
        text
    };
    let mut pairs: Vec<_> = pairs.map(|(name, value)| (encoded(name), encoded(value))).collect();
    pairs.sort();
    let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| [&name[..], b"=", &value].concat()).collect();
    pairs.join(&b'&')
}
