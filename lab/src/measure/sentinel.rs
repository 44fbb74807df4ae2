//! Pauses of the machine while a measurement goes on: on each core a thread sleeps to the next millisecond, and notes when it
//! woke late. It is a real-time thread of the lowest priority, before which no program of a measurement runs: what kept it
//! from its core was the kernel, a real-time thread, or the host of the machine. That is not quite "not the product": a
//! system call that the kernel does not interrupt counts, too, whoever made it.
//!
//! Where the thread may not be a real-time one, [`Seen::is_real_time`] says so. Then a busy product can keep it from its
//! core, and nobody may be excused by what it noted.

use crate::failure::Failure;
use crate::sys;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often each thread wakes.
const EVERY: Duration = Duration::from_millis(1);

/// Who wakes later than this was kept from its core.
const LATE: Duration = Duration::from_micros(500);

/// So many pauses of a core are kept with their times; those beyond it are only counted. Half a MB.
const KEPT_MAX: usize = 20_000;

/// One that everything else of the kind goes before: it is to see what they do.
const PRIORITY: i32 = 1;

/// A time in which a core was kept from programs, us since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pause {
    pub core: usize,
    /// When the thread should have woken: the pause began up to a millisecond before.
    pub from_us: u64,
    pub to_us: u64,
}

/// What the threads saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// They were real-time threads.
    pub is_real_time: bool,
    /// What they used of each core.
    pub cpu_share: f64,
    /// All pauses, on all cores.
    pub count: u64,
    pub longest_us: u64,
    pub total_us: u64,
    /// In the order in which they began; if there were too many, without the last of them.
    pub pauses: Vec<Pause>,
}

impl Seen {
    /// All that is kept, a line each.
    pub(crate) fn csv(&self) -> String {
        let mut text = String::from("core,from_us,to_us\n");
        for Pause { core, from_us, to_us } in &self.pauses {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{core},{from_us},{to_us}");
        }
        text
    }

    /// Those of several cores together.
    fn joined(cores: Vec<Self>) -> Self {
        let count = cores.len().max(1) as f64;
        let mut all = Self { is_real_time: !cores.is_empty(), ..Self::default() };
        for one in cores {
            all.is_real_time &= one.is_real_time;
            all.cpu_share += one.cpu_share / count;
            all.count += one.count;
            all.longest_us = all.longest_us.max(one.longest_us);
            all.total_us += one.total_us;
            all.pauses.extend(one.pauses);
        }
        all.pauses.sort_by_key(|pause| pause.from_us);
        all
    }

    /// Notes that a thread woke, so late, at this time.
    fn woke(&mut self, core: usize, late: Duration, now_us: u64) {
        if late < LATE {
            return;
        }
        let late_us = late.as_micros() as u64;
        self.count += 1;
        self.longest_us = self.longest_us.max(late_us);
        self.total_us += late_us;
        if self.pauses.len() < KEPT_MAX {
            self.pauses.push(Pause { core, from_us: now_us.saturating_sub(late_us), to_us: now_us });
        }
    }
}

/// Threads that look.
pub(crate) struct Sentinel {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<std::io::Result<Seen>>>,
}

impl Sentinel {
    /// Looks at these cores from now on.
    pub(crate) fn start(cores: &[usize]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (looking, all_look) = mpsc::channel();
        let of = |&core: &usize| {
            let (told, looking) = (Arc::clone(&is_over), looking.clone());
            thread::spawn(move || sys::pin_self(&[core]).map(|()| look(core, &told, looking)))
        };
        let threads = cores.iter().map(of).collect();
        // On a busy core a thread may need a while until it begins. One that cannot look says nothing, and lets go.
        drop(looking);
        all_look.iter().for_each(drop);
        Self { threads, is_over }
    }

    /// Ends, and tells what was seen.
    pub(crate) fn end(mut self) -> Result<Seen, Failure> {
        self.is_over.store(true, Ordering::SeqCst);
        let mut cores = Vec::new();
        for one in self.threads.drain(..) {
            cores.push(one.join().map_err(|_| Failure::new("the look at the machine's pauses broke off"))??);
        }
        Ok(Seen::joined(cores))
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        // The threads are over within a millisecond, by themselves.
        self.is_over.store(true, Ordering::SeqCst);
    }
}

