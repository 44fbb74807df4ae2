//! An origin that does one thing at a time, as Mongrel before Rails did: each of its addresses accepts connections, but
//! works on one request only, while the others wait unread.
//!
//! Work takes 20 ms, and now and then much longer, as with a garbage collector. When, and how long, follows from a seed,
//! so every product meets the same. Each answer tells what the origin saw, so that a generator which keeps the fields of
//! answers has both sides of every request. For that alone it serves other studies, too: with no time for work it takes
//! none, and has no pauses.

use super::{Io, accept, http1, listen, read, write};
use crate::sys::{Epoll, Ready};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How the origin works.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Gives the hiccups.
    pub seed: u64,
    /// What a request takes without one.
    pub usual: Duration,
}

/// One request in so many has a hiccup.
pub(crate) const HICCUP_EVERY: u64 = 50;
const HICCUP_MS: std::ops::RangeInclusive<u64> = 200..=400;

/// The field of an answer that tells what the origin saw of the request.
pub(crate) const SEEN_FIELD: &str = "x-lab-seen";

/// The field of an answer that repeats the target of the request.
pub(crate) const TARGET_FIELD: &str = "x-lab-target";

/// The path that asks only whether anybody is there.
pub(crate) const PROBE: &str = "/probe";

/// What the origin saw of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// Which of the addresses, from 0.
    pub address: usize,
    /// When work on it began, ns since 1970.
    pub began_ns: u64,
    /// How long it was worked on, ns.
    pub work_ns: u64,
    /// It overlapped with another: it arrived while the origin was busy or had others to do.
    pub overlapped: bool,
    /// How long the origin had nothing to do before it, since the end of its last answer, ns. 0: it had done nothing yet.
    pub idle_ns: u64,
}

impl Seen {
    fn text(&self) -> String {
        let overlapped = u8::from(self.overlapped);
        format!("{} {} {} {overlapped} {}", self.address, self.began_ns, self.work_ns, self.idle_ns)
    }

    /// Reads the value of the field.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let seen = Self {
            address: words.next()?.parse().ok()?,
            began_ns: words.next()?.parse().ok()?,
            work_ns: words.next()?.parse().ok()?,
            overlapped: words.next()? == "1",
            idle_ns: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(seen)
    }
}

/// How long the `number`th request at an address takes.
pub(crate) fn time_for(work: Work, address: usize, number: u64) -> Duration {
    if work.usual.is_zero() {
        return work.usual;
    }
    let drawn = mix(work.seed ^ mix(address as u64 ^ mix(number)));
    if !drawn.is_multiple_of(HICCUP_EVERY) {
        return work.usual;
    }
    let span = HICCUP_MS.end() - HICCUP_MS.start() + 1;
    Duration::from_millis(HICCUP_MS.start() + (drawn / HICCUP_EVERY) % span)
}

/// A step of splitmix64: neighbouring numbers give unrelated ones.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Answers on all the addresses, each in a thread of its own, until the process is ended or one of them fails.
pub(crate) fn run(addresses: &[SocketAddr], work: Work) -> io::Result<()> {
    let (failed, failure) = std::sync::mpsc::channel();
    for (number, &address) in addresses.iter().enumerate() {
        let mut one = Address::open(number, address, work)?;
        let failed = failed.clone();
        thread::spawn(move || {
            // Nobody listens any more when another has failed before.
            let _ = failed.send(one.run().err());
        });
    }
    drop(failed);
    match failure.recv() {
        Ok(Some(error)) => Err(error),
        _ => Ok(()),
    }
}

struct Conn {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// It stands in the line.
    is_waiting: bool,
    /// It came when there was something else to do.
    overlapped: bool,
    /// The target of the request that was read last.
    target: String,
}

/// What reading a request came to.
enum Request {
    /// It is there.
    Whole {
        /// The connection is to be closed after it.
        close: bool,
        /// It only asks whether anybody is there: no work, and not counted.
        is_probe: bool,
    },
    /// More will come.
    Part,
    /// The connection is over.
    Over,
}

const LISTENER: u64 = u64::MAX;

struct Address {
    number: usize,
    work: Work,
    listener: TcpListener,
    epoll: Epoll,
    conns: Vec<Option<Conn>>,
    free: Vec<usize>,
    /// Connections with something to read, in the order in which it came.
    line: VecDeque<usize>,
    done: u64,
    /// When the last answer was out.
    answered: Option<Instant>,
    ready: Vec<Ready>,
}

