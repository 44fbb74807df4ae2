//! One request on a new HTTP/2 connection, and its response as it comes.
//!
//! Nothing drives the connection but the future that asks. The response is read by the very code that reads it for clients, and is not
//! trusted: heads, interim responses and frames of no use are bounded here, bodies by what is expected of them, and the caller bounds
//! the time.

use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use model::fields::{Fields, Span};
use model::limits::INTERIM_RESPONSES_MAX;
use model::{Fault, FieldName, RequestHead, ResponseHead, Version};
use tokio::io::ReadBuf;
use wire::http1::Framing;
use wire::http2::code;
use wire::http2::connection::{Connection, Event, Limits, NotSent, RequestSent, Upstream};
use wire::http2::hpack::Strings;

use crate::probes::http::{HEAD_BYTES_MAX, LIMITS};
use crate::probes::progress::Io;

/// Bytes of a body that may come before they are read, and bytes of one read.
const WINDOW_BYTES: u32 = 65_535;
const READ_BYTES: usize = 16 * 1024;
/// Frames of no use that are borne.
const IDLE_MAX: u32 = 256;
/// The only stream.
const STREAM: u32 = 1;

/// What a request says beside its body.
pub(in crate::probes) struct Asked<'a> {
    pub method: &'a str,
    pub host: &'a str,
    pub path: &'a str,
    pub fields: Vec<(&'a str, &'a str)>,
    /// Length of the body, where it is known.
    pub length: Option<usize>,
    pub is_https: bool,
}

/// A request, prepared once: a connection that has begun with it, and what that sends first.
#[derive(Clone)]
pub(in crate::probes) struct Request {
    connection: Connection<Upstream>,
    out: Vec<u8>,
    body: Arc<[u8]>,
    /// How much of the body is in `out`, or has left it.
    sent: usize,
}

impl Request {
    /// Prepares one.
    ///
    /// # Errors
    /// Says what cannot be sent.
    pub(in crate::probes) fn new(asked: &Asked<'_>, body: Arc<[u8]>) -> Result<Self, String> {
        let limits = Limits {
            head: LIMITS,
            list_bytes_max: HEAD_BYTES_MAX,
            streams_max: 1,
            stream_window_bytes: WINDOW_BYTES,
            connection_window_bytes: WINDOW_BYTES,
            stream_errors_max: 0,
            streams_left_max: 0,
        };
        let mut out = Vec::new();
        let mut connection = Connection::upstream(limits, Strings::default(), &mut out);
        let how = RequestSent {
            framing: asked.length.map_or(Framing::None, |length| Framing::Length(length as u64)),
            is_https: asked.is_https,
            is_websocket: false,
            host_fallback: asked.host.as_bytes(),
            ends: body.is_empty(),
        };
        match connection.send_request(&head_of(asked)?, &how, &mut out) {
            Ok(_) => {}
            Err(NotSent::NoRoom | NotSent::BadAuthority) => {
                return Err(format!("the host {:?} cannot be asked for", asked.host));
            }
        }
        let mut request = Self { connection, out, body, sent: 0 };
        request.send_body();
        Ok(request)
    }

    /// Sends the request over a new connection.
    pub(in crate::probes) fn send(&self, stream: Box<dyn Io>) -> Talk {
        Talk {
            stream,
            request: self.clone(),
            failed: None,
            head: ResponseHead::default(),
            input: vec![0; READ_BYTES].into_boxed_slice(),
            unread: 0..0,
            interim: 0,
            idle: 0,
            is_over: false,
        }
    }

    /// Sends as much of the body as windows allow.
    fn send_body(&mut self) {
        if self.sent < self.body.len() {
            let sent = self.connection.send_data(STREAM, &self.body[self.sent..], true, &mut self.out);
            // The response says why no more of it is wanted.
            self.sent = sent.map_or(self.body.len(), |sent| self.sent + sent);
        }
    }
}

fn head_of(asked: &Asked<'_>) -> Result<RequestHead, String> {
    let mut head = RequestHead::default();
    let mut load = |text: &str| {
        let start = head.fields.load(text.as_bytes());
        Span::new(start, start + text.len())
    };
    let (method, path) = (load(asked.method), load(asked.path));
    head.set_line(method, path, Version::Http2);
    for (name, value) in [&[("host", asked.host)], &asked.fields[..]].concat() {
        let field = FieldName::new(name).map_err(|_| format!("the field {name:?} cannot be sent"))?;
        head.fields.append(&field, value.as_bytes());
    }
    Ok(head)
}

