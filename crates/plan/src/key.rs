//! What of a request a hash goes by.

use std::net::IpAddr;

use model::snapshot::HashKey;
use model::{FieldName, Known, RequestHead};

use crate::{hash, query};

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
    /// `None` for a header field that no request can have.
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

    /// Its hash for a request that has it; an empty value counts as none.
    pub(crate) fn of_request(&self, head: &RequestHead, client: IpAddr) -> Option<u64> {
        let value = match self {
            Self::Source => return self.of_client(client),
            Self::Header(name) => head.fields.get(name),
            Self::Cookie(name) => head.fields.all_known(Known::Cookie).find_map(|field| query::cookie(field, name)),
            Self::Query(name) => query::parameter(head.query().unwrap_or_default(), name),
            Self::Path => Some(head.path()),
            Self::Uri => return Some(uri(head)),
        };
        value.filter(|value| !value.is_empty()).map(hash::of_bytes)
    }

    /// Its hash for a client of which nothing but the address is known.
    pub(crate) fn of_client(&self, client: IpAddr) -> Option<u64> {
        let Self::Source = self else { return None };
        Some(match client.to_canonical() {
            IpAddr::V4(address) => hash::of_bytes(&address.octets()),
            IpAddr::V6(address) => hash::of_bytes(&address.octets()),
        })
    }
}

fn uri(head: &RequestHead) -> u64 {
    let path = hash::of_bytes(head.path());
    head.query().map_or(path, |query| hash::of_bytes(query) ^ path.rotate_left(32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::head;

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
}
