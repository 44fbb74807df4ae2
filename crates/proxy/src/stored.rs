//! Responses from a cache: sent to clients, and fetched again beside them when they are stale.

pub(crate) mod pipe;
mod refresh;
mod slices;

use std::sync::Arc;

use model::Fault;
use plan::RoutePlan;
use plan::cache::Served;
use plan::filter::{BadBody, Coded, Coder, Part, ResponseSource, Stage, Turning};
use wire::http1::Framing;

use crate::connection::Next;
use crate::exchange::{Exchange, next_after};
use crate::relay::Pump;
use crate::respond::{self, Response, skip_body};
pub(crate) use slices::SliceReader;

/// Gives a stored body out as the receiver takes it: one copy, from the store to the buffer that is written.
struct Source {
    served: Served,
    at: u64,
    left: u64,
}

impl Coder for Source {
    fn code(&mut self, _: &[u8], room: &mut [u8], _: Turning) -> Result<Coded, BadBody> {
        let mut written = 0;
        while written < room.len() && self.left > 0 {
            let piece = self.served.entry().body.piece(self.at);
            let count = piece.len().min(room.len() - written).min(usize::try_from(self.left).unwrap_or(usize::MAX));
            if count == 0 {
                return Err(BadBody::Malformed);
            }
            room[written..written + count].copy_from_slice(&piece[..count]);
            (written, self.at, self.left) = (written + count, self.at + count as u64, self.left - count as u64);
        }
        Ok(Coded { read: 0, written, is_done: self.left == 0 })
    }
}

impl Exchange<'_> {
    /// Answers from a cache, and has the response be fetched again if a filter wants that. `place` is that of the filter in its chain.
    #[cold]
    pub(crate) async fn give_stored(
        &mut self,
        route: &RoutePlan,
        place: usize,
        served: Box<Served>,
    ) -> Result<Next, Fault> {
        if let Some(refresh) = self.incoming.notes.take_refresh() {
            self.begin_refresh(route, place, refresh);
        }
        give(self, &served).await
    }
}

/// Sends a stored response, through the route's response steps.
///
/// # Errors
/// The client is gone, or takes nothing for too long.
pub(crate) async fn give(exchange: &mut Exchange<'_>, served: &Served) -> Result<Next, Fault> {
    skip_body(exchange);
    served.write_head(exchange.response());
    exchange.filter_response(ResponseSource::Endpoint);
    let (at, length) = served.body().unwrap_or_default();
    let has_body = served.body().is_some() && !exchange.is_head();
    let framing = if has_body { Framing::Length(length) } else { Framing::None };
    let slices = if served.is_slice() { exchange.incoming.notes.take_slices() } else { None };
    let (stages, framing) = match (served.entry().body.file(), slices) {
        (_, Some(slices)) => {
            let slices = exchange.read_slices(slices, Some(served.entry()));
            exchange.stages_of_slices(framing, slices)
        }
        (None, None) => {
            let source = Source { served: served.clone(), at, left: length };
            exchange.stages_of_stored(framing, Stage::Coder(Box::new(source)))
        }
        (Some(file), None) => {
            let part = Part::Range { content: Arc::clone(file), range: at..at + length };
            exchange.stages_of_stored_parts(framing, part)
        }
    };
    let keeps_alive = exchange.client_keeps_alive() && exchange.is_read;
    let response = Response::new(exchange, framing, keeps_alive);
    let first = exchange.worker.buffers.take();
    let download = match stages {
        Some(stages) => Pump::made(response.writer(exchange), stages),
        None => Pump::kept(0, response.writer(exchange)),
    };
    let keeps_alive = response.keeps_alive;
    respond::send(exchange, download, (first, &response)).await?;
    Ok(next_after(exchange, keeps_alive, exchange.is_read))
}
