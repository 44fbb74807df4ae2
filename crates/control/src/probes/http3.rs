//! Asks one question over HTTP/3, on a QUIC connection of its own, and compares the answer with what is expected: a request of HTTP,
//! or a call of gRPC.
//!
//! Nothing drives the connection but the future that asks. Its socket is connected, so that the word of the network that nobody
//! is there (ICMP) is an error, as with TCP. The answer is read by the very code that reads it for clients, and is not trusted:
//! heads, bodies, interim answers and frames of no use are bounded, and whoever calls bounds the time.

mod answer;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use model::check::{GrpcCheck, HttpCheck};
use model::limits::{HTTP3_CRYPTO_BYTES_MAX, HTTP3_UNI_STREAMS_MAX};
use model::{Address, Method};
use plan::health::expectation::Expectation;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event, NoneTokenStore,
    ReadError, StreamId, TransportConfig, VarInt,
};
use rustls_pki_types::ServerName;
use tokio::net::UdpSocket;
use wire::grpc::{HEALTH_PATH, health_question};
use wire::http3::frame::{kind, push_frame_head, write_frame};
use wire::http3::uni::{self, Next, PeerState, UniReader};
use wire::http3::{code, qpack};

use super::grpc;
use super::http::{Asked, HEAD_BYTES_MAX, asked, fields, host};
use super::progress::Progress;
use answer::{Answer, Wanted};

/// Buffer for one datagram: the library announces to endpoints that at most 1,472 bytes are accepted.
const DATAGRAM_BYTES_MAX: usize = 2 * 1024;
/// Bytes of one stream that may come before they are read.
const WINDOW_BYTES: u32 = 64 * 1024;
/// Frames and streams of no use that are borne.
const IDLE_MAX: u32 = 256;

/// Settings of TLS that offer HTTP/3, and the name that the certificate must bear.
type Tls = (Arc<rustls::ClientConfig>, ServerName<'static>);

/// A question, prepared once.
pub(crate) struct Question {
    address: SocketAddr,
    /// The name that the certificate must bear.
    name: String,
    config: ClientConfig,
    /// The frames that ask, up to the body of a request.
    frames: Vec<u8>,
    body: Arc<[u8]>,
    wanted: Wanted,
}

impl Question {
    /// Prepares a check by HTTP at an endpoint by its name and address. What it holds comes from the validated configuration; what
    /// cannot be sent is refused all the same.
    ///
    /// # Errors
    /// Says what cannot be sent.
    pub(crate) fn http(
        (check, expectation): (&HttpCheck, Arc<Expectation>),
        (endpoint, address): (&str, &Address),
        tls: Tls,
    ) -> Result<Self, String> {
        let wanted = Wanted::Http(Method::of(check.method.as_bytes()), expectation);
        let question = Self::prepare((address, tls), request(check, endpoint)?, wanted)?;
        Ok(Self { body: Arc::clone(&check.body), ..question })
    }

    /// The same for one by gRPC, which is told how long it may take.
    ///
    /// # Errors
    /// Says what cannot be sent.
    pub(crate) fn grpc(
        (check, timeout): (&GrpcCheck, Duration),
        (endpoint, address): (&str, &Address),
        tls: Tls,
    ) -> Result<Self, String> {
        let wanted = Wanted::Grpc(check.name.clone());
        Self::prepare((address, tls), call(check, endpoint, timeout)?, wanted)
    }

    fn prepare((address, (tls, name)): (&Address, Tls), frames: Vec<u8>, wanted: Wanted) -> Result<Self, String> {
        let address = address.ip().ok_or("HTTP/3 goes over UDP, and a Unix socket does not carry that")?;
        let crypto = QuicClientConfig::try_from(tls).map_err(|error| format!("TLS cannot be set up: {error}"))?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport())).token_store(Arc::new(NoneTokenStore));
        Ok(Self { address, name: name.to_str().into_owned(), config, frames, body: Arc::default(), wanted })
    }

    /// Asks over a new connection.
    ///
    /// # Errors
    /// Anything that is not a whole, bounded answer as expected, said in a few words.
    pub(crate) async fn ask(&self, progress: &Progress) -> Result<(), String> {
        let mut line = Line::begin(self).await?;
        let mut talk = Talk::new(self);
        loop {
            line.wait().await?;
            // What came before the end of the connection counts.
            if talk.go_on(&mut line.connection)? {
                return Ok(());
            }
            if talk.answer.is_within_body() {
                progress.note_body(talk.answer.received);
            }
            if let Some(why) = line.lost.take() {
                return Err(why);
            }
        }
    }
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        // RFC 9114 section 6.1: it begins no streams of requests.
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(HTTP3_UNI_STREAMS_MAX.into())
        .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
        .receive_window(VarInt::from_u32(2 * WINDOW_BYTES))
        .crypto_buffer_size(HTTP3_CRYPTO_BYTES_MAX)
        .datagram_receive_buffer_size(None);
    transport
}

