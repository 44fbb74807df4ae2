//! What both processes of an upgrade say to each other by: frames over a Unix socket that only they have, with descriptors.
//! [`FrameHead`] tells how they look. Descriptors go with bytes of their own (`SCM_RIGHTS`, unix(7)), so that plain reading
//! never meets them.
#![allow(unsafe_code)]

use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

pub(crate) use proxy::handover::Kind;
use proxy::handover::{FrameHead, HEAD_BYTES};

/// Descriptors that go at once; the kernel takes 253.
const BATCH_MAX: usize = 128;
/// A body is taken in pieces of this size: no one is given memory for what only its head says.
const PIECE_BYTES: usize = 256 << 10;

/// One that came.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) body: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// One end.
#[derive(Debug)]
pub(crate) struct Channel(UnixStream);

impl Channel {
    /// Returns both ends.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn pair() -> io::Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((Self(ours), theirs))
    }

    #[cfg(test)]
    pub(crate) fn of(end: UnixStream) -> Self {
        Self(end)
    }

    /// Returns the end that another process has left open for this one.
    ///
    /// # Errors
    /// There is no such descriptor, or it is no socket.
    pub(crate) fn inherited(number: RawFd) -> io::Result<Self> {
        // SAFETY: no memory is involved; a number that is no open descriptor is answered with an error.
        if number <= 2 || unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no such descriptor"));
        }
        // SAFETY: it is open, and the process that started this one left it for this alone: nothing else here knows of it.
        let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(number) });
        // Says so if it is no Unix socket.
        stream.peer_addr()?;
        Ok(Self(stream))
    }

    /// Limits the time that each call may take without progress.
    pub(crate) fn set_patience(&self, patience: Duration) -> io::Result<()> {
        let patience = patience.max(Duration::from_millis(1));
        self.0.set_write_timeout(Some(patience))?;
        self.0.set_read_timeout(Some(patience))
    }

    /// Returns the same end once more.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Ends it for both sides, anyone who has a clone of it.
    pub(crate) fn shut(&self) {
        // It may be over already.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }

    /// Says something.
    ///
    /// # Errors
    /// The other side is gone, or does not take it in time.
    pub(crate) fn send(&self, kind: Kind, body: &[u8], descriptors: &[OwnedFd]) -> io::Result<()> {
        let too_much = |_| io::Error::new(io::ErrorKind::InvalidInput, "more than a frame can hold");
        let body_bytes = u32::try_from(body.len()).map_err(too_much)?;
        let count = u16::try_from(descriptors.len()).map_err(too_much)?;
        (&self.0).write_all(&FrameHead { kind, body_bytes, descriptors: count }.write())?;
        (&self.0).write_all(body)?;
        for batch in descriptors.chunks(BATCH_MAX) {
            let batch: Vec<BorrowedFd<'_>> = batch.iter().map(AsFd::as_fd).collect();
            send_descriptors(self.0.as_fd(), &batch)?;
        }
        Ok(())
    }

    /// Waits for what the other side says, until `deadline`.
    ///
    /// # Errors
    /// The other side is gone, says nothing in time, or says what is no frame.
    pub(crate) fn receive(&self, deadline: Instant) -> io::Result<Frame> {
        let mut head = [0; HEAD_BYTES];
        self.read(&mut head, deadline)?;
        let FrameHead { kind, body_bytes, descriptors: count } = FrameHead::read(head).map_err(invalid)?;
        let (length, count) = (body_bytes as usize, usize::from(count));
        let mut body = Vec::new();
        while body.len() < length {
            let from = body.len();
            body.resize(length.min(from + PIECE_BYTES), 0);
            self.read(&mut body[from..], deadline)?;
        }
        let mut descriptors = Vec::new();
        while descriptors.len() < count {
            let expected = (count - descriptors.len()).min(BATCH_MAX);
            let batch = self.within(deadline, || receive_descriptors(self.0.as_fd()))?;
            if batch.len() != expected {
                return Err(invalid("descriptors were lost on the way: are there too many open files?"));
            }
            descriptors.extend(batch);
        }
        Ok(Frame { kind, body, descriptors })
    }

    fn read(&self, into: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            match self.within(deadline, || (&self.0).read(&mut into[done..])) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads once. A signal does not end it: with a bound on the time, the kernel does not go on by itself (signal(7)).
    fn within<T>(&self, deadline: Instant, mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.0.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match read() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                other => return other,
            }
        }
    }
}