impl Address {
    fn open(number: usize, address: SocketAddr, work: Work) -> io::Result<Self> {
        let listener = listen(address)?;
        let epoll = Epoll::new(256)?;
        epoll.add_listener(listener.as_raw_fd(), LISTENER)?;
        let (conns, free, line, ready) = (Vec::new(), Vec::new(), VecDeque::new(), Vec::new());
        Ok(Self { number, work, listener, epoll, conns, free, line, done: 0, answered: None, ready })
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            let wait = if self.line.is_empty() { None } else { Some(Duration::ZERO) };
            self.collect(wait, false)?;
            if let Some(id) = self.line.pop_front() {
                self.take(id)?;
            }
        }
    }

    /// Puts what has come into the line. While a request is worked on, all that comes overlaps with it.
    fn collect(&mut self, mut wait: Option<Duration>, is_busy: bool) -> io::Result<()> {
        loop {
            self.epoll.wait(wait, &mut self.ready)?;
            if self.ready.is_empty() {
                return Ok(());
            }
            for event in std::mem::take(&mut self.ready) {
                if event.token == LISTENER {
                    self.accept_all();
                } else if event.readable {
                    self.stand_in_line(event.token as usize, is_busy);
                }
            }
            wait = Some(Duration::ZERO);
        }
    }

    fn accept_all(&mut self) {
        while let Some(stream) = accept(&self.listener) {
            let id = self.free.pop().unwrap_or_else(|| {
                self.conns.push(None);
                self.conns.len() - 1
            });
            if self.epoll.add(stream.as_raw_fd(), id as u64).is_ok() {
                self.conns[id] = Some(Conn {
                    stream,
                    bytes: Vec::new(),
                    is_waiting: false,
                    overlapped: false,
                    target: String::new(),
                });
            } else {
                self.free.push(id);
            }
        }
    }

    /// A connection on which something came stands in the line; one that has ended is closed at once, for what overlaps
    /// is requests.
    fn stand_in_line(&mut self, id: usize, is_busy: bool) {
        let overlapped = is_busy || !self.line.is_empty();
        let Some(conn) = self.conns.get_mut(id).and_then(Option::as_mut) else { return };
        if conn.is_waiting {
            return;
        }
        let (has_come, is_over) = match conn.stream.peek(&mut [0]) {
            Ok(count) => (count > 0, count == 0),
            Err(error) => (false, error.kind() != io::ErrorKind::WouldBlock),
        };
        if !has_come && conn.bytes.is_empty() {
            if is_over {
                self.conns[id] = None;
                self.free.push(id);
            }
            return;
        }
        conn.is_waiting = true;
        conn.overlapped = overlapped;
        self.line.push_back(id);
    }

    /// Reads the request of the connection, works, and answers.
    fn take(&mut self, id: usize) -> io::Result<()> {
        // Out of its place meanwhile, so that nothing else is done with it.
        let Some(mut conn) = self.conns[id].take() else { return Ok(()) };
        conn.is_waiting = false;
        let (is_over, more_came) = match request(&mut conn) {
            Request::Whole { close, is_probe } => self.work(&conn, close, is_probe)?,
            Request::Part => {
                self.conns[id] = Some(conn);
                return Ok(());
            }
            Request::Over => (true, false),
        };
        if is_over {
            self.free.push(id);
        } else {
            self.conns[id] = Some(conn);
            // Of what came on it meanwhile nothing was noticed.
            self.stand_in_line(id, more_came);
        }
        Ok(())
    }

    /// Takes the time that the request takes, and answers. Tells whether the connection is over, and whether more came on
    /// it before the answer went out.
    fn work(&mut self, conn: &Conn, close: bool, is_probe: bool) -> io::Result<(bool, bool)> {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let idle = self.answered.map_or(Duration::ZERO, |answered| answered.elapsed());
        let work = if is_probe { Duration::ZERO } else { time_for(self.work, self.number, self.done) };
        self.done += u64::from(!is_probe);
        if !work.is_zero() {
            thread::sleep(work);
        }
        self.collect(Some(Duration::ZERO), true)?;
        let seen = Seen {
            address: self.number,
            began_ns: began.as_nanos() as u64,
            work_ns: work.as_nanos() as u64,
            overlapped: conn.overlapped,
            idle_ns: idle.as_nanos() as u64,
        };
        let more_came = !conn.bytes.is_empty() || conn.stream.peek(&mut [0]).is_ok();
        let answer = answer(&seen, &conn.target, close);
        let is_sent = matches!(write(&conn.stream, answer.as_bytes()), Io::Moved(count) if count == answer.len());
        self.answered = Some(Instant::now());
        Ok((close || !is_sent, more_came))
    }
}

