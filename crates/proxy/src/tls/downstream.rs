//! TLS towards clients.

use std::sync::Arc;
use std::time::Duration;

use model::Issue;
use model::facts::TlsFacts;
use model::snapshot::{ClientAuth, ClientTrust, Protocol, TlsTermination, TlsVersion};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, ServerConnection, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;

use super::{Provider, certificates};

const TLS_12_AND_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
const TLS_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// What HTTP/2 over TLS is called in a handshake (RFC 9113 section 3.1).
pub(crate) const ALPN_H2: &[u8] = b"h2";
const ALPN_H1: &[u8] = b"http/1.1";

/// What may be agreed on in a handshake (RFC 7301), what is liked best first.
pub(super) fn protocols(spoken: &Protocol) -> Vec<&'static [u8]> {
    match spoken {
        Protocol::Http(http) => [(http.versions.h2, ALPN_H2), (http.versions.h1, ALPN_H1)]
            .into_iter()
            .filter_map(|(is_spoken, name)| is_spoken.then_some(name))
            .collect(),
        Protocol::Tcp(_) | Protocol::Udp(_) => vec![ALPN_H1],
    }
}

/// What a listener needs to shake hands.
pub(crate) struct ListenerTls {
    pub acceptor: TlsAcceptor,
    pub handshake_timeout: Duration,
    pub identity_header: Option<String>,
    settings: TlsTermination,
    protocols: Vec<&'static [u8]>,
    /// Encrypts session tickets; kept through a change of certificates so that clients resume.
    tickets: Arc<dyn ProducesTickets>,
}

impl ListenerTls {
    pub(super) fn build(
        (settings, protocols): (&TlsTermination, Vec<&'static [u8]>),
        provider: &Provider,
        previous: Option<&Arc<Self>>,
    ) -> Result<Arc<Self>, Vec<Issue>> {
        let is_same = |previous: &&Arc<Self>| previous.settings == *settings && previous.protocols == protocols;
        if let Some(same) = previous.filter(is_same) {
            return Ok(same.clone());
        }
        let names = certificates::ByName::new(&settings.certificates, provider)?;
        let verifier = verifier(&settings.client, provider).map_err(|issue| vec![issue])?;
        // A ticket proves what the handshake that issued it proved: one from before a change of what is asked of clients
        // must not be taken after it.
        let kept = previous.filter(|previous| {
            previous.settings.client == settings.client && previous.settings.version_min == settings.version_min
        });
        let tickets = match kept {
            Some(previous) => previous.tickets.clone(),
            None => rustls::crypto::aws_lc_rs::Ticketer::new().map_err(|error| vec![failed(&error)])?,
        };
        let versions = if settings.version_min == TlsVersion::Tls13 { TLS_13 } else { TLS_12_AND_13 };
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|error| vec![failed(&error)])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(names));
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config.ticketer = tickets.clone();
        // Tickets carry sessions; the library's own store is a lock shared by all workers.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 1;
        Ok(Arc::new(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            handshake_timeout: settings.handshake_timeout,
            identity_header: trust(&settings.client).and_then(|trust| trust.identity_header.clone()),
            settings: settings.clone(),
            protocols,
            tickets,
        }))
    }
}

fn failed(error: &rustls::Error) -> Issue {
    Issue::at("", error.to_string())
}

fn trust(client: &ClientAuth) -> Option<&ClientTrust> {
    match client {
        ClientAuth::Off => None,
        ClientAuth::Optional(trust) | ClientAuth::Required(trust) => Some(trust),
    }
}

fn verifier(client: &ClientAuth, provider: &Provider) -> Result<Arc<dyn ClientCertVerifier>, Issue> {
    let Some(trust) = trust(client) else {
        return Ok(WebPkiClientVerifier::no_client_auth());
    };
    let at = |message| Issue::at("client/authorities", message);
    let roots = certificates::authorities(&trust.authorities).map_err(at)?;
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    if matches!(client, ClientAuth::Optional(_)) {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map_err(|error| at(error.to_string()))
}

/// What the handshake told us.
pub(crate) fn facts_of(connection: &ServerConnection) -> TlsFacts {
    let certificate = connection.peer_certificates().and_then(|chain| chain.first());
    TlsFacts {
        server_name: connection.server_name().map(str::to_owned),
        version: match connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "unknown",
        },
        cipher: connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or("unknown"),
        client_subject: certificate.and_then(certificates::subject),
        client_common_name: certificate.and_then(certificates::common_name),
        alpn: match connection.alpn_protocol() {
            Some(b"http/1.1") => Some("http/1.1"),
            Some(b"h2") => Some("h2"),
            _ => None,
        },
    }
}
