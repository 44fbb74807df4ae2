//! CPU time and memory of a process and all its descendants, from `/proc`.

use crate::sys;
use std::collections::HashMap;
use std::fs;
use std::io;

/// The fields of `/proc/PID/stat` that the lab needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The process.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// User and system time of all its threads, and of the children that it has waited for, in clock ticks.
    pub ticks: u64,
    /// What of that is of children that it has waited for.
    pub waited_ticks: u64,
}

/// Parses one line of `/proc/PID/stat`. The name may hold spaces and parentheses.
pub(crate) fn parse_stat(text: &str) -> Option<Stat> {
    let (pid, rest) = text.split_once(' ')?;
    let after_name = &rest[rest.rfind(')')? + 1..];
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    // After the name: state is field 3 of the manual, so field N is at N - 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<i64>().ok();
    let ticks = |fields: [usize; 2]| u64::try_from(fields.into_iter().map(field).sum::<Option<i64>>()?).ok();
    let id = |number: usize| u32::try_from(field(number)?).ok();
    let waited_ticks = ticks([16, 17])?;
    let ticks = ticks([14, 15])? + waited_ticks;
    Some(Stat { pid: pid.parse().ok()?, parent: id(4)?, group: id(5)?, ticks, waited_ticks })
}

/// A process, unless it has gone. One that has ended and not been waited for is still there.
pub(crate) fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// All processes of the group that live now.
pub(crate) fn group(group: u32) -> io::Result<Vec<Stat>> {
    Ok(Everybody::read()?.0.into_values().filter(|stat| stat.group == group).collect())
}

/// Resident memory of a process, bytes. Unlike the proportional set size, reading it does not hold the process up; pages that
/// it shares with others count in full.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok().map(|pages| pages * sys::page_bytes())
}

/// Whether a process has a handler for a signal.
pub(crate) fn catches(pid: u32, signal: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Parses `/proc/PID/smaps_rollup` for the proportional set size, in bytes.
pub(crate) fn parse_pss(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// What all cores did since the machine was started, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// Taken by the host of a virtual machine.
    pub stolen: u64,
    /// Everything, idle time too.
    pub total: u64,
}

/// Parses the first line of `/proc/stat`.
pub(crate) fn parse_machine(text: &str) -> Option<Times> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> =
        line.split_ascii_whitespace().take(8).map(|field| field.parse().ok()).collect::<Option<_>>()?;
    let stolen = *fields.get(7)?;
    Some(Times { stolen, total: fields.iter().sum() })
}

/// All processes that live now.
struct Everybody(HashMap<u32, Stat>);

impl Everybody {
    fn read() -> io::Result<Self> {
        let mut all = HashMap::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // A process may end between the listing and the reading.
            if let Some(stat) = fs::read_to_string(format!("/proc/{pid}/stat")).ok().as_deref().and_then(parse_stat) {
                all.insert(pid, stat);
            }
        }
        Ok(Self(all))
    }

    fn belongs(&self, mut pid: u32, root: u32) -> bool {
        for _ in 0..64 {
            if pid == root {
                return true;
            }
            match self.0.get(&pid) {
                Some(stat) => pid = stat.parent,
                None => return false,
            }
        }
        false
    }

    fn ticks(&self, counts: impl Fn(u32) -> bool) -> u64 {
        self.0.values().filter(|stat| counts(stat.pid)).map(|stat| stat.ticks).sum()
    }
}

/// The process `root` and all its descendants that live now.
pub(crate) fn tree(root: u32) -> io::Result<Vec<Stat>> {
    let all = Everybody::read()?;
    Ok(all.0.values().filter(|stat| all.belongs(stat.pid, root)).copied().collect())
}

/// CPU time so far of the process `root` and all its descendants that live now, in clock ticks.
pub(crate) fn tree_ticks(root: u32) -> io::Result<u64> {
    Ok(tree(root)?.iter().map(|stat| stat.ticks).sum())
}

