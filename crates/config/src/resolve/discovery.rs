//! Providers that find endpoints and configuration in the registries of others.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use model::Address;
use model::provider::{
    ConsulProvider, DnsProvider, DockerProvider, EtcdProvider, NameLookup, Origin, Place, split_url,
};

use super::Resolver;
use crate::file;

/// The port of resolvers.
const DNS_PORT: u16 = 53;

impl Resolver<'_> {
    pub(super) fn dns_provider(&mut self, at: &str, written: &file::DnsProvider) -> DnsProvider {
        let resolvers = self.resolvers(at, &written.resolvers);
        let ttl_min = self.time_to_live(at, written.ttl_min.0, written.ttl_max.0);
        let has = |family| written.families.contains(&family);
        DnsProvider {
            resolvers,
            ipv4: has(file::Family::Ipv4),
            ipv6: has(file::Family::Ipv6),
            ttl_min,
            ttl_max: written.ttl_max.0,
            timeout: written.timeout.0,
        }
    }

    pub(super) fn name_lookup(&mut self, written: &file::Names) -> NameLookup {
        let resolvers = self.resolvers("names", &written.resolvers);
        let ttl_min = self.time_to_live("names", written.ttl_min.0, written.ttl_max.0);
        let (ttl_max, timeout) = (written.ttl_max.0, written.timeout.0);
        let dns = DnsProvider { resolvers, ipv4: true, ipv6: true, ttl_min, ttl_max, timeout };
        NameLookup { dns, interval: self.often("names/interval", written.interval.0) }
    }

    /// Reads the addresses of DNS servers.
    fn resolvers(&mut self, at: &str, written: &[String]) -> Vec<SocketAddr> {
        let mut resolvers = Vec::new();
        for (index, text) in written.iter().enumerate() {
            let path = format!("{at}/resolvers/{index}");
            let bare = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DNS_PORT));
            match bare.or_else(|_| text.parse::<SocketAddr>()) {
                Ok(address) if resolvers.contains(&address) => {
                    self.report(&path, "this resolver is listed twice", None)
                }
                Ok(address) if address.port() == 0 => self.report(&path, format!("`{text}` has port 0"), None),
                Ok(address) => resolvers.push(address),
                Err(_) => {
                    let mend =
                        "write it like `10.0.0.2` or `10.0.0.2:5353`: host names are not resolved here".to_owned();
                    self.report(&path, format!("`{text}` is not an address"), Some(mend));
                }
            }
        }
        resolvers
    }

    /// Checks the bounds on how long answers hold; gives the lower one.
    fn time_to_live(&mut self, at: &str, min: Duration, max: Duration) -> Duration {
        let min = self.often(&format!("{at}/ttl_min"), min);
        if max < min {
            self.report(&format!("{at}/ttl_max"), "`ttl_max` is shorter than `ttl_min`", None);
        }
        min
    }

    pub(super) fn etcd_provider(&mut self, at: &str, written: &file::EtcdProvider) -> EtcdProvider {
        let mut origins = Vec::new();
        for (index, url) in written.urls.iter().enumerate() {
            let path = format!("{at}/urls/{index}");
            origins.extend(self.registry((at, &path), url, written.tls.as_ref(), written.timeout.0));
        }
        let user = written.basic_auth.as_ref().and_then(|basic| {
            let password = self.credential(&format!("{at}/basic_auth/password"), &basic.password)?;
            Some((basic.user.clone(), password))
        });
        EtcdProvider { origins, prefix: written.prefix.clone(), user }
    }

    pub(super) fn consul_provider(&mut self, at: &str, written: &file::ConsulProvider) -> Option<ConsulProvider> {
        let url = self.registry((at, &format!("{at}/url")), &written.url, written.tls.as_ref(), written.timeout.0);
        let token = written.token.as_ref().and_then(|token| self.credential(&format!("{at}/token"), token));
        // What Consul itself bounds it to.
        if written.wait.0 < Duration::from_secs(1) || written.wait.0 > Duration::from_secs(600) {
            self.report(&format!("{at}/wait"), "queries wait for 1 s to 10 min", None);
        }
        let mut origin = url?;
        origin.fields.extend(token.map(|token| ("x-consul-token".to_owned(), token)));
        Some(ConsulProvider {
            origin,
            datacenter: written.datacenter.clone(),
            namespace: written.namespace.clone(),
            stale: written.stale,
            prefix: written.prefix.clone(),
            wait: written.wait.0,
        })
    }

    pub(super) fn docker_provider(&mut self, at: &str, written: &file::DockerProvider) -> Option<DockerProvider> {
        let path = format!("{at}/url");
        let origin = match written.url.strip_prefix("unix:") {
            Some(rest) => {
                let place = Place::Address(self.unix_path(&path, rest)?);
                let host = "docker".to_owned();
                Origin { place, host, tls: None, timeout: written.timeout.0, fields: Vec::new() }
            }
            None => self.registry((at, &path), &written.url, None, written.timeout.0)?,
        };
        let (prefix, network) = (written.prefix.trim_end_matches('.').to_owned(), written.network.clone());
        Some(DockerProvider { origin, prefix, network, all: written.all })
    }

    /// Resolves a registry that is queried over `http` or `https`, at a URL without a path.
    fn registry(
        &mut self,
        (at, path): (&str, &str),
        url: &str,
        tls: Option<&file::ClusterTls>,
        timeout: Duration,
    ) -> Option<Origin> {
        let Some((is_secure, host, port, "/")) = split_url(url) else {
            let mend = "write it like `http://10.0.0.2:2379`".to_owned();
            self.report(path, format!("`{url}` is not a URL without a path"), Some(mend));
            return None;
        };
        self.host(path, host);
        let authority = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let bare = host.trim_matches(['[', ']']);
        let port = port.unwrap_or(if is_secure { 443 } else { 80 });
        let place = match bare.parse::<IpAddr>() {
            Ok(ip) => Place::Address(Address::Ip(SocketAddr::new(ip, port))),
            Err(_) => Place::Host(bare.to_owned(), port),
        };
        let tls = self.origin_tls(at, is_secure, tls);
        Some(Origin { place, host: authority, tls, timeout, fields: Vec::new() })
    }

    /// Reports a key of a cluster that a DNS provider cannot understand.
    pub(super) fn dns_key(&mut self, path: &str, key: &str) {
        let (name, port) = match key.rsplit_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (key, None),
        };
        if name.parse::<IpAddr>().is_ok() || !super::address::is_host_name(name) {
            let mend = "write `HOST:PORT`, or the name of SRV records such as `_http._tcp.example.com`".to_owned();
            self.report(path, format!("`{name}` is not a name that can be looked up"), Some(mend));
        } else if let Some(port) = port.filter(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
            self.report(path, format!("`{port}` is not a port"), Some("ports go from 1 to 65535".to_owned()));
        }
    }
}
