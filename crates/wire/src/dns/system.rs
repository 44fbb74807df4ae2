//! The name resolution settings of a machine: `resolv.conf` (resolv.conf(5)) and `hosts` (hosts(5)), as texts.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::name::Name;

/// The port of resolvers.
pub const PORT: u16 = 53;
/// Resolvers that are asked, as in the C library.
const RESOLVERS_MAX: usize = 3;
/// Names that are tried behind a short one.
const SEARCH_MAX: usize = 16;

/// What `resolv.conf` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolving {
    /// Where to ask, in order; at least one.
    pub resolvers: Vec<SocketAddr>,
    /// What is put behind names that have few dots.
    pub search: Vec<String>,
    /// Names with as many dots are asked for as they are first.
    pub ndots: usize,
    /// For one question to one resolver.
    pub timeout: Duration,
    /// Rounds over all resolvers.
    pub attempts: u32,
    /// Ask by TCP only.
    pub only_tcp: bool,
}

impl Default for Resolving {
    fn default() -> Self {
        Self {
            resolvers: vec![SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), PORT)],
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
            only_tcp: false,
        }
    }
}

impl Resolving {
    /// Reads a `resolv.conf`. What is not understood says nothing.
    pub fn parse(text: &str) -> Self {
        let mut found = Self { resolvers: Vec::new(), ..Self::default() };
        for line in text.lines() {
            let mut words = line.split(['#', ';']).next().unwrap_or_default().split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    found.resolvers.extend(address.map(|ip| SocketAddr::new(ip, PORT)));
                }
                // The last of these lines counts.
                Some("search") => found.search = words.take(SEARCH_MAX).map(str::to_owned).collect(),
                Some("domain") => found.search = words.take(1).map(str::to_owned).collect(),
                Some("options") => words.for_each(|word| found.take_option(word)),
                _ => {}
            }
        }
        found.resolvers.truncate(RESOLVERS_MAX);
        found.search.retain(|suffix| Name::parse(suffix).is_some());
        if found.resolvers.is_empty() {
            found.resolvers = Self::default().resolvers;
        }
        found
    }

    fn take_option(&mut self, word: &str) {
        let (name, value) = word.split_once(':').unwrap_or((word, ""));
        // The bounds are those of the C library.
        match (name, value.parse::<u32>()) {
            ("ndots", Ok(dots)) => self.ndots = dots.min(15) as usize,
            ("timeout", Ok(seconds)) => self.timeout = Duration::from_secs(u64::from(seconds.clamp(1, 30))),
            ("attempts", Ok(attempts)) => self.attempts = attempts.clamp(1, 5),
            ("use-vc", _) => self.only_tcp = true,
            _ => {}
        }
    }

    /// The names to ask for, in order: the first that is there is meant. A name with a dot at its end is whole.
    pub fn candidates(&self, text: &str) -> Vec<Name> {
        let whole = Name::parse(text);
        if text.ends_with('.') {
            return whole.into_iter().collect();
        }
        let searched = self.search.iter().filter_map(|suffix| Name::parse(&format!("{text}.{suffix}")));
        let dots = text.bytes().filter(|byte| *byte == b'.').count();
        let mut names: Vec<Name> = if dots >= self.ndots {
            whole.into_iter().chain(searched).collect()
        } else {
            searched.chain(whole).collect()
        };
        let mut seen = Vec::new();
        names.retain(|name| {
            let is_new = !seen.contains(name);
            seen.push(name.clone());
            is_new
        });
        names
    }
}

/// The addresses that a `hosts` file has for a name, sorted, each once. `None`: it does not know the name.
pub fn hosts(text: &str, name: &Name) -> Option<Vec<IpAddr>> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse::<IpAddr>().ok()) else { continue };
        if words.any(|word| Name::parse(word).as_ref() == Some(name)) {
            found.push(address);
        }
    }
    found.sort();
    found.dedup();
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(resolving: &Resolving, text: &str) -> Vec<String> {
        resolving.candidates(text).iter().map(Name::to_string).collect()
    }

    #[test]
    fn a_resolv_conf_says_whom_to_ask_and_how() {
        let text = "# made by a script\nnameserver 10.0.0.1\nnameserver ::1 ; here\nnameserver fe80::1%eth0\nnameserver x\n\
            domain old.example\nsearch a.example  b.example\noptions ndots:2 timeout:1 attempts:9 rotate use-vc\n";
        let found = Resolving::parse(text);
        assert_eq!(found.resolvers, ["10.0.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        assert_eq!(found.search, ["a.example", "b.example"]);
        assert_eq!((found.ndots, found.timeout.as_secs(), found.attempts, found.only_tcp), (2, 1, 5, true));
        assert_eq!(Resolving::parse(""), Resolving::default());
        assert_eq!(Resolving::parse("nameserver\noptions ndots:\nsearch ..").resolvers.len(), 1);
    }

    #[test]
    fn names_with_few_dots_are_searched_for_first_and_the_others_last() {
        let resolving =
            Resolving { search: vec!["a.example".into(), "b.example".into()], ndots: 2, ..Default::default() };
        assert_eq!(names(&resolving, "web"), ["web.a.example", "web.b.example", "web"]);
        assert_eq!(names(&resolving, "web.x"), ["web.x.a.example", "web.x.b.example", "web.x"]);
        assert_eq!(names(&resolving, "web.x.y"), ["web.x.y", "web.x.y.a.example", "web.x.y.b.example"]);
        assert_eq!(names(&resolving, "web."), ["web"]);
        assert!(names(&resolving, "").is_empty());
        assert_eq!(names(&resolving, &format!("{}.b", "a".repeat(64))), [""; 0]);
    }

    #[test]
    fn a_hosts_file_knows_names_and_their_aliases() {
        let text = "127.0.0.1 localhost\n::1 localhost ip6 # web\n\n10.0.0.2\tWeb.example web\n10.0.0.1 web\nx web\n";
        let find = |name: &str| hosts(text, &Name::parse(name).unwrap());
        assert_eq!(find("localhost").unwrap().len(), 2);
        assert_eq!(find("web").unwrap(), ["10.0.0.1".parse::<IpAddr>().unwrap(), "10.0.0.2".parse().unwrap()]);
        assert_eq!(find("web.example").unwrap().len(), 1);
        assert_eq!(find("other"), None);
    }
}
