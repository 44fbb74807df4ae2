//! A receiver of syslog messages over UDP, and what forwards the standard output of a product to it, line by line.

use crate::failure::Failure;
use crate::sys;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What is read out of a message.
pub(crate) type Reader = fn(&str) -> Option<f64>;

/// A message that came: seconds since the receiver was last cleared, and what was read out of it.
type Came = (f32, Option<f32>);

#[derive(Default)]
struct Received {
    cleared: Option<Instant>,
    came: Vec<Came>,
    /// The first messages as they were.
    first: Vec<String>,
}

/// A receiver. Dropping it ends it.
pub(crate) struct Receiver {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What came in a span of time.
#[derive(Debug)]
pub(crate) struct Messages {
    /// How many.
    pub count: u64,
    /// Seconds, and the mean of what was read out of the messages around then.
    pub means: Vec<(f64, f64)>,
    /// The first ones.
    pub first: Vec<String>,
}

const FIRST_MAX: usize = 20;
const POINTS_MAX: f64 = 100.0;
const BUFFER_BYTES: usize = 16 << 20;

impl Receiver {
    /// Begins to receive, on a port that is free.
    pub(crate) fn start(read: Reader) -> Result<Self, Failure> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        // Products write many lines at once; what does not fit into the socket's buffer is lost.
        sys::enlarge_receive_buffer(&socket, BUFFER_BYTES);
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let address = socket.local_addr()?;
        let (received, is_over) = (Arc::new(Mutex::new(Received::default())), Arc::new(AtomicBool::new(false)));
        let (shared, told) = (Arc::clone(&received), Arc::clone(&is_over));
        let thread = thread::spawn(move || receive(&socket, read, &shared, &told));
        Ok(Self { address, received, is_over, thread: Some(thread) })
    }

    /// Where messages go.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forgets what came, and counts time from now.
    pub(crate) fn clear(&self) {
        let cleared = Some(Instant::now());
        *self.received.lock().unwrap_or_else(PoisonError::into_inner) = Received { cleared, ..Received::default() };
    }

    /// What came since it was cleared. Waits, not for long, until the expected number has come.
    pub(crate) fn take(&self, expected: u64) -> Messages {
        let deadline = Instant::now() + Duration::from_millis(1500);
        while Instant::now() < deadline && (self.count() as u64) < expected {
            thread::sleep(Duration::from_millis(20));
        }
        let received = std::mem::take(&mut *self.received.lock().unwrap_or_else(PoisonError::into_inner));
        Messages { count: received.came.len() as u64, means: means(&received.came), first: received.first }
    }

    fn count(&self) -> usize {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).came.len()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn receive(socket: &UdpSocket, read: Reader, received: &Mutex<Received>, is_over: &AtomicBool) {
    let mut buffer = vec![0; 64 * 1024];
    while !is_over.load(Ordering::SeqCst) {
        let Ok(count) = socket.recv(&mut buffer) else { continue };
        let message = String::from_utf8_lossy(&buffer[..count]);
        let value = read(&message);
        let mut received = received.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(cleared) = received.cleared else { continue };
        received.came.push((cleared.elapsed().as_secs_f32(), value.map(|value| value as f32)));
        if received.first.len() < FIRST_MAX {
            received.first.push(message.trim_end().to_owned());
        }
    }
}

/// Means over at most some hundred spans of equal length.
fn means(came: &[Came]) -> Vec<(f64, f64)> {
    let end = came.iter().map(|(at, _)| f64::from(*at)).fold(0.0, f64::max);
    let span = (end / POINTS_MAX).max(0.05);
    let mut spans: Vec<(f64, u32)> = vec![(0.0, 0); (end / span) as usize + 1];
    for (at, value) in came {
        let place = spans.get_mut((f64::from(*at) / span) as usize);
        if let (Some((sum, count)), Some(value)) = (place, value) {
            *sum += f64::from(*value);
            *count += 1;
        }
    }
    let filled = spans.into_iter().enumerate().filter(|(_, (_, count))| *count > 0);
    filled.map(|(at, (sum, count))| ((at as f64 + 0.5) * span, sum / f64::from(count))).collect()
}

/// Sends each line as a message (RFC 3164: facility local0, severity info) until there are no more.
pub(crate) fn forward(lines: impl Read + Send + 'static, name: &str, to: SocketAddr) -> Result<(), Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let head = format!("<134>{name}: ");
    thread::spawn(move || {
        let mut lines = BufReader::with_capacity(64 * 1024, lines);
        let mut message = head.clone().into_bytes();
        while lines.read_until(b'\n', &mut message).is_ok_and(|count| count > 0) {
            let _ = socket.send_to(&message, to);
            message.truncate(head.len());
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_forwarded_received_and_read() {
        let receiver = Receiver::start(|message| message.rsplit(' ').next()?.trim().parse().ok()).unwrap();
        receiver.clear();
        forward(&b"one 1\ntwo 3\nlast, without an end"[..], "product", receiver.address()).unwrap();
        let messages = receiver.take(3);
        assert_eq!(messages.count, 3);
        assert_eq!(messages.first[1], "<134>product: two 3");
        assert_eq!(messages.means.iter().map(|(_, mean)| *mean).sum::<f64>() / messages.means.len() as f64, 2.0);
    }

    #[test]
    fn means_are_taken_of_what_came_at_about_the_same_time() {
        let came = [(0.01, Some(1.0)), (0.02, Some(3.0)), (0.03, None), (0.06, Some(5.0))];
        let means: Vec<f64> = means(&came).into_iter().map(|(_, mean)| mean).collect();
        assert_eq!(means, [2.0, 5.0]);
    }
}
