//! The thread that carries lines from the rings to their targets.
//!
//! ```text
//! busy --(a second without a record)--> idle --(a record, flush, reopen, close)--> busy
//!   \__ every 100 ms (10 ms for datagrams), or when a ring is half full      (parked without time-out)
//! ```
//! So a record costs its worker no system call, unless it is the first after a second of silence or fills half a ring;
//! and a proxy without traffic wakes nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use model::snapshot::{AccessLog, LogTarget, SyslogAddress};

use super::format::Compiled;
use super::output::Output;
use super::ring::{Pushed, Ring};
use crate::log;

/// Longest time that closing waits for what is in the rings to be written.
pub(super) const CLOSE_MAX: Duration = Duration::from_secs(2);
/// Time between two passes while there are records.
const PAUSE: Duration = Duration::from_millis(100);

/// The same if there are datagrams to send: receivers have small buffers, and many at once would not fit.
const PAUSE_OF_DATAGRAMS: Duration = Duration::from_millis(10);

/// Time without a record after which the thread parks until it is woken.
const QUIET: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct State {
    /// Number of the last flush that was asked for, and of the last that is done.
    asked: u64,
    done: u64,
    /// Files wait to be gone on with.
    reopened: bool,
    /// The owner is gone: the thread ends with the last writer.
    closed: bool,
    writers: usize,
    ended: bool,
}

/// A log as opened.
#[derive(Debug)]
struct Target {
    log: LogTarget,
    /// A file to go on with, put here by a reopening.
    next: Mutex<Option<File>>,
}

impl Target {
    /// Opens the file of the target; returns `None` for other targets.
    fn open(&self) -> io::Result<Option<File>> {
        match &self.log {
            LogTarget::File(path) => open(path).map(Some),
            LogTarget::Stdout | LogTarget::Syslog(_) => Ok(None),
        }
    }

    fn is_datagrams(&self) -> bool {
        matches!(&self.log, LogTarget::Syslog(syslog) if !matches!(syslog.to, SyslogAddress::Tcp(_)))
    }
}

/// What workers, owner and thread share.
#[derive(Debug)]
pub(super) struct Shared {
    formats: Vec<Compiled>,
    targets: Vec<Target>,
    /// One for each worker and log; those of a worker lie together.
    rings: Vec<Ring>,
    workers: usize,
    state: Mutex<State>,
    changed: Condvar,
    /// The thread is parked without time-out and must be woken at the next record.
    idle: AtomicBool,
    thread: OnceLock<Thread>,
}

/// Opens a pipe to read without a writer (open(2) of Linux).
const O_NONBLOCK: i32 = 0o4000;

fn open(path: &Path) -> io::Result<File> {
    let told = |error: io::Error| io::Error::new(error.kind(), format!("access log {}: {error}", path.display()));
    // Anyone who opens a pipe to write waits for a reader. This one is there meanwhile and goes at once, so that lines that no one reads
    // are reported instead of filling the pipe, behind which all logs would wait.
    let is_pipe = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_fifo());
    let reader = is_pipe.then(|| OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path));
    let _reader = reader.transpose().map_err(told)?;
    OpenOptions::new().append(true).create(true).open(path).map_err(told)
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half changed under these locks, whatever panics elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(logs: &[AccessLog], workers: usize, ring_bytes_max: usize) -> io::Result<Self> {
        let mut formats = Vec::new();
        let mut targets = Vec::new();
        for log in logs {
            let invalid = |message| io::Error::new(io::ErrorKind::InvalidInput, message);
            formats.push(Compiled::new(log).map_err(invalid)?);
            let target = Target { log: log.target.clone(), next: Mutex::default() };
            *held(&target.next) = target.open()?;
            targets.push(target);
        }
        let rings = (0..workers * logs.len()).map(|_| Ring::new(ring_bytes_max)).collect();
        Ok(Self {
            formats,
            targets,
            rings,
            workers,
            state: Mutex::default(),
            changed: Condvar::new(),
            idle: AtomicBool::new(false),
            thread: OnceLock::new(),
        })
    }

    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    #[inline]
    pub(super) fn formats(&self) -> &[Compiled] {
        &self.formats
    }

    /// Puts a line into the ring of a worker and log. Only that worker calls it.
    #[inline]
    pub(super) fn push(&self, worker: usize, log: usize, line: &[u8]) {
        let pushed = self.rings[worker * self.formats.len() + log].push(line);
        // Relaxed is enough: the thread says that it is idle before it looks into the rings a last time, under the locks
        // under which they are filled. Either it finds the line, or its word is seen here.
        let asleep = self.idle.load(Relaxed) && self.idle.swap(false, Relaxed);
        if asleep || pushed == Pushed::HalfFull {
            self.wake();
        }
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.idle.load(Relaxed)
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(super) fn join(&self) {
        held(&self.state).writers += 1;
    }

    pub(super) fn leave(&self) {
        let last = {
            let mut state = held(&self.state);
            state.writers -= 1;
            state.writers == 0 && state.closed
        };
        if last {
            self.wake();
        }
    }

    pub(super) fn close(&self) {
        held(&self.state).closed = true;
        self.wake();
    }

    /// Reopens all files; none is replaced unless all can be opened.
    pub(super) fn reopen(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for target in &self.targets {
            files.push(target.open()?);
        }
        for (target, file) in self.targets.iter().zip(files) {
            *held(&target.next) = file;
        }
        held(&self.state).reopened = true;
        Ok(())
    }

    pub(super) fn flush(&self, timeout: Duration) -> bool {
        if self.formats.is_empty() {
            return true;
        }
        let mut state = held(&self.state);
        state.asked += 1;
        let asked = state.asked;
        self.wake();
        let waited = self.changed.wait_timeout_while(state, timeout, |state| state.done < asked && !state.ended);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.done >= asked || state.ended
    }

    pub(super) fn dropped(&self) -> u64 {
        self.rings.iter().map(Ring::dropped).sum()
    }

    pub(super) fn failed(&self) -> u64 {
        self.rings.iter().map(Ring::failed).sum()
    }
}

