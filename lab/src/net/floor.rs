//! The floor: a bare relay on one epoll loop, with keep-alive on both sides and no features.
//!
//! It forwards heads as they came (a `Connection` header apart), picks endpoints in turn, and knows bodies by
//! `Content-Length` only. The distance of a product to it is the distance to what the kernel allows.

use super::{Io, accept, connect, http1, listen, read, write};
use crate::sys::{Epoll, Ready};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

const LISTENER: u64 = u64::MAX;
const BUFFER_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Downstream,
    Upstream { endpoint: usize },
}

struct Conn {
    stream: TcpStream,
    side: Side,
    /// The other connection of the exchange in flight.
    peer: Option<usize>,
    /// Bytes received that do not make a whole head yet, or belong to a later request.
    partial: Vec<u8>,
    /// Bytes that this connection did not take yet.
    unsent: Vec<u8>,
    /// Body bytes of the current message still to come from this connection.
    body_left: usize,
    /// A response head has gone by, so what follows is its body.
    head_done: bool,
    /// Edge-triggered: the socket may still hold bytes.
    readable: bool,
    close_after: bool,
}

struct Floor {
    epoll: Epoll,
    listener: TcpListener,
    endpoints: Vec<SocketAddr>,
    pools: Vec<Vec<usize>>,
    next_endpoint: usize,
    conns: Vec<Option<Conn>>,
    free: Vec<usize>,
    /// Slots closed in this round of events, reused only in the next.
    closed: Vec<usize>,
}

/// Runs the relay until the process is ended.
pub(crate) fn run(address: SocketAddr, endpoints: Vec<SocketAddr>) -> io::Result<()> {
    let listener = listen(address)?;
    let mut floor = Floor {
        epoll: Epoll::new(1024)?,
        pools: vec![Vec::new(); endpoints.len()],
        listener,
        endpoints,
        next_endpoint: 0,
        conns: Vec::new(),
        free: Vec::new(),
        closed: Vec::new(),
    };
    floor.epoll.add_listener(floor.listener.as_raw_fd(), LISTENER)?;
    let mut ready: Vec<Ready> = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        floor.epoll.wait(None, &mut ready)?;
        for event in &ready {
            if event.token == LISTENER {
                floor.accept_all();
            } else {
                floor.on_ready(*event, &mut buffer);
            }
        }
        floor.free.append(&mut floor.closed);
    }
}

impl Floor {
    fn accept_all(&mut self) {
        while let Some(stream) = accept(&self.listener) {
            let _ = self.add(stream, Side::Downstream);
        }
    }

    fn add(&mut self, stream: TcpStream, side: Side) -> io::Result<usize> {
        let id = self.free.pop().unwrap_or_else(|| {
            self.conns.push(None);
            self.conns.len() - 1
        });
        self.epoll.add(stream.as_raw_fd(), id as u64)?;
        self.conns[id] = Some(Conn {
            stream,
            side,
            peer: None,
            partial: Vec::new(),
            unsent: Vec::new(),
            body_left: 0,
            head_done: false,
            readable: false,
            close_after: false,
        });
        Ok(id)
    }

    fn on_ready(&mut self, event: Ready, buffer: &mut [u8]) {
        let id = event.token as usize;
        let Some(conn) = self.conns[id].as_mut() else { return };
        conn.readable |= event.readable;
        if event.writable && !conn.unsent.is_empty() {
            let peer = conn.peer;
            if !self.flush(id) {
                return;
            }
            if let Some(peer) = peer {
                self.pump(peer, buffer);
            }
        }
        self.pump(id, buffer);
    }

    /// Reads from a connection and passes on, as long as there is something to read and room to put it.
    fn pump(&mut self, id: usize, buffer: &mut [u8]) {
        loop {
            let Some(conn) = self.conns[id].as_mut() else { return };
            let peer = conn.peer;
            if !conn.readable || peer.is_some_and(|peer| self.is_full(peer)) {
                return;
            }
            let Some(conn) = self.conns[id].as_mut() else { return };
            match read(&conn.stream, buffer) {
                Io::Moved(count) => {
                    // A short read has emptied the socket; a new edge will tell of more.
                    conn.readable = count == buffer.len();
                    self.receive(id, &buffer[..count]);
                }
                Io::Blocked => conn.readable = false,
                Io::Over => return self.close(id),
            }
        }
    }

    fn is_full(&self, id: usize) -> bool {
        self.conns[id].as_ref().is_some_and(|conn| !conn.unsent.is_empty())
    }

    fn receive(&mut self, id: usize, bytes: &[u8]) {
        let Some(conn) = self.conns[id].as_mut() else { return };
        let joined;
        let bytes = if conn.partial.is_empty() {
            bytes
        } else {
            let mut all = std::mem::take(&mut conn.partial);
            all.extend_from_slice(bytes);
            joined = all;
            &joined
        };
        match conn.side {
            Side::Downstream => self.relay_request(id, bytes),
            Side::Upstream { .. } => self.relay_response(id, bytes),
        }
    }

