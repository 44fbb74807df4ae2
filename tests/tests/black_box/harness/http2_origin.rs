//! Endpoints that speak HTTP/2 and follow a script, with the `h2` library beneath.
//!
//! All connections of one origin live on one thread. A script is an async function that gets one stream; it may take as long
//! as it likes, for the others go on.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

/// What a connection of an origin allows.
#[derive(Clone)]
pub(crate) struct Rules {
    /// Streams at once.
    pub(crate) streams_max: u32,
    /// Bytes of one request ahead of the script.
    pub(crate) window: u32,
    /// Time before a connection that was accepted says anything.
    pub(crate) delay: Duration,
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    /// Whether requests for other protocols are taken (RFC 8441).
    pub(crate) upgrades: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { streams_max: 100, window: 65_535, delay: Duration::ZERO, tls: None, upgrades: false }
    }
}

/// What happened there.
#[derive(Default)]
struct Book {
    connections: AtomicUsize,
    open: AtomicUsize,
    streams: AtomicUsize,
    busy: AtomicUsize,
    resets: Mutex<Vec<Reason>>,
    heads: Mutex<Vec<Request<()>>>,
}

/// A listening socket whose connections speak HTTP/2.
pub(crate) struct Http2Origin {
    address: SocketAddr,
    book: Arc<Book>,
    _stop: oneshot::Sender<()>,
}

/// What a script makes of a stream.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One stream, as a script sees it.
pub(crate) struct Asked {
    pub(crate) head: Request<()>,
    pub(crate) body: RecvStream,
    pub(crate) respond: SendResponse<Bytes>,
    /// How many connections came before its own.
    pub(crate) connection: usize,
    /// How many streams came before it, on all connections.
    pub(crate) index: usize,
    /// Its connection.
    pub(crate) line: Arc<Line>,
    book: Arc<Book>,
}

/// A connection, as a script may end it.
#[derive(Default)]
pub(crate) struct Line {
    goodbye: Notify,
    cut: Notify,
}

impl Line {
    /// Says goodbye: streams under way finish, no others are begun.
    pub(crate) fn say_goodbye(&self) {
        self.goodbye.notify_one();
    }

    /// Cuts the connection in the middle of whatever it carries.
    pub(crate) fn cut(&self) {
        self.cut.notify_one();
    }
}

