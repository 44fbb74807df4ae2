//! What neither the standard library nor the runtime offers: many datagrams with one system call, the address of ours that each
//! was sent to, and options of sockets.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use model::limits::{DATAGRAM_BYTES_MAX, DATAGRAMS_PER_BATCH_MAX};
use socket2::{SockAddr, SockRef};
pub(crate) use wire::handover::Envelope;

/// Room for the control messages that hold an address and a size.
const CONTROL_BYTES: usize = 96;
/// Datagrams that are given to the kernel as one piece at most: older ones cut one into no more (UDP_MAX_SEGMENTS).
const SEGMENTS_MAX: usize = 64;
/// Datagrams that it gives as one piece at most: newer ones cut one into as many, and a piece from this machine comes uncut.
const JOINED_MAX: usize = 128;
/// Datagrams of a batch at most.
const PLACES_MAX: usize = DATAGRAMS_PER_BATCH_MAX * JOINED_MAX;
/// Largest datagram that is cut out of a larger piece: those that one frame of Ethernet holds. Others may have to be fragmented,
/// which pieces cannot be.
const SEGMENT_BYTES_MAX: usize = 1_452;
/// Largest piece.
const PIECE_BYTES_MAX: usize = 60_000;

/// Errors that are taken at once of what the kernel has kept.
const UNDELIVERED_MAX: usize = 64;

/// A buffer for control messages.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// Where a datagram lies in the room of a batch.
#[derive(Clone, Copy, Default)]
struct Spot {
    start: u32,
    len: u32,
}

/// What was taken at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Datagrams, which are in the places up to here.
    pub count: usize,
    /// There was room for more, so that these are all.
    pub is_all: bool,
}

/// Datagrams that came together. What is never used of its room is no memory but addresses.
pub(crate) struct Batch {
    /// A slot for each message of the kernel, which is one datagram, or several of one client that it has joined.
    room: Box<[u8]>,
    spots: Box<[Spot]>,
    names: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
    /// By slot.
    envelopes: [Option<Envelope>; DATAGRAMS_PER_BATCH_MAX],
    /// The kernel, or a device, does not cut.
    is_uncut: Cell<bool>,
}

impl Batch {
    pub(crate) fn new() -> Self {
        // SAFETY: a storage is plain old data, of which all zeros are a value.
        let name = unsafe { mem::zeroed::<libc::sockaddr_storage>() };
        Self {
            room: vec![0; DATAGRAMS_PER_BATCH_MAX * DATAGRAM_BYTES_MAX].into_boxed_slice(),
            spots: vec![Spot::default(); PLACES_MAX].into_boxed_slice(),
            names: vec![name; DATAGRAMS_PER_BATCH_MAX].into_boxed_slice(),
            controls: vec![Control([0; CONTROL_BYTES]); DATAGRAMS_PER_BATCH_MAX].into_boxed_slice(),
            envelopes: [None; DATAGRAMS_PER_BATCH_MAX],
            is_uncut: Cell::new(false),
        }
    }

