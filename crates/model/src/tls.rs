//! TLS, towards clients and towards endpoints.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// TLS towards clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsTermination {
    /// At least one; chosen by the names in the leaf certificate; the first serves clients that name none of them.
    pub certificates: Vec<Certificate>,
    /// Oldest version accepted.
    pub version_min: TlsVersion,
    /// Client certificates.
    pub client: ClientAuth,
    /// Time for a handshake.
    pub handshake_timeout: Duration,
}

/// A TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// Whether clients show a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// Not asked for.
    Off,
    /// Asked for; verified if shown.
    Optional(ClientTrust),
    /// A verified one is needed.
    Required(ClientTrust),
}

/// CAs that verify clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTrust {
    /// Certificates of the authorities.
    pub authorities: Pem,
    /// Request field that carries the verified subject to endpoints; whatever the client sent under this name is
    /// removed. Lower case.
    pub identity_header: Option<String>,
}

/// A file in PEM, read when the configuration was.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// Where it was read.
    pub path: PathBuf,
    /// What it held.
    pub bytes: Arc<[u8]>,
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys must never reach a log.
        write!(f, "Pem({}, {} bytes)", self.path.display(), self.bytes.len())
    }
}

/// A certificate chain with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Leaf first.
    pub chain: Pem,
    /// PKCS#8, PKCS#1 or SEC1.
    pub key: Pem,
}

/// TLS towards endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamTls {
    /// Name sent as SNI and verified; the host part of the endpoint's name when not given.
    pub server_name: Option<String>,
    /// Verify the certificate; switching this off is for tests.
    pub verify: bool,
    /// Authorities; those of the system when not given.
    pub authorities: Option<Pem>,
    /// Certificate shown when asked for one.
    pub certificate: Option<Certificate>,
}
