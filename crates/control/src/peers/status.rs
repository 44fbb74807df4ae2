//! How it stands with peers, for those who look.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use telemetry::{Gauge, Metric};

use super::connection::Shown;

/// The state of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerState {
    /// A connection is being made.
    #[default]
    Connecting,
    /// It gets what is counted here.
    Connected,
    /// It is this instance.
    Own,
    /// The last attempt failed.
    Failed,
}

impl PeerState {
    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Own => "own",
            Self::Failed => "failed",
        }
    }
}

/// A member, as it is now.
#[derive(Clone, Debug, Default)]
pub struct PeerStatus {
    /// As it is written in the configuration.
    pub member: String,
    /// Where it was found, if it was.
    pub address: String,
    /// Whether it gets what is counted here.
    pub state: PeerState,
    /// The number that its process has drawn; `None`: it has not been heard.
    pub instance: Option<u128>,
    /// Whether what it counts comes here.
    pub is_heard: bool,
    /// Bytes that it has not acknowledged.
    pub backlog_bytes: usize,
    /// Since when it lacks the oldest of them.
    pub lag: Duration,
    /// When the last failure was, and what it was.
    pub last_error: Option<(SystemTime, String)>,
}

/// All that is known of peers.
#[derive(Clone, Debug, Default)]
pub struct PeersStatus {
    /// The number that this process has drawn.
    pub instance: u128,
    /// Whether it has what others counted before it began.
    pub is_settled: bool,
    /// By member and address.
    pub peers: Vec<PeerStatus>,
    /// Instances whose counts come here.
    pub incoming: usize,
    /// Tables that are replicated.
    pub tables: Vec<String>,
    /// Clusters whose sessions are replicated.
    pub sessions: Vec<String>,
    /// Records that were sent.
    pub sent: u64,
    /// Records that were taken in.
    pub received: u64,
    /// Records of tables that are others here.
    pub skipped: u64,
    /// Increments that a peer has not got, for want of room.
    pub dropped: u64,
    /// States of a peer that were taken over.
    pub resyncs: u64,
    /// Connections that were refused, because of their certificate or what they sent.
    pub refused: u64,
}

impl PeersStatus {
    /// Adds the metrics of peers.
    pub(crate) fn push_gauges<'a>(&'a self, gauges: &mut Vec<Gauge<'a>>) {
        for peer in self.peers.iter().filter(|peer| peer.state != PeerState::Own) {
            let name = if peer.address.is_empty() { &peer.member } else { &peer.address }.as_str();
            let is_connected = f64::from(u8::from(peer.state == PeerState::Connected));
            gauges.push(Gauge::new(Metric::PeerConnected, &[name], is_connected));
            gauges.push(Gauge::new(Metric::PeerLag, &[name], peer.lag.as_secs_f64()));
            gauges.push(Gauge::new(Metric::PeerBacklog, &[name], peer.backlog_bytes as f64));
        }
        let counters = [
            (Metric::PeersSent, self.sent),
            (Metric::PeersReceived, self.received),
            (Metric::PeersSkipped, self.skipped),
            (Metric::PeersDropped, self.dropped),
            (Metric::PeersResyncs, self.resyncs),
            (Metric::PeersRefused, self.refused),
        ];
        gauges.extend(counters.map(|(metric, value)| Gauge::new(metric, &[], value as f64)));
    }
}

/// A member as it is written, and its address.
pub(crate) type Key = (String, String);

/// The connection of a sender.
pub(crate) struct Incoming {
    pub(crate) number: u64,
    /// It knew enough to teach.
    pub(crate) is_settled: bool,
    pub(crate) shown: Shown,
}

/// What links note of themselves.
#[derive(Default)]
pub(crate) struct Board {
    pub(crate) members: BTreeMap<Key, PeerStatus>,
    /// Instances whose counts come here.
    pub(crate) incoming: BTreeMap<u128, Incoming>,
    /// Instances that are sent to.
    pub(crate) outgoing: BTreeMap<u128, Key>,
    pub(crate) refused: u64,
    pub(crate) connections: u64,
    pub(crate) told_of_stranger: Option<Instant>,
    /// Lines of the log by what they are about: since when, and how many.
    lines: BTreeMap<String, (Instant, u32)>,
}

/// So many lines about the same are logged in this time.
const LINES: u32 = 4;
const LINES_WITHIN: Duration = Duration::from_secs(10);
/// Things that lines are about. With more, no others are logged until their time is over.
const LINES_ABOUT_MAX: usize = 256;

impl Board {
    pub(crate) fn note(&mut self, key: &Key, state: PeerState, instance: Option<u128>) {
        let member = self.entry(key);
        (member.state, member.instance) = (state, instance);
    }

    /// Returns whether a line may be logged: a peer that comes and goes again and again does not fill the log.
    pub(crate) fn may_log(&mut self, about: &str, now: Instant) -> bool {
        self.lines.retain(|_, (since, _)| now.saturating_duration_since(*since) < LINES_WITHIN);
        if self.lines.len() >= LINES_ABOUT_MAX && !self.lines.contains_key(about) {
            return false;
        }
        let (_, count) = self.lines.entry(about.to_owned()).or_insert((now, 0));
        *count += 1;
        *count <= LINES
    }

    /// Returns whether a member was found at an address.
    pub(crate) fn has_member_at(&self, from: IpAddr) -> bool {
        let at = |address: &String| address.parse::<SocketAddr>().map(|address| address.ip().to_canonical());
        self.members.keys().any(|(_, address)| at(address) == Ok(from.to_canonical()))
    }

    /// Returns whether that is another failure than the last.
    pub(crate) fn fail(&mut self, key: &Key, why: &str) -> bool {
        let member = self.entry(key);
        let is_new =
            member.last_error.as_ref().is_none_or(|(_, known)| known != why) || member.state == PeerState::Connected;
        member.state = PeerState::Failed;
        member.last_error = Some((SystemTime::now(), why.to_owned()));
        is_new
    }

    fn entry(&mut self, key: &Key) -> &mut PeerStatus {
        let (member, address) = key.clone();
        self.members.entry(key.clone()).or_insert_with(|| PeerStatus { member, address, ..PeerStatus::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_comes_and_goes_logs_a_few_lines_in_a_while() {
        let (mut board, now) = (Board::default(), Instant::now());
        let count = |board: &mut Board, about: &str, now| (0..100).filter(|_| board.may_log(about, now)).count();
        assert_eq!([count(&mut board, "a", now), count(&mut board, "b", now)], [4, 4]);
        assert_eq!(count(&mut board, "a", now + LINES_WITHIN), 4);
        (0..1_000).for_each(|number| _ = board.may_log(&number.to_string(), now));
        assert!(board.lines.len() <= LINES_ABOUT_MAX);
    }
}
