//! The end of the program: drain, then exit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use proxy::Workers;

use super::{Live, reopen_logs};
use crate::ending::Ending;
use crate::signals::{Signals, Wish};

/// How often a process that has drained looks whether the one before has, too.
const STEP: Duration = Duration::from_millis(20);

impl Live {
    /// Ends in good order: accepts nothing more and lets exchanges end within the drain time. A further signal to end ends the process at
    /// once.
    pub(crate) async fn end(self, signals: &mut Signals) -> Ending {
        self.view().set_draining();
        // Callers who wait for a change get an error.
        drop(self.orders);
        let (timeout, is_alone) = (self.drain_timeout, self.is_alone);
        let until = Instant::now() + timeout;
        telemetry::log::info(
            "draining",
            &[("open", &self.workers.open_connections()), ("timeout_s", &timeout.as_secs_f64())],
        );
        let workers = Arc::new(self.workers);
        let drain = tokio::task::spawn_blocking({
            let workers = Arc::clone(&workers);
            move || workers.drain(timeout)
        });
        let all_ended = tokio::select! {
            drained = drain => drained.unwrap_or(false),
            () = end_of(signals, &workers) => end_at_once(&workers),
        };
        // What is for the process before this one comes by this one, and what it counts goes by it.
        // It drains within a time of its own, and what started this program may end both with this one.
        while !is_alone.load(Ordering::Relaxed) && Instant::now() < until {
            tokio::select! {
                () = tokio::time::sleep(STEP) => {}
                () = end_of(signals, &workers) => end_at_once(&workers),
            }
        }
        if all_ended {
            return Ending::Good;
        }
        telemetry::log::warn("the drain time-out passed: open connections were closed", &[]);
        Ending::CutShort
    }
}

/// Waits, while the process drains, for a signal to end. It still writes access logs: they may be rotated.
async fn end_of(signals: &mut Signals, workers: &Workers) {
    loop {
        match signals.next().await {
            Wish::End => return,
            Wish::ReopenLogs => reopen_logs(workers),
            _ => {}
        }
    }
}

/// Completes at a second signal to shut down.
fn end_at_once(workers: &Workers) -> ! {
    eprintln!("equipoise: stopped at once, as requested, with {} connections open", workers.open_connections());
    std::process::exit(i32::from(Ending::CutShort.code()))
}
