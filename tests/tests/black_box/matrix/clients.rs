//! Clients of every version behind one face, so that each case is written once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use h2::Reason;
use http::HeaderMap;
use rustls::ClientConfig;
use tokio::task::JoinHandle;

use super::super::harness::http2::{self, Client, request};
use super::super::harness::poll::PATIENCE;
use super::super::harness::{Message, Peer, http3, tls};
use super::Fields;
use super::framed::{Body, chunk, last_chunk};
use super::pattern;

/// The name that certificates have, and that clients ask for.
pub(super) const NAME: &str = "site.test";

/// A request head.
pub(super) struct Ask {
    pub(super) method: &'static str,
    pub(super) path: String,
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) body: Framing,
}

/// Whether a body follows, and what is said of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(u64),
    /// Nothing is said.
    Pieces,
}

/// A response head.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) fields: Fields,
    /// The interim ones that came before it.
    pub(super) interim: Vec<(u16, Fields)>,
}

impl Head {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        field(&self.fields, name)
    }
}

/// The value of a field.
pub(super) fn field<'a>(fields: &'a Fields, name: &str) -> Option<&'a str> {
    fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// A connection that carries one exchange at a time. What fails says how.
pub(super) trait Talk {
    /// Sends a request head, and with it the end of the request if no body is to follow.
    fn begin(&mut self, ask: &Ask);
    /// Sends a piece of the body. False: it is not wanted.
    fn send(&mut self, bytes: &[u8]) -> bool;
    /// Sends a piece as far as it is taken until nothing has been for this long. False: some of it waits, and goes before
    /// whatever is sent next. The body's length must have been said.
    fn offer(&mut self, bytes: &'static [u8], shut: Duration) -> bool;
    /// Ends the body.
    fn end(&mut self, trailers: &Fields);
    /// Waits for an interim response; its status, or `None` when it was the final one that came.
    fn interim(&mut self) -> Option<u16>;
    /// Waits for the final response.
    fn head(&mut self) -> Result<Head, String>;
    /// The next bytes of its body; `None`: it is whole.
    fn piece(&mut self) -> Result<Option<Vec<u8>>, String>;
    /// What came behind the body.
    fn trailers(&mut self) -> Fields;
    /// Gives the exchange up.
    fn cancel(&mut self);
    /// Lets the connection do what waits; to be called while something else is waited for.
    fn tick(&mut self) {}
}

/// HTTP/1.1.
pub(super) struct Http1 {
    peer: Option<Peer>,
    method: &'static str,
    sends: Framing,
    /// What was offered and not taken yet.
    waits: &'static [u8],
    interim: Vec<(u16, Fields)>,
    final_head: Option<Message>,
    body: Option<Body>,
}

impl Http1 {
    pub(super) fn connect(address: SocketAddr) -> Self {
        Self::over(Peer::connect(address))
    }

    pub(super) fn connect_tls(address: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        Self::over(tls::connect(address, NAME, config))
    }

    fn over(peer: Peer) -> Self {
        let peer = Some(peer);
        Self { peer, method: "", sends: Framing::None, waits: b"", interim: Vec::new(), final_head: None, body: None }
    }

    fn peer(&mut self) -> &mut Peer {
        self.peer.as_mut().expect("it was not cancelled")
    }

    fn next_head(&mut self) -> Result<Message, String> {
        match self.peer().try_head() {
            Ok(Some(head)) => Ok(head),
            Ok(None) => Err("closed where a head was due".to_owned()),
            Err(error) => Err(format!("no head: {error}")),
        }
    }
}

fn lower(head: &Message) -> Fields {
    head.fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect()
}

impl Talk for Http1 {
    fn begin(&mut self, ask: &Ask) {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: {NAME}\r\n", ask.method, ask.path);
        for (name, value) in &ask.fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match ask.body {
            Framing::None => {}
            Framing::Length(length) => head.push_str(&format!("Content-Length: {length}\r\n")),
            Framing::Pieces => head.push_str("Transfer-Encoding: chunked\r\n"),
        }
        head.push_str("\r\n");
        (self.method, self.sends) = (ask.method, ask.body);
        self.peer().send(head);
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        let waits = std::mem::take(&mut self.waits);
        match self.sends {
            Framing::Pieces => self.peer().try_send(chunk(bytes)).is_ok(),
            _ => self.peer().try_send(waits).and_then(|()| self.peer().try_send(bytes)).is_ok(),
        }
    }

