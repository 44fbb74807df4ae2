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
        let (text, known): (&[u8], Self) = match name.len() {
            2 => (b"te", Self::Te),
            4 if name[0] | 0x20 == b'h' => (b"host", Self::Host),
            4 => (b"date", Self::Date),
            6 if name[0] | 0x20 == b'e' => (b"expect", Self::Expect),
            6 if name[0] | 0x20 == b'c' => (b"cookie", Self::Cookie),
            6 => (b"origin", Self::Origin),
            7 if name[0] | 0x20 == b'u' => (b"upgrade", Self::Upgrade),
            7 => (b"trailer", Self::Trailer),
            9 => (b"forwarded", Self::Forwarded),
            10 if name[0] | 0x20 == b'c' => (b"connection", Self::Connection),
            10 => (b"keep-alive", Self::KeepAlive),
            12 => (b"x-request-id", Self::XRequestId),
            14 => (b"content-length", Self::ContentLength),
            15 => (b"x-forwarded-for", Self::XForwardedFor),
            16 if name[0] | 0x20 == b'p' => (b"proxy-connection", Self::ProxyConnection),
            16 => (b"x-forwarded-host", Self::XForwardedHost),
            17 if name[0] | 0x20 == b't' => (b"transfer-encoding", Self::TransferEncoding),
            17 => (b"x-forwarded-proto", Self::XForwardedProto),
            _ => return Self::Other,
        };
        if name.eq_ignore_ascii_case(text) { known } else { Self::Other }
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
