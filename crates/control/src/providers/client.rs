//! Asks over HTTP/1.1, for providers: one connection for each request, heads and bodies bounded.
//!
//! Answers are read by the very code that reads those of endpoints.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use model::fields::FieldName;
use model::limits::INTERIM_RESPONSES_MAX;
use model::provider::{Origin, Place};
use model::snapshot::UpstreamTls;
use model::{Address, Fault, Method, ResponseHead};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use wire::http1::{ChunkDecoder, Framing, HeadLimits, HeadScan, parse_response};

use crate::probes::attempt::Io;
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
    head: ResponseHead,
    framing: Framing,
    stream: Box<dyn Io>,
    /// Came already.
    bytes: Vec<u8>,
    chunks: ChunkDecoder,
    /// Of the body by its length.
    taken: u64,
    is_over: bool,
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
        answered.unwrap_or_else(|_| Err(format!("no answer within {timeout:?}")))
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
        let method = if request.method.is_empty() { "GET" } else { request.method };
        let sendable = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !request.path.starts_with('/') || !sendable(request.path) || !sendable(method) {
            return Err(format!("the path {:?} cannot be asked for", request.path));
        }
        let host = &self.origin.host;
        if !sendable(host) {
            return Err(format!("the host {host:?} cannot be asked for"));
        }
        let version = env!("CARGO_PKG_VERSION");
        let mut text =
            format!("{method} {} HTTP/1.1\r\nhost: {host}\r\nuser-agent: equipoise/{version}\r\n", request.path);
        let own = self.origin.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.chain(request.fields.iter().copied()) {
            if FieldName::new(name).is_err() || value.contains(['\r', '\n', '\0']) {
                return Err(format!("the field {name:?} cannot be sent"));
            }
            text += &format!("{name}: {value}\r\n");
        }
        if !request.body.is_empty() {
            text += &format!("content-length: {}\r\n", request.body.len());
        }
        text += "connection: close\r\n\r\n";
        Ok(text.into_bytes())
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
    let mut bytes = Vec::new();
    let (mut head, mut scan, mut interim) = (ResponseHead::default(), HeadScan::default(), 0);
    loop {
        match parse_response(&bytes, &LIMITS, &mut scan, Method::Get, &mut head) {
            Ok(Some(parsed)) => {
                bytes.drain(..parsed.head_len);
                if head.status >= 200 {
                    let (status, framing, chunks) = (head.status, parsed.framing, ChunkDecoder::new(&LIMITS));
                    return Ok(Response { status, head, framing, stream, bytes, chunks, taken: 0, is_over: false });
                }
                interim += 1;
                // 101 was not asked for (RFC 9110 section 15.2.2).
                if parsed.switching || interim > INTERIM_RESPONSES_MAX {
                    return Err(format!("interim answers (status {}) instead of a final one", head.status));
                }
                (head, scan) = (ResponseHead::default(), HeadScan::default());
            }
            Ok(None) => {
                if fill(&mut stream, &mut bytes).await? == 0 {
                    return Err("closed without a whole answer".to_owned());
                }
            }
            Err(Fault::ResponseHeadTooLarge) => {
                return Err(format!("the head of the answer is longer than {HEAD_BYTES_MAX} bytes"));
            }
            Err(_) => return Err("the answer is not HTTP/1, or breaks its rules".to_owned()),
        }
    }
}

/// Reads once; 0 at the end.
async fn fill(stream: &mut Box<dyn Io>, bytes: &mut Vec<u8>) -> Result<usize, String> {
    let mut buffer = [0; READ_BYTES];
    let read = stream.read(&mut buffer).await.map_err(|error| format!("cannot read the answer: {error}"))?;
    bytes.extend_from_slice(&buffer[..read]);
    Ok(read)
}

#[allow(dead_code, reason = "not every provider needs all of it")]
impl Response {
    /// The value of a field, if it is text and there once at least.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let name = FieldName::new(name).ok()?;
        let value = self.head.fields.all(&name).next().map(<[u8]>::to_vec)?;
        String::from_utf8(value).ok()
    }

    /// What comes next of the body; `None` at its end. Time is the caller's to bound.
    ///
    /// # Errors
    /// The connection broke, or the chunks did.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            let piece = self.take()?;
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
            if self.is_over {
                return Ok(None);
            }
            if fill(&mut self.stream, &mut self.bytes).await? == 0 {
                self.is_over = true;
                return match self.framing {
                    Framing::UntilClose => Ok(None),
                    _ => Err("closed within the body of its answer".to_owned()),
                };
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
                return Err(format!("the answer is larger than {bytes_max} bytes"));
            }
            body.extend(piece);
        }
        Ok(body)
    }

    /// What came of the body.
    fn take(&mut self) -> Result<Vec<u8>, String> {
        match self.framing {
            Framing::None => {
                self.is_over = true;
                Ok(Vec::new())
            }
            Framing::UntilClose => Ok(std::mem::take(&mut self.bytes)),
            Framing::Length(length) => {
                let left = usize::try_from(length - self.taken).unwrap_or(usize::MAX);
                let piece: Vec<u8> = self.bytes.drain(..left.min(self.bytes.len())).collect();
                self.taken += piece.len() as u64;
                self.is_over = self.taken == length;
                Ok(piece)
            }
            Framing::Chunked if self.is_over => Ok(Vec::new()),
            Framing::Chunked => {
                let broken = |_| "the chunks of the answer break their rules".to_owned();
                let decoded = self.chunks.decode_in_place(&mut self.bytes).map_err(broken)?;
                let piece = self.bytes[..decoded.data_len].to_vec();
                self.bytes.drain(..decoded.consumed);
                self.is_over = decoded.done;
                Ok(piece)
            }
        }
    }
}
