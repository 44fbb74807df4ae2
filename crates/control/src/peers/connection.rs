//! A connection between two instances: TLS, the greeting, and frames.

use std::sync::Arc;
use std::time::Duration;

use model::peers::{Peers, PeersTls};
use model::snapshot::UpstreamTls;
use rustls::client::verify_server_name;
use rustls::crypto::aws_lc_rs;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use wire::peers::{FRAME_BYTES_MAX, Frame, Hello, VERSION, next, write};

use crate::probes::tls;

/// What is spoken inside of TLS.
const PROTOCOL: &[u8] = b"equipoise-peers";
/// Time for a connection, its handshake and its greeting.
pub(crate) const GREETING_WITHIN: Duration = Duration::from_secs(5);
/// Time within which something comes from the other side, which sends a `Ping` each second.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Time for one frame to be taken by the other side.
const WRITE_WITHIN: Duration = Duration::from_secs(10);

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// What encrypts, if anything does.
#[derive(Clone)]
pub(crate) struct Secrets {
    sides: Option<(TlsAcceptor, Arc<ClientConfig>)>,
    settings: UpstreamTls,
    /// The certificate of a peer that connects has to be for one of these.
    names: Vec<ServerName<'static>>,
}

impl Secrets {
    /// Builds what both sides need.
    ///
    /// # Errors
    /// A file is of no use.
    pub(crate) fn of(settings: &Peers) -> Result<Self, String> {
        let upstream = |tls: Option<&PeersTls>| UpstreamTls {
            server_name: tls.and_then(|tls| tls.server_name.clone()),
            verify: true,
            authorities: tls.map(|tls| tls.authorities.clone()),
            certificate: tls.map(|tls| tls.certificate.clone()),
        };
        let upstream = upstream(settings.tls.as_ref());
        let Some(given) = &settings.tls else {
            return Ok(Self { sides: None, settings: upstream, names: Vec::new() });
        };
        let names = settings.members.iter().map(|member| tls::name_of(&upstream, &member.to_string()));
        let names = names.collect::<Result<_, _>>()?;
        let client = tls::client(&upstream, &[PROTOCOL])?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = Arc::new(tls::authorities(Some(&given.authorities))?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let verifier = verifier.build().map_err(|error| error.to_string())?;
        let (chain, key) = tls::chain_and_key(&given.certificate)?;
        let at = |error: rustls::Error| format!("{}: {error}", given.certificate.chain.path.display());
        let mut accepting = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(at)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map_err(at)?;
        accepting.alpn_protocols = vec![PROTOCOL.to_vec()];
        accepting.session_storage = Arc::new(NoServerSessionStorage {});
        accepting.send_tls13_tickets = 0;
        Ok(Self { sides: Some((TlsAcceptor::from(Arc::new(accepting)), client)), settings: upstream, names })
    }

    /// Returns the stream, and what the peer has shown.
    async fn accept(&self, stream: TcpStream) -> Result<(Box<dyn Stream>, Shown), String> {
        let Some((acceptor, _)) = &self.sides else { return Ok((Box::new(stream), None)) };
        let accepted = acceptor.accept(stream).await.map_err(|error| format!("the handshake failed: {error}"))?;
        let leaf = accepted.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
        let leaf = leaf.ok_or("it has shown no certificate")?;
        if !self.is_member(&leaf) {
            return Err("its certificate is for another name than `server_name`, or than each of `members`".to_owned());
        }
        Ok((Box::new(accepted), Some(leaf.into_owned())))
    }

    fn is_member(&self, leaf: &CertificateDer<'_>) -> bool {
        let Ok(parsed) = ParsedCertificate::try_from(leaf) else { return false };
        self.names.iter().any(|name| verify_server_name(&parsed, name).is_ok())
    }

    async fn connect(&self, stream: TcpStream, member: &str) -> Result<Box<dyn Stream>, String> {
        let Some((_, client)) = &self.sides else { return Ok(Box::new(stream)) };
        let name: ServerName<'static> = tls::name_of(&self.settings, member)?;
        let connected = TlsConnector::from(Arc::clone(client)).connect(name, stream).await;
        Ok(Box::new(connected.map_err(|error| format!("the handshake failed: {error}"))?))
    }
}

/// The certificate of a peer that has connected; `None`: in clear.
pub(crate) type Shown = Option<CertificateDer<'static>>;

/// See the module.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    incoming: Vec<u8>,
    /// Bytes of `incoming` that were taken.
    taken: usize,
}

