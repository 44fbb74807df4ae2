//! Slow start: an endpoint that comes up gets its full weight over a while.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The whole of a weight, in steps. The weight of an endpoint that ramps up changes this often at most: each change makes
/// a new view for all workers.
pub(crate) const WHOLE: u32 = 20;
/// Where a ramp begins: a tenth.
const FIRST: u32 = WHOLE / 10;

/// How far an endpoint has come.
///
/// ```text
///            begin                 step, again and again                  slow_start is over
///   whole ─────────▶ FIRST / WHOLE ────────────────────▶ k / WHOLE ──────────────────────────▶ whole
/// ```
#[derive(Debug)]
pub(crate) struct Ramp {
    /// Of [`WHOLE`].
    share: AtomicU32,
    /// When it began, known from the first step on.
    began: Mutex<Option<Instant>>,
}

impl Default for Ramp {
    fn default() -> Self {
        Self { share: AtomicU32::new(WHOLE), began: Mutex::default() }
    }
}

impl Ramp {
    /// Returns the share of its weight that it has now, of [`WHOLE`].
    pub(crate) fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    /// Notes that the endpoint comes up.
    pub(crate) fn begin(&self) {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.share.store(FIRST, Ordering::Relaxed);
    }

    /// Returns the share that it has, and how long ago it began, while it climbs.
    pub(crate) fn climb(&self, now: Instant) -> Option<(u32, Duration)> {
        let began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = began.map_or(Duration::ZERO, |began| now.saturating_duration_since(began));
        Some((self.share(), gone)).filter(|(share, _)| *share < WHOLE)
    }

    /// Climbs on from where another process has come to.
    pub(crate) fn climb_on(&self, (share, gone): (u32, Duration), now: Instant) {
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = now.checked_sub(gone);
        self.share.store(share.clamp(FIRST, WHOLE), Ordering::Relaxed);
    }

    /// Advances the ramp and returns whether the share has changed. One thread calls this.
    pub(crate) fn step(&self, now: Instant, over: Duration) -> bool {
        let before = self.share();
        if before >= WHOLE {
            return false;
        }
        let mut began = self.began.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = now.saturating_duration_since(*began.get_or_insert(now));
        let share = share_after(gone, over);
        self.share.store(share, Ordering::Relaxed);
        share != before
    }
}

/// Returns the share when `gone` of `over` has passed.
fn share_after(gone: Duration, over: Duration) -> u32 {
    if gone >= over {
        return WHOLE;
    }
    let climbed = f64::from(WHOLE - FIRST) * gone.as_secs_f64() / over.as_secs_f64();
    (FIRST + climbed as u32).min(WHOLE)
}

#[cfg(test)]
mod tests;
