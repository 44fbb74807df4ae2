//! How it stands with peers, for those who look.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use telemetry::{Gauge, Metric};

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

/// What links note of themselves.
#[derive(Default)]
pub(crate) struct Board {
    pub(crate) members: BTreeMap<Key, PeerStatus>,
    /// Instances whose counts come here, and whether each knew enough to teach; with a number for each connection.
    pub(crate) incoming: BTreeMap<u128, (u64, bool)>,
    /// Instances that are sent to.
    pub(crate) outgoing: BTreeMap<u128, Key>,
    pub(crate) refused: u64,
    pub(crate) connections: u64,
    pub(crate) told_of_stranger: Option<Instant>,
}

impl Board {
    pub(crate) fn note(&mut self, key: &Key, state: PeerState, instance: Option<u128>) {
        let member = self.entry(key);
        (member.state, member.instance) = (state, instance);
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
