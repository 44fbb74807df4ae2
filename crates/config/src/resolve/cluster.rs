//! Clusters and their endpoints.

use std::collections::HashMap;
use std::net::SocketAddr;

use model::fitness::AdminState;
use model::queue::Queue;
use model::snapshot::{Cluster, Endpoint, Http2Pool, Pool, UpstreamTimeouts, UpstreamTls};

use model::retry::Retry;

use super::Resolver;
use super::balance::placement;
use crate::file;

impl Resolver<'_> {
    pub(super) fn cluster(&mut self, name: &str, written: &mut file::Cluster) -> Option<Cluster> {
        let at = format!("clusters/{name}");
        let endpoints = self.endpoints(&format!("{at}/endpoints"), &written.endpoints);
        let health_check =
            written.health_check.as_ref().map(|check| self.health_check(&format!("{at}/health_check"), check));
        let tls = match &written.tls {
            None | Some(file::ClusterTls::Switch(false)) => None,
            Some(file::ClusterTls::Switch(true)) => Some(self.upstream_tls(&at, &file::ClusterTlsSettings::default())),
            Some(file::ClusterTls::Settings(tls)) => Some(self.upstream_tls(&format!("{at}/tls"), tls)),
        };
        Some(Cluster {
            name: name.into(),
            endpoints,
            connections_max: smaller(written.connections_max, written.requests_max),
            balance: self.balance(&format!("{at}/balance"), &written.balance),
            spread: self.spread(&at, written),
            health_check: health_check.flatten(),
            fitness: self.fitness(&at, written),
            queue: written.queue.as_ref().map(|queue| {
                let pending_max = written.circuit_breaker.as_ref().and_then(|breaker| breaker.pending_max);
                let requests_max = queue.requests_max.min(pending_max.unwrap_or(u32::MAX));
                Queue { requests_max, ..self.queue(&format!("{at}/queue"), queue) }
            }),
            tls,
            proxy_protocol: written
                .proxy_protocol
                .as_ref()
                .map(|sent| self.send_proxy(&format!("{at}/proxy_protocol"), sent)),
            grpc_web: written.grpc_web,
            pool: Pool {
                idle_max: written.pool.idle_max,
                idle_timeout: written.pool.idle_timeout.0,
                requests_per_connection_max: written.pool.requests_per_connection_max,
                http2: self.http2_pool(&at, name, written),
            },
            timeouts: UpstreamTimeouts {
                connect: written.timeouts.connect.0,
                response_head: written.timeouts.response_head.0,
                idle: written.timeouts.idle.0,
            },
            retry: match &written.retry {
                Some(retry) => self.retry(&format!("{at}/retry"), retry),
                None => Retry::default(),
            },
            resilience: self.resilience(&at, written),
            persistence: self.persistence(&at, written),
        })
    }

    /// What its endpoints speak of HTTP/2.
    fn http2_pool(&mut self, at: &str, name: &str, written: &file::Cluster) -> Option<Http2Pool> {
        let versions = &written.http_versions;
        for (index, version) in versions.iter().enumerate() {
            let path = format!("{at}/http_versions/{index}");
            if *version == file::HttpVersion::H3 {
                let message = "`h3` towards endpoints is not available in this version".to_owned();
                self.report(&path, message, Some("write `[h2]`, `[h1]`, or with `tls` `[h1, h2]`".to_owned()));
            } else if versions[..index].contains(version) {
                self.report(&path, "this version stands here twice", None);
            }
        }
        let has_tls = !matches!(written.tls, None | Some(file::ClusterTls::Switch(false)));
        let speaks = |version| versions.contains(&version);
        if speaks(file::HttpVersion::H1) && speaks(file::HttpVersion::H2) && !has_tls {
            let message = format!("without TLS the endpoints of cluster `{name}` cannot choose an HTTP version");
            let mend = "write `[h1]` or `[h2]`, whichever they speak, or add `tls: true`".to_owned();
            self.report(&format!("{at}/http_versions"), message, Some(mend));
        }
        if speaks(file::HttpVersion::H2) && written.proxy_protocol.is_some() {
            let message = format!(
                "`proxy_protocol` says of a connection who its client is, and requests of many clients share those that \
                 cluster `{name}` has by `h2`"
            );
            let mend = "write `http_versions: [h1]`, or leave `proxy_protocol` out".to_owned();
            let span = self.key_span(at, "proxy_protocol");
            self.sink.push(span, message, Some(mend));
        }
        if !speaks(file::HttpVersion::H2) {
            self.refuse_http2_keys(at, name, written);
            return None;
        }
        Some(Http2Pool {
            is_only: !speaks(file::HttpVersion::H1),
            streams_max: written.pool.streams_per_connection_max,
            ping_interval: written.pool.ping_interval.0,
            ping_timeout: written.pool.ping_timeout.0,
        })
    }

    /// What is written as it is by default asks for nothing: the configuration that the program shows has every key.
    fn refuse_http2_keys(&mut self, at: &str, name: &str, written: &file::Cluster) {
        if written.grpc_web {
            let span = self.key_span(at, "grpc_web");
            let message = format!("gRPC needs HTTP/2, which cluster `{name}` does not speak");
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
            let message = format!("`{key}` is for HTTP/2, which cluster `{name}` does not speak");
            let mend = "add `http_versions: [h2]` to the cluster, or leave it out".to_owned();
            self.sink.push(span, message, Some(mend));
        }
    }

    fn endpoints(&mut self, at: &str, written: &[file::Endpoint]) -> Vec<Endpoint> {
        let mut all = Vec::new();
        let mut seen: HashMap<SocketAddr, &str> = HashMap::new();
        for (index, endpoint) in written.iter().enumerate() {
            let (path, name, weight, connections_max) = match endpoint {
                file::Endpoint::Address(address) => (format!("{at}/{index}"), address, 1, None),
                file::Endpoint::Settings(settings) => {
                    let path = format!("{at}/{index}/address");
                    let places = smaller(settings.connections_max, settings.requests_max);
                    (path, &settings.address, settings.weight, places)
                }
            };
            let (state, agent_port) = match endpoint {
                file::Endpoint::Address(_) => (AdminState::Auto, None),
                file::Endpoint::Settings(settings) => (settings.state.into(), settings.agent_port),
            };
            let Some(address) = self.endpoint_address(&path, name) else { continue };
            if let Some(first) = seen.insert(address, name) {
                let message = if first == name {
                    format!("the endpoint `{name}` stands here twice")
                } else {
                    format!("`{name}` and `{first}` are the same endpoint, {address}")
                };
                self.report(&path, message, Some("use `weight` to give an endpoint more work".to_owned()));
                continue;
            }
            let (name, placement) = (name.as_str().into(), placement(endpoint));
            all.push(Endpoint { name, address, weight, connections_max, state, agent_port, placement });
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
        let authorities = written.authorities.as_ref();
        let certificate = written.certificate.as_ref();
        UpstreamTls {
            server_name: written.server_name.clone(),
            verify: written.verify,
            authorities: authorities.and_then(|path| self.authorities(&format!("{at}/authorities"), path)),
            certificate: certificate
                .and_then(|certificate| self.certificate(&format!("{at}/certificate"), certificate)),
        }
    }
}

/// The smaller of two bounds.
fn smaller(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    one.into_iter().chain(other).min()
}

/// The statuses that a number or a range such as `502-504` stands for.
pub(super) fn status_range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last && first >= 100 && last <= 599).then_some((first, last))
}

impl std::fmt::Display for file::Statuses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::One(status) => write!(f, "{status}"),
            Self::Range(text) => f.write_str(text),
        }
    }
}
