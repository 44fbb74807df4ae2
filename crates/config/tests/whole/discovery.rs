//! Providers that find endpoints in the registries of others, as they may be written.

use std::time::Duration;

use model::provider::{Place, ProviderKind};

use crate::support::{load, messages};

fn with(provider: &str, endpoints: &str) -> String {
    format!("version: 1\nproviders:\n  p:\n    {provider}\nclusters:\n  a: {{ endpoints: {endpoints} }}\n")
}

fn kind(provider: &str) -> ProviderKind {
    match load(&with(provider, "{ from: p, key: 'a.example:80' }")) {
        Ok(loaded) => loaded.snapshot.providers[0].kind.clone(),
        Err(diagnostics) => panic!("{diagnostics}"),
    }
}

fn told(provider: &str) -> Vec<String> {
    messages(&with(provider, "{ from: p, key: 'a.example:80' }"))
}

#[test]
fn names_are_asked_of_the_system_unless_others_are_said() {
    let ProviderKind::Dns(dns) = kind("dns: {}") else { panic!("another kind") };
    assert!(dns.resolvers.is_empty() && dns.ipv4 && dns.ipv6);
    assert_eq!((dns.ttl_min, dns.ttl_max), (Duration::from_secs(1), Duration::from_secs(300)));
    let ProviderKind::Dns(dns) = kind("dns: { resolvers: [10.0.0.2, '[::1]:5353', '::1'], families: [ipv6] }") else {
        panic!("another kind");
    };
    let resolvers = ["10.0.0.2:53", "[::1]:5353", "[::1]:53"].map(|address| address.parse().unwrap());
    assert_eq!((dns.resolvers, dns.ipv4, dns.ipv6), (resolvers.to_vec(), false, true));
}

#[test]
fn mistakes_of_dns_are_told() {
    for (line, message) in [
        (
            "dns: { resolvers: [ns.example] }",
            "4: `ns.example` is not an address (write it like `10.0.0.2` or `10.0.0.2:5353`: host names are not resolved here)",
        ),
        ("dns: { resolvers: [10.0.0.2, '10.0.0.2:53'] }", "4: this resolver is listed twice"),
        ("dns: { resolvers: ['10.0.0.2:0'] }", "4: `10.0.0.2:0` has port 0"),
        ("dns: { ttl_min: 2s, ttl_max: 1s }", "4: `ttl_max` is shorter than `ttl_min`"),
        ("dns: { ttl_min: 1ms }", "4: more often than every 10 ms is of no use"),
    ] {
        assert_eq!(told(line), [message]);
    }
}

#[test]
fn keys_that_cannot_be_looked_up_are_told_where_they_stand() {
    let key = |key: &str| messages(&with("dns: {}", &format!("{{ from: p, key: '{key}' }}")));
    let mend = "(write `HOST:PORT`, or the name of SRV records such as `_http._tcp.example.com`)";
    assert_eq!(key("10.0.0.1:80"), [format!("6: `10.0.0.1` is not a name that can be looked up {mend}")]);
    assert_eq!(key("a b"), [format!("6: `a b` is not a name that can be looked up {mend}")]);
    assert_eq!(key("a.example:0"), ["6: `0` is not a port (ports go from 1 to 65535)"]);
    assert!(key("_http._tcp.a.example").is_empty());
    // A cluster without a key asks by its own name.
    assert!(messages(&with("dns: {}", "{ from: p }")).is_empty());
}

#[test]
fn registries_are_reached_by_urls() {
    let ProviderKind::Etcd(etcd) = kind("etcd: { urls: ['http://10.0.0.1:2379', 'https://etcd.example'] }") else {
        panic!("another kind");
    };
    assert_eq!(etcd.origins[0].place, Place::Address("10.0.0.1:2379".parse().unwrap()));
    assert_eq!(etcd.origins[1].place, Place::Host("etcd.example".to_owned(), 443));
    assert!(etcd.origins[0].tls.is_none() && etcd.origins[1].tls.is_some() && etcd.user.is_none());
    assert_eq!(etcd.prefix, "equipoise/");
    let ProviderKind::Consul(consul) = kind("consul: { token: abc }") else { panic!("another kind") };
    assert_eq!(consul.origin.fields, [("x-consul-token".to_owned(), "abc".to_owned())]);
    assert_eq!((consul.origin.host.as_str(), consul.prefix, consul.stale), ("127.0.0.1:8500", None, true));
    let ProviderKind::Docker(docker) = kind("docker: { network: front }") else { panic!("another kind") };
    assert_eq!(docker.origin.place, Place::Address("unix:/var/run/docker.sock".parse().unwrap()));
    assert_eq!((docker.prefix.as_str(), docker.network.as_deref(), docker.all), ("equipoise", Some("front"), false));
}

#[test]
fn mistakes_of_registries_are_told() {
    let url = |url: &str| format!("4: `{url}` is not a URL without a path (write it like `http://10.0.0.2:2379`)");
    assert_eq!(told("etcd: { urls: ['10.0.0.1:2379'] }"), [url("10.0.0.1:2379")]);
    assert_eq!(told("consul: { url: 'http://a/v1' }"), [url("http://a/v1")]);
    assert_eq!(told("docker: { url: 'tcp://a:2375' }"), [url("tcp://a:2375")]);
    assert_eq!(told("consul: { wait: 1h }"), ["4: queries wait for 1 s to 10 min"]);
    assert_eq!(told("docker: { url: 'unix:docker.sock' }").len(), 1);
}
