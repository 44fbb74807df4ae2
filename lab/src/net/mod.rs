//! The lab's own small programs on sockets. Each runs as a child of the lab, pinned to its core.

pub(crate) mod ask;
pub(crate) mod chunks;
pub(crate) mod crowd;
pub(crate) mod documents;
pub(crate) mod echo;
pub(crate) mod encoded;
pub(crate) mod floor;
pub(crate) mod histogram;
pub(crate) mod hold;
pub(crate) mod http1;
pub(crate) mod mongrel;
pub(crate) mod open_loop;
pub(crate) mod origin;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// What a non-blocking read or write did.
pub(crate) enum Io {
    /// That many bytes were moved.
    Moved(usize),
    /// Nothing can be moved now.
    Blocked,
    /// The connection is over.
    Over,
}

/// Reads what there is.
pub(crate) fn read(mut stream: &TcpStream, buffer: &mut [u8]) -> Io {
    loop {
        match stream.read(buffer) {
            Ok(0) => return Io::Over,
            Ok(count) => return Io::Moved(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Io::Blocked,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Io::Over,
        }
    }
}

/// Writes as much as the socket takes.
pub(crate) fn write(mut stream: &TcpStream, bytes: &[u8]) -> Io {
    loop {
        match stream.write(bytes) {
            Ok(count) => return Io::Moved(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Io::Blocked,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Io::Over,
        }
    }
}

/// A non-blocking listener with a long queue.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {address}: {error}")))?;
    crate::sys::lengthen_queue(&listener)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A connected non-blocking socket. The connecting itself blocks, which on loopback is no time at all.
pub(crate) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot connect to {address}: {error}")))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Accepts one connection, non-blocking; `None` when there is none.
pub(crate) fn accept(listener: &TcpListener) -> Option<TcpStream> {
    let (stream, _) = listener.accept().ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU16, Ordering};
    use std::thread;
    use std::time::Duration;

    /// An address that this process has for itself: nobody takes the port before it is listened at.
    fn free_address() -> SocketAddr {
        static NEXT: AtomicU16 = AtomicU16::new(20_000);
        let [.., high, low] = std::process::id().to_be_bytes();
        SocketAddr::from(([127, 78, high, low], NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    fn await_listening(address: SocketAddr) {
        while TcpStream::connect(address).is_err() {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// An origin with two addresses and a floor before it, in threads that end with the tests.
    fn floor() -> SocketAddr {
        let origins = vec![free_address(), free_address()];
        let listen = free_address();
        let to = origins.clone();
        thread::spawn(move || origin::run(&origins));
        to.iter().for_each(|&address| await_listening(address));
        thread::spawn(move || floor::run(listen, to));
        await_listening(listen);
        listen
    }

    fn talk(address: SocketAddr, request: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_floor_relays_bodies_of_all_sizes_and_says_that_it_closes() {
        let address = floor();
        for size in ["12", "10k", "100k", "3m"] {
            let bytes = talk(address, &format!("GET /{size} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
            let head = http1::response(&bytes).unwrap().unwrap();
            assert!(head.close && head.status == 200, "{size}");
            assert_eq!(head.head_bytes + head.body_bytes, bytes.len(), "{size}");
        }
    }

    #[test]
    fn the_floor_answers_requests_that_came_together_in_order() {
        let last = "GET /10k HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let bytes = talk(floor(), &format!("GET /12 HTTP/1.1\r\nHost: x\r\n\r\nGET /0 HTTP/1.1\r\n\r\n{last}"));
        let mut rest = bytes.as_slice();
        for size in [12, 0, 10_000] {
            let head = http1::response(rest).unwrap().unwrap();
            assert_eq!(head.body_bytes, size);
            rest = &rest[head.head_bytes + head.body_bytes..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_request_body_reaches_the_origin_and_the_next_request_is_still_understood() {
        let body = "x".repeat(200_000);
        let first = format!("POST /12 HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let bytes = talk(floor(), &format!("{first}GET /12 HTTP/1.0\r\n\r\n"));
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2, "{text}");
    }

    #[test]
    fn the_origin_reads_a_request_in_chunks_and_understands_the_next() {
        let origin = free_address();
        thread::spawn(move || origin::run(&[origin]));
        await_listening(origin);
        let mut stream = TcpStream::connect(origin).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let head = "GET /12 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        let last = "GET /10k HTTP/1.1\r\nConnection: close\r\n\r\n";
        // As a proxy sends it that has to decide before the end has come; then one whose body is not empty.
        for piece in [head, "0\r\n", "\r\n", head, "3\r\nab", "c\r\n0\r\n\r\n", last] {
            stream.write_all(piece.as_bytes()).unwrap();
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let mut rest = answer.as_slice();
        for size in [12, 12, 10_000] {
            let head = http1::response(rest).unwrap().unwrap();
            assert_eq!((head.status, head.body_bytes), (200, size));
            rest = &rest[head.head_bytes + size..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn a_constant_rate_is_kept_through_the_floor() {
        let plan = open_loop::Plan {
            to: floor(),
            path: "/12".to_owned(),
            rate: 100.0,
            connections: 4,
            duration: Duration::from_secs(1),
        };
        let outcome = open_loop::run(&plan).unwrap();
        assert_eq!((outcome.due, outcome.answered, outcome.errors, outcome.unanswered), (100, 100, 0, 0));
        assert!(outcome.worst_us >= outcome.p50_us && outcome.p50_us > 0);
    }
}