/// The frames of a request up to its body. `endpoint` is the name of the endpoint, for the authority.
fn request(check: &HttpCheck, endpoint: &str) -> Result<Vec<u8>, String> {
    let Asked { method, path, host, mut fields, length } = asked(check, endpoint)?;
    let length = length.map(|length| length.to_string());
    fields.extend(length.as_deref().map(|length| ("content-length", length)));
    let mut out = head([method, host, path], &fields);
    if !check.body.is_empty() {
        push_frame_head(&mut out, kind::DATA, check.body.len() as u64);
    }
    Ok(out)
}

/// The frames of a call: its head, and the message that asks.
fn call(check: &GrpcCheck, endpoint: &str, timeout: Duration) -> Result<Vec<u8>, String> {
    let (host, timeout) = (host(check.host.as_ref(), endpoint)?, grpc::time(timeout));
    let mut out = head(["POST", host, HEALTH_PATH], &fields(&check.fields, &grpc::own_fields(&timeout))?);
    let message = health_question(&check.name);
    push_frame_head(&mut out, kind::DATA, message.len() as u64);
    out.extend_from_slice(&message);
    Ok(out)
}

fn head([method, host, path]: [&str; 3], fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    write_frame(&mut out, kind::HEADERS, |out| {
        qpack::begin_section(out);
        for (name, value) in [(":method", method), (":scheme", "https"), (":authority", host), (":path", path)] {
            qpack::push_field(out, name.as_bytes(), value.as_bytes());
        }
        for (name, value) in fields {
            // RFC 9114 section 4.2.
            qpack::push_field(out, name.to_ascii_lowercase().as_bytes(), value.as_bytes());
        }
    });
    out
}

/// A connection and its socket.
struct Line {
    socket: UdpSocket,
    address: SocketAddr,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Box<Connection>,
    is_made: bool,
    /// Why there is no connection any more.
    lost: Option<String>,
    out: Vec<u8>,
    room: Box<[u8]>,
}

impl Line {
    async fn begin(question: &Question) -> Result<Self, String> {
        let address = question.address;
        let any: SocketAddr = match address.is_ipv4() {
            true => (Ipv4Addr::UNSPECIFIED, 0).into(),
            false => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).await.map_err(unconnected)?;
        socket.connect(address).await.map_err(unconnected)?;
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
        let begun = endpoint.connect(Instant::now(), question.config.clone(), address, &question.name);
        let (handle, connection) = begun.map_err(unconnected)?;
        Ok(Self {
            socket,
            address,
            endpoint,
            handle,
            connection: Box::new(connection),
            is_made: false,
            lost: None,
            out: Vec::new(),
            room: vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice(),
        })
    }

    /// Sends what there is to say, waits until something happens, and takes it in.
    async fn wait(&mut self) -> Result<(), String> {
        loop {
            self.out.clear();
            let Some(datagram) = self.connection.poll_transmit(Instant::now(), 1, &mut self.out) else { break };
            self.socket.send(&self.out[..datagram.size]).await.map_err(unconnected)?;
        }
        let received = match self.connection.poll_timeout() {
            Some(due) => tokio::time::timeout_at(due.into(), self.socket.recv(&mut self.room)).await.ok(),
            None => Some(self.socket.recv(&mut self.room).await),
        };
        match received {
            Some(received) => self.take_in(received.map_err(unconnected)?),
            None => self.connection.handle_timeout(Instant::now()),
        }
        self.settle();
        Ok(())
    }

    fn take_in(&mut self, len: usize) {
        let bytes = BytesMut::from(&self.room[..len]);
        let event = self.endpoint.handle(Instant::now(), self.address, None, None, bytes, &mut self.out);
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
    }

    fn settle(&mut self) {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.is_made = true,
                Event::ConnectionLost { reason } => {
                    let what = if self.is_made { "the connection broke" } else { "the QUIC handshake failed" };
                    self.lost = Some(format!("{what}: {reason}"));
                }
                _ => {}
            }
        }
    }
}

impl Drop for Line {
    /// Closes the connection without waiting for a response.
    fn drop(&mut self) {
        self.connection.close(Instant::now(), number(code::NO_ERROR), Bytes::new());
        self.out.clear();
        if let Some(datagram) = self.connection.poll_transmit(Instant::now(), 1, &mut self.out) {
            let _ = self.socket.try_send(&self.out[..datagram.size]);
        }
    }
}

/// What is said on a connection, and heard.
struct Talk<'q> {
    control: Speech,
    request: Speech,
    /// The endpoint's own streams.
    others: Vec<(StreamId, UniReader)>,
    peer: PeerState,
    answer: Answer<'q>,
}

