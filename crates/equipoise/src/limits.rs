//! What the process asks of the system: open files, and turns on a core.
#![allow(unsafe_code)]

/// Raises the soft bound on open files to the hard one: each exchange may hold two sockets, and the usual soft bound
/// of 1,024 would be the first thing to run out. Returns the bound now in force; 0 when the system does not tell.
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

/// Makes the calling thread, for the rest of its life, give way to others that want its core (nice 19, setpriority(2)).
/// Where the system refuses, all is as it was.
pub(crate) fn give_way() {
    // SAFETY: no memory is involved. On Linux this is about the calling thread alone, and raising the number needs no right.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
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
    fn a_thread_that_gives_way_is_alone_in_that() {
        // SAFETY: no memory is involved.
        let own = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = own();
        let there = std::thread::spawn(move || {
            give_way();
            own()
        });
        assert_eq!((there.join().unwrap(), own()), (19, before));
    }
}
