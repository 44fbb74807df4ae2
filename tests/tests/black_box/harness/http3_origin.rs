//! Endpoints that speak HTTP/3 and follow a script: the `h3` library over `quinn`.
//!
//! All connections of one origin live on one thread, as those of HTTP/2 do (`http2_origin`), and scripts look the same.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::server::RequestStream;
use http::{HeaderMap, Request, Response};
use quinn::crypto::rustls::QuicServerConfig;
use tokio::sync::{Notify, oneshot};

use super::poll::{self, STEP};
use super::tls::{self, Authority};

type Quic = h3_quinn::BidiStream<Bytes>;

/// What a connection of an origin allows.
#[derive(Clone)]
pub(crate) struct Rules {
    /// Streams at once.
    pub(crate) streams_max: u32,
    /// Bytes of one request ahead of the script.
    pub(crate) window: u32,
    /// Time before a connection that was begun is answered.
    pub(crate) delay: Duration,
    pub(crate) tls: Arc<rustls::ServerConfig>,
    /// Whether requests for other protocols are taken (RFC 9220).
    pub(crate) upgrades: bool,
}

impl Rules {
    /// With a certificate of this authority for the loopback address.
    pub(crate) fn of(authority: &Authority) -> Self {
        Self::with(&tls::origin(&authority.issue(&["127.0.0.1"]), None))
    }

    /// With this side of TLS.
    pub(crate) fn with(tls: &rustls::ServerConfig) -> Self {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        Self { streams_max: 100, window: 65_535, delay: Duration::ZERO, tls: Arc::new(tls), upgrades: false }
    }

    fn config(&self) -> quinn::ServerConfig {
        let crypto = QuicServerConfig::try_from(Arc::clone(&self.tls)).expect("TLS 1.3");
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        let mut transport = quinn::TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(self.streams_max.into())
            .stream_receive_window(self.window.into())
            .send_window(256 * 1024);
        config.transport_config(Arc::new(transport));
        config
    }
}

/// What happened there.
#[derive(Default)]
struct Book {
    connections: AtomicUsize,
    open: AtomicUsize,
    streams: AtomicUsize,
    busy: AtomicUsize,
    left: AtomicUsize,
    heads: Mutex<Vec<Request<()>>>,
    ends: Mutex<Vec<quinn::ConnectionError>>,
}

/// A port whose connections speak HTTP/3.
pub(crate) struct Http3Origin {
    address: SocketAddr,
    book: Arc<Book>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What a script makes of a stream.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a connection is from its beginning to how it ended.
type Life = Pin<Box<dyn Future<Output = quinn::ConnectionError> + Send>>;

/// One stream, as a script sees it.
pub(crate) struct Asked {
    pub(crate) head: Request<()>,
    pub(crate) stream: RequestStream<Quic, Bytes>,
    /// How many connections came before its own.
    pub(crate) connection: usize,
    /// How many streams came before it, on all connections.
    pub(crate) index: usize,
    /// Its connection.
    pub(crate) line: Arc<Line>,
    /// How often streams of the connection had been given up when it began.
    stops: u64,
    book: Arc<Book>,
}

/// A connection, as a script may end it.
pub(crate) struct Line {
    goodbye: Notify,
    pub(crate) quic: quinn::Connection,
}

impl Line {
    /// Says goodbye: streams under way finish, no others are begun.
    pub(crate) fn say_goodbye(&self) {
        self.goodbye.notify_one();
    }

    /// Ends the connection in the middle of whatever it carries.
    pub(crate) fn cut(&self) {
        self.quic.close(quinn::VarInt::from_u32(0x102), b"");
    }

