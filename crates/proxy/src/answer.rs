//! Answers that the proxy gives itself: fixed answers, redirects, what filters say, and faults.

use std::borrow::Cow;
use std::time::Instant;

use model::fields::{FieldName, Fields};
use model::head::reason_phrase;
use model::limits::{FIELDS_HARD_MAX, REPLAY_BYTES_MAX};
use model::{Fault, LocalResponse, Version};
use plan::ClusterPlan;
use plan::filter::{Part, ResponseSource, StreamedResponse};
use wire::http1::Framing;

use crate::connection::Next;
use crate::exchange::{Exchange, next_after};
use crate::relay::Pump;
use crate::respond::{self, Instead, Response, skip_body};
use crate::stored;

/// After how many seconds a client may try again, for faults that pass.
const RETRY_AFTER_SECONDS: u64 = 1;

/// Sends an answer, or what a filter answers in its place.
pub(crate) async fn answer(exchange: &mut Exchange<'_>, local: &LocalResponse) -> Result<Next, Fault> {
    let refused = exchange.progress.is_refused.then_some(Fault::Refused);
    let page = exchange.instead_of_local(local, refused).await?;
    match page {
        None => give(exchange, local).await,
        Some(Instead::Local(page)) => give(exchange, &page).await,
        Some(Instead::Stored(served)) => stored::give(exchange, &served).await,
    }
}

/// Sends this very answer, through the route's response steps if a route was found.
pub(crate) async fn give(exchange: &mut Exchange<'_>, local: &LocalResponse) -> Result<Next, Fault> {
    give_with(exchange, local, &[]).await
}

/// Sends this very answer, with fields beside that no response step sees.
pub(crate) async fn give_with(
    exchange: &mut Exchange<'_>,
    local: &LocalResponse,
    beside: &[(String, String)],
) -> Result<Next, Fault> {
    skip_body(exchange);
    let local = &*exchange.grpc.as_ref().map_or(Cow::Borrowed(local), |grpc| grpc.answer(local));
    let keeps_alive = exchange.client_keeps_alive() && exchange.is_read;
    let keeps_alive = send_with(exchange, (local, beside), keeps_alive).await?;
    Ok(next_after(exchange, keeps_alive, exchange.is_read))
}

/// Sends a response whose body is read while it is sent, through the route's response steps. The exchange holds nothing of the body but a
/// buffer, and waits for the disk as it waits for the client.
///
/// # Errors
/// [`Fault::ContentFailed`]: the body cannot be read. The client is gone, or takes nothing for too long.
pub(crate) async fn stream(exchange: &mut Exchange<'_>, streamed: StreamedResponse) -> Result<Next, Fault> {
    skip_body(exchange);
    let keeps_alive = exchange.client_keeps_alive() && exchange.is_read;
    fill_head_with(exchange, (streamed.status, &streamed.fields), streamed.length());
    exchange.filter_response(ResponseSource::Local(None));
    let has_body = !exchange.is_head() && !matches!(streamed.status, 204 | 304);
    let framing = if has_body { Framing::Length(streamed.length()) } else { Framing::None };
    let (stages, framing) = exchange.stages_of_parts(framing);
    let response = Response::new(exchange, framing, keeps_alive);
    if let [Part::Range { content, range }] = &streamed.parts[..]
        && stages.is_empty()
        && matches!(framing, Framing::Length(length) if length > 0)
        && exchange.connection.io.as_plain().is_some()
        && content.file().is_some()
    {
        respond::send_file(exchange, (content.clone(), range.clone()), &response).await?;
        return Ok(next_after(exchange, response.keeps_alive, exchange.is_read));
    }
    let writer = response.writer(exchange);
    let mut first = exchange.worker.buffers.take();
    let download = match &streamed.parts[..] {
        _ if matches!(framing, Framing::None | Framing::Length(0)) => Pump::kept(0, writer),
        // What is small leaves with the head, in one write.
        [Part::Bytes(bytes)] if stages.is_empty() && bytes.len() <= REPLAY_BYTES_MAX => {
            let _fits = first.append(bytes);
            Pump::kept(bytes.len(), writer)
        }
        _ => Pump::made(writer, Exchange::through_stages(streamed.parts, stages, framing)),
    };
    respond::send(exchange, download, (first, &response)).await?;
    Ok(next_after(exchange, response.keeps_alive, exchange.is_read))
}

