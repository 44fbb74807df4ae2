//! One attempt at one step of a check: whether an endpoint is well, as far as that step can tell.

use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;

use model::Address;
use model::check::{HealthCheckKind, ScriptStep};
use model::proxy_protocol::SendProxy;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use wire::proxy_protocol::{Outgoing, write_v1, write_v2};

use super::http::Question;
use super::steps::{Over, Shared};
use super::{grpc, http2, http3, script, tls};

/// A connection, with or without TLS.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Io for T {}

/// A connection that one attempt leaves to the next.
pub(crate) type Kept = Option<Box<dyn Io>>;

/// How far an attempt has come, for the reason of one that takes too long.
#[derive(Debug, Default)]
pub(crate) struct Progress(Cell<Option<u64>>);

impl Progress {
    /// So many bytes of the answer's body have come.
    pub(crate) fn note_body(&self, bytes: u64) {
        self.0.set(Some(bytes));
    }

    /// Why an attempt that has run out of time is a failure.
    fn late(&self, limit: &Limit) -> String {
        let when = match limit {
            Limit::Own(time) => format!("within {time:?}"),
            Limit::Whole(time) => format!("within the {time:?} of the whole check"),
        };
        match self.0.get() {
            None => format!("no response {when}"),
            Some(bytes) => format!("the response body did not end {when} ({bytes} bytes came)"),
        }
    }
}

/// Which time has run out.
enum Limit {
    /// That of the only step, or of the step.
    Own(Duration),
    /// That of all steps together.
    Whole(Duration),
}

/// All that attempts at a step need, prepared once.
pub(crate) struct Target {
    address: Address,
    /// Sent first.
    opening: Vec<u8>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    what: What,
}

enum What {
    /// A connection, and no more.
    Connection,
    Answer(Question),
    Http2(Box<http2::Question>),
    Grpc(Box<grpc::Question>),
    Http3(Box<http3::Question>),
    Script(Vec<ScriptStep>),
}

impl Target {
    /// Prepares the attempts of a step at an endpoint by its name and address. Where the step asks the endpoint's own port,
    /// connections begin with this header of the PROXY protocol, in which we speak for ourselves.
    ///
    /// # Errors
    /// Says what of the step cannot be asked.
    pub(crate) fn new(
        step: &Shared,
        (name, address): (&str, &Address),
        header: Option<&SendProxy>,
    ) -> Result<Self, String> {
        let tls = step.tls(name)?;
        if step.over == Over::Http3 {
            let tls = tls.ok_or("HTTP/3 is always encrypted, and the cluster has no TLS")?;
            let at = (name, address);
            let question = match &step.step.kind {
                HealthCheckKind::Http(asked) => http3::Question::http((asked, step.expectation()?), at, tls)?,
                HealthCheckKind::Grpc(asked) => http3::Question::grpc((asked, step.time()), at, tls)?,
                HealthCheckKind::Tcp | HealthCheckKind::Tls(_) | HealthCheckKind::Script(_) => {
                    return Err("only checks over HTTP and gRPC go over HTTP/3".to_owned());
                }
            };
            let what = What::Http3(Box::new(question));
            return Ok(Self { address: address.clone(), opening: Vec::new(), tls: None, what });
        }
        // A path is no host.
        let host = if address.ip().is_some() { name } else { "localhost" };
        let what = match &step.step.kind {
            HealthCheckKind::Tcp | HealthCheckKind::Tls(_) => What::Connection,
            HealthCheckKind::Http(http) if step.over == Over::Http2 => {
                What::Http2(Box::new(http2::Question::new(http, host, step.expectation()?, tls.is_some())?))
            }
            HealthCheckKind::Http(http) => {
                What::Answer(Question::new(http, host, step.expectation()?, step.reuses_connection)?)
            }
            HealthCheckKind::Grpc(asked) => {
                What::Grpc(Box::new(grpc::Question::new(asked, host, tls.is_some(), step.time())?))
            }
            HealthCheckKind::Script(steps) => What::Script(steps.clone()),
        };
        // At another port something else may listen, which knows nothing of it.
        let is_there = step.step.port.is_none_or(|port| Some(port) == address.port());
        let address = match address {
            Address::Ip(ip) => SocketAddr::new(ip.ip(), step.step.port.unwrap_or(ip.port())).into(),
            unix @ Address::Unix(_) => unix.clone(),
        };
        let mut opening = Vec::new();
        match header.filter(|_| is_there) {
            Some(SendProxy::V1) => write_v1(None, &mut opening),
            Some(SendProxy::V2(_)) => write_v2(&Outgoing::default(), &mut opening),
            None => {}
        }
        let tls = tls.map(|(config, name)| (TlsConnector::from(config), name));
        Ok(Self { address, opening, tls, what })
    }

    /// Tries once; bounded by the time of the step and the end of the whole check, which may take `whole` and has other steps
    /// where `is_listed`. `kept` is used if there is one, and left for the next.
    ///
    /// # Errors
    /// Says in a few words why the endpoint is not well.
    pub(crate) async fn attempt(
        &self,
        kept: &mut Kept,
        step: Option<Duration>,
        (end, whole, is_listed): (Instant, Duration, bool),
    ) -> Result<(), String> {
        let own = step.map(|time| (Instant::now() + time, Limit::Own(time))).filter(|(own, _)| *own < end);
        let of_all = if is_listed { Limit::Whole(whole) } else { Limit::Own(whole) };
        let (end, limit) = own.unwrap_or((end, of_all));
        let progress = Progress::default();
        let attempt = tokio::time::timeout_at(end, self.unbounded(kept, &progress)).await;
        attempt.unwrap_or_else(|_| Err(progress.late(&limit)))
    }

    async fn unbounded(&self, kept: &mut Kept, progress: &Progress) -> Result<(), String> {
        let question = match &self.what {
            What::Connection => return self.connect().await.map(drop),
            What::Script(steps) => return script::follow(&mut self.connect().await?, steps).await,
            What::Grpc(question) => return question.ask(self.connect().await?).await,
            What::Http2(question) => return question.ask(self.connect().await?, progress).await,
            What::Http3(question) => return Box::pin(question.ask(progress)).await,
            What::Answer(question) => question,
        };
        if let Some(mut stream) = kept.take() {
            match question.ask(&mut stream, progress).await {
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
        if question.ask(&mut stream, progress).await.map_err(|trouble| trouble.why)? {
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
        if matches!(self.what, What::Grpc(_) | What::Http2(_)) && stream.get_ref().1.alpn_protocol() != Some(tls::HTTP2)
        {
            return Err("the endpoint does not agree to HTTP/2 in the TLS handshake".to_owned());
        }
        Ok(Box::new(stream))
    }
}

/// The path of a Unix socket as the kernel takes it: names of the abstract namespace begin with a zero byte.
fn unix_path(path: &str) -> String {
    path.strip_prefix('@').map_or_else(|| path.to_owned(), |name| format!("\0{name}"))
}
