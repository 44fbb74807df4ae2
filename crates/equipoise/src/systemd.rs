//! What the process that started this one is told (sd_notify(3)), and what it has made ready (sd_listen_fds(3)). Without it
//! nothing of this does anything.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use proxy::handover::Inherited;
use proxy::{Pulse, Workers};
use tokio::time::{Interval, MissedTickBehavior};

/// The first descriptor that is handed over at a start.
const FIRST_DESCRIPTOR: i32 = 3;
/// More of them are taken for a mistake.
const DESCRIPTORS_MAX: i32 = 4_096;

/// It runs, and can be used.
pub(crate) fn ready() {
    tell("READY=1");
}

/// The configuration is read again; [`ready`] follows.
pub(crate) fn reloading() {
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_usec()));
}

/// It is about to end.
pub(crate) fn stopping() {
    tell("STOPPING=1");
}

/// Another process goes on in the place of this one, which says nothing any more.
pub(crate) fn followed_by(pid: u32) {
    tell(&format!("MAINPID={pid}\nREADY=1"));
}

fn tell(message: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET").filter(|address| !address.is_empty()) else { return };
    let sent = (|| {
        let address = match address.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&address)?,
        };
        UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address)
    })();
    if let Err(error) = sent {
        telemetry::log::warn("NOTIFY_SOCKET cannot be notified", &[("error", &error), ("message", &message)]);
    }
}

fn monotonic_usec() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec for the whole call, which only writes to it.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}

/// The sockets that were made ready for this process, with the names that they were given.
///
/// # Errors
/// The variables say what is not so.
pub(crate) fn sockets() -> io::Result<Vec<Inherited>> {
    let text = |name: &str| std::env::var(name).unwrap_or_default();
    if text("LISTEN_PID") != std::process::id().to_string() {
        return Ok(Vec::new());
    }
    let wrong = |message: String| io::Error::new(io::ErrorKind::InvalidInput, message);
    let count: i32 = text("LISTEN_FDS").parse().map_err(|_| wrong("LISTEN_FDS is not a number".into()))?;
    if !(0..=DESCRIPTORS_MAX).contains(&count) {
        return Err(wrong(format!("LISTEN_FDS is {count}")));
    }
    let names = text("LISTEN_FDNAMES");
    let mut names = names.split(':');
    let mut sockets = Vec::new();
    for number in FIRST_DESCRIPTOR..FIRST_DESCRIPTOR + count {
        let name = names.next().filter(|name| !name.is_empty() && *name != "unknown");
        // SAFETY: no memory is involved; a number that is no open descriptor is answered with an error.
        if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
            return Err(wrong(format!("LISTEN_FDS is {count}, but descriptor {number} is not open")));
        }
        if !is_socket(number) {
            // It may be anyone's: it is left alone.
            return Err(wrong(format!("descriptor {number} of LISTEN_FDS is not a socket")));
        }
        // SAFETY: it is open, and was left for this process by who started it: nothing here knows of it, as this is called once,
        // before anything else is opened under a number of these.
        let socket = unsafe { OwnedFd::from_raw_fd(number) };
        let told = |error: io::Error| wrong(format!("descriptor {number} of LISTEN_FDS: {error}"));
        sockets.push(Inherited::activated(socket, name).map_err(told)?);
    }
    Ok(sockets)
}

fn is_socket(number: i32) -> bool {
    // SAFETY: all zeros are a valid value of this plain structure.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is valid for the whole call, which only writes to it.
    let done = unsafe { libc::fstat(number, &raw mut found) };
    done == 0 && found.st_mode & libc::S_IFMT == libc::S_IFSOCK
}

/// Says again and again that all workers are alive, where somebody wants to hear it.
pub(crate) struct Watchdog {
    turns: Option<Interval>,
    /// What workers were asked the last time.
    pulse: Option<Pulse>,
}

impl Watchdog {
    /// As WATCHDOG_USEC wants it; within a runtime.
    pub(crate) fn of_this_process() -> Self {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let wanted = number("WATCHDOG_USEC").filter(|usec| is_ours && *usec > 0);
        let turns = wanted.map(|usec| {
            let half = Duration::from_micros(usec).div_f64(2.0).max(Duration::from_millis(1));
            let mut turns = tokio::time::interval_at(tokio::time::Instant::now() + half / 2, half);
            turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
            turns
        });
        Self { turns, pulse: None }
    }

    /// Waits for the next time to say so.
    pub(crate) async fn turn(&mut self) {
        match &mut self.turns {
            Some(turns) => drop(turns.tick().await),
            None => std::future::pending().await,
        }
    }

    /// Says so, if all workers have answered what they were asked the last time.
    pub(crate) fn beat(&mut self, workers: &Workers) {
        if self.pulse.as_ref().is_none_or(Pulse::is_answered) {
            tell("WATCHDOG=1");
            let pulse = workers.pulse();
            if pulse.is_lost() {
                telemetry::log::error("a worker thread exited; watchdog notifications stopped", &[]);
            }
            self.pulse = Some(pulse);
        }
    }
}
