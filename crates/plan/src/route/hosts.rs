//! Finding what belongs to a host name: exact names, then wildcards, the longest first.

use model::HostPattern;

use crate::hash::FastMap;

/// Longest host that is looked at (RFC 1035 section 3.1 allows 255 bytes on the wire). No pattern fits a longer one.
const HOST_BYTES_MAX: usize = 255;

/// Values by host pattern. A lookup hashes the host once, and once for each of its suffixes that could be a wildcard's.
pub(crate) struct HostMap<T> {
    exact: FastMap<Box<[u8]>, T>,
    suffixes: FastMap<Box<[u8]>, T>,
    suffix_bytes_max: usize,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self { exact: FastMap::default(), suffixes: FastMap::default(), suffix_bytes_max: 0 }
    }
}

impl<T> HostMap<T> {
    /// Adds a pattern, in place of an equal one.
    pub(crate) fn insert(&mut self, pattern: &HostPattern, value: T) {
        match canonical(pattern) {
            HostPattern::Exact(name) => {
                self.exact.insert(name.into_bytes().into(), value);
            }
            HostPattern::Suffix(suffix) => {
                self.suffix_bytes_max = self.suffix_bytes_max.max(suffix.len());
                self.suffixes.insert(suffix.into_bytes().into(), value);
            }
        }
    }

    /// Returns the value of the most specific pattern that fits a [normalised](normalise) host.
    #[inline]
    pub(crate) fn find(&self, host: &[u8]) -> Option<&T> {
        if !self.exact.is_empty()
            && let Some(value) = self.exact.get(host)
        {
            return Some(value);
        }
        if self.suffixes.is_empty() { None } else { self.find_suffix(host) }
    }

    /// Returns the value of the longest wildcard that fits a host. A wildcard stands for one label or more, so that `*.b.c` is asked for
    /// only where something precedes `.b.c`.
    pub(crate) fn find_suffix(&self, host: &[u8]) -> Option<&T> {
        if host.len() > HOST_BYTES_MAX {
            return None;
        }
        let first = host.len().saturating_sub(self.suffix_bytes_max + 1).max(1);
        let mut dots = (first..host.len()).filter(|&at| host[at] == b'.');
        dots.find_map(|at| self.suffixes.get(&host[at + 1..]))
    }

    /// Returns every pattern with its value: the exact ones, then the wildcards by their suffixes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &T)> {
        self.exact.iter().chain(&self.suffixes).map(|(name, value)| (&**name, value))
    }

    /// Returns whether both hold the same patterns, with values that are `equal`.
    pub(crate) fn same_as(&self, other: &Self, equal: impl Fn(&T, &T) -> bool) -> bool {
        let same = |one: &FastMap<Box<[u8]>, T>, two: &FastMap<Box<[u8]>, T>| {
            one.len() == two.len()
                && one.iter().all(|(name, value)| two.get(name).is_some_and(|other| equal(value, other)))
        };
        same(&self.exact, &other.exact) && same(&self.suffixes, &other.suffixes)
    }
}

/// Returns a pattern as it is compared, see [`normalise`].
pub(crate) fn canonical(pattern: &HostPattern) -> HostPattern {
    let plain = |name: &str| name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    match pattern {
        HostPattern::Exact(name) => HostPattern::Exact(plain(name)),
        HostPattern::Suffix(suffix) => HostPattern::Suffix(plain(suffix)),
    }
}

/// Puts `host`, which has no port, into `out` as patterns are compared: lower case, without the dot of the root at its
/// end.
#[inline]
pub(crate) fn normalise(host: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(host.strip_suffix(b".").unwrap_or(host));
    out.make_ascii_lowercase();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(patterns: &[&str]) -> HostMap<String> {
        let mut map = HostMap::default();
        for text in patterns {
            map.insert(&text.parse().unwrap(), (*text).to_owned());
        }
        map
    }

    fn find<'a>(map: &'a HostMap<String>, host: &str) -> Option<&'a str> {
        let mut key = Vec::new();
        normalise(host.as_bytes(), &mut key);
        map.find(&key).map(String::as_str)
    }

    #[test]
    fn an_exact_name_wins_and_then_the_longest_wildcard() {
        let map = map(&["a.example.com", "*.example.com", "*.b.example.com", "*.com"]);
        assert_eq!(find(&map, "A.Example.COM."), Some("a.example.com"));
        assert_eq!(find(&map, "x.b.example.com"), Some("*.b.example.com"));
        assert_eq!(find(&map, "b.example.com"), Some("*.example.com"));
        assert_eq!(find(&map, "example.com"), Some("*.com"));
        assert_eq!(find(&map, "com"), None);
        assert_eq!(find(&map, ".com"), None);
        assert_eq!(find(&map, ""), None);
        assert_eq!(find(&map, "."), None);
    }

    #[test]
    fn a_lookup_agrees_with_the_pattern_itself() {
        let texts = ["a.b", "*.b", "*.a.b", "b", "*.b.", "c.b"];
        let parts = ["a", "b", "c", ".", "..", "a.b"];
        for text in texts {
            let pattern: HostPattern = text.parse().unwrap();
            let map = map(&[text]);
            for one in parts {
                for two in parts {
                    let host = format!("{one}.{two}");
                    let bare = text.strip_suffix('.').unwrap_or(text).parse::<HostPattern>().unwrap();
                    let expected = bare.matches(host.strip_suffix('.').unwrap_or(&host));
                    assert_eq!(find(&map, &host).is_some(), expected, "{pattern} {host}");
                }
            }
        }
    }

    #[test]
    fn an_endless_host_fits_nothing_and_costs_little() {
        let map = map(&["*.com"]);
        assert_eq!(find(&map, &format!("{}.com", "a.".repeat(20_000))), None);
    }
}
