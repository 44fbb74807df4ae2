//! The end of every exchange: a fault becomes an answer, everything becomes one record, and memory goes back.

use std::borrow::Cow;
use std::time::SystemTime;

use model::fault::Source;
use model::{Facts, Fault};
use plan::filter::Ended;
use telemetry::{Kind, Record, WorkerSeries};

use crate::answer;
use crate::connection::Next;
use crate::exchange::Exchange;
use crate::respond::Instead;
use crate::stored;

/// Ends an exchange; called exactly once for each, after its response.
pub(crate) fn finish(mut exchange: Exchange<'_>, (next, fault): (Next, Option<Fault>)) -> Next {
    measure(&mut exchange);
    // Before the record: conditions of access logs read what filters count here.
    tell_filters(&mut exchange, fault);
    record(&exchange, fault);
    give_memory_back(exchange);
    next
}

/// Takes the time of the whole exchange.
fn measure(exchange: &mut Exchange<'_>) {
    let progress = &mut exchange.progress;
    progress.phases.total = progress.look() - progress.begun;
}

/// Has filters do what they do at the end of an exchange.
#[inline]
fn tell_filters(exchange: &mut Exchange<'_>, fault: Option<Fault>) {
    let Exchange { progress, incoming, .. } = exchange;
    if incoming.notes.awaits_end() {
        let (received_bytes, sent_bytes) = (progress.received_bytes, progress.sent_bytes);
        incoming.notes.end(&Ended {
            status: progress.status,
            fault,
            received_bytes,
            sent_bytes,
            now: Some(progress.now),
        });
    }
}

/// Ends a call that a filter has made: its cluster and its endpoint are counted as by any exchange; it is not logged.
pub(crate) fn finish_call(mut exchange: Exchange<'_>, fault: Option<Fault>) {
    measure(&mut exchange);
    record(&exchange, fault);
    give_memory_back(exchange);
}

fn give_memory_back(exchange: Exchange<'_>) {
    let Exchange { worker, connection, incoming, response, .. } = exchange;
    if connection.received.as_ref().is_some_and(|buffer| buffer.is_empty())
        && let Some(buffer) = connection.received.take()
    {
        worker.buffers.give(buffer);
    }
    worker.give_request(incoming);
    if let Some(response) = response {
        worker.give_response(response);
    }
}

/// Tells the client of a fault as far as that is still possible.
pub(crate) async fn settle(exchange: &mut Exchange<'_>, fault: Fault) -> Next {
    if exchange.progress.status != 0 {
        // A response that is cut short must not look whole: where the end of the connection would mark its end, only a
        // reset tells.
        return if exchange.progress.ends_by_close { Next::Reset } else { Next::Close };
    }
    if exchange.progress.is_interim_cut {
        return Next::Close;
    }
    let cluster = exchange.progress.cluster.map(|now| &*now.plan);
    let Some(local) = answer::of_fault(fault, cluster, exchange.progress.now) else { return Next::Close };
    let page = match exchange.instead_of_local(&local, Some(fault)).await {
        Err(Fault::ClosedByFilter) => return Next::Close,
        answered => answered.unwrap_or_default(),
    };
    let local = match page {
        None => local,
        Some(Instead::Local(page)) => Cow::Owned(page),
        Some(Instead::Stored(served)) => return stored::give(exchange, &served).await.unwrap_or(Next::Close),
    };
    let local = match &exchange.grpc {
        Some(grpc) => Cow::Owned(grpc.answer_to_fault(fault, &local)),
        None => local,
    };
    // After a fault of the client's making nothing more is believed of what it sends. A path that is no good says nothing of where
    // the request ends, and the connection may be a proxy's that has others' requests on their way.
    if fault.consequence().source == Source::Downstream && fault != Fault::AmbiguousPath {
        return match answer::send(exchange, &local, false).await {
            Ok(()) => Next::Linger,
            Err(_) => Next::Close,
        };
    }
    answer::give(exchange, &local).await.unwrap_or(Next::Close)
}

fn record(exchange: &Exchange<'_>, fault: Option<Fault>) {
    let progress = &exchange.progress;
    let worker = exchange.worker;
    let is_call = exchange.connection.io.is_memory();
    // Counters need neither the time of day nor the id.
    let is_logged = !is_call && worker.logs.borrow().is_some();
    let request_id = if is_logged { exchange.request_id.as_str() } else { "" };
    let facts = exchange.connection.facts.facts_by(exchange.scheme, exchange.client, request_id);
    let facts = Facts { user: exchange.incoming.notes.user(), ..facts };
    let record = Record {
        facts: &facts,
        request: exchange.is_parsed.then_some(&exchange.incoming.head),
        response_status: progress.status,
        response: exchange.response.as_deref().filter(|_| progress.status != 0),
        fault,
        route: progress.route.map(|route| &route.route.name),
        cluster: progress.cluster.map(|cluster| &cluster.plan.cluster.name),
        endpoint: progress.endpoint.map(|(endpoint, _)| &endpoint.endpoint.name),
        endpoint_address: progress.endpoint.map(|(endpoint, _)| &endpoint.endpoint.address),
        pick: progress.pick,
        retries: progress.retries,
        hedges: progress.hedges,
        session: progress.session,
        cache: exchange.incoming.notes.cache_status().as_str(),
        received_bytes: progress.received_bytes,
        sent_bytes: progress.sent_bytes,
        phases: progress.phases,
        at: if is_logged { SystemTime::now() } else { SystemTime::UNIX_EPOCH },
        kind: Kind::Exchange,
    };
    let series = WorkerSeries {
        listener: (!is_call).then(|| exchange.listener.series.of(worker.index)),
        route: progress.route.and_then(|route| exchange.plan.route(route.index)).map(|route| route.of(worker.index)),
        cluster: progress.cluster.map(|cluster| cluster.series.of(worker.index)),
        endpoint: progress.endpoint.map(|(_, endpoint)| endpoint.series.of(worker.index)),
    };
    if is_call {
        telemetry::count(&record, &series);
    } else {
        let notes = Some(&exchange.incoming.notes);
        worker.tell(&record, &series, (exchange.plan.plan.generation, notes));
    }
}
