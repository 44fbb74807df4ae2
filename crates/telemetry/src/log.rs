//! The diagnostics log: what the program says of itself, on standard error, one line each:
//! `2026-10-01T12:34:56.789Z warn endpoint is down cluster=api endpoint=10.0.0.1:80`.
//!
//! Lines of one message are bounded by a token bucket, so that no client can flood the log by provoking them; the next
//! line that gets through says how many were left out. Values are escaped, so that none can begin a line of its own.
//!
//! At first lines are written directly. After [`start`], a thread of its own writes them: a stalled standard error then
//! costs lines, never a worker's time.

use std::collections::HashMap;
use std::fmt::{Display, Write as _};
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::text::{Clock, Escape, push_escaped};

/// How grave a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something happened as it should.
    Info = 0,
    /// Something is wrong, and the program has an answer to it.
    Warn = 1,
    /// Something is wrong, and someone should look.
    Error = 2,
}

impl Level {
    /// Returns the name in lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// All of them, with what they are called.
pub const LEVELS: [Level; 3] = [Level::Info, Level::Warn, Level::Error];

/// Lines of one message that get through at once.
const BURST: u32 = 100;
/// Lines of one message that get through per second after that.
const PER_SECOND: f64 = 10.0;
/// Lines that wait for the thread.
const WAITING_MAX: usize = 1_024;

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);
static SUPPRESSED: AtomicU64 = AtomicU64::new(0);
static LIMITER: Mutex<Option<Limiter>> = Mutex::new(None);
static SENDER: Mutex<Option<SyncSender<Vec<u8>>>> = Mutex::new(None);

/// What is shown next to a message: names and values.
pub type Pairs<'a> = &'a [(&'a str, &'a dyn Display)];

/// Leaves out lines below `level`.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Relaxed);
}

/// Returns the level below which lines are left out.
pub fn level() -> Level {
    LEVELS.into_iter().find(|level| *level as u8 == LEVEL.load(Relaxed)).unwrap_or(Level::Info)
}

/// Lines left out so far because there were too many of their message, or because standard error takes none.
pub fn suppressed() -> u64 {
    SUPPRESSED.load(Relaxed)
}

/// Says that something happened as it should. `message` is fixed text; what differs goes into `pairs`.
pub fn info(message: &'static str, pairs: Pairs<'_>) {
    write(Level::Info, message, pairs);
}

/// Says that something is wrong to which the program has an answer.
pub fn warn(message: &'static str, pairs: Pairs<'_>) {
    write(Level::Warn, message, pairs);
}

/// Says that something is wrong that someone should look at.
pub fn error(message: &'static str, pairs: Pairs<'_>) {
    write(Level::Error, message, pairs);
}

fn write(level: Level, message: &'static str, pairs: Pairs<'_>) {
    if (level as u8) < LEVEL.load(Relaxed) {
        return;
    }
    let admitted = {
        let mut limiter = LIMITER.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.get_or_insert_default().admit(message, Instant::now())
    };
    let Some(left_out) = admitted else {
        SUPPRESSED.fetch_add(1, Relaxed);
        return;
    };
    let mut line = Vec::with_capacity(256);
    compose(&mut line, (level, SystemTime::now()), message, pairs, left_out);
    send(line);
}

