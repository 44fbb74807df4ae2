//! What version 2 can tell beside addresses: type, length, value (section 2.2.1 and on).

use std::ops::RangeInclusive;

use super::crc32c::crc32c;

pub(super) const ALPN: u8 = 0x01;
pub(super) const AUTHORITY: u8 = 0x02;
pub(super) const CRC32C: u8 = 0x03;
const NOOP: u8 = 0x04;
pub(super) const UNIQUE_ID: u8 = 0x05;
pub(super) const SSL: u8 = 0x20;
pub(super) const SSL_VERSION: u8 = 0x21;
pub(super) const SSL_CN: u8 = 0x22;
pub(super) const SSL_CIPHER: u8 = 0x23;
/// The last type that has a meaning inside of [`SSL`] only: the algorithm of the certificate's key.
const SSL_LAST: u8 = 0x25;
const NETNS: u8 = 0x30;
/// What stands in [`SSL`] before its values.
const SSL_FIXED_BYTES: usize = 5;

/// Types for whatever sender and receiver agree on (section 2.2.8).
pub const CUSTOM_TYPES: RangeInclusive<u8> = 0xe0..=0xef;

/// Longest unique id (section 2.2.5).
pub(super) const UNIQUE_ID_BYTES_MAX: usize = 128;
/// Bits of the first byte of [`SSL`].
pub(super) const CLIENT_SSL: u8 = 0x01;
pub(super) const CLIENT_CERT_CONN: u8 = 0x02;
pub(super) const CLIENT_CERT_SESS: u8 = 0x04;

/// What a header tells beside addresses. Of a type that occurs twice the first counts. Types that are not known, `NOOP`
/// among them, are skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlvFacts<'a> {
    /// Application protocol of the client's connection (RFC 7301), such as `h2`.
    pub alpn: Option<&'a [u8]>,
    /// Host name that the client asked for, as TLS SNI has it.
    pub authority: Option<&'a str>,
    /// What the sender calls the connection, 1 to 128 bytes.
    pub unique_id: Option<&'a [u8]>,
    /// The client's TLS.
    pub ssl: Option<Ssl<'a>>,
    /// Network namespace of the sender.
    pub netns: Option<&'a str>,
    /// All of it as it was sent.
    pub block: &'a [u8],
}

impl<'a> TlvFacts<'a> {
    /// Hands over every value with its type, in the order in which they came. Those inside of `SSL` (section 2.2.6) stand among the
    /// others, for they have types of their own. Left out are checksum and padding, values of TLS outside of `SSL`, and the common
    /// name of a certificate that the sender has not verified.
    pub fn each(&self, mut take: impl FnMut(u8, &'a [u8])) {
        let mut rest = self.block;
        while let Some(Some((kind, value, after))) = next(rest) {
            match kind {
                CRC32C | NOOP | SSL_VERSION..=SSL_LAST => {}
                SSL => {
                    let is_verified = ssl(value).is_some_and(|ssl| ssl.is_verified);
                    let mut inner = value.get(SSL_FIXED_BYTES..).unwrap_or_default();
                    while let Some(Some((kind, value, after))) = next(inner) {
                        if kind != SSL_CN || is_verified {
                            take(kind, value);
                        }
                        inner = after;
                    }
                }
                _ => take(kind, value),
            }
            rest = after;
        }
    }
}

/// What the sender knows of the client's TLS (section 2.2.6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ssl<'a> {
    /// The client came by TLS.
    pub is_tls: bool,
    /// The client showed a certificate, on this connection or in the session that it resumed, and it was verified.
    pub is_verified: bool,
    /// Such as `TLSv1.3`.
    pub version: Option<&'a str>,
    /// Common name of the client's certificate.
    pub common_name: Option<&'a str>,
    /// The cipher, as the sender names it.
    pub cipher: Option<&'a str>,
}

/// Reads what stands behind the addresses, which end at `from`. `None`: it is malformed, or the checksum is wrong.
pub(super) fn read(header: &[u8], from: usize) -> Option<TlvFacts<'_>> {
    let mut rest = header.get(from..)?;
    let mut told = TlvFacts { block: rest, ..TlvFacts::default() };
    while let Some((kind, value, after)) = next(rest)? {
        match kind {
            ALPN => told.alpn = told.alpn.or(Some(value)),
            AUTHORITY => told.authority = told.authority.or(text(value)),
            UNIQUE_ID if value.is_empty() || value.len() > UNIQUE_ID_BYTES_MAX => return None,
            UNIQUE_ID => told.unique_id = told.unique_id.or(Some(value)),
            NETNS => told.netns = told.netns.or(text(value)),
            SSL => {
                let ssl = ssl(value)?;
                told.ssl = told.ssl.or(Some(ssl));
            }
            CRC32C if !is_intact(header, value, header.len() - after.len()) => return None,
            _ => {}
        }
        rest = after;
    }
    Some(told)
}

/// Type, value, what follows.
type First<'a> = (u8, &'a [u8], &'a [u8]);

/// The first of `rest`. The outer `None`: it is cut off.
fn next(rest: &[u8]) -> Option<Option<First<'_>>> {
    match rest {
        [] => Some(None),
        [kind, high, low, rest @ ..] => {
            let (value, after) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
            Some(Some((*kind, value, after)))
        }
        _ => None,
    }
}

/// What is no text is as if it were not there: senders pass on what clients and certificates say, and nothing is decided
/// by it.
fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok()
}

fn ssl(value: &[u8]) -> Option<Ssl<'_>> {
    let [client, verify @ ..] = value else { return None };
    let (verify, mut rest) = verify.split_first_chunk::<4>()?;
    let shown = client & (CLIENT_CERT_CONN | CLIENT_CERT_SESS) != 0;
    let is_verified = shown && u32::from_be_bytes(*verify) == 0;
    let mut ssl = Ssl { is_tls: client & CLIENT_SSL != 0, is_verified, ..Ssl::default() };
    while let Some((kind, value, after)) = next(rest)? {
        match kind {
            SSL_VERSION => ssl.version = ssl.version.or(text(value)),
            SSL_CN => ssl.common_name = ssl.common_name.or(text(value)),
            SSL_CIPHER => ssl.cipher = ssl.cipher.or(text(value)),
            _ => {}
        }
        rest = after;
    }
    Some(ssl)
}

/// Whether `value`, which ends at `end` of the header, is the checksum of the header with zeros in its own place
/// (section 2.2.3).
fn is_intact(header: &[u8], value: &[u8], end: usize) -> bool {
    let Ok(wanted) = <[u8; 4]>::try_from(value) else { return false };
    let (before, after) = (&header[..end - wanted.len()], &header[end..]);
    crc32c([before, &[0; 4], after]) == u32::from_be_bytes(wanted)
}
