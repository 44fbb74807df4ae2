//! Asks over HTTP/1.1, for providers: one connection for each request, heads and bodies bounded. It moves the bytes of
//! [`wire::http1::client`], which knows the messages.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use model::Address;
use model::fields::FieldName;
use model::provider::{Origin, Place};
use model::snapshot::UpstreamTls;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use wire::http1::HeadLimits;
use wire::http1::client::{BadAnswer, ClientRequest, ClientResponse};

use crate::probes::progress::Io;
use crate::probes::tls;

/// Bound of one head.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const READ_BYTES: usize = 16 * 1024;
const LIMITS: HeadLimits = HeadLimits { head_bytes_max: HEAD_BYTES_MAX, fields_max: model::limits::FIELDS_MAX };

/// Asks one origin.
pub(crate) struct Client {
    origin: Origin,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request<'a> {
    /// `GET`, if empty.
    pub(crate) method: &'a str,
    /// From `/` on, with the query.
    pub(crate) path: &'a str,
    /// Beside those of the origin.
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// Sent with its length, if there is any.
    pub(crate) body: &'a [u8],
}

/// An answer, whose body is still to be read.
pub(crate) struct Response {
    pub(crate) status: u16,
    answer: ClientResponse,
    stream: Box<dyn Io>,
    /// Received and not read yet.
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Response({})", self.status)
    }
}

impl Client {
    /// Prepares to ask an origin.
    ///
    /// # Errors
    /// Its settings of TLS are of no use.
    pub(crate) fn new(origin: &Origin) -> Result<Self, String> {
        let prepare = |settings: &UpstreamTls| {
            // What is verified by default is the host that is asked for, with a port that does not matter.
            let name = match origin.host.rsplit_once(':') {
                Some((_, port)) if !port.ends_with(']') => origin.host.clone(),
                _ => format!("{}:443", origin.host),
            };
            Ok::<_, String>((tls::client(settings, &[b"http/1.1"])?, tls::name_of(settings, &name)?))
        };
        let tls = origin.tls.as_ref().map(prepare).transpose()?;
        Ok(Self { origin: origin.clone(), tls })
    }

    /// Time for an answer.
    pub(crate) fn timeout(&self) -> Duration {
        self.origin.timeout
    }

    /// Asks, and reads the head of the answer within the time for it.
    ///
    /// # Errors
    /// Says in a few words why there is no answer.
    pub(crate) async fn send(&self, request: Request<'_>) -> Result<Response, String> {
        let timeout = self.origin.timeout;
        let answered = tokio::time::timeout(timeout, self.ask(request)).await;
        answered.unwrap_or_else(|_| Err(format!("no response within {timeout:?}")))
    }

    /// Asks, and reads the head of the answer. Time is the caller's to bound.
    ///
    /// # Errors
    /// Says in a few words why there is no answer.
    pub(crate) async fn ask(&self, request: Request<'_>) -> Result<Response, String> {
        let head = self.head(request)?;
        let mut stream = self.connect().await?;
        let failed = |error: std::io::Error| format!("cannot send the request: {error}");
        stream.write_all(&head).await.map_err(failed)?;
        stream.write_all(request.body).await.map_err(failed)?;
        stream.flush().await.map_err(failed)?;
        read_head(stream).await
    }

    fn head(&self, request: Request<'_>) -> Result<Vec<u8>, String> {
        const AGENT: (&str, &str) = ("user-agent", concat!("equipoise/", env!("CARGO_PKG_VERSION")));
        let own = self.origin.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let fields: Vec<_> = [AGENT].into_iter().chain(own).chain(request.fields.iter().copied()).collect();
        let head = ClientRequest {
            method: if request.method.is_empty() { "GET" } else { request.method },
            path: request.path,
            host: &self.origin.host,
            fields: &fields,
            body_bytes: (!request.body.is_empty()).then_some(request.body.len()),
        };
        head.head()
    }

    async fn connect(&self) -> Result<Box<dyn Io>, String> {
        let failed = |error: std::io::Error| format!("cannot connect: {error}");
        let stream: Box<dyn Io> = match &self.origin.place {
            Place::Host(host, port) => Box::new(connect_by_name(host, *port).await?),
            Place::Address(Address::Ip(address)) => Box::new(TcpStream::connect(address).await.map_err(failed)?),
            Place::Address(Address::Unix(path)) => {
                // Names of the abstract namespace begin with a zero byte.
                let path = path.strip_prefix('@').map_or_else(|| path.to_string(), |name| format!("\0{name}"));
                Box::new(UnixStream::connect(path).await.map_err(failed)?)
            }
        };
        let Some((config, name)) = &self.tls else { return Ok(stream) };
        let connected = TlsConnector::from(Arc::clone(config)).connect(name.clone(), stream).await;
        Ok(Box::new(connected.map_err(|error| format!("the TLS handshake failed: {error}"))?))
    }
}

/// The first address that answers.
async fn connect_by_name(host: &str, port: u16) -> Result<TcpStream, String> {
    let found = tokio::net::lookup_host((host, port)).await;
    let found: Vec<SocketAddr> =
        found.map_err(|error| format!("the name `{host}` cannot be looked up: {error}"))?.collect();
    let mut why = format!("the name `{host}` has no address");
    for address in found {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => why = format!("cannot connect to {address}: {error}"),
        }
    }
    Err(why)
}

async fn read_head(mut stream: Box<dyn Io>) -> Result<Response, String> {
    let (mut answer, mut bytes) = (ClientResponse::new(LIMITS), Vec::new());
    while !answer.read_head(&mut bytes).map_err(reason)? {
        if fill(&mut stream, &mut bytes).await? == 0 {
            answer.close().map_err(reason)?;
        }
    }
    Ok(Response { status: answer.head().status, answer, stream, bytes })
}

fn reason(why: BadAnswer) -> String {
    why.to_string()
}

/// Reads once; 0 at the end.
async fn fill(stream: &mut Box<dyn Io>, bytes: &mut Vec<u8>) -> Result<usize, String> {
    let mut buffer = [0; READ_BYTES];
    let read = stream.read(&mut buffer).await.map_err(|error| format!("cannot read the response: {error}"))?;
    bytes.extend_from_slice(&buffer[..read]);
    Ok(read)
}

#[allow(dead_code, reason = "not every provider needs all of it")]
impl Response {
    /// The value of a field, if it is text and there once at least.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let name = FieldName::new(name).ok()?;
        let value = self.answer.head().fields.all(&name).next().map(<[u8]>::to_vec)?;
        String::from_utf8(value).ok()
    }

    /// What comes next of the body; `None` at its end. Time is the caller's to bound.
    ///
    /// # Errors
    /// The connection broke, or the chunks did.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            let piece = self.answer.read_body(&mut self.bytes).map_err(reason)?;
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
            if self.answer.is_over() {
                return Ok(None);
            }
            if fill(&mut self.stream, &mut self.bytes).await? == 0 {
                self.answer.close().map_err(reason)?;
                return Ok(None);
            }
        }
    }

    /// The whole body. Time is the caller's to bound.
    ///
    /// # Errors
    /// It is larger than `bytes_max`, or broken.
    pub(crate) async fn whole(&mut self, bytes_max: u64) -> Result<Vec<u8>, String> {
        let mut body = Vec::new();
        while let Some(piece) = self.chunk().await? {
            if (body.len() + piece.len()) as u64 > bytes_max {
                return Err(format!("the response is larger than {bytes_max} bytes"));
            }
            body.extend(piece);
        }
        Ok(body)
    }
}
