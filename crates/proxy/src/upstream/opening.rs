//! How a connection to an endpoint shows for whom it is made: by the header of the PROXY protocol, or by the address that
//! it comes from, in clusters that want either.

use std::net::IpAddr;

use model::proxy_protocol::SendProxy;
use model::snapshot::Cluster;
use model::socket::Source;
use model::{Facts, RequestHead};
use plan::ClusterPlan;
use plan::cluster::own_tlvs::Tlvs;
use plan::filter::Notes;
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
    /// What `header` says of the exchange, where that may differ from one to the next.
    pub shown: Option<Box<Tlvs>>,
}

impl Opening {
    /// For a client's connection; `exchange` is what the connection to the endpoint is made for, and `request` its request with
    /// what filters have noted, if there is one.
    pub(crate) fn new(
        cluster: &ClusterPlan,
        facts: &ConnectionFacts,
        exchange: &Facts<'_>,
        request: Option<(&RequestHead, &Notes)>,
    ) -> Self {
        let settings = &*cluster.cluster;
        let client = (settings.socket.source == Source::Client).then(|| facts.peer.ip().to_canonical());
        let Some(wanted) = &settings.proxy_protocol else { return Self { client, ..Self::default() } };
        let own = cluster.own_tlvs.as_ref();
        let tlvs = own.map(|own| own.values(request, exchange)).unwrap_or_default();
        let header = Some(header(wanted, facts, (exchange.request_id.as_bytes(), &tlvs)));
        let shown = own.is_some_and(|own| own.has_variables()).then(|| Box::new(tlvs));
        Self { header, client, may_wait: false, shown }
    }
}

/// What a connection that is made for this exchange shows of it, where that may differ from one exchange to the next.
pub(crate) fn shown(cluster: &ClusterPlan, exchange: &Facts<'_>, request: (&RequestHead, &Notes)) -> Option<Box<Tlvs>> {
    let own = cluster.own_tlvs.as_ref().filter(|own| own.has_variables())?;
    Some(Box::new(own.values(Some(request), exchange)))
}

/// Whether a connection of this cluster can be used again for the same client only.
pub(crate) fn is_private(cluster: &Cluster) -> bool {
    cluster.proxy_protocol.is_some() || cluster.socket.source == Source::Client
}

fn header(wanted: &SendProxy, facts: &ConnectionFacts, (id, own): (&[u8], &Tlvs)) -> Vec<u8> {
    let peers = Some(Peers { source: facts.peer, destination: facts.local });
    let mut bytes = Vec::new();
    let tlvs = match wanted {
        SendProxy::V1 => {
            write_v1(peers, &mut bytes);
            return bytes;
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
        unique_id: tlvs.unique_id.then_some(id),
        ssl,
        custom: own,
        checksum: tlvs.checksum,
    };
    write_v2(&outgoing, &mut bytes);
    bytes
}
