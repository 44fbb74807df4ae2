//! A client that speaks HTTP/3: the `h3` library over `quinn`, behind calls that block. Its connection moves only during a
//! call.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::StreamError;
use http::{HeaderMap, Request};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::ClientConfig;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::http2::Answer;
use super::poll::PATIENCE;
use super::tls::{Authority, Client as TlsClient, Identity};

type Quic = h3_quinn::BidiStream<Bytes>;

/// A connection.
pub(crate) struct Client {
    runtime: Runtime,
    endpoint: quinn::Endpoint,
    quic: quinn::Connection,
    sender: Option<SendRequest<h3_quinn::OpenStreams, Bytes>>,
}

/// One stream of it.
pub(crate) struct Stream(RequestStream<Quic, Bytes>);

/// A request without a body.
pub(crate) fn request(method: &str, path: &str) -> Request<()> {
    let uri = format!("https://shop.example{path}");
    Request::builder().method(method).uri(uri).body(()).expect("a request")
}

/// How a client that trusts this authority agrees on HTTP/3; connections that share it share tickets.
pub(crate) fn trusting(authority: &Authority, identity: Option<&Identity>) -> Arc<ClientConfig> {
    let client = TlsClient {
        identity,
        versions: &[&rustls::version::TLS13],
        protocols: &["h3"],
        ..TlsClient::trusting(authority)
    };
    client.config()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn local_socket() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket")
}

async fn bounded<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain: {what}"))
}

impl Client {
    /// Connects to the address under this name.
    pub(crate) fn connect(address: SocketAddr, name: &str, tls: &Arc<ClientConfig>) -> Self {
        Self::try_connect(address, name, tls).unwrap_or_else(|error| panic!("no connection: {error}"))
    }

    /// The same, where failing is an answer.
    pub(crate) fn try_connect(
        address: SocketAddr,
        name: &str,
        tls: &Arc<ClientConfig>,
    ) -> Result<Self, quinn::ConnectionError> {
        let runtime = runtime();
        let (endpoint, quic) = runtime.block_on(async {
            let endpoint = endpoint(tls);
            let connecting = endpoint.connect(address, name).expect("an address");
            bounded("a handshake", connecting).await.map(|quic| (endpoint, quic))
        })?;
        Ok(Self::over(runtime, endpoint, quic))
    }

    /// The same, where nobody may be there. `None`: no connection was made so soon.
    pub(crate) fn connect_within(
        address: SocketAddr,
        name: &str,
        tls: &Arc<ClientConfig>,
        time: Duration,
    ) -> Option<Self> {
        let runtime = runtime();
        let (endpoint, quic) = runtime.block_on(async {
            let endpoint = endpoint(tls);
            let connecting = endpoint.connect(address, name).expect("an address");
            let quic = tokio::time::timeout(time, connecting).await.ok()?.ok()?;
            Some((endpoint, quic))
        })?;
        // It may be closed by now, by whoever wants a certificate of the client.
        Self::try_over(runtime, endpoint, quic)
    }

    /// Connects and sends a request at once, before the handshake is over; whether that was taken, with the answer.
    pub(crate) fn connect_early(
        address: SocketAddr,
        name: &str,
        tls: &Arc<ClientConfig>,
        first: Request<()>,
    ) -> (Self, bool, Answer) {
        let runtime = runtime();
        let (endpoint, quic, accepted) = runtime.block_on(async {
            let endpoint = endpoint(tls);
            let connecting = endpoint.connect(address, name).expect("an address");
            let (quic, accepted) = connecting.into_0rtt().unwrap_or_else(|_| panic!("no ticket for early data"));
            (endpoint, quic, accepted)
        });
        let mut client = Self::over(runtime, endpoint, quic);
        let answer = client.ask(first, b"");
        let accepted = client.runtime.block_on(bounded("the end of the handshake", accepted));
        (client, accepted, answer)
    }

    /// Whether a request could be sent before the end of a handshake.
    pub(crate) fn offers_early(address: SocketAddr, name: &str, tls: &Arc<ClientConfig>) -> bool {
        runtime().block_on(async {
            let endpoint = endpoint(tls);
            let connecting = endpoint.connect(address, name).expect("an address");
            connecting.into_0rtt().is_ok()
        })
    }

    /// Connects and says nothing: neither settings nor a request.
    pub(crate) fn silent(address: SocketAddr, name: &str, tls: &Arc<ClientConfig>) -> Self {
        let runtime = runtime();
        let (endpoint, quic) = runtime.block_on(async {
            let endpoint = endpoint(tls);
            let connecting = endpoint.connect(address, name).expect("an address");
            (endpoint, bounded("a handshake", connecting).await.expect("a handshake"))
        });
        Self { runtime, endpoint, quic, sender: None }
    }

