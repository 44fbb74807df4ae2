//! Addresses as configurations name them: places where something listens, networks and host patterns.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// A place where something listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A port of an address of the network.
    Ip(SocketAddr),
    /// A Unix socket: an absolute path, or with `@` first a name in Linux's abstract namespace.
    Unix(Arc<str>),
}

impl Address {
    /// Returns the address in the network, if it is there.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Returns the port, if there is one.
    pub fn port(&self) -> Option<u16> {
        self.ip().map(|address| address.port())
    }

    /// Returns the address, or a loopback address for a Unix socket: its clients are on this machine.
    pub fn or_local(&self) -> SocketAddr {
        self.ip().unwrap_or(SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) => Ok(Self::Unix(path.into())),
            None => text.parse().map(Self::Ip).map_err(|_| format!("`{text}` is not an address with a port")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// A network in CIDR notation (RFC 4632), IPv4 or IPv6. An IPv4-mapped IPv6 address matches as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    network: u128,
    mask: u128,
    v4: bool,
    bits: u8,
}

impl Cidr {
    /// Returns the network of the first `bits` bits of `address`, or `None` if `bits` is longer than the address.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        let (value, v4) = as_bits(address);
        let bits_in_128 = if v4 { bits.checked_add(96)? } else { bits };
        if bits_in_128 > 128 {
            return None;
        }
        let mask = if bits_in_128 == 0 { 0 } else { u128::MAX << (128 - bits_in_128) };
        Some(Self { network: value & mask, mask, v4, bits })
    }

    /// Returns its first and its last address as numbers, in 32 bits for IPv4, in 128 for IPv6.
    pub fn range(&self) -> (u128, u128) {
        let whole = if self.v4 { u128::from(u32::MAX) } else { u128::MAX };
        (self.network & whole, (self.network | !self.mask) & whole)
    }

    /// Returns whether the network is IPv4.
    pub fn is_v4(&self) -> bool {
        self.v4
    }

    /// Returns the length of the prefix.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// Returns whether `address` lies in this network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let (value, v4) = as_bits(address);
        v4 == self.v4 && value & self.mask == self.network
    }
}

/// Who is let in by address. The most specific network that holds an address decides; one that stands in both lists stays out.
#[derive(Clone, Debug, Default, Eq)]
pub struct AddressList {
    /// Networks that are let in.
    pub allowed: Vec<Cidr>,
    /// Networks that stay out.
    pub denied: Vec<Cidr>,
    /// Whether who is in no network is let in.
    pub lets_others_in: bool,
}

/// It may hold a million networks, and with every change of something else it is asked whether it is as it was: mostly it is the
/// very same.
impl PartialEq for AddressList {
    fn eq(&self, other: &Self) -> bool {
        let parts = |list: &Self| (list.lets_others_in, list.allowed.len(), list.denied.len());
        std::ptr::eq(self, other)
            || (parts(self) == parts(other) && self.allowed == other.allowed && self.denied == other.denied)
    }
}

/// Returns the networks of a list with one per line; `#` and `;` start a comment. An error names the line but does not quote it, because
/// the file may be the wrong one and contain secrets.
pub fn listed_networks(text: &str) -> impl Iterator<Item = Result<Cidr, String>> {
    text.lines().zip(1_u32..).filter_map(|(line, number)| {
        let text = line.split(['#', ';']).next().unwrap_or_default().trim();
        let wrong = |_| format!("line {number} is not an address or a network such as 10.0.0.0/8");
        (!text.is_empty()).then(|| text.parse::<Cidr>().map_err(wrong))
    })
}

/// Returns the address as a number; IPv4 is in the last 32 bits.
fn as_bits(address: IpAddr) -> (u128, bool) {
    match address.to_canonical() {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) | (0xffff << 32), true),
        IpAddr::V6(v6) => (v6.to_bits(), false),
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr =
            address.parse().map_err(|_| format!("`{text}` is not an address or a network such as 10.0.0.0/8"))?;
        let whole = if address.to_canonical().is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().map_err(|_| format!("`{bits}` is not a prefix length"))?,
            None => whole,
        };
        // The length is that of the address as it is written.
        let bits = match (address, bits) {
            (IpAddr::V6(_), 96..=128) if whole == 32 && text.contains('/') => bits - 96,
            (IpAddr::V6(_), ..96) if whole == 32 && text.contains('/') => {
                return Err(format!("`{text}` is wider than the IPv4-mapped addresses (write at least /96)"));
            }
            _ => bits,
        };
        Self::new(address, bits).ok_or_else(|| format!("the prefix length of `{text}` is longer than {whole}"))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.v4 {
            write!(f, "{}/{}", std::net::Ipv4Addr::from_bits(self.network as u32), self.bits)
        } else {
            write!(f, "{}/{}", std::net::Ipv6Addr::from_bits(self.network), self.bits)
        }
    }
}

