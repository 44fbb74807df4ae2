//! The bar of a run, with the time left: steps say how long they are expected to take, and the bar moves within them.

use indicatif::{ProgressBar, ProgressStyle};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct State {
    /// Expected seconds of all steps.
    total: f64,
    /// Of the steps that are over.
    done: f64,
    /// Of those that were measured in this run, and what they really took.
    measured: f64,
    took: f64,
    /// What is going on, when it began, how long it is expected to take.
    step: Option<(String, Instant, f64)>,
    is_over: bool,
}

impl State {
    /// Expected seconds that are behind us, and seconds left.
    fn now(&self) -> (f64, f64) {
        let pace = if self.measured > 0.0 { self.took / self.measured } else { 1.0 };
        let within = self
            .step
            .as_ref()
            .map_or(0.0, |(_, began, expected)| (began.elapsed().as_secs_f64() / pace.max(0.01)).min(*expected));
        let behind = (self.done + within).min(self.total);
        (behind, (self.total - behind) * pace)
    }
}

/// The bar.
pub(crate) struct Progress {
    state: Arc<Mutex<State>>,
    bar: ProgressBar,
    painter: Option<JoinHandle<()>>,
}

impl Progress {
    /// A bar without steps.
    pub(crate) fn new(name: &str) -> Self {
        let bar = ProgressBar::new(1);
        if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:30} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(name.to_owned());
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, painted) = (Arc::clone(&state), bar.clone());
        let painter = std::thread::spawn(move || paint(&shared, &painted));
        Self { state, bar, painter: Some(painter) }
    }

    /// How many seconds all steps together are expected to take.
    pub(crate) fn expect(&self, seconds: f64) {
        self.with(|state| state.total = seconds);
    }

    /// A step begins.
    pub(crate) fn begin(&self, what: &str, seconds: f64) {
        self.with(|state| state.step = Some((what.to_owned(), Instant::now(), seconds)));
    }

    /// It is over. A step that was only read from the journal says nothing about the pace.
    pub(crate) fn end(&self, was_measured: bool) {
        self.with(|state| {
            if let Some((_, began, expected)) = state.step.take() {
                state.done += expected;
                if was_measured {
                    state.measured += expected;
                    state.took += began.elapsed().as_secs_f64();
                }
            }
        });
    }

    /// Prints a line above the bar, also when the output is no terminal.
    pub(crate) fn say(&self, text: &str) {
        self.bar.suspend(|| println!("{text}"));
    }

    fn with(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.with(|state| state.is_over = true);
        if let Some(painter) = self.painter.take() {
            painter.thread().unpark();
            let _ = painter.join();
        }
        self.bar.finish_and_clear();
    }
}

fn paint(state: &Mutex<State>, bar: &ProgressBar) {
    loop {
        {
            let state = state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return;
            }
            let (behind, left) = state.now();
            bar.set_length((state.total * 10.0).max(1.0) as u64);
            bar.set_position((behind * 10.0) as u64);
            let what = state.step.as_ref().map_or("", |(what, ..)| what.as_str());
            bar.set_message(format!("{} left: {what}", clock(left)));
        }
        std::thread::park_timeout(Duration::from_millis(500));
    }
}

fn clock(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_pace_and_not_what_was_measured_before() {
        let mut state = State { total: 100.0, done: 50.0, measured: 10.0, took: 20.0, ..State::default() };
        assert_eq!(state.now(), (50.0, 100.0));
        state.measured = 0.0;
        assert_eq!(state.now(), (50.0, 50.0));
    }

    #[test]
    fn times_are_shown_as_a_clock() {
        assert_eq!((clock(59.6), clock(3601.0)), ("1:00".to_owned(), "1:00:01".to_owned()));
    }
}
