//! What of a request a hash goes by.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use model::snapshot::HashKey;
use model::{FieldName, Known, RequestHead};

use crate::hash;
use crate::route::query;

/// One kind of key, compiled.
pub(crate) enum Key {
    Source,
    Header(FieldName),
    Cookie(Box<[u8]>),
    Query(Box<[u8]>),
    Path,
    Uri,
}

impl Key {
    /// Compiles a key. Returns `None` for a header field that no request can have.
    pub(crate) fn new(key: &HashKey) -> Option<Self> {
        Some(match key {
            HashKey::Source => Self::Source,
            HashKey::Header(name) => Self::Header(FieldName::new(name).ok()?),
            HashKey::Cookie(name) => Self::Cookie(name.as_bytes().into()),
            HashKey::Query(name) => Self::Query(name.as_bytes().into()),
            HashKey::Path => Self::Path,
            HashKey::Uri => Self::Uri,
        })
    }

    /// Returns its hash for a request that has it; an empty value counts as none.
    pub(crate) fn of_request(&self, head: &RequestHead, client: IpAddr) -> Option<u64> {
        match self {
            Self::Source => self.of_client(client),
            Self::Uri => Some(uri(head)),
            _ => self.value(head).map(hash::of_bytes),
        }
    }

    /// Returns what of the request it is, if that is one text; an empty one counts as none.
    fn value<'h>(&self, head: &'h RequestHead) -> Option<&'h [u8]> {
        let value = match self {
            Self::Source | Self::Uri => None,
            Self::Header(name) => head.fields.get(name),
            Self::Cookie(name) => head.fields.all_known(Known::Cookie).find_map(|field| query::cookie(field, name)),
            Self::Query(name) => query::parameter(head.query().unwrap_or_default(), name),
            Self::Path => Some(head.path()),
        };
        value.filter(|value| !value.is_empty())
    }

    /// Returns its hash for a client of which nothing but the address is known.
    pub(crate) fn of_client(&self, client: IpAddr) -> Option<u64> {
        let Self::Source = self else { return None };
        Some(match client.to_canonical() {
            IpAddr::V4(address) => hash::of_bytes(&address.octets()),
            IpAddr::V6(address) => hash::of_bytes(&address.octets()),
        })
    }
}

/// Several keys of which the first counts that a request has, for taking turns. No one can make a value that is taken for
/// another's: each key has hashes of its own, and all are seeded.
pub(crate) struct FairKeys(Box<[Key]>);

/// What fair keys are hashed with, known to no one outside.
pub(crate) type FairSeed = [u64; 2];

impl FairKeys {
    pub(crate) fn new(keys: &[HashKey]) -> Self {
        Self(keys.iter().filter_map(Key::new).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn of_request(&self, head: &RequestHead, client: IpAddr, seed: FairSeed) -> Option<u64> {
        self.0.iter().zip(0..).find_map(|(key, place)| match key {
            Key::Source => Some(of_source(place, client, seed)),
            Key::Uri => Some(seeded(place, &[head.path(), head.query().unwrap_or_default()], seed)),
            _ => key.value(head).map(|value| seeded(place, &[value], seed)),
        })
    }

    /// Returns the key of a client of which only the address is known.
    pub(crate) fn of_client(&self, client: IpAddr, seed: FairSeed) -> Option<u64> {
        let place = self.0.iter().position(|key| matches!(key, Key::Source))?;
        Some(of_source(place, client, seed))
    }
}

fn of_source(place: usize, client: IpAddr, seed: FairSeed) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(address) => seeded(place, &[&address.octets()], seed),
        // Who has one address of IPv6 has all of its /64.
        IpAddr::V6(address) => seeded(place, &[&address.octets()[..8]], seed),
    }
}

fn seeded(place: usize, parts: &[&[u8]], seed: FairSeed) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, place, parts).hash(&mut hasher);
    hasher.finish()
}

