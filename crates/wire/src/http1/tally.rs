//! One pass over the fields of a head, which gathers all that framing and connection handling ask of them.

use model::fields::is_token;
use model::{Fields, Known, Version};

use super::framing::{Codings, Length};
use super::target::is_authority;
use crate::text::{list, trim};

/// What the fields of a head say about message and connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) length: Length,
    pub(crate) codings: Codings,
    /// `Connection: close`.
    pub(crate) close: bool,
    /// `Connection: keep-alive`.
    pub(crate) keep_alive: bool,
    /// `Connection: upgrade`.
    pub(crate) upgrade_option: bool,
    /// `Connection` names fields.
    pub(crate) nominates: bool,
    pub(crate) upgrade: Upgrade,
    /// `TE: trailers`.
    pub(crate) trailers: bool,
    pub(crate) hosts: u32,
    pub(crate) host_invalid: bool,
    /// `Expect: 100-continue`.
    pub(crate) expects_continue: bool,
    /// `Expect` with anything else.
    pub(crate) expects_other: bool,
}

/// What `Upgrade` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Upgrade {
    #[default]
    Absent,
    /// A list of protocols that may be passed on.
    Valid,
    /// Malformed, or a protocol that must not be tunnelled.
    Unusable,
}

impl Tally {
    pub(crate) fn of(fields: &Fields) -> Self {
        let mut tally = Self::default();
        for field in fields.iter() {
            match field.known {
                Known::ContentLength => tally.length.add(field.value),
                Known::TransferEncoding => tally.codings.add(field.value),
                Known::Connection => tally.add_connection(field.value),
                Known::Host => {
                    tally.hosts += 1;
                    tally.host_invalid |= !is_authority(field.value);
                }
                Known::Expect => {
                    let known = field.value.eq_ignore_ascii_case(b"100-continue");
                    tally.expects_continue |= known;
                    tally.expects_other |= !known;
                }
                Known::Upgrade => tally.add_upgrade(field.value),
                Known::Te => tally.trailers |= has_trailers(field.value),
                _ => {}
            }
        }
        tally
    }

    /// RFC 9112 section 9.3: whether the connection may carry another message after this one.
    pub(crate) fn persists(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    fn add_connection(&mut self, value: &[u8]) {
        for option in list(value) {
            match option.len() {
                0 => {}
                5 if option.eq_ignore_ascii_case(b"close") => self.close = true,
                10 if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                7 if option.eq_ignore_ascii_case(b"upgrade") => self.upgrade_option = true,
                _ => self.nominates = true,
            }
        }
    }

    /// RFC 9110 section 7.8: `protocol = token ["/" token]`. `h2c` is not passed on: RFC 9113 has dropped it, and a
    /// tunnel of HTTP/2 would carry requests past every route and filter.
    fn add_upgrade(&mut self, value: &[u8]) {
        for protocol in list(value) {
            let mut parts = protocol.splitn(2, |&byte| byte == b'/');
            let usable = parts.all(is_token) && !protocol.eq_ignore_ascii_case(b"h2c");
            if !usable {
                self.upgrade = Upgrade::Unusable;
            } else if self.upgrade == Upgrade::Absent {
                self.upgrade = Upgrade::Valid;
            }
        }
    }
}

/// Whether a `TE` value holds `trailers` (RFC 9110 section 10.1.4).
pub(crate) fn has_trailers(value: &[u8]) -> bool {
    list(value).any(|member| {
        let name = member.split(|&byte| byte == b';').next().unwrap_or_default();
        trim(name).eq_ignore_ascii_case(b"trailers")
    })
}
