//! Endpoints that follow a script and write down what they received.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::peer::{Message, Peer, Stream};
use super::{net, poll};

/// A listening socket and what arrived there. One thread per connection, all ended by their sockets' time limits.
pub(crate) struct Origin {
    address: SocketAddr,
    book: Arc<Book>,
}

/// What an origin wrote down.
#[derive(Default)]
pub(crate) struct Book {
    stop: AtomicBool,
    /// Of an origin that can be killed: its connections. They stay open until then.
    sockets: Option<Mutex<Vec<TcpStream>>>,
    journals: Mutex<Vec<Arc<Mutex<Vec<u8>>>>>,
    requests: Mutex<Vec<Message>>,
    open: AtomicUsize,
    busy: AtomicUsize,
    busy_max: AtomicUsize,
}

impl Book {
    /// Notes a whole request.
    pub(crate) fn note(&self, request: &Message) {
        self.requests.lock().expect("requests").push(request.clone());
    }

    /// Notes that a request is worked on, until the guard goes.
    pub(crate) fn busy(&self) -> Busy<'_> {
        let now = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
        self.busy_max.fetch_max(now, Ordering::SeqCst);
        Busy(self)
    }
}

/// A request at work.
pub(crate) struct Busy<'a>(&'a Book);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One accepted connection, as a script sees it.
pub(crate) struct Visit<'a> {
    /// The connection.
    pub(crate) peer: Peer,
    /// How many came before it.
    pub(crate) index: usize,
    /// Where to note requests.
    pub(crate) book: &'a Book,
}

impl Visit<'_> {
    /// Reads and notes a request; `None` when the connection ended.
    pub(crate) fn request(&mut self) -> Option<Message> {
        let request = self.peer.try_request()?;
        self.book.note(&request);
        Some(request)
    }

    /// Answers every request with what `answer` makes of it, until the connection ends or `answer` says `None`.
    pub(crate) fn answer_all(&mut self, answer: impl Fn(&Message) -> Option<Vec<u8>>) {
        while let Some(request) = self.request() {
            let busy = self.book.busy();
            let Some(response) = answer(&request) else { return };
            drop(busy);
            if self.peer.try_send(response).is_err() {
                return;
            }
        }
    }
}

