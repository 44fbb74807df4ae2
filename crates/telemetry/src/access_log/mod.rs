//! Access logs: one line for each exchange and stream.
//!
//! A worker formats a record into a buffer of its own and copies it, whole, into its ring; one thread carries the rings
//! to files, standard output and receivers of syslog. A worker never waits: when a ring is full, the record is dropped and counted.
//! Start reading at [`AccessLogs`]; [`mod@format`] says what can be in a line.

mod carrier;
pub mod format;
mod lost;
mod output;
mod ring;
mod syslog;
#[cfg(test)]
mod tests;
mod value;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use model::limits::LOG_RING_BYTES;
use model::snapshot::AccessLog;

use crate::record::Record;
use crate::text::Clock;
use carrier::{CLOSE_MAX, Carrier, Shared};
pub use format::{CLF, COMBINED, check_line};
use format::{Compiled, Own};

/// A line longer than this gives its buffer back afterwards.
const KEPT_LINE_BYTES_MAX: usize = 64 * 1024;

/// The access logs of one configuration, open.
#[derive(Debug)]
pub struct AccessLogs {
    shared: Arc<Shared>,
}

impl AccessLogs {
    /// Opens all targets and starts the writing thread, unless there is no log at all.
    ///
    /// # Errors
    /// When a file cannot be opened (the message names its path), a template is wrong (see [`check_line`]), or the thread
    /// cannot be started.
    pub fn open(logs: &[AccessLog], workers: usize) -> io::Result<Arc<Self>> {
        Self::open_with(logs, workers, LOG_RING_BYTES)
    }

    /// Opens the logs; `ring_bytes_max` limits each ring, of which there is one for every worker and log.
    pub(crate) fn open_with(logs: &[AccessLog], workers: usize, ring_bytes_max: usize) -> io::Result<Arc<Self>> {
        let shared = Arc::new(Shared::new(logs, workers.max(1), ring_bytes_max)?);
        if !logs.is_empty() {
            Carrier::start(Arc::clone(&shared))?;
        }
        Ok(Arc::new(Self { shared }))
    }

    /// Returns the writer of a worker. A worker holds one at a time.
    ///
    /// # Panics
    /// When there are not that many workers, which is a mistake in the calling code.
    pub fn writer(self: &Arc<Self>, worker: usize) -> LogWriter {
        assert!(worker < self.shared.workers(), "worker {worker} of {}", self.shared.workers());
        self.shared.join();
        LogWriter {
            shared: Arc::clone(&self.shared),
            worker,
            line: Vec::new(),
            value: Vec::new(),
            clock: Clock::default(),
        }
    }

    /// Reopens all files by their paths, as after a rotation (SIGUSR1). What was recorded before goes to the old
    /// files. Waits until that is done, two seconds at most. Not for a worker's thread.
    ///
    /// # Errors
    /// When a file cannot be opened; the message names its path, and all logs go on with the files they had.
    pub fn reopen(&self) -> io::Result<()> {
        self.shared.reopen()?;
        self.flush(CLOSE_MAX);
        Ok(())
    }

    /// Waits until everything recorded before has been handed to the kernel, or `timeout` is over; says whether it was.
    /// Not for a worker's thread.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.shared.flush(timeout)
    }

    /// Records dropped because a ring was full.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped()
    }

    /// Records lost because their target could not be written to.
    pub fn failed(&self) -> u64 {
        self.shared.failed()
    }
}

impl Drop for AccessLogs {
    /// Writes what is in the rings, for two seconds at most. Records that workers still write with their [`LogWriter`]s
    /// are written too: the thread ends when the last of these is gone.
    fn drop(&mut self) {
        self.shared.close();
        self.shared.flush(CLOSE_MAX);
    }
}

/// Writes the records of one worker.
#[derive(Debug)]
pub struct LogWriter {
    shared: Arc<Shared>,
    worker: usize,
    line: Vec<u8>,
    /// One of the values that are computed for a line.
    value: Vec<u8>,
    clock: Clock,
}

impl LogWriter {
    /// Writes a record to every log. Never waits and, once its buffers have their working size, allocates nothing.
    #[inline]
    pub fn write(&mut self, record: &Record<'_>) {
        if !self.shared.formats().is_empty() {
            self.write_where(record, |_| true, |_, _, _| false);
        }
    }

    /// Writes a record to the logs that want it, which are known by their places. `value_of` appends the value at a place of a log's
    /// `values` to an empty buffer, and returns whether it is a number: `value_of(log, place, buffer)`. It is only asked for values that
    /// the line holds.
    pub fn write_where(
        &mut self,
        record: &Record<'_>,
        mut is_wanted: impl FnMut(usize) -> bool,
        mut value_of: impl FnMut(usize, usize, &mut Vec<u8>) -> bool,
    ) {
        for (log, format) in self.shared.formats().iter().enumerate() {
            if !is_wanted(log) {
                continue;
            }
            self.line.clear();
            let mut of_log = |place: usize, value: &mut Vec<u8>| value_of(log, place, value);
            let mut own = Own { value_of: &mut of_log, bytes: &mut self.value };
            Compiled::write(format, record, &mut self.clock, &mut self.line, &mut own);
            self.shared.push(self.worker, log, &self.line);
        }
        for buffer in [&mut self.line, &mut self.value] {
            if buffer.capacity() > KEPT_LINE_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.shared.leave();
    }
}
