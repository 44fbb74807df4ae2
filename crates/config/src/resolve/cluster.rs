//! Clusters and their endpoints.

use std::collections::HashMap;
use std::num::NonZeroU32;

use model::Address;
use model::fitness::AdminState;
use model::queue::Queue;
use model::snapshot::{
    Cluster, ClusterSettings, Endpoint, Pool, SharedPool, SharedVersion, UpstreamTimeouts, UpstreamTls,
};
use model::status::StatusRange;

use model::retry::Retry;

use super::Resolver;
use super::balance::placement;
use super::socket::CLIENT;
use crate::file;

impl Resolver<'_> {
    pub(super) fn cluster(&mut self, name: &str, written: &file::Cluster) -> Option<Cluster> {
        let at = format!("clusters/{name}");
        let endpoints_from = self.endpoints_from(&at, name, &written.endpoints);
        self.reuse.has_names = false;
        let endpoints = self.endpoints(&format!("{at}/endpoints"), written.endpoints.written());
        let follows_names = self.reuse.has_names && written.resolve == file::Resolve::Ttl;
        if let Some(endpoint) = endpoints.iter().find(|endpoint| endpoint.address.ip().is_none()) {
            self.fit_for_unix(&at, written, &endpoint.name);
        }
        let health_check =
            written.health_check.as_ref().map(|check| self.health_check(&format!("{at}/health_check"), check));
        let tls = match &written.tls {
            None | Some(file::ClusterTls::Switch(false)) => None,
            Some(file::ClusterTls::Switch(true)) => Some(self.upstream_tls(&at, &file::ClusterTlsSettings::default())),
            Some(file::ClusterTls::Settings(tls)) => Some(self.upstream_tls(&format!("{at}/tls"), tls)),
        };
        let settings = ClusterSettings {
            connections_max: smaller(written.connections_max, written.requests_max),
            balance: self.balance(&format!("{at}/balance"), &written.balance),
            spread: self.spread(&at, written),
            health_check,
            fitness: self.fitness(&at, written),
            queue: written.queue.as_ref().map(|queue| {
                let pending_max = written.circuit_breaker.as_ref().and_then(|breaker| breaker.pending_max);
                let requests_max = queue.requests_max.min(pending_max.unwrap_or(u32::MAX));
                Queue { requests_max, ..self.queue(&format!("{at}/queue"), queue) }
            }),
            tls,
            socket: self.cluster_socket(&format!("{at}/socket"), &written.socket),
            proxy_protocol: written
                .proxy_protocol
                .as_ref()
                .map(|sent| self.send_proxy(&format!("{at}/proxy_protocol"), sent)),
            grpc_web: written.grpc_web,
            follows_names,
            pool: self.pool(&at, name, written),
            timeouts: UpstreamTimeouts {
                connect: written.timeouts.connect.0,
                response_head: written.timeouts.response_head.0,
                idle: written.timeouts.idle.0,
                tunnel: written.timeouts.tunnel.map(|tunnel| tunnel.0),
            },
            retry: match &written.retry {
                Some(retry) => self.retry(&format!("{at}/retry"), retry),
                None => Retry::default(),
            },
            resilience: self.resilience(&at, written),
            persistence: self.persistence(&at, written),
        };
        let endpoints_from = endpoints_from.map(Box::new);
        Some(Cluster { name: name.into(), endpoints, endpoints_from, settings: self.reuse.shared(settings) })
    }

    /// Returns which connections are kept. Without reuse there is one for each request.
    fn pool(&mut self, at: &str, name: &str, written: &file::Cluster) -> Pool {
        let (pool, default) = (&written.pool, file::Pool::default());
        let shared = self.shared_pool(at, name, written);
        if pool.reuse {
            return Pool {
                idle_max: pool.idle_max,
                idle_timeout: pool.idle_timeout.0,
                requests_per_connection_max: pool.requests_per_connection_max,
                shared,
            };
        }
        let keys = [
            ("idle_max", pool.idle_max > 0 && pool.idle_max != default.idle_max),
            ("idle_timeout", pool.idle_timeout.0 != default.idle_timeout.0),
            ("requests_per_connection_max", pool.requests_per_connection_max.is_some_and(|max| max > 1)),
            (
                "streams_per_connection_max",
                shared.is_some()
                    && pool.streams_per_connection_max > 1
                    && pool.streams_per_connection_max != default.streams_per_connection_max,
            ),
        ];
        for (key, _) in keys.into_iter().filter(|(_, is_asked)| *is_asked) {
            let span = self.key_span(&format!("{at}/pool"), key);
            let message = format!("`{key}` needs reused connections, and `reuse` is `false`");
            self.sink.push(span, message, Some(format!("leave `{key}` or `reuse` out")));
        }
        Pool {
            idle_max: 0,
            idle_timeout: pool.idle_timeout.0,
            requests_per_connection_max: Some(1),
            shared: shared.map(|shared| SharedPool { streams_max: 1, ..shared }),
        }
    }

    /// Returns what its endpoints speak of HTTP/2 or HTTP/3.
    fn shared_pool(&mut self, at: &str, name: &str, written: &file::Cluster) -> Option<SharedPool> {
        let versions = &written.http_versions;
        for (index, version) in versions.iter().enumerate() {
            let path = format!("{at}/http_versions/{index}");
            if *version == file::HttpVersion::H3 && versions.len() > 1 {
                let message = "versions are negotiated on a TCP connection, and `h3` uses UDP".to_owned();
                self.report(&path, message, Some("write `[h3]` alone, or leave `h3` out".to_owned()));
            } else if versions[..index].contains(version) {
                self.report(&path, "this version is listed twice", None);
            }
        }
        let has_tls = !matches!(written.tls, None | Some(file::ClusterTls::Switch(false)));
        let speaks = |version| versions.contains(&version);
        if speaks(file::HttpVersion::H1) && speaks(file::HttpVersion::H2) && !has_tls {
            let message = format!("without TLS, the HTTP version of cluster `{name}` cannot be negotiated");
            let mend = "write `[h1]` or `[h2]`, whichever they speak, or add `tls: true`".to_owned();
            self.report(&format!("{at}/http_versions"), message, Some(mend));
        }
        let is_http3 = speaks(file::HttpVersion::H3);
        if is_http3 {
            self.fit_for_http3(at, name, (written, has_tls));
        }
        if let (Some(check), [only @ (file::HttpVersion::H2 | file::HttpVersion::H3)]) =
            (&written.health_check, versions.as_slice())
        {
            self.check_fits_version(&format!("{at}/health_check"), name, check, *only);
        }
        let is_shared = is_http3 || speaks(file::HttpVersion::H2);
        let shared = if is_http3 { "h3" } else { "h2" };
        if is_shared && written.proxy_protocol.is_some() {
            let message = format!(
                "`proxy_protocol` names the client of a connection, but with `{shared}`, requests of many clients share \
                 the connections of cluster `{name}`"
            );
            let mend = "write `http_versions: [h1]`, or leave `proxy_protocol` out".to_owned();
            let span = self.key_span(at, "proxy_protocol");
            self.sink.push(span, message, Some(mend));
        }
        if is_shared && written.socket.source_address.as_slice().iter().any(|from| from == CLIENT) {
            let message =
                format!("with `{shared}`, requests of many clients share the connections of cluster `{name}`");
            let mend = "write `http_versions: [h1]`, or another `source_address`".to_owned();
            self.report(&format!("{at}/socket/source_address"), message, Some(mend));
        }
        if !is_shared {
            self.refuse_shared_keys(at, name, written);
            return None;
        }
        Some(SharedPool {
            version: if is_http3 { SharedVersion::Http3 } else { SharedVersion::Http2 },
            is_only: !speaks(file::HttpVersion::H1),
            streams_max: written.pool.streams_per_connection_max,
            ping_interval: written.pool.ping_interval.0,
            ping_timeout: written.pool.ping_timeout.0,
        })
    }

    /// Checks the settings of a cluster that speaks HTTP/3, which is always encrypted and uses UDP.
    fn fit_for_http3(&mut self, at: &str, name: &str, (written, has_tls): (&file::Cluster, bool)) {
        if !has_tls {
            let message = format!("HTTP/3 is always encrypted, and cluster `{name}` has no `tls`");
            self.report(&format!("{at}/http_versions"), message, Some("add `tls: true`".to_owned()));
        }
        let of_tcp = [
            ("fast_open", written.socket.fast_open),
            ("keepalive", written.socket.keepalive.is_some()),
            ("user_timeout", written.socket.user_timeout.is_some()),
        ];
        for (key, _) in of_tcp.into_iter().filter(|(_, is_asked)| *is_asked) {
            let span = self.key_span(&format!("{at}/socket"), key);
            let message = format!("`{key}` is for TCP, and cluster `{name}` speaks HTTP/3 over UDP");
            self.sink.push(span, message, Some("leave it out".to_owned()));
        }
    }

    /// Rejects keys for shared connections. Default values are accepted, because the effective configuration contains every key.
    fn refuse_shared_keys(&mut self, at: &str, name: &str, written: &file::Cluster) {
        if written.grpc_web {
            let span = self.key_span(at, "grpc_web");
            let message = format!("gRPC needs HTTP/2 or HTTP/3, and cluster `{name}` speaks neither");
            self.sink.push(span, message, Some("add `http_versions: [h2]` to the cluster".to_owned()));
        }
        let (pool, default) = (&written.pool, file::Pool::default());
        let keys = [
            ("streams_per_connection_max", pool.streams_per_connection_max != default.streams_per_connection_max),
            ("ping_interval", pool.ping_interval != default.ping_interval),
            ("ping_timeout", pool.ping_timeout != default.ping_timeout),
        ];
        for (key, _) in keys.into_iter().filter(|(_, is_asked)| *is_asked) {
            let span = self.key_span(&format!("{at}/pool"), key);
            let message = format!("`{key}` is for HTTP/2 and HTTP/3, and cluster `{name}` speaks neither");
            let mend = "add `http_versions: [h2]` to the cluster, or leave it out".to_owned();
            self.sink.push(span, message, Some(mend));
        }
    }

    /// Looks for what cannot be done with an endpoint at a Unix socket, which has neither a port nor a host name.
    fn fit_for_unix(&mut self, at: &str, written: &file::Cluster, endpoint: &str) {
        if let Some(check) = &written.health_check {
            self.check_fits_unix(&format!("{at}/health_check"), check, endpoint);
        }
        if let Some(index) = written.http_versions.iter().position(|version| *version == file::HttpVersion::H3) {
            let message = format!("HTTP/3 goes over UDP, and `{endpoint}` is a Unix socket");
            self.report(&format!("{at}/http_versions/{index}"), message, Some("leave `h3` out".to_owned()));
        }
        if written.agent_check.is_some() {
            let message = format!("agents need a port, and `{endpoint}` has none");
            self.report(&format!("{at}/agent_check"), message, Some("leave it out".to_owned()));
        }
        let needs_name = match &written.tls {
            None | Some(file::ClusterTls::Switch(false)) => false,
            Some(file::ClusterTls::Switch(true)) => true,
            Some(file::ClusterTls::Settings(tls)) => tls.server_name.is_none(),
        };
        if needs_name {
            let message = format!("`{endpoint}` has no host name that a certificate could contain");
            let mend = "write `tls: { server_name: NAME }`".to_owned();
            self.report(&format!("{at}/tls"), message, Some(mend));
        }
    }

    pub(super) fn endpoints(&mut self, at: &str, written: &[file::Endpoint]) -> Vec<Endpoint> {
        let mut all = Vec::with_capacity(written.len());
        let mut seen: HashMap<Address, &str> = HashMap::new();
        for (index, endpoint) in written.iter().enumerate() {
            let (path, name, weight, connections_max) = match endpoint {
                file::Endpoint::Address(address) => (format!("{at}/{index}"), address, 1, None),
                file::Endpoint::Settings(settings) => {
                    let path = format!("{at}/{index}/address");
                    let places = smaller(settings.connections_max, settings.requests_max);
                    (path, &settings.address, settings.weight, places)
                }
            };
            let (state, agent_port, queue_max) = match endpoint {
                file::Endpoint::Address(_) => (AdminState::Auto, None, None),
                file::Endpoint::Settings(settings) => {
                    (settings.state.into(), settings.agent_port, settings.queue_max.and_then(NonZeroU32::new))
                }
            };
            let Some(address) = self.endpoint_address(&path, name) else { continue };
            if let Some(first) = seen.insert(address.clone(), name) {
                let message = if first == name {
                    format!("the endpoint `{name}` is listed twice")
                } else {
                    format!("`{name}` and `{first}` are the same endpoint, {address}")
                };
                self.report(&path, message, Some("use `weight` to give an endpoint more work".to_owned()));
                continue;
            }
            let (name, placement) = (name.as_str().into(), placement(endpoint).into());
            all.push(Endpoint { name, address, weight, connections_max, queue_max, state, agent_port, placement });
        }
        if !all.is_empty() && all.iter().all(|endpoint| endpoint.weight == 0) {
            self.report(at, "all weights are 0", Some("give at least one endpoint a weight".to_owned()));
        }
        all
    }

    pub(super) fn upstream_tls(&mut self, at: &str, written: &file::ClusterTlsSettings) -> UpstreamTls {
        if let Some(name) = &written.server_name {
            self.host(&format!("{at}/server_name"), name);
        }
        let path = written.authorities.as_ref();
        let authorities = path.and_then(|path| self.authorities(&format!("{at}/authorities"), path));
        let certificate = written.certificate.as_ref();
        UpstreamTls {
            server_name: written.server_name.clone(),
            // Offline, nothing is verified: the authorities of this machine, or none, say nothing about those of another.
            verify: written.verify && !(self.loader.is_offline && authorities.is_none()),
            authorities,
            certificate: certificate
                .and_then(|certificate| self.certificate(&format!("{at}/certificate"), certificate)),
        }
    }
}

/// Returns the smaller of two bounds.
pub(crate) fn smaller(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    one.into_iter().chain(other).min()
}

/// Returns the statuses that a number, a class such as `5xx` or a range such as `502-504` stands for.
pub(super) fn status_range(text: &str) -> Option<(u16, u16)> {
    text.parse::<StatusRange>().ok().map(|range| (range.first(), range.last()))
}

impl std::fmt::Display for file::Statuses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::One(status) => write!(f, "{status}"),
            Self::Range(text) => f.write_str(text),
        }
    }
}
