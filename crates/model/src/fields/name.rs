//! Names of header fields, and which bytes a name or a value may have.

use std::fmt;

/// Fields that the proxy itself must recognise. The classification happens once, when a field is pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "each is the field of its name")]
pub enum Known {
    Other,
    Connection,
    ContentLength,
    TransferEncoding,
    Host,
    Expect,
    Upgrade,
    Te,
    Trailer,
    KeepAlive,
    ProxyConnection,
    XForwardedFor,
    XForwardedProto,
    XForwardedHost,
    Forwarded,
    XRequestId,
    Cookie,
    Date,
    Origin,
}

impl Known {
    /// Returns which field `name` is, ignoring case.
    pub fn of(name: &[u8]) -> Self {
        match name.len() {
            2 => Self::Te.of_text(name, b"te"),
            4 if name[0] | 0x20 == b'h' => Self::Host.of_text(name, b"host"),
            4 => Self::Date.of_text(name, b"date"),
            6 if name[0] | 0x20 == b'e' => Self::Expect.of_text(name, b"expect"),
            6 if name[0] | 0x20 == b'c' => Self::Cookie.of_text(name, b"cookie"),
            6 => Self::Origin.of_text(name, b"origin"),
            7 if name[0] | 0x20 == b'u' => Self::Upgrade.of_text(name, b"upgrade"),
            7 => Self::Trailer.of_text(name, b"trailer"),
            9 => Self::Forwarded.of_text(name, b"forwarded"),
            10 if name[0] | 0x20 == b'c' => Self::Connection.of_text(name, b"connection"),
            10 => Self::KeepAlive.of_text(name, b"keep-alive"),
            12 => Self::XRequestId.of_text(name, b"x-request-id"),
            14 => Self::ContentLength.of_text(name, b"content-length"),
            15 => Self::XForwardedFor.of_text(name, b"x-forwarded-for"),
            16 if name[0] | 0x20 == b'p' => Self::ProxyConnection.of_text(name, b"proxy-connection"),
            16 => Self::XForwardedHost.of_text(name, b"x-forwarded-host"),
            17 if name[0] | 0x20 == b't' => Self::TransferEncoding.of_text(name, b"transfer-encoding"),
            17 => Self::XForwardedProto.of_text(name, b"x-forwarded-proto"),
            _ => Self::Other,
        }
    }

    /// This field if `name` is `text`, ignoring case. The length is a constant, so that whole words are compared instead of bytes.
    #[inline]
    fn of_text<const N: usize>(self, name: &[u8], text: &[u8; N]) -> Self {
        let Ok(name) = <&[u8; N]>::try_from(name) else { return Self::Other };
        // Only letters have a second form; `-` has none.
        let differs = |(a, b): (&u8, &u8)| (a | if b.is_ascii_lowercase() { 0x20 } else { 0 }) ^ b;
        if name.iter().zip(text).map(differs).fold(0, |all, one| all | one) == 0 { self } else { Self::Other }
    }

    /// Returns whether the field is hop-by-hop and never forwarded (RFC 9110 section 7.6.1). Fields that `Connection` names are hop-by-hop
    /// too; the protocol code removes those.
    pub fn is_hop_by_hop(self) -> bool {
        matches!(
            self,
            Self::Connection
                | Self::TransferEncoding
                | Self::Upgrade
                | Self::Te
                | Self::KeepAlive
                | Self::ProxyConnection
        )
    }
}

/// A valid field name (an RFC 9110 token), as filters hold it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FieldName {
    pub(super) text: Box<str>,
    pub(super) known: Known,
}

impl FieldName {
    /// Checks a name.
    ///
    /// # Errors
    /// A sentence, when the text is empty or holds something else than token characters (RFC 9110 section 5.6.2).
    pub fn new(text: &str) -> Result<Self, String> {
        if is_token(text.as_bytes()) {
            Ok(Self { text: text.into(), known: Known::of(text.as_bytes()) })
        } else {
            Err(format!("`{text}` is not a header field name"))
        }
    }

    /// Returns the name in its original case.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns its classification.
    pub fn known(&self) -> Known {
        self.known
    }
}

impl fmt::Debug for FieldName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Which bytes a token has (RFC 9110 section 5.6.2). Names are judged byte by byte, for which a look at a table is the least.
static IN_TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let is_sign = matches!(byte as u8, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
        table[byte] = is_sign || (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    table
};

/// Returns whether `text` is a token (RFC 9110 section 5.6.2).
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| IN_TOKEN[usize::from(byte)])
}

/// Returns whether `text` is a token without upper case, as names are in HTTP/2 and HTTP/3 (RFC 9113 section 8.2.1).
pub fn is_lower_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|&byte| IN_TOKEN[usize::from(byte)] && !byte.is_ascii_uppercase())
}

/// Returns whether `text` may stand as a field value: visible characters, space, tab and bytes from 0x80 (RFC 9110 section 5.5).
pub fn is_field_value(text: &[u8]) -> bool {
    // All of it is looked at, so that many bytes are looked at together.
    !text.iter().fold(false, |is_bad, &byte| is_bad | ((byte < b' ') & (byte != b'\t')) | (byte == 0x7f))
}

/// Returns whether endpoints may read a field as the one with this other name. Many treat `_` and `-` as the same, because CGI variables
/// cannot distinguish them (RFC 3875 section 4.1.18); some treat every character like this that is neither a letter nor a digit.
pub fn reads_as(name: &[u8], other: &str) -> bool {
    let plain = |byte: u8| if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' };
    other.len() == name.len() && other.bytes().zip(name).all(|(a, &b)| plain(a) == plain(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(&str, Known); 18] = [
        ("te", Known::Te),
        ("host", Known::Host),
        ("date", Known::Date),
        ("expect", Known::Expect),
        ("cookie", Known::Cookie),
        ("origin", Known::Origin),
        ("upgrade", Known::Upgrade),
        ("trailer", Known::Trailer),
        ("forwarded", Known::Forwarded),
        ("connection", Known::Connection),
        ("keep-alive", Known::KeepAlive),
        ("x-request-id", Known::XRequestId),
        ("content-length", Known::ContentLength),
        ("x-forwarded-for", Known::XForwardedFor),
        ("proxy-connection", Known::ProxyConnection),
        ("x-forwarded-host", Known::XForwardedHost),
        ("transfer-encoding", Known::TransferEncoding),
        ("x-forwarded-proto", Known::XForwardedProto),
    ];

    #[test]
    fn names_are_known_in_any_case_and_only_whole() {
        for (name, known) in ALL {
            assert_eq!(Known::of(name.as_bytes()), known);
            assert_eq!(Known::of(name.to_ascii_uppercase().as_bytes()), known);
            for place in 0..name.len() {
                // Every other byte is another field, also those that differ in the bit of case alone.
                for bit in 0..8 {
                    let mut other = name.as_bytes().to_vec();
                    other[place] ^= 1 << bit;
                    let same = other.eq_ignore_ascii_case(name.as_bytes());
                    assert_eq!(Known::of(&other) == known, same, "{name}: byte {place}, bit {bit}");
                }
            }
        }
    }
}
