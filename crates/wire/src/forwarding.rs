//! How endpoints learn about the client: `X-Forwarded-*` and `Forwarded` (RFC 7239).
//!
//! A word about the client is believed only from a trusted peer, and only as far back as the chain of trusted proxies
//! reaches. What anyone else says is removed, under any spelling that an endpoint could mistake for it.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use model::fields::{Field, reads_as};
use model::snapshot::Forwarding;
use model::{Cidr, Facts, FieldName, Fields, Known, RequestHead, Scheme};

use crate::text::{push_decimal, trim};

mod told;

pub use told::told_address;

/// Proxies that one chain may name before the search for the client ends.
const HOPS_MAX: usize = 32;

struct Names {
    for_: FieldName,
    proto: FieldName,
    host: FieldName,
    forwarded: FieldName,
}

static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let name = |text| FieldName::new(text).expect("a token");
    Names {
        for_: name("X-Forwarded-For"),
        proto: name("X-Forwarded-Proto"),
        host: name("X-Forwarded-Host"),
        forwarded: name("Forwarded"),
    }
});

/// The client of a request that `peer` sent: `peer` itself, or, if it is trusted, the nearest address in
/// `X-Forwarded-For` (else in `Forwarded`) that is not. Reads from the right, because only the right end was written by
/// proxies we trust; at most 32 hops; at something that is no address it stops and gives the hop that said so.
///
/// A trusted proxy must write `X-Forwarded-For`, or remove it: one that writes only `Forwarded` and passes a client's
/// `X-Forwarded-For` on would let the client choose its address.
pub fn client_address(fields: &Fields, peer: IpAddr, trusted: &[Cidr]) -> IpAddr {
    let peer = peer.to_canonical();
    if !is_trusted(peer, trusted) {
        return peer;
    }
    if fields.has_known(Known::XForwardedFor) {
        let lines = fields.iter().rev().filter(|field| field.known == Known::XForwardedFor);
        walk(peer, trusted, lines.flat_map(|field| field.value.rsplit(|&byte| byte == b',')).map(address))
    } else {
        let lines = fields.iter().rev().filter(|field| field.known == Known::Forwarded);
        walk(peer, trusted, lines.flat_map(|field| QuotedList { rest: Some(field.value) }).map(forwarded_for))
    }
}

/// How the client has reached the proxies before us, if the request came by one that is trusted and says so: in
/// `X-Forwarded-Proto`, of which the last value counts, else in `Forwarded`, as far back as the search for the client's address
/// goes. Where that search goes by `X-Forwarded-For`, the proxy writes that and may pass a client's `Forwarded` on: it is not read.
pub fn client_scheme(fields: &Fields, peer: IpAddr, trusted: &[Cidr]) -> Option<Scheme> {
    if !is_trusted(peer.to_canonical(), trusted) {
        return None;
    }
    if fields.has_known(Known::XForwardedProto) {
        let last = fields.iter().rev().find(|field| field.known == Known::XForwardedProto)?;
        return scheme(last.value.rsplit(|&byte| byte == b',').next()?);
    }
    if fields.has_known(Known::XForwardedFor) {
        return None;
    }
    let mut told = None;
    let lines = fields.iter().rev().filter(|field| field.known == Known::Forwarded);
    for element in lines.flat_map(|field| QuotedList { rest: Some(field.value) }).take(HOPS_MAX) {
        told = parameter(element, b"proto=").and_then(scheme).or(told);
        if !forwarded_for(element).is_some_and(|address| is_trusted(address, trusted)) {
            break;
        }
    }
    told
}

/// Some proxies tell of WebSockets in this way, too.
fn scheme(text: &[u8]) -> Option<Scheme> {
    let is = |name: &[u8]| trim(text).eq_ignore_ascii_case(name);
    if is(b"https") || is(b"wss") {
        Some(Scheme::Https)
    } else if is(b"http") || is(b"ws") {
        Some(Scheme::Http)
    } else {
        None
    }
}

fn is_trusted(address: IpAddr, trusted: &[Cidr]) -> bool {
    trusted.iter().any(|network| network.contains(address))
}

