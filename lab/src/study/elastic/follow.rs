//! The processes that do a product's work, while one takes over from another: what they used together, what they held.

use crate::measure::procfs;
use crate::sys;
use std::collections::BTreeMap;

/// What is known of them.
pub(super) struct Follow {
    /// The clock ticks of each, as they were seen last.
    ticks: BTreeMap<u32, u64>,
    /// Those of all at the begin.
    began: u64,
    /// Resident memory: at the begin, and the most that was seen.
    pub(super) before_bytes: u64,
    pub(super) peak_bytes: u64,
    /// As it was seen last.
    pub(super) now_bytes: u64,
}

impl Follow {
    /// Begins with those that work now.
    pub(super) fn new(pids: &[u32]) -> Self {
        let mut follow = Self { ticks: BTreeMap::new(), began: 0, before_bytes: 0, peak_bytes: 0, now_bytes: 0 };
        follow.add(pids);
        follow.began = follow.ticks.values().sum();
        follow.before_bytes = follow.now_bytes;
        follow
    }

    /// These work now, too. What they used before they were known counts.
    pub(super) fn add(&mut self, pids: &[u32]) {
        for pid in pids {
            self.ticks.entry(*pid).or_default();
        }
        self.look();
    }

    /// Reads a few small files, none of which holds a process up: it can be done while requests are timed.
    pub(super) fn look(&mut self) {
        let pids: Vec<u32> = self.ticks.keys().copied().collect();
        let mut bytes = 0;
        for pid in pids {
            match procfs::stat(pid) {
                Some(stat) => {
                    self.ticks.insert(pid, stat.ticks);
                    bytes += procfs::resident_bytes(pid).unwrap_or(0);
                }
                // Who has waited for it has its time now. If nobody did that is known here, the time seen last counts.
                None => self.forget(pid),
            }
        }
        self.now_bytes = bytes;
        self.peak_bytes = self.peak_bytes.max(bytes);
    }

    fn forget(&mut self, pid: u32) {
        let others = self.ticks.keys().filter(|other| **other != pid);
        let waited = others.filter_map(|other| procfs::stat(*other)).any(|stat| stat.waited_ticks > 0);
        if waited {
            self.ticks.remove(&pid);
        }
    }

    /// CPU time since the begin, us.
    pub(super) fn used_us(&self) -> u64 {
        let now: u64 = self.ticks.values().sum();
        now.saturating_sub(self.began) * 1_000_000 / sys::ticks_per_second()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn what_one_used_and_what_its_successor_uses_add_up() {
        let mut follow = Follow::new(&[std::process::id()]);
        assert!(follow.before_bytes > 100_000 && follow.peak_bytes == follow.before_bytes);
        let mut busy = Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        follow.add(&[busy.id()]);
        let deadline = Instant::now() + Duration::from_secs(20);
        while follow.used_us() < 50_000 {
            assert!(Instant::now() < deadline, "it is not seen to use anything");
            std::thread::sleep(Duration::from_millis(10));
            follow.look();
        }
        let used = follow.used_us();
        busy.kill().unwrap();
        busy.wait().unwrap();
        follow.look();
        assert!(follow.used_us() >= used, "what it used is still counted when it has gone");
        assert!(follow.peak_bytes >= follow.now_bytes);
    }
}
