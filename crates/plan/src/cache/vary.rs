//! Variants of a response by the fields that `Vary` names (RFC 9111 section 4.1).

use model::fields::Fields;

use super::control::trimmed;
use super::validate::named;

/// Fields that a response may name; one that names more is not stored.
pub const NAMES_MAX: usize = 16;
/// Bytes of the value of one field; with more, the response is not stored.
const VALUE_BYTES_MAX: usize = 2048;
/// Content codings that clients and endpoints agree on. Others do not tell variants apart.
const CODINGS: [&[u8]; 4] = [b"br", b"deflate", b"gzip", b"zstd"];

/// The value that a request had of a field by which responses vary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Varied {
    name: Box<[u8]>,
    value: Option<Box<[u8]>>,
}

impl Varied {
    /// The value that a request had of this field, in the form of [`of`]; `None`: it had none.
    pub(super) fn new(name: &[u8], value: Option<&[u8]>) -> Self {
        Self { name: name.into(), value: value.map(Into::into) }
    }

    /// Returns name and value.
    pub(super) fn parts(&self) -> (&[u8], Option<&[u8]>) {
        (&self.name, self.value.as_deref())
    }
}

/// Returns what tells the variant of this response from others. Returns `None` if it varies by more than the fields of its request (`*`),
/// or by too much.
pub fn of(response: &Fields, request: &Fields) -> Option<Box<[Varied]>> {
    let mut all: Vec<Varied> = Vec::new();
    for name in named(response, b"vary").flat_map(|list| list.split(|byte| *byte == b',')).map(trimmed) {
        let name = name.to_ascii_lowercase();
        if name.is_empty() || all.iter().any(|known| *known.name == *name) {
            continue;
        }
        if name == b"*" || all.len() == NAMES_MAX {
            return None;
        }
        let value = value_of(request, &name);
        if value.as_ref().is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
            return None;
        }
        all.push(Varied { name: name.into(), value: value.map(Into::into) });
    }
    Some(all.into())
}

/// Returns whether a request has the values that a variant was stored for.
pub fn holds(variant: &[Varied], request: &Fields) -> bool {
    variant.iter().all(|varied| value_of(request, &varied.name).as_deref() == varied.value.as_deref())
}

/// Returns the bytes that it takes.
pub fn bytes(variant: &[Varied]) -> usize {
    variant.iter().map(|varied| 32 + varied.name.len() + varied.value.as_ref().map_or(0, |value| value.len())).sum()
}

/// All values of a field as one, without the difference of white space, and of `accept-encoding` what counts.
fn value_of(request: &Fields, name: &[u8]) -> Option<Vec<u8>> {
    let mut lines = request.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).peekable();
    lines.peek()?;
    let mut value = Vec::new();
    for part in lines.flat_map(|line| line.value.split(|byte| *byte == b',')).map(trimmed) {
        if !part.is_empty() {
            if !value.is_empty() {
                value.push(b',');
            }
            value.extend_from_slice(part);
        }
    }
    if name == b"accept-encoding" { Some(codings(&value)) } else { Some(value) }
}

/// The codings of the list that the client takes, in one order: `gzip;q=1.0, br` and `br, gzip` are one variant.
fn codings(list: &[u8]) -> Vec<u8> {
    let mut found = [false; CODINGS.len()];
    let mut others: Vec<Vec<u8>> = Vec::new();
    for item in list.split(|byte| *byte == b',') {
        let mut parts = item.split(|byte| *byte == b';').map(trimmed);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let is_refused = parts.any(|part| {
            let is_zero = |q: &[u8]| !q.is_empty() && q.iter().all(|byte| matches!(byte, b'0' | b'.'));
            part.strip_prefix(b"q=").or_else(|| part.strip_prefix(b"Q=")).is_some_and(is_zero)
        });
        match CODINGS.iter().position(|coding| **coding == *name) {
            Some(place) if !is_refused => found[place] = true,
            // To take what has no coding goes without saying.
            None if name.is_empty() || (name == b"identity" && !is_refused) => {}
            // What it refuses, and codings that few know, must not be lost: an endpoint may look for a part of the text.
            _ => others.push([&name[..], if is_refused { b";q=0" } else { b"" }].concat()),
        }
    }
    others.sort_unstable();
    let known = CODINGS.iter().zip(found).filter(|(_, is_found)| *is_found).map(|(coding, _)| coding.to_vec());
    known.chain(others).collect::<Vec<_>>().join(&b","[..])
}

#[cfg(test)]
mod tests {
    use super::super::entry::testing::fields;
    use super::*;

    #[test]
    fn a_variant_is_told_by_the_fields_that_vary_names() {
        let response = fields(&[("vary", "Accept-Language, X-A"), ("Vary", "x-a,")]);
        let variant = of(&response, &fields(&[("accept-language", "de,  en"), ("cookie", "a")])).unwrap();
        assert_eq!(variant.len(), 2);
        assert!(holds(&variant, &fields(&[("Accept-Language", "de,en")])));
        assert!(holds(&variant, &fields(&[("Accept-Language", "de"), ("accept-language", "en")])));
        assert!(!holds(&variant, &fields(&[("accept-language", "en,de")])));
        assert!(!holds(&variant, &fields(&[("accept-language", "de,en"), ("x-a", "")])), "absent is not empty");
        // RFC 9111 section 4.1: `*` never matches.
        assert_eq!(of(&fields(&[("vary", "a, *")]), &fields(&[])), None);
        let many = (0..20).map(|number| format!("x-{number}")).collect::<Vec<_>>().join(",");
        assert_eq!(of(&fields(&[("vary", &many)]), &fields(&[])), None);
    }

    #[test]
    fn lists_of_codings_that_mean_the_same_are_one_variant() {
        for same in ["gzip, br", "br;q=0.5,gzip", "GZIP;q=1.0, br, identity"] {
            assert_eq!(codings(same.as_bytes()), b"br,gzip", "{same}");
        }
        for other in ["", "identity", "x-gzip", "compress", "gzip;q=0"] {
            let told = String::from_utf8(codings(other.as_bytes())).unwrap();
            assert_eq!(told, if other == "identity" { "" } else { other }, "another variant than that of `gzip`");
        }
        assert_eq!(codings(b"*, identity;q=0"), b"*,identity;q=0");
        assert_ne!(codings(b"gzip, *;q=0"), codings(b"gzip"));
    }
}
