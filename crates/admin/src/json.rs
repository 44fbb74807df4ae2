//! The status as the API tells it. Names of fields are a promise to anyone who reads them: they are added to, not changed.

use std::time::{Duration, SystemTime};

use control::Canary;
use control::history::Entry;
use control::peers::{PeerStatus, PeersStatus};
use control::providers;
use control::status::{ClusterStatus, EndpointStatus, Latency, ListenerStatus, Status};
use serde_json::{Value, json};
use telemetry::summary::Totals;
use telemetry::trial::Outcome;

/// Returns the response of `/api/status`.
pub(crate) fn status(status: &Status, version: &str) -> Value {
    let endpoints = || status.clusters.iter().flat_map(|cluster| &cluster.endpoints);
    json!({
        "version": version,
        "pid": std::process::id(),
        "state": status.state.as_str(),
        "uptime_s": status.uptime.as_secs_f64(),
        "workers": status.workers,
        "generation": status.generation,
        "revision": status.revision,
        "generations_refused": status.refused,
        "generations": status.generations.iter().map(generation).collect::<Vec<_>>(),
        "requests": status.total.requests(),
        "failed": status.total.errors(),
        "streams": status.total.streams,
        "connections_open": status.total.connections_open(),
        "in_flight": endpoints().map(|endpoint| u64::from(endpoint.in_flight)).sum::<u64>(),
        "waiting": status.clusters.iter().map(|cluster| u64::from(cluster.waiting)).sum::<u64>(),
        "latency_ms": latency(&status.latency),
        "listeners": status.listeners.iter().map(listener).collect::<Vec<_>>(),
        "clusters": status.clusters.iter().map(cluster).collect::<Vec<_>>(),
    })
}

/// Returns one item of `/api/providers`.
pub(crate) fn provider(status: &providers::Status) -> Value {
    let seconds = |at: Option<SystemTime>| Some(at?.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64());
    json!({
        "name": status.name,
        "kind": status.kind,
        "state": status.reach.as_str(),
        "reason": status.reason,
        "last_success_unix_s": seconds(status.last_success),
        "last_change_unix_s": seconds(status.last_change),
        "refused": status.refused,
        "problems": status.problems,
        "left_out": status.left_out,
        "kept_from_before": status.is_kept,
        "texts": status.texts,
        "keys": status.keys,
        "endpoints": status.endpoints,
        "missing": status.missing,
    })
}

/// Returns one item of the history.
pub(crate) fn generation(entry: &Entry) -> Value {
    let at = entry.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    json!({
        "generation": entry.generation,
        "at_unix_s": at.as_secs_f64(),
        "origin": entry.origin.as_str(),
        "author": entry.author.as_deref(),
    })
}

/// Returns a running or finished canary.
pub(crate) fn canary(canary: &Canary) -> Value {
    let side = |outcome: &Outcome| {
        let p90 = (outcome.latency.count() > 0).then(|| millis(outcome.latency.quantile(0.9)));
        json!({ "exchanges": outcome.exchanges, "failed": outcome.failed, "latency_p90_ms": p90 })
    };
    let (old, new) = canary.outcomes();
    let since = canary.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    json!({
        "at_unix_s": since.as_secs_f64(),
        "author": canary.author.as_deref(),
        "terms": canary.terms,
        "result": canary.end.as_ref().map_or("tried", |(result, ..)| result),
        "reason": canary.end.as_ref().map(|(_, reason, _)| &**reason),
        "old": side(&old),
        "new": side(&new),
        "differences": canary.differences.list,
    })
}

/// Returns the same with its changes.
pub(crate) fn generation_in_full(entry: &Entry) -> Value {
    let mut value = generation(entry);
    value["tried"] = entry.tried.as_deref().into();
    value["can_be_gone_back_to"] = entry.text.is_some().into();
    value["differences"] = json!(entry.differences.list);
    value["differences_left_out"] = entry.differences.left_out.into();
    value
}

