//! Asking resolvers over UDP and TCP.

use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use model::provider::DnsProvider;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use wire::dns::system::{Resolving, hosts};
use wire::dns::{Answer, Kind, Meaning, Name, Refused, Srv, question};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";
/// How soon a changed `hosts` file is seen, in seconds: nothing in it says how long it holds.
const HOSTS_TTL: u32 = 5;
/// Bytes of a datagram: more than we say that we take, since some send more.
const DATAGRAM_BYTES_MAX: usize = 4096;

/// What was found. Times to live are seconds.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// Addresses of one family.
    Addresses(Vec<IpAddr>, u32),
    /// Places.
    Places(Vec<Srv>, u32),
    /// What was asked of the name is not there, or the name itself.
    Nothing(Option<u32>, NotFound),
}

/// What is not there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NotFound {
    /// Under no name that was asked for is there anything at all.
    Name,
    /// There is such a name, without such records.
    Records,
}

impl NotFound {
    /// Says it in words.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Name => "there is no such name",
            Self::Records => "the name has no such records",
        }
    }
}

/// Whom to ask, as it is now.
pub(crate) struct DnsClient {
    resolving: Resolving,
    hosts: Option<String>,
}

impl DnsClient {
    /// The resolvers of the settings, or what the system says at this moment.
    pub(crate) fn of(settings: &DnsProvider) -> Self {
        if settings.resolvers.is_empty() {
            let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
            let mut resolving = Resolving::parse(&read(RESOLV_CONF));
            resolving.timeout = resolving.timeout.min(settings.timeout);
            return Self { resolving, hosts: Some(read(HOSTS)) };
        }
        let resolvers = settings.resolvers.clone();
        Self { resolving: Resolving { resolvers, timeout: settings.timeout, ..Resolving::default() }, hosts: None }
    }

    /// Looks a name up: as it is, or behind the names that are searched.
    ///
    /// # Errors
    /// Nobody has an answer: nothing is known by that.
    pub(super) async fn look_up(&self, text: &str, kind: Kind) -> Result<Found, String> {
        if let Some(found) = self.find_in_hosts(text, kind) {
            return Ok(found);
        }
        let (mut ttl, mut lack) = (None, NotFound::Name);
        for name in self.resolving.candidates(text) {
            match self.ask(&name, kind).await? {
                Meaning::Addresses(found, ttl) => return Ok(Found::Addresses(found, ttl)),
                Meaning::Places(found, ttl) => return Ok(Found::Places(found, ttl)),
                Meaning::Nothing(lives) => (ttl, lack) = (ttl.into_iter().chain(lives).min(), NotFound::Records),
                Meaning::NoName(lives) => ttl = ttl.into_iter().chain(lives).min(),
                Meaning::Cut | Meaning::Refused(_) => {}
            }
        }
        Ok(Found::Nothing(ttl, lack))
    }

    /// A name that the file knows is not asked for.
    fn find_in_hosts(&self, text: &str, kind: Kind) -> Option<Found> {
        let known = hosts(self.hosts.as_deref().filter(|_| kind != Kind::Srv)?, &Name::parse(text)?)?;
        let of_kind: Vec<IpAddr> = known.into_iter().filter(|ip| ip.is_ipv4() == (kind == Kind::A)).collect();
        let is_empty = of_kind.is_empty();
        Some(if is_empty {
            Found::Nothing(Some(HOSTS_TTL), NotFound::Records)
        } else {
            Found::Addresses(of_kind, HOSTS_TTL)
        })
    }

    /// Asks one resolver after the other until one has an answer.
    async fn ask(&self, name: &Name, kind: Kind) -> Result<Meaning, String> {
        let mut why = String::new();
        for _ in 0..self.resolving.attempts {
            for resolver in &self.resolving.resolvers {
                let failed = match self.ask_one(*resolver, name, kind).await {
                    Ok(Meaning::Refused(refused)) => refused.to_string(),
                    Ok(Meaning::Cut) => "the response is truncated, also over TCP".to_owned(),
                    Ok(meaning) => return Ok(meaning),
                    Err(failed) => failed,
                };
                why = format!("{resolver} for {name} {}: {failed}", kind.as_str());
            }
        }
        Err(why)
    }

    async fn ask_one(&self, resolver: SocketAddr, name: &Name, kind: Kind) -> Result<Meaning, String> {
        let meaning = self.ask_with(resolver, (name, kind), true).await?;
        if meaning == Meaning::Refused(Refused::Format) {
            // It may not know EDNS (RFC 6891 section 7).
            return self.ask_with(resolver, (name, kind), false).await;
        }
        Ok(meaning)
    }

    async fn ask_with(&self, resolver: SocketAddr, asked: (&Name, Kind), edns: bool) -> Result<Meaning, String> {
        let timeout = self.resolving.timeout;
        if !self.resolving.only_tcp {
            let meaning = within(timeout, by_udp(resolver, asked, edns)).await?;
            if meaning != Meaning::Cut {
                return Ok(meaning);
            }
        }
        within(timeout, by_tcp(resolver, asked, edns)).await
    }
}

async fn within<T>(time: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(time, work).await.unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

/// From a port of its own, chosen by the system, with an id by chance: who cannot see the question cannot answer it
/// (RFC 5452 section 9.2).
async fn by_udp(resolver: SocketAddr, (name, kind): (&Name, Kind), edns: bool) -> Result<Meaning, String> {
    let any = if resolver.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let socket = UdpSocket::bind((any, 0)).await.map_err(text)?;
    socket.connect(resolver).await.map_err(text)?;
    let id = id();
    socket.send(&question(id, name, kind, edns)).await.map_err(text)?;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let length = socket.recv(&mut buffer).await.map_err(text)?;
        if let Some(answer) = Answer::read(&buffer[..length], id, name, kind) {
            return Ok(answer.meaning());
        }
    }
}

/// RFC 7766: each message behind its length.
async fn by_tcp(resolver: SocketAddr, (name, kind): (&Name, Kind), edns: bool) -> Result<Meaning, String> {
    let mut stream = TcpStream::connect(resolver).await.map_err(text)?;
    let id = id();
    let message = question(id, name, kind, edns);
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    stream.write_all(&[&length.to_be_bytes()[..], &message].concat()).await.map_err(text)?;
    let length = stream.read_u16().await.map_err(text)?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await.map_err(text)?;
    let answer = Answer::read(&answer, id, name, kind).ok_or("the response does not match the query")?;
    Ok(answer.meaning())
}

/// The keys of each state are random.
fn id() -> u16 {
    RandomState::new().hash_one(0) as u16
}

fn text(error: impl Display) -> String {
    error.to_string()
}
