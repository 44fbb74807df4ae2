//! How a connection to an endpoint shows for whom it is made: by the header of the PROXY protocol, or by the address that
//! it comes from, in clusters that want either.

use std::net::IpAddr;

use model::proxy_protocol::SendProxy;
use model::snapshot::Cluster;
use model::socket::Source;
use wire::proxy_protocol::{Outgoing, OutgoingSsl, Peers, write_v1, write_v2};

use crate::connection::ConnectionFacts;

/// See the module.
#[derive(Default)]
pub(crate) struct Opening {
    /// Sent before anything else.
    pub header: Option<Vec<u8>>,
    /// The client's address, where it is to be seen.
    pub client: Option<IpAddr>,
    /// The endpoint may be the one to speak first.
    pub may_wait: bool,
}

impl Opening {
    /// For a client's connection; `id` names what the connection to the endpoint is made for, and is asked only where it is
    /// sent.
    pub(crate) fn new<'a>(cluster: &Cluster, facts: &ConnectionFacts, id: impl FnOnce() -> &'a [u8]) -> Self {
        let client = (cluster.socket.source == Source::Client).then(|| facts.peer.ip().to_canonical());
        Self { header: header(cluster.proxy_protocol.as_ref(), facts, id), client, may_wait: false }
    }
}

/// Whether a connection of this cluster can be used again for the same client only.
pub(crate) fn is_private(cluster: &Cluster) -> bool {
    cluster.proxy_protocol.is_some() || cluster.socket.source == Source::Client
}

fn header<'a>(wanted: Option<&SendProxy>, facts: &ConnectionFacts, id: impl FnOnce() -> &'a [u8]) -> Option<Vec<u8>> {
    let wanted = wanted?;
    let peers = Some(Peers { source: facts.peer, destination: facts.local });
    let mut bytes = Vec::new();
    let tlvs = match wanted {
        SendProxy::V1 => {
            write_v1(peers, &mut bytes);
            return Some(bytes);
        }
        SendProxy::V2(tlvs) => tlvs,
    };
    let tls = facts.tls.as_deref();
    // Of TLS that is passed on unopened only the name is known.
    let ssl = tls.filter(|tls| tlvs.ssl && !tls.version.is_empty()).map(|tls| OutgoingSsl {
        version: tls.version,
        cipher: tls.cipher,
        common_name: tls.client_common_name.as_deref(),
        has_certificate: tls.client_subject.is_some(),
    });
    let outgoing = Outgoing {
        peers,
        alpn: tls.and_then(|tls| tls.alpn).filter(|_| tlvs.alpn).map(str::as_bytes),
        authority: tls.and_then(|tls| tls.server_name.as_deref()).filter(|_| tlvs.authority),
        unique_id: tlvs.unique_id.then(id),
        ssl,
        custom: &tlvs.custom,
        checksum: tlvs.checksum,
    };
    write_v2(&outgoing, &mut bytes);
    Some(bytes)
}