    fn relay_request(&mut self, id: usize, bytes: &[u8]) {
        let Some(conn) = self.conns[id].as_mut() else { return };
        if let Some(peer) = conn.peer {
            let body = conn.body_left.min(bytes.len());
            conn.body_left -= body;
            conn.partial.extend_from_slice(&bytes[body..]);
            return self.send(peer, &bytes[..body]);
        }
        let head = match http1::request(bytes) {
            Ok(Some((head, _))) => head,
            Ok(None) => return conn.partial.extend_from_slice(bytes),
            Err(http1::Malformed) => return self.close(id),
        };
        let end = (head.head_bytes + head.body_bytes).min(bytes.len());
        conn.body_left = head.head_bytes + head.body_bytes - end;
        conn.close_after = head.close;
        conn.partial.extend_from_slice(&bytes[end..]);
        let Some(peer) = self.checkout() else { return self.close(id) };
        for (one, other) in [(id, peer), (peer, id)] {
            if let Some(conn) = self.conns[one].as_mut() {
                conn.peer = Some(other);
            }
        }
        if head.hop_by_hop {
            let mut rewritten = Vec::with_capacity(end);
            http1::without_hop_by_hop(&bytes[..head.head_bytes], &mut rewritten);
            rewritten.extend_from_slice(&bytes[head.head_bytes..end]);
            self.send(peer, &rewritten);
        } else {
            self.send(peer, &bytes[..end]);
        }
    }

    fn relay_response(&mut self, id: usize, bytes: &[u8]) {
        let Some(conn) = self.conns[id].as_mut() else { return };
        let Some(peer) = conn.peer else { return self.close(id) };
        let passing = if conn.head_done {
            conn.body_left.min(bytes.len())
        } else {
            let head = match http1::response(bytes) {
                Ok(Some(head)) => head,
                Ok(None) => return conn.partial.extend_from_slice(bytes),
                Err(http1::Malformed) => return self.close(id),
            };
            conn.head_done = true;
            conn.close_after = head.close;
            conn.body_left = head.head_bytes + head.body_bytes;
            let passing = conn.body_left.min(bytes.len());
            if self.closes(peer) {
                return self.pass_last(id, peer, &bytes[..passing], head.head_bytes);
            }
            passing
        };
        let Some(conn) = self.conns[id].as_mut() else { return };
        conn.body_left -= passing;
        let finished = conn.body_left == 0;
        self.send(peer, &bytes[..passing]);
        if finished {
            self.finish(peer, id);
        }
    }

    fn closes(&self, downstream: usize) -> bool {
        self.conns[downstream].as_ref().is_some_and(|conn| conn.close_after)
    }

    /// Passes on the beginning of a response after which the connection ends, and says so in its head.
    fn pass_last(&mut self, id: usize, peer: usize, bytes: &[u8], head_bytes: usize) {
        let Some(conn) = self.conns[id].as_mut() else { return };
        conn.body_left -= bytes.len();
        let finished = conn.body_left == 0;
        let (head, body) = bytes.split_at(head_bytes);
        let last = [&head[..head_bytes - 2], b"Connection: close\r\n\r\n", body].concat();
        self.send(peer, &last);
        if finished {
            self.finish(peer, id);
        }
    }

    /// The response has been read in full: both connections are free again.
    fn finish(&mut self, downstream: usize, upstream: usize) {
        if let Some(conn) = self.conns[upstream].as_mut() {
            conn.peer = None;
            conn.head_done = false;
            if conn.close_after {
                self.close(upstream);
            } else if let Side::Upstream { endpoint } = conn.side {
                self.pools[endpoint].push(upstream);
            }
        }
        let Some(conn) = self.conns[downstream].as_mut() else { return };
        conn.peer = None;
        if conn.close_after {
            if conn.unsent.is_empty() {
                self.close(downstream);
            }
        } else if !conn.partial.is_empty() {
            let bytes = std::mem::take(&mut conn.partial);
            self.relay_request(downstream, &bytes);
        }
    }

    fn checkout(&mut self) -> Option<usize> {
        let endpoint = self.next_endpoint;
        self.next_endpoint = (endpoint + 1) % self.endpoints.len();
        while let Some(id) = self.pools[endpoint].pop() {
            if self.conns[id].is_some() {
                return Some(id);
            }
        }
        let stream = connect(self.endpoints[endpoint]).ok()?;
        self.add(stream, Side::Upstream { endpoint }).ok()
    }

    fn send(&mut self, id: usize, bytes: &[u8]) {
        let Some(conn) = self.conns[id].as_mut() else { return };
        if !conn.unsent.is_empty() {
            return conn.unsent.extend_from_slice(bytes);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            match write(&conn.stream, rest) {
                Io::Moved(count) => rest = &rest[count..],
                Io::Blocked => return conn.unsent.extend_from_slice(rest),
                Io::Over => return self.close(id),
            }
        }
    }

    /// Sends what was left over; `false` when the connection is gone.
    fn flush(&mut self, id: usize) -> bool {
        let Some(conn) = self.conns[id].as_mut() else { return false };
        let unsent = std::mem::take(&mut conn.unsent);
        self.send(id, &unsent);
        let Some(conn) = self.conns[id].as_ref() else { return false };
        let over = conn.side == Side::Downstream && conn.peer.is_none() && conn.close_after;
        if over && conn.unsent.is_empty() {
            self.close(id);
            return false;
        }
        true
    }

    fn close(&mut self, id: usize) {
        let Some(conn) = self.conns[id].take() else { return };
        self.closed.push(id);
        if let Side::Upstream { endpoint } = conn.side {
            self.pools[endpoint].retain(|&pooled| pooled != id);
        }
        if let Some(peer) = conn.peer {
            self.close(peer);
        }
    }
}
