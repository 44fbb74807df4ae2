//! The origin: a cheap keep-alive HTTP/1.1 program on one epoll loop, on as many addresses as there are endpoints.
//!
//! The last segment of the path is the size of the body: `/12`, `/10k`, `/any/where/100k`. Before it, `json` or `html` asks for
//! a document: `/json/10k`. Such responses are prepared once. `/whoami` answers with the request, as the small programs of that name do.

use super::chunks::Chunks;
use super::documents::Content;
use super::{Io, accept, http1, listen, read, write};
use crate::sys::{Epoll, Ready};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::rc::Rc;

const BODY_MAX: usize = 64 << 20;
const BUFFER_BYTES: usize = 64 * 1024;

struct Conn {
    stream: TcpStream,
    partial: Vec<u8>,
    /// Body bytes of the current request still to be thrown away.
    skip: usize,
    /// The body of the current request comes in chunks, which are thrown away; it is answered when they have ended.
    chunks: Option<(Chunks, Rc<[u8]>)>,
    /// The response being sent, and how far.
    sending: Option<(Rc<[u8]>, usize)>,
    close_after: bool,
}

struct Origin {
    epoll: Epoll,
    listeners: Vec<TcpListener>,
    conns: Vec<Option<Conn>>,
    free: Vec<usize>,
    closed: Vec<usize>,
    responses: Responses,
}

/// What was asked for already.
type Responses = HashMap<(Content, usize), Rc<[u8]>>;

/// Answers on all the addresses until the process is ended.
pub(crate) fn run(addresses: &[SocketAddr]) -> io::Result<()> {
    let listeners = addresses.iter().map(|&address| listen(address)).collect::<io::Result<Vec<_>>>()?;
    let mut origin = Origin {
        epoll: Epoll::new(1024)?,
        listeners,
        conns: Vec::new(),
        free: Vec::new(),
        closed: Vec::new(),
        responses: HashMap::new(),
    };
    for (number, listener) in origin.listeners.iter().enumerate() {
        origin.epoll.add_listener(listener.as_raw_fd(), number as u64)?;
    }
    let first_conn = origin.listeners.len() as u64;
    let mut ready: Vec<Ready> = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        origin.epoll.wait(None, &mut ready)?;
        for event in &ready {
            match event.token.checked_sub(first_conn) {
                None => origin.accept_all(event.token as usize, first_conn),
                Some(id) => origin.on_ready(id as usize, *event, &mut buffer),
            }
        }
        origin.free.append(&mut origin.closed);
    }
}

impl Origin {
    fn accept_all(&mut self, number: usize, first_conn: u64) {
        while let Some(stream) = accept(&self.listeners[number]) {
            let id = self.free.pop().unwrap_or_else(|| {
                self.conns.push(None);
                self.conns.len() - 1
            });
            if self.epoll.add(stream.as_raw_fd(), id as u64 + first_conn).is_ok() {
                let conn =
                    Conn { stream, partial: Vec::new(), skip: 0, chunks: None, sending: None, close_after: false };
                self.conns[id] = Some(conn);
            } else {
                self.free.push(id);
            }
        }
    }

    fn on_ready(&mut self, id: usize, event: Ready, buffer: &mut [u8]) {
        let Some(conn) = self.conns[id].as_mut() else { return };
        let mut alive = true;
        if event.writable && conn.sending.is_some() {
            alive = push(conn) && answer_all(conn, &mut self.responses);
        }
        while alive && event.readable {
            match read(&conn.stream, buffer) {
                Io::Moved(count) => {
                    conn.partial.extend_from_slice(&buffer[..count]);
                    alive = answer_all(conn, &mut self.responses);
                    if count < buffer.len() {
                        break;
                    }
                }
                Io::Blocked => break,
                Io::Over => alive = false,
            }
        }
        if !alive {
            self.conns[id] = None;
            self.closed.push(id);
        }
    }
}