/// Returns the latency of a window; a window of 0 means the time since the start.
fn latency(latency: &Latency) -> Value {
    let quantile = |index: usize| latency.quantiles.map(|quantiles| millis(quantiles[index]));
    json!({
        "window_s": latency.window.as_secs_f64(),
        "p50": quantile(0),
        "p90": quantile(1),
        "p99": quantile(2),
    })
}

fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1_000.0
}

fn classes(totals: &Totals) -> Value {
    let [none, c1, c2, c3, c4, c5] = totals.classes;
    json!({ "none": none, "1xx": c1, "2xx": c2, "3xx": c3, "4xx": c4, "5xx": c5 })
}

fn listener(listener: &ListenerStatus) -> Value {
    let totals = &listener.totals;
    json!({
        "name": listener.name.as_str(),
        "address": listener.address.to_string(),
        "protocol": listener.protocol,
        "tls": listener.tls,
        "connections_open": totals.connections_open(),
        "connections": totals.connections_opened,
        "connections_refused": totals.connections_refused,
        "requests": totals.requests(),
        "classes": classes(totals),
        "streams": totals.streams,
        "faults": totals.faults.iter().sum::<u64>(),
        "received_bytes": totals.received_bytes,
        "sent_bytes": totals.sent_bytes,
    })
}

fn cluster(cluster: &ClusterStatus) -> Value {
    let totals = &cluster.totals;
    json!({
        "name": cluster.name.as_str(),
        "balance": cluster.balance,
        "requests": totals.requests(),
        "classes": classes(totals),
        "streams": totals.streams,
        "retries": totals.retries,
        "waiting": cluster.waiting,
        "waits": totals.queue.count(),
        "panics": cluster.panics,
        "latency_ms": latency(&cluster.latency),
        "endpoints": cluster.endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

/// Returns an endpoint.
pub(crate) fn endpoint(endpoint: &EndpointStatus) -> Value {
    let totals = &endpoint.totals;
    json!({
        "name": endpoint.name.as_str(),
        "address": endpoint.address.to_string(),
        "weight": endpoint.weight,
        "up": endpoint.up,
        "health": endpoint.health,
        "weight_now": endpoint.weight_now,
        "standing": endpoint.standing,
        "reason": endpoint.reason,
        "ejected_for_s": endpoint.ejected_for.map(|left| left.as_secs_f64()),
        "in_flight": endpoint.in_flight,
        "wish": endpoint.wish,
        "requests": totals.requests(),
        "classes": classes(totals),
        "streams": totals.streams,
        "faults": totals.faults.iter().sum::<u64>(),
        "connects": totals.connections_opened,
        "connects_failed": totals.connects_failed,
        "reused": totals.reused,
    })
}

/// Returns the response of `/api/peers`.
pub(crate) fn peers(status: Option<&PeersStatus>) -> Value {
    let Some(status) = status else { return json!({ "peers": [] }) };
    json!({
        "instance": format!("{:032x}", status.instance),
        "is_settled": status.is_settled,
        "sessions": status.sessions,
        "tables": status.tables,
        "incoming": status.incoming,
        "records_sent": status.sent,
        "records_received": status.received,
        "records_skipped": status.skipped,
        "dropped": status.dropped,
        "resyncs": status.resyncs,
        "refused": status.refused,
        "peers": status.peers.iter().map(peer).collect::<Vec<_>>(),
    })
}

fn peer(peer: &PeerStatus) -> Value {
    let since = |at: SystemTime| at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    json!({
        "member": peer.member,
        "address": peer.address,
        "state": peer.state.as_str(),
        "instance": peer.instance.map(|instance| format!("{instance:032x}")),
        "is_heard": peer.is_heard,
        "backlog_bytes": peer.backlog_bytes,
        "lag_ms": peer.lag.as_millis() as u64,
        "last_error": peer.last_error.as_ref().map(|(at, why)| json!({ "at": since(*at), "message": why })),
    })
}
