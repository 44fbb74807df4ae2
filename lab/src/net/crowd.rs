//! Keeps so many requests under way (closed loop), each on a connection of its own: as soon as one is answered, the next
//! begins, as `ab` does it.
//!
//! It answers one question alone: who came first. It shares a core with the origins, and general tools need so much of
//! that core for a connection that a request is up to 100 ms on its way before any product can see it, and goes out
//! after others that were begun later. This one costs a few microseconds a request, and says when each was out.

use super::mongrel::{SEEN_FIELD, Seen};
use super::{Io, http1, read, write};
use crate::sys::{self, Epoll, Ready};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What to send.
pub(crate) struct Plan {
    /// Where to.
    pub to: SocketAddr,
    /// The target of the requests.
    pub path: String,
    /// So many are under way.
    pub at_a_time: usize,
    /// So many in all.
    pub requests: usize,
    /// The longest that one may take.
    pub timeout: Duration,
}

/// What became of one request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// When it was begun, with its connection, ns since 1970.
    pub began_ns: u64,
    /// When its last byte was out, ns since 1970. On loopback it is then at the product. `None`: it never was.
    pub out_ns: Option<u64>,
    /// From its beginning until the answer was whole, or it was clear that none comes.
    pub latency_ns: u64,
    /// The status; 0 without an answer.
    pub status: u16,
    /// What went wrong; empty: nothing.
    pub error: String,
    /// What the origin saw, if it says so.
    pub seen: Option<Seen>,
}

/// The first ones come so far apart, so that no product has to hold more new connections than it may.
const APART: Duration = Duration::from_micros(100);

/// How often those are looked for that take too long.
const PATIENCE: Duration = Duration::from_millis(100);

struct Conn {
    stream: TcpStream,
    begun: Instant,
    out: Option<Instant>,
    written: usize,
    bytes: Vec<u8>,
}

struct Run<'a> {
    plan: &'a Plan,
    to: SocketAddrV4,
    text: Vec<u8>,
    epoll: Epoll,
    conns: Vec<Option<Conn>>,
    /// How many of the first wave have come.
    entered: usize,
    begun: usize,
    done: Vec<Sent>,
    start: Instant,
    /// The same moment, since 1970.
    start_at: Duration,
}

/// Runs the plan; returns all requests in the order in which they were begun.
pub(crate) fn run(plan: &Plan) -> io::Result<Vec<Sent>> {
    sys::wake_exactly()?;
    sys::raise_open_files()?;
    let mut run = Run::new(plan)?;
    let mut ready: Vec<Ready> = Vec::new();
    while run.done.len() < plan.requests {
        let wait = run.let_in()?;
        run.epoll.wait(Some(wait), &mut ready)?;
        for event in &ready {
            run.go_on(event.token as usize)?;
        }
        if ready.is_empty() {
            run.give_up()?;
        }
    }
    run.done.sort_by_key(|sent| sent.began_ns);
    Ok(run.done)
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan) -> io::Result<Self> {
        let SocketAddr::V4(to) = plan.to else { return Err(io::Error::other("only to IPv4 addresses")) };
        let text = format!("GET {} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n", plan.path).into_bytes();
        let conns = (0..plan.at_a_time.min(plan.requests)).map(|_| None).collect();
        let start_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (epoll, start) = (Epoll::new(1024)?, Instant::now());
        Ok(Self { plan, to, text, epoll, conns, entered: 0, begun: 0, done: Vec::new(), start, start_at })
    }

    /// Begins those of the first wave whose time has come; returns how long there is no other.
    fn let_in(&mut self) -> io::Result<Duration> {
        while self.entered < self.conns.len() {
            let due = self.start + APART * self.entered as u32;
            let left = due.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Ok(left);
            }
            self.begin(self.entered)?;
            self.entered += 1;
        }
        Ok(PATIENCE)
    }

    /// Begins the next request. If its connection fails, an event tells.
    fn begin(&mut self, place: usize) -> io::Result<()> {
        let begun = Instant::now();
        self.begun += 1;
        let stream = sys::begin_connecting(self.to)?;
        self.epoll.add(stream.as_raw_fd(), place as u64)?;
        let conn = self.conns[place].insert(Conn { stream, begun, out: None, written: 0, bytes: Vec::new() });
        conn.send(&self.text);
        Ok(())
    }

    fn go_on(&mut self, place: usize) -> io::Result<()> {
        let Some(conn) = self.conns.get_mut(place).and_then(Option::as_mut) else { return Ok(()) };
        conn.send(&self.text);
        match conn.receive() {
            None => Ok(()),
            Some(outcome) => self.end(place, outcome),
        }
    }

    /// Notes what became of a request, and begins another.
    fn end(&mut self, place: usize, outcome: Result<(u16, Option<Seen>), &str>) -> io::Result<()> {
        let Some(conn) = self.conns[place].take() else { return Ok(()) };
        let since_1970 = |at: Instant| (self.start_at + (at - self.start)).as_nanos() as u64;
        let (status, seen) = outcome.unwrap_or_default();
        self.done.push(Sent {
            began_ns: since_1970(conn.begun),
            out_ns: conn.out.map(since_1970),
            latency_ns: conn.begun.elapsed().as_nanos() as u64,
            status,
            error: outcome.err().unwrap_or_default().to_owned(),
            seen,
        });
        drop(conn);
        // Those of the first wave that are still to come are taken for begun.
        let to_come = self.conns.len() - self.entered;
        if self.begun + to_come < self.plan.requests { self.begin(place) } else { Ok(()) }
    }

    fn give_up(&mut self) -> io::Result<()> {
        for place in 0..self.conns.len() {
            if self.conns[place].as_ref().is_some_and(|conn| conn.begun.elapsed() > self.plan.timeout) {
                self.end(place, Err("no answer in time"))?;
            }
        }
        Ok(())
    }
}