fn compose(out: &mut Vec<u8>, stamp: (Level, SystemTime), message: &str, pairs: Pairs<'_>, left_out: u64) {
    let (level, at) = stamp;
    Clock::default().push_rfc3339(out, at);
    out.push(b' ');
    out.extend_from_slice(level.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(message.as_bytes());
    let mut text = String::new();
    for (name, value) in pairs {
        text.clear();
        let _ = write!(text, "{value}");
        push_pair(out, name, &text);
    }
    if left_out > 0 {
        push_pair(out, "suppressed", &left_out.to_string());
    }
    out.push(b'\n');
}

fn push_pair(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(b' ');
    out.extend_from_slice(name.as_bytes());
    out.push(b'=');
    let bare = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\=".contains(&byte));
    if bare {
        out.extend_from_slice(value.as_bytes());
    } else {
        out.push(b'"');
        push_escaped(out, value.as_bytes(), Escape::Json);
        out.push(b'"');
    }
}

fn send(line: Vec<u8>) {
    let sender = SENDER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match sender {
        None => print(&line),
        Some(sender) if sender.try_send(line).is_ok() => (),
        Some(_) => {
            SUPPRESSED.fetch_add(1, Relaxed);
        }
    }
}

fn print(line: &[u8]) {
    // Without standard error there is no place to report to.
    let _ = std::io::stderr().lock().write_all(line);
}

/// Ends the log's thread when dropped; see [`start`].
#[derive(Debug)]
#[must_use = "lines are written directly again once this is dropped"]
pub struct Running {
    ended: Receiver<()>,
}

/// Lets a thread write the lines from now on. Hold the result until the end of the program: dropping it waits until the
/// lines so far are written, one second at most, and goes back to writing directly.
///
/// # Errors
/// When the thread cannot be started.
pub fn start() -> io::Result<Running> {
    let (sender, lines) = sync_channel::<Vec<u8>>(WAITING_MAX);
    let (end, ended) = sync_channel(0);
    thread::Builder::new().name("diagnostics".to_owned()).spawn(move || {
        // Dropped when there will be no more lines, which is what tells the other side.
        let _end: SyncSender<()> = end;
        for line in lines {
            print(&line);
        }
    })?;
    *SENDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
    Ok(Running { ended })
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(SENDER.lock().unwrap_or_else(PoisonError::into_inner).take());
        let _ = self.ended.recv_timeout(Duration::from_secs(1));
    }
}

/// One token bucket for each message. Messages are fixed texts of the program, so their number is bounded by it.
#[derive(Debug, Default)]
struct Limiter {
    buckets: HashMap<&'static str, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
    left_out: u64,
}

impl Limiter {
    /// Returns how many lines were suppressed before this one, or `None` if this one is suppressed too.
    fn admit(&mut self, message: &'static str, now: Instant) -> Option<u64> {
        let full = f64::from(BURST);
        let bucket = self.buckets.entry(message).or_insert(Bucket { tokens: full, filled: now, left_out: 0 });
        let gained = now.saturating_duration_since(bucket.filled).as_secs_f64() * PER_SECOND;
        bucket.tokens = (bucket.tokens + gained).min(full);
        bucket.filled = now;
        if bucket.tokens < 1.0 {
            bucket.left_out += 1;
            return None;
        }
        bucket.tokens -= 1.0;
        Some(std::mem::take(&mut bucket.left_out))
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_message_that_repeats_is_bounded_and_the_next_line_says_how_many_were_left_out() {
        let mut limiter = Limiter::default();
        let start = Instant::now();
        let through = (0..100_000).filter(|_| limiter.admit("flood", start).is_some()).count();
        assert_eq!(through, BURST as usize);
        assert_eq!(limiter.admit("other", start), Some(0));
        assert_eq!(limiter.admit("flood", start + Duration::from_millis(50)), None);
        assert_eq!(limiter.admit("flood", start + Duration::from_millis(150)), Some(100_000 - u64::from(BURST) + 1));
        assert_eq!(limiter.admit("flood", start + Duration::from_millis(250)), Some(0));
        let later = start + Duration::from_secs(3_600);
        assert_eq!((0..1_000).filter(|_| limiter.admit("flood", later).is_some()).count(), BURST as usize);
    }

    #[test]
    fn a_hostile_value_stays_within_its_quotes_and_line() {
        let mut out = Vec::new();
        let pairs: Pairs<'_> = &[("host", &"a\" x=1\n2026 error fake"), ("port", &80), ("empty", &"")];
        compose(&mut out, (Level::Warn, UNIX_EPOCH), "no route", pairs, 7);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "1970-01-01T00:00:00.000Z warn no route host=\"a\\\" x=1\\n2026 error fake\" port=80 empty=\"\" \
             suppressed=7\n"
        );
    }
}