/// Lets the processes that are started from now on have a descriptor.
///
/// # Errors
/// What the system says.
pub(crate) fn keep_on_exec(descriptor: &OwnedFd) -> io::Result<()> {
    // SAFETY: no memory is involved, and the descriptor is open as long as it is borrowed.
    match unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Room for the one control message with all descriptors of a batch, aligned as its header must be.
#[repr(C, align(8))]
struct Room([u8; 16 + 4 * BATCH_MAX + 8]);

fn send_descriptors(socket: BorrowedFd<'_>, batch: &[BorrowedFd<'_>]) -> io::Result<()> {
    let numbers: Vec<RawFd> = batch.iter().map(AsRawFd::as_raw_fd).collect();
    let bytes = mem::size_of_val(&numbers[..]);
    let mut room = Room([0; mem::size_of::<Room>()]);
    let mut byte = 0_u8;
    let mut vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: a head is plain old data, of which all zeros are a value.
    let mut head: libc::msghdr = unsafe { mem::zeroed() };
    (head.msg_iov, head.msg_iovlen) = (&raw mut vector, 1);
    head.msg_control = room.0.as_mut_ptr().cast();
    // SAFETY: it only computes; a batch is at most `BATCH_MAX`, for which there is room.
    head.msg_controllen = unsafe { libc::CMSG_SPACE(bytes as u32) } as _;
    // SAFETY: the control messages have room for one header and `bytes` of data, and are aligned for a header.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const head);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(bytes as u32) as _;
        std::ptr::copy_nonoverlapping(numbers.as_ptr().cast::<u8>(), libc::CMSG_DATA(message), bytes);
    }
    loop {
        // SAFETY: `head` points to a vector, a byte and control messages that live until the call is over.
        if unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const head, libc::MSG_NOSIGNAL) } == 1 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn receive_descriptors(socket: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut room = Room([0; mem::size_of::<Room>()]);
    let mut byte = 0_u8;
    let mut vector = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: a head is plain old data, of which all zeros are a value.
    let mut head: libc::msghdr = unsafe { mem::zeroed() };
    (head.msg_iov, head.msg_iovlen) = (&raw mut vector, 1);
    (head.msg_control, head.msg_controllen) = (room.0.as_mut_ptr().cast(), mem::size_of::<Room>() as _);
    // SAFETY: `head` points to a vector, a byte and room for control messages that live until the call is over.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut head, libc::MSG_CMSG_CLOEXEC) };
    match received {
        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
        1.. => {}
        _ => return Err(io::Error::last_os_error()),
    }
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has filled in the control messages of `head` and their length.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const head) };
    while !message.is_null() {
        // SAFETY: it is not null, so it points to a whole header within the control messages.
        let (level, kind, length) = unsafe { ((*message).cmsg_level, (*message).cmsg_type, (*message).cmsg_len) };
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            // SAFETY: it only computes.
            let bytes = (length as u64 as usize).saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
            for place in 0..bytes / mem::size_of::<RawFd>() {
                // SAFETY: behind the header lie that many numbers, each an open descriptor that is this process's from now on.
                descriptors.push(unsafe {
                    OwnedFd::from_raw_fd(libc::CMSG_DATA(message).cast::<RawFd>().add(place).read_unaligned())
                });
            }
        }
        // SAFETY: `message` is one of the headers of `head`.
        message = unsafe { libc::CMSG_NXTHDR(&raw const head, message) };
    }
    Ok(descriptors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn frames_arrive_whole_with_all_their_descriptors_in_order() {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel(theirs);
        let sender = std::thread::spawn(move || {
            let listeners: Vec<OwnedFd> =
                (0..200).map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into()).collect();
            theirs.send(Kind::Offer, &vec![7; 1 << 20], &listeners).unwrap();
            theirs.send(Kind::Note, b"", &[]).unwrap();
            listeners.into_iter().map(|one| std::net::UdpSocket::from(one).local_addr().unwrap()).collect::<Vec<_>>()
        });
        let frame = ours.receive(soon()).unwrap();
        assert_eq!((frame.kind, frame.body.len(), frame.descriptors.len()), (Kind::Offer, 1 << 20, 200));
        assert_eq!(ours.receive(soon()).unwrap().kind, Kind::Note);
        let sent = sender.join().unwrap();
        let got = frame.descriptors.into_iter().map(|one| std::net::UdpSocket::from(one).local_addr().unwrap());
        assert_eq!(got.collect::<Vec<_>>(), sent);
        assert_eq!(ours.receive(soon()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_no_frame_and_what_does_not_come_is_an_error() {
        let (ours, mut theirs) = Channel::pair().unwrap();
        let error = ours.receive(Instant::now() + Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        theirs.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        assert_eq!(ours.receive(soon()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (ours, mut theirs) = Channel::pair().unwrap();
        theirs.write_all(&[1, 0xff, 0xff, 0xff, 0xff, 0, 0]).unwrap();
        assert_eq!(ours.receive(soon()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(Channel::inherited(-1).is_err() && Channel::inherited(1_000_000).is_err());
    }
}
