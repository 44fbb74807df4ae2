//! A generator at a constant rate (open loop): a request is due at its time, whether or not earlier ones were answered,
//! and its latency counts from that time. So a stall of the proxy is seen by every request that fell into it.
//!
//! It is our own since it shares a core with the origin at tens of thousands of requests a second: it costs a few
//! microseconds a request, and the tools made for constant rates ten times that.

use super::histogram::Histogram;
use super::{Io, connect, http1, read, write};
use crate::sys::{self, Epoll, Ready};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// What to send.
pub(crate) struct Plan {
    /// Where to.
    pub to: SocketAddr,
    /// The target of the requests.
    pub path: String,
    /// Requests a second.
    pub rate: f64,
    /// Connections to send them on.
    pub connections: usize,
    /// For how long.
    pub duration: Duration,
}

/// What came of it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Requests that were due.
    pub due: u64,
    /// Answers with a 2xx status.
    pub answered: u64,
    /// Other answers and lost connections.
    pub errors: u64,
    /// Requests not answered half a second after the end.
    pub unanswered: u64,
    /// Answers a second.
    pub rate: f64,
    /// Median latency from the due time, us.
    pub p50_us: u64,
    /// 99th percentile of it.
    pub p99_us: u64,
    /// 99.9th percentile of it.
    pub p999_us: u64,
    /// The worst of it.
    pub worst_us: u64,
    /// How late the generator itself noticed that requests were due, 99th percentile.
    pub late_p99_us: u64,
}

struct Conn {
    stream: TcpStream,
    partial: Vec<u8>,
    /// When the request in flight was due.
    due: Option<Instant>,
    body_left: usize,
}

struct Run {
    epoll: Epoll,
    to: SocketAddr,
    request: Vec<u8>,
    conns: Vec<Conn>,
    idle: VecDeque<usize>,
    waiting: VecDeque<Instant>,
    latencies: Histogram,
    lateness: Histogram,
    outcome: Outcome,
}

const GRACE: Duration = Duration::from_millis(500);

/// Runs the plan.
pub(crate) fn run(plan: &Plan) -> io::Result<Outcome> {
    sys::wake_exactly()?;
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", plan.path, plan.to).into_bytes();
    let epoll = Epoll::new(1024)?;
    let mut conns = Vec::new();
    for id in 0..plan.connections.max(1) {
        conns.push(open(&epoll, plan.to, id)?);
    }
    let mut run = Run {
        epoll,
        to: plan.to,
        request,
        idle: (0..conns.len()).collect(),
        conns,
        waiting: VecDeque::new(),
        latencies: Histogram::default(),
        lateness: Histogram::default(),
        outcome: Outcome::default(),
    };
    let took = run.drive(plan)?;
    Ok(run.finish(took))
}

fn open(epoll: &Epoll, to: SocketAddr, id: usize) -> io::Result<Conn> {
    let stream = connect(to)?;
    epoll.add(stream.as_raw_fd(), id as u64)?;
    Ok(Conn { stream, partial: Vec::new(), due: None, body_left: 0 })
}

impl Run {
    /// Sends and receives until the end; returns how long it took, with the time for late answers.
    fn drive(&mut self, plan: &Plan) -> io::Result<Duration> {
        let start = Instant::now();
        let end = start + plan.duration;
        let mut ready: Vec<Ready> = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let mut now = Instant::now();
            let mut next_due = start + Duration::from_secs_f64(self.outcome.due as f64 / plan.rate);
            while next_due <= now && next_due < end {
                self.outcome.due += 1;
                self.lateness.record(now.saturating_duration_since(next_due).as_micros() as u64);
                self.waiting.push_back(next_due);
                next_due = start + Duration::from_secs_f64(self.outcome.due as f64 / plan.rate);
            }
            self.send_waiting()?;
            let busy = self.idle.len() < self.conns.len() || !self.waiting.is_empty();
            if now >= end && (!busy || now >= end + GRACE) {
                return Ok((now - start).max(plan.duration));
            }
            now = Instant::now();
            let until = if next_due < end { next_due } else { end.max(now + Duration::from_millis(5)) };
            self.epoll.wait(Some(until.saturating_duration_since(now)), &mut ready)?;
            for event in &ready {
                if event.readable {
                    self.receive(event.token as usize, &mut buffer)?;
                }
            }
        }
    }

    fn send_waiting(&mut self) -> io::Result<()> {
        while !self.waiting.is_empty() {
            let Some(id) = self.idle.pop_front() else { return Ok(()) };
            let due = self.waiting.pop_front();
            self.conns[id].due = due;
            // A request fits into an idle socket's buffer in one piece.
            if !matches!(write(&self.conns[id].stream, &self.request), Io::Moved(n) if n == self.request.len()) {
                self.lose(id)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, id: usize, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            let conn = &mut self.conns[id];
            match read(&conn.stream, buffer) {
                Io::Moved(count) => {
                    if !self.consume(id, &buffer[..count]) {
                        return self.lose(id);
                    }
                    if count < buffer.len() {
                        return Ok(());
                    }
                }
                Io::Blocked => return Ok(()),
                Io::Over => return self.lose(id),
            }
        }
    }

    /// Takes bytes of an answer; `false` when they make no sense or the connection ends with it.
    fn consume(&mut self, id: usize, bytes: &[u8]) -> bool {
        let conn = &mut self.conns[id];
        if conn.body_left > 0 {
            conn.body_left -= conn.body_left.min(bytes.len());
        } else {
            conn.partial.extend_from_slice(bytes);
            let head = match http1::response(&conn.partial) {
                Ok(Some(head)) if !head.close => head,
                Ok(None) => return true,
                _ => return false,
            };
            let whole = head.head_bytes + head.body_bytes;
            conn.body_left = whole - whole.min(conn.partial.len());
            conn.partial.clear();
            if head.status / 100 != 2 {
                self.outcome.errors += 1;
            }
        }
        if conn.body_left == 0
            && let Some(due) = conn.due.take()
        {
            self.latencies.record(due.elapsed().as_micros() as u64);
            self.idle.push_back(id);
        }
        true
    }

    fn lose(&mut self, id: usize) -> io::Result<()> {
        if self.conns[id].due.is_some() {
            self.outcome.errors += 1;
            self.idle.push_back(id);
        }
        self.conns[id] = open(&self.epoll, self.to, id)?;
        Ok(())
    }

    fn finish(mut self, took: Duration) -> Outcome {
        let in_flight = self.conns.iter().filter(|conn| conn.due.is_some()).count();
        self.outcome.unanswered = (in_flight + self.waiting.len()) as u64;
        self.outcome.answered = self.latencies.total();
        self.outcome.rate = self.outcome.answered as f64 / took.as_secs_f64();
        self.outcome.p50_us = self.latencies.quantile_us(0.50);
        self.outcome.p99_us = self.latencies.quantile_us(0.99);
        self.outcome.p999_us = self.latencies.quantile_us(0.999);
        self.outcome.late_p99_us = self.lateness.quantile_us(0.99);
        self.outcome.worst_us = self.latencies.quantile_us(1.0);
        self.outcome
    }
}
