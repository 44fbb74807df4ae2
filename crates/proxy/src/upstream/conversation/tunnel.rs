//! Bytes both ways, once the endpoint has switched to another protocol.

use model::Fault;
use plan::filter::ResponseSource;
use wire::http1::{Framing, SendResponse};

use super::Conversation;
use crate::connection::Next;
use crate::exchange::Exchange;
use crate::relay::{Pump, Side, Tunnel, TunnelEnd};
use crate::respond::begin_head;

impl<'p> Conversation<'p> {
    /// After `101 Switching Protocols`: bytes both ways until both sides have ended.
    pub(super) async fn tunnel(&mut self, exchange: &mut Exchange<'p>) -> Result<Next, Fault> {
        exchange.filter_response(ResponseSource::Endpoint);
        exchange.keep_session();
        let mut up = Pump::tunnel();
        let mut down = Pump::tunnel();
        let [up_stages, down_stages] = exchange.stages_of_tunnel();
        up.pass(up_stages);
        down.pass(down_stages);
        {
            let buffers = &exchange.worker.buffers;
            let to = exchange.incoming.head.version;
            let how = SendResponse { framing: Framing::None, to, keep_alive: true, upgrade: true };
            let worker = exchange.worker;
            let mut head = worker.scratch.borrow_mut();
            head.clear();
            begin_head(exchange, &how, &mut head)?;
            let first = self.inbound.take().unwrap_or_else(|| buffers.take());
            down.begin(&head, first, buffers).map_err(|_| Fault::BadResponse)?;
            if let Some(early) = self.upload.take_leftover().or_else(|| exchange.connection.received.take()) {
                up.begin(b"", early, buffers).map_err(|_| Fault::BadRequestBody)?;
            }
        }
        exchange.progress.status = exchange.response().status;
        exchange.witness_answer();
        let mut tunnel = Tunnel::new(up, down);
        let idle = self.cluster.cluster.timeouts.tunnel.unwrap_or_else(|| self.upload_timeout(exchange));
        exchange.connection.watch.set_bound(None);
        let connection = &mut *exchange.connection;
        let timing = (&mut connection.watch, idle);
        let upstream = self.upstream.as_mut().ok_or(Fault::BadResponse)?;
        if let Some(stream) = upstream.io.message() {
            stream.forget_sent();
        }
        let end = tunnel.run(&mut connection.io, &mut upstream.io, &exchange.worker.buffers, timing).await;
        exchange.progress.received_bytes += tunnel.up.moved_bytes();
        exchange.progress.sent_bytes += tunnel.down.sent_bytes();
        if matches!(end, TunnelEnd::Broken(_)) {
            // An end in good order would make what was cut short look whole.
            connection.io.reset_on_close();
            upstream.io.reset_on_close();
        }
        match end {
            TunnelEnd::Closed => {
                if let Some(permit) = upstream.permit() {
                    permit.note_end();
                }
                // A client that still speaks must not lose what it was told last.
                Ok(if tunnel.is_up_shut() { Next::Close } else { Next::Linger })
            }
            TunnelEnd::Timeout(fault) => Err(fault),
            TunnelEnd::Broken(Side::Downstream) => Err(Fault::ClosedInResponse),
            TunnelEnd::Broken(Side::Upstream) => Err(Fault::ResponseBodyClosed),
        }
    }
}