    /// Takes what is there without waiting, as one system call can. `is_addressed`: where they come from is to be known, too.
    ///
    /// # Errors
    /// As the kernel says; [`io::ErrorKind::WouldBlock`] when there is nothing.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, is_addressed: bool) -> io::Result<Taken> {
        // SAFETY: both are plain old data, of which all zeros are a value.
        let (mut heads, mut vectors) = unsafe {
            mem::zeroed::<([libc::mmsghdr; DATAGRAMS_PER_BATCH_MAX], [libc::iovec; DATAGRAMS_PER_BATCH_MAX])>()
        };
        let slots = self.room.chunks_exact_mut(DATAGRAM_BYTES_MAX);
        let places = slots.zip(self.names.iter_mut()).zip(self.controls.iter_mut());
        for (((slot, name), control), (head, vector)) in places.zip(heads.iter_mut().zip(&mut vectors)) {
            *vector = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
            let head = &mut head.msg_hdr;
            (head.msg_iov, head.msg_iovlen) = (vector, 1);
            (head.msg_control, head.msg_controllen) = (control.0.as_mut_ptr().cast(), CONTROL_BYTES);
            if is_addressed {
                (head.msg_name, head.msg_namelen) = (ptr::from_mut(name).cast(), size_of_val(name) as libc::socklen_t);
            }
        }
        // SAFETY: `heads` point to vectors, slots, names and controls that nobody else touches before the call is over, each with
        // its own length.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                heads.as_mut_ptr(),
                DATAGRAMS_PER_BATCH_MAX as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        let messages = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        let mut count = 0;
        for (slot, head) in heads.iter().enumerate().take(messages) {
            let told = told(&head.msg_hdr);
            let len = (head.msg_len as usize).min(DATAGRAM_BYTES_MAX);
            count = self.cut(count, slot, (len, told.stride));
            self.envelopes[slot] = if is_addressed {
                let from = address_of(&self.names[slot], head.msg_hdr.msg_namelen);
                from.map(|from| Envelope { from, to: told.to })
            } else {
                None
            };
        }
        Ok(Taken { count, is_all: messages < DATAGRAMS_PER_BATCH_MAX })
    }

    /// Notes the datagrams of a message from this place on, and says which place follows them.
    fn cut(&mut self, mut place: usize, slot: usize, (len, stride): (usize, Option<usize>)) -> usize {
        let stride = stride.filter(|stride| *stride > 0).unwrap_or(len);
        let mut start = 0;
        // One that is empty is a datagram too.
        while start == 0 || start < len {
            let Some(spot) = self.spots.get_mut(place) else { break };
            let own = stride.min(len - start);
            *spot = Spot { start: (slot * DATAGRAM_BYTES_MAX + start) as u32, len: own as u32 };
            place += 1;
            start += own.max(1);
        }
        place
    }

    /// What came in this place.
    pub(crate) fn bytes(&self, place: usize) -> &[u8] {
        let Spot { start, len } = self.spots[place];
        &self.room[start as usize..][..len as usize]
    }

    /// Bytes in these places together.
    pub(crate) fn len_of(&self, places: Range<usize>) -> u64 {
        self.spots[places].iter().map(|spot| u64::from(spot.len)).sum()
    }

    /// Where it came from, if that was asked for.
    pub(crate) fn envelope(&self, place: usize) -> Option<Envelope> {
        self.envelopes[self.spots[place].start as usize / DATAGRAM_BYTES_MAX]
    }

    /// Sends datagrams of the batch on, without waiting: to the peer of the socket, or to where an envelope has come from, and
    /// from the address that it was sent to. Says how many went, at least one.
    ///
    /// # Errors
    /// As the kernel says of the first.
    pub(crate) fn send(
        &self,
        socket: BorrowedFd<'_>,
        places: Range<usize>,
        back: Option<&Envelope>,
    ) -> io::Result<usize> {
        let count = places.len().min(DATAGRAMS_PER_BATCH_MAX);
        let run = self.run(places.clone());
        let places = places.start..places.start + count;
        let name = back.map(|envelope| SockAddr::from(envelope.from));
        let source = back.and_then(|envelope| envelope.to);
        // By far the most frequent, and it needs nothing of what follows.
        if count == 1 && source.is_none() {
            let (socket, bytes) = (SockRef::from(&socket), self.bytes(places.start));
            return name.map_or_else(|| socket.send(bytes), |name| socket.send_to(bytes, &name)).map(|_| 1);
        }
        // Many that are not of one size go by one call all the same.
        if let Some((even, segment)) = run.filter(|(even, _)| *even >= count)
            && let Some(done) =
                self.send_piece(socket, places.start..places.start + even, (name.as_ref(), source, segment))
        {
            return done;
        }
        let (mut control, control_len) = Control::new(source, None);
        // SAFETY: both are plain old data, of which all zeros are a value.
        let (mut heads, mut vectors) = unsafe {
            mem::zeroed::<([libc::mmsghdr; DATAGRAMS_PER_BATCH_MAX], [libc::iovec; DATAGRAMS_PER_BATCH_MAX])>()
        };
        for ((place, head), vector) in places.zip(&mut heads).zip(&mut vectors) {
            let bytes = self.bytes(place);
            // The kernel only reads what it is to send.
            *vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            let head = &mut head.msg_hdr;
            (head.msg_iov, head.msg_iovlen) = (vector, 1);
            if let Some(name) = &name {
                (head.msg_name, head.msg_namelen) = (name.as_ptr().cast_mut().cast(), name.len());
            }
            if control_len > 0 {
                (head.msg_control, head.msg_controllen) = (control.0.as_mut_ptr().cast(), control_len);
            }
        }
        // SAFETY: the first `count` of `heads` point to vectors, bytes, a name and a control message that live until the call is
        // over, each with its own length.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), heads.as_mut_ptr(), count as libc::c_uint, libc::MSG_DONTWAIT as _)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl Batch {
    /// How many of the first of these datagrams are of one size, of which the last may be smaller, and that size: they can go as one
    /// piece, which is cut only as it leaves the machine, so that nearly all of the kernel's work is done once.
    fn run(&self, places: Range<usize>) -> Option<(usize, u16)> {
        let (first, others) = self.spots[places].split_first()?;
        let segment =
            u16::try_from(first.len).ok().filter(|len| (1..=SEGMENT_BYTES_MAX).contains(&usize::from(*len)))?;
        let (mut count, mut vectors, mut before) = (1, 1, first);
        for spot in others {
            let bytes = usize::from(segment) * count + spot.len as usize;
            vectors += usize::from(spot.start != before.start + before.len);
            let fits = bytes <= PIECE_BYTES_MAX && count < SEGMENTS_MAX && vectors <= DATAGRAMS_PER_BATCH_MAX;
            if !fits || spot.len == 0 || spot.len > first.len {
                break;
            }
            count += 1;
            before = spot;
            if spot.len < first.len {
                break;
            }
        }
        (count > 1 && !self.is_uncut.get()).then_some((count, segment))
    }

    /// Sends datagrams as one piece. `None`: it has to be done one by one.
    fn send_piece(
        &self,
        socket: BorrowedFd<'_>,
        places: Range<usize>,
        (name, source, segment): (Option<&SockAddr>, Option<IpAddr>, u16),
    ) -> Option<io::Result<usize>> {
        let (mut control, control_len) = Control::new(source, Some(segment));
        let count = places.len();
        // SAFETY: both are plain old data, of which all zeros are a value.
        let (mut head, mut vectors) =
            unsafe { mem::zeroed::<(libc::msghdr, [libc::iovec; DATAGRAMS_PER_BATCH_MAX])>() };
        let (mut used, mut end) = (0, u32::MAX);
        for spot in &self.spots[places] {
            // What came as one piece goes as one.
            if spot.start == end {
                vectors[used - 1].iov_len += spot.len as usize;
            } else {
                let bytes = &self.room[spot.start as usize..][..spot.len as usize];
                vectors[used] = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
                used += 1;
            }
            end = spot.start + spot.len;
        }
        (head.msg_iov, head.msg_iovlen) = (vectors.as_mut_ptr(), used);
        if let Some(name) = name {
            (head.msg_name, head.msg_namelen) = (name.as_ptr().cast_mut().cast(), name.len());
        }
        (head.msg_control, head.msg_controllen) = (control.0.as_mut_ptr().cast(), control_len);
        // SAFETY: `head` points to `used` vectors of bytes, all within the room, a name and control messages that live until the call
        // is over, each with its own length; the kernel only reads them.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const head, libc::MSG_DONTWAIT) };
        if sent >= 0 {
            return Some(Ok(count));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // The device does not do it (udp(7)), or the kernel is too old.
            Some(libc::EIO | libc::ENOPROTOOPT) => self.is_uncut.set(true),
            // Larger than what the way to this one takes.
            Some(libc::EINVAL | libc::EMSGSIZE) => {}
            _ => return Some(Err(error)),
        }
        None
    }
}