fn uri(head: &RequestHead) -> u64 {
    let path = hash::of_bytes(head.path());
    head.query().map_or(path, |query| hash::of_bytes(query) ^ path.rotate_left(32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::head;

    const SEED: FairSeed = [3, 4];
    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn hashed(key: HashKey, target: &str, fields: &[(&str, &str)]) -> Option<u64> {
        Key::new(&key).unwrap().of_request(&head("GET", target, fields), CLIENT)
    }

    #[test]
    fn equal_keys_have_equal_hashes_and_others_have_others() {
        let user = || HashKey::Header("x-user".into());
        let of = |value| hashed(user(), "/", &[("X-User", value)]);
        assert_eq!(of("anna"), hashed(user(), "/other?x=1", &[("a", "b"), ("x-user", "anna")]));
        assert_ne!(of("anna"), of("bert"));
        assert_eq!((of(""), hashed(user(), "/", &[])), (None, None));
        let cookie = |value| hashed(HashKey::Cookie("id".into()), "/", &[("cookie", value)]);
        assert_eq!(cookie("a=1; id=7"), cookie("id=7"));
        assert_eq!(cookie("a=1"), None);
        let shop = |target| hashed(HashKey::Query("shop".into()), target, &[]);
        assert_eq!(shop("/a?shop=1&x=2"), shop("/b?shop=1"));
        assert_eq!((shop("/a"), shop("/a?shop")), (None, None));
    }

    #[test]
    fn the_path_leaves_the_query_out_and_the_uri_does_not() {
        let (path, uri) = (|target| hashed(HashKey::Path, target, &[]), |target| hashed(HashKey::Uri, target, &[]));
        assert_eq!(path("/a?1"), path("/a?2"));
        assert_ne!(path("/a"), path("/b"));
        assert_ne!(uri("/a?1"), uri("/a?2"));
        assert_eq!(uri("/a?1"), uri("/a?1"));
        assert_ne!(uri("/a?/a"), uri("/b?/b"));
    }

    #[test]
    fn a_client_is_the_same_by_both_forms_of_its_address() {
        let of = |address: &str| Key::Source.of_client(address.parse().unwrap());
        assert_eq!(of("192.0.2.7"), of("::ffff:192.0.2.7"));
        assert_ne!(of("192.0.2.7"), of("192.0.2.8"));
        assert!(Key::Path.of_client(CLIENT).is_none());
    }

    #[test]
    fn nobody_takes_the_turns_of_another_by_a_value_that_looks_like_his() {
        let keys = FairKeys::new(&[HashKey::Header("x-tenant".into()), HashKey::Source, HashKey::Uri]);
        let of = |fields: &[(&str, &str)], client: &str| {
            keys.of_request(&head("GET", "/a", fields), client.parse().unwrap(), SEED).unwrap()
        };
        assert_ne!(of(&[("x-tenant", "ABCD")], "192.0.2.7"), of(&[], "65.66.67.68"), "the same bytes");
        assert_eq!(of(&[("x-tenant", "ABCD")], "192.0.2.7"), of(&[("x-tenant", "ABCD")], "192.0.2.8"));
        assert_eq!(
            Some(of(&[("x-tenant", "")], "192.0.2.7")),
            keys.of_client(CLIENT, SEED),
            "an empty one counts as none"
        );
        assert_ne!(keys.of_client(CLIENT, SEED), keys.of_client(CLIENT, [3, 5]), "nobody can compute it");
        assert!(FairKeys::new(&[HashKey::Path]).of_client(CLIENT, SEED).is_none());
        let uri = FairKeys::new(&[HashKey::Uri]);
        let uri = |target| uri.of_request(&head("GET", target, &[]), CLIENT, SEED);
        assert_ne!(uri("/a?b"), uri("/ab"));
        assert_eq!(uri("/a?b"), uri("/a?b"));
    }

    #[test]
    fn a_network_of_64_bits_takes_turns_as_one_client() {
        let keys = FairKeys::new(&[HashKey::Source]);
        let of = |address: &str| keys.of_client(address.parse().unwrap(), SEED);
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("192.0.2.7"), of("::ffff:192.0.2.7"));
        assert_ne!(of("192.0.2.7"), of("192.0.2.8"));
    }
}
