//! One end of a connection, under the test's control byte by byte.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::poll::PATIENCE;
use super::sys;

/// What carries the bytes.
pub(crate) enum Stream {
    Plain(TcpStream),
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    Accepted(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Stream {
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Client(tls) => &tls.sock,
            Self::Accepted(tls) => &tls.sock,
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.read(buffer),
            Self::Client(tls) => tls.read(buffer),
            Self::Accepted(tls) => tls.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(tcp) => tcp.write(bytes),
            Self::Client(tls) => tls.write(bytes),
            Self::Accepted(tls) => tls.write(bytes),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(tcp) => tcp.write_all(bytes),
            Self::Client(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
            Self::Accepted(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }
}

/// A request or a response as it was on the wire.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message {
    /// The head, byte-exact, with the empty line.
    pub(crate) head: Vec<u8>,
    /// The first line.
    pub(crate) line: String,
    /// In order and case.
    pub(crate) fields: Vec<(String, String)>,
    /// Without framing.
    pub(crate) body: Vec<u8>,
    /// After a chunked body.
    pub(crate) trailers: Vec<(String, String)>,
}

impl Message {
    /// The value of the only field of this name; panics when there are several.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.all(name).into_iter();
        let first = values.next();
        assert!(values.next().is_none(), "`{name}` occurs more than once in {self:?}");
        first
    }

    /// All values of a field.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let is = |pair: &&(String, String)| pair.0.eq_ignore_ascii_case(name);
        self.fields.iter().filter(is).map(|pair| pair.1.as_str()).collect()
    }

    /// The status of a response.
    pub(crate) fn status(&self) -> u16 {
        self.line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{self:?}"))
    }

    /// The method of a request.
    pub(crate) fn method(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }

    /// The target of a request.
    pub(crate) fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The head as text.
    pub(crate) fn head_text(&self) -> String {
        String::from_utf8_lossy(&self.head).into_owned()
    }

    fn parse(head: Vec<u8>) -> Self {
        let text = String::from_utf8_lossy(&head).into_owned();
        let mut lines = text.strip_suffix("\r\n\r\n").unwrap_or(&text).split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        Self { line, fields: fields(lines), head, ..Self::default() }
    }
}

fn fields<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<(String, String)> {
    let split = |line: &str| match line.split_once(':') {
        Some((name, value)) => (name.to_owned(), value.trim_matches([' ', '\t']).to_owned()),
        None => (line.to_owned(), String::new()),
    };
    lines.map(split).collect()
}

/// One end of a connection: a stream and what was read of it beyond the last message.
pub(crate) struct Peer {
    stream: Stream,
    pending: Vec<u8>,
    journal: Option<Arc<Mutex<Vec<u8>>>>,
}

impl Peer {
    /// Takes over a stream and puts a bound on its reads and writes.
    pub(crate) fn new(stream: Stream) -> Self {
        let tcp = stream.tcp();
        tcp.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        tcp.set_write_timeout(Some(PATIENCE)).expect("a time limit");
        // Fails on a Unix socket, which has none.
        let _ = tcp.set_nodelay(true);
        Self { stream, pending: Vec::new(), journal: None }
    }

