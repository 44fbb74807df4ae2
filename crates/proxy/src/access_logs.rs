//! The access logs as one worker writes them: each record to the logs whose condition holds.

use std::sync::Arc;
use std::time::Instant;

use plan::expression::{Condition, Ended, Subject};
use plan::filter::Notes;
use telemetry::{AccessLogs, LogWriter, Record};

/// The condition of each log; `None`: all records are written. Nothing: no log has a condition.
pub(crate) type LogConditions = Arc<[Option<Condition>]>;

/// See the module.
pub(crate) struct WorkerLogs {
    writer: LogWriter,
    conditions: LogConditions,
    /// A condition reads a table, for which the time is needed.
    reads_tables: bool,
    scratch: Vec<u8>,
}

impl WorkerLogs {
    pub(crate) fn new(logs: &Arc<AccessLogs>, worker: usize, conditions: LogConditions) -> Self {
        let reads_tables = conditions.iter().flatten().any(Condition::reads_tables);
        Self { writer: logs.writer(worker), conditions, reads_tables, scratch: Vec::new() }
    }

    /// Writes a record. `notes` are those of its filters, if there were any.
    pub(crate) fn write(&mut self, record: &Record<'_>, notes: Option<&Notes>) {
        if self.conditions.is_empty() {
            self.writer.write(record);
            return;
        }
        let (conditions, scratch) = (&self.conditions, &mut self.scratch);
        let of = subject(record, notes);
        let of = if self.reads_tables { of.at(Instant::now()) } else { of };
        self.writer.write_where(record, |log| {
            conditions.get(log).and_then(Option::as_ref).is_none_or(|condition| condition.is_true(of, scratch))
        });
    }
}

fn subject<'a>(record: &Record<'a>, notes: Option<&'a Notes>) -> Subject<'a> {
    let phases = &record.phases;
    let ended = Ended {
        status: record.response_status,
        fault: record.fault,
        route: record.route,
        cluster: record.cluster,
        endpoint: record.endpoint.zip(record.endpoint_address),
        pick: record.pick,
        session: record.session,
        retries: record.retries,
        hedges: record.hedges,
        received_bytes: record.received_bytes,
        sent_bytes: record.sent_bytes,
        times: [phases.receive, phases.queue, phases.connect, phases.first_byte, phases.total],
    };
    let of = Subject::of_end((record.request, record.response), record.facts, ended);
    match notes {
        Some(notes) => of.with_notes(notes),
        None => of,
    }
}
