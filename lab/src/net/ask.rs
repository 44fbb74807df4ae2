//! Asks once, over TLS: which certificate is shown, which status comes.

use super::hold::{client_config, exchange, exchange_body};
use rustls::ClientConnection;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a new connection is shown the certificate in the file, which is the only one that is trusted.
pub(crate) fn shows(to: SocketAddr, certificate: &Path) -> io::Result<bool> {
    let wanted = CertificateDer::from_pem_file(certificate).map_err(io::Error::other)?;
    let (mut tls, mut stream) = connect(to, certificate)?;
    while tls.is_handshaking() {
        match tls.complete_io(&mut stream) {
            Ok(_) => {}
            // Another certificate, which is not trusted.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    let shown = tls.peer_certificates().and_then(|chain| chain.first());
    Ok(shown.is_some_and(|shown| *shown == wanted))
}

/// The status that a request is answered with.
pub(crate) fn status(to: SocketAddr, trust: &Path, path: &str) -> io::Result<u16> {
    let (mut tls, mut stream) = connect(to, trust)?;
    exchange(&mut rustls::Stream::new(&mut tls, &mut stream), to, path)
}

/// The status and the body that a request is answered with; over TLS when a certificate to trust is given. `fields` are lines of
/// its head, `Host` among them.
pub(crate) fn body(to: SocketAddr, trust: Option<&Path>, path: &str, fields: &str) -> io::Result<(u16, Vec<u8>)> {
    match trust {
        Some(trust) => {
            let (mut tls, mut stream) = connect(to, trust)?;
            exchange_body(&mut rustls::Stream::new(&mut tls, &mut stream), fields, path)
        }
        None => {
            let mut stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            exchange_body(&mut stream, fields, path)
        }
    }
}

fn connect(to: SocketAddr, trust: &Path) -> io::Result<(ClientConnection, TcpStream)> {
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let tls = ClientConnection::new(client_config(trust)?, name).map_err(io::Error::other)?;
    let stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok((tls, stream))
}