/// A part of a response, in the order in which they come.
pub(in crate::probes) enum Part {
    /// The final head.
    Head(ResponseHead),
    /// Bytes of the body.
    Data(Vec<u8>),
    /// The end, with the trailers if there are any.
    End(Option<Box<Fields>>),
}

/// A request that is on its way, and what has come for it.
pub(in crate::probes) struct Talk {
    stream: Box<dyn Io>,
    request: Request,
    /// Why nothing can be sent any more. The response may be there all the same.
    failed: Option<io::Error>,
    head: ResponseHead,
    input: Box<[u8]>,
    /// Where in `input` lies what was read and not looked at.
    unread: Range<usize>,
    interim: u32,
    idle: u32,
    /// The response is whole.
    is_over: bool,
}

impl Talk {
    /// Waits for the next part.
    ///
    /// # Errors
    /// None comes: the connection broke, or the endpoint breaks the rules.
    pub(in crate::probes) async fn next(&mut self) -> Result<Part, String> {
        loop {
            if let Some(part) = self.take()? {
                return Ok(part);
            }
            let read = poll_fn(|cx| self.poll_exchange(cx)).await;
            let broke = |error: io::Error| format!("the connection broke: {error}");
            self.unread = 0..read.map_err(broke)?;
            if self.unread.is_empty() {
                return Err(broke(self.failed.take().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())));
            }
        }
    }

    /// The next part of what was read.
    fn take(&mut self) -> Result<Option<Part>, String> {
        while !self.is_over {
            let Request { connection, out, .. } = &mut self.request;
            let input = &self.input[self.unread.clone()];
            let received = connection.receive(input, &mut self.head, out);
            let (used, event) = received.map_err(|code| broken("connection", "detected", code))?;
            self.unread.start += used;
            self.idle += connection.take_counts().idle;
            if self.idle > IDLE_MAX {
                return Err("floods the connection with useless frames".to_owned());
            }
            match event {
                Event::More => {
                    self.request.send_body();
                    return Ok(None);
                }
                Event::Head { parsed, ends, .. } => {
                    parsed.map_err(unread)?;
                    self.is_over = ends;
                    if self.head.status >= 200 {
                        return Ok(Some(Part::Head(std::mem::take(&mut self.head))));
                    }
                    self.interim += 1;
                    if self.interim > INTERIM_RESPONSES_MAX {
                        let status = self.head.status;
                        return Err(format!("interim answers (status {status}) instead of a final one"));
                    }
                }
                Event::Data { stream, range, ends } => {
                    self.is_over = ends;
                    connection.consumed(stream, range.len(), out);
                    return Ok(Some(Part::Data(input[range].to_vec())));
                }
                Event::Trailers { fields, .. } => {
                    self.is_over = true;
                    return Ok(Some(Part::End(fields)));
                }
                Event::Reset { code, .. } => return Err(broken("stream", "received", code)),
                Event::Broken { code, .. } => return Err(broken("stream", "detected", code)),
                Event::Goaway { code, last } if last < STREAM => return Err(broken("connection", "received", code)),
                Event::Goaway { .. } | Event::Opened { .. } | Event::Pong(_) => {}
            }
        }
        Ok(Some(Part::End(None)))
    }

    /// Sends what waits, and reads once: how many bytes, 0 at the end of the connection.
    fn poll_exchange(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            self.failed = Some(error);
            self.request.out.clear();
        }
        let mut room = ReadBuf::new(&mut self.input);
        ready!(Pin::new(&mut *self.stream).poll_read(cx, &mut room))?;
        Poll::Ready(Ok(room.filled().len()))
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let out = &mut self.request.out;
        if self.failed.is_some() {
            out.clear();
            return Poll::Ready(Ok(()));
        }
        while !out.is_empty() {
            let count = ready!(Pin::new(&mut *self.stream).poll_write(cx, out))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            out.drain(..count);
        }
        Pin::new(&mut *self.stream).poll_flush(cx)
    }
}

/// What a head is that cannot be used.
fn unread(fault: Fault) -> String {
    match fault {
        Fault::ResponseHeadTooLarge => {
            not_http2(&format!("the head of the answer is longer than {HEAD_BYTES_MAX} bytes"))
        }
        _ => broken("stream", "detected", code::PROTOCOL_ERROR),
    }
}

fn broken(what: &str, how: &str, code: u32) -> String {
    not_http2(&format!("{what} error {how}: {}", code::name(code)))
}

fn not_http2(why: &str) -> String {
    format!("this is not HTTP/2, or breaks its rules: {why}")
}