/// The thread's own state.
pub(super) struct Carrier {
    shared: Arc<Shared>,
    outputs: Vec<Output>,
    spare: Vec<u8>,
    pause: Duration,
    /// How long no record came.
    quiet: Duration,
    /// Since when only what waits for a receiver keeps the thread.
    closing: Option<Instant>,
}

impl Carrier {
    /// Starts the thread.
    pub(super) fn start(shared: Arc<Shared>) -> io::Result<()> {
        let has_datagrams = shared.targets.iter().any(Target::is_datagrams);
        let mut carrier = Self {
            outputs: shared.targets.iter().map(|target| Output::new(&target.log)).collect(),
            spare: Vec::new(),
            pause: if has_datagrams { PAUSE_OF_DATAGRAMS } else { PAUSE },
            quiet: Duration::ZERO,
            closing: None,
            shared: Arc::clone(&shared),
        };
        carrier.exchange_files();
        let thread = thread::Builder::new().name("access-log".to_owned()).spawn(move || carrier.run())?;
        let _ = shared.thread.set(thread.thread().clone());
        Ok(())
    }

    fn run(mut self) {
        loop {
            let (asked, reopened, last) = {
                let mut state = held(&self.shared.state);
                (state.asked, std::mem::take(&mut state.reopened), state.closed && state.writers == 0)
            };
            let wrote = self.pass();
            let is_busy = self.outputs.iter().any(Output::is_busy);
            // Only behind a whole pass that began after the reopening: what was recorded before belongs to the old files.
            if reopened {
                self.exchange_files();
            }
            let over = last && (!is_busy || self.closing.get_or_insert_with(Instant::now).elapsed() > CLOSE_MAX);
            {
                let mut state = held(&self.shared.state);
                if !is_busy || over {
                    state.done = asked;
                }
                state.ended = over;
            }
            self.shared.changed.notify_all();
            if over {
                return;
            }
            self.rest(wrote || self.outputs.iter().any(Output::has_waiting));
        }
    }

    /// Carries everything that is in the rings; says whether there was anything.
    fn pass(&mut self) -> bool {
        let mut wrote = false;
        let logs = self.outputs.len();
        for (place, ring) in self.shared.rings.iter().enumerate() {
            let log = place % logs;
            let output = &mut self.outputs[log];
            ring.take(&mut self.spare, |lines| {
                wrote = true;
                if let Err(lost) = output.carry(lines) {
                    ring.fail(lost.records);
                    report(&self.shared.targets[log].log, &lost.why);
                }
            });
        }
        for (log, output) in self.outputs.iter_mut().enumerate() {
            if let Err(why) = output.go_on() {
                let to = told(&self.shared.targets[log].log);
                log::warn("the syslog receiver is unreachable; records wait", &[("log", &to), ("error", &why)]);
            }
        }
        wrote
    }

    fn exchange_files(&mut self) {
        for (target, output) in self.shared.targets.iter().zip(&mut self.outputs) {
            if let Some(file) = held(&target.next).take() {
                *output = Output::file(file);
            }
        }
    }

    fn rest(&mut self, wrote: bool) {
        self.quiet = if wrote { Duration::ZERO } else { self.quiet + self.pause };
        if self.quiet < QUIET {
            thread::park_timeout(self.pause);
            return;
        }
        self.shared.idle.store(true, Relaxed);
        if self.shared.rings.iter().all(Ring::is_empty) {
            // A flush, reopening or closing meanwhile has left its wake-up behind, and this returns at once.
            thread::park();
        }
        self.shared.idle.store(false, Relaxed);
        self.quiet = Duration::ZERO;
    }
}

fn report(target: &LogTarget, error: &io::Error) {
    log::error("access log cannot be written; records are lost", &[("log", &told(target)), ("error", error)]);
}

fn told(target: &LogTarget) -> String {
    match target {
        LogTarget::Stdout => "stdout".to_owned(),
        LogTarget::File(path) => path.display().to_string(),
        LogTarget::Syslog(syslog) => format!("syslog {}", syslog.to),
    }
}
