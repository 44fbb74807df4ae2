//! The cookie in the first message of a client of Remote Desktop ([MS-RDPBCGR] section 2.2.1.1, the X.224 Connection Request), read without
//! answering it, so that the connection goes to the endpoint of its session and is passed on untouched.

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddrV4};

/// Longest request: a TPKT header, and an X.224 header whose length has one byte.
pub const REQUEST_BYTES_MAX: usize = 4 + 1 + 254;
/// Bytes of the headers before the cookie.
const HEADERS_BYTES: usize = 4 + 7;

/// What the first bytes of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Possibly the beginning of a request: more bytes are needed. Never so from [`REQUEST_BYTES_MAX`] bytes on.
    NeedMore,
    /// Another protocol, or a request that is malformed.
    NotRdp,
    /// A whole request. It may have no cookie.
    Found(Option<Cookie<'a>>),
}

/// What a client says of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cookie<'a> {
    /// `mstshash`: its user, as typed, often cut to nine characters. Not empty.
    User(&'a [u8]),
    /// `msts`: the host that has its session, as one of the hosts has told it.
    Host(SocketAddrV4),
}

/// Reads the first bytes of a connection. What it says of some bytes it says of any longer input, unless it was [`Request::NeedMore`].
pub fn request(bytes: &[u8]) -> Request<'_> {
    // TPKT (RFC 1006 section 6): version 3, a reserved byte that some clients do not clear, and the length of all.
    match bytes {
        [] => return Request::NeedMore,
        [first, ..] if *first != 3 => return Request::NotRdp,
        _ => {}
    }
    let Some([_, _, high, low, indicator, kind]) = bytes.first_chunk::<6>() else { return Request::NeedMore };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    // X.224 section 13.3: the length of what follows itself, and a Connection Request without credit.
    if length != usize::from(*indicator) + 5 || !(HEADERS_BYTES..=REQUEST_BYTES_MAX).contains(&length) || *kind != 0xe0
    {
        return Request::NotRdp;
    }
    match bytes.get(HEADERS_BYTES..length) {
        Some(rest) => Request::Found(cookie(rest)),
        None => Request::NeedMore,
    }
}

/// Reads `Cookie: NAME=VALUE` and the end of its line. What follows is not looked at.
fn cookie(bytes: &[u8]) -> Option<Cookie<'_>> {
    let rest = bytes.strip_prefix(b"Cookie: ")?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let line = &rest[..end];
    if let Some(user) = line.strip_prefix(b"mstshash=") {
        return (!user.is_empty()).then_some(Cookie::User(user));
    }
    host(line.strip_prefix(b"msts=")?).map(Cookie::Host)
}

/// Reads `3640205228.15629.0000`: the address and the port, each as the number that its bytes are the other way round.
fn host(token: &[u8]) -> Option<SocketAddrV4> {
    let mut parts = std::str::from_utf8(token).ok()?.split('.');
    let (address, port): (u32, u16) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let is_last = parts.next() == Some("0000") && parts.next().is_none();
    is_last.then(|| SocketAddrV4::new(Ipv4Addr::from(address.swap_bytes()), port.swap_bytes()))
}
