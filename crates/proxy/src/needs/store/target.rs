//! A node of a Redis Cluster, as another node names it.

use std::fmt;
use std::net::IpAddr;

use model::Address;
use model::snapshot::Cluster;
use wire::resp::cluster::Node;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    host: Box<str>,
    port: u16,
}

impl Target {
    /// Returns the node that the one at `asked` has named. `None`: that one means itself, and has no host.
    pub(super) fn of(node: &Node, asked: Option<&Address>) -> Option<Self> {
        let host = match &node.host {
            Some(host) => host.clone(),
            None => asked?.ip()?.ip().to_string().into(),
        };
        Some(Self { host, port: node.port })
    }

    /// Returns its host.
    pub(super) fn host(&self) -> Box<str> {
        self.host.clone()
    }

    /// Returns where to connect: at the endpoint of this name if there is one, or else at the address that it is. Other host names are not
    /// looked up.
    pub(super) fn address(&self, cluster: &Cluster) -> Option<Address> {
        let name = self.to_string();
        let endpoint = cluster.endpoints.iter().find(|endpoint| endpoint.name.as_str() == name);
        let known = endpoint.map(|endpoint| endpoint.address.clone());
        known.or_else(|| Some(std::net::SocketAddr::new(self.host.parse().ok()?, self.port).into()))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse() {
            Ok(IpAddr::V6(host)) => write!(f, "[{host}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_as_endpoints_are_and_means_the_host_that_was_asked_without_one() {
        let node = |host: Option<&str>| Node { host: host.map(Into::into), port: 7 };
        let asked: Address = "[::1]:6379".parse().unwrap();
        let shown = |host, asked: Option<&Address>| Target::of(&node(host), asked).map(|target| target.to_string());
        assert_eq!(shown(Some("10.0.0.1"), None).as_deref(), Some("10.0.0.1:7"));
        assert_eq!(shown(Some("a.test"), None).as_deref(), Some("a.test:7"));
        assert_eq!(shown(None, Some(&asked)).as_deref(), Some("[::1]:7"));
        assert_eq!(shown(None, None), None);
        assert_eq!(shown(None, Some(&"unix:/a".parse().unwrap())), None);
    }
}
