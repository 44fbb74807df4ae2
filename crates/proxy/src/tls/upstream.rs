//! TLS towards endpoints.

use std::net::IpAddr;
use std::sync::Arc;

use model::Issue;
use model::snapshot::{ALPN_H1, ALPN_H2, ALPN_H3, Endpoint, HttpVersions, UpstreamTls};
use quinn_proto::crypto::rustls::QuicClientConfig;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;

use super::certificates;
use super::provider::Provider;

/// Sessions of QUIC that are kept to be resumed, by the names of endpoints.
const SESSIONS_MAX: usize = 256;

/// What a cluster needs to shake hands with its endpoints.
pub(crate) struct ClusterTls {
    pub connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
    settings: UpstreamTls,
    versions: HttpVersions,
    /// Where HTTP/3 is spoken: what is agreed on by UDP.
    pub quic: Option<Arc<QuicClientConfig>>,
    /// The same for what HTTP/2 does not serve, where both are spoken: it offers HTTP/1.1 alone.
    http1: Option<Arc<Self>>,
}

impl ClusterTls {
    pub(super) fn build(
        (settings, versions): (&UpstreamTls, HttpVersions),
        provider: &Provider,
        previous: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, Issue> {
        let is_same = |previous: &&Arc<Self>| previous.settings == *settings && previous.versions == versions;
        if let Some(same) = previous.filter(is_same) {
            return Ok(same.clone());
        }
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Issue::at("", error.to_string()))?;
        let builder = if settings.verify {
            builder.with_root_certificates(roots(settings)?)
        } else {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider.clone())))
        };
        let mut config = match &settings.certificate {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let at = |message: String| Issue::at("certificate", message);
                let chain = certificates::chain(&own.chain).map_err(at)?;
                let key = certificates::key(&own.key).map_err(at)?;
                builder.with_client_auth_cert(chain, key).map_err(|error| at(error.to_string()))?
            }
        };
        // The endpoint chooses; HTTP/2 stands first because we would rather speak that where both are spoken.
        let offered = [(versions.h3, ALPN_H3), (versions.h2, ALPN_H2), (versions.h1, ALPN_H1)];
        config.alpn_protocols =
            offered.iter().filter(|(is_spoken, _)| *is_spoken).map(|(_, name)| name.to_vec()).collect();
        let server_name = match &settings.server_name {
            None => None,
            Some(name) => Some(
                ServerName::try_from(name.clone())
                    .map_err(|_| Issue::at("server_name", format!("`{name}` is not a host name")))?,
            ),
        };
        let quic = match versions.h3 {
            false => None,
            true => {
                let mut config = config.clone();
                // Sessions of TCP are not those of QUIC (RFC 9001 section 4.5).
                config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
                let quic = QuicClientConfig::try_from(config).map_err(|error| Issue::at("", error.to_string()))?;
                Some(Arc::new(quic))
            }
        };
        let of = |config: ClientConfig, versions, http1| {
            let connector = TlsConnector::from(Arc::new(config));
            let (server_name, settings, quic) = (server_name.clone(), settings.clone(), quic.clone());
            Arc::new(Self { connector, server_name, settings, versions, quic, http1 })
        };
        let http1 = (versions.h1 && versions.h2).then(|| {
            let mut config = config.clone();
            config.alpn_protocols = vec![ALPN_H1.to_vec()];
            of(config, HttpVersions { h2: false, ..versions }, None)
        });
        Ok(of(config, versions, http1))
    }

    /// Returns what offers nothing but HTTP/1.1.
    pub(crate) fn http1(&self) -> &Self {
        self.http1.as_deref().unwrap_or(self)
    }

    /// Returns the name to ask for and to verify: the configured one, or the host part of the endpoint's name.
    pub(crate) fn name_for(&self, endpoint: &Endpoint) -> Option<ServerName<'static>> {
        self.name_of(&endpoint.name)
    }

    /// The same for what listens at `HOST:PORT`.
    pub(crate) fn name_of(&self, place: &str) -> Option<ServerName<'static>> {
        if let Some(name) = &self.server_name {
            return Some(name.clone());
        }
        let host = place.rsplit_once(':').map_or(place, |(host, _)| host);
        match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            Ok(address) => Some(ServerName::IpAddress(address.into())),
            Err(_) => ServerName::try_from(host.to_owned()).ok(),
        }
    }
}

fn roots(settings: &UpstreamTls) -> Result<RootCertStore, Issue> {
    if let Some(pem) = &settings.authorities {
        return certificates::authorities(pem).map_err(|message| Issue::at("authorities", message));
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(Issue::at("", "this system has no CA certificates to verify endpoints with")
            .suggest("set `authorities` to a file"));
    }
    Ok(roots)
}

/// Takes any certificate, for `verify: false`; signatures are still checked.
#[derive(Debug)]
struct Unverified(Provider);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
