//! TLS towards clients.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use model::Issue;
use model::facts::TlsFacts;
use model::limits::{HTTP3_EARLY_WINDOW_BYTES, HTTP3_HANDSHAKES_MAX, HTTP3_INCOMING_BYTES_MAX, HTTP3_SESSIONS_MAX};
use model::snapshot::{ALPN_H3, ClientAuth, ClientTrust, Listener, Route, TlsTermination, TlsVersion};
use quinn_proto::crypto::rustls::QuicServerConfig;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerConnection, WebPkiClientVerifier};
use rustls::server::{ServerSessionMemoryCache, StoresServerSessions};
use rustls::{ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::CertificateDer;
use tokio_rustls::TlsAcceptor;

use super::certificates;
use super::noted::{self, Noted};
use super::provider::Provider;
use super::tickets::{TicketKey, Tickets};

const TLS_12_AND_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
const TLS_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// What a listener needs to shake hands.
pub(crate) struct ListenerTls {
    pub acceptor: TlsAcceptor,
    pub handshake_timeout: Duration,
    pub identity_header: Option<String>,
    settings: TlsTermination,
    protocols: Vec<&'static [u8]>,
    /// Where HTTP/3 is spoken: what clients agree on by UDP.
    pub quic: Option<Arc<quinn_proto::ServerConfig>>,
    quic_settings: Option<QuicSettings>,
    /// Sessions that may begin with a request: each is taken once, which a ticket alone cannot prove (RFC 8446 section 8.1).
    /// `None` where none may: the store is large from the start.
    sessions: Option<Arc<dyn StoresServerSessions>>,
    /// Encrypts session tickets; kept through a change of certificates so that clients resume.
    tickets: Arc<Tickets>,
}

impl ListenerTls {
    pub(super) fn build(
        (settings, protocols, quic_settings): (&TlsTermination, Vec<&'static [u8]>, Option<QuicSettings>),
        provider: &Provider,
        (previous, inherited): (Option<&Arc<Self>>, Option<&TicketHandover>),
    ) -> Result<Arc<Self>, Vec<Issue>> {
        let is_same = |previous: &&Arc<Self>| {
            previous.settings == *settings && previous.protocols == protocols && previous.quic_settings == quic_settings
        };
        if let Some(same) = previous.filter(is_same) {
            return Ok(same.clone());
        }
        let names = Arc::new(certificates::ByName::new(&settings.certificates, provider)?);
        let verifier = verifier(&settings.client, provider).map_err(|issue| vec![issue])?;
        // A ticket proves what the handshake that issued it proved: one from before a change of what is asked of clients
        // must not be taken after it.
        let kept = previous.filter(|previous| {
            previous.settings.client == settings.client && previous.settings.version_min == settings.version_min
        });
        let tickets = match kept {
            Some(previous) => previous.tickets.clone(),
            None => tickets_for(settings, inherited)?,
        };
        let sessions = quic_settings.as_ref().filter(|wanted| wanted.early_data).map(|_| {
            let before = kept.and_then(|previous| previous.sessions.clone());
            before.unwrap_or_else(|| ServerSessionMemoryCache::new(HTTP3_SESSIONS_MAX))
        });
        let versions = if settings.version_min == TlsVersion::Tls13 { TLS_13 } else { TLS_12_AND_13 };
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .map_err(|error| vec![failed(&error)])?
            .with_client_cert_verifier(verifier.clone())
            .with_cert_resolver(names.clone());
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config.ticketer = tickets.clone();
        // Tickets carry sessions; the library's own store is a lock shared by all workers.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 1;
        let quic = match &quic_settings {
            None => None,
            Some(wanted) => {
                let mut config = ServerConfig::builder_with_provider(noted::provider(provider))
                    .with_protocol_versions(TLS_13)
                    .map_err(|error| vec![failed(&error)])?
                    .with_client_cert_verifier(verifier)
                    .with_cert_resolver(names);
                config.alpn_protocols = vec![ALPN_H3.to_vec()];
                config.send_tls13_tickets = 1;
                if let Some(sessions) = &sessions {
                    config.session_storage = Arc::new(noted::Sessions(sessions.clone()));
                    // The only value beside 0 that QUIC knows (RFC 9001 section 4.6.1).
                    config.max_early_data_size = u32::MAX;
                } else {
                    config.ticketer = Arc::new(noted::Tickets(tickets.clone()));
                    config.session_storage = Arc::new(NoServerSessionStorage {});
                }
                Some(wanted.config(config).map_err(|message| vec![Issue::at("", message)])?)
            }
        };
        Ok(Arc::new(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            handshake_timeout: settings.handshake_timeout,
            identity_header: trust(&settings.client).and_then(|trust| trust.identity_header.clone()),
            settings: settings.clone(),
            protocols,
            quic,
            quic_settings,
            sessions,
            tickets,
        }))
    }
}

impl ListenerTls {
    /// Returns the keys of its tickets, for another process.
    pub(super) fn hand_over(&self, listener: &str) -> TicketHandover {
        TicketHandover {
            listener: listener.to_owned(),
            proof: proof_of(&self.settings),
            keys: self.tickets.hand_over(),
        }
    }
}

/// The keys of a listener's tickets, for another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketHandover {
    /// Its name.
    pub listener: String,
    /// A digest of what its tickets prove: they are of use only where the same is asked of clients.
    pub proof: Vec<u8>,
    /// The one that seals comes first.
    pub keys: Vec<TicketKey>,
}

