//! TLS towards endpoints, as the probes of a cluster need it.
//!
//! The data plane builds its own from the same settings: it also resumes sessions, which a probe must not, since it asks
//! whether a fresh client would get through.

use std::fmt::Display;
use std::sync::Arc;

use model::snapshot::{Certificate, Pem, UpstreamTls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

/// HTTP/2 in the negotiation of protocols (RFC 9113 section 3.2).
pub(crate) const HTTP2: &[u8] = b"h2";
/// HTTP/3 in the same (RFC 9114 section 3.1).
pub(crate) const HTTP3: &[u8] = b"h3";

/// Builds the settings of a client that offers these protocols, if any.
///
/// # Errors
/// Says which of the files is of no use. The data plane refuses such a configuration before it is published, so this
/// is seen only for what differs from machine to machine: the authorities of the system.
pub(crate) fn client(settings: &UpstreamTls, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be set up: {error}"))?;
    let builder = if settings.verify {
        builder.with_root_certificates(authorities(settings.authorities.as_ref())?)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
    };
    let mut config = match &settings.certificate {
        Some(certificate) => {
            let (chain, key) = chain_and_key(certificate)?;
            let path = certificate.chain.path.display();
            builder.with_client_auth_cert(chain, key).map_err(|error| format!("{path}: {error}"))?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// The name that a certificate must bear: the one configured, or the host part of the endpoint's name.
///
/// # Errors
/// Says that it is not a name.
pub(crate) fn name_of(settings: &UpstreamTls, endpoint: &str) -> Result<ServerName<'static>, String> {
    let name = settings.server_name.as_deref().unwrap_or_else(|| host_part(endpoint));
    ServerName::try_from(name.to_owned()).map_err(|_| format!("{name:?} is neither a host name nor an address"))
}

/// `host` of `host:port`, without the brackets of IPv6.
fn host_part(endpoint: &str) -> &str {
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host)
}

pub(crate) fn authorities(given: Option<&Pem>) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    match given {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(&pem.bytes) {
                let certificate = certificate.map_err(|error| at(pem, error))?;
                store.add(certificate).map_err(|error| at(pem, error))?;
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if store.is_empty() {
        return Err("there is no CA to verify certificates with".into());
    }
    Ok(store)
}

pub(crate) fn chain_and_key(
    certificate: &Certificate,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain = CertificateDer::pem_slice_iter(&certificate.chain.bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| at(&certificate.chain, error))?;
    let key = PrivateKeyDer::from_pem_slice(&certificate.key.bytes).map_err(|error| at(&certificate.key, error))?;
    Ok((chain, key))
}

fn at(pem: &Pem, error: impl Display) -> String {
    format!("{}: {error}", pem.path.display())
}

/// Takes any certificate: `verify: false` was asked for. Signatures of the handshake are still checked, so that the
/// endpoint at least holds the key of the certificate that it shows.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(server_name: Option<&str>) -> UpstreamTls {
        UpstreamTls { server_name: server_name.map(str::to_owned), verify: true, authorities: None, certificate: None }
    }

    #[test]
    fn the_verified_name_is_the_configured_one_or_the_host_of_the_endpoint() {
        let of = |name, endpoint| name_of(&settings(name), endpoint).unwrap().to_str().into_owned();
        assert_eq!(of(None, "api.example.com:443"), "api.example.com");
        assert_eq!(of(None, "10.0.0.1:443"), "10.0.0.1");
        assert_eq!(of(None, "[::1]:443"), "::1");
        assert_eq!(of(Some("other.example.com"), "10.0.0.1:443"), "other.example.com");
        assert!(name_of(&settings(Some("not a name")), "a:1").is_err());
    }

    #[test]
    fn authorities_that_hold_no_certificate_are_refused() {
        let empty = Pem { path: "ca.pem".into(), bytes: Arc::from(&b"nothing here"[..]) };
        let refused = client(&UpstreamTls { authorities: Some(empty.clone()), ..settings(None) }, &[]).unwrap_err();
        assert!(refused.contains("no CA"), "{refused}");
        let certificate = Certificate { chain: empty.clone(), key: empty };
        let settings = UpstreamTls { verify: false, certificate: Some(certificate), ..settings(None) };
        assert!(client(&settings, &[]).unwrap_err().starts_with("ca.pem: "));
    }

    #[test]
    fn a_cluster_that_does_not_verify_needs_no_authority() {
        assert!(client(&UpstreamTls { verify: false, ..settings(None) }, &[]).is_ok());
    }
}
