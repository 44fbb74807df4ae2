//! Options of sockets.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Has the kernel tell with each datagram to which address it was sent ([`super::Envelope::to`]).
///
/// # Errors
/// As the kernel says.
pub(crate) fn tell_destinations(socket: BorrowedFd<'_>, is_v4: bool) -> io::Result<()> {
    let (level, name) = match is_v4 {
        true => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        false => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    };
    set(socket, (level, name), 1)
}

/// Has the kernel join datagrams that come one after the other from one address, and are of one size, to one piece, which costs it
/// little more than one of them. A batch cuts them again. Nothing is lost where it does not know how.
pub(crate) fn join(socket: BorrowedFd<'_>) {
    let _ = set(socket, (libc::SOL_UDP, libc::UDP_GRO), 1);
}

/// Sets an option that is a number.
///
/// # Errors
/// As the kernel says.
pub(crate) fn set(socket: BorrowedFd<'_>, (level, name): (i32, i32), value: libc::c_int) -> io::Result<()> {
    // SAFETY: the pointer is to a number that lives until the call is over, and the length is its own.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(&value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option that is a number.
///
/// # Errors
/// As the kernel says.
#[cfg(test)]
pub(crate) fn get(socket: BorrowedFd<'_>, (level, name): (i32, i32)) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: both pointers are to values that live until the call is over, and the length is that of the first.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, ptr::from_mut(&mut value).cast(), ptr::from_mut(&mut len))
    };
    if done == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}