/// CPU time so far, in clock ticks. A process that ended counts with the parent that waited for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    /// Of the product's process tree; 0 without a product.
    pub product: u64,
    /// Of everything that is not the lab, nor started by it.
    pub others: u64,
}

impl Ticks {
    /// Reads them now, with the product's tree headed by `product`.
    pub(crate) fn read(product: Option<u32>) -> io::Result<Self> {
        let all = Everybody::read()?;
        let lab = std::process::id();
        Ok(Self {
            product: product.map_or(0, |product| all.ticks(|pid| all.belongs(pid, product))),
            others: all.ticks(|pid| !all.belongs(pid, lab)),
        })
    }
}

/// Memory of the process tree (proportional set size), in bytes.
pub(crate) fn memory_bytes(root: u32) -> io::Result<u64> {
    let mut sum = 0;
    for stat in tree(root)? {
        let path = format!("/proc/{}/smaps_rollup", stat.pid);
        match fs::read_to_string(&path) {
            Ok(text) => sum += parse_pss(&text).or((stat.pid != root).then_some(0)).ok_or_else(|| no_pss(&path))?,
            // A child may have ended meanwhile, or be about to: what is gone holds nothing.
            Err(_) if stat.pid != root => {}
            Err(error) => return Err(io::Error::new(error.kind(), format!("{path}: {error}"))),
        }
    }
    Ok(sum)
}

fn no_pss(path: &str) -> io::Error {
    io::Error::other(format!("{path} shows no Pss"))
}

/// What all cores did so far.
pub(crate) fn machine() -> io::Result<Times> {
    let text = fs::read_to_string("/proc/stat")?;
    parse_machine(&text).ok_or_else(|| io::Error::other("/proc/stat shows no cpu line"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_with_an_awkward_name_is_parsed() {
        let line = "4711 (nginx: (w) x) S 4700 4711 4711 0 -1 4194624 100 0 0 0 250 750 3 4 20 0 5 0 123 456 789";
        let wanted = Stat { pid: 4711, parent: 4700, group: 4711, ticks: 250 + 750 + 3 + 4, waited_ticks: 7 };
        assert_eq!(parse_stat(line), Some(wanted));
    }

    #[test]
    fn a_broken_stat_line_is_none() {
        assert_eq!(parse_stat("4711 (x"), None);
        assert_eq!(parse_stat("4711 (x) S 1 2"), None);
    }

    #[test]
    fn pss_is_found_and_not_its_parts() {
        let text = "55d0-7ffc ---p 0 00:00 0 [rollup]\nRss:  9000 kB\nPss:  1234 kB\nPss_Dirty: 1000 kB\n";
        assert_eq!(parse_pss(text), Some(1234 * 1024));
    }

    #[test]
    fn the_sum_of_all_cores_is_parsed() {
        let text = "cpu  10 1 9 70 10 2 3 5 0 0\ncpu0 5 0 5 35 5 0 0 0 0 0\n";
        assert_eq!(parse_machine(text), Some(Times { stolen: 5, total: 110 }));
        assert_eq!(parse_machine("cpu0 1 1 1 1 1 1 1 1"), None);
    }

    #[test]
    fn this_process_is_in_its_own_tree() {
        let me = std::process::id();
        assert!(tree(me).unwrap().iter().any(|stat| stat.pid == me));
        assert!(memory_bytes(me).unwrap() > 100_000);
        assert!(resident_bytes(me).unwrap() > 100_000);
        let group_of_me = stat(me).unwrap().group;
        assert!(group(group_of_me).unwrap().iter().any(|stat| stat.pid == me));
    }

    #[test]
    fn a_signal_that_is_caught_is_told_from_one_that_is_not() {
        // What a shell sets a trap for it catches; when it says so, the trap is there.
        let mut shell = std::process::Command::new("/bin/sh")
            .args(["-c", "trap : USR2; echo set; read line"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 3];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut said).unwrap();
        assert!(catches(shell.id(), libc::SIGUSR2) && !catches(shell.id(), libc::SIGUSR1));
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}