    fn offer(&mut self, bytes: &'static [u8], shut: Duration) -> bool {
        assert_ne!(self.sends, Framing::Pieces, "a chunk is sent whole or not at all");
        self.waits = &bytes[self.peer().send_some(bytes, shut)..];
        self.waits.is_empty()
    }

    fn end(&mut self, trailers: &Fields) {
        if self.sends == Framing::Pieces {
            let end = last_chunk(trailers);
            let _ = self.peer().try_send(end);
        }
    }

    fn interim(&mut self) -> Option<u16> {
        let head = self.next_head().ok()?;
        let status = head.status();
        if status >= 200 {
            self.final_head = Some(head);
            return None;
        }
        self.interim.push((status, lower(&head)));
        Some(status)
    }

    fn head(&mut self) -> Result<Head, String> {
        let mut found = self.final_head.take();
        while found.is_none() {
            let head = self.next_head()?;
            match head.status() {
                100..=199 => self.interim.push((head.status(), lower(&head))),
                _ => found = Some(head),
            }
        }
        let head = found.ok_or("no head")?;
        self.body = Some(Body::of_response(&head, self.method));
        Ok(Head { status: head.status(), fields: lower(&head), interim: std::mem::take(&mut self.interim) })
    }

    fn piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        let (body, peer) = (self.body.as_mut().ok_or("no head was read")?, self.peer.as_mut().ok_or("cancelled")?);
        body.next(peer).map_err(|error| error.to_string())
    }

    fn trailers(&mut self) -> Fields {
        self.body.take().map(|body| body.trailers).unwrap_or_default()
    }

    fn cancel(&mut self) {
        self.peer.take().expect("cancelled once").reset();
    }
}

/// HTTP/2.
pub(super) struct Http2 {
    client: Client,
    stream: Option<http2::Stream>,
    /// What was offered and not taken yet.
    waits: &'static [u8],
}

impl Http2 {
    pub(super) fn connect(address: SocketAddr) -> Self {
        Self { client: Client::connect(address), stream: None, waits: b"" }
    }

    pub(super) fn connect_tls(address: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        Self { client: Client::connect_tls(address, NAME, config), stream: None, waits: b"" }
    }

    fn stream(&mut self) -> (&Client, &mut http2::Stream) {
        (&self.client, self.stream.as_mut().expect("an exchange was begun"))
    }
}

fn listed(fields: &HeaderMap) -> Fields {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fields.iter().map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect()
}

/// As the libraries want them.
pub(super) fn mapped(fields: &Fields) -> HeaderMap {
    let name = |name: &str| http::HeaderName::try_from(name).expect("a name");
    fields.iter().map(|(key, value)| (name(key), value.parse().expect("a value"))).collect()
}

impl Talk for Http2 {
    fn begin(&mut self, ask: &Ask) {
        let mut head = request(ask.method, &ask.path);
        for (name, value) in &ask.fields {
            head.headers_mut().append(*name, value.parse().expect("a value"));
        }
        if let Framing::Length(length) = ask.body {
            head.headers_mut().append("content-length", length.into());
        }
        self.stream = Some(self.client.open(head, ask.body == Framing::None));
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        let waits = std::mem::take(&mut self.waits);
        let (client, stream) = self.stream();
        let rest = if waits.is_empty() { Ok(()) } else { client.try_send(stream, waits, false) };
        rest.and_then(|()| client.try_send(stream, bytes, false)).is_ok()
    }

    fn offer(&mut self, bytes: &'static [u8], shut: Duration) -> bool {
        let (client, stream) = self.stream();
        let taken = client.send_some(stream, bytes, shut);
        self.waits = &bytes[taken..];
        self.waits.is_empty()
    }

    fn end(&mut self, trailers: &Fields) {
        let (client, stream) = self.stream();
        match trailers.is_empty() {
            true => drop(client.try_send(stream, b"", true)),
            false => client.send_trailers(stream, mapped(trailers)),
        }
    }

    fn interim(&mut self) -> Option<u16> {
        let (client, stream) = self.stream();
        client.next_interim(stream)
    }

    fn head(&mut self) -> Result<Head, String> {
        let (client, stream) = self.stream();
        let (status, fields) = client.head(stream).map_err(|error| error.to_string())?;
        let interim = stream.interim.drain(..).map(|(status, fields)| (status, listed(&fields))).collect();
        Ok(Head { status, fields: listed(&fields), interim })
    }

