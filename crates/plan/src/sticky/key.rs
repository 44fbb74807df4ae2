//! What sessions are known by.

use std::net::IpAddr;

use model::persistence::PrefixLengths;
use model::snapshot::HashKey;
use model::{Address, FieldName, RequestHead, ResponseHead};

use super::table::Begun;
use crate::hash::FastMap;
use crate::route::query;

/// What is looked up in the table.
pub(super) enum Key {
    LearnedCookie(Box<[u8]>),
    LearnedHeader(FieldName),
    Header(FieldName),
    Source(PrefixLengths),
    /// With the places of endpoints by their addresses.
    Rdp(FastMap<Address, u32>),
}

/// What is looked up among labels of endpoints.
pub(super) enum RouteKey {
    Header(FieldName),
    Cookie(Box<[u8]>),
    Query(Box<[u8]>),
}

impl Key {
    /// Returns the key that a request or connection brings: the first, or another of a cookie that comes more than once.
    pub(super) fn of(&self, (head, client): (Option<&RequestHead>, IpAddr), nth: usize, begun: &Begun) -> Option<u64> {
        let value = match (self, head) {
            (Self::LearnedCookie(name), Some(head)) => {
                let mut given = model::cookie::values(&head.fields, name).filter(|value| !value.is_empty());
                given.nth(nth)
            }
            _ if nth > 0 => None,
            (Self::Source(lengths), _) => return Some(begun.key(&masked(client, *lengths).to_be_bytes())),
            (Self::Rdp(_), _) | (_, None) => None,
            (Self::LearnedHeader(name) | Self::Header(name), Some(head)) => head.fields.get(name),
        };
        value.filter(|value| !value.is_empty()).map(|value| begun.key(value))
    }

    /// Returns the key that a response gives to a session.
    pub(super) fn learn(&self, response: &ResponseHead, begun: &Begun) -> Option<u64> {
        let value = match self {
            Self::LearnedCookie(name) => {
                let fields = response.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(b"set-cookie"));
                // Of several the last counts (RFC 6265 section 5.3).
                fields.filter_map(|field| model::cookie::value_set(field.value, name)).next_back()
            }
            Self::LearnedHeader(name) => response.fields.get(name).filter(|value| !value.is_empty()),
            Self::Header(_) | Self::Source(_) | Self::Rdp(_) => None,
        };
        value.map(|value| begun.key(value))
    }

    /// Returns whether keys are given out by responses.
    pub(super) fn is_learned(&self) -> bool {
        matches!(self, Self::LearnedCookie(_) | Self::LearnedHeader(_))
    }
}

/// Returns the bits of an address that count. IPv4 is told from IPv6 by its first bits (RFC 4291 section 2.5.5.2), which stay.
fn masked(client: IpAddr, lengths: PrefixLengths) -> u128 {
    let without = |bits: u32| u128::MAX.checked_shl(bits).unwrap_or(0);
    match client.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()) & without(32 - u32::from(lengths.v4).min(32)),
        IpAddr::V6(address) => u128::from(address) & without(128 - u32::from(lengths.v6).min(128)),
    }
}

impl RouteKey {
    /// Returns `None` for what names no part of a request's head.
    pub(super) fn new(key: &HashKey) -> Option<Self> {
        match key {
            HashKey::Header(name) => FieldName::new(name).ok().map(Self::Header),
            HashKey::Cookie(name) => Some(Self::Cookie(name.as_bytes().into())),
            HashKey::Query(name) => Some(Self::Query(name.as_bytes().into())),
            HashKey::Source | HashKey::Path | HashKey::Uri => None,
        }
    }

    /// Returns the first value, or another of a cookie that comes more than once.
    pub(super) fn of<'a>(&'a self, head: &'a RequestHead, nth: usize) -> Option<&'a [u8]> {
        match self {
            Self::Cookie(name) => model::cookie::values(&head.fields, name).nth(nth),
            _ if nth > 0 => None,
            Self::Header(name) => head.fields.get(name),
            Self::Query(name) => query::parameter(head.query().unwrap_or_default(), name),
        }
    }
}

/// Returns what stands after the last `.`.
pub(super) fn route_of(value: &[u8]) -> &[u8] {
    value.iter().rposition(|&b| b == b'.').map_or(value, |at| &value[at + 1..])
}