/// A host name to match: exact, or `*.` with a suffix, which stands for one or more labels as in the Kubernetes
/// Gateway API. Always lower case.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostPattern {
    /// This very name.
    Exact(String),
    /// Any name that ends in `.` and this suffix.
    Suffix(String),
}

impl HostPattern {
    /// Returns whether a lower-case host without port matches.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => name == host,
            Self::Suffix(suffix) => {
                host.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
        }
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let (name, wildcard) = match lower.strip_prefix("*.") {
            Some(rest) => (rest, true),
            None => (lower.as_str(), false),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
        if name.is_empty() || name.len() > 253 || name.starts_with('.') || !name.chars().all(plain) {
            return Err(format!("`{text}` is not a host name, nor `*.` followed by one"));
        }
        if name.contains(':') && !name.starts_with('[') {
            return Err(format!("`{text}` must not have a port"));
        }
        Ok(if wildcard { Self::Suffix(name.to_owned()) } else { Self::Exact(name.to_owned()) })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Suffix(suffix) => write!(f, "*.{suffix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_ipv4_mapped_network_counts_from_the_first_bit_of_ipv6() {
        let network: Cidr = "::ffff:10.0.0.0/104".parse().unwrap();
        assert_eq!(network, "10.0.0.0/8".parse().unwrap());
        assert_eq!("::ffff:10.0.0.1".parse::<Cidr>().unwrap(), "10.0.0.1/32".parse().unwrap());
        assert!("::ffff:10.0.0.0/16".parse::<Cidr>().unwrap_err().contains("/96"));
        assert!("::ffff:10.0.0.0/129".parse::<Cidr>().is_err());
    }

    #[test]
    fn a_network_contains_its_addresses_and_no_others() {
        let ten: Cidr = "10.0.0.0/8".parse().unwrap();
        assert!(ten.contains("10.255.1.2".parse().unwrap()));
        assert!(ten.contains("::ffff:10.1.1.1".parse().unwrap()));
        assert!(!ten.contains("11.0.0.1".parse().unwrap()));
        assert!(!ten.contains("::1".parse().unwrap()));
        let all: Cidr = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains("255.1.2.3".parse().unwrap()));
        assert!(!all.contains("2001:db8::1".parse().unwrap()));
        let v6: Cidr = "2001:db8::/32".parse().unwrap();
        assert!(v6.contains("2001:db8:1::1".parse().unwrap()));
        assert_eq!("10.0.0.0/8", ten.to_string());
    }

    #[test]
    fn a_bad_network_says_what_is_wrong() {
        for bad in ["10.0.0.0/33", "::/129", "x/8", "10.0.0.0/-1", "", "10.0.0.0/256"] {
            assert!(bad.parse::<Cidr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_list_has_remarks_and_tells_the_line_of_a_mistake() {
        let text = "# office\n10.0.0.0/8\r\n\n  192.0.2.7 ; a neighbour\n\thome\n";
        let read: Vec<_> = listed_networks(text).map(|network| network.map(|network| network.to_string())).collect();
        let wrong = "line 5 is not an address or a network such as 10.0.0.0/8".to_owned();
        assert_eq!(read, [Ok("10.0.0.0/8".to_owned()), Ok("192.0.2.7/32".to_owned()), Err(wrong)]);
        assert_eq!(listed_networks("").count(), 0);
    }

    #[test]
    fn a_wildcard_stands_for_one_or_more_labels_but_not_for_none() {
        let pattern: HostPattern = "*.Example.com".parse().unwrap();
        assert!(pattern.matches("a.example.com"));
        assert!(pattern.matches("a.b.example.com"));
        assert!(!pattern.matches("example.com"));
        assert!(!pattern.matches(".example.com"));
        assert!(!pattern.matches("badexample.com"));
        for bad in ["", "*", "*.", "a b", "x*.com", "a.com:80", ".com"] {
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
        }
    }
}
