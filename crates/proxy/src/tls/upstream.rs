//! TLS towards endpoints.

use std::net::IpAddr;
use std::sync::Arc;

use model::Issue;
use model::snapshot::{Endpoint, UpstreamTls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::TlsConnector;

use super::{Provider, certificates};

/// What a cluster needs to shake hands with its endpoints.
pub(crate) struct UpstreamTlsNow {
    pub connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
    settings: UpstreamTls,
}

impl UpstreamTlsNow {
    pub(super) fn build(
        settings: &UpstreamTls,
        provider: &Provider,
        previous: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, Issue> {
        if let Some(same) = previous.filter(|previous| previous.settings == *settings) {
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
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let server_name = match &settings.server_name {
            None => None,
            Some(name) => Some(
                ServerName::try_from(name.clone())
                    .map_err(|_| Issue::at("server_name", format!("`{name}` is not a host name")))?,
            ),
        };
        Ok(Arc::new(Self { connector: TlsConnector::from(Arc::new(config)), server_name, settings: settings.clone() }))
    }

    /// The name to ask for and to verify: the configured one, or the host part of the endpoint's name.
    pub(crate) fn name_for(&self, endpoint: &Endpoint) -> Option<ServerName<'static>> {
        if let Some(name) = &self.server_name {
            return Some(name.clone());
        }
        let host = endpoint.name.rsplit_once(':').map_or(endpoint.name.as_str(), |(host, _)| host);
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
        return Err(Issue::at("", "this system has no certificate authorities to verify endpoints with")
            .suggest("name a file with `authorities`"));
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
