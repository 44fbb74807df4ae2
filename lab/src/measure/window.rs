//! A window of time: what a product's processes used in it, and what others did. While it is open the lab looks at CPU
//! time and memory a few times a second.

use super::procfs;
use crate::failure::Failure;
use crate::sys;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// An open window.
pub(crate) struct Window {
    pid: Option<u32>,
    ticks: procfs::Ticks,
    machine: procfs::Times,
    watch: Option<Watch>,
}

/// What happened in a window.
#[derive(Clone, Debug)]
pub(crate) struct Used {
    /// CPU time of the product, us; `None` when there was no product.
    pub product_us: Option<u64>,
    /// Share of the machine that programs outside the lab used.
    pub others_share: f64,
    /// Share of the machine that its host took away.
    pub stolen_share: f64,
    /// The most memory that the product was seen to hold.
    pub peak_bytes: Option<u64>,
    /// Seconds since the window was opened, and how many cores the product used around then.
    pub cores_over_time: Vec<(f64, f64)>,
}

impl Window {
    /// Opens a window on the process tree that `pid` heads, if any.
    pub(crate) fn open(pid: Option<u32>) -> Result<Self, Failure> {
        let watch = pid.map(Watch::start);
        Ok(Self { pid, machine: procfs::machine()?, ticks: procfs::Ticks::read(pid)?, watch })
    }

    /// Opens one without looking in between: reading a process's memory map can hold it up, which the slowest requests
    /// of a measurement would show.
    pub(crate) fn open_quietly(pid: u32) -> Result<Self, Failure> {
        Ok(Self { watch: None, machine: procfs::machine()?, ticks: procfs::Ticks::read(Some(pid))?, pid: Some(pid) })
    }

    /// Closes it. Programs that ran inside it must have been waited for, so that they count as the lab's.
    pub(crate) fn close(mut self) -> Result<Used, Failure> {
        let ticks = procfs::Ticks::read(self.pid)?;
        let machine = procfs::machine()?;
        let seen = self.watch.take().map(Watch::end).unwrap_or_default();
        let total = machine.total.saturating_sub(self.machine.total).max(1) as f64;
        let product = ticks.product.saturating_sub(self.ticks.product);
        let others = ticks.others.saturating_sub(self.ticks.others);
        let stolen = machine.stolen.saturating_sub(self.machine.stolen);
        Ok(Used {
            product_us: self.pid.map(|_| product * 1_000_000 / sys::ticks_per_second()),
            others_share: others as f64 / total,
            stolen_share: stolen as f64 / total,
            peak_bytes: (seen.peak_bytes > 0).then_some(seen.peak_bytes),
            cores_over_time: cores_over_time(&seen.ticks),
        })
    }
}

/// What a watch saw.
#[derive(Debug, Default)]
struct Seen {
    peak_bytes: u64,
    /// Seconds since the start, and clock ticks of the product until then.
    ticks: Vec<(f64, u64)>,
}

/// A thread that looks at the product now and then. It runs on the lab's cores, not on the product's.
struct Watch {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Watch {
    fn start(pid: u32) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let thread = thread::spawn(move || watch(pid, &told));
        Self { is_over, thread: Some(thread) }
    }

    fn end(mut self) -> Seen {
        self.stop().unwrap_or_default()
    }

    fn stop(&mut self) -> Option<Seen> {
        let thread = self.thread.take()?;
        self.is_over.store(true, Ordering::SeqCst);
        thread.thread().unpark();
        thread.join().ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

fn watch(pid: u32, is_over: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let start = Instant::now();
    loop {
        let at = start.elapsed();
        // A product that has ended is told by whoever runs the load; here it only has nothing more to show.
        if let Ok(ticks) = procfs::tree_ticks(pid) {
            seen.ticks.push((at.as_secs_f64(), ticks));
        }
        // Reading the memory of a process walks all its pages: once a second is enough.
        if seen.ticks.len() % 4 == 1 {
            seen.peak_bytes = seen.peak_bytes.max(procfs::memory_bytes(pid).unwrap_or(0));
        }
        if is_over.load(Ordering::SeqCst) {
            return seen;
        }
        let next = LOOK_EVERY * u32::try_from(seen.ticks.len()).unwrap_or(u32::MAX);
        thread::park_timeout(next.saturating_sub(start.elapsed()));
    }
}

const POINTS_MAX: usize = 120;

/// Cores used between neighbouring looks; between more distant ones when there are many.
fn cores_over_time(ticks: &[(f64, u64)]) -> Vec<(f64, f64)> {
    let step = (ticks.len() / POINTS_MAX).max(1);
    let chosen: Vec<(f64, u64)> = ticks.iter().copied().step_by(step).collect();
    let between = |pair: &[(f64, u64)]| {
        let ((from, before), (to, after)) = (pair[0], pair[1]);
        let seconds = after.saturating_sub(before) as f64 / sys::ticks_per_second() as f64;
        ((from + to) / 2.0, to - from, seconds)
    };
    let spans = chosen.windows(2).map(between);
    // The last look comes at once after the one before it at times: a tick in it would be a peak of many cores.
    spans.filter(|(_, span, _)| *span > 0.1).map(|(at, span, seconds)| (at, seconds / span)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_what_was_used_between_two_looks() {
        let per_second = sys::ticks_per_second();
        let ticks = [(0.0, 0), (0.5, per_second / 2), (1.0, per_second / 2), (1.001, per_second)];
        assert_eq!(cores_over_time(&ticks), [(0.25, 1.0), (0.75, 0.0)]);
        let many: Vec<(f64, u64)> = (0..2000).map(|at| (f64::from(at), 0)).collect();
        assert!(cores_over_time(&many).len() <= 2 * POINTS_MAX);
    }

    #[test]
    fn a_window_sees_the_memory_of_what_it_is_open_on() {
        let used = Window::open(Some(std::process::id())).unwrap().close().unwrap();
        assert!(used.peak_bytes.is_some_and(|bytes| bytes > 100_000) && used.product_us.is_some());
        let used = Window::open(None).unwrap().close().unwrap();
        assert!(used.peak_bytes.is_none() && used.product_us.is_none());
    }
}
