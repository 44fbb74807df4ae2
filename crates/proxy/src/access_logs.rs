//! The access logs as one worker writes them: each record to the logs whose condition holds, with the values
//! that they compute.

use std::sync::Arc;
use std::time::Instant;

use plan::Plan;
use plan::expression::{Condition, Ended, Subject, Value};
use plan::filter::Notes;
use telemetry::{AccessLogs, LogWriter, Record};

/// What each log asks of an exchange, in the order of the logs.
pub(crate) struct LogExpressions {
    /// The condition of each log; `None`: all records are written. Nothing: no log has a condition.
    conditions: Arc<[Option<Condition>]>,
    /// The values that each log computes. Nothing: no log has any.
    values: Arc<[Box<[Value]>]>,
}

impl LogExpressions {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self { conditions: Arc::clone(&plan.log_conditions), values: Arc::clone(&plan.log_values) }
    }

    /// Returns whether one of them reads a table.
    fn reads_tables(&self) -> bool {
        self.conditions.iter().flatten().any(Condition::reads_tables)
            || self.values.iter().flatten().any(Value::reads_tables)
    }
}

/// See the module.
pub(crate) struct WorkerLogs {
    writer: LogWriter,
    expressions: LogExpressions,
    /// An expression reads a table, for which the time is needed.
    reads_tables: bool,
    /// One for conditions, one for values.
    scratch: [Vec<u8>; 2],
}

impl WorkerLogs {
    pub(crate) fn new(logs: &Arc<AccessLogs>, worker: usize, expressions: LogExpressions) -> Self {
        let reads_tables = expressions.reads_tables();
        Self { writer: logs.writer(worker), expressions, reads_tables, scratch: [const { Vec::new() }; 2] }
    }

    /// Writes a record. `notes` are those of its filters, if there were any.
    pub(crate) fn write(&mut self, record: &Record<'_>, notes: Option<&Notes>) {
        let LogExpressions { conditions, values } = &self.expressions;
        if conditions.is_empty() && values.is_empty() {
            self.writer.write(record);
            return;
        }
        let [scratch, scratch_of_values] = &mut self.scratch;
        let of = subject(record, notes);
        let of = if self.reads_tables { of.at(Instant::now()) } else { of };
        let is_wanted = |log: usize| {
            conditions.get(log).and_then(Option::as_ref).is_none_or(|condition| condition.is_true(of, scratch))
        };
        let value_of = |log: usize, place: usize, out: &mut Vec<u8>| {
            let Some(value) = values.get(log).and_then(|values| values.get(place)) else { return false };
            value.write(of, scratch_of_values, out);
            value.is_number()
        };
        self.writer.write_where(record, is_wanted, value_of);
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
