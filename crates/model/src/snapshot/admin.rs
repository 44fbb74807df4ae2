//! The administrator's address, and who may do what there.

use std::path::PathBuf;

use super::TlsTermination;
use crate::Name;
use crate::address::Address;
use crate::persistence::Secret;

/// The administrator's listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Loopback or a Unix socket unless the operator says otherwise.
    pub bind: Address,
    /// Permissions of the Unix socket.
    pub mode: u32,
    /// Termination of TLS, at an address of the network. It has one certificate.
    pub tls: Option<TlsTermination>,
    /// Who may use it by a token. Without any, and without identities, everybody may who reaches it.
    pub tokens: Vec<AdminToken>,
    /// Who may use it by a certificate; the first that fits counts.
    pub identities: Vec<AdminIdentity>,
    /// Where changes are kept over a start.
    pub state: Option<PathBuf>,
    /// Whether the API accepts changes: not if everyone can reach it without credentials.
    pub changes_allowed: bool,
}

impl Admin {
    /// Returns whether clients need credentials: a token or a certificate.
    pub fn asks_for_credentials(&self) -> bool {
        !self.tokens.is_empty() || !self.identities.is_empty()
    }

    /// Returns whether the listener is a Unix socket that only some users of this machine may open; that takes the permission to write.
    pub fn is_for_some_only(&self) -> bool {
        matches!(&self.bind, Address::Unix(path) if !path.starts_with('@')) && self.mode & 0o002 == 0
    }
}

/// A token that opens the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    /// Whose it is.
    pub name: Name,
    /// What it may be used for.
    pub role: AdminRole,
    /// The token itself.
    pub secret: Secret,
}

/// A certificate of a client that opens the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminIdentity {
    /// Whose it is.
    pub name: Name,
    /// What it may be used for.
    pub role: AdminRole,
    /// What has to stand in it.
    pub certificate: CertificateName,
}

/// A name that a certificate has to bear, letter by letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateName {
    /// The most specific common name in its subject (CN).
    Subject(String),
    /// One of its alternative names: a URI if it holds a colon, a name of mail if it holds `@`, else one of DNS.
    Alternative(String),
}

/// What a role permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminRole {
    /// Look at everything.
    Read,
    /// Change everything too.
    Admin,
}
