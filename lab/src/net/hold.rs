//! Opens many connections, makes one request on each, and holds them idle until its input ends.

use super::http1;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// One connection that is kept, and its TLS state.
struct Held {
    _stream: TcpStream,
    _tls: Option<ClientConnection>,
}

/// Opens `connections` to `to`, over TLS when a certificate to trust is given; says `held N` and waits for its input
/// to end.
pub(crate) fn run(to: SocketAddr, connections: usize, trust: Option<&Path>) -> io::Result<()> {
    let config = trust.map(client_config).transpose()?;
    let mut held = Vec::with_capacity(connections);
    for number in 0..connections {
        let one = open(to, config.as_ref())
            .map_err(|error| io::Error::new(error.kind(), format!("connection {number}: {error}")))?;
        held.push(one);
    }
    println!("held {}", held.len());
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

pub(super) fn client_config(trust: &Path) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(trust).map_err(io::Error::other)? {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

fn open(to: SocketAddr, config: Option<&Arc<ClientConfig>>) -> io::Result<Held> {
    let mut stream = TcpStream::connect(to)?;
    // Without this the request waits 40 ms behind the end of the handshake, for each of thousands of connections.
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let Some(config) = config else {
        exchange(&mut stream, to, "/12")?;
        return Ok(Held { _stream: stream, _tls: None });
    };
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
    exchange(&mut rustls::Stream::new(&mut tls, &mut stream), to, "/12")?;
    Ok(Held { _stream: stream, _tls: Some(tls) })
}

/// One request and the status of its whole answer.
pub(crate) fn exchange(stream: &mut (impl Read + Write), to: SocketAddr, path: &str) -> io::Result<u16> {
    exchange_body(stream, &format!("Host: {to}"), path).map(|(status, _)| status)
}

/// One request with those lines in its head, and the status and the body of its answer.
pub(crate) fn exchange_body(stream: &mut (impl Read + Write), fields: &str, path: &str) -> io::Result<(u16, Vec<u8>)> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes())?;
    stream.flush()?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed before the answer was complete"));
        }
        bytes.extend_from_slice(&buffer[..count]);
        match http1::response(&bytes) {
            Ok(Some(head)) if bytes.len() >= head.head_bytes + head.body_bytes => {
                return Ok((head.status, bytes.split_off(head.head_bytes)));
            }
            Ok(_) => {}
            Err(http1::Malformed) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is not plain HTTP/1.1"));
            }
        }
    }
}
