//! What a proxy needs to know of gRPC over HTTP/2: which messages are gRPC, what its statuses and deadlines say, and how
//! answers of our own look ("gRPC over HTTP2", PROTOCOL-HTTP2.md of the gRPC project).

use std::time::Duration;

use model::Fields;

use crate::text::push_decimal;

/// A gRPC status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "each is the status of its name")]
pub enum Status {
    Ok = 0,
    Cancelled = 1,
    Unknown = 2,
    DeadlineExceeded = 4,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Status {
    /// What an HTTP status means to a client of gRPC ("HTTP to gRPC Status Code Mapping").
    pub fn of_http(status: u16) -> Self {
        match status {
            400 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502 | 503 | 504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }

    /// Its number.
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// The number that a `grpc-status` field holds.
pub fn status_number(value: &[u8]) -> Option<u8> {
    match value {
        [one @ b'0'..=b'9'] => Some(one - b'0'),
        [b'1', two @ b'0'..=b'9'] => Some(10 + two - b'0'),
        _ => None,
    }
}

/// The HTTP status that says most nearly of an endpoint what a status of gRPC says. What a client may have brought about by
/// itself is no error of the endpoint.
pub fn nearest_http(number: u8) -> u16 {
    match number {
        0 => 200,
        4 => 504,
        7 => 403,
        8 => 429,
        14 => 503,
        16 => 401,
        2 | 13 | 15 => 500,
        5 | 12 => 404,
        _ => 400,
    }
}

/// Whether a `content-type` says gRPC: `application/grpc`, alone or followed by a format or parameters. gRPC-Web is another
/// protocol.
pub fn is_grpc(content_type: &[u8]) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    content_type.len() >= TYPE.len()
        && content_type[..TYPE.len()].eq_ignore_ascii_case(TYPE)
        && matches!(content_type.get(TYPE.len()), None | Some(b'+' | b';' | b' ' | b'\t'))
}

/// How bodies of gRPC-Web are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebForm {
    /// As those of gRPC, but for the trailers.
    Binary,
    /// The same in base64: see [`super::text`].
    Text,
}

impl WebForm {
    /// The `content-type`, without a format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Binary => "application/grpc-web",
            Self::Text => "application/grpc-web-text",
        }
    }
}

/// The form that a `content-type` of gRPC-Web says, and the `content-type` of gRPC for it.
pub fn from_web(content_type: &[u8]) -> Option<(WebForm, Vec<u8>)> {
    let rest_of = |form: WebForm| {
        let own = form.content_type().as_bytes();
        let (start, rest) = content_type.split_at_checked(own.len())?;
        let is_it = start.eq_ignore_ascii_case(own) && matches!(rest.first(), None | Some(b'+' | b';' | b' ' | b'\t'));
        is_it.then(|| (form, [b"application/grpc", rest].concat()))
    };
    rest_of(WebForm::Binary).or_else(|| rest_of(WebForm::Text))
}

/// The `content-type` of gRPC-Web for one of gRPC.
pub fn to_web(content_type: &[u8], form: WebForm) -> Option<Vec<u8>> {
    let format = content_type.get(b"application/grpc".len()..)?;
    is_grpc(content_type).then(|| [form.content_type().as_bytes(), format].concat())
}

/// The form of answers that an `accept` field asks for, if it names one. Text comes first: who asks for it cannot read the other.
pub fn accepted_web(accept: &[u8]) -> Option<WebForm> {
    let named = accept.split(|byte| *byte == b',').filter_map(|one| from_web(one.trim_ascii()));
    named.map(|(form, _)| form).max_by_key(|form| *form == WebForm::Text)
}

/// Writes trailers as the last message of a body, as gRPC-Web has them: a flag, a length, and lines as in HTTP/1.1 with names
/// in lower case.
pub fn write_web_trailers(trailers: &Fields, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0x80, 0, 0, 0, 0]);
    for field in trailers.iter() {
        out.extend(field.name.iter().map(u8::to_ascii_lowercase));
        out.extend_from_slice(b": ");
        out.extend_from_slice(field.value);
        out.extend_from_slice(b"\r\n");
    }
    let length = (out.len() - start - 5) as u32;
    out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
}

/// Digits of a `grpc-timeout`, at most.
const TIMEOUT_DIGITS_MAX: usize = 8;

/// The time that a `grpc-timeout` field gives: one to eight digits and a unit. `None`: it is malformed.
pub fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > TIMEOUT_DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |sum: u64, digit| sum * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(count * 3600),
        b'M' => Duration::from_secs(count * 60),
        b'S' => Duration::from_secs(count),
        b'm' => Duration::from_millis(count),
        b'u' => Duration::from_micros(count),
        b'n' => Duration::from_nanos(count),
        _ => return None,
    })
}

/// Writes a time as a `grpc-timeout` field, rounded down to what eight digits can say.
pub fn write_timeout(time: Duration, out: &mut Vec<u8>) {
    const MOST: u128 = 10_u128.pow(TIMEOUT_DIGITS_MAX as u32) - 1;
    let nanos = time.as_nanos();
    let units: [(u128, u8); 6] = [
        (1, b'n'),
        (1_000, b'u'),
        (1_000_000, b'm'),
        (1_000_000_000, b'S'),
        (60_000_000_000, b'M'),
        (3_600_000_000_000, b'H'),
    ];
    let (count, unit) = units
        .iter()
        .map(|&(nanos_each, unit)| (nanos / nanos_each, unit))
        .find(|(count, _)| *count <= MOST)
        .unwrap_or((MOST, b'H'));
    push_decimal(out, count as u64);
    out.push(unit);
}

