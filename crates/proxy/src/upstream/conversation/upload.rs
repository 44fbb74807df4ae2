//! The request's body on its way to the endpoint.

use model::Fault;
use wire::http1::Framing;

use crate::exchange::Exchange;
use crate::io::Io;
use crate::relay::{BodyWriter, Pump, PumpFault};

/// What moves the request's body, within the bounds of its route.
pub(super) fn upload_of(exchange: &mut Exchange<'_>, source: Framing, writer: BodyWriter) -> Pump {
    let ahead = if exchange.replay.is_taken { None } else { exchange.replay.ahead.take() };
    let Some(kept) = exchange.replay.again() else {
        let mut upload = match ahead {
            None => Pump::new(source, &exchange.connection.io, writer),
            Some(ahead) => {
                // It counts once more, as it is moved.
                let counted = &mut exchange.progress.received_bytes;
                *counted = counted.saturating_sub(ahead.bytes().len() as u64);
                Pump::resumed(ahead, writer)
            }
        };
        if let Some(max) = exchange.incoming.notes.body_max {
            upload.bound(max);
        }
        upload.pass(exchange.stages_of_request());
        exchange.thin_request(&mut upload);
        return upload;
    };
    let mut upload = match exchange.stages_of_kept(kept) {
        Some(stages) => Pump::made(writer, stages),
        None => {
            let mut upload = Pump::kept(kept.bytes.len(), writer);
            upload.pass(exchange.stages_of_request());
            upload
        }
    };
    upload.end_with(kept.trailers.clone());
    upload
}

/// What is to become a tunnel on a stream has no end after its head. On a connection the head has told of a framing, which
/// must hold whatever else it asks for, or what stands in the body would be taken for a request.
pub(super) fn writer_of(exchange: &Exchange<'_>, to: &Io) -> BodyWriter {
    let is_tunnel = exchange.wants_upgrade() && to.is_message();
    if is_tunnel {
        return BodyWriter::Plain;
    }
    // What the head says of the framing, and nothing else: an endpoint would take the rest for another request.
    match BodyWriter::new(exchange.framing_for_endpoint(), to) {
        BodyWriter::Plain if exchange.connection.io.is_message() && !exchange.sends_text() => BodyWriter::Held,
        writer => writer,
    }
}

/// The fault of a body of which what came with its head is wrong already.
pub(crate) fn refused_upload(from: &mut Io, fault: &PumpFault) -> Fault {
    if matches!(fault, PumpFault::Framing | PumpFault::Truncated)
        && let Some(stream) = from.message()
    {
        // It is longer than it was said to be.
        stream.refuse_malformed();
    }
    upload_fault(fault)
}

pub(crate) fn upload_fault(fault: &PumpFault) -> Fault {
    match fault {
        PumpFault::Read | PumpFault::Truncated => Fault::ClosedInBody,
        PumpFault::TooLong => Fault::BodyTooLarge,
        PumpFault::Spool => Fault::SpoolFailed,
        PumpFault::Source => Fault::ContentFailed,
        PumpFault::Framing | PumpFault::BadBody | PumpFault::Write => Fault::BadRequestBody,
    }
}