/// The answer to a fault at `now`, or `None` where the client can be told nothing. `cluster` is that of the exchange, if it
/// had come so far: it may have a say in what those are told whom it turns away.
pub(crate) fn of_fault(fault: Fault, cluster: Option<&ClusterPlan>, now: Instant) -> Option<Cow<'_, LocalResponse>> {
    let told = fault.consequence();
    if told.status == 0 {
        return None;
    }
    let (mut page, mut seconds) = (None, RETRY_AFTER_SECONDS);
    match (fault, cluster.map(|plan| (plan, &*plan.cluster))) {
        (Fault::QueueFull | Fault::QueueTimeout | Fault::Shed, Some((_, cluster))) => {
            if let Some(queue) = &cluster.queue {
                if let Some(page) = &queue.page {
                    return Some(Cow::Borrowed(page));
                }
                seconds = queue.retry_after_seconds;
            }
        }
        (Fault::CircuitFull | Fault::CircuitOpen, Some((plan, cluster))) => {
            page = cluster.resilience.breaker.as_ref().and_then(|breaker| breaker.page.clone());
            seconds = seconds.max(plan.rests_for(now).as_millis().div_ceil(1_000) as u64);
        }
        _ => {}
    }
    let mut local = page.unwrap_or_else(|| plain(fault, told.status));
    if told.status == 503 {
        local.fields.push(("retry-after".to_owned(), seconds.to_string()));
    }
    Some(Cow::Owned(local))
}

/// A line of text that says what the fault is.
fn plain(fault: Fault, status: u16) -> LocalResponse {
    let fields = vec![("content-type".to_owned(), "text/plain; charset=utf-8".to_owned())];
    let body = format!("{} {}\n{}\n", status, reason_phrase(status), fault.meaning().trim());
    LocalResponse { status, fields, body: body.into_bytes() }
}

/// Writes an answer to the client.
///
/// # Errors
/// The client is gone, or takes nothing for too long.
pub(crate) async fn send(exchange: &mut Exchange<'_>, local: &LocalResponse, keep_alive: bool) -> Result<(), Fault> {
    send_with(exchange, (local, &[]), keep_alive).await.map(drop)
}

/// Says whether the connection may live on, which `keep_alive` says of all but the response.
async fn send_with(
    exchange: &mut Exchange<'_>,
    (local, beside): (&LocalResponse, &[(String, String)]),
    keep_alive: bool,
) -> Result<bool, Fault> {
    fill_head(exchange, local);
    exchange.filter_response(ResponseSource::Local(None));
    append(&mut exchange.response().fields, beside);
    let has_body = !exchange.is_head() && !matches!(local.status, 204 | 304);
    let source = if has_body { Framing::Length(local.body.len() as u64) } else { Framing::None };
    let body = if has_body { &local.body[..] } else { &[] };
    let (stages, framing) = exchange.stages_of_answer(source, body);
    let response = Response::new(exchange, framing, keep_alive);
    let mut first = exchange.worker.buffers.take();
    let download = match stages {
        Some(stages) => Pump::made(response.writer(exchange), stages),
        None => {
            // What is larger comes out of a stage.
            let _fits = first.append(body);
            Pump::kept(body.len(), response.writer(exchange))
        }
    };
    respond::send(exchange, download, (first, &response)).await.map(|()| response.keeps_alive)
}

/// Sends the endpoint's response head, which filters are done with, to a client that waits for no body.
///
/// # Errors
/// The client is gone, or takes nothing for too long.
pub(crate) async fn give_head(exchange: &mut Exchange<'_>) -> Result<Next, Fault> {
    skip_body(exchange);
    let keeps_alive = exchange.client_keeps_alive() && exchange.is_read;
    let response = Response::new(exchange, Framing::None, keeps_alive);
    let (download, first) = (Pump::kept(0, response.writer(exchange)), exchange.worker.buffers.take());
    respond::send(exchange, download, (first, &response)).await?;
    Ok(next_after(exchange, keeps_alive, exchange.is_read))
}

/// Makes the response head that of this answer.
pub(crate) fn fill_head(exchange: &mut Exchange<'_>, local: &LocalResponse) {
    fill_head_with(exchange, (local.status, &local.fields), local.body.len() as u64);
}

fn fill_head_with(exchange: &mut Exchange<'_>, (status, fields): (u16, &[(String, String)]), length: u64) {
    let worker = exchange.worker;
    let head = exchange.response();
    head.clear();
    let reason = head.fields.write_span(|out| out.extend_from_slice(reason_phrase(status).as_bytes()));
    head.set_line(status, reason, Version::Http11);
    append(&mut head.fields, fields);
    let mut set = |name: &str, value: &str| {
        if let Ok(name) = FieldName::new(name) {
            head.fields.set(&name, value.as_bytes());
        }
    };
    // RFC 9110 section 8.6: that of a 304 would be the length of the 200 in its place.
    if status >= 200 && !matches!(status, 204 | 304) {
        set("content-length", &length.to_string());
    }
    worker.with_date(|date| set("date", date));
}

fn append(to: &mut Fields, fields: &[(String, String)]) {
    for (name, value) in fields.iter().take(FIELDS_HARD_MAX) {
        if let Ok(name) = FieldName::new(name) {
            to.append(&name, value.as_bytes());
        }
    }
}