/// Writes a text as a `grpc-message` field has it: everything but visible ASCII and the space, and `%` itself, is
/// percent-encoded.
pub fn write_message(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in text.as_bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(time: Duration) -> String {
        let mut out = Vec::new();
        write_timeout(time, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn grpc_is_told_from_what_only_looks_like_it() {
        for yes in
            ["application/grpc", "application/grpc+proto", "Application/GRPC; charset=utf-8", "application/grpc "]
        {
            assert!(is_grpc(yes.as_bytes()), "{yes}");
        }
        for no in [
            "",
            "application/grpc-web",
            "application/grpc-web+proto",
            "application/grpcx",
            "application/json",
            "application/grp",
        ] {
            assert!(!is_grpc(no.as_bytes()), "{no}");
        }
    }

    #[test]
    fn grpc_web_differs_in_its_type_and_in_its_trailers() {
        let there = |text: &str| from_web(text.as_bytes()).map(|(form, made)| (form, String::from_utf8(made).unwrap()));
        let as_form = |form, made: &str| Some((form, made.to_owned()));
        assert_eq!(there("application/grpc-web"), as_form(WebForm::Binary, "application/grpc"));
        assert_eq!(there("Application/gRPC-Web+proto; a=b"), as_form(WebForm::Binary, "application/grpc+proto; a=b"));
        assert_eq!(there("application/grpc-web-text"), as_form(WebForm::Text, "application/grpc"));
        assert_eq!(there("application/GRPC-web-TEXT+proto"), as_form(WebForm::Text, "application/grpc+proto"));
        for no in [
            "application/grpc-web-texts",
            "application/grpc-web-",
            "application/grpc-webx",
            "application/grpc",
            "",
            "\u{e9}",
        ] {
            assert_eq!(there(no), None, "{no}");
        }
        let back = |form| to_web(b"application/grpc+proto", form).map(|made| String::from_utf8(made).unwrap());
        assert_eq!(back(WebForm::Binary).as_deref(), Some("application/grpc-web+proto"));
        assert_eq!(back(WebForm::Text).as_deref(), Some("application/grpc-web-text+proto"));
        assert_eq!(to_web(b"text/html", WebForm::Binary), None);
        assert_eq!(accepted_web(b"*/*"), None);
        assert_eq!(accepted_web(b"application/grpc-web"), Some(WebForm::Binary));
        for text in ["application/grpc-web-text", "application/grpc-web , application/grpc-web-text+proto;q=1,*/*"] {
            assert_eq!(accepted_web(text.as_bytes()), Some(WebForm::Text), "{text}");
        }
        let mut trailers = Fields::default();
        for (name, value) in [("Grpc-Status", "0"), ("x-cost", "12")] {
            trailers.append(&model::FieldName::new(name).unwrap(), value.as_bytes());
        }
        let mut out = b"before".to_vec();
        write_web_trailers(&trailers, &mut out);
        assert_eq!(out, b"before\x80\0\0\0\x1cgrpc-status: 0\r\nx-cost: 12\r\n");
    }

    #[test]
    fn a_timeout_is_read_strictly() {
        let read = |text: &str| parse_timeout(text.as_bytes());
        assert_eq!(read("1H"), Some(Duration::from_secs(3600)));
        assert_eq!(read("99999999M"), Some(Duration::from_secs(99_999_999 * 60)));
        assert_eq!(read("20S"), Some(Duration::from_secs(20)));
        assert_eq!(
            [read("7m"), read("7u"), read("7n")].map(|time| time.map(|time| time.as_nanos())),
            [Some(7_000_000), Some(7_000), Some(7)]
        );
        for bad in ["", "S", "1", "1s", "-1S", "+1S", " 1S", "1S ", "123456789S", "1.5S", "1\u{e9}", "\0S"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_timeout_is_written_so_that_it_is_never_longer_and_can_be_read_again() {
        assert_eq!(written(Duration::from_millis(1500)), "1500000u");
        assert_eq!(written(Duration::ZERO), "0n");
        assert_eq!(written(Duration::from_secs(86_400 * 365)), "31536000S");
        assert_eq!(written(Duration::MAX), "99999999H");
        let mut nanos = 1_u64;
        while let Some(next) = nanos.checked_mul(7) {
            let time = Duration::from_nanos(nanos);
            let again = parse_timeout(written(time).as_bytes()).unwrap();
            assert!(again <= time && again >= time.mul_f64(0.9999), "{time:?} became {again:?}");
            nanos = next;
        }
    }

    #[test]
    fn a_message_is_one_line_whatever_it_says() {
        let mut out = Vec::new();
        write_message("50% of\r\nthe \u{e9}ndpoints", &mut out);
        assert_eq!(out, b"50%25 of%0D%0Athe %C3%A9ndpoints");
    }

    #[test]
    fn statuses_are_mapped_as_the_rules_of_grpc_say() {
        let numbers =
            [400, 401, 403, 404, 408, 429, 431, 500, 502, 503, 504].map(|status| Status::of_http(status).number());
        assert_eq!(numbers, [13, 16, 7, 12, 2, 14, 2, 2, 14, 14, 14]);
        assert_eq!([status_number(b"0"), status_number(b"16"), status_number(b"19")], [Some(0), Some(16), Some(19)]);
        let failed = (0..20).filter(|number| nearest_http(*number) >= 500).collect::<Vec<_>>();
        assert_eq!(failed, [2, 4, 13, 14, 15]);
        for bad in ["", "-1", "1x", "20", "014", "\0"] {
            assert_eq!(status_number(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
