//! A small load for the demo: so many connections, each asking again as soon as it is answered.
//!
//! It proves that the demo works, not how fast it is: the lab measures that, from outside of the process.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Connections of the load.
pub(crate) const CONNECTIONS: usize = 16;
/// A request that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a failure, a connection waits this long before the next.
const PAUSE: Duration = Duration::from_millis(50);
const HEAD_BYTES_MAX: usize = 64 * 1024;
const BODY_BYTES_MAX: u64 = 1 << 20;

/// What came of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Answered with 200.
    pub(crate) good: u64,
    /// All else.
    pub(crate) failed: u64,
}

#[derive(Default)]
struct Counters {
    good: AtomicU64,
    failed: AtomicU64,
    over: AtomicBool,
}

/// Puts load on `address` until `end` is ready. Requests in flight are waited for.
pub(crate) async fn run(address: SocketAddr, end: impl Future<Output = ()>) -> Tally {
    let counters = Arc::new(Counters::default());
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        connections.spawn(connection(address, Arc::clone(&counters)));
    }
    end.await;
    counters.over.store(true, Ordering::Relaxed);
    connections.join_all().await;
    Tally { good: counters.good.load(Ordering::Relaxed), failed: counters.failed.load(Ordering::Relaxed) }
}

async fn connection(address: SocketAddr, counters: Arc<Counters>) {
    let mut kept = None;
    while !counters.over.load(Ordering::Relaxed) {
        match tokio::time::timeout(PATIENCE, exchange(&mut kept, address)).await {
            Ok(Ok(200)) => _ = counters.good.fetch_add(1, Ordering::Relaxed),
            _ => {
                kept = None;
                counters.failed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Carries out one exchange, on the kept connection if there is one. Returns the status.
async fn exchange(kept: &mut Option<BufReader<TcpStream>>, address: SocketAddr) -> io::Result<u16> {
    let mut stream = match kept.take() {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            BufReader::new(stream)
        }
    };
    let request = format!("GET /demo HTTP/1.1\r\nhost: {address}\r\nuser-agent: equipoise-demo\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes()).await?;
    let head = read_head(&mut stream).await?;
    let answer = Answer::parse(&head).ok_or(io::ErrorKind::InvalidData)?;
    let read = tokio::io::copy(&mut (&mut stream).take(answer.length), &mut tokio::io::sink()).await?;
    if read != answer.length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    *kept = answer.keep.then_some(stream);
    Ok(answer.status)
}

async fn read_head(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(512);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}

#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    length: u64,
    keep: bool,
}

impl Answer {
    /// Parses a response. The origins of the demo always send its length; a response without one is not theirs.
    fn parse(head: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(head).ok()?;
        let mut lines = text.split("\r\n");
        let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
        let (mut length, mut keep) = (None, true);
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.trim().parse().ok().filter(|length| *length <= BODY_BYTES_MAX)?);
            } else if name.eq_ignore_ascii_case("connection") && value.trim().eq_ignore_ascii_case("close") {
                keep = false;
            }
        }
        Some(Self { status, length: length?, keep })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::origins;

    #[tokio::test]
    async fn a_load_on_an_origin_counts_its_answers() {
        let origin = origins::start().await.unwrap()[0];
        let tally = run(origin.address, tokio::time::sleep(Duration::from_millis(200))).await;
        assert!(tally.good >= CONNECTIONS as u64, "{tally:?}");
        assert_eq!(tally.failed, 0);
    }

    #[tokio::test]
    async fn a_load_on_nothing_fails_and_ends() {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let tally = run(gone, tokio::time::sleep(Duration::from_millis(50))).await;
        assert_eq!(tally.good, 0);
        assert!(tally.failed >= CONNECTIONS as u64, "{tally:?}");
    }

    #[test]
    fn an_answer_needs_a_status_and_a_bounded_length() {
        let parse = |text: &str| Answer::parse(text.as_bytes());
        let good = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\n";
        assert_eq!(parse(good), Some(Answer { status: 200, length: 12, keep: false }));
        for bad in
            ["", "HTTP/1.1 20", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n"]
        {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
