//! Which bits of an address identify a client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The prefix lengths by which addresses are told apart. A client has many IPv6 addresses of its own: at least 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    v4: u32,
    v6: u128,
}

impl Default for Network {
    fn default() -> Self {
        Self::new(32, 64)
    }
}

impl Network {
    /// Returns what tells addresses apart by their first bits: 1 to 32 of IPv4, 1 to 128 of IPv6. Others are brought into that range.
    pub fn new(v4_bits: u8, v6_bits: u8) -> Self {
        let (v4, v6) = (u32::from(v4_bits.clamp(1, 32)), u32::from(v6_bits.clamp(1, 128)));
        Self { v4: u32::MAX << (32 - v4), v6: u128::MAX << (128 - v6) }
    }

    /// Calls with the bytes of the network of an address: 4 of IPv4, 16 of IPv6.
    #[inline]
    pub fn with<T>(&self, address: IpAddr, call: impl FnOnce(&[u8]) -> T) -> T {
        match self.of(address) {
            IpAddr::V4(address) => call(&address.octets()),
            IpAddr::V6(address) => call(&address.octets()),
        }
    }

    /// Returns the first address of the network of an address. An IPv4 address that is written as one of IPv6 counts as IPv4.
    pub fn of(&self, address: IpAddr) -> IpAddr {
        match address.to_canonical() {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & self.v4).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & self.v6).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_are_one_and_no_length_is_out_of_range() {
        let of = |network: Network, text: &str| network.of(text.parse().unwrap()).to_string();
        let usual = Network::default();
        assert_eq!(of(usual, "192.0.2.7"), "192.0.2.7");
        assert_eq!(of(usual, "::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(of(usual, "2001:db8::1:2:3:4"), "2001:db8::");
        let wide = Network::new(24, 48);
        assert_eq!((of(wide, "192.0.2.7"), of(wide, "2001:db8:1:2::3")), ("192.0.2.0".into(), "2001:db8:1::".into()));
        let (none, all) = (Network::new(0, 0), Network::new(255, 255));
        assert_eq!((of(none, "255.0.0.1"), of(none, "ffff::1")), ("128.0.0.0".into(), "8000::".into()));
        assert_eq!((of(all, "255.0.0.1"), of(all, "ffff::1")), ("255.0.0.1".into(), "ffff::1".into()));
    }
}
