//! How sockets are set up.

use std::net::IpAddr;
use std::time::Duration;

use model::Address;
use model::limits::{self, UNIX_PATH_BYTES_MAX};
use model::socket::{ClusterSocket, Keepalive, ListenerSocket, SocketFile, Source, StreamSocket};

use super::Resolver;
use crate::file;
use crate::units::Time;

/// Longest time that the kernel takes for a keep-alive (tcp(7)).
const KEEPALIVE_MAX: Duration = Duration::from_secs(32_767);
/// What stands for the address of the client.
pub(super) const CLIENT: &str = "client";
/// Keys that mean something for a file only, for connections only, and for the network only.
const FILE_ONLY: [&str; 3] = ["mode", "owner", "group"];
const STREAMS_ONLY: [&str; 4] = ["backlog", "fast_open", "keepalive", "user_timeout"];
const NETWORK_ONLY: [&str; 5] = ["fast_open", "keepalive", "user_timeout", "dscp", "freebind"];

impl Resolver<'_> {
    /// Reads what stands behind `unix:`.
    pub(super) fn unix_path(&mut self, path: &str, text: &str) -> Option<Address> {
        let (message, mend) = match text.strip_prefix('@') {
            Some("") => ("a Unix socket needs a name".to_owned(), "write it like `unix:@name`"),
            None if !text.starts_with('/') => {
                (format!("`{text}` is not an absolute path"), "write it like `unix:/run/equipoise.sock`")
            }
            None if text.ends_with('/') => {
                (format!("`{text}` is a folder"), "write it like `unix:/run/equipoise.sock`")
            }
            // One file by two paths would be two sockets of which one is in the other's way.
            None if text.split('/').skip(1).any(|part| matches!(part, "" | "." | "..")) => {
                (format!("`{text}` is not normalized"), "leave out `//`, `/./` and `/../`")
            }
            _ if text.contains('\0') => ("a path cannot contain a NUL byte".to_owned(), "leave it out"),
            _ if text.len() > UNIX_PATH_BYTES_MAX => {
                let message = format!("the path of a Unix socket has at most {UNIX_PATH_BYTES_MAX} bytes");
                (format!("{message}, not {}", text.len()), "choose a shorter one")
            }
            _ => return Some(Address::Unix(text.into())),
        };
        self.report(path, message, Some(mend.to_owned()));
        None
    }

    pub(super) fn listener_socket(
        &mut self,
        at: &str,
        written: &file::ListenerSocket,
        (bind, is_udp): (Option<&Address>, bool),
    ) -> ListenerSocket {
        let (foreign, because): (&[_], _) = match bind {
            Some(Address::Ip(_)) => (&FILE_ONLY, "applies to Unix sockets only"),
            Some(Address::Unix(_)) => (&NETWORK_ONLY, "has no effect for a Unix socket"),
            None => (&[], ""),
        };
        let (streams, because_udp): (&[_], _) =
            if is_udp { (&STREAMS_ONLY, "has no effect for datagrams") } else { (&[], "") };
        let streams = streams.iter().map(|key| (key, because_udp));
        for (key, because) in foreign.iter().map(|key| (key, because)).chain(streams) {
            if self.has(at, key) {
                let span = self.key_span(at, key);
                self.sink.push(span, format!("`{key}` {because}"), Some("leave it out".to_owned()));
            }
        }
        let mode = written.mode.as_ref().and_then(|text| {
            let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && text.len() <= 4);
            if mode.is_none() {
                let mend = "write it in quotes and in octal, such as `\"0660\"`".to_owned();
                self.report(&format!("{at}/mode"), format!("`{text}` is not a file mode"), Some(mend));
            }
            mode
        });
        let file = SocketFile { mode, owner: written.owner.clone(), group: written.group.clone() };
        let stream = self.stream_socket(at, written.keepalive.as_ref(), (written.user_timeout, written.dscp));
        let backlog = written.backlog.unwrap_or(limits::BACKLOG);
        ListenerSocket { backlog, freebind: written.freebind, fast_open: written.fast_open, stream, file }
    }

    pub(super) fn cluster_socket(&mut self, at: &str, written: &file::ClusterSocket) -> ClusterSocket {
        let stream = self.stream_socket(at, written.keepalive.as_ref(), (written.user_timeout, written.dscp));
        let texts = written.source_address.as_slice();
        let path = format!("{at}/source_address");
        if texts.iter().any(|text| text == CLIENT) {
            if texts.len() > 1 {
                self.report(&path, "`client` stands alone", Some("leave the addresses out".to_owned()));
            }
            return ClusterSocket { source: Source::Client, fast_open: written.fast_open, stream };
        }
        let mut addresses: Vec<IpAddr> = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let path = if texts.len() == 1 { path.clone() } else { format!("{path}/{index}") };
            match text.parse::<IpAddr>() {
                Ok(address) if addresses.iter().any(|known| known.is_ipv4() == address.is_ipv4()) => {
                    self.report(&path, "there is already an address of this family", None);
                }
                Ok(address) => addresses.push(address),
                Err(_) => {
                    let mend = "write an address without a port, or `client`".to_owned();
                    self.report(&path, format!("`{text}` is not an address"), Some(mend));
                }
            }
        }
        let source = if addresses.is_empty() { Source::Kernel } else { Source::Address(addresses) };
        ClusterSocket { source, fast_open: written.fast_open, stream }
    }

    fn stream_socket(
        &mut self,
        at: &str,
        keepalive: Option<&file::Keepalive>,
        (user_timeout, dscp): (Option<Time>, Option<u8>),
    ) -> StreamSocket {
        let keepalive = keepalive.map(|written| {
            for (key, time) in [("idle", written.idle.0), ("interval", written.interval.0)] {
                if time.subsec_nanos() != 0 || time.is_zero() || time > KEEPALIVE_MAX {
                    let message = format!("`{key}` must be from 1 to {} whole seconds", KEEPALIVE_MAX.as_secs());
                    self.report(&format!("{at}/keepalive/{key}"), message, None);
                }
            }
            Keepalive { idle: written.idle.0, interval: written.interval.0, count: written.count }
        });
        StreamSocket { keepalive, user_timeout: user_timeout.map(|time| time.0), dscp }
    }
}
