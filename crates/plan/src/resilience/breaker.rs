//! A circuit that opens when too large a share of what goes through it fails, so that endpoints which are overwhelmed get
//! a rest, and clients an answer at once instead of a late one.
//!
//! Pure: the time is given. While the circuit is closed, an attempt reads one word that is seldom written, and its end
//! adds to a window of atomic counts. The mutex is touched only to open, and while the circuit is not closed.
//!
//! How an attempt went counts only within the era in which it was let in: what began before the circuit opened says
//! nothing of how endpoints are when it is tried whether they are well again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use model::resilience::ErrorRatio;

/// Where a circuit stands.
///
/// ```text
///              too much fails                   open_for is over, and something comes
///   Closed ──────────────────────────► Open ─────────────────────────────────► HalfOpen
///     ▲                                 ▲                                        │   │
///     │                                 └───────────── a trial fails ────────────┘   │
///     └───────────────────── as many trials as wanted went well ─────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Everything goes through.
    #[default]
    Closed,
    /// A few go through, to see how they fare.
    HalfOpen,
    /// Nothing goes through.
    Open,
}

impl Phase {
    fn from_bits(bits: u64) -> Self {
        match bits & 3 {
            0 => Self::Closed,
            1 => Self::HalfOpen,
            _ => Self::Open,
        }
    }

    /// 0 closed, 1 half-open, 2 open: higher is worse.
    pub fn number(self) -> u8 {
        self as u8
    }
}

/// The circuit of a cluster, shared by all workers.
#[derive(Debug, Default)]
pub struct Circuit {
    /// The number of the era, which every change of phase ends, and its [`Phase`] in the lowest two bits.
    word: AtomicU64,
    window: Window,
    broken: Mutex<Broken>,
}

/// What matters only while the circuit is not closed.
#[derive(Debug, Default)]
struct Broken {
    until: Option<Instant>,
    /// Under way, those of earlier eras included.
    trials: u32,
    /// Went well in this era.
    good: u32,
    opened: u64,
    news: Vec<Phase>,
}

/// What is kept of what happened until somebody asks.
const NEWS_MAX: usize = 16;

/// What a process hands its successor of a circuit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CircuitHandover {
    /// How often it has opened.
    pub opened: u64,
    /// While it is not closed: how long nothing goes through yet.
    pub rests_for: Option<Duration>,
}

/// The leave for one attempt. To be given back by [`Circuit::leave`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a trial that is not given back counts as in flight for ever"]
pub struct Admission {
    word: u64,
    is_trial: bool,
}

impl Circuit {
    /// Lets an attempt through, or not.
    #[inline]
    pub fn admit(&self, rules: &ErrorRatio, now: Instant) -> Option<Admission> {
        let word = self.word.load(Ordering::Acquire);
        match Phase::from_bits(word) {
            Phase::Closed => Some(Admission { word, is_trial: false }),
            Phase::Open | Phase::HalfOpen => self.admit_trial(rules, now),
        }
    }

    #[cold]
    fn admit_trial(&self, rules: &ErrorRatio, now: Instant) -> Option<Admission> {
        let mut broken = self.lock();
        let word = self.word.load(Ordering::Acquire);
        let word = match Phase::from_bits(word) {
            Phase::Closed => return Some(Admission { word, is_trial: false }),
            Phase::Open if broken.until.is_some_and(|until| now < until) => return None,
            // Trials of an earlier era may still hang where they were sent.
            _ if broken.trials >= rules.trial_requests => return None,
            Phase::Open => self.turn(&mut broken, Phase::HalfOpen),
            Phase::HalfOpen => word,
        };
        broken.trials += 1;
        Some(Admission { word, is_trial: true })
    }

    /// Takes in how an attempt went.
    #[inline]
    pub fn observe(&self, rules: &ErrorRatio, admission: &mut Admission, is_good: bool, now: Instant) {
        if admission.is_trial {
            self.observe_trial(rules, admission, is_good, now);
            return;
        }
        if self.word.load(Ordering::Acquire) != admission.word {
            return;
        }
        self.window.add(rules.window, is_good, now);
        if !is_good && self.window.is_bad(rules, now) {
            self.open_from(admission.word, rules, now);
        }
    }

    #[cold]
    fn open_from(&self, word: u64, rules: &ErrorRatio, now: Instant) {
        let mut broken = self.lock();
        if self.word.load(Ordering::Acquire) == word {
            self.open(&mut broken, rules, now);
        }
    }

    #[cold]
    fn observe_trial(&self, rules: &ErrorRatio, admission: &mut Admission, is_good: bool, now: Instant) {
        let mut broken = self.lock();
        admission.is_trial = false;
        broken.trials = broken.trials.saturating_sub(1);
        if self.word.load(Ordering::Acquire) != admission.word {
            return;
        }
        if !is_good {
            self.open(&mut broken, rules, now);
            return;
        }
        broken.good += 1;
        if broken.good >= rules.trial_requests {
            self.window.clear();
            self.turn(&mut broken, Phase::Closed);
        }
    }

    /// Gives an admission back. A trial whose outcome was never told says neither yes nor no.
    pub fn leave(&self, admission: &mut Admission) {
        if std::mem::take(&mut admission.is_trial) {
            let mut broken = self.lock();
            broken.trials = broken.trials.saturating_sub(1);
        }
    }

    fn open(&self, broken: &mut Broken, rules: &ErrorRatio, now: Instant) {
        broken.until = Some(now + rules.open_for);
        broken.opened += 1;
        self.turn(broken, Phase::Open);
    }

    /// Begins another era; returns its word.
    fn turn(&self, broken: &mut Broken, to: Phase) -> u64 {
        broken.good = 0;
        if broken.news.len() < NEWS_MAX {
            broken.news.push(to);
        }
        let era = (self.word.load(Ordering::Acquire) >> 2).wrapping_add(1);
        let word = era << 2 | u64::from(to.number());
        self.word.store(word, Ordering::Release);
        word
    }

