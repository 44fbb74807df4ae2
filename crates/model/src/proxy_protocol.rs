//! The PROXY protocol of haproxy.org: peers that may send a header, and the header that endpoints get.

use std::net::IpAddr;
use std::time::Duration;

use crate::address::Cidr;
use crate::limits::{PROXY_TLV_BYTES_MAX, PROXY_TLVS_BYTES_MAX};

/// Whose headers a listener takes.
#[derive(Clone, Debug, PartialEq)]
pub struct AcceptProxy {
    /// Only what these send is believed; what others send is no header.
    pub from: Vec<Cidr>,
    /// They must send one.
    pub is_required: bool,
    /// Time for it to arrive.
    pub timeout: Duration,
}

impl AcceptProxy {
    /// Returns whether headers of this peer are trusted.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.from.iter().any(|network| network.contains(peer))
    }
}

/// The PROXY header that the endpoints of a cluster get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendProxy {
    /// One line of text.
    V1,
    /// Binary.
    V2(Tlvs),
}

/// What version 2 tells beside addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tlvs {
    /// Application protocol of the client's connection.
    pub alpn: bool,
    /// Host name that the client asked for by TLS SNI.
    pub authority: bool,
    /// The id of the request for which the connection is made.
    pub unique_id: bool,
    /// The client's TLS, with the name in its certificate.
    pub ssl: bool,
    /// A checksum.
    pub checksum: bool,
    /// Values of the operator's own, in the order of their keys.
    pub custom: Vec<OwnTlv>,
}

/// A TLV of the operator's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnTlv {
    /// How its type was written, for messages.
    pub key: String,
    /// From 0xe0 to 0xef.
    pub kind: u8,
    /// A [template](crate::template) of what it holds.
    pub value: String,
}

/// Values of a received header of version 2, bounded by [`PROXY_TLV_BYTES_MAX`] and [`PROXY_TLVS_BYTES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SenderTlvs {
    /// For each its type, its length as two bytes, and its bytes.
    kept: Vec<u8>,
}

impl SenderTlvs {
    /// Keeps a value, unless there is one of its type, or it is beyond the bounds.
    pub fn add(&mut self, kind: u8, value: &[u8]) {
        let total = self.kept.len() + 3 + value.len();
        let Some(length) = u16::try_from(value.len()).ok().filter(|_| value.len() <= PROXY_TLV_BYTES_MAX) else {
            return;
        };
        if total <= PROXY_TLVS_BYTES_MAX && self.get(kind).is_none() {
            self.kept.reserve_exact(3 + value.len());
            self.kept.push(kind);
            self.kept.extend_from_slice(&length.to_be_bytes());
            self.kept.extend_from_slice(value);
        }
    }

    fn get(&self, wanted: u8) -> Option<&[u8]> {
        let mut rest = self.kept.as_slice();
        while let [kind, high, low, after @ ..] = rest {
            let (value, after) = after.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
            if *kind == wanted {
                return Some(value);
            }
            rest = after;
        }
        None
    }

    /// Returns the value of this name if it was sent; it may contain any byte.
    pub fn find(&self, name: TlvName) -> Option<&[u8]> {
        let value = self.get(name.kind)?;
        match name.subtype {
            None => Some(value),
            Some(subtype) => value.strip_prefix(&[subtype]),
        }
    }
}

/// Which value of a received header of version 2 is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlvName {
    kind: u8,
    /// The first byte of the value, where it says what follows.
    subtype: Option<u8>,
}

/// Names of values, with their types (section 2.2 of the specification; the last as Amazon defines it).
const TLV_NAMES: [(&str, TlvName); 10] = [
    ("alpn", TlvName { kind: 0x01, subtype: None }),
    ("authority", TlvName { kind: 0x02, subtype: None }),
    ("unique_id", TlvName { kind: 0x05, subtype: None }),
    ("ssl_version", TlvName { kind: 0x21, subtype: None }),
    ("ssl_cn", TlvName { kind: 0x22, subtype: None }),
    ("ssl_cipher", TlvName { kind: 0x23, subtype: None }),
    ("ssl_sig_alg", TlvName { kind: 0x24, subtype: None }),
    ("ssl_key_alg", TlvName { kind: 0x25, subtype: None }),
    ("netns", TlvName { kind: 0x30, subtype: None }),
    ("aws_vpce_id", TlvName { kind: 0xea, subtype: Some(1) }),
];

