//! A client that speaks HTTP/2: the `h2` library behind calls that block. Its connection moves only during a call.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::poll::PATIENCE;

/// A connection.
pub(crate) struct Client {
    runtime: Runtime,
    sender: SendRequest<Bytes>,
    driver: Option<JoinHandle<Result<(), h2::Error>>>,
}

/// One stream of it.
pub(crate) struct Stream {
    response: Option<ResponseFuture>,
    send: SendStream<Bytes>,
    body: Option<RecvStream>,
    /// Statuses and fields of the interim responses that came.
    pub(crate) interim: Vec<(u16, HeaderMap)>,
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: HeaderMap,
}

impl Answer {
    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The value of the only field of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        assert!(self.fields.get_all(name).iter().count() < 2, "`{name}` occurs more than once in {self:?}");
        self.fields.get(name).and_then(|value| value.to_str().ok())
    }
}

/// A request without a body.
pub(crate) fn request(method: &str, path: &str) -> Request<()> {
    let uri = format!("http://test{path}");
    Request::builder().method(method).uri(uri).version(http::Version::HTTP_2).body(()).expect("a request")
}

/// The same with these fields.
pub(crate) fn with_fields(mut request: Request<()>, fields: &[(&'static str, &str)]) -> Request<()> {
    for (name, value) in fields {
        request.headers_mut().append(*name, value.parse().expect("a value"));
    }
    request
}

async fn reach(address: SocketAddr) -> TcpStream {
    let tcp = TcpStream::connect(address).await.expect("a connection");
    // Small frames are not to wait for what was sent before them.
    tcp.set_nodelay(true).expect("a socket");
    tcp
}

impl Client {
    /// Connects, knowing that HTTP/2 is spoken there.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::with(address, |_| {})
    }

    /// The same, with these few bytes before anything else.
    pub(crate) fn connect_behind(address: SocketAddr, before: Vec<u8>) -> Self {
        Self::begin(|_| {}, async move {
            let tcp = reach(address).await;
            tcp.writable().await.expect("a connection");
            assert_eq!(tcp.try_write(&before).expect("a new connection takes a few bytes"), before.len());
            tcp
        })
    }

    /// The same with other settings.
    pub(crate) fn with(address: SocketAddr, set: impl FnOnce(&mut Builder)) -> Self {
        Self::begin(set, reach(address))
    }

    /// Connects with TLS, which must agree on HTTP/2.
    pub(crate) fn connect_tls(address: SocketAddr, name: &str, config: &Arc<ClientConfig>) -> Self {
        Self::tls_with(address, name, config, |_| {})
    }

    /// The same with other settings.
    pub(crate) fn tls_with(
        address: SocketAddr,
        name: &str,
        config: &Arc<ClientConfig>,
        set: impl FnOnce(&mut Builder),
    ) -> Self {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(config));
        Self::begin(set, async move {
            let tcp = reach(address).await;
            let tls = connector.connect(name, tcp).await.expect("a handshake");
            assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            tls
        })
    }

    fn begin<T>(set: impl FnOnce(&mut Builder), connecting: impl Future<Output = T>) -> Self
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut builder = Builder::new();
        set(&mut builder);
        let (sender, driver) = runtime.block_on(async {
            let work = async { builder.handshake(connecting.await).await.expect("a handshake") };
            let (sender, connection) = tokio::time::timeout(PATIENCE, work).await.expect("a handshake in time");
            (sender, tokio::spawn(connection))
        });
        Self { runtime, sender, driver: Some(driver) }
    }

    fn wait<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let bounded = async { tokio::time::timeout(PATIENCE, work).await };
        self.runtime.block_on(bounded).unwrap_or_else(|_| panic!("waited {PATIENCE:?} in vain: {what}"))
    }

    /// Begins a stream, whose request has no body if it `ends`.
    pub(crate) fn open(&mut self, request: Request<()>, ends: bool) -> Stream {
        self.try_open(request, ends).expect("a stream begins")
    }

    /// The same, where failing is an answer.
    pub(crate) fn try_open(&mut self, request: Request<()>, ends: bool) -> Result<Stream, h2::Error> {
        let ready = self.sender.clone().ready();
        let mut sender = self.wait("room for a stream", ready)?;
        let (response, send) = sender.send_request(request, ends)?;
        self.flush();
        Ok(Stream { response: Some(response), send, body: None, interim: Vec::new() })
    }

    /// Lets the connection send what waits.
    pub(crate) fn flush(&self) {
        self.runtime.block_on(async {
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Sends body bytes as the window allows.
    pub(crate) fn send(&self, stream: &mut Stream, bytes: &[u8], ends: bool) {
        self.try_send(stream, bytes, ends).expect("the other side takes the body");
    }

    /// The same, where failing is an answer.
    pub(crate) fn try_send(&self, stream: &mut Stream, bytes: &[u8], ends: bool) -> Result<(), h2::Error> {
        let mut rest = Bytes::copy_from_slice(bytes);
        let send = &mut stream.send;
        while !rest.is_empty() {
            send.reserve_capacity(rest.len());
            let room = self.wait(
                "a window",
                poll_fn(|cx| match send.capacity() {
                    0 => send.poll_capacity(cx),
                    room => Poll::Ready(Some(Ok(room))),
                }),
            );
            let room = room.ok_or(h2::Error::from(Reason::STREAM_CLOSED))??;
            let piece = rest.split_to(room.min(rest.len()));
            send.send_data(piece, ends && rest.is_empty())?;
        }
        if bytes.is_empty() {
            send.send_data(Bytes::new(), ends)?;
        }
        self.flush();
        Ok(())
    }

    /// Sends as much of `bytes` as the window lets through until it has been shut for this long; how much that was.
    pub(crate) fn send_some(&self, stream: &mut Stream, bytes: &'static [u8], shut: Duration) -> usize {
        let mut rest = Bytes::from_static(bytes);
        let send = &mut stream.send;
        while !rest.is_empty() {
            send.reserve_capacity(rest.len());
            let room = poll_fn(|cx| match send.capacity() {
                0 => send.poll_capacity(cx),
                room => Poll::Ready(Some(Ok(room))),
            });
            let room = self.runtime.block_on(async { tokio::time::timeout(shut, room).await });
            let Ok(Some(Ok(room))) = room else { break };
            let piece = rest.split_to(room.min(rest.len()));
            if send.send_data(piece, false).is_err() {
                break;
            }
        }
        self.flush();
        bytes.len() - rest.len()
    }

    /// Ends the request with trailers.
    pub(crate) fn send_trailers(&self, stream: &mut Stream, trailers: HeaderMap) {
        stream.send.send_trailers(trailers).expect("the stream is open");
        self.flush();
    }

    /// Resets the stream.
    pub(crate) fn reset(&self, mut stream: Stream, reason: Reason) {
        stream.send.send_reset(reason);
        drop(stream);
        self.flush();
    }

    /// Waits for the next interim response; its status, or `None` when the final one, or the end, came instead.
    pub(crate) fn next_interim(&self, stream: &mut Stream) -> Option<u16> {
        let response = stream.response.as_mut().expect("no head was asked for");
        let head = self.wait("an interim response", poll_fn(|cx| response.poll_informational(cx)))?.ok()?;
        let status = head.status().as_u16();
        stream.interim.push((status, head.headers().clone()));
        Some(status)
    }

    /// Waits for the head of the final response.
    pub(crate) fn head(&self, stream: &mut Stream) -> Result<(u16, HeaderMap), h2::Error> {
        let mut response = stream.response.take().expect("no head was asked for");
        let interim = &mut stream.interim;
        let answered = self.wait("a response", async {
            poll_fn(|cx| {
                while let Poll::Ready(Some(Ok(interim_head))) = response.poll_informational(cx) {
                    interim.push((interim_head.status().as_u16(), interim_head.headers().clone()));
                }
                std::pin::Pin::new(&mut response).poll(cx)
            })
            .await
        })?;
        let (parts, body) = answered.into_parts();
        stream.body = Some(body);
        Ok((parts.status.as_u16(), parts.headers))
    }

    /// The next bytes of the body; the window is opened again for them. `None`: its end.
    pub(crate) fn chunk(&self, stream: &mut Stream) -> Option<Result<Bytes, h2::Error>> {
        let body = stream.body.as_mut().expect("a head was read");
        let data = self.wait("body bytes", body.data())?;
        if let Ok(data) = &data {
            let _ = body.flow_control().release_capacity(data.len());
        }
        Some(data)
    }

    /// Waits for the whole response.
    pub(crate) fn try_answer(&self, mut stream: Stream) -> Result<Answer, h2::Error> {
        let (status, fields) = self.head(&mut stream)?;
        let mut answer = Answer { status, fields, body: Vec::new(), trailers: HeaderMap::new() };
        while let Some(chunk) = self.chunk(&mut stream) {
            answer.body.extend_from_slice(&chunk?);
        }
        answer.trailers = self.trailers(&mut stream)?;
        Ok(answer)
    }

    /// Waits for the trailers behind a body that was read to its end.
    pub(crate) fn trailers(&self, stream: &mut Stream) -> Result<HeaderMap, h2::Error> {
        let body = stream.body.as_mut().expect("a head was read");
        Ok(self.wait("trailers", body.trailers())?.unwrap_or_default())
    }

    /// Waits for the whole response, which must come.
    pub(crate) fn answer(&self, stream: Stream) -> Answer {
        self.try_answer(stream).unwrap_or_else(|error| panic!("a response was due: {error}"))
    }

    /// Sends a request and waits for its response.
    pub(crate) fn ask(&mut self, request: Request<()>, body: &[u8]) -> Answer {
        let mut stream = self.open(request, body.is_empty());
        if !body.is_empty() {
            // The answer may be here already, and with it the end of interest.
            let _ = self.try_send(&mut stream, body, true);
        }
        self.answer(stream)
    }

    /// Asks for a path with the host `test`.
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask(request("GET", path), b"")
    }

    /// Waits until the other side ends the connection; how it did.
    pub(crate) fn ended(&mut self) -> Result<(), h2::Error> {
        let driver = self.driver.take().expect("it has not ended yet");
        self.wait("the end of the connection", driver).expect("a driver")
    }
}
