//! Writes the history down, on a thread of its own: who changes something does not wait for it, and of generations that follow each
//! other closely only what there is at the end is written.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::{Entry, file};

/// It rests so many times as long as writing took, so that a large history that changes all the time takes little of the machine;
/// within these bounds, so that a small one leaves the disk in peace.
const REST_TIMES: u32 = 20;
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
/// Longest wait at the end, for a disk that does not answer.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Writes what it was given last. Dropping it waits until that is written.
#[derive(Default)]
pub(crate) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    next: Option<Work>,
    is_writing: bool,
    /// A caller waits for the flush: no pause.
    hurries: bool,
    is_over: bool,
}

/// A folder, and the history that is to be kept there, newest first.
type Work = (PathBuf, Vec<Entry>);

impl Writer {
    /// Has a history written, in the place of one that waits still.
    pub(crate) fn write(&mut self, folder: &Path, entries: Vec<Entry>) {
        if self.thread.is_none() {
            let shared = Arc::clone(&self.shared);
            match Builder::new().name("history".into()).spawn(move || shared.run()) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => return tell(&error),
            }
        }
        self.shared.lock().next = Some((folder.to_owned(), entries));
        self.shared.changed.notify_all();
    }

    /// Waits until everything is written, at most this long.
    pub(crate) fn flush(&self, patience: Duration) {
        if self.thread.is_none() {
            return;
        }
        let until = Instant::now() + patience;
        let mut state = self.shared.lock();
        state.hurries = true;
        self.shared.changed.notify_all();
        while state.next.is_some() || state.is_writing {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.shared.wait(state, left);
        }
        state.hurries = false;
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.flush(END_PATIENCE);
        let is_stuck = {
            let mut state = self.shared.lock();
            state.is_over = true;
            state.is_writing
        };
        self.shared.changed.notify_all();
        // A thread that waits for a disk is left alone.
        if let Some(thread) = self.thread.take().filter(|_| !is_stuck) {
            // A panic of the thread was reported by the thread.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        let (mut known, mut rests_until, mut is_kept) = (file::Known::new(), Instant::now(), true);
        while let Some((folder, entries)) = self.next(rests_until) {
            let begun = Instant::now();
            let written = file::write(&folder, &entries, &mut known);
            rests_until = Instant::now() + (begun.elapsed() * REST_TIMES).clamp(REST_MIN, REST_MAX);
            match &written {
                Err(error) if is_kept => tell(error),
                Ok(()) if !is_kept => telemetry::log::info("the history of generations is saved again", &[]),
                _ => {}
            }
            is_kept = written.is_ok();
            // It shares much with what is in force, and is not to be what holds that.
            drop(entries);
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }

    /// What is to be written, once it is time for it. `None`: nothing more will be.
    fn next(&self, rests_until: Instant) -> Option<Work> {
        let mut state = self.lock();
        loop {
            let rest = rests_until.saturating_duration_since(Instant::now());
            let is_awaited = state.hurries || state.is_over;
            if state.next.is_none() {
                if state.is_over {
                    return None;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            } else if rest.is_zero() || is_awaited {
                state.is_writing = true;
                return state.next.take();
            } else {
                state = self.wait(state, rest);
            }
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, time: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of it is whole: a panic elsewhere cannot leave it half made.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(error: &std::io::Error) {
    telemetry::log::error("the history of generations cannot be saved", &[("error", error)]);
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tempfile::TempDir;

    use super::*;
    use crate::history::Origin;

    fn entries(generation: u64) -> Vec<Entry> {
        let (at, origin) = (SystemTime::UNIX_EPOCH, Origin::Reload);
        vec![Entry { generation, at, origin, author: None, differences: Arc::default(), tried: None, text: None }]
    }

    #[test]
    fn the_last_of_many_is_there_when_all_is_written_and_when_it_ends() {
        let folder = TempDir::new().unwrap();
        let mut writer = Writer::default();
        writer.flush(END_PATIENCE);
        for generation in 1..=100 {
            writer.write(folder.path(), entries(generation));
        }
        writer.flush(END_PATIENCE);
        assert_eq!(file::take_up(folder.path()), entries(100));
        for generation in 101..=200 {
            writer.write(folder.path(), entries(generation));
        }
        drop(writer);
        assert_eq!(file::take_up(folder.path()), entries(200));
    }

    #[test]
    fn a_folder_that_is_gone_costs_the_history_and_nothing_else() {
        let folder = TempDir::new().unwrap();
        let mut writer = Writer::default();
        writer.write(&folder.path().join("nowhere"), entries(1));
        writer.flush(END_PATIENCE);
        writer.write(folder.path(), entries(2));
        drop(writer);
        assert_eq!(file::take_up(folder.path()), entries(2));
    }
}