impl TicketHandover {
    fn keys_for(&self, settings: &TlsTermination) -> Option<&[TicketKey]> {
        (self.proof == proof_of(settings)).then_some(&self.keys)
    }
}

/// With the keys of another process, where the same is asked of clients.
fn tickets_for(settings: &TlsTermination, inherited: Option<&TicketHandover>) -> Result<Arc<Tickets>, Vec<Issue>> {
    let keys = inherited.and_then(|tickets| tickets.keys_for(settings)).unwrap_or_default();
    Tickets::new(keys).ok_or_else(|| vec![Issue::at("", "the system has no randomness")])
}

/// Goes by the authorities themselves: a file of the same name and length may hold others.
fn proof_of(settings: &TlsTermination) -> Vec<u8> {
    let mode: &[u8] = match &settings.client {
        ClientAuth::Off => b"off",
        ClientAuth::Optional(_) => b"optional",
        ClientAuth::Required(_) => b"required",
    };
    let version_min: &[u8] = match settings.version_min {
        TlsVersion::Tls12 => b"1.2",
        TlsVersion::Tls13 => b"1.3",
    };
    let header = trust(&settings.client).and_then(|trust| trust.identity_header.as_deref()).unwrap_or_default();
    let authorities = trust(&settings.client).map_or(&[][..], |trust| &trust.authorities.bytes[..]);
    let mut digest = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    for part in [mode, version_min, header.as_bytes(), authorities] {
        // With its length before it, so that no part can take the place of another.
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finish().as_ref().to_vec()
}

/// What of a listener decides how clients agree on HTTP/3.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QuicSettings {
    /// Longest silence of a connection.
    pub idle_timeout: Duration,
    /// Requests may come before a handshake is over.
    pub early_data: bool,
}

impl QuicSettings {
    /// Those of a listener that speaks HTTP/3.
    pub(super) fn of(listener: &Listener, routes: &[Arc<Route>]) -> Option<Self> {
        let http = listener.protocol.http()?;
        let is_reached = |route: &Arc<Route>| route.listeners.is_empty() || route.listeners.contains(&listener.name);
        // Who a client is that shows a certificate, only its handshake proves.
        let asks_nobody = listener.tls.as_ref().is_some_and(|tls| tls.client == ClientAuth::Off);
        let early_data = asks_nobody && routes.iter().any(|route| route.early_data && is_reached(route));
        http.versions.h3.then_some(Self { idle_timeout: http.idle_timeout, early_data })
    }

    fn config(&self, tls: ServerConfig) -> Result<Arc<quinn_proto::ServerConfig>, String> {
        let crypto = QuicServerConfig::try_from(tls).map_err(|error| error.to_string())?;
        let mut transport = crate::http3::transport::transport(self.idle_timeout);
        if self.early_data {
            transport.receive_window(HTTP3_EARLY_WINDOW_BYTES.into());
        }
        let mut config = quinn_proto::ServerConfig::new(Arc::new(crypto), token_key());
        config
            .transport_config(Arc::new(transport))
            .max_incoming(HTTP3_HANDSHAKES_MAX)
            .incoming_buffer_size(HTTP3_INCOMING_BYTES_MAX);
        Ok(Arc::new(config))
    }
}

