//! Records as syslog messages: over UDP (RFC 5426), TCP (RFC 6587) and Unix sockets.
//!
//! Datagrams are sent as records come; a receiver that is away or too slow costs them. Over TCP they wait, up to a bound,
//! until the receiver is back (`stream.rs`).

mod stream;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self as unix, UnixDatagram};
use std::process;
use std::time::{Duration, SystemTime};

use model::snapshot::{self, SyslogAddress, SyslogStyle};

use super::lost::Lost;
use crate::text::Clock;
use stream::Stream;

/// Longest message in a datagram: what UDP over IPv4 can carry, a little less.
const DATAGRAM_BYTES_MAX: usize = 65_000;

/// Longest time that a Unix socket whose receiver does not read holds the other logs up, for each pass.
const UNIX_WAIT: Duration = Duration::from_millis(100);

/// The messages to one receiver.
#[derive(Debug)]
pub(super) struct Syslog {
    head: Head,
    message: Vec<u8>,
    to: To,
}

#[derive(Debug)]
enum To {
    Udp(SocketAddr, Option<UdpSocket>),
    Unix(String, Option<UnixDatagram>),
    Tcp(Stream),
}

impl Syslog {
    pub(super) fn new(settings: &snapshot::Syslog) -> Self {
        let to = match &settings.to {
            SyslogAddress::Udp(address) => To::Udp(*address, None),
            SyslogAddress::Unix(path) => To::Unix(path.clone(), None),
            SyslogAddress::Tcp(address) => To::Tcp(Stream::new(*address, settings.style)),
        };
        Self { head: Head::new(settings), message: Vec::new(), to }
    }

    /// Sends each line as a message, or has it wait.
    pub(super) fn carry(&mut self, lines: &[u8]) -> Result<(), Lost> {
        self.head.set_time(SystemTime::now());
        let mut lost: Option<Lost> = None;
        let mut is_away = false;
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            if is_away {
                lost.iter_mut().for_each(|lost| lost.records += 1);
                continue;
            }
            self.message.clear();
            self.message.extend_from_slice(&self.head.text);
            self.message.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
            if let Err(why) = self.to.send(&self.message) {
                // Who does not read, or is not there, is not asked again for each of them.
                is_away = matches!(self.to, To::Unix(..));
                lost.get_or_insert(Lost { records: 0, why }).records += 1;
            }
        }
        lost.map_or(Ok(()), Err)
    }

    /// Goes on with what waits.
    pub(super) fn go_on(&mut self) -> io::Result<()> {
        match &mut self.to {
            To::Tcp(stream) => stream.go_on(),
            To::Udp(..) | To::Unix(..) => Ok(()),
        }
    }

    pub(super) fn has_waiting(&self) -> bool {
        matches!(&self.to, To::Tcp(stream) if stream.has_waiting())
    }

    pub(super) fn is_busy(&self) -> bool {
        matches!(&self.to, To::Tcp(stream) if stream.is_busy())
    }
}

impl To {
    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let datagram = &message[..message.len().min(DATAGRAM_BYTES_MAX)];
        match self {
            Self::Tcp(stream) => stream.add(message),
            Self::Udp(address, socket) => {
                let socket = opened(socket, || udp(*address))?;
                // What is reported is often that an earlier one was refused, and this one was not sent; so it is, once more.
                socket.send(datagram).or_else(|_| socket.send(datagram)).map(drop)
            }
            Self::Unix(path, socket) => {
                let first = opened(socket, || connected(path))?.send(datagram);
                let Err(error) = first else { return Ok(()) };
                if error.kind() == io::ErrorKind::WouldBlock {
                    return Err(error);
                }
                // The receiver restarted, and has another socket at the same path.
                *socket = None;
                opened(socket, || connected(path))?.send(datagram).map(drop)
            }
        }
    }
}

fn opened<T>(place: &mut Option<T>, open: impl FnOnce() -> io::Result<T>) -> io::Result<&T> {
    if place.is_none() {
        *place = Some(open()?);
    }
    place.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
}

fn udp(to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = if to.is_ipv4() {
        UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?
    } else {
        UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?
    };
    socket.connect(to)?;
    Ok(socket)
}

fn connected(path: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match path.strip_prefix('@') {
        Some(name) => socket.connect_addr(&unix::SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(path)?,
    }
    socket.set_write_timeout(Some(UNIX_WAIT))?;
    Ok(socket)
}

/// The prefix of the record in each message.
#[derive(Debug)]
struct Head {
    style: SyslogStyle,
    /// What is before the time, and behind it.
    before: String,
    behind: String,
    clock: Clock,
    text: Vec<u8>,
}

impl Head {
    fn new(settings: &snapshot::Syslog) -> Self {
        let (priority, tag, id) = (settings.priority, &settings.tag, process::id());
        let host = host_name();
        let (before, behind) = match (settings.style, &settings.to) {
            (SyslogStyle::Rfc5424, _) => (format!("<{priority}>1 "), format!(" {host} {tag} {id} - - ")),
            (SyslogStyle::Rfc3164, SyslogAddress::Unix(_)) => (format!("<{priority}>"), format!(" {tag}[{id}]: ")),
            (SyslogStyle::Rfc3164, _) => (format!("<{priority}>"), format!(" {host} {tag}[{id}]: ")),
        };
        Self { style: settings.style, before, behind, clock: Clock::default(), text: Vec::new() }
    }

    fn set_time(&mut self, now: SystemTime) {
        self.text.clear();
        self.text.extend_from_slice(self.before.as_bytes());
        match self.style {
            SyslogStyle::Rfc5424 => self.clock.push_rfc3339(&mut self.text, now),
            SyslogStyle::Rfc3164 => self.clock.push_rfc3164(&mut self.text, now),
        }
        self.text.extend_from_slice(self.behind.as_bytes());
    }
}

/// Returns the name of this machine, or `-` (RFC 5424 section 6.2.4).
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(char::is_ascii_graphic).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}
