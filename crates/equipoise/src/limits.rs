//! What the process asks of the system: open files, and turns on a core.
#![allow(unsafe_code)]

use std::mem;
use std::time::Duration;

/// Raises the soft bound on open files to the hard one: each exchange may hold two sockets, and the usual soft bound
/// of 1,024 would be the first thing to run out. Returns the bound now active; 0 when the system does not tell.
pub(crate) fn raise_open_files() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the whole call, which only writes to it.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 0;
    }
    let before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is a valid rlimit for the whole call, which only reads it.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0 { limit.rlim_cur } else { before }
}

/// How nice a thread is that gives way (setpriority(2)). It has a quarter of a core that a worker wants all of; with 19 it would have a
/// seventieth, and a change that takes 10 ms of a core would become active after half a second or more, just when the machine is busy.
const NICE: libc::c_int = 5;

/// How long the turns are that a thread asks for which is not to delay others, in nanoseconds (sched_setattr(2), `sched_runtime`).
/// The scheduler lets anyone who asks for shorter ones have the core as soon as it wakes; among equals it may wait for 3 ms.
const LONG_TURN_NS: u64 = 20_000_000;
/// `SCHED_FLAG_RESET_ON_FORK` of sched_setattr(2). No one without rights may take it back.
const RESET_ON_FORK: u64 = 1;

/// Makes the calling thread, for the rest of its life, give way to others that want its core.
/// Where the system refuses, all is as it was.
pub(crate) fn give_way() {
    take_long_turns(true);
    // SAFETY: no memory is involved. On Linux this is about the calling thread alone, and raising the number needs no right.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Has the calling thread ask for long turns on its core, so that others which wake there need not wait until its turn is over; or for
/// the usual ones again. It gets no smaller share. Threads that it starts have the usual ones. Kernels before 6.12 take no notice. One that
/// was given precedence by its nice value is left alone: what it starts would lose that.
pub(crate) fn take_long_turns(is_wanted: bool) {
    let is_usual =
        |now: &libc::sched_attr| now.sched_policy == libc::SCHED_OTHER.cast_unsigned() && now.sched_nice >= 0;
    let Some(mut now) = turns().filter(is_usual) else { return };
    now.sched_runtime = if is_wanted { LONG_TURN_NS } else { 0 };
    now.sched_flags = RESET_ON_FORK;
    let none: libc::c_uint = 0;
    // SAFETY: `now` is valid for the whole call, which only reads it, and says how large it is. A refusal leaves all as it was.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const now, none) };
}

/// Returns how the calling thread takes its turns.
fn turns() -> Option<libc::sched_attr> {
    // SAFETY: it is plain old data, of which all zeros are a value.
    let mut now = unsafe { mem::zeroed::<libc::sched_attr>() };
    let (size, none) = (u32::try_from(size_of_val(&now)).ok()?, 0 as libc::c_uint);
    // SAFETY: `now` is valid for the whole call, which writes no more than its size.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, size, none) };
    now.size = size;
    (got == 0).then_some(now)
}

/// Returns what the calling thread has had of a core so far (CLOCK_THREAD_CPUTIME_ID). Zero where the system does not tell.
pub(crate) fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the whole call, which only writes to it.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } != 0 {
        return Duration::ZERO;
    }
    let (whole, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(whole.unwrap_or(0), nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_on_open_files_is_raised_to_the_hard_one_and_stays_there() {
        let first = raise_open_files();
        assert!(first >= 256, "{first}");
        assert_eq!(raise_open_files(), first);
    }

    #[test]
    fn time_of_a_core_passes_while_a_thread_works_and_not_while_it_waits() {
        let begun = cpu_time();
        let mut sum = 0_u64;
        while cpu_time() - begun < Duration::from_millis(5) {
            sum = std::hint::black_box(sum + 1);
        }
        let there = std::thread::spawn(cpu_time).join().unwrap();
        assert!(there < cpu_time(), "{there:?}, after {sum} turns");
    }

    #[test]
    fn a_thread_that_gives_way_is_alone_in_that() {
        // SAFETY: no memory is involved.
        let own = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = own();
        let there = std::thread::spawn(move || {
            give_way();
            own()
        });
        assert_eq!((there.join().unwrap(), own()), (NICE, before));
    }

    #[test]
    fn long_turns_are_asked_for_by_one_thread_and_given_up_again() {
        let told = |thread: std::thread::JoinHandle<u64>| thread.join().unwrap();
        let own = || turns().map_or(0, |turns| turns.sched_runtime);
        let usual = own();
        told(std::thread::spawn(move || {
            take_long_turns(true);
            // A kernel that takes no notice leaves it as it was.
            let long = own();
            assert!(long == LONG_TURN_NS || long == usual, "{long}");
            assert_eq!(told(std::thread::spawn(own)), usual, "what it starts has the usual ones");
            take_long_turns(false);
            assert_eq!(own(), usual);
            long
        }));
        assert_eq!(own(), usual);
    }
}
