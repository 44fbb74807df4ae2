//! The PROXY protocol.

use std::collections::BTreeMap;

use model::limits::{PROXY_OWN_TLV_BYTES_MAX, PROXY_OWN_TLVS_BYTES_MAX};
use model::proxy_protocol::{AcceptProxy, OwnTlv, SendProxy, Tlvs};
use model::template::{self, Piece};

use super::Resolver;
use crate::file;

/// Types for whatever sender and receiver agree on.
const CUSTOM: std::ops::RangeInclusive<u8> = 0xe0..=0xef;

impl Resolver<'_> {
    pub(super) fn accept_proxy(&mut self, at: &str, written: &file::AcceptProxy) -> AcceptProxy {
        AcceptProxy {
            from: self.parsed(&format!("{at}/from"), &written.from, false),
            is_required: written.required,
            timeout: written.timeout.0,
        }
    }

    pub(super) fn send_proxy(&mut self, at: &str, written: &file::SendProxy) -> SendProxy {
        let settings = match written {
            file::SendProxy::Version(file::ProxyVersion::V1) => return SendProxy::V1,
            file::SendProxy::Version(file::ProxyVersion::V2) => return SendProxy::V2(Tlvs::default()),
            file::SendProxy::Settings(settings) => settings,
        };
        if settings.version == file::ProxyVersion::V1 {
            for key in ["tlvs", "custom"] {
                if self.has(at, key) {
                    let span = self.key_span(at, key);
                    let message = format!("`{key}` has no effect with version 1, which carries addresses only");
                    self.sink.push(span, message, Some("write `version: v2`".to_owned()));
                }
            }
            return SendProxy::V1;
        }
        let mut tlvs = Tlvs::default();
        for (index, tlv) in settings.tlvs.iter().enumerate() {
            let wanted = match tlv {
                file::ProxyTlv::Alpn => &mut tlvs.alpn,
                file::ProxyTlv::Authority => &mut tlvs.authority,
                file::ProxyTlv::Crc32c => &mut tlvs.checksum,
                file::ProxyTlv::Ssl => &mut tlvs.ssl,
                file::ProxyTlv::UniqueId => &mut tlvs.unique_id,
            };
            if std::mem::replace(wanted, true) {
                self.report(&format!("{at}/tlvs/{index}"), "this is listed twice", None);
            }
        }
        tlvs.custom = self.custom_tlvs(at, &settings.custom);
        SendProxy::V2(tlvs)
    }

    /// Values of the operator's own, each with its type. Of those with variables, what they stand for is bounded when they are sent.
    fn custom_tlvs(&mut self, at: &str, written: &BTreeMap<String, String>) -> Vec<OwnTlv> {
        let mut custom: Vec<OwnTlv> = Vec::new();
        let (mut total, mut each_fits) = (0, true);
        for (key, value) in written {
            let path = format!("{at}/custom/{key}");
            let Some(kind) = custom_type(key) else {
                let span = self.key_span(&format!("{at}/custom"), key);
                let mend = "custom types are `0xe0` to `0xef`".to_owned();
                self.sink.push(span, format!("`{key}` is not a type that can be chosen"), Some(mend));
                continue;
            };
            let length = match literal_bytes(value) {
                Ok(length) => length,
                Err(message) => {
                    self.report(&path, message, None);
                    continue;
                }
            };
            if length > PROXY_OWN_TLV_BYTES_MAX {
                each_fits = false;
                let message = format!("a value has at most {PROXY_OWN_TLV_BYTES_MAX} bytes, not {length}");
                self.report(&path, message, None);
            } else if custom.iter().any(|known| known.kind == kind) {
                self.report(&path, format!("the type `{key}` is listed twice"), None);
            }
            total += 3 + length;
            custom.push(OwnTlv { key: key.clone(), kind, value: value.clone() });
        }
        if each_fits && total > PROXY_OWN_TLVS_BYTES_MAX {
            let message = format!("these values have {total} bytes together, with 3 before each");
            let mend = format!("a header has room for {PROXY_OWN_TLVS_BYTES_MAX}");
            let span = self.key_span(at, "custom");
            self.sink.push(span, message, Some(mend));
        }
        custom
    }
}

/// Returns how long a template is without its variables.
fn literal_bytes(text: &str) -> Result<usize, String> {
    let length = |piece: &Piece| match piece {
        Piece::Literal(text) => text.len(),
        Piece::Variable { .. } => 0,
    };
    Ok(template::parse(text)?.iter().map(length).sum())
}

fn custom_type(text: &str) -> Option<u8> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.ok().filter(|number| CUSTOM.contains(number))
}
