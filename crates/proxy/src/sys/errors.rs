//! The error queue of a socket: what the network says of datagrams that did not arrive.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::control::{Control, address_of};
use super::options::set;

/// Errors that are taken at once of what the kernel has kept.
const UNDELIVERED_MAX: usize = 64;

/// Has the kernel keep what the network says of datagrams that did not arrive, for [`undelivered`].
///
/// # Errors
/// As the kernel says.
pub(crate) fn tell_undelivered(socket: BorrowedFd<'_>, is_v4: bool) -> io::Result<()> {
    let (level, name) = match is_v4 {
        true => (libc::IPPROTO_IP, libc::IP_RECVERR),
        false => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    set(socket, (level, name), 1)
}

/// Takes what the kernel has kept, and calls `told` with each address of which the network says that nobody is there (ICMP).
pub(crate) fn undelivered(socket: BorrowedFd<'_>, mut told: impl FnMut(SocketAddr)) {
    for _ in 0..UNDELIVERED_MAX {
        // SAFETY: both are plain old data, of which all zeros are a value.
        let (mut name, mut head) = unsafe { (mem::zeroed::<libc::sockaddr_storage>(), mem::zeroed::<libc::msghdr>()) };
        let mut control = [Control::EMPTY; 4];
        head.msg_name = ptr::from_mut(&mut name).cast();
        head.msg_namelen = size_of_val(&name) as libc::socklen_t;
        head.msg_control = control.as_mut_ptr().cast();
        head.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: all that `head` points to lives until the call is over, and the lengths are their own.
        if unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut head, flags) } < 0 {
            return;
        }
        if is_unreachable(&head)
            && let Some(address) = address_of(&name, head.msg_namelen)
        {
            told(address);
        }
    }
}

/// Returns whether a stored error reports the peer as unreachable.
fn is_unreachable(head: &libc::msghdr) -> bool {
    // SAFETY: the kernel has filled in the control messages of `head` and their length.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(head) };
    while !control.is_null() {
        // SAFETY: it is not null, so it points to a whole header within the control messages.
        let kind = unsafe { ((*control).cmsg_level, (*control).cmsg_type) };
        if matches!(kind, (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)) {
            // SAFETY: what lies behind a header of this kind is such an error. It may lie anywhere.
            let error = unsafe { libc::CMSG_DATA(control).cast::<libc::sock_extended_err>().read_unaligned() };
            let is_told = matches!(error.ee_origin, libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6);
            let errors = [libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::ENETUNREACH];
            return is_told && errors.iter().any(|known| *known as u32 == error.ee_errno);
        }
        // SAFETY: `control` is one of the headers of `head`.
        control = unsafe { libc::CMSG_NXTHDR(head, control) };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_there_is_told_of() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            // Not everywhere is IPv6.
            let Ok(nobody) = std::net::UdpSocket::bind(any).and_then(|closed| closed.local_addr()) else { continue };
            let socket = std::net::UdpSocket::bind(any).unwrap();
            tell_undelivered(std::os::fd::AsFd::as_fd(&socket), nobody.is_ipv4()).unwrap();
            socket.send_to(b"hello", nobody).unwrap();
            // The error comes with the next call.
            socket.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
            assert!(socket.recv(&mut [0; 9]).is_err());
            let mut told = Vec::new();
            undelivered(std::os::fd::AsFd::as_fd(&socket), |address| told.push(address));
            assert_eq!(told, [nobody]);
        }
    }
}