    /// Where it stands: half-open also when the next to come is a trial.
    pub fn phase(&self, now: Instant) -> Phase {
        let phase = Phase::from_bits(self.word.load(Ordering::Acquire));
        let is_over = || self.lock().until.is_none_or(|until| until <= now);
        if phase == Phase::Open && is_over() { Phase::HalfOpen } else { phase }
    }

    /// Trials that are under way.
    pub(crate) fn trials(&self) -> u32 {
        self.lock().trials
    }

    /// How long nothing goes through yet; nothing once trials may begin.
    pub fn rests_for(&self, now: Instant) -> Duration {
        if Phase::from_bits(self.word.load(Ordering::Acquire)) != Phase::Open {
            return Duration::ZERO;
        }
        self.lock().until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// How often it has opened.
    pub fn opened(&self) -> u64 {
        self.lock().opened
    }

    /// Returns what the successor needs to go on. Trials in flight do not count there.
    pub fn hand_over(&self, now: Instant) -> CircuitHandover {
        let rests_for = (self.phase(now) != Phase::Closed).then(|| self.rests_for(now));
        CircuitHandover { opened: self.opened(), rests_for }
    }

    /// Goes on from what the predecessor knew. To be called before anything goes through.
    pub fn inherit(&self, rules: &ErrorRatio, handed: CircuitHandover, now: Instant) {
        let mut broken = self.lock();
        broken.opened = broken.opened.saturating_add(handed.opened);
        if let Some(rest) = handed.rests_for {
            broken.until = Some(now + rest.min(rules.open_for));
            self.turn(&mut broken, Phase::Open);
        }
    }

    /// The phases that began since this was last asked, oldest first.
    pub(crate) fn take_news(&self) -> Vec<Phase> {
        std::mem::take(&mut self.lock().news)
    }

    /// Forgets what was counted, for it was counted by other rules.
    pub(crate) fn forget_counts(&self) {
        self.window.clear();
    }

    /// Closes, when the rules that opened it are gone.
    pub(crate) fn reset(&self) {
        let mut broken = self.lock();
        self.window.clear();
        if Phase::from_bits(self.word.load(Ordering::Acquire)) != Phase::Closed {
            self.turn(&mut broken, Phase::Closed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Broken> {
        // Nothing in here can panic halfway through a change.
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Slices of the window. The oldest goes as a whole: what is looked at is between nine tenths of the window and all of it.
const SLICES: u64 = 10;
const COUNT_BITS: u32 = 22;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
const TICK_MASK: u64 = (1 << (64 - 2 * COUNT_BITS)) - 1;

/// Counts over the last while.
#[derive(Debug, Default)]
struct Window {
    /// The time from which slices are counted: that of the first outcome.
    begun: OnceLock<Instant>,
    slices: [AtomicU64; SLICES as usize],
}

/// One slice, in one word: the number of its time, what failed, and everything.
#[derive(Clone, Copy, Default)]
struct Slice {
    tick: u64,
    bad: u64,
    all: u64,
}

impl Slice {
    fn from_bits(bits: u64) -> Self {
        Self { tick: bits >> (2 * COUNT_BITS), bad: bits >> COUNT_BITS & COUNT_MAX, all: bits & COUNT_MAX }
    }

    fn to_bits(self) -> u64 {
        self.tick << (2 * COUNT_BITS) | self.bad << COUNT_BITS | self.all
    }

    /// Whether it counts a time after that of `tick`. Numbers of times begin again when they are used up.
    fn is_later_than(self, tick: u64) -> bool {
        self.all > 0 && (1..=TICK_MASK / 2).contains(&(self.tick.wrapping_sub(tick) & TICK_MASK))
    }

    fn after(self, tick: u64, is_good: bool) -> Self {
        let mut next = if self.tick == tick { self } else { Self { tick, bad: 0, all: 0 } };
        if next.all == COUNT_MAX {
            // The ratio stays.
            next.all /= 2;
            next.bad /= 2;
        }
        next.all += 1;
        next.bad += u64::from(!is_good);
        next
    }
}

impl Window {
    /// The number of the slice at `now`; never 0, which is that of a slice that was never used.
    fn tick(&self, window: Duration, now: Instant) -> u64 {
        let begun = *self.begun.get_or_init(|| now);
        let slice = (window.as_nanos() / u128::from(SLICES)).max(1);
        (now.saturating_duration_since(begun).as_nanos() / slice) as u64 + 1
    }

    fn add(&self, window: Duration, is_good: bool, now: Instant) {
        let tick = self.tick(window, now);
        let slice = &self.slices[(tick % SLICES) as usize];
        let next = |bits: u64| {
            let slice = Slice::from_bits(bits);
            (!slice.is_later_than(tick & TICK_MASK)).then(|| slice.after(tick & TICK_MASK, is_good).to_bits())
        };
        // Refused is what comes so late that its slice counts another time: it must not wipe what is there.
        let _counted = slice.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    fn is_bad(&self, rules: &ErrorRatio, now: Instant) -> bool {
        let tick = self.tick(rules.window, now);
        let (mut bad, mut all) = (0, 0);
        for slice in &self.slices {
            let slice = Slice::from_bits(slice.load(Ordering::Relaxed));
            if slice.all > 0 && tick.wrapping_sub(slice.tick) & TICK_MASK < SLICES {
                bad += slice.bad;
                all += slice.all;
            }
        }
        all >= u64::from(rules.requests_min) && bad * 100 >= all * u64::from(rules.percent)
    }

    fn clear(&self) {
        for slice in &self.slices {
            slice.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
