//! The few system calls that the standard library does not offer. This is the only module of the lab with `unsafe`.
#![allow(unsafe_code, reason = "raw system calls: epoll, affinity, limits, signals")]

use std::io;
use std::net::{SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// What an epoll instance reported about one descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// The token that the descriptor was added with.
    pub token: u64,
    /// There is something to read, or the peer has closed.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
}

/// An edge-triggered epoll instance.
pub(crate) struct Epoll {
    fd: OwnedFd,
    raw: Vec<libc::epoll_event>,
}

impl Epoll {
    /// Opens an instance that reports up to `events_max` descriptors at a time.
    pub(crate) fn new(events_max: usize) -> io::Result<Self> {
        // SAFETY: takes no pointers; the result is checked.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just opened and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, raw: vec![libc::epoll_event { events: 0, u64: 0 }; events_max] })
    }

    /// Watches a descriptor for reading, writing and the end, edge-triggered. It is forgotten when it is closed.
    pub(crate) fn add(&self, fd: RawFd, token: u64) -> io::Result<()> {
        let flags = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.control(fd, token, flags as u32)
    }

    /// Watches a listening socket, level-triggered.
    pub(crate) fn add_listener(&self, fd: RawFd, token: u64) -> io::Result<()> {
        self.control(fd, token, libc::EPOLLIN as u32)
    }

    fn control(&self, fd: RawFd, token: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: `event` lives through the call, which copies it.
        let result = unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        check(result).map(drop)
    }

    /// Waits until something is ready or the time is over, and fills `ready`. `None` waits without end.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        let time = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(t.subsec_nanos()),
        });
        let time_ptr = time.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
        // SAFETY: `raw` has room for `raw.len()` events, `time_ptr` is null or points to `time`, the signal mask is null.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                self.raw.as_mut_ptr(),
                self.raw.len() as libc::c_int,
                time_ptr,
                std::ptr::null::<libc::sigset_t>(),
                std::mem::size_of::<libc::sigset_t>(),
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        let input = (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
        for event in &self.raw[..count as usize] {
            let flags = event.events;
            ready.push(Ready {
                token: event.u64,
                readable: flags & input != 0,
                writable: flags & libc::EPOLLOUT as u32 != 0,
            });
        }
        Ok(())
    }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Gives a listener a long queue of connections that wait to be accepted; `std` asks for a short one.
pub(crate) fn lengthen_queue(listener: &TcpListener) -> io::Result<()> {
    // SAFETY: takes no pointers; listening again only changes the length of the queue.
    check(unsafe { libc::listen(listener.as_raw_fd(), 4096) }).map(drop)
}

/// Prepares a command: the child runs only on `cores`, heads its own process group, and is told to end when we die.
pub(crate) fn pin(command: &mut Command, cores: &[usize]) {
    let set = core_set(cores);
    command.process_group(0);
    // SAFETY: between fork and exec only async-signal-safe system calls are made, on values that were copied in.
    unsafe {
        command.pre_exec(move || {
            check(libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set))?;
            check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM)).map(drop)
        });
    }
}

/// Restricts this thread (and what it starts later) to the given cores.
pub(crate) fn pin_self(cores: &[usize]) -> io::Result<()> {
    let set = core_set(cores);
    // SAFETY: `set` lives through the call, and its size is passed with it.
    check(unsafe { libc::sched_setaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &set) }).map(drop)
}

fn core_set(cores: &[usize]) -> libc::cpu_set_t {
    // SAFETY: a cpu_set_t is a plain array of bits, for which all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &core in cores.iter().filter(|&&core| core < libc::CPU_SETSIZE as usize) {
        // SAFETY: `core` is below the number of bits in the set.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    set
}