fn walk(peer: IpAddr, trusted: &[Cidr], hops: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
    let mut client = peer;
    for hop in hops.take(HOPS_MAX) {
        match hop {
            Some(address) => client = address,
            None => break,
        }
        if !is_trusted(client, trusted) {
            break;
        }
    }
    client
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(trim(text)).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = match bare.parse::<IpAddr>() {
        Ok(address) => address,
        Err(_) => text.parse::<SocketAddr>().ok()?.ip(),
    };
    Some(address.to_canonical())
}

/// The address in `for=` of one element of `Forwarded` (RFC 7239 section 4). `unknown` and `_hidden` are none.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    parameter(element, b"for=").and_then(address)
}

/// The value of a parameter of one element of `Forwarded`; the sign behind its name is part of `name`. One that stands there twice
/// has none (RFC 7239 section 4 forbids it), and so has every one of an element whose quotes do not close: who reads it from the
/// other end would find another.
fn parameter<'a>(element: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (mut found, mut quoted, mut start) = (None, false, 0);
    for at in 0..=element.len() {
        match element.get(at) {
            Some(b'"') => quoted = !quoted,
            None | Some(b';') if !quoted => {
                if let Some(value) = value_of(&element[start..at], name)
                    && found.replace(value).is_some()
                {
                    return None;
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    found.filter(|_| !quoted)
}

/// The value of a pair, if this is its name.
fn value_of<'a>(pair: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (given, value) = trim(pair).split_at_checked(name.len())?;
    let bare = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value);
    given.eq_ignore_ascii_case(name).then_some(bare)
}

/// Members of a list with quoted strings, the last first. A `\` ends the list: no address needs one, and from the right it
/// cannot be understood.
struct QuotedList<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Iterator for QuotedList<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let mut quoted = false;
        for (at, &byte) in rest.iter().enumerate().rev() {
            match byte {
                b'"' => quoted = !quoted,
                b'\\' => return Some(&[]),
                b',' if !quoted => {
                    self.rest = Some(&rest[..at]);
                    return Some(&rest[at + 1..]);
                }
                _ => {}
            }
        }
        Some(rest)
    }
}

