//! A receiver of syslog messages that is reached by TCP (RFC 6587).
//!
//! ```text
//! Away --(a message, and the pause is over)--> Connecting --> Open --(an error, or the end)--> Away
//! ```
//! Nothing here waits: connecting is left to a thread, and the connection takes what it can. Messages wait in between; of
//! one that was cut by the end of a connection all is sent again. What the kernel had taken when a receiver died is lost
//! without anyone knowing, as this protocol has no word for "received".

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use model::limits::SYSLOG_WAITING_BYTES_MAX;
use model::snapshot::SyslogStyle;

const CONNECT_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// Bytes that were sent are taken out of the buffer when there are so many.
const SENT_BYTES_MAX: usize = 256 * 1024;

/// Messages on their way.
#[derive(Debug)]
pub(super) struct Stream {
    to: SocketAddr,
    style: SyslogStyle,
    connection: Connection,
    pause: Duration,
    /// Framed messages one behind the other. The first has begun at `first`, and is sent up to `sent`.
    bytes: Vec<u8>,
    lengths: VecDeque<usize>,
    first: usize,
    sent: usize,
}

#[derive(Debug)]
enum Connection {
    /// To be tried again then.
    Away(Option<Instant>),
    Connecting(Receiver<io::Result<TcpStream>>),
    Open(TcpStream),
}

impl Stream {
    pub(super) fn new(to: SocketAddr, style: SyslogStyle) -> Self {
        Self {
            to,
            style,
            connection: Connection::Away(None),
            pause: PAUSE_MIN,
            bytes: Vec::new(),
            lengths: VecDeque::new(),
            first: 0,
            sent: 0,
        }
    }

    /// Adds a message to those that wait.
    pub(super) fn add(&mut self, message: &[u8]) -> io::Result<()> {
        if self.bytes.len() - self.first + message.len() > SYSLOG_WAITING_BYTES_MAX {
            return Err(io::Error::other("the receiver is unreachable or too slow, and the buffer is full"));
        }
        let before = self.bytes.len();
        match self.style {
            SyslogStyle::Rfc5424 => {
                self.bytes.extend_from_slice(message.len().to_string().as_bytes());
                self.bytes.push(b' ');
                self.bytes.extend_from_slice(message);
            }
            SyslogStyle::Rfc3164 => {
                self.bytes.extend_from_slice(message);
                self.bytes.push(b'\n');
            }
        }
        self.lengths.push_back(self.bytes.len() - before);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn unsent_bytes(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.lengths.is_empty()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.has_waiting() && !matches!(self.connection, Connection::Away(Some(_)))
    }

    /// Takes the next steps that need no waiting.
    pub(super) fn go_on(&mut self) -> io::Result<()> {
        while self.has_waiting() {
            match &mut self.connection {
                Connection::Away(Some(again)) if Instant::now() < *again => return Ok(()),
                Connection::Away(_) => self.connection = Connection::Connecting(connecting(self.to)?),
                Connection::Connecting(connected) => match connected.try_recv() {
                    Ok(Ok(open)) => self.connection = Connection::Open(open),
                    Ok(Err(why)) => return self.away(why),
                    Err(TryRecvError::Empty) => return Ok(()),
                    Err(TryRecvError::Disconnected) => return self.away(io::ErrorKind::NotConnected.into()),
                },
                Connection::Open(open) => match send(open, &self.bytes[self.sent..]) {
                    Ok(count) => self.advance(count),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return self.away(error),
                },
            }
        }
        Ok(())
    }

    fn advance(&mut self, count: usize) {
        self.sent += count;
        self.pause = PAUSE_MIN;
        while let Some(length) = self.lengths.front()
            && self.first + length <= self.sent
        {
            self.first += length;
            self.lengths.pop_front();
        }
        if self.lengths.is_empty() || self.first > SENT_BYTES_MAX {
            self.bytes.drain(..self.first);
            self.sent -= self.first;
            self.first = 0;
        }
    }

    fn away(&mut self, why: io::Error) -> io::Result<()> {
        self.connection = Connection::Away(Some(Instant::now() + self.pause));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.sent = self.first;
        Err(why)
    }
}

fn send(open: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    // A receiver that has closed would still let the first write go nowhere.
    match open.read(&mut [0; 256]) {
        Ok(0) => Err(io::ErrorKind::ConnectionAborted.into()),
        Ok(_) => open.write(bytes),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => open.write(bytes),
        Err(error) => Err(error),
    }
}

fn connecting(to: SocketAddr) -> io::Result<Receiver<io::Result<TcpStream>>> {
    let (told, connected) = mpsc::sync_channel(1);
    thread::Builder::new().name("syslog-connect".to_owned()).spawn(move || {
        let open = TcpStream::connect_timeout(&to, CONNECT_MAX)
            .and_then(|stream| stream.set_nonblocking(true).map(|()| stream));
        // There is no waiter any more if the log was closed meanwhile.
        let _ = told.send(open);
    })?;
    Ok(connected)
}
