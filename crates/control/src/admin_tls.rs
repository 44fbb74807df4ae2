//! TLS of the admin listener: its certificate, the client certificates it accepts, and the identity a client has proven. The TLS library's
//! names stay in here.
//!
//! Sessions are not resumed: the rules for client certificates may have changed, so each connection is verified again.

mod dial;
mod encrypted;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use model::snapshot::{Certificate, CertificateName, ClientAuth, TlsTermination, TlsVersion};
use model::{Issue, Snapshot};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::probes::tls;

pub use dial::{UntrustedCertificate, dial, is_refusal, untrusted_certificate};
pub use encrypted::Encrypted;

const TLS_12_AND_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
const TLS_13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// What is spoken inside (RFC 7301 section 6).
const HTTP1: &[u8] = b"http/1.1";
const CERTIFICATE_AT: &str = "admin/tls/certificates/0";
const AUTHORITIES_AT: &str = "admin/tls/client/authorities";

/// What the administrator's listener needs to shake hands.
pub struct AdminTls {
    acceptor: TlsAcceptor,
    settings: TlsTermination,
}

impl fmt::Debug for AdminTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdminTls({:?})", self.settings)
    }
}

/// Makes ready what a snapshot wants of the administrator's listener; what is unchanged is taken from `previous`.
///
/// # Errors
/// Which of the files are of no use, by paths from the root of the configuration.
pub(crate) fn of(snapshot: &Snapshot, previous: Option<&Arc<AdminTls>>) -> Result<Option<Arc<AdminTls>>, Vec<Issue>> {
    let Some(settings) = snapshot.admin.as_ref().and_then(|admin| admin.tls.as_ref()) else { return Ok(None) };
    match previous.filter(|previous| previous.settings == *settings) {
        Some(same) => Ok(Some(Arc::clone(same))),
        None => AdminTls::build(settings).map(|built| Some(Arc::new(built))),
    }
}

impl AdminTls {
    fn build(settings: &TlsTermination) -> Result<Self, Vec<Issue>> {
        let Some(certificate) = settings.certificates.first() else {
            return Err(vec![Issue::at(CERTIFICATE_AT, "there is no certificate")]);
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let keys = tls::chain_and_key(certificate).map_err(|message| Issue::at(CERTIFICATE_AT, message));
        let ((chain, key), verifier) = match (keys, verifier(&settings.client, &provider)) {
            (Ok(keys), Ok(verifier)) => (keys, verifier),
            (keys, verifier) => return Err(keys.err().into_iter().chain(verifier.err()).collect()),
        };
        let refused = |error: rustls::Error| vec![Issue::at(CERTIFICATE_AT, why(&error, certificate))];
        let versions = if settings.version_min == TlsVersion::Tls13 { TLS_13 } else { TLS_12_AND_13 };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(refused)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(refused)?;
        config.alpn_protocols = vec![HTTP1.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), settings: settings.clone() })
    }

    /// A connection that came in, encrypted from its first byte on. Its handshake goes on while it is read.
    pub fn accept(self: &Arc<Self>, stream: TcpStream) -> Encrypted {
        let secured = Secured(Arc::new(Handshake { tls: Arc::clone(self), shown: OnceLock::new() }));
        Encrypted::new(&self.acceptor, stream, secured)
    }
}

fn why(error: &rustls::Error, certificate: &Certificate) -> String {
    let (chain, key) = (certificate.chain.path.display(), certificate.key.path.display());
    match error {
        rustls::Error::InconsistentKeys(_) => format!("the key {key} does not belong to the certificate {chain}"),
        other => format!("{chain}: {other}"),
    }
}