/// Sets the fields that tell endpoints about the client, who has come to the first trusted proxy by `scheme`; that of `facts` is how
/// the peer has come. Allocates nothing once `head` and `scratch` have their working size.
///
/// From a peer that is not trusted, everything that speaks of forwarding is removed: `Forwarded`, `X-Forwarded-*`,
/// `X-Real-IP`, and the same names with another sign for `-`, which CGI-like programs cannot tell apart. From a trusted peer,
/// `X-Forwarded-For` and `Forwarded` are extended by the peer, `X-Forwarded-Proto` and `-Host` are kept if present, and only the
/// other spellings are removed: no proxy writes those, but its client may, and it passes on what it does not know.
/// Kinds that are off are not added, and not touched when they come from a trusted peer.
pub fn apply_forwarding(
    head: &mut RequestHead,
    (facts, scheme): (&Facts<'_>, Scheme),
    forwarding: &Forwarding,
    scratch: &mut Vec<u8>,
) {
    let trusted = is_trusted(facts.peer.ip().to_canonical(), &forwarding.trusted);
    head.fields.retain(|field| !speaks_of_forwarding(field) || trusted && is_spelt_plainly(field));
    if forwarding.x_forwarded {
        if trusted {
            extend_x_forwarded(&mut head.fields, (facts, scheme), scratch);
        } else {
            let (client, scheme) = (facts.client.to_canonical(), facts.scheme.as_str());
            head.fields.append_with(&NAMES.for_, |out| push_address(out, client));
            head.fields.append_with(&NAMES.proto, |out| out.extend_from_slice(scheme.as_bytes()));
            add_host(&mut head.fields, scratch);
        }
    }
    if forwarding.forwarded {
        set_forwarded(&mut head.fields, facts, trusted, scratch);
    }
}

fn speaks_of_forwarding(field: Field<'_>) -> bool {
    match field.known {
        Known::XForwardedFor | Known::XForwardedProto | Known::XForwardedHost | Known::Forwarded => true,
        Known::Other => {
            matches!(field.name, [b'x' | b'X', ..])
                && (begins(field.name, "x-forwarded-") || reads_as(field.name, "x-real-ip"))
        }
        _ => false,
    }
}

/// Whether a field of forwarding has the name that proxies write.
fn is_spelt_plainly(field: Field<'_>) -> bool {
    field.known != Known::Other || field.name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

/// Whether what begins `name` reads as `prefix`.
fn begins(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|beginning| reads_as(beginning, prefix))
}

fn extend_x_forwarded(fields: &mut Fields, (facts, scheme): (&Facts<'_>, Scheme), scratch: &mut Vec<u8>) {
    scratch.clear();
    join(fields, Known::XForwardedFor, scratch);
    if scratch.is_empty() && facts.client != facts.peer.ip() {
        // The peer told us of the client in another way, such as the PROXY protocol.
        push_address(scratch, facts.client.to_canonical());
    }
    push_comma(scratch);
    push_address(scratch, facts.peer.ip().to_canonical());
    fields.set(&NAMES.for_, scratch);
    if !fields.has_known(Known::XForwardedProto) {
        // As far as is known of the client: the peer may have reported it in `Forwarded`.
        fields.append(&NAMES.proto, scheme.as_str().as_bytes());
    }
    if !fields.has_known(Known::XForwardedHost) {
        add_host(fields, scratch);
    }
}

fn add_host(fields: &mut Fields, scratch: &mut Vec<u8>) {
    scratch.clear();
    scratch.extend_from_slice(fields.get_known(Known::Host).unwrap_or_default());
    if !scratch.is_empty() {
        fields.append(&NAMES.host, scratch);
    }
}

/// RFC 7239 section 4: `for=…;host=…;proto=…`. `by` is left out: it would tell endpoints about our own addresses.
fn set_forwarded(fields: &mut Fields, facts: &Facts<'_>, trusted: bool, scratch: &mut Vec<u8>) {
    scratch.clear();
    let mut told = facts.client.to_canonical();
    if trusted {
        join(fields, Known::Forwarded, scratch);
        if !scratch.is_empty() {
            told = facts.peer.ip().to_canonical();
        }
        push_comma(scratch);
    }
    scratch.extend_from_slice(b"for=");
    push_node(scratch, told);
    if let Some(host) = fields.get_known(Known::Host).filter(|host| !host.is_empty()) {
        // Host was checked to hold no quote or backslash; a filter's value may, and then it is left out. So is what would be more
        // than a host to who takes no notice of quotes, though names may hold it (RFC 3986 section 3.2.2).
        if !host.iter().any(|byte| matches!(byte, b'"' | b'\\' | b';' | b',' | b'=')) {
            scratch.extend_from_slice(b";host=\"");
            scratch.extend_from_slice(host);
            scratch.push(b'"');
        }
    }
    scratch.extend_from_slice(b";proto=");
    scratch.extend_from_slice(facts.scheme.as_str().as_bytes());
    fields.set(&NAMES.forwarded, scratch);
}

/// Appends the values of all fields of this kind as one list.
fn join(fields: &Fields, known: Known, out: &mut Vec<u8>) {
    for value in fields.all_known(known).filter(|value| !value.is_empty()) {
        push_comma(out);
        out.extend_from_slice(value);
    }
}

fn push_comma(out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.extend_from_slice(b", ");
    }
}

/// RFC 7239 section 6: an IPv6 address needs brackets, and so in quotes.
fn push_node(out: &mut Vec<u8>, address: IpAddr) {
    if address.is_ipv6() {
        out.extend_from_slice(b"\"[");
        push_address(out, address);
        out.extend_from_slice(b"]\"");
    } else {
        push_address(out, address);
    }
}

fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            for (at, octet) in v4.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                push_decimal(out, u64::from(octet));
            }
        }
        // Writing to a vector cannot fail.
        IpAddr::V6(v6) => drop(write!(out, "{v6}")),
    }
}

#[cfg(test)]
mod tests;
