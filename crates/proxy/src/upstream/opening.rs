//! What is said first on a connection to an endpoint: the header of the PROXY protocol, in clusters that want it.

use model::proxy_protocol::SendProxy;
use wire::proxy_protocol::{Outgoing, OutgoingSsl, Peers, write_v1, write_v2};

use crate::connection::ConnectionFacts;

/// The header for a client's connection. `id` names what the connection to the endpoint is made for; it is asked only
/// where it is sent.
pub(crate) fn opening<'a>(
    wanted: Option<&SendProxy>,
    facts: &ConnectionFacts,
    id: impl FnOnce() -> &'a [u8],
) -> Option<Vec<u8>> {
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
