//! From answers to endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use config::file::EndpointSettings;
use model::limits;
use wire::dns::{Name, Srv};

use super::ask::NotFound;

/// What a key asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Target {
    /// The addresses of a host, with this port.
    Host {
        /// As it was written.
        host: String,
        /// Of all its addresses.
        port: u16,
    },
    /// The places of an SRV name, as it was written.
    Places(String),
}

impl Target {
    /// With a port: addresses; without: places.
    pub(super) fn parse(key: &str) -> Result<Self, String> {
        let (name, port) = match key.rsplit_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (key, None),
        };
        if Name::parse(name).is_none() {
            return Err(format!("`{name}` is not a name"));
        }
        match port {
            None => Ok(Self::Places(name.to_owned())),
            Some(text) => match text.parse() {
                Ok(port) if port > 0 => Ok(Self::Host { host: name.to_owned(), port }),
                _ => Err(format!("`{text}` is not a port")),
            },
        }
    }
}

/// What was answered last about a key: by host the addresses of both families, and places.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(super) places: Vec<Srv>,
    /// What is not there, if nothing is there by the name of the key.
    pub(super) lack: Option<NotFound>,
    addresses: BTreeMap<String, [Vec<IpAddr>; 2]>,
}

impl Answers {
    /// The addresses of a host, IPv4 first.
    pub(crate) fn addresses_of(&mut self, host: &str) -> &mut [Vec<IpAddr>; 2] {
        self.addresses.entry(host.trim_end_matches('.').to_ascii_lowercase()).or_default()
    }

    /// The hosts of all places. The root says that there is none (RFC 2782).
    pub(super) fn hosts(&self) -> BTreeSet<String> {
        self.places.iter().filter(|place| !place.target.is_root()).map(|place| place.target.to_string()).collect()
    }

    /// Forgets hosts that are not these.
    pub(super) fn forget_others(&mut self, hosts: &BTreeSet<String>) {
        self.addresses.retain(|host, _| hosts.contains(host));
    }

    /// The endpoints that this makes: each address and port once, in the order of priority and address.
    pub(super) fn endpoints(&self, target: &Target) -> Vec<EndpointSettings> {
        let mut found: BTreeMap<SocketAddr, EndpointSettings> = BTreeMap::new();
        let addresses = |host: &str| {
            let known = self.addresses.get(&host.trim_end_matches('.').to_ascii_lowercase());
            known.into_iter().flatten().flatten().copied().collect::<Vec<IpAddr>>()
        };
        match target {
            Target::Host { host, port } => {
                for ip in addresses(host) {
                    let address = SocketAddr::new(ip, *port);
                    found.insert(address, EndpointSettings::at(address.to_string()));
                }
            }
            Target::Places(_) => {
                let priorities: BTreeSet<u16> = self.places.iter().map(|place| place.priority).collect();
                // Sorted by priority: the first that has an address keeps it.
                for place in self.places.iter().filter(|place| !place.target.is_root() && place.port > 0) {
                    let level = priorities.iter().position(|priority| *priority == place.priority).unwrap_or(0);
                    for ip in addresses(&place.target.to_string()) {
                        let address = SocketAddr::new(ip, place.port);
                        found.entry(address).or_insert_with(|| {
                            let mut endpoint = EndpointSettings::at(address.to_string());
                            endpoint.priority = (level as u32).min(limits::PRIORITY_MAX);
                            endpoint.weight = self.weight(place);
                            endpoint
                        });
                    }
                }
            }
        }
        let mut all: Vec<EndpointSettings> = found.into_values().collect();
        all.sort_by_key(|endpoint| endpoint.priority);
        all
    }

    /// The weight of a place among those of its priority, in our range. 0 means little work there, and none here: it becomes 1.
    fn weight(&self, place: &Srv) -> u32 {
        let same = self.places.iter().filter(|other| other.priority == place.priority);
        let most = same.map(|other| u32::from(other.weight)).max().unwrap_or(0);
        let weight = u32::from(place.weight);
        let scaled = if most > limits::WEIGHT_MAX { weight * limits::WEIGHT_MAX / most } else { weight };
        scaled.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(priority: u16, weight: u16, port: u16, target: &str) -> Srv {
        let target = if target.is_empty() { Name::default() } else { Name::parse(target).unwrap() };
        Srv { priority, weight, port, target }
    }

    fn shown(answers: &Answers, target: &Target) -> Vec<(String, u32, u32)> {
        let all = answers.endpoints(target);
        all.into_iter().map(|endpoint| (endpoint.address, endpoint.priority, endpoint.weight)).collect()
    }

    #[test]
    fn a_key_with_a_port_means_addresses_and_one_without_places() {
        let host = Target::Host { host: "api.example.com".to_owned(), port: 8080 };
        assert_eq!(Target::parse("api.example.com:8080"), Ok(host));
        assert_eq!(Target::parse("_http._tcp.a"), Ok(Target::Places("_http._tcp.a".to_owned())));
        assert_eq!(Target::parse("a:0"), Err("`0` is not a port".to_owned()));
        assert_eq!(Target::parse("a:b"), Err("`b` is not a port".to_owned()));
        assert_eq!(Target::parse("a..b:1"), Err("`a..b` is not a name".to_owned()));
        assert!(Target::parse("").is_err());
    }

    #[test]
    fn the_order_of_addresses_does_not_matter() {
        let target = Target::parse("A.b:80").unwrap();
        let mut answers = Answers::default();
        answers.addresses_of("a.b.")[0] = vec!["10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap()];
        answers.addresses_of("a.b")[1] = vec!["::1".parse().unwrap()];
        let expected = ["10.0.0.1:80", "10.0.0.2:80", "[::1]:80"].map(|address| (address.to_owned(), 0, 1));
        assert_eq!(shown(&answers, &target), expected);
    }

    #[test]
    fn priorities_become_levels_and_weights_stay_in_range() {
        let target = Target::Places("x".to_owned());
        let mut answers = Answers {
            places: vec![
                place(10, 0, 80, "a.b"),
                place(10, 60_000, 81, "a.b"),
                place(20, 7, 80, "a.b"),
                place(20, 3, 80, "c.b"),
                place(30, 1, 0, "c.b"),
                place(40, 1, 1, ""),
            ],
            ..Answers::default()
        };
        assert_eq!(answers.hosts().into_iter().collect::<Vec<_>>(), ["a.b", "c.b"]);
        answers.addresses_of("a.b")[0] = vec!["10.0.0.1".parse().unwrap()];
        answers.addresses_of("c.b")[0] = vec!["10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap()];
        let expected = [("10.0.0.1:80", 0, 1), ("10.0.0.1:81", 0, 1_000), ("10.0.0.2:80", 1, 3)];
        let expected = expected.map(|(address, priority, weight)| (address.to_owned(), priority, weight));
        assert_eq!(shown(&answers, &target), expected);
        answers.forget_others(&BTreeSet::new());
        assert!(shown(&answers, &target).is_empty());
    }
}
