//! Figures of the kernel about this process.

use std::fs;

/// Clock ticks per second in `/proc`. The kernel fixes USER_HZ at 100 for user space on every architecture we build for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Figures of this process. What cannot be read is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    /// User and system time.
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) resident_bytes: Option<f64>,
    pub(crate) open_fds: Option<f64>,
    pub(crate) max_fds: Option<f64>,
    /// Since 1970.
    pub(crate) start_seconds: Option<f64>,
}

impl Process {
    /// Reads `/proc`.
    pub(crate) fn read() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
        let user = stat_field(&stat, 14);
        let system = stat_field(&stat, 15);
        let start = stat_field(&stat, 22);
        Self {
            cpu_seconds: user.zip(system).map(|(user, system)| (user + system) / TICKS_PER_SECOND),
            resident_bytes: word_after(&status, "VmRSS:").map(|kilobytes| kilobytes * 1024.0),
            // The directory that is read here is open meanwhile.
            open_fds: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1) as f64),
            max_fds: word_after(&limits, "Max open files"),
            start_seconds: word_after(&boot, "btime").zip(start).map(|(boot, start)| boot + start / TICKS_PER_SECOND),
        }
    }
}

/// Returns a field of `/proc/PID/stat`, counted from 1 as in proc(5). The second is the program's name in parentheses, which may hold
/// anything, so counting starts behind the last parenthesis.
fn stat_field(stat: &str, number: usize) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(number - 3)?.parse().ok()
}

fn word_after(text: &str, label: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_program_name_does_not_shift_the_fields() {
        let stat = "1 (a) 9 9 (b) S 2 3 4 5 6 7 8 9 10 11 120 30 0 0 20 0 1 0 4200 1 2";
        assert_eq!(
            (stat_field(stat, 14), stat_field(stat, 15), stat_field(stat, 22)),
            (Some(120.0), Some(30.0), Some(4200.0))
        );
        assert_eq!(stat_field("", 14), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let process = Process::read();
        assert!(process.resident_bytes.unwrap() > 100_000.0);
        assert!(process.open_fds.unwrap() >= 3.0);
        assert!(process.max_fds.is_none_or(|max| max >= process.open_fds.unwrap()));
        assert!(process.start_seconds.unwrap() > 1.5e9 && process.cpu_seconds.is_some());
    }
}