/// Has the kernel tell with each datagram to which address it was sent ([`Envelope::to`]).
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
        let mut control = [Control([0; CONTROL_BYTES]); 4];
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

/// Whether an error that was kept is the word of the network that nobody is there.
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

/// `None`: it is of no family that we know.
fn address_of(name: &libc::sockaddr_storage, len: libc::socklen_t) -> Option<SocketAddr> {
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

/// What control messages tell of a message.
#[derive(Default)]
struct Told {
    /// The address that it was sent to, unless that is the one of a group, from which nobody can answer.
    to: Option<IpAddr>,
    /// It is several datagrams of this size, of which the last may be smaller.
    stride: Option<usize>,
}

fn told(head: &libc::msghdr) -> Told {
    let mut told = Told::default();
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
                    told.to = Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(info.ipi_spec_dst.s_addr))));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = libc::CMSG_DATA(control).cast::<libc::in6_pktinfo>().read_unaligned();
                    told.to = Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr)));
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let stride = libc::CMSG_DATA(control).cast::<libc::c_int>().read_unaligned();
                    told.stride = usize::try_from(stride).ok();
                }
                _ => {}
            }
        }
        // SAFETY: `control` is one of the headers of `head`.
        control = unsafe { libc::CMSG_NXTHDR(head, control) };
    }
    told.to = told.to.filter(|address| !address.is_multicast() && !address.is_unspecified());
    told
}