fn verifier(client: &ClientAuth, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, Issue> {
    let (trust, is_needed) = match client {
        ClientAuth::Off => return Ok(WebPkiClientVerifier::no_client_auth()),
        ClientAuth::Optional(trust) => (trust, false),
        ClientAuth::Required(trust) => (trust, true),
    };
    let at = |message: String| Issue::at(AUTHORITIES_AT, message);
    let roots = tls::authorities(Some(&trust.authorities)).map_err(at)?;
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    if !is_needed {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map_err(|error| at(error.to_string()))
}

/// A client certificate that was issued by a trusted CA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownCertificate {
    /// All of its subject, as [`wire::subject`] writes it; empty when that cannot be read.
    pub subject: String,
    /// The most specific common name in it, which is the last (RFC 4514 section 2.1); none where two stand side by side there.
    pub common_name: Option<String>,
    /// Names of DNS and mail, and URIs.
    pub alternative_names: Vec<(AlternativeKind, String)>,
}

impl ShownCertificate {
    /// Takes a certificate apart. Of one that cannot be read nothing is known, and no name fits.
    fn of(certificate: &CertificateDer<'_>) -> Self {
        let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return Self::default() };
        let text = |name: &GeneralName<'_>| match name {
            GeneralName::DNSName(name) => Some((AlternativeKind::Dns, (*name).to_owned())),
            GeneralName::RFC822Name(name) => Some((AlternativeKind::Mail, (*name).to_owned())),
            GeneralName::URI(name) => Some((AlternativeKind::Uri, (*name).to_owned())),
            _ => None,
        };
        let alternatives = parsed.subject_alternative_name().ok().flatten();
        let names: Option<Vec<_>> =
            alternatives.map(|names| names.value.general_names.iter().filter_map(text).collect());
        Self {
            subject: wire::subject::subject(certificate).unwrap_or_default(),
            common_name: wire::subject::common_name(certificate),
            alternative_names: names.unwrap_or_default(),
        }
    }

    /// Whether it bears a name, letter by letter.
    pub fn bears(&self, name: &CertificateName) -> bool {
        match name {
            CertificateName::Subject(name) => self.common_name.as_ref() == Some(name),
            CertificateName::Alternative(name) => {
                let kind = AlternativeKind::of(name);
                self.alternative_names.iter().any(|(given, text)| *given == kind && text == name)
            }
        }
    }
}

/// The kind of a subject alternative name. A CA whose own certificate is constrained to one kind may put any text into the others (RFC
/// 5280 section 4.2.1.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlternativeKind {
    /// A host.
    Dns,
    /// A mailbox.
    Mail,
    /// A URI.
    Uri,
}

impl AlternativeKind {
    /// That of a name in the configuration: with a colon it is a URI, with `@` a mailbox, else a host.
    fn of(name: &str) -> Self {
        match name {
            name if name.contains(':') => Self::Uri,
            name if name.contains('@') => Self::Mail,
            _ => Self::Dns,
        }
    }
}

/// How a connection is encrypted, as its requests know it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Secured(Arc<Handshake>);

#[derive(Debug)]
struct Handshake {
    /// By what it began.
    tls: Arc<AdminTls>,
    /// Set when it is over: what the client has shown, if anything.
    shown: OnceLock<Option<ShownCertificate>>,
}

impl Secured {
    /// Whether the handshake is over, and the client is who it says.
    pub fn is_open(&self) -> bool {
        self.0.shown.get().is_some()
    }

    /// The certificate of the client, if it has shown one.
    pub fn shown(&self) -> Option<&ShownCertificate> {
        self.0.shown.get()?.as_ref()
    }

    /// Time that the handshake may take.
    pub fn handshake_timeout(&self) -> Duration {
        self.0.tls.settings.handshake_timeout
    }

    fn open(&self, certificate: Option<&CertificateDer<'_>>) {
        // A handshake is over once.
        let _ = self.0.shown.set(certificate.map(ShownCertificate::of));
    }
}

/// Whether a connection that began as it did may go on by the settings of now: what a handshake of before has proven is worth
/// nothing where something else is asked of clients.
pub fn still_holds(began: Option<&Secured>, now: Option<&TlsTermination>) -> bool {
    match (began, now) {
        (None, None) => true,
        (Some(secured), Some(now)) => {
            let then = &secured.0.tls.settings;
            then.client == now.client && then.version_min == now.version_min
        }
        _ => false,
    }
}