    fn over(runtime: Runtime, endpoint: quinn::Endpoint, quic: quinn::Connection) -> Self {
        Self::try_over(runtime, endpoint, quic).expect("a connection")
    }

    fn try_over(runtime: Runtime, endpoint: quinn::Endpoint, quic: quinn::Connection) -> Option<Self> {
        let sender = runtime.block_on(async {
            let mut builder = h3::client::builder();
            let made = builder.enable_extended_connect(true).build(h3_quinn::Connection::new(quic.clone()));
            let (mut connection, sender) = bounded("settings sent", made).await.ok()?;
            tokio::spawn(async move { std::future::poll_fn(|cx| connection.poll_close(cx)).await });
            Some(sender)
        })?;
        Some(Self { runtime, endpoint, quic, sender: Some(sender) })
    }

    fn wait<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(bounded(what, work))
    }

    /// The QUIC connection.
    pub(crate) fn quic(&self) -> &quinn::Connection {
        &self.quic
    }

    /// Does something with the QUIC connection.
    pub(crate) fn with_quic<T>(&self, what: &str, work: impl AsyncFnOnce(&quinn::Connection) -> T) -> T {
        self.wait(what, work(&self.quic))
    }

    /// Goes on from another port.
    pub(crate) fn move_away(&self) -> SocketAddr {
        self.move_to(Ipv4Addr::LOCALHOST)
    }

    /// Goes on from this address.
    pub(crate) fn move_to(&self, ip: Ipv4Addr) -> SocketAddr {
        let socket = UdpSocket::bind((ip, 0)).expect("a socket");
        let address = socket.local_addr().expect("an address");
        self.wait("another socket", async { self.endpoint.rebind(socket).expect("a socket") });
        address
    }

    /// Begins a stream.
    pub(crate) fn try_open(&mut self, request: Request<()>) -> Result<Stream, StreamError> {
        let mut sender = self.sender.clone().expect("requests are sent");
        self.wait("a stream", sender.send_request(request)).map(Stream)
    }

    /// Begins a stream, which the other side must let us.
    pub(crate) fn open(&mut self, request: Request<()>) -> Stream {
        self.try_open(request).expect("a stream begins")
    }

    /// Sends body bytes as the window allows.
    pub(crate) fn try_send(&self, stream: &mut Stream, bytes: &[u8]) -> Result<(), StreamError> {
        self.wait("a window", stream.0.send_data(Bytes::copy_from_slice(bytes)))
    }

    /// Sends body bytes, which must be taken.
    pub(crate) fn send(&self, stream: &mut Stream, bytes: &[u8]) {
        self.try_send(stream, bytes).expect("the other side takes the body");
    }

    /// Sends body bytes if the window opens soon enough; whether it did. If not, the stream is of no more use.
    pub(crate) fn send_for_now(&self, stream: &mut Stream, bytes: &[u8]) -> bool {
        let send = stream.0.send_data(Bytes::copy_from_slice(bytes));
        let soon = async { tokio::time::timeout(std::time::Duration::from_millis(300), send).await };
        self.runtime.block_on(soon).is_ok_and(|sent| sent.is_ok())
    }

    /// Begins to send body bytes. The stream comes back once the other side has taken them: [`Self::wait_sent`].
    pub(crate) fn begin_send(&self, stream: Stream, bytes: &'static [u8]) -> JoinHandle<Stream> {
        self.runtime.spawn(async move {
            let mut stream = stream;
            let _ = stream.0.send_data(Bytes::from_static(bytes)).await;
            stream
        })
    }

    /// Waits for at most this long until what [`Self::begin_send`] sends is taken.
    pub(crate) fn wait_sent(&self, task: &mut JoinHandle<Stream>, time: Duration) -> Option<Stream> {
        let sent = self.runtime.block_on(async { tokio::time::timeout(time, task).await });
        sent.ok().map(|stream| stream.expect("a task that ends"))
    }

    /// Ends the request, with trailers if there are any.
    pub(crate) fn end(&self, stream: &mut Stream, trailers: HeaderMap) {
        let _ = self.wait("the end", async {
            if !trailers.is_empty() {
                stream.0.send_trailers(trailers).await?;
            }
            stream.0.finish().await
        });
    }

    /// Gives the stream up.
    pub(crate) fn cancel(&self, mut stream: Stream) {
        stream.0.stop_sending(h3::error::Code::H3_REQUEST_CANCELLED);
        stream.0.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
        drop(stream);
        self.flush();
    }

    /// Gives the stream up by letting it go. While the library reads ahead it cannot be asked to stop, and would panic.
    pub(crate) fn let_go(&self, mut stream: Stream) {
        stream.0.stop_stream(h3::error::Code::H3_REQUEST_CANCELLED);
        drop(stream);
        self.flush();
    }

    /// Lets the connection send what waits.
    pub(crate) fn flush(&self) {
        self.runtime.block_on(async {
            for _ in 0..16 {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Waits for the next head: interim ones come first.
    pub(crate) fn head(&self, stream: &mut Stream) -> Result<(u16, HeaderMap), StreamError> {
        let (parts, ()) = self.wait("a response", stream.0.recv_response())?.into_parts();
        Ok((parts.status.as_u16(), parts.headers))
    }

    /// The next bytes of the body. `None`: its end.
    pub(crate) fn chunk(&self, stream: &mut Stream) -> Result<Option<Vec<u8>>, StreamError> {
        let chunk = self.wait("body bytes", stream.0.recv_data())?;
        Ok(chunk.map(|mut chunk| chunk.copy_to_bytes(chunk.remaining()).to_vec()))
    }

    /// Waits for the whole response.
    pub(crate) fn try_answer(&self, stream: &mut Stream) -> Result<Answer, StreamError> {
        let (status, fields) = self.head(stream)?;
        let mut answer = Answer { status, fields, body: Vec::new(), trailers: HeaderMap::new() };
        while let Some(chunk) = self.chunk(stream)? {
            answer.body.extend_from_slice(&chunk);
        }
        answer.trailers = self.trailers(stream)?;
        Ok(answer)
    }

    /// Waits for the trailers behind a body that was read to its end.
    pub(crate) fn trailers(&self, stream: &mut Stream) -> Result<HeaderMap, StreamError> {
        Ok(self.wait("trailers", stream.0.recv_trailers())?.unwrap_or_default())
    }

    /// Waits for the whole response, which must come.
    pub(crate) fn answer(&self, mut stream: Stream) -> Answer {
        self.try_answer(&mut stream).unwrap_or_else(|error| panic!("a response was due: {error}"))
    }

    /// Sends a request and waits for its response.
    pub(crate) fn ask(&mut self, request: Request<()>, body: &[u8]) -> Answer {
        let mut stream = self.open(request);
        if !body.is_empty() {
            // The answer may be here already, and with it the end of interest.
            let _ = self.try_send(&mut stream, body);
        }
        self.end(&mut stream, HeaderMap::new());
        self.answer(stream)
    }

    /// Asks for a path.
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask(request("GET", path), b"")
    }

    /// Waits until the other side ends the connection: the code that it gives.
    pub(crate) fn ended(&mut self) -> Option<u64> {
        let error = self.wait("the end of the connection", self.quic.closed());
        match error {
            quinn::ConnectionError::ApplicationClosed(close) => Some(close.error_code.into_inner()),
            _ => None,
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.quic.close(quinn::VarInt::from_u32(0x100), b"");
        self.sender = None;
        // So that the other side hears of it.
        let idle = async { tokio::time::timeout(PATIENCE, self.endpoint.wait_idle()).await };
        let _ = self.runtime.block_on(idle);
    }
}

/// Handshakes that were begun and that no answer reaches.
pub(crate) struct Knocking {
    runtime: Runtime,
    _endpoint: quinn::Endpoint,
    connecting: Vec<quinn::Connecting>,
}

impl Knocking {
    /// Begins so many; what the other side says to it is thrown away.
    pub(crate) fn begin(address: SocketAddr, tls: &Arc<ClientConfig>, count: usize) -> Self {
        let (front, back) = (local_socket(), local_socket());
        let entry = front.local_addr().expect("an address");
        back.connect(address).expect("an address");
        std::thread::spawn(move || {
            front.set_read_timeout(Some(PATIENCE)).expect("a time");
            let mut room = [0; 2048];
            while let Ok(count) = front.recv(&mut room) {
                let _ = back.send(&room[..count]);
            }
        });
        let runtime = runtime();
        let (endpoint, connecting) = runtime.block_on(async {
            let endpoint = endpoint(tls);
            let begin = |_| endpoint.connect(entry, "shop.example").expect("an address");
            let connecting = (0..count).map(begin).collect();
            (endpoint, connecting)
        });
        Self { runtime, _endpoint: endpoint, connecting }
    }

    /// Lets them go on for a moment; how many there are.
    pub(crate) fn go_on(&self) -> usize {
        self.runtime.block_on(async { tokio::time::sleep(std::time::Duration::from_millis(5)).await });
        self.connecting.len()
    }
}

/// One that goes from a port of its own.
fn endpoint(tls: &Arc<ClientConfig>) -> quinn::Endpoint {
    let runtime = Arc::new(quinn::TokioRuntime);
    let mut endpoint =
        quinn::Endpoint::new(quinn::EndpointConfig::default(), None, local_socket(), runtime).expect("it");
    let crypto = QuicClientConfig::try_from(Arc::clone(tls)).expect("TLS 1.3");
    endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(crypto)));
    endpoint
}