impl Control {
    /// With the message by which datagrams leave from an address of ours, if one is given, and that by which they are cut out of one
    /// piece; and how long both are.
    fn new(source: Option<IpAddr>, segment: Option<u16>) -> (Self, usize) {
        let (mut control, mut len) = (Self([0; CONTROL_BYTES]), 0);
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

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use super::*;

    /// Takes datagrams until there are so many.
    fn receive(batch: &mut Batch, socket: &UdpSocket, wanted: usize) -> Vec<(Vec<u8>, Option<Envelope>)> {
        let (mut taken, end) = (Vec::new(), Instant::now() + Duration::from_secs(30));
        while taken.len() < wanted {
            assert!(Instant::now() < end, "{} of {wanted}", taken.len());
            match batch.receive(socket.as_fd(), true) {
                Ok(some) => {
                    taken.extend((0..some.count).map(|place| (batch.bytes(place).to_vec(), batch.envelope(place))))
                }
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        taken
    }

    #[test]
    fn datagrams_keep_their_order_their_bounds_and_where_they_came_from() {
        let (here, there) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let sent: Vec<Vec<u8>> = [0, 1, 1_500, 65_507, 3].into_iter().map(|len| vec![len as u8; len]).collect();
        let mut batch = Batch::new();
        for bytes in &sent {
            there.send_to(bytes, here.local_addr().unwrap()).unwrap();
        }
        let envelope = Some(Envelope { from: there.local_addr().unwrap(), to: None });
        let taken = receive(&mut batch, &here, sent.len());
        assert!(taken.iter().map(|(bytes, _)| bytes).eq(&sent));
        assert!(taken.iter().all(|(_, from)| *from == envelope));
        let nothing = batch.receive(here.as_fd(), true).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_is_sent_back_leaves_from_the_address_that_was_asked() {
        for (any, ours) in [("0.0.0.0:0", "127.0.0.3"), ("[::]:0", "::1")] {
            let Ok(here) = UdpSocket::bind(any) else { continue };
            let ours: IpAddr = ours.parse().unwrap();
            tell_destinations(here.as_fd(), ours.is_ipv4()).unwrap();
            let port = here.local_addr().unwrap().port();
            // A machine may be without IPv6.
            let Ok(there) = UdpSocket::bind((if ours.is_ipv4() { "127.0.0.1" } else { "::1" }, 0)) else { continue };
            there.connect((ours, port)).unwrap();
            let mut batch = Batch::new();
            for byte in [b'1', b'2', b'3'] {
                there.send(&[byte]).unwrap();
            }
            let mut seen = 0;
            while seen < 3 {
                let Ok(Taken { count, .. }) = batch.receive(here.as_fd(), true) else { continue };
                let envelope = batch.envelope(0).unwrap();
                assert_eq!(envelope, Envelope { from: there.local_addr().unwrap(), to: Some(ours) });
                assert_eq!(batch.send(here.as_fd(), 0..count, Some(&envelope)).unwrap(), count);
                seen += count;
            }
            there.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let mut room = [0; 8];
            for byte in [b'1', b'2', b'3'] {
                // It is connected, so it takes nothing from another address.
                assert_eq!((there.recv(&mut room).unwrap(), room[0]), (1, byte));
            }
        }
    }

    #[test]
    fn only_datagrams_of_one_size_go_as_one_piece_and_the_last_may_be_smaller() {
        let mut batch = Batch::new();
        let mut run = |lens: &[usize]| {
            let mut start = 0;
            for (spot, len) in batch.spots.iter_mut().zip(lens) {
                *spot = Spot { start, len: *len as u32 };
                // Each by itself.
                start += *len as u32 + 1;
            }
            batch.run(0..lens.len())
        };
        assert_eq!(
            (run(&[700, 700, 700]), run(&[700, 700, 1]), run(&[9, 9])),
            (Some((3, 700)), Some((3, 700)), Some((2, 9)))
        );
        assert_eq!((run(&[700, 699, 700]), run(&[9; 20])), (Some((2, 700)), Some((16, 9))));
        assert_eq!(run(&[SEGMENT_BYTES_MAX; 16]), Some((16, SEGMENT_BYTES_MAX as u16)));
        for lens in [&[][..], &[700], &[700, 701], &[0, 0], &[5, 0], &[SEGMENT_BYTES_MAX + 1; 2]] {
            assert_eq!(run(lens), None, "{lens:?}");
        }
        let count = batch.cut(0, 3, (100 * 9 + 4, Some(9)));
        assert_eq!((count, batch.run(0..count), batch.run(90..count)), (101, Some((64, 9)), Some((11, 9))));
        batch.is_uncut.set(true);
        assert_eq!(batch.run(0..count), None);
    }

    #[test]
    fn datagrams_that_the_kernel_has_joined_are_cut_again_and_may_go_on_as_one_piece() {
        let any = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let (near, middle, far) = (any(), any(), any());
        near.connect(middle.local_addr().unwrap()).unwrap();
        for socket in [&middle, &far] {
            join(socket.as_fd());
        }
        let (mut batch, len) = (Batch::new(), 40 * 1_000 + 7);
        for (place, byte) in batch.room[..len].iter_mut().enumerate() {
            *byte = (place / 1_000) as u8;
        }
        let count = batch.cut(0, 0, (len, Some(1_000)));
        assert_eq!((count, batch.bytes(39), batch.bytes(40)), (41, &[39; 1_000][..], &[40; 7][..]));
        let hops = [(&near, &middle, None), (&middle, &far, Some(far.local_addr().unwrap()))];
        for (from, to, address) in hops {
            let envelope = address.map(|from| Envelope { from, to: None });
            let sent = batch.send(from.as_fd(), 0..41, envelope.as_ref()).unwrap();
            let is_joined = get(to.as_fd(), (libc::SOL_UDP, libc::UDP_GRO)).is_ok_and(|on| on == 1);
            let mut fresh = Batch::new();
            let taken = receive(&mut fresh, to, sent);
            let envelope = Some(Envelope { from: from.local_addr().unwrap(), to: None });
            for (place, (bytes, came)) in taken.iter().enumerate() {
                assert_eq!((bytes.as_slice(), *came), (batch.bytes(place), envelope));
            }
            if sent < 41 || !is_joined {
                // This kernel does neither.
                return;
            }
            assert_eq!(fresh.bytes(40), [40; 7], "all of them have come at once");
            batch = fresh;
        }
    }

    #[test]
    fn a_piece_is_cut_into_datagrams_whatever_is_said_of_it() {
        let mut batch = Batch::new();
        for (len, stride, wanted) in [
            (0, None, &[0][..]),
            (0, Some(9), &[0]),
            (5, None, &[5]),
            (5, Some(0), &[5]),
            (5, Some(9), &[5]),
            (5, Some(5), &[5]),
            (5, Some(2), &[2, 2, 1]),
        ] {
            let end = batch.cut(7, 2, (len, stride));
            let lens: Vec<_> = (7..end).map(|place| batch.bytes(place).len()).collect();
            assert_eq!(lens, wanted, "{len} by {stride:?}");
        }
        // More than there is room for cannot come, and is not believed.
        assert_eq!(batch.cut(0, 0, (DATAGRAM_BYTES_MAX, Some(1))), PLACES_MAX);
    }

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

    #[test]
    fn a_socket_with_a_peer_sends_many_at_once() {
        let (here, there) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        there.connect(here.local_addr().unwrap()).unwrap();
        here.connect(there.local_addr().unwrap()).unwrap();
        let mut batch = Batch::new();
        for byte in 0..5 {
            there.send(&[byte; 9]).unwrap();
        }
        let mut back = 0;
        while back < 5 {
            let Ok(Taken { count, .. }) = batch.receive(here.as_fd(), false) else { continue };
            assert!(batch.envelope(0).is_none());
            back += batch.send(here.as_fd(), 0..count, None).unwrap();
        }
        let taken = receive(&mut batch, &there, 5);
        assert!(taken.iter().map(|(bytes, _)| bytes.as_slice()).eq((0..5).map(|byte| [byte; 9])));
    }
}