fn look(core: usize, is_over: &AtomicBool, looking: Sender<()>) -> Seen {
    let is_real_time = sys::become_real_time(PRIORITY).is_ok();
    // Real-time threads are woken at the time asked anyway; if this fails, plain ones are 50 us late at most.
    let _ = sys::wake_exactly();
    let mut seen = Seen { is_real_time, pauses: Vec::with_capacity(KEPT_MAX), ..Seen::default() };
    // The clock of the generator: the time of day at the begin, and from there on one that nobody sets.
    let (began, began_at) = (sys::monotonic(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let mut due = began + EVERY;
    drop(looking);
    while !is_over.load(Ordering::Relaxed) {
        sys::sleep_until(due);
        let now = sys::monotonic();
        seen.woke(core, now.saturating_sub(due), (began_at + (now - began)).as_micros() as u64);
        while due <= now {
            due += EVERY;
        }
    }
    let elapsed = (sys::monotonic() - began).as_secs_f64().max(1e-9);
    seen.cpu_share = sys::thread_cpu().as_secs_f64() / elapsed;
    seen.pauses.shrink_to_fit();
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::procfs;
    use std::process::{Child, Command, Stdio};

    /// Programs that keep a core busy, and go before all others that are not real-time ones where that is allowed.
    fn hogs(core: usize) -> Vec<Child> {
        let hog = || {
            let mut command = Command::new("nice");
            command.args(["-n", "-20", "/bin/sh", "-c", "while :; do :; done"]).stderr(Stdio::null());
            sys::pin(&mut command, &[core]);
            command.spawn().unwrap()
        };
        (0..2).map(|_| hog()).collect()
    }

    /// Waits until they have used so much together.
    fn await_use(hogs: &[Child], time: Duration) {
        let ticks = || hogs.iter().filter_map(|hog| procfs::stat(hog.id())).map(|stat| stat.ticks).sum::<u64>();
        let wanted = ticks() + time.as_millis() as u64 * sys::ticks_per_second() / 1000;
        let deadline = sys::monotonic() + Duration::from_secs(60);
        while ticks() < wanted {
            assert!(sys::monotonic() < deadline, "the core is not kept busy");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn programs_that_keep_a_core_busy_are_no_pause_of_the_machine() {
        let cores = sys::cores_allowed().unwrap();
        let mut hogs = hogs(cores[0]);
        await_use(&hogs, Duration::from_millis(100));
        let (sentinel, began) = (Sentinel::start(&cores[..1]), sys::monotonic());
        await_use(&hogs, Duration::from_millis(400));
        let (seen, time) = (sentinel.end().unwrap(), sys::monotonic() - began);
        for hog in &mut hogs {
            hog.kill().unwrap();
            hog.wait().unwrap();
        }
        let is_allowed = thread::spawn(|| sys::become_real_time(PRIORITY).is_ok()).join().unwrap();
        assert_eq!(seen.is_real_time, is_allowed);
        if seen.is_real_time {
            // The machine that this runs on has pauses of its own.
            let share = seen.total_us as f64 / time.as_micros() as f64;
            assert!(share < 0.3, "{share:.2} of the time in {} pauses", seen.count);
        }
    }

    #[test]
    fn what_goes_before_every_program_is_a_pause_with_its_time() {
        let core = sys::cores_allowed().unwrap()[0];
        let sentinel = Sentinel::start(&[core]);
        let hog = thread::spawn(move || {
            sys::pin_self(&[core]).unwrap();
            let is_before = sys::become_real_time(PRIORITY + 1).is_ok();
            let until = sys::monotonic() + Duration::from_millis(40);
            while sys::monotonic() < until {}
            is_before
        });
        let is_before = hog.join().unwrap();
        let seen = sentinel.end().unwrap();
        if is_before {
            assert!(seen.longest_us >= 38_000, "{} us of 40 ms", seen.longest_us);
            let longest = seen.pauses.iter().max_by_key(|pause| pause.to_us - pause.from_us).unwrap();
            assert_eq!(longest.to_us - longest.from_us, seen.longest_us);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
            assert!(longest.to_us.abs_diff(now) < 10_000_000, "{} is not about now ({now})", longest.to_us);
        }
    }

    #[test]
    fn a_short_delay_is_none_and_what_is_beyond_the_bound_is_counted() {
        let mut seen = Seen::default();
        seen.woke(1, LATE - Duration::from_micros(1), 5_000);
        assert_eq!(seen, Seen::default());
        for _ in 0..KEPT_MAX + 3 {
            seen.woke(1, Duration::from_micros(700), 5_000);
        }
        seen.woke(1, Duration::from_micros(900), 9_000);
        assert_eq!((seen.count, seen.pauses.len()), (KEPT_MAX as u64 + 4, KEPT_MAX));
        assert_eq!((seen.longest_us, seen.pauses[0]), (900, Pause { core: 1, from_us: 4_300, to_us: 5_000 }));
    }

    #[test]
    fn cores_are_joined_in_the_order_of_time_and_one_plain_thread_makes_all_doubtful() {
        let of = |core, from_us, is_real_time| Seen {
            is_real_time,
            cpu_share: 0.01 * (core as f64 + 1.0),
            count: 1,
            longest_us: from_us,
            total_us: from_us,
            pauses: vec![Pause { core, from_us, to_us: from_us * 2 }],
        };
        let all = Seen::joined(vec![of(0, 900, true), of(1, 600, true)]);
        assert!(all.is_real_time && (all.cpu_share - 0.015).abs() < 1e-9);
        assert_eq!((all.count, all.longest_us, all.total_us), (2, 900, 1500));
        assert_eq!(all.csv(), "core,from_us,to_us\n1,600,1200\n0,900,1800\n");
        assert!(!Seen::joined(vec![of(0, 900, true), of(1, 600, false)]).is_real_time);
        assert!(!Seen::joined(Vec::new()).is_real_time);
    }
}