/// The cores that this process could run on when it was started; later it moves itself off some of them.
pub(crate) fn cores_allowed() -> io::Result<Vec<usize>> {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    if let Some(cores) = CORES.get() {
        return Ok(cores.clone());
    }
    let mut set = core_set(&[]);
    // SAFETY: `set` has the size that is passed, and is only written.
    check(unsafe { libc::sched_getaffinity(0, std::mem::size_of::<libc::cpu_set_t>(), &mut set) })?;
    // SAFETY: every `core` is below the number of bits in the set.
    let cores = (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect();
    Ok(CORES.get_or_init(|| cores).clone())
}

/// Begins to connect, without waiting for anything. On loopback the connection is there when this returns, unless nobody
/// listens or too many wait there to be accepted; that becomes known as with any socket that does not block.
pub(crate) fn begin_connecting(to: SocketAddrV4) -> io::Result<TcpStream> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers; the result is checked.
    let fd = check(unsafe { libc::socket(libc::AF_INET, kind, 0) })?;
    // SAFETY: the descriptor was just opened and nobody else owns it.
    let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(*to.ip()).to_be() },
        sin_zero: [0; 8],
    };
    let size = std::mem::size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: `address` lives through the call, and its size is passed with it.
    match check(unsafe { libc::connect(fd, (&raw const address).cast(), size) }) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        _ => Ok(stream),
    }
}

/// Wakes this thread from a timed wait at the time asked, not up to 50 us later.
pub(crate) fn wake_exactly() -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) }).map(drop)
}

/// Puts this thread before all that are not real-time ones (`SCHED_FIFO`); 1 is the lowest priority. Needs a privilege.
pub(crate) fn become_real_time(priority: i32) -> io::Result<()> {
    // SAFETY: a sched_param is a plain number (and padding on some systems), for which all zeros is valid.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: `param` lives through the call; 0 is this thread.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &param) }).map(drop)
}

/// A clock that only goes on, since some moment.
pub(crate) fn monotonic() -> Duration {
    clock(libc::CLOCK_MONOTONIC)
}

/// What this thread has used of its core.
pub(crate) fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing through the call. These clocks are always there; were one not, it would stay 0.
    unsafe { libc::clock_gettime(clock, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Sleeps until [`monotonic`] says so much.
pub(crate) fn sleep_until(at: Duration) {
    let time = libc::timespec { tv_sec: at.as_secs() as libc::time_t, tv_nsec: libc::c_long::from(at.subsec_nanos()) };
    let none = std::ptr::null_mut();
    // SAFETY: `time` lives through the call; what is left of a time that is not relative is not written.
    while unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &time, none) } == libc::EINTR {}
}

/// Raises the number of open files to the hard limit and returns it.
pub(crate) fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writing through the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: `limit` is valid for reading through the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(limit.rlim_cur)
}

/// Makes the receive buffer of a socket as large as is allowed, up to `bytes`. One that stays small only loses more.
pub(crate) fn enlarge_receive_buffer(socket: &UdpSocket, bytes: usize) {
    let size = bytes as libc::c_int;
    for option in [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF] {
        // SAFETY: `size` lives through the call, and its length is passed with it.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                std::ptr::from_ref(&size).cast(),
                std::mem::size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result == 0 {
            return;
        }
    }
}

/// Clock ticks a second, the unit of the CPU times in `/proc/PID/stat`.
pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: takes no pointers.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100)
}

/// Bytes of a page of memory.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: takes no pointers.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// Sends a signal to the process group that `pid` heads. A group that has gone is no error.
pub(crate) fn signal_group(pid: u32, signal: i32) {
    if let Ok(pid) = libc::pid_t::try_from(pid)
        && pid > 1
    {
        // SAFETY: takes no pointers; `pid` is a group that the lab created, never 0 or 1.
        unsafe { libc::kill(-pid, signal) };
    }
}

/// Sends a signal to one process of a group that the lab created. One that has gone is no error.
pub(crate) fn signal_process(pid: u32, signal: i32) {
    if let Ok(pid) = libc::pid_t::try_from(pid)
        && pid > 1
    {
        // SAFETY: takes no pointers; `pid` is a single process, never 0, 1 or a group.
        unsafe { libc::kill(pid, signal) };
    }
}

/// From now on processes whose parents have ended become children of the lab, so that what they use counts as its own.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as libc::c_ulong) }).map(drop)
}

extern "C" fn on_interrupt(_signal: libc::c_int) {
    // A second Ctrl-C finds the flag set already; the way out takes below a second.
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// From now on Ctrl-C and SIGTERM only set a flag, so that the children can be ended in order.
pub(crate) fn catch_interrupts() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the function given only stores to an atomic, which is async-signal-safe.
        unsafe { libc::signal(signal, on_interrupt as *const () as libc::sighandler_t) };
    }
}

/// Whether Ctrl-C was pressed.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}
