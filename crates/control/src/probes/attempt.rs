//! One attempt to find out whether an endpoint is well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use model::Address;
use model::check::{HealthCheck, HealthCheckKind, ScriptStep};
use model::proxy_protocol::SendProxy;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use wire::proxy_protocol::{Outgoing, write_v1, write_v2};

use super::http::Question;
use super::{grpc, http3, script, tls};

/// A connection, with or without TLS.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Io for T {}

/// A connection that one attempt leaves to the next.
pub(crate) type Kept = Option<Box<dyn Io>>;

/// All that an attempt needs, prepared once.
pub(crate) struct Target {
    address: Address,
    timeout: Duration,
    /// Sent first.
    opening: Vec<u8>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    what: What,
}

enum What {
    /// A connection, and no more.
    Connection,
    Answer(Question),
    Grpc(grpc::Question),
    Http3(Box<http3::Question>),
    Script(Vec<ScriptStep>),
}

impl Target {
    /// Prepares the attempts of `check` at an endpoint by its name and address.
    ///
    /// # Errors
    /// Says what in the check cannot be asked.
    pub(crate) fn new(
        (name, address): (&str, &Address),
        check: &HealthCheck,
        tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    ) -> Result<Self, String> {
        let address = match address {
            Address::Ip(ip) => SocketAddr::new(ip.ip(), check.port.unwrap_or(ip.port())).into(),
            unix @ Address::Unix(_) => unix.clone(),
        };
        // A path is no host.
        let name = if address.ip().is_some() { name } else { "localhost" };
        let what = match &check.kind {
            HealthCheckKind::Tcp | HealthCheckKind::Tls(_) => What::Connection,
            HealthCheckKind::Http(http) => What::Answer(Question::new(http, name, check.reuses_connection)?),
            HealthCheckKind::Grpc(asked) => What::Grpc(grpc::Question::new(asked, name, tls.is_some(), check.timeout)?),
            HealthCheckKind::Script(steps) => What::Script(steps.clone()),
        };
        let tls = tls.map(|(config, name)| (TlsConnector::from(config), name));
        Ok(Self { address, timeout: check.timeout, opening: Vec::new(), tls, what })
    }

    /// Prepares the attempts of a check by HTTP or gRPC over HTTP/3, with settings of TLS that offer it.
    ///
    /// # Errors
    /// Says what in the check cannot be asked.
    pub(crate) fn over_http3(
        (name, address): (&str, &Address),
        check: &HealthCheck,
        tls: (Arc<ClientConfig>, ServerName<'static>),
    ) -> Result<Self, String> {
        let question = match &check.kind {
            HealthCheckKind::Http(asked) => http3::Question::http(asked, (name, address), tls)?,
            HealthCheckKind::Grpc(asked) => http3::Question::grpc((asked, check.timeout), (name, address), tls)?,
            HealthCheckKind::Tcp | HealthCheckKind::Tls(_) | HealthCheckKind::Script(_) => {
                return Err("only checks over HTTP and gRPC go over HTTP/3".to_owned());
            }
        };
        let what = What::Http3(Box::new(question));
        Ok(Self { address: address.clone(), timeout: check.timeout, opening: Vec::new(), tls: None, what })
    }

    /// Begins each connection with a header of the PROXY protocol by which we speak for ourselves.
    pub(crate) fn behind(mut self, header: &SendProxy) -> Self {
        match header {
            SendProxy::V1 => write_v1(None, &mut self.opening),
            SendProxy::V2(_) => write_v2(&Outgoing::default(), &mut self.opening),
        }
        self
    }

    /// Tries once; bounded by the time-out of the check. `kept` is used if there is one, and left for the next.
    ///
    /// # Errors
    /// Says in a few words why the endpoint is not well.
    pub(crate) async fn attempt(&self, kept: &mut Kept) -> Result<(), String> {
        tokio::time::timeout(self.timeout, self.unbounded(kept))
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {:?}", self.timeout)))
    }

    async fn unbounded(&self, kept: &mut Kept) -> Result<(), String> {
        let question = match &self.what {
            What::Connection => return self.connect().await.map(drop),
            What::Script(steps) => return script::follow(&mut self.connect().await?, steps).await,
            What::Grpc(question) => return question.ask(self.connect().await?).await,
            What::Http3(question) => return Box::pin(question.ask()).await,
            What::Answer(question) => question,
        };
        if let Some(mut stream) = kept.take() {
            match question.ask(&mut stream).await {
                Ok(true) => {
                    *kept = Some(stream);
                    return Ok(());
                }
                Ok(false) => return Ok(()),
                // Closed since the last attempt, as any endpoint may: that says nothing about a new connection.
                Err(trouble) if trouble.is_silent => {}
                Err(trouble) => return Err(trouble.why),
            }
        }
        let mut stream = self.connect().await?;
        if question.ask(&mut stream).await.map_err(|trouble| trouble.why)? {
            *kept = Some(stream);
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Box<dyn Io>, String> {
        let failed = |error: std::io::Error| format!("cannot connect: {error}");
        let mut stream: Box<dyn Io> = match &self.address {
            Address::Ip(address) => Box::new(TcpStream::connect(address).await.map_err(failed)?),
            Address::Unix(path) => Box::new(UnixStream::connect(unix_path(path)).await.map_err(failed)?),
        };
        if !self.opening.is_empty() {
            stream.write_all(&self.opening).await.map_err(failed)?;
        }
        let Some((connector, name)) = &self.tls else { return Ok(stream) };
        let connected = connector.connect(name.clone(), stream).await;
        let stream = connected.map_err(|error| format!("the TLS handshake failed: {error}"))?;
        // RFC 9113 section 3.2: over TLS it takes an agreement to speak HTTP/2.
        if matches!(self.what, What::Grpc(_)) && stream.get_ref().1.alpn_protocol() != Some(tls::HTTP2) {
            return Err("the endpoint does not agree to HTTP/2 in the TLS handshake".to_owned());
        }
        Ok(Box::new(stream))
    }
}

/// The path of a Unix socket as the kernel takes it: names of the abstract namespace begin with a zero byte.
fn unix_path(path: &str) -> String {
    path.strip_prefix('@').map_or_else(|| path.to_owned(), |name| format!("\0{name}"))
}