    /// Connects.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let tcp = TcpStream::connect_timeout(&address, PATIENCE);
        Self::new(Stream::Plain(tcp.unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))))
    }

    /// Connects to a Unix socket, which then goes by the type of a TCP stream.
    pub(crate) fn connect_unix(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let unix = UnixStream::connect(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::unix(unix)
    }

    /// Takes over a Unix socket.
    pub(crate) fn unix(unix: UnixStream) -> Self {
        Self::new(Stream::Plain(OwnedFd::from(unix).into()))
    }

    /// Connects from this address of our own.
    pub(crate) fn connect_from(source: IpAddr, address: SocketAddr) -> Self {
        Self::new(Stream::Plain(sys::connect_from(source, address)))
    }

    /// Connects, unless the connection is reset before we know of it.
    pub(crate) fn try_connect(address: SocketAddr) -> Option<Self> {
        TcpStream::connect_timeout(&address, PATIENCE).ok().map(|tcp| Self::new(Stream::Plain(tcp)))
    }

    /// Connects, sends these bytes and returns the connection.
    pub(crate) fn sending(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Self {
        let mut peer = Self::connect(address);
        peer.send(bytes);
        peer
    }

    /// Keeps a copy of every byte that is read.
    pub(crate) fn keep_journal(&mut self, journal: Arc<Mutex<Vec<u8>>>) {
        self.journal = Some(journal);
    }

    /// The socket.
    pub(crate) fn tcp(&self) -> &TcpStream {
        self.stream.tcp()
    }

    /// The protocol that was agreed on as TLS began, where this side has accepted.
    pub(crate) fn agreed(&self) -> Option<Vec<u8>> {
        match &self.stream {
            Stream::Accepted(tls) => tls.conn.alpn_protocol().map(<[u8]>::to_vec),
            _ => None,
        }
    }

    /// The TLS client session of a connection that has one.
    pub(crate) fn tls(&self) -> &ClientConnection {
        match &self.stream {
            Stream::Client(tls) => &tls.conn,
            _ => panic!("not a TLS client"),
        }
    }

    /// Sends all of these bytes.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the other side takes what is sent");
    }

    /// Sends all of these bytes, unless the other side does not take them.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Sends as much of `bytes` as the other side takes until it has taken nothing for this long; how much that was.
    pub(crate) fn send_some(&mut self, bytes: &[u8], shut: Duration) -> usize {
        // With TLS a write that cannot go on reads.
        self.set_read_timeout(shut);
        self.tcp().set_write_timeout(Some(shut)).expect("a time limit");
        let mut sent = 0;
        while sent < bytes.len()
            && let Some(count) = self.stream.write(&bytes[sent..]).ok().filter(|count| *count > 0)
        {
            sent += count;
        }
        self.tcp().set_write_timeout(Some(PATIENCE)).expect("a time limit");
        self.set_read_timeout(PATIENCE);
        sent
    }

    /// Reads once more. `Ok(0)`: the other side has closed.
    pub(crate) fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 64 * 1024];
        let count = self.stream.read(&mut buffer)?;
        self.pending.extend_from_slice(&buffer[..count]);
        if let Some(journal) = &self.journal {
            journal.lock().expect("journal").extend_from_slice(&buffer[..count]);
        }
        Ok(count)
    }

    /// What was read and not yet taken.
    pub(crate) fn drain(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    /// Waits until something is there to be taken; how much it is.
    pub(crate) fn wait_some(&mut self) -> io::Result<usize> {
        if self.pending.is_empty() {
            self.fill_or_end()?;
        }
        Ok(self.pending.len())
    }

    /// Passes over a header of the PROXY protocol, if there is one.
    pub(crate) fn skip_proxy_header(&mut self) -> io::Result<()> {
        while self.pending.len() < 5 {
            if self.fill()? == 0 {
                return Ok(());
            }
        }
        match &self.pending[..5] {
            b"PROXY" => self.try_take_through(b"\r\n").map(drop),
            b"\r\n\r\n\0" => {
                let head = self.try_take(16)?;
                self.try_take(usize::from(u16::from_be_bytes([head[14], head[15]]))).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Reads exactly this many bytes.
    pub(crate) fn take(&mut self, count: usize) -> Vec<u8> {
        self.try_take(count).unwrap_or_else(|error| panic!("{count} bytes: {error}; got {}", self.unread()))
    }

    /// Reads exactly this many bytes. `None`: the connection ended before.
    pub(crate) fn try_read(&mut self, count: usize) -> Option<Vec<u8>> {
        match self.try_take(count) {
            Ok(bytes) => Some(bytes),
            Err(error) if is_end(&error) => None,
            Err(error) => panic!("{count} bytes: {error}; got {}", self.unread()),
        }
    }

    /// The same; an error when the connection ends before.
    pub(crate) fn try_take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.pending.len() < count {
            self.fill_or_end()?;
        }
        Ok(self.pending.drain(..count).collect())
    }

    fn fill_or_end(&mut self) -> io::Result<()> {
        match self.fill()? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Reads to and including `end`.
    pub(crate) fn try_take_through(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        let mut from = 0;
        loop {
            let found = self.pending[from..].windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                return Ok(self.pending.drain(..from + at + end.len()).collect());
            }
            from = (self.pending.len() + 1).saturating_sub(end.len());
            self.fill_or_end()?;
        }
    }

    /// Reads a head. `None`: the other side closed, or reset, before its first byte.
    pub(crate) fn try_head(&mut self) -> io::Result<Option<Message>> {
        match self.try_take_through(b"\r\n\r\n") {
            Ok(head) => Ok(Some(Message::parse(head))),
            Err(error) if self.pending.is_empty() && is_end(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a head, which must come.
    pub(crate) fn head(&mut self) -> Message {
        match self.try_head() {
            Ok(Some(message)) => message,
            Ok(None) => panic!("the connection was closed where a head was due"),
            Err(error) => panic!("a head was due: {error}; got {}", self.unread()),
        }
    }

    /// Reads a whole request; `None`: the connection ended before or within it.
    pub(crate) fn try_request(&mut self) -> Option<Message> {
        let mut message = self.try_head().ok().flatten()?;
        self.try_body(&mut message, false).ok()?;
        Some(message)
    }

    /// Reads a whole response, to a request that was not HEAD. Interim responses are not skipped.
    pub(crate) fn response(&mut self) -> Message {
        let mut message = self.head();
        let body = self.try_body(&mut message, true);
        body.unwrap_or_else(|error| panic!("the body of this response was due: {error}: {message:?}"));
        message
    }

    /// Sends a request and reads its response.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> Message {
        self.send(request);
        self.response()
    }

    /// Asks for a path with the host `test`.
    pub(crate) fn get(&mut self, path: &str) -> Message {
        self.ask(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"))
    }

    /// Reads the body that `message` announces. Without framing a response lasts until the connection ends.
    pub(crate) fn try_body(&mut self, message: &mut Message, is_response: bool) -> io::Result<()> {
        if is_response && matches!(message.status(), 100..=199 | 204 | 304) {
            return Ok(());
        }
        if let Some(codings) = message.field("transfer-encoding") {
            assert!(codings.eq_ignore_ascii_case("chunked"), "{codings}");
            return self.try_chunks(message);
        }
        match message.field("content-length") {
            Some(length) => message.body = self.try_take(length.parse().expect("a length"))?,
            None if is_response => message.body = self.try_rest()?,
            None => {}
        }
        Ok(())
    }

    fn try_chunks(&mut self, message: &mut Message) -> io::Result<()> {
        loop {
            let line = self.try_take_through(b"\r\n")?;
            let text = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
            let digits = text.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("`{text}` is no chunk size"));
            if size == 0 {
                break;
            }
            let chunk = self.try_take(size + 2)?;
            assert!(chunk.ends_with(b"\r\n"), "a chunk ends in CRLF");
            message.body.extend_from_slice(&chunk[..size]);
        }
        let mut trailer = Vec::new();
        while !(trailer == b"\r\n" || trailer.ends_with(b"\r\n\r\n")) {
            trailer.extend(self.try_take_through(b"\r\n")?);
        }
        let text = String::from_utf8_lossy(&trailer).into_owned();
        message.trailers = fields(text.split("\r\n").filter(|line| !line.is_empty()));
        Ok(())
    }

    /// Reads until the other side closes in good order.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        self.try_rest().unwrap_or_else(|error| panic!("an orderly end was due: {error}; got {}", self.unread()))
    }

    pub(crate) fn try_rest(&mut self) -> io::Result<Vec<u8>> {
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.pending))
    }

    /// Asserts that the other side closes, by FIN or RST, without another byte.
    pub(crate) fn assert_closed(&mut self) {
        match self.fill() {
            Ok(0) => {}
            Err(error) if is_end(&error) => {}
            Ok(_) => panic!("more bytes where a close was due: {}", self.unread()),
            Err(error) => panic!("a close was due: {error}"),
        }
        assert!(self.pending.is_empty(), "unread bytes before the close: {}", self.unread());
    }

    /// Asserts that nothing comes, and the connection stays open, for a while.
    pub(crate) fn assert_silent(&mut self, time: Duration) {
        self.set_read_timeout(time);
        let result = self.fill();
        self.set_read_timeout(PATIENCE);
        let silent = matches!(&result, Err(error) if is_timeout(error));
        assert!(silent && self.pending.is_empty(), "silence was due: {result:?} {}", self.unread());
    }

    /// Asserts that an idle connection was not closed by the other side.
    pub(crate) fn assert_open(&mut self) {
        self.assert_silent(Duration::from_millis(1));
    }

    /// Waits until the other side closes or resets; whatever still comes is dropped. Returns how long it took.
    pub(crate) fn wait_closed(&mut self) -> Duration {
        let start = Instant::now();
        loop {
            match self.fill() {
                Ok(0) => return start.elapsed(),
                Ok(_) => self.pending.clear(),
                Err(error) if is_end(&error) => return start.elapsed(),
                Err(error) => panic!("a close was due: {error}"),
            }
        }
    }

    /// Waits for a whole response, or for the connection to end within one.
    pub(crate) fn wait_closed_or_answered(&mut self) {
        if let Ok(Some(mut message)) = self.try_head() {
            // Half a body is an answer too.
            let _ = self.try_body(&mut message, true);
        }
    }

    /// Ends our direction; what comes can still be read.
    pub(crate) fn half_close(&mut self) {
        match &mut self.stream {
            Stream::Plain(_) => {}
            Stream::Client(tls) => {
                tls.conn.send_close_notify();
                let _ = tls.flush();
            }
            Stream::Accepted(tls) => {
                tls.conn.send_close_notify();
                let _ = tls.flush();
            }
        }
        let _ = self.tcp().shutdown(Shutdown::Write);
    }

    /// Ends the connection with RST.
    pub(crate) fn reset(self) {
        sys::reset(self.tcp());
    }

    /// Bounds each further read.
    pub(crate) fn set_read_timeout(&mut self, time: Duration) {
        self.tcp().set_read_timeout(Some(time)).expect("a time limit");
    }

    fn unread(&self) -> String {
        let shown = &self.pending[..self.pending.len().min(2000)];
        format!("{} bytes: {:?}", self.pending.len(), String::from_utf8_lossy(shown))
    }
}

/// Whether a read failed because the other side is gone.
pub(crate) fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// Whether a read ended because its time was over.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