/// Reads until a request is whole, and takes it out of what was read.
fn request(conn: &mut Conn) -> Request {
    let mut buffer = [0; 16 * 1024];
    let mut is_over = false;
    loop {
        match read(&conn.stream, &mut buffer) {
            Io::Moved(count) => conn.bytes.extend_from_slice(&buffer[..count]),
            Io::Blocked => break,
            Io::Over => {
                is_over = true;
                break;
            }
        }
    }
    match http1::request(&conn.bytes) {
        // Nobody sends a body here; whoever does gets an answer and no second one.
        Ok(Some((head, target))) => {
            let close = head.close || head.body_bytes > 0 || is_over;
            let is_probe = target == PROBE;
            target.clone_into(&mut conn.target);
            conn.bytes.drain(..head.head_bytes);
            Request::Whole { close, is_probe }
        }
        Ok(None) if !is_over => Request::Part,
        _ => Request::Over,
    }
}

fn answer(seen: &Seen, target: &str, close: bool) -> String {
    let close = if close { "Connection: close\r\n" } else { "" };
    let told = format!("{SEEN_FIELD}: {}\r\n{TARGET_FIELD}: {target}\r\n", seen.text());
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{told}{close}Content-Length: 14\r\n\r\nequipoise-lab\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;

    const WORK: Work = Work { seed: 7, usual: Duration::from_millis(20) };

    /// An origin with one address.
    fn origin() -> SocketAddr {
        let mut one = Address::open(0, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), WORK).unwrap();
        let address = one.listener.local_addr().unwrap();
        thread::spawn(move || one.run());
        address
    }

    fn ask(stream: &mut TcpStream) {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }

    fn seen(stream: &mut TcpStream) -> Seen {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes = Vec::new();
        let mut byte = [0];
        while http1::response(&bytes).unwrap().is_none_or(|head| bytes.len() < head.head_bytes + head.body_bytes) {
            stream.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
        }
        let text = String::from_utf8(bytes).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("x-lab-seen: ")).unwrap();
        Seen::parse(line).unwrap()
    }

    #[test]
    fn requests_at_the_same_time_are_worked_on_one_after_the_other() {
        let address = origin();
        let mut streams: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
        streams.iter_mut().for_each(ask);
        let mut all: Vec<Seen> = streams.iter_mut().map(seen).collect();
        all.sort_by_key(|seen| seen.began_ns);
        for pair in all.windows(2) {
            assert!(pair[0].began_ns + pair[0].work_ns <= pair[1].began_ns, "{all:?}");
        }
        // The first may have been alone when it came; the last was not.
        assert!(all[3].overlapped, "{all:?}");
    }

    #[test]
    fn requests_one_at_a_time_do_not_overlap_on_new_and_on_kept_connections() {
        let address = origin();
        let mut kept = TcpStream::connect(address).unwrap();
        for _ in 0..3 {
            ask(&mut kept);
            assert!(!seen(&mut kept).overlapped);
            let mut new = TcpStream::connect(address).unwrap();
            ask(&mut new);
            assert!(!seen(&mut new).overlapped);
        }
    }

    #[test]
    fn an_idle_connection_and_half_a_request_keep_nobody_waiting() {
        let address = origin();
        let _idle = TcpStream::connect(address).unwrap();
        let mut half = TcpStream::connect(address).unwrap();
        half.write_all(b"GET / HT").unwrap();
        let mut other = TcpStream::connect(address).unwrap();
        ask(&mut other);
        seen(&mut other);
        half.write_all(b"TP/1.1\r\nHost: x\r\n\r\n").unwrap();
        seen(&mut half);
    }

    #[test]
    fn hiccups_follow_from_the_seed_and_are_as_frequent_as_said() {
        let times = |seed| (0..5000).map(|n| time_for(Work { seed, ..WORK }, 1, n)).collect::<Vec<_>>();
        let long = times(7).iter().filter(|time| **time > WORK.usual).count();
        assert!((60..140).contains(&long), "{long}");
        assert!(times(7).iter().all(|time| *time == WORK.usual || (200..=400).contains(&time.as_millis())));
        assert_eq!(times(7), times(7));
        assert_ne!(times(7), times(8));
    }

    #[test]
    fn what_was_seen_is_read_back_and_anything_else_is_none() {
        let began_ns = 1_795_271_365_282_924_562;
        let seen = Seen { address: 3, began_ns, work_ns: 20_000_000, overlapped: true, idle_ns: 250_000 };
        assert_eq!(Seen::parse(&seen.text()), Some(seen));
        for text in ["", "1 2 3", "1 2 3 0", "1 2 3 0 4 5", "x 2 3 0 4", "-1 2 3 0 4"] {
            assert_eq!(Seen::parse(text), None, "{text}");
        }
    }
}
