//! The other side: who asks a running program by TLS.

use std::io;
use std::net::TcpStream;

use model::snapshot::UpstreamTls;
use rustls::{CertificateError, ClientConnection, StreamOwned};

use super::HTTP1;
use crate::probes::tls;

/// Performs the TLS handshake over a connection. The caller sets its time-outs. `authority` is `host:port`; the certificate must be valid
/// for the host.
///
/// # Errors
/// A file is of no use, or one side does not take what the other shows. That a client's certificate is refused is told only when
/// the answer is read (RFC 8446 section 4.4.2.4).
pub fn dial(
    settings: &UpstreamTls,
    authority: &str,
    mut stream: TcpStream,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let useless = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let config = tls::client(settings, &[HTTP1]).map_err(useless)?;
    let name = tls::name_of(settings, authority).map_err(useless)?;
    let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(connection, stream))
}

/// Why a certificate is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UntrustedCertificate {
    /// No trusted CA issued it.
    Issuer,
    /// It is for another name, has expired, or has the fault that the error names.
    Certificate,
}

/// Returns why the peer's certificate was rejected, if that is what the error says.
pub fn untrusted_certificate(error: &io::Error) -> Option<UntrustedCertificate> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner? {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => Some(UntrustedCertificate::Issuer),
        rustls::Error::InvalidCertificate(_) => Some(UntrustedCertificate::Certificate),
        _ => None,
    }
}

/// Returns whether the peer ended the connection with a TLS alert, so that it has not read what was sent.
pub fn is_refusal(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::AlertReceived(_)))
}