impl Http2Origin {
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
        let listener = std::net::TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a socket");
        let book = Arc::new(Book::default());
        let (stop, stopped) = oneshot::channel();
        let (shared, script) = (Arc::clone(&book), Arc::new(script));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a socket");
                tokio::select! {
                    () = accept(listener, rules, script, shared) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, book, _stop: stop }
    }

    /// Answers every request with 200 and this body.
    pub(crate) fn saying(body: &'static str) -> Self {
        Self::start(Rules::default(), move |asked| Box::pin(asked.answer(body)))
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted so far.
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

    /// Why streams were reset by the other side, as far as scripts have waited for that.
    pub(crate) fn resets(&self) -> Vec<Reason> {
        self.book.resets.lock().expect("resets").clone()
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
}

async fn accept(
    listener: TcpListener,
    rules: Rules,
    script: Arc<impl Fn(Asked) -> Work + Send + Sync + 'static>,
    book: Arc<Book>,
) {
    loop {
        let Ok((tcp, _)) = listener.accept().await else { return };
        let _ = tcp.set_nodelay(true);
        let index = book.connections.fetch_add(1, Ordering::SeqCst);
        let (rules, script, book) = (rules.clone(), Arc::clone(&script), Arc::clone(&book));
        tokio::spawn(async move {
            book.open.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(rules.delay).await;
            match rules.tls.clone() {
                None => carry(tcp, &rules, (index, &book), &*script).await,
                Some(tls) => {
                    if let Ok(tls) = tokio_rustls::TlsAcceptor::from(tls).accept(tcp).await {
                        carry(tls, &rules, (index, &book), &*script).await;
                    }
                }
            }
            book.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn carry(
    io: impl AsyncRead + AsyncWrite + Unpin,
    rules: &Rules,
    (index, book): (usize, &Arc<Book>),
    script: &(impl Fn(Asked) -> Work + Send + Sync + 'static),
) {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(rules.streams_max)
        .initial_window_size(rules.window)
        .initial_connection_window_size(1 << 24);
    if rules.upgrades {
        builder.enable_connect_protocol();
    }
    let handshake = builder.handshake(io);
    let Ok(mut connection): Result<Connection<_, Bytes>, _> = handshake.await else { return };
    let line = Arc::new(Line::default());
    loop {
        let accepted = tokio::select! {
            accepted = connection.accept() => accepted,
            () = line.goodbye.notified() => {
                connection.graceful_shutdown();
                continue;
            }
            () = line.cut.notified() => return,
        };
        let Some(Ok((request, respond))) = accepted else { return };
        let (parts, body) = request.into_parts();
        let head = Request::from_parts(parts, ());
        book.heads.lock().expect("heads").push(head.clone());
        let number = book.streams.fetch_add(1, Ordering::SeqCst);
        let (line, shared) = (Arc::clone(&line), Arc::clone(book));
        let work = script(Asked { head, body, respond, connection: index, index: number, line, book: shared });
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

    /// Reads the whole body, and the trailers if there are any.
    pub(crate) async fn read(&mut self) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
        let mut whole = Vec::new();
        while let Some(piece) = self.body.data().await {
            let piece = piece?;
            whole.extend_from_slice(&piece);
            self.body.flow_control().release_capacity(piece.len())?;
        }
        Ok((whole, self.body.trailers().await?))
    }

    /// Answers 200 with this body, once the request is whole.
    pub(crate) async fn answer(mut self, body: impl Into<Bytes>) {
        if self.read().await.is_ok() {
            self.say(Response::new(()), body).await;
        }
    }

    /// Answers with this head and body.
    pub(crate) async fn say(self, head: Response<()>, body: impl Into<Bytes>) {
        let mut speech = self.begin(head);
        speech.say(body).await;
        speech.end();
    }

    /// Begins an answer.
    pub(crate) fn begin(mut self, head: Response<()>) -> Speech {
        let send = self.respond.send_response(head, false);
        Speech { send: send.ok(), asked: self }
    }

    /// Answers with this head alone.
    pub(crate) fn end(mut self, head: Response<()>) {
        let _ = self.respond.send_response(head, true);
    }

    /// Waits until the other side resets the stream, and notes why.
    pub(crate) async fn wait_reset(&mut self) {
        let reset = std::future::poll_fn(|cx| self.respond.poll_reset(cx)).await;
        self.book.resets.lock().expect("resets").extend(reset.ok());
    }
}

/// An answer under way.
pub(crate) struct Speech {
    send: Option<SendStream<Bytes>>,
    asked: Asked,
}

impl Speech {
    /// Sends this much more of the body, as the other side takes it. False: it takes no more.
    pub(crate) async fn say(&mut self, body: impl Into<Bytes>) -> bool {
        let mut body: Bytes = body.into();
        let Some(send) = &mut self.send else { return false };
        while !body.is_empty() {
            send.reserve_capacity(body.len());
            match std::future::poll_fn(|cx| send.poll_capacity(cx)).await {
                Some(Ok(room)) => {
                    let piece = body.split_to(room.min(body.len()));
                    if send.send_data(piece, false).is_err() {
                        return false;
                    }
                }
                _ => return false,
            }
        }
        true
    }

    /// Whether the other side has reset the stream, as far as is known now.
    pub(crate) async fn is_reset(&mut self) -> bool {
        let Some(send) = &mut self.send else { return true };
        std::future::poll_fn(|cx| std::task::Poll::Ready(send.poll_reset(cx).is_ready())).await
    }

    /// Ends the answer.
    pub(crate) fn end(mut self) {
        if let Some(send) = &mut self.send {
            let _ = send.send_data(Bytes::new(), true);
        }
    }

    /// Ends the answer with trailers.
    pub(crate) fn end_with(mut self, trailers: HeaderMap) {
        if let Some(send) = &mut self.send {
            let _ = send.send_trailers(trailers);
        }
    }

    /// Resets the stream.
    pub(crate) fn reset(mut self, reason: Reason) {
        if let Some(send) = &mut self.send {
            send.send_reset(reason);
        }
    }

    /// Waits until the other side resets the stream, and notes why.
    pub(crate) async fn wait_reset(mut self) {
        if let Some(send) = &mut self.send {
            let reset = std::future::poll_fn(|cx| send.poll_reset(cx)).await;
            self.asked.book.resets.lock().expect("resets").extend(reset.ok());
        }
    }
}
