//! How much a client likes a content type (RFC 9110 section 12.5.1).

use std::sync::LazyLock;

use model::{FieldName, RequestHead};

use super::super::quality::{FULL, weight};

static ACCEPT: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("accept").unwrap_or_else(|_| unreachable!("a constant token")));

/// Returns the type without its parameters, in lower case.
pub(super) fn media_type(content_type: &str) -> Box<str> {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().into()
}

/// Returns the preference in thousandths; 0 means not acceptable. The most specific range decides.
pub(super) fn liking(request: &RequestHead, media_type: &str) -> u16 {
    let mut best: Option<(u8, u16)> = None;
    let mut is_said = false;
    for field in request.fields.all(&ACCEPT) {
        for range in field.split(|byte| *byte == b',') {
            let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            if name.is_empty() {
                continue;
            }
            is_said = true;
            let Some(specific) = covers(name, media_type.as_bytes()) else { continue };
            let quality = parts.find_map(weight).unwrap_or(FULL);
            if best.is_none_or(|(before, _)| specific > before) {
                best = Some((specific, quality));
            }
        }
    }
    match best {
        Some((_, quality)) => quality,
        None if is_said => 0,
        None => FULL,
    }
}

/// Returns how specific a range is that holds the type.
fn covers(range: &[u8], media_type: &[u8]) -> Option<u8> {
    if range == b"*/*" {
        return Some(0);
    }
    if range.eq_ignore_ascii_case(media_type) {
        return Some(2);
    }
    let kind = range.strip_suffix(b"*")?;
    (kind.ends_with(b"/") && media_type.len() >= kind.len() && media_type[..kind.len()].eq_ignore_ascii_case(kind))
        .then_some(1)
}