    fn stops(&self) -> u64 {
        self.quic.stats().frame_rx.stop_sending
    }
}

impl Http3Origin {
    /// Runs `script` for each stream.
    pub(crate) fn start(rules: Rules, script: impl Fn(Asked) -> Work + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), rules, script)
    }

    /// The same at this address.
    pub(crate) fn start_at(
        address: SocketAddr,
        rules: Rules,
        script: impl Fn(Asked) -> Work + Send + Sync + 'static,
    ) -> Self {
        let script = Arc::new(script);
        Self::run(address, rules, move |quic, index, rules, book| {
            let script = Arc::clone(&script);
            Box::pin(async move { carry(quic, &rules, (index, &book), &*script).await })
        })
    }

    fn run(
        address: SocketAddr,
        rules: Rules,
        each: impl Fn(quinn::Connection, usize, Rules, Arc<Book>) -> Life + Send + Sync + 'static,
    ) -> Self {
        let socket = poll::until("the address is free", || std::net::UdpSocket::bind(address).ok());
        let address = socket.local_addr().expect("an address");
        let book = Arc::new(Book::default());
        let (stop, stopped) = oneshot::channel();
        let (shared, each) = (Arc::clone(&book), Arc::new(each));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let runtime = Arc::new(quinn::TokioRuntime);
                let config = quinn::EndpointConfig::default();
                let endpoint = quinn::Endpoint::new(config, Some(rules.config()), socket, runtime).expect("it");
                tokio::select! {
                    () = accept(endpoint, rules, each, shared) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, book, stop: Some(stop), thread: Some(thread) }
    }

    /// Runs `script` for each QUIC connection, told how many came before it; nobody says anything of HTTP/3 on it.
    pub(crate) fn start_raw(
        rules: Rules,
        script: impl Fn(quinn::Connection, usize) -> Work + Send + Sync + 'static,
    ) -> Self {
        let any = "127.0.0.1:0".parse().expect("an address");
        let script = Arc::new(script);
        Self::run(any, rules, move |quic, index, _, _| {
            let script = Arc::clone(&script);
            Box::pin(async move {
                script(quic.clone(), index).await;
                quic.closed().await
            })
        })
    }

    /// Answers every request with 200 and this body.
    pub(crate) fn saying(authority: &Authority, body: &'static str) -> Self {
        Self::start(Rules::of(authority), move |asked| Box::pin(asked.answer(body)))
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections that were made so far.
    pub(crate) fn connections(&self) -> usize {
        self.book.connections.load(Ordering::SeqCst)
    }

    /// Connections open now.
    pub(crate) fn open(&self) -> usize {
        self.book.open.load(Ordering::SeqCst)
    }

    /// Streams begun so far.
    pub(crate) fn streams(&self) -> usize {
        self.book.streams.load(Ordering::SeqCst)
    }

    /// Scripts that run now.
    pub(crate) fn busy(&self) -> usize {
        self.book.busy.load(Ordering::SeqCst)
    }

    /// Streams that were given up by the other side, as far as scripts have waited for that.
    pub(crate) fn left(&self) -> usize {
        self.book.left.load(Ordering::SeqCst)
    }

    /// The heads of all requests so far.
    pub(crate) fn heads(&self) -> Vec<Request<()>> {
        self.book.heads.lock().expect("heads").clone()
    }

    /// The head of the only request.
    pub(crate) fn only_head(&self) -> Request<()> {
        let heads = self.heads();
        assert_eq!(heads.len(), 1, "{heads:?}");
        heads.into_iter().next().expect("one")
    }

    /// How connections ended so far.
    pub(crate) fn ends(&self) -> Vec<quinn::ConnectionError> {
        self.book.ends.lock().expect("ends").clone()
    }

    /// Ends at once, without a word to anybody.
    pub(crate) fn kill(mut self) -> SocketAddr {
        self.end();
        self.address
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Http3Origin {
    fn drop(&mut self) {
        self.end();
    }
}

async fn accept(
    endpoint: quinn::Endpoint,
    rules: Rules,
    each: Arc<impl Fn(quinn::Connection, usize, Rules, Arc<Book>) -> Life + Send + Sync + 'static>,
    book: Arc<Book>,
) {
    while let Some(incoming) = endpoint.accept().await {
        let (rules, each, book) = (rules.clone(), Arc::clone(&each), Arc::clone(&book));
        tokio::spawn(async move {
            tokio::time::sleep(rules.delay).await;
            let Ok(quic) = incoming.await else { return };
            let index = book.connections.fetch_add(1, Ordering::SeqCst);
            book.open.fetch_add(1, Ordering::SeqCst);
            let end = each(quic, index, rules, Arc::clone(&book)).await;
            book.ends.lock().expect("ends").push(end);
            book.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn carry(
    quic: quinn::Connection,
    rules: &Rules,
    (index, book): (usize, &Arc<Book>),
    script: &(impl Fn(Asked) -> Work + Send + Sync + 'static),
) -> quinn::ConnectionError {
    let mut builder = h3::server::builder();
    // Streams of no use would be given up by the other side, and that is counted.
    builder.enable_extended_connect(rules.upgrades).send_grease(false);
    let made = builder.build(h3_quinn::Connection::new(quic.clone())).await;
    let Ok(mut connection): Result<h3::server::Connection<_, Bytes>, _> = made else { return quic.closed().await };
    let line = Arc::new(Line { goodbye: Notify::new(), quic });
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            () = line.goodbye.notified() => {
                // From the stream behind the last one on; with 0 the library would name the last itself.
                let _ = connection.shutdown(1).await;
                continue;
            }
        };
        // Before the library says that it was us who ended it.
        let Ok(Some(resolver)) = accepted else { return line.quic.closed().await };
        let Ok((head, stream)) = resolver.resolve_request().await else { continue };
        book.heads.lock().expect("heads").push(head.clone());
        let number = book.streams.fetch_add(1, Ordering::SeqCst);
        let (line, shared) = (Arc::clone(&line), Arc::clone(book));
        let stops = line.stops();
        let work = script(Asked { head, stream, connection: index, index: number, line, stops, book: shared });
        let book = Arc::clone(book);
        tokio::spawn(async move {
            book.busy.fetch_add(1, Ordering::SeqCst);
            work.await;
            book.busy.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

impl Asked {
    /// The path, with the query.
    pub(crate) fn path(&self) -> String {
        self.head.uri().path_and_query().map(ToString::to_string).unwrap_or_default()
    }

    /// The next bytes of the body. `None`: its end. An error: it did not come whole.
    pub(crate) async fn piece(&mut self) -> Result<Option<Vec<u8>>, ()> {
        let piece = self.stream.recv_data().await.map_err(drop)?;
        Ok(piece.map(|mut piece| piece.copy_to_bytes(piece.remaining()).to_vec()))
    }

    /// Reads the whole body, and the trailers if there are any.
    pub(crate) async fn read(&mut self) -> Result<(Vec<u8>, Option<HeaderMap>), ()> {
        let mut whole = Vec::new();
        while let Some(piece) = self.piece().await? {
            whole.extend(piece);
        }
        Ok((whole, self.stream.recv_trailers().await.map_err(drop)?))
    }

    /// Answers 200 with this body, once the request is whole.
    pub(crate) async fn answer(mut self, body: impl Into<Bytes>) {
        if self.read().await.is_ok() {
            self.say(Response::new(()), body).await;
        }
    }

    /// Answers with this head and body.
    pub(crate) async fn say(self, head: Response<()>, body: impl Into<Bytes>) {
        let mut speech = self.begin(head).await;
        speech.say(body).await;
        speech.end().await;
    }

    /// Sends an interim head.
    pub(crate) async fn hint(&mut self, head: Response<()>) {
        let _ = self.stream.send_response(head).await;
    }

    /// Begins an answer.
    pub(crate) async fn begin(mut self, head: Response<()>) -> Speech {
        let is_good = self.stream.send_response(head).await.is_ok();
        Speech { is_good, asked: self }
    }

    /// Answers with this head alone.
    pub(crate) async fn end(self, head: Response<()>) {
        self.begin(head).await.end().await;
    }

    /// Gives the stream up with this code, in both directions.
    pub(crate) fn reset(mut self, code: Code) {
        self.stream.stop_sending(code);
        self.stream.stop_stream(code);
    }

    /// Waits until the other side gives up a stream of the connection, of which there is no other, or the connection.
    pub(crate) async fn wait_left(&mut self) {
        while self.line.stops() == self.stops && self.line.quic.close_reason().is_none() {
            tokio::time::sleep(STEP).await;
        }
        self.book.left.fetch_add(1, Ordering::SeqCst);
    }
}

/// An answer under way.
pub(crate) struct Speech {
    is_good: bool,
    asked: Asked,
}

impl Speech {
    /// Sends this much more of the body, as the other side takes it. False: it takes no more.
    pub(crate) async fn say(&mut self, body: impl Into<Bytes>) -> bool {
        self.is_good = self.is_good && self.asked.stream.send_data(body.into()).await.is_ok();
        self.is_good
    }

    /// What it answers.
    pub(crate) fn asked(&mut self) -> &mut Asked {
        &mut self.asked
    }

    /// Ends the answer.
    pub(crate) async fn end(mut self) {
        let _ = self.asked.stream.finish().await;
    }

    /// Ends the answer with trailers.
    pub(crate) async fn end_with(mut self, trailers: HeaderMap) {
        let _ = self.asked.stream.send_trailers(trailers).await;
        let _ = self.asked.stream.finish().await;
    }

    /// Breaks the answer off with this code.
    pub(crate) fn reset(mut self, code: Code) {
        self.asked.stream.stop_stream(code);
    }
}
