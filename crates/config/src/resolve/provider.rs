//! Providers, and the endpoints that they give.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use model::base64;
use model::provider::{FileProvider, HttpProvider, Origin, Place, Provider, ProviderKind, split_url};
use model::snapshot::{Endpoint, EndpointsFrom};

use super::Resolver;
use crate::diagnostic::did_you_mean;
use crate::file;
use crate::tree::Node;

/// Looking more often than this is of no use.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

impl Resolver<'_> {
    pub(super) fn provider(&mut self, name: &str, written: &mut file::Provider) -> Option<Provider> {
        let at = format!("providers/{name}");
        let kind = if let Some(file) = &written.file {
            let path = self.beside(&file.path);
            let interval = self.often(&format!("{at}/file/interval"), file.interval.0);
            ProviderKind::File(FileProvider { path, interval })
        } else if let Some(dns) = &written.dns {
            ProviderKind::Dns(self.dns_provider(&format!("{at}/dns"), dns))
        } else if let Some(etcd) = &written.etcd {
            ProviderKind::Etcd(self.etcd_provider(&format!("{at}/etcd"), etcd))
        } else if let Some(consul) = &written.consul {
            ProviderKind::Consul(self.consul_provider(&format!("{at}/consul"), consul)?.into())
        } else if let Some(docker) = &written.docker {
            ProviderKind::Docker(self.docker_provider(&format!("{at}/docker"), docker)?.into())
        } else {
            ProviderKind::Http(Box::new(self.http_provider(&format!("{at}/http"), written.http.as_ref()?)?))
        };
        Some(Provider { name: name.into(), start_timeout: written.start_timeout.0, kind })
    }

    /// Returns the providers, and what clusters ask of them.
    pub(crate) fn providers_alone(mut self) -> (Vec<Arc<Provider>>, Vec<EndpointsFrom>) {
        let mut asked = Vec::new();
        let providers = self.named("providers", &mut serde_json::Map::new(), Self::provider);
        let tree = self.tree;
        for (name, cluster) in tree.get("clusters").map_or(&[][..], Node::entries) {
            let Some(endpoints) = cluster.get("endpoints") else { continue };
            let Some(from) = endpoints.get("from").and_then(Node::text) else { continue };
            let key = endpoints.get("key").and_then(Node::text).unwrap_or(&name.text);
            asked.push(EndpointsFrom { provider: from.into(), key: key.into() });
        }
        (providers.into_iter().map(Arc::new).collect(), asked)
    }

    fn http_provider(&mut self, at: &str, written: &file::HttpProvider) -> Option<HttpProvider> {
        let Some((is_secure, host, port, path)) = split_url(&written.url) else {
            let message = format!("`{}` is not a URL", written.url);
            let mend = "write it like `https://config.example.com/equipoise.yaml`".to_owned();
            self.report(&format!("{at}/url"), message, Some(mend));
            return None;
        };
        self.host(&format!("{at}/url"), host);
        if !is_secure && !matches!(written.tls, None | Some(file::ClusterTls::Switch(false))) {
            let mend = Some("write `https://`, or leave `tls` out".to_owned());
            let span = self.key_span(at, "tls");
            self.sink.push(span, "`tls` needs `https`", mend);
        }
        let place =
            Place::Host(host.trim_matches(['[', ']']).to_owned(), port.unwrap_or(if is_secure { 443 } else { 80 }));
        let authority = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let origin = Origin {
            place,
            host: authority,
            tls: self.origin_tls(at, is_secure, written.tls.as_ref()),
            timeout: written.timeout.0,
            fields: self.origin_fields(at, &written.headers, written.token.as_ref(), written.basic_auth.as_ref()),
        };
        let interval = self.often(&format!("{at}/interval"), written.interval.0);
        Some(HttpProvider { origin, path: path.to_owned(), interval, size_max: written.size_max.0 })
    }

    /// Resolves TLS towards an origin at an `https` URL.
    pub(super) fn origin_tls(
        &mut self,
        at: &str,
        is_secure: bool,
        written: Option<&file::ClusterTls>,
    ) -> Option<model::snapshot::UpstreamTls> {
        if !is_secure {
            return None;
        }
        Some(match written {
            Some(file::ClusterTls::Settings(tls)) => self.upstream_tls(&format!("{at}/tls"), tls),
            _ => self.upstream_tls(at, &file::ClusterTlsSettings::default()),
        })
    }

    /// Returns the fields of each request to an origin, those by `headers`, `token` and `basic_auth`.
    pub(super) fn origin_fields(
        &mut self,
        at: &str,
        headers: &std::collections::BTreeMap<String, String>,
        token: Option<&file::Secret>,
        basic: Option<&file::BasicAuth>,
    ) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        for (name, value) in headers {
            let path = format!("{at}/headers/{name}");
            self.field_value(&path, value);
            fields.extend(self.field_name(&path, name).map(|name| (name, value.clone())));
        }
        if let (Some(_), Some(_)) = (token, basic) {
            let span = self.key_span(at, "basic_auth");
            self.sink.push(span, "there is already a `token`", Some("leave one of them out".to_owned()));
        }
        if let Some(token) = token.and_then(|token| self.credential(&format!("{at}/token"), token)) {
            fields.push(("authorization".to_owned(), format!("Bearer {token}")));
        }
        if let Some(basic) = basic {
            let password = self.credential(&format!("{at}/basic_auth/password"), &basic.password);
            // RFC 7617 section 2.
            let pair = format!("{}:{}", basic.user, password.unwrap_or_default());
            fields.push(("authorization".to_owned(), format!("Basic {}", base64::encode(pair.as_bytes()))));
        }
        fields
    }

    /// Returns a secret of someone else, however short.
    pub(super) fn credential(&mut self, at: &str, written: &file::Secret) -> Option<String> {
        let (bytes, place) = match written {
            file::Secret::Written(text) => (Arc::from(text.as_bytes()), at.to_owned()),
            file::Secret::File(file) => {
                let place = format!("{at}/file");
                let path = self.beside(&file.file);
                (self.secret_file(&place, &path)?, place)
            }
        };
        let text =
            String::from_utf8(bytes.to_vec()).ok().filter(|text| !text.is_empty() && !text.contains(char::is_control));
        if text.is_none() {
            // The text itself must not be shown.
            let span = self.tree.locate(&place);
            self.sink.push(span, "it is empty, or contains characters that cannot be sent", None);
        }
        text
    }

    pub(super) fn often(&mut self, path: &str, interval: Duration) -> Duration {
        if interval < INTERVAL_MIN {
            self.report(path, "more often than every 10 ms is of no use", None);
        }
        interval
    }

    /// Returns the endpoints that a provider gives for a key, in a tree with nothing else.
    pub(crate) fn given_endpoints(&mut self, key: &str) -> Vec<Endpoint> {
        let tree = self.tree;
        let at = format!("endpoints/{key}");
        let Some(node) = tree.get("endpoints").and_then(|all| all.get(key)) else { return Vec::new() };
        let Some(written) = self.typed::<Vec<file::Endpoint>>(&at, node) else { return Vec::new() };
        for (index, endpoint) in written.iter().enumerate() {
            let (path, address) = match endpoint {
                file::Endpoint::Address(address) => (format!("{at}/{index}"), address),
                file::Endpoint::Settings(settings) => (format!("{at}/{index}/address"), &settings.address),
            };
            if address.parse::<SocketAddr>().is_err() {
                let message = format!("`{address}` is not an address with a port");
                let mend = "host names are not resolved here: write it like `10.0.0.1:8080`".to_owned();
                self.report(&path, message, Some(mend));
            }
        }
        if self.sink.is_empty() { self.endpoints(&at, &written) } else { Vec::new() }
    }

    /// Resolves the provider of a cluster's endpoints.
    pub(super) fn endpoints_from(
        &mut self,
        at: &str,
        cluster: &str,
        written: &file::Endpoints,
    ) -> Option<EndpointsFrom> {
        let file::Endpoints::From(file::EndpointsFrom { from, key }) = written else { return None };
        let tree = self.tree;
        let providers = tree.get("providers").map_or(&[][..], Node::entries);
        if !providers.iter().any(|(key, _)| key.text == **from) {
            let names: Vec<&str> = providers.iter().map(|(key, _)| key.text.as_str()).collect();
            let mend = did_you_mean(from, names).or_else(|| Some("define it under `providers`".to_owned()));
            self.report(&format!("{at}/endpoints/from"), format!("there is no provider `{from}`"), mend);
        }
        let path = if key.is_some() { format!("{at}/endpoints/key") } else { format!("{at}/endpoints") };
        let key: Arc<str> = key.as_deref().unwrap_or(cluster).into();
        if tree.get("providers").and_then(|all| all.get(from)?.get("dns")).is_some() {
            self.dns_key(&path, &key);
        }
        Some(EndpointsFrom { provider: from.as_str().into(), key })
    }
}