    fn piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        let (client, stream) = self.stream();
        let piece = client.chunk(stream).transpose().map_err(|error| error.to_string())?;
        Ok(piece.map(|bytes| bytes.to_vec()))
    }

    fn trailers(&mut self) -> Fields {
        let (client, stream) = self.stream();
        listed(&client.trailers(stream).expect("trailers, or none"))
    }

    fn cancel(&mut self) {
        let stream = self.stream.take().expect("an exchange was begun");
        self.client.reset(stream, Reason::CANCEL);
    }

    fn tick(&mut self) {
        self.client.flush();
    }
}

/// HTTP/3.
pub(super) struct Http3 {
    client: http3::Client,
    flow: Flow,
    interim: Vec<(u16, Fields)>,
    final_head: Option<(u16, Fields)>,
}

/// Where the stream is.
enum Flow {
    None,
    Here(Box<http3::Stream>),
    /// With a task that sends what was offered.
    Away(JoinHandle<http3::Stream>),
}

impl Http3 {
    pub(super) fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        let client = http3::Client::connect(address, NAME, config);
        Self { client, flow: Flow::None, interim: Vec::new(), final_head: None }
    }

    fn stream(&mut self) -> (&http3::Client, &mut http3::Stream) {
        if let Flow::Away(task) = &mut self.flow {
            let stream = self.client.wait_sent(task, PATIENCE).expect("what was offered is taken");
            self.flow = Flow::Here(Box::new(stream));
        }
        match &mut self.flow {
            Flow::Here(stream) => (&self.client, stream),
            _ => panic!("an exchange was begun"),
        }
    }

    fn next_head(&mut self) -> Result<(u16, Fields), String> {
        let (client, stream) = self.stream();
        let (status, fields) = client.head(stream).map_err(|error| error.to_string())?;
        Ok((status, listed(&fields)))
    }
}

impl Talk for Http3 {
    fn begin(&mut self, ask: &Ask) {
        let mut head = http3::request(ask.method, &ask.path);
        for (name, value) in &ask.fields {
            head.headers_mut().append(*name, value.parse().expect("a value"));
        }
        if let Framing::Length(length) = ask.body {
            head.headers_mut().append("content-length", length.into());
        }
        self.flow = Flow::Here(Box::new(self.client.open(head)));
        if ask.body == Framing::None {
            self.end(&Vec::new());
        }
    }

    fn send(&mut self, bytes: &[u8]) -> bool {
        let (client, stream) = self.stream();
        client.try_send(stream, bytes).is_ok()
    }

    fn offer(&mut self, bytes: &'static [u8], shut: Duration) -> bool {
        self.stream();
        let Flow::Here(stream) = std::mem::replace(&mut self.flow, Flow::None) else { panic!("it is here") };
        let mut task = self.client.begin_send(*stream, bytes);
        match self.client.wait_sent(&mut task, shut) {
            Some(stream) => self.flow = Flow::Here(Box::new(stream)),
            None => self.flow = Flow::Away(task),
        }
        matches!(self.flow, Flow::Here(_))
    }

    fn end(&mut self, trailers: &Fields) {
        let (client, stream) = self.stream();
        client.end(stream, mapped(trailers));
    }

    fn interim(&mut self) -> Option<u16> {
        let (status, fields) = self.next_head().ok()?;
        if status >= 200 {
            self.final_head = Some((status, fields));
            return None;
        }
        self.interim.push((status, fields));
        Some(status)
    }

    fn head(&mut self) -> Result<Head, String> {
        loop {
            let (status, fields) = self.final_head.take().map_or_else(|| self.next_head(), Ok)?;
            if status >= 200 {
                return Ok(Head { status, fields, interim: std::mem::take(&mut self.interim) });
            }
            self.interim.push((status, fields));
        }
    }

    fn piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        let (client, stream) = self.stream();
        client.chunk(stream).map_err(|error| error.to_string())
    }

    fn trailers(&mut self) -> Fields {
        let (client, stream) = self.stream();
        listed(&client.trailers(stream).expect("trailers, or none"))
    }

    fn cancel(&mut self) {
        self.stream();
        if let Flow::Here(stream) = std::mem::replace(&mut self.flow, Flow::None) {
            self.client.let_go(*stream);
        }
    }

    fn tick(&mut self) {
        self.client.flush();
    }
}

/// Sends the bytes of the pattern in `range`; false: they are not wanted.
pub(super) fn send_pattern(talk: &mut dyn Talk, range: std::ops::Range<u64>) -> bool {
    let mut at = range.start;
    while at < range.end {
        let piece = pattern::piece(at, range.end - at);
        if !talk.send(piece) {
            return false;
        }
        at += piece.len() as u64;
    }
    true
}
