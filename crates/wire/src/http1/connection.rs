//! Fields that speak of one connection only (RFC 9110 section 7.6.1).

use model::fields::is_token;
use model::{Fields, Known};

use crate::text::list;

/// Options that one head may list in `Connection`. Each costs a look at every field, so there is a bound.
const NOMINATED_MAX: usize = 32;
/// Bytes of all the field names that one head may list in `Connection`.
const NOMINATED_BYTES_MAX: usize = 512;

/// More options in `Connection` than any honest peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyOptions;

/// Removes every hop-by-hop field: those that `Connection` names, then `Connection` itself and its kin
/// ([`Known::is_hop_by_hop`]). For heads that cross to another HTTP version; the HTTP/1 writers need no such call.
/// Costs one look over the fields when there is no `Connection`.
///
/// Named fields that every recipient needs (`Host`, `Authorization`, `Cookie`, `X-Forwarded-*`, …) are kept. RFC 9110
/// section 7.6.1 forbids a sender to name such fields; a client that does wants them to vanish between us and the
/// endpoint, to be taken for someone else.
pub fn strip_hop_by_hop(fields: &mut Fields) {
    if fields.has_known(Known::Connection) {
        // Heads from our own parsers hold no nominated field any more and have passed the bound.
        let _ = remove_nominated(fields);
    }
    fields.retain(|field| !field.known.is_hop_by_hop());
}

/// Removes the fields that `Connection` names, protected ones excepted.
pub(super) fn remove_nominated(fields: &mut Fields) -> Result<(), TooManyOptions> {
    let mut names = [0; NOMINATED_BYTES_MAX];
    let mut ends = [0_usize; NOMINATED_MAX];
    let (mut count, mut used) = (0, 0);
    for option in fields.all_known(Known::Connection).flat_map(list) {
        if option.is_empty() || !may_be_nominated(option) {
            continue;
        }
        let end = used + option.len();
        if count == NOMINATED_MAX || end > NOMINATED_BYTES_MAX {
            return Err(TooManyOptions);
        }
        names[used..end].copy_from_slice(option);
        ends[count] = end;
        (count, used) = (count + 1, end);
    }
    let mut start = 0;
    for &end in &ends[..count] {
        fields.remove_named(&names[start..end]);
        start = end;
    }
    Ok(())
}

/// Whether naming this field in `Connection` removes it. Options that are no field of their own (`close`) cost nothing.
fn may_be_nominated(option: &[u8]) -> bool {
    const OPTIONS: &[&[u8]] = &[b"close", b"keep-alive", b"upgrade", b"te"];
    const PROTECTED: &[&[u8]] = &[
        b"accept",
        b"age",
        b"allow",
        b"authorization",
        b"cache-control",
        b"content-disposition",
        b"content-encoding",
        b"content-language",
        b"content-length",
        b"content-location",
        b"content-range",
        b"content-security-policy",
        b"content-type",
        b"etag",
        b"expires",
        b"if-match",
        b"if-modified-since",
        b"if-none-match",
        b"if-range",
        b"if-unmodified-since",
        b"last-modified",
        b"location",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"range",
        b"referer",
        b"retry-after",
        b"set-cookie",
        b"strict-transport-security",
        b"traceparent",
        b"tracestate",
        b"user-agent",
        b"vary",
        b"via",
        b"www-authenticate",
        b"x-real-ip",
    ];
    let is = |name: &&[u8]| option.eq_ignore_ascii_case(name);
    let prefixed = |prefix: &[u8]| option.len() >= prefix.len() && option[..prefix.len()].eq_ignore_ascii_case(prefix);
    // Every field the proxy itself recognises either is hop-by-hop anyway or belongs to all recipients.
    is_token(option)
        && Known::of(option) == Known::Other
        && !prefixed(b"x-forwarded-")
        && !OPTIONS.iter().any(is)
        && !PROTECTED.iter().any(is)
}

#[cfg(test)]
mod tests {
    use model::FieldName;

    use super::*;

    fn fields(list: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in list {
            fields.append(&FieldName::new(name).unwrap(), value.as_bytes());
        }
        fields
    }

    fn names(fields: &Fields) -> Vec<String> {
        fields.iter().map(|field| String::from_utf8(field.name.to_vec()).unwrap()).collect()
    }

    #[test]
    fn hop_by_hop_fields_and_those_that_connection_names_are_removed() {
        let mut all = fields(&[
            ("A", "1"),
            ("Connection", "X-Hop, close,,"),
            ("x-hop", "1"),
            ("Keep-Alive", "5"),
            ("TE", "trailers"),
            ("Upgrade", "x"),
            ("connection", "other"),
            ("Proxy-Connection", "x"),
            ("OTHER", "2"),
            ("Transfer-Encoding", "chunked"),
            ("Trailer", "t"),
            ("Z", "1"),
        ]);
        strip_hop_by_hop(&mut all);
        assert_eq!(names(&all), ["A", "Trailer", "Z"]);
    }

    #[test]
    fn a_client_cannot_make_us_remove_a_field_that_endpoints_rely_on() {
        let protected = [
            "Host",
            "Content-Length",
            "X-Forwarded-For",
            "X-Forwarded-Proto",
            "X-Forwarded-Host",
            "X-Forwarded-Prefix",
            "Forwarded",
            "Authorization",
            "Cookie",
            "X-Request-Id",
            "Expect",
            "Trailer",
            "Date",
            "Content-Type",
            "Via",
            "X-Real-IP",
            "Cache-Control",
        ];
        for name in protected {
            let mut all = fields(&[("Connection", name), (name, "1")]);
            strip_hop_by_hop(&mut all);
            assert_eq!(names(&all), [name]);
        }
    }

    #[test]
    fn a_connection_field_that_names_too_many_fields_is_refused() {
        let few = (0..NOMINATED_MAX).map(|n| format!("x{n}")).collect::<Vec<_>>().join(",");
        assert_eq!(remove_nominated(&mut fields(&[("Connection", &few)])), Ok(()));
        let many = format!("{few},close,one-more");
        assert_eq!(remove_nominated(&mut fields(&[("Connection", &many)])), Err(TooManyOptions));
        let long = "y".repeat(NOMINATED_BYTES_MAX + 1);
        assert_eq!(remove_nominated(&mut fields(&[("Connection", &long)])), Err(TooManyOptions));
    }
}