impl Conn {
    fn send(&mut self, text: &[u8]) {
        while self.written < text.len() {
            let Io::Moved(count) = write(&self.stream, &text[self.written..]) else { return };
            self.written += count;
        }
        self.out.get_or_insert_with(Instant::now);
    }

    /// Reads what there is. `None`: the answer is not whole.
    fn receive(&mut self) -> Option<Result<(u16, Option<Seen>), &'static str>> {
        let mut buffer = [0; 4096];
        let is_over = loop {
            match read(&self.stream, &mut buffer) {
                Io::Moved(count) => self.bytes.extend_from_slice(&buffer[..count]),
                Io::Blocked => break false,
                Io::Over => break true,
            }
        };
        match http1::response(&self.bytes) {
            Ok(Some(head)) if self.bytes.len() >= head.head_bytes + head.body_bytes => {
                Some(Ok((head.status, seen(&self.bytes[..head.head_bytes]))))
            }
            Ok(_) if is_over => Some(Err("the connection ended before the answer")),
            Ok(_) => None,
            Err(_) => Some(Err("this is no answer")),
        }
    }
}

fn seen(head: &[u8]) -> Option<Seen> {
    let lines = std::str::from_utf8(head).ok()?.lines().filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(name, _)| name.eq_ignore_ascii_case(SEEN_FIELD));
    Seen::parse(values.next()?.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::mongrel::{self, Work};
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    fn plan(to: SocketAddr) -> Plan {
        Plan { to, path: "/work".to_owned(), at_a_time: 4, requests: 10, timeout: Duration::from_secs(20) }
    }

    fn free_address() -> SocketAddr {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
    }

    #[test]
    fn every_request_is_answered_and_tells_when_it_was_out_and_when_it_was_begun_there() {
        let to = free_address();
        let work = Work { seed: 1, usual: Duration::from_millis(2) };
        thread::spawn(move || mongrel::run(&[to], work));
        while TcpStream::connect(to).is_err() {
            thread::sleep(Duration::from_millis(5));
        }
        let all = run(&plan(to)).unwrap();
        assert_eq!(all.len(), 10);
        for sent in &all {
            assert_eq!((sent.status, sent.error.as_str()), (200, ""));
            let (out, seen) = (sent.out_ns.unwrap(), sent.seen.unwrap());
            assert!(sent.began_ns <= out && seen.began_ns < sent.began_ns + sent.latency_ns, "{sent:?}");
        }
        assert!(all.windows(2).all(|pair| pair[0].began_ns <= pair[1].began_ns));
    }

    #[test]
    fn where_nobody_listens_every_request_fails_and_the_run_ends() {
        let all = run(&plan(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))).unwrap();
        assert_eq!(all.len(), 10);
        assert!(all.iter().all(|sent| sent.status == 0 && !sent.error.is_empty() && sent.seen.is_none()), "{all:?}");
    }

    #[test]
    fn one_that_is_not_answered_in_time_is_given_up() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let plan = Plan { requests: 4, timeout: Duration::from_millis(50), ..plan(listener.local_addr().unwrap()) };
        let all = run(&plan).unwrap();
        assert!(all.iter().all(|sent| sent.error == "no answer in time" && sent.out_ns.is_some()), "{all:?}");
    }
}