/// How many names are suggested for one that is unknown.
const NAMES_SUGGESTED: usize = 3;

impl TlvName {
    /// Reads a name such as `authority`, or a type such as `0xea`.
    ///
    /// # Errors
    /// A sentence that says what is wrong, with the nearest names and the page where all are.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some((_, name)) = TLV_NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(*name);
        }
        let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or_default();
        let is_hex = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u8::from_str_radix(digits, 16).ok().filter(|_| is_hex) {
            Some(0x03 | 0x04) => Err(format!("the TLV `{text}` contains a checksum or padding, which is not kept")),
            Some(0x20) => Err(format!(
                "the TLV `{text}` holds others: write `ssl_version`, `ssl_cn`, `ssl_cipher`, `ssl_sig_alg` or `ssl_key_alg`"
            )),
            Some(kind) => Ok(Self { kind, subtype: None }),
            None => {
                let mut names: Vec<&str> = Self::names().collect();
                let likeness = |name: &str| strsim::jaro_winkler(text, name);
                names.sort_by(|one, other| likeness(other).total_cmp(&likeness(one)));
                let near = names[..NAMES_SUGGESTED].join("`, `");
                Err(format!(
                    "there is no TLV `{text}`: write a name such as `{near}`, or a type such as `0xea`; all are in \
                     docs/guides/client-addresses.md"
                ))
            }
        }
    }

    /// Returns the known names; types by number are accepted as well.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        TLV_NAMES.iter().map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(tlvs: &'a SenderTlvs, name: &str) -> Option<&'a [u8]> {
        tlvs.find(TlvName::parse(name).unwrap())
    }

    #[test]
    fn values_are_found_by_name_and_by_type_and_the_first_of_a_type_counts() {
        let mut tlvs = SenderTlvs::default();
        for (kind, value) in [(2, &b"shop"[..]), (0xea, b"\x01vpce-1"), (2, b"other"), (0xe0, b"")] {
            tlvs.add(kind, value);
        }
        assert_eq!(found(&tlvs, "authority"), Some(&b"shop"[..]));
        assert_eq!(found(&tlvs, "aws_vpce_id"), Some(&b"vpce-1"[..]));
        assert_eq!(found(&tlvs, "0xEA"), Some(&b"\x01vpce-1"[..]));
        assert_eq!(found(&tlvs, "0xe0"), Some(&b""[..]));
        assert_eq!((found(&tlvs, "alpn"), found(&tlvs, "0xe1")), (None, None));
        let mut other = SenderTlvs::default();
        other.add(0xea, b"\x02vpce-1");
        assert_eq!(found(&other, "aws_vpce_id"), None);
    }

    #[test]
    fn what_is_kept_is_bounded_by_value_and_as_a_whole() {
        let mut tlvs = SenderTlvs::default();
        tlvs.add(0xe0, &[0; PROXY_TLV_BYTES_MAX + 1]);
        assert_eq!(found(&tlvs, "0xe0"), None);
        for kind in 0..=u8::MAX {
            tlvs.add(kind, &[kind; PROXY_TLV_BYTES_MAX]);
        }
        assert_eq!(tlvs.kept.len(), 3 * (3 + PROXY_TLV_BYTES_MAX));
        tlvs.add(0xff, &[7; 100]);
        assert_eq!(found(&tlvs, "0xff"), Some(&[7; 100][..]), "a short one still fits");
        assert!(tlvs.kept.len() <= PROXY_TLVS_BYTES_MAX);
    }

    #[test]
    fn what_names_no_value_is_refused() {
        for (text, told) in [
            ("", "there is no TLV ``: write a name such as `alpn`, `authority`, `unique_id`, or a type"),
            ("authorty", "there is no TLV `authorty`: write a name such as `authority`, "),
            ("0xg0", "there is no TLV `0xg0`"),
            ("0x+1", "there is no TLV `0x+1`"),
            ("0x1", "there is no TLV `0x1`"),
            ("0x100", "there is no TLV `0x100`"),
            ("0x03", "the TLV `0x03` contains a checksum or padding, which is not kept"),
            ("0x20", "the TLV `0x20` holds others: write `ssl_version`"),
        ] {
            let message = TlvName::parse(text).unwrap_err();
            assert!(message.starts_with(told), "{message}");
        }
    }
}
