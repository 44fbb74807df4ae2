//! The other side: who asks a running program by TLS.

use std::io;
use std::net::TcpStream;

use model::snapshot::UpstreamTls;
use rustls::{CertificateError, ClientConnection, StreamOwned};

use super::HTTP1;
use crate::probes::tls;

/// Shakes hands over a connection, whose time-outs are the caller's. `authority` is `host:port`; the certificate that is shown has
/// to be for the host.
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

/// Why a program is not believed to be the one that it was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UntrustedCertificate {
    /// Nobody who is trusted vouches for its certificate.
    Issuer,
    /// The certificate is for another name, or its time is over, or whatever the error says.
    Certificate,
}

/// Whether it was its certificate because of which the other side was not asked.
pub fn untrusted_certificate(error: &io::Error) -> Option<UntrustedCertificate> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner? {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => Some(UntrustedCertificate::Issuer),
        rustls::Error::InvalidCertificate(_) => Some(UntrustedCertificate::Certificate),
        _ => None,
    }
}

/// Whether the other side has ended a connection by an alert: what was sent there was not looked at.
pub fn is_refusal(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::AlertReceived(_)))
}
