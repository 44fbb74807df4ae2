//! The few system calls that the standard library does not offer, and what `/proc` says of a process.
#![allow(unsafe_code, reason = "kill(2), setsockopt(2) and listen(2) have no safe form in std")]

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

/// Sends a signal to a process that this test started.
pub(crate) fn signal(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).expect("a process id");
    // SAFETY: kill takes two integers and touches no memory of ours.
    let result = unsafe { libc::kill(pid, signal) };
    assert_eq!(result, 0, "kill({pid}, {signal}): {}", std::io::Error::last_os_error());
}

/// Ends a process at once that works in this folder, which is a test's own: another may have its number by now.
pub(crate) fn kill_ours(pid: u32, folder: &std::path::Path) {
    if std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|found| found == folder) {
        let pid = i32::try_from(pid).expect("a process id");
        // SAFETY: kill takes two integers and touches no memory of ours.
        let _ = unsafe { libc::kill(pid, libc::SIGKILL) };
    }
}

/// Has the kernel forget what it has in memory of a file, as far as it can.
pub(crate) fn forget_pages(file: &std::fs::File) {
    file.sync_all().expect("our file");
    // SAFETY: it takes integers and touches no memory of ours.
    let result = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(result, 0, "posix_fadvise");
}

/// Makes a file that is read while it is written.
pub(crate) fn pipe_at(path: &std::path::Path) {
    let name = std::ffi::CString::new(path.to_str().expect("a path in UTF-8")).expect("no zeros");
    // SAFETY: the name is a text that ends with a zero, and lives as long as the call.
    let result = unsafe { libc::mkfifo(name.as_ptr(), 0o600) };
    assert_eq!(result, 0, "mkfifo: {}", std::io::Error::last_os_error());
}

/// Gives a command these descriptors as 3, 4 and so on.
pub(crate) fn pass(command: &mut std::process::Command, descriptors: Vec<std::os::fd::OwnedFd>) {
    use std::os::unix::process::CommandExt;
    // Beyond those that they are to be: none is overwritten before it is copied.
    let high = |socket: &std::os::fd::OwnedFd| {
        // SAFETY: fcntl takes integers and touches no memory of ours.
        unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 100) }
    };
    let numbers: Vec<i32> = descriptors.iter().map(high).collect();
    let give = move || {
        for (number, place) in numbers.iter().zip(3..) {
            // SAFETY: dup2 takes integers, touches no memory of ours, and may be called between fork and exec.
            if unsafe { libc::dup2(*number, place) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: what is called between fork and exec allocates nothing and takes no lock.
    unsafe { command.pre_exec(give) };
}

/// Closes a connection with RST instead of FIN.
pub(crate) fn reset(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    set_option(stream, libc::SO_LINGER, &linger);
}

/// Sets the size of the kernel's receive buffer, and switches its growth off.
pub(crate) fn set_receive_buffer(stream: &TcpStream, bytes: i32) {
    set_option(stream, libc::SO_RCVBUF, &bytes);
}

fn set_option<T>(stream: &TcpStream, option: i32, value: &T) {
    let size = libc::socklen_t::try_from(size_of::<T>()).expect("a small option");
    // SAFETY: the pointer and size describe `value`, which outlives the call; the descriptor is open.
    let result = unsafe {
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, option, std::ptr::from_ref(value).cast(), size)
    };
    assert_eq!(result, 0, "setsockopt: {}", std::io::Error::last_os_error());
}

/// Shrinks the queue of connections that a listener holds unaccepted.
pub(crate) fn set_backlog(listener: &TcpListener, connections: i32) {
    // SAFETY: listen takes two integers; calling it again on a listening socket changes its backlog (listen(2)).
    let result = unsafe { libc::listen(listener.as_raw_fd(), connections) };
    assert_eq!(result, 0, "listen: {}", std::io::Error::last_os_error());
}

/// Connects from this address of our own.
pub(crate) fn connect_from(source: IpAddr, address: SocketAddr) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    socket.bind(&SocketAddr::new(source, 0).into()).expect("our address");
    socket.connect(&address.into()).expect("it listens");
    socket.into()
}

/// Resident memory of a process, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// The most resident memory that a process ever had, in bytes.
pub(crate) fn resident_bytes_max(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let line = status.lines().find(|line| line.starts_with(figure)).expect("the figure");
    let kib: u64 = line.split_whitespace().nth(1).expect("a figure").parse().expect("a number");
    kib * 1024
}

/// The sockets of a process: another that has one of them got it from there.
pub(crate) fn sockets(pid: u32) -> std::collections::HashSet<std::path::PathBuf> {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return <_>::default() };
    let targets = descriptors.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).collect()
}

/// The variables that the program of a process was started with.
pub(crate) fn variables(pid: u32) -> String {
    String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()).into_owned()
}

/// Open descriptors of a process.
pub(crate) fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process lives").count()
}
