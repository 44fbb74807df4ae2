//! A client's connection: what is known of it, its stream, its timer, and the bytes it sent ahead.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};

use model::facts::{SenderFacts, TlsFacts};
use model::{Facts, Name, Scheme};

use crate::buffer::{Buffer, BufferPool};
use crate::io::{Io, MemoryIo};
use crate::registry::Registration;
use crate::watch::Watch;

/// What does not change while a connection lives, but for one thing.
pub(crate) struct ConnectionFacts {
    pub peer: SocketAddr,
    pub local: SocketAddr,
    pub tls: Option<Box<TlsFacts>>,
    /// The sender of the PROXY protocol header that `peer` and `local` come from, if there was one.
    pub sender: Option<Box<SenderFacts>>,
    pub listener: Name,
    /// The slot of the endpoint that has last authenticated a connection for this client, see [`wire::authentication`].
    pub authenticated_at: Cell<Option<u32>>,
}

impl ConnectionFacts {
    /// How the peer has reached us.
    pub(crate) fn scheme(&self) -> Scheme {
        if self.tls.is_some() { Scheme::Https } else { Scheme::Http }
    }

    /// The facts of one exchange, whose client has reached a proxy before us by this scheme, or us.
    pub(crate) fn facts_by<'a>(&'a self, scheme: Scheme, client: IpAddr, request_id: &'a str) -> Facts<'a> {
        Facts { scheme, ..self.facts(client, request_id) }
    }

    /// The facts of something that the peer itself has sent.
    pub(crate) fn facts<'a>(&'a self, client: IpAddr, request_id: &'a str) -> Facts<'a> {
        Facts {
            peer: self.peer,
            client,
            local: self.local,
            scheme: self.scheme(),
            tls: self.tls.as_deref(),
            sender: self.sender.as_deref(),
            listener: &self.listener,
            request_id,
            user: None,
        }
    }
}

/// What becomes of a connection after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another request may come.
    KeepAlive,
    /// What came is the beginning of an HTTP/2 connection.
    Http2,
    /// What woke the connection was no request, but some record of TLS: go on waiting.
    NotYet,
    /// Close; nothing unread matters.
    Close,
    /// Close so that the client sees that the response is not whole.
    Reset,
    /// Close, but read on for a while: closing with unread bytes would reset the connection and could destroy the
    /// answer before the client has read it (RFC 9112 section 9.6).
    Linger,
}

/// See the module.
pub(crate) struct Connection {
    pub io: Io,
    /// Shared by the streams of one HTTP/2 connection.
    pub facts: Rc<ConnectionFacts>,
    pub watch: Watch,
    /// Received, not yet understood: the beginning of a head, a body, or pipelined requests.
    pub received: Option<Buffer>,
    pub registration: Rc<Registration>,
    pub requests: u64,
    /// Its end is the end of its interest, as long as no endpoint works for it: true of HTTP/1, where a stream of bytes,
    /// or one of HTTP/2, may well end before its answer comes.
    pub leaves_by_end: bool,
    /// Its request is early data: it came before the handshake was complete, and may be a replay (RFC 8470).
    pub is_early: bool,
    /// It ends after the present exchange although the client would keep it, and may have sent more.
    pub is_cut_short: bool,
}

impl Connection {
    /// One without a client: a request of the proxy's own comes from memory, and its response goes there.
    pub(crate) fn in_memory(
        memory: MemoryIo,
        watch: Watch,
        (facts, registration): (&Rc<ConnectionFacts>, &Rc<Registration>),
    ) -> Self {
        Self {
            io: Io::Memory(Box::new(memory)),
            facts: facts.clone(),
            watch,
            received: None,
            registration: registration.clone(),
            requests: 0,
            leaves_by_end: false,
            is_early: false,
            is_cut_short: false,
        }
    }

    /// Ready when a client that waits for an endpoint has gone: reset, or, if it speaks HTTP, at its end. What it sends
    /// meanwhile is read ahead, up to one buffer, for its end would not be seen behind it.
    pub(crate) fn poll_gone(&mut self, buffers: &BufferPool, cx: &mut TaskContext<'_>) -> Poll<()> {
        if !self.leaves_by_end {
            return self.io.poll_reset(cx);
        }
        while self.received.as_mut().is_none_or(|buffer| !buffer.room().is_empty()) {
            match ready!(self.read_more(buffers, cx)) {
                Some(count) if count > 0 => {}
                _ => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }

    /// Keeps what was received in as little memory as it needs while the rest is waited for: it may be one byte, and the client may
    /// have many connections.
    pub(crate) fn pack_received(&mut self, buffers: &BufferPool) {
        self.received = self.received.take().map(|buffer| buffers.pack(buffer));
    }

    /// Reads once into `received`, behind what is there. `None` is a broken connection, 0 its end.
    pub(crate) fn read_more(&mut self, buffers: &BufferPool, cx: &mut TaskContext<'_>) -> Poll<Option<usize>> {
        if ready!(self.io.poll_read_ready(cx)).is_err() {
            return Poll::Ready(None);
        }
        let mut buffer = match self.received.take() {
            Some(buffer) => buffers.unpack(buffer),
            None => buffers.take(),
        };
        buffer.make_room();
        let read = self.io.poll_read(cx, buffer.room());
        if let Poll::Ready(Ok(count)) = read {
            buffer.filled(count);
        }
        if buffer.is_empty() {
            buffers.give(buffer);
        } else {
            self.received = Some(buffer);
        }
        read.map(Result::ok)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::byte_stream::ByteStream;

    /// Both ends of a connection.
    fn pair() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (ours, peer) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let io = Io::Connection(ByteStream::Plain(tokio::net::TcpStream::from_std(ours).unwrap()));
        let registration = Registration::loose();
        let watch = Watch::new(Instant::now(), Duration::from_secs(60), registration.clone());
        let (listener, authenticated_at) = (Name::from("web"), Cell::default());
        let facts = ConnectionFacts { peer, local: peer, tls: None, sender: None, listener, authenticated_at };
        let (facts, received) = (Rc::new(facts), None);
        (
            client,
            Connection {
                io,
                facts,
                watch,
                received,
                registration,
                requests: 0,
                leaves_by_end: true,
                is_early: false,
                is_cut_short: false,
            },
        )
    }

    #[tokio::test]
    async fn who_sends_half_a_line_holds_no_buffer_while_the_rest_is_waited_for() {
        let (mut client, mut connection) = pair();
        let buffers = BufferPool::default();
        for (sent, whole) in [("G", "G"), ("ET ", "GET "), ("/", "GET /")] {
            client.write_all(sent.as_bytes()).unwrap();
            let count = poll_fn(|cx| connection.read_more(&buffers, cx)).await;
            assert_eq!(count, Some(sent.len()));
            connection.pack_received(&buffers);
            let received = connection.received.as_ref().unwrap();
            assert_eq!((received.data(), received.is_packed()), (whole.as_bytes(), true));
        }
        connection.pack_received(&buffers);
        client.write_all(&[b'x'; 20_000]).unwrap();
        while connection.received.as_ref().unwrap().len() < 20_005 {
            poll_fn(|cx| connection.read_more(&buffers, cx)).await;
        }
        connection.pack_received(&buffers);
        assert!(!connection.received.as_ref().unwrap().is_packed(), "so much would be copied at each piece");
    }
}