/// A stream of ours, and what is to be said on it.
struct Speech {
    id: Option<StreamId>,
    unsaid: Vec<u8>,
}

impl<'q> Talk<'q> {
    fn new(question: &'q Question) -> Self {
        let mut settings = Vec::new();
        uni::begin_control(&mut settings, HEAD_BYTES_MAX as u64, false);
        Self {
            control: Speech { id: None, unsaid: settings },
            request: Speech { id: None, unsaid: [&question.frames[..], &question.body].concat() },
            others: Vec::new(),
            peer: PeerState::default(),
            answer: Answer::new(&question.wanted),
        }
    }

    /// Says and hears what can be. True: the answer is as expected, and the endpoint does speak HTTP/3.
    fn go_on(&mut self, connection: &mut Connection) -> Result<bool, String> {
        if connection.is_handshaking() {
            return Ok(false);
        }
        self.control.say(connection, Dir::Uni);
        self.request.say(connection, Dir::Bi);
        self.listen(connection)?;
        if let Some(id) = self.request.id {
            self.read_answer(connection, id)?;
        }
        Ok(self.answer.is_enough && self.peer.has_settings)
    }

    fn listen(&mut self, connection: &mut Connection) -> Result<(), String> {
        while let Some(id) = connection.streams().accept(Dir::Uni) {
            self.others.push((id, UniReader::default()));
        }
        let mut broken = None;
        let peer = &mut self.peer;
        self.others.retain_mut(|(id, reader)| {
            hear(connection, *id, (reader, &mut *peer)).unwrap_or_else(|why| {
                broken = Some(why);
                false
            })
        });
        if self.peer.idle > IDLE_MAX {
            return Err(of_no_use());
        }
        broken.map_or(Ok(()), Err)
    }

    fn read_answer(&mut self, connection: &mut Connection, id: StreamId) -> Result<(), String> {
        while !self.answer.is_enough {
            match read(connection, id) {
                None => break,
                Some(Ok(Some(bytes))) => self.answer.take(&bytes)?,
                Some(Ok(None)) => self.answer.end()?,
                Some(Err(code)) => return Err(format!("gave the request up, with code {code:#x}")),
            }
        }
        Ok(())
    }
}

impl Speech {
    fn say(&mut self, connection: &mut Connection, dir: Dir) {
        if self.id.is_none() {
            self.id = connection.streams().open(dir);
        }
        let Some(id) = self.id else { return };
        while !self.unsaid.is_empty() {
            let mut stream = connection.send_stream(id);
            // It is blocked, or not wanted any more: then the answer says why.
            let Ok(count) = stream.write(&self.unsaid) else { return };
            self.unsaid.drain(..count);
            // Our control stream never ends (RFC 9114 section 6.2.1).
            if self.unsaid.is_empty() && dir == Dir::Bi {
                let _ = stream.finish();
            }
        }
    }
}

/// Hears what has come by a stream of the endpoint's own. False: nothing more will.
fn hear(
    connection: &mut Connection,
    id: StreamId,
    (reader, peer): (&mut UniReader, &mut PeerState),
) -> Result<bool, String> {
    while let Some(read) = read(connection, id) {
        match read {
            Ok(Some(bytes)) => match reader.take(&bytes, false, peer).map_err(broken)? {
                Next::GoOn => {}
                Next::Stop => {
                    let _ = connection.recv_stream(id).stop(number(code::STREAM_CREATION_ERROR));
                    return Ok(false);
                }
            },
            _ if reader.is_critical() => return Err(broken(code::CLOSED_CRITICAL_STREAM)),
            _ => {
                peer.idle += u32::from(reader.is_new());
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The next bytes of a stream, its end, or the code it was reset with. `None`: nothing for now.
fn read(connection: &mut Connection, id: StreamId) -> Option<Result<Option<Bytes>, u64>> {
    let mut stream = connection.recv_stream(id);
    let mut chunks = stream.read(true).ok()?;
    let next = chunks.next(usize::MAX);
    // What follows from it is sent before the next wait.
    let _ = chunks.finalize();
    match next {
        Ok(chunk) => Some(Ok(chunk.map(|chunk| chunk.bytes))),
        Err(ReadError::Reset(code)) => Some(Err(code.into_inner())),
        Err(ReadError::Blocked) => None,
    }
}

fn unconnected(error: impl Display) -> String {
    format!("cannot connect: {error}")
}

fn broken(code: u64) -> String {
    format!("the answer breaks the rules of HTTP/3 (code {code:#x})")
}

fn of_no_use() -> String {
    "floods the connection with useless frames".to_owned()
}

fn too_long() -> String {
    format!("the response head is longer than {HEAD_BYTES_MAX} bytes")
}

fn number(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}
