//! Control messages, and addresses as the kernel has them.

use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ptr;

/// Room for the control messages that hold an address and a size.
const CONTROL_BYTES: usize = 96;

/// A buffer for control messages.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct Control([u8; CONTROL_BYTES]);

/// Returns the address, or `None` if its family is unknown.
pub(super) fn address_of(name: &libc::sockaddr_storage, len: libc::socklen_t) -> Option<SocketAddr> {
    let is_whole = |size: usize| len as usize >= size;
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET if is_whole(size_of::<libc::sockaddr_in>()) => {
            // SAFETY: the family and the length say that it is one, and a storage is aligned for all families.
            let v4 = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in>() };
            Some(SocketAddr::from((Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)), u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 if is_whole(size_of::<libc::sockaddr_in6>()) => {
            // SAFETY: as above.
            let v6 = unsafe { &*ptr::from_ref(name).cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// What the control messages of a message say.
#[derive(Default)]
pub(super) struct Received {
    /// The address that it was sent to, unless that is the one of a group, from which nobody can answer.
    pub to: Option<IpAddr>,
    /// It is several datagrams of this size, of which the last may be smaller.
    pub stride: Option<usize>,
}

/// Reads the control messages of a message.
pub(super) fn received(head: &libc::msghdr) -> Received {
    let mut received = Received::default();
    // SAFETY: the kernel has filled in the control messages of `head` and their length.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(head) };
    while !control.is_null() {
        // SAFETY: it is not null, so it points to a whole header within the control messages.
        let (level, kind) = unsafe { ((*control).cmsg_level, (*control).cmsg_type) };
        // SAFETY: as above; what lies behind a header of this kind is such an information, or a number. It may lie anywhere.
        unsafe {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = libc::CMSG_DATA(control).cast::<libc::in_pktinfo>().read_unaligned();
                    received.to = Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr))));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = libc::CMSG_DATA(control).cast::<libc::in6_pktinfo>().read_unaligned();
                    received.to = Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let stride = libc::CMSG_DATA(control).cast::<libc::c_int>().read_unaligned();
                    received.stride = usize::try_from(stride).ok();
                }
                _ => {}
            }
        }
        // SAFETY: `control` is one of the headers of `head`.
        control = unsafe { libc::CMSG_NXTHDR(head, control) };
    }
    received.to = received.to.filter(|address| !address.is_multicast() && !address.is_unspecified());
    received
}

impl Control {
    pub(super) const EMPTY: Self = Self([0; CONTROL_BYTES]);

    /// Returns all of its room, for the kernel to fill in.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.0
    }

    /// With the message by which datagrams leave from an address of ours, if one is given, and that by which they are cut out of one
    /// piece; and how long both are.
    pub(super) fn new(source: Option<IpAddr>, segment: Option<u16>) -> (Self, usize) {
        let (mut control, mut len) = (Self::EMPTY, 0);
        // SAFETY: both are plain old data, of which all zeros are a value.
        let (mut v4, mut v6) = unsafe { mem::zeroed::<(libc::in_pktinfo, libc::in6_pktinfo)>() };
        match source {
            Some(IpAddr::V4(ip)) => {
                v4.ipi_spec_dst.s_addr = u32::from(ip).to_be();
                control.push(&mut len, (libc::IPPROTO_IP, libc::IP_PKTINFO), v4);
            }
            Some(IpAddr::V6(ip)) => {
                v6.ipi6_addr.s6_addr = ip.octets();
                control.push(&mut len, (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO), v6);
            }
            None => {}
        }
        if let Some(segment) = segment {
            control.push(&mut len, (libc::SOL_UDP, libc::UDP_SEGMENT), segment);
        }
        (control, len)
    }

    /// Adds a message behind those of `len` bytes that are there.
    fn push<T: Copy>(&mut self, len: &mut usize, (level, kind): (libc::c_int, libc::c_int), value: T) {
        // SAFETY: no memory is involved.
        let (whole, space) = unsafe {
            (libc::CMSG_LEN(size_of::<T>() as libc::c_uint), libc::CMSG_SPACE(size_of::<T>() as libc::c_uint) as usize)
        };
        let room = &mut self.0[*len..][..space];
        // SAFETY: a header is plain old data, of which all zeros are a value.
        let mut head = unsafe { mem::zeroed::<libc::cmsghdr>() };
        (head.cmsg_len, head.cmsg_level, head.cmsg_type) = (whole as _, level, kind);
        // SAFETY: `room` has the bytes for a header and, behind it, a value with what aligns it, as CMSG_SPACE has said; neither
        // write asks for alignment.
        unsafe {
            room.as_mut_ptr().cast::<libc::cmsghdr>().write_unaligned(head);
            room.as_mut_ptr().add(libc::CMSG_LEN(0) as usize).cast::<T>().write_unaligned(value);
        }
        *len += space;
    }
}