/// Answers the requests that have arrived, until one has to wait; `false` when the connection is over.
fn answer_all(conn: &mut Conn, responses: &mut Responses) -> bool {
    while conn.sending.is_none() {
        let skipped = conn.skip.min(conn.partial.len());
        conn.partial.drain(..skipped);
        conn.skip -= skipped;
        if let Some((chunks, response)) = &mut conn.chunks {
            let Ok(skipped) = chunks.skip(&conn.partial) else { return false };
            conn.partial.drain(..skipped);
            if *chunks != Chunks::Over {
                return true;
            }
            conn.sending = Some((Rc::clone(response), 0));
            conn.chunks = None;
            if !push(conn) {
                return false;
            }
            continue;
        }
        if conn.partial.is_empty() {
            return true;
        }
        let (head, response) = match http1::any_request(&conn.partial) {
            Ok(Some((head, target))) if target.ends_with("/whoami") => {
                let response = whoami(&conn.partial[..head.head_bytes]);
                (head, response)
            }
            Ok(Some((head, target))) if target.starts_with("/auth") => {
                let response = verdict(&conn.partial[..head.head_bytes]);
                (head, response.into())
            }
            Ok(Some((head, target))) => {
                let (content, size) = (Content::of(target), body_size(target));
                (head, Rc::clone(responses.entry((content, size)).or_insert_with(|| response(content, size))))
            }
            Ok(None) => return true,
            Err(http1::Malformed) => return false,
        };
        conn.partial.drain(..head.head_bytes);
        conn.skip = head.body_bytes;
        conn.close_after = head.close;
        if head.chunked {
            // Peers that may send more of a request do not keep a connection that was answered before its end.
            conn.chunks = Some((Chunks::Size, response));
            continue;
        }
        conn.sending = Some((response, 0));
        if !push(conn) {
            return false;
        }
    }
    true
}

/// Sends more of the response; `false` when the connection is over.
fn push(conn: &mut Conn) -> bool {
    while let Some((response, sent)) = conn.sending.as_mut() {
        if *sent == response.len() {
            conn.sending = None;
            return !conn.close_after;
        }
        match write(&conn.stream, &response[*sent..]) {
            Io::Moved(count) => *sent += count,
            Io::Blocked => return true,
            Io::Over => return false,
        }
    }
    true
}

/// The size that a target asks for: `12`, `10k`, `2m`; 12 when it says none.
fn body_size(target: &str) -> usize {
    let path = target.split('?').next().unwrap_or(target);
    let last = path.rsplit('/').next().unwrap_or("").to_ascii_lowercase();
    let (digits, unit) = match last.as_bytes().last() {
        Some(b'k') => (&last[..last.len() - 1], 1000),
        Some(b'm') => (&last[..last.len() - 1], 1_000_000),
        _ => (last.as_str(), 1),
    };
    digits.parse::<usize>().map_or(12, |number| number.saturating_mul(unit).min(BODY_MAX))
}

/// What an authorization service says of a request: it has the key, or not.
fn verdict(request: &[u8]) -> &'static [u8] {
    let is_key = |line: &[u8]| line.len() >= 6 && line[..6].eq_ignore_ascii_case(b"x-key:");
    if request.split(|byte| *byte == b'\n').any(is_key) {
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    } else {
        b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"
    }
}

/// What a small API that tells who asked would say: its own name, and the request as it came.
fn whoami(request: &[u8]) -> Rc<[u8]> {
    let name = "Hostname: lab\nIP: 127.0.0.1\n";
    let size = name.len() + request.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {size}\r\n\r\n{name}");
    [head.as_bytes(), request].concat().into()
}

/// The body that a target is answered with.
pub(crate) fn body(target: &str) -> Vec<u8> {
    Content::of(target).body(body_size(target))
}

fn response(content: Content, size: usize) -> Rc<[u8]> {
    let media_type = content.media_type();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {size}\r\n\r\n");
    [head.into_bytes(), content.body(size)].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_segment_of_the_path_is_the_size() {
        for (target, size) in
            [("/12", 12), ("/10k", 10_000), ("/p7/100K?x=1", 100_000), ("/2m", 2_000_000), ("/", 12), ("/k", 12)]
        {
            assert_eq!(body_size(target), size, "{target}");
        }
        assert_eq!(body_size("/999999999999m"), BODY_MAX);
    }

    #[test]
    fn whoami_answers_with_the_request() {
        let bytes = whoami(b"GET /whoami HTTP/1.1\r\nX-Real-IP: 127.0.0.9\r\n\r\n");
        let head = http1::response(&bytes).unwrap().unwrap();
        assert_eq!(head.head_bytes + head.body_bytes, bytes.len());
        assert!(String::from_utf8_lossy(&bytes).contains("X-Real-IP: 127.0.0.9"));
    }

    #[test]
    fn a_response_has_the_length_that_it_says() {
        for content in [Content::Plain, Content::Json, Content::Html] {
            let bytes = response(content, 10_000);
            let head = http1::response(&bytes).unwrap().unwrap();
            assert_eq!(head.head_bytes + head.body_bytes, bytes.len());
            assert_eq!(head.body_bytes, 10_000);
        }
    }
}