impl Origin {
    /// Runs `script` for each connection.
    pub(crate) fn start(script: impl Fn(Visit<'_>) + Send + Sync + 'static) -> Self {
        Self::spawn(bind(), None, Book::default(), script)
    }

    /// The same over TLS; connections whose handshake fails are counted but run no script.
    pub(crate) fn start_tls(config: Arc<ServerConfig>, script: impl Fn(Visit<'_>) + Send + Sync + 'static) -> Self {
        Self::spawn(bind(), Some(config), Book::default(), script)
    }

    /// The same at an address where something listened before.
    pub(crate) fn start_at(address: SocketAddr, script: impl Fn(Visit<'_>) + Send + Sync + 'static) -> Self {
        let listener = poll::until("the address is free", || TcpListener::bind(address).ok());
        Self::spawn(listener, None, Book::default(), script)
    }

    /// Answers every request with 200 and this body until it is killed; at `address`, if something listened there before.
    pub(crate) fn mortal(address: Option<SocketAddr>, body: &'static str) -> Self {
        // One that the kernel gives to nobody else meanwhile.
        let address = address.unwrap_or_else(net::free);
        let book = Book { sockets: Some(Mutex::default()), ..Book::default() };
        let listener = poll::until("the address is free", || TcpListener::bind(address).ok());
        Self::spawn(listener, None, book, move |mut visit| visit.answer_all(|_| Some(ok(body))))
    }

    /// Answers every request with what `answer` makes of it, until it is killed.
    pub(crate) fn mortal_answering(answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let book = Book { sockets: Some(Mutex::default()), ..Book::default() };
        Self::spawn(bind(), None, book, move |mut visit| visit.answer_all(|request| Some(answer(request))))
    }

    /// Answers every request with what `answer` makes of it.
    pub(crate) fn answering(answer: impl Fn(&Message) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(move |mut visit| visit.answer_all(|request| Some(answer(request))))
    }

    /// Answers every request with 200 and this body.
    pub(crate) fn saying(body: &'static str) -> Self {
        Self::answering(move |request| ok_for(request, body))
    }

    /// Accepts connections and sends every byte back.
    pub(crate) fn echo() -> Self {
        Self::start(|mut visit| {
            while visit.peer.fill().is_ok_and(|count| count > 0) {
                let bytes = visit.peer.drain();
                if visit.peer.try_send(bytes).is_err() {
                    return;
                }
            }
            visit.peer.half_close();
        })
    }

    fn spawn(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        book: Book,
        script: impl Fn(Visit<'_>) + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().expect("an address");
        let book = Arc::new(book);
        let (shared, script) = (Arc::clone(&book), Arc::new(script));
        std::thread::spawn(move || {
            for (index, stream) in listener.incoming().enumerate() {
                if shared.stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                if let Some(sockets) = &shared.sockets {
                    sockets.lock().expect("sockets").extend(stream.try_clone());
                }
                let (book, script, tls) = (Arc::clone(&shared), Arc::clone(&script), tls.clone());
                let journal = Arc::new(Mutex::new(Vec::new()));
                book.journals.lock().expect("journals").push(Arc::clone(&journal));
                book.open.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || {
                    let _gone = Gone(&book);
                    let Some(mut peer) = accept(stream, tls) else { return };
                    peer.keep_journal(journal);
                    script(Visit { peer, index, book: &book });
                });
            }
        });
        Self { address, book }
    }

    /// Ends like a process that is killed: it listens no more, and its connections are gone in the middle of whatever
    /// they carry.
    pub(crate) fn kill(&self) {
        self.book.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect_timeout(&self.address, poll::PATIENCE);
        let sockets = self.book.sockets.as_ref().expect("an origin that was started as one that can be killed");
        for socket in sockets.lock().expect("sockets").drain(..) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.book.journals.lock().expect("journals").len()
    }

    /// Connections open now, as far as their scripts have noticed.
    pub(crate) fn open(&self) -> usize {
        self.book.open.load(Ordering::SeqCst)
    }

    /// Every byte received on a connection, in order of arrival there.
    pub(crate) fn received(&self, connection: usize) -> Vec<u8> {
        let journals = self.book.journals.lock().expect("journals");
        journals.get(connection).map(|journal| journal.lock().expect("journal").clone()).unwrap_or_default()
    }

    /// Whole requests received so far.
    pub(crate) fn requests(&self) -> Vec<Message> {
        self.book.requests.lock().expect("requests").clone()
    }

    /// The only request received.
    pub(crate) fn only_request(&self) -> Message {
        let requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.into_iter().next().expect("one")
    }

    /// Most requests worked on at once.
    pub(crate) fn busy_max(&self) -> usize {
        self.book.busy_max.load(Ordering::SeqCst)
    }

    /// Requests worked on now.
    pub(crate) fn busy(&self) -> usize {
        self.book.busy.load(Ordering::SeqCst)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.book.stop.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then closes the listening socket.
        let _ = TcpStream::connect_timeout(&self.address, poll::PATIENCE);
    }
}

struct Gone<'a>(&'a Book);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn bind() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a free port")
}

fn accept(stream: TcpStream, tls: Option<Arc<ServerConfig>>) -> Option<Peer> {
    let Some(config) = tls else { return Some(Peer::new(Stream::Plain(stream))) };
    stream.set_read_timeout(Some(poll::PATIENCE)).ok()?;
    let mut tls = StreamOwned::new(ServerConnection::new(config).ok()?, stream);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock).ok()?;
    }
    Some(Peer::new(Stream::Accepted(Box::new(tls))))
}

/// 200 with this body.
pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// 200 with this body, which a HEAD request does not get.
pub(crate) fn ok_for(request: &Message, body: &str) -> Vec<u8> {
    let mut response = ok(body);
    if request.method() == "HEAD" {
        response.truncate(response.len() - body.len());
    }
    response
}