/// What clients prove with that they are where they say (RFC 9000 section 8.1.4); the process that follows has the same.
static TOKEN_SECRET: OnceLock<[u8; TOKEN_SECRET_BYTES]> = OnceLock::new();
const TOKEN_SECRET_BYTES: usize = 64;

/// Has this process make and take the tokens of another; before it makes any.
pub(crate) fn set_token_secret(secret: &[u8]) {
    if let Ok(secret) = secret.try_into() {
        // Set once, at the start.
        let _ = TOKEN_SECRET.set(secret);
    }
}

/// See [`set_token_secret`].
pub(crate) fn token_secret() -> &'static [u8] {
    TOKEN_SECRET.get_or_init(|| {
        let mut secret = [0; TOKEN_SECRET_BYTES];
        let _ = aws_lc_rs::rand::fill(&mut secret);
        secret
    })
}

fn token_key() -> Arc<aws_lc_rs::hkdf::Prk> {
    Arc::new(aws_lc_rs::hkdf::Salt::new(aws_lc_rs::hkdf::HKDF_SHA256, &[]).extract(token_secret()))
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
    let subject = certificates::subject(connection.peer_certificates().and_then(|chain| chain.first()));
    TlsFacts {
        server_name: connection.server_name().map(str::to_owned),
        version: match connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "unknown",
        },
        cipher: connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or("unknown"),
        client_subject: subject.whole,
        client_common_name: subject.common_name,
        client_names: subject.names,
        alpn: match connection.alpn_protocol() {
            Some(b"http/1.1") => Some("http/1.1"),
            Some(b"h2") => Some("h2"),
            _ => None,
        },
    }
}

/// What the handshake of a QUIC connection told us: the client's certificate, the name that it asked for, and what was noted.
pub(crate) fn facts_of_quic(
    certificate: Option<&CertificateDer<'static>>,
    server_name: Option<String>,
    noted: Noted,
) -> TlsFacts {
    let subject = certificates::subject(certificate);
    TlsFacts {
        server_name,
        // RFC 9001 section 4.2: there is no other.
        version: "TLSv1.3",
        cipher: noted.cipher.unwrap_or("unknown"),
        client_subject: subject.whole,
        client_common_name: subject.common_name,
        client_names: subject.names,
        alpn: Some("h3"),
    }
}

#[cfg(test)]
mod tests {
    use model::snapshot::Pem;

    use super::*;

    fn settings(client: ClientAuth, version_min: TlsVersion) -> TlsTermination {
        TlsTermination { certificates: Vec::new(), version_min, client, handshake_timeout: Duration::from_secs(1) }
    }

    fn trusting(bytes: &[u8], header: Option<&str>) -> ClientTrust {
        let authorities = Pem { path: "ca.pem".into(), bytes: bytes.into() };
        ClientTrust { authorities, identity_header: header.map(str::to_owned) }
    }

    #[test]
    fn tickets_prove_nothing_to_another_authority_of_the_same_length_nor_to_other_questions() {
        let proof = |client, version_min| proof_of(&settings(client, version_min));
        let required = |bytes, header| ClientAuth::Required(trusting(bytes, header));
        let proofs = [
            proof(required(b"one", None), TlsVersion::Tls12),
            proof(required(b"two", None), TlsVersion::Tls12),
            proof(required(b"one", Some("x-client")), TlsVersion::Tls12),
            proof(required(b"one", None), TlsVersion::Tls13),
            proof(ClientAuth::Optional(trusting(b"one", None)), TlsVersion::Tls12),
            proof(ClientAuth::Off, TlsVersion::Tls12),
        ];
        for (place, one) in proofs.iter().enumerate() {
            assert!(proofs[..place].iter().all(|other| other != one), "{place}");
        }
        assert_eq!(proofs[0], proof(required(b"one", None), TlsVersion::Tls12));
    }

    #[test]
    fn inherited_tickets_are_of_use_where_the_same_authority_is_asked_for() {
        let asked = |bytes: &[u8]| settings(ClientAuth::Required(trusting(bytes, None)), TlsVersion::Tls12);
        let tickets = TicketHandover { listener: "web".into(), proof: proof_of(&asked(b"one")), keys: Vec::new() };
        assert!(tickets.keys_for(&asked(b"one")).is_some());
        assert!(tickets.keys_for(&asked(b"two")).is_none());
    }
}