impl Connection {
    /// Connects to a peer, and greets it. Returns its greeting.
    ///
    /// # Errors
    /// It cannot be reached, it is not believed, or it does not speak the protocol.
    pub(crate) async fn dial(
        (address, member): (&str, &str),
        secrets: &Secrets,
        hello: &Hello,
    ) -> Result<(Self, Hello), String> {
        let greeting = async {
            let stream = TcpStream::connect(address).await.map_err(|error| format!("cannot connect: {error}"))?;
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            let stream = secrets.connect(stream, member).await?;
            Self::over(stream).greet(hello).await
        };
        let late = |_| format!("it did not answer within {GREETING_WITHIN:?}");
        timeout(GREETING_WITHIN, greeting).await.map_err(late)?
    }

    /// Hears a peer that has connected, and greets it. Returns what it has shown, and its greeting.
    ///
    /// # Errors
    /// As [`Self::dial`].
    pub(crate) async fn accept(
        stream: TcpStream,
        secrets: &Secrets,
        hello: &Hello,
    ) -> Result<(Self, Shown, Hello), String> {
        let greeting = async {
            stream.set_nodelay(true).map_err(|error| error.to_string())?;
            let (stream, shown) = secrets.accept(stream).await?;
            let (connection, hello) = Self::over(stream).greet(hello).await?;
            Ok((connection, shown, hello))
        };
        let late = |_| format!("it sent no greeting within {GREETING_WITHIN:?}");
        timeout(GREETING_WITHIN, greeting).await.map_err(late)?
    }

    fn over(stream: Box<dyn Stream>) -> Self {
        Self { stream, incoming: Vec::new(), taken: 0 }
    }

    async fn greet(mut self, hello: &Hello) -> Result<(Self, Hello), String> {
        self.send(&Frame::Hello(hello.clone())).await?;
        loop {
            match self.frame()? {
                Some(Frame::Hello(theirs)) => {
                    let theirs = Hello { version: theirs.version.min(VERSION), ..theirs };
                    return Ok((self, theirs));
                }
                Some(_) => return Err("its first frame is no greeting".to_owned()),
                None => self.fill().await?,
            }
        }
    }

    /// Waits until the dialing side goes on after its greeting: it does not, if it has reached this instance by another address before.
    ///
    /// # Errors
    /// It sends something else, or nothing.
    pub(crate) async fn confirmed(&mut self) -> Result<(), String> {
        let confirming = async {
            loop {
                match self.frame()? {
                    Some(Frame::Ping) => return Ok(()),
                    Some(_) => return Err("it did not confirm its greeting".to_owned()),
                    None => self.fill().await?,
                }
            }
        };
        let late = |_| format!("it did not confirm its greeting within {GREETING_WITHIN:?}");
        timeout(GREETING_WITHIN, confirming).await.map_err(late)?
    }

    /// Returns the next frame that has come as a whole.
    pub(crate) fn frame(&mut self) -> Result<Option<Frame<'_>>, String> {
        match next(&self.incoming[self.taken..]).map_err(|why| why.to_string())? {
            Some((frame, length)) => {
                self.taken += length;
                Ok(Some(frame))
            }
            None => Ok(None),
        }
    }

    /// Gives the last frame back, which [`Self::frame`] returned: it comes again.
    pub(crate) fn give_back(&mut self, length: usize) {
        self.taken -= length.min(self.taken);
    }

    /// Bytes that were taken: what a frame took is the difference.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Reads what comes. It may be dropped while it waits.
    pub(crate) async fn fill(&mut self) -> Result<(), String> {
        self.incoming.drain(..std::mem::take(&mut self.taken));
        if self.incoming.is_empty() && self.incoming.capacity() > (64 << 10) {
            self.incoming = Vec::new();
        }
        if self.incoming.len() > FRAME_BYTES_MAX + 4 {
            return Err("a frame is longer than 1 MiB".to_owned());
        }
        self.incoming.reserve(16 << 10);
        match self.stream.read_buf(&mut self.incoming).await {
            Ok(0) => Err("it closed the connection".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Sends a frame.
    pub(crate) async fn send(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        let mut bytes = Vec::new();
        write(frame, &mut bytes);
        self.send_bytes(&bytes).await
    }

    /// Sends what was written before.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let sent = timeout(WRITE_WITHIN, sending).await;
        sent.map_err(|_| "it does not read".to_owned())?.map_err(|error| error.to_string())
    }
}
