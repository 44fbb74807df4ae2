//! The PROXY protocol.

use std::collections::BTreeMap;

use model::proxy_protocol::{AcceptProxy, SendProxy, Tlvs};

use super::Resolver;
use crate::file;

/// Types for whatever sender and receiver agree on.
const CUSTOM: std::ops::RangeInclusive<u8> = 0xe0..=0xef;
/// Longest value of one's own: with addresses it leaves room for others.
const CUSTOM_BYTES_MAX: usize = 256;
/// Longest that all of them are, each with 3 bytes before it: the rest is for addresses, TLS and a checksum.
const CUSTOM_TOTAL_BYTES_MAX: usize = 300;

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
                    let message = format!("`{key}` has no meaning with version 1, which tells addresses only");
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
                self.report(&format!("{at}/tlvs/{index}"), "this stands here twice", None);
            }
        }
        tlvs.custom = self.custom_tlvs(at, &settings.custom);
        SendProxy::V2(tlvs)
    }

    /// Values of one's own, each with its type.
    fn custom_tlvs(&mut self, at: &str, written: &BTreeMap<String, String>) -> Vec<(u8, Vec<u8>)> {
        let mut custom = Vec::new();
        for (kind, value) in written {
            let path = format!("{at}/custom/{kind}");
            let Some(number) = custom_type(kind) else {
                let span = self.key_span(&format!("{at}/custom"), kind);
                let mend = "types of your own are `0xe0` to `0xef`".to_owned();
                self.sink.push(span, format!("`{kind}` is not a type that can be chosen"), Some(mend));
                continue;
            };
            if value.len() > CUSTOM_BYTES_MAX {
                let message = format!("a value has at most {CUSTOM_BYTES_MAX} bytes, not {}", value.len());
                self.report(&path, message, None);
            } else if custom.iter().any(|(known, _)| *known == number) {
                self.report(&path, format!("the type `{kind}` stands here twice"), None);
            }
            custom.push((number, value.clone().into_bytes()));
        }
        let total: usize = custom.iter().map(|(_, value)| 3 + value.len()).sum();
        let each_fits = custom.iter().all(|(_, value)| value.len() <= CUSTOM_BYTES_MAX);
        if each_fits && total > CUSTOM_TOTAL_BYTES_MAX {
            let message = format!("these values have {total} bytes together, with 3 before each");
            let mend = format!("a header has room for {CUSTOM_TOTAL_BYTES_MAX}");
            let span = self.key_span(at, "custom");
            self.sink.push(span, message, Some(mend));
        }
        custom
    }
}

fn custom_type(text: &str) -> Option<u8> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.ok().filter(|number| CUSTOM.contains(number))
}
