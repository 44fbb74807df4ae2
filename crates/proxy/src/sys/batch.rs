//! Many datagrams with one system call.

use std::cell::Cell;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use model::limits::{DATAGRAM_BYTES_MAX, DATAGRAMS_PER_BATCH_MAX};
use socket2::{SockAddr, SockRef};

use super::Envelope;
use super::control::{Control, address_of, received};

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
            controls: vec![Control::EMPTY; DATAGRAMS_PER_BATCH_MAX].into_boxed_slice(),
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
            let room = control.room();
            (head.msg_control, head.msg_controllen) = (room.as_mut_ptr().cast(), room.len());
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
            let control = received(&head.msg_hdr);
            let len = (head.msg_len as usize).min(DATAGRAM_BYTES_MAX);
            count = self.cut(count, slot, (len, control.stride));
            self.envelopes[slot] = if is_addressed {
                let from = address_of(&self.names[slot], head.msg_hdr.msg_namelen);
                from.map(|from| Envelope { from, to: control.to })
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

    /// Returns what came in this place.
    pub(crate) fn bytes(&self, place: usize) -> &[u8] {
        let Spot { start, len } = self.spots[place];
        &self.room[start as usize..][..len as usize]
    }

    /// Returns the bytes in these places together.
    pub(crate) fn len_of(&self, places: Range<usize>) -> u64 {
        self.spots[places].iter().map(|spot| u64::from(spot.len)).sum()
    }

    /// Returns where it came from, if that was asked for.
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
                (head.msg_control, head.msg_controllen) = (control.room().as_mut_ptr().cast(), control_len);
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
    /// Returns how many of the first of these datagrams are of one size, of which the last may be smaller, and that size: they can go as
    /// one piece, which is cut only as it leaves the machine, so that nearly all of the kernel's work is done once.
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
        (head.msg_control, head.msg_controllen) = (control.room().as_mut_ptr().cast(), control_len);
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

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::sys::{get, join, tell_destinations};

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
