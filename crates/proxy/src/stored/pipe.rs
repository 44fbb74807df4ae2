//! The body of a slice on its way from the exchange that fetches it to the one that sends it: at most a buffer, so that a slow client
//! slows the endpoint down.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use model::limits::BUFFER_BYTES;

use crate::registry::Registration;

/// How long a slice is fetched on that its client has all of what it wants of.
const LEFT_MAX: Duration = Duration::from_secs(60);
/// The end of the head, which is written as HTTP/1.1 has it.
const HEAD_END: &[u8; 4] = b"\r\n\r\n";

/// See the module. It belongs to one worker.
pub(crate) struct Pipe {
    state: RefCell<State>,
    /// That of the exchange that fetches.
    registration: Rc<Registration>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<u8>,
    /// The cache has found that the response is the slice that was asked for. Until then nothing is taken.
    is_approved: bool,
    /// Bytes of [`HEAD_END`] that have come.
    head_end: usize,
    /// Nothing more comes.
    is_over: bool,
    /// What comes is dropped, since then.
    left: Option<Instant>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    pub(super) fn new(registration: Rc<Registration>) -> Rc<Self> {
        Rc::new(Self { state: RefCell::default(), registration })
    }

    /// Says whether the cache has approved the response that comes next.
    pub(crate) fn approve(&self, is_approved: bool) {
        self.state.borrow_mut().is_approved = is_approved;
    }

    /// Puts in what there is room for. The head is dropped.
    ///
    /// # Errors
    /// It is of a response that was not approved.
    pub(crate) fn poll_write(&self, cx: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state.borrow_mut();
        if !state.is_approved {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut skipped = 0;
        while state.head_end < HEAD_END.len() && skipped < bytes.len() {
            let byte = bytes[skipped];
            // A carriage return may be the first of the end.
            let is_next = byte == HEAD_END[state.head_end];
            state.head_end = if is_next { state.head_end + 1 } else { usize::from(byte == HEAD_END[0]) };
            skipped += 1;
        }
        if skipped > 0 {
            return Poll::Ready(Ok(skipped));
        }
        if state.left.is_some() {
            return Poll::Ready(Ok(bytes.len()));
        }
        let room = BUFFER_BYTES.saturating_sub(state.queue.len()).min(bytes.len());
        if room == 0 {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        state.queue.extend(&bytes[..room]);
        let waker = state.reader.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(room))
    }

    /// Takes what is here; 0 is the end.
    pub(super) fn poll_read(&self, cx: &mut TaskContext<'_>, room: &mut [u8]) -> Poll<usize> {
        let mut state = self.state.borrow_mut();
        if state.queue.is_empty() && !state.is_over {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = state.queue.read(room).unwrap_or(0);
        let waker = state.writer.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Poll::Ready(count)
    }

    /// Nothing more comes.
    pub(super) fn close(&self) {
        let mut state = self.state.borrow_mut();
        state.is_over = true;
        let waker = state.reader.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Ends a fetch that nobody reads for too long.
    pub(super) fn look(&self) {
        let is_late = self.state.borrow().left.is_some_and(|left| left.elapsed() > LEFT_MAX);
        if is_late && !self.registration.is_cut() {
            self.registration.cut();
        }
    }
}

/// The end that is read. When it is dropped, the fetch is ended, unless it was left.
pub(super) struct PipeReader(pub Rc<Pipe>);

impl PipeReader {
    /// Has the rest be fetched for the store alone.
    pub(super) fn leave(&self) {
        let mut state = self.0.state.borrow_mut();
        state.left = Some(Instant::now());
        state.queue = VecDeque::new();
        let waker = state.writer.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        let is_wanted = {
            let state = self.0.state.borrow();
            state.is_over || state.left.is_some()
        };
        if !is_wanted {
            self.0.registration.cut();
        }
    }
}

/// The end that is written. When it is dropped, nothing more comes.
pub(super) struct PipeWriter(pub Rc<Pipe>);

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> Rc<Pipe> {
        let pipe = Pipe::new(Registration::loose());
        pipe.approve(true);
        pipe
    }

    #[test]
    fn a_response_that_was_not_approved_does_not_come_out() {
        let cx = &mut TaskContext::from_waker(Waker::noop());
        let pipe = Pipe::new(Registration::loose());
        assert!(matches!(pipe.poll_write(cx, b"HTTP/1.1 200 OK\r\n\r\nx"), Poll::Ready(Err(_))));
        pipe.approve(true);
        pipe.approve(false);
        assert!(matches!(pipe.poll_write(cx, b"HTTP/1.1 404 Not Found\r\n\r\nx"), Poll::Ready(Err(_))));
        assert!(pipe.poll_read(cx, &mut [0; 8]).is_pending());
        pipe.close();
        assert_eq!(pipe.poll_read(cx, &mut [0; 8]), Poll::Ready(0));
    }

    #[test]
    fn the_head_is_dropped_wherever_it_is_cut() {
        let cx = &mut TaskContext::from_waker(Waker::noop());
        let text = b"HTTP/1.1 206 Partial Content\r\nA: \r\r\n\r\nbody\r\n\r\n";
        for at in 0..text.len() {
            let pipe = pipe();
            for mut part in [&text[..at], &text[at..]] {
                while !part.is_empty() {
                    let Poll::Ready(Ok(count)) = pipe.poll_write(cx, part) else { panic!("there is room") };
                    part = &part[count..];
                }
            }
            let mut room = [0; 64];
            let Poll::Ready(count) = pipe.poll_read(cx, &mut room) else { panic!("it is here") };
            assert_eq!(&room[..count], b"body\r\n\r\n", "{at}");
            assert!(pipe.poll_read(cx, &mut room).is_pending());
            pipe.close();
            assert_eq!(pipe.poll_read(cx, &mut room), Poll::Ready(0));
        }
    }

    #[test]
    fn a_full_pipe_takes_nothing_until_it_is_read_or_left() {
        let cx = &mut TaskContext::from_waker(Waker::noop());
        let pipe = pipe();
        assert!(pipe.poll_write(cx, HEAD_END).is_ready());
        let bytes = vec![1; BUFFER_BYTES + 1];
        assert!(matches!(pipe.poll_write(cx, &bytes), Poll::Ready(Ok(BUFFER_BYTES))));
        assert!(pipe.poll_write(cx, &bytes).is_pending());
        assert_eq!(pipe.poll_read(cx, &mut [0; 10]), Poll::Ready(10));
        assert!(matches!(pipe.poll_write(cx, &bytes), Poll::Ready(Ok(10))));
        let reader = PipeReader(Rc::clone(&pipe));
        reader.leave();
        assert!(matches!(pipe.poll_write(cx, &bytes), Poll::Ready(Ok(count)) if count == bytes.len()));
        drop(reader);
        assert!(!pipe.registration.is_cut(), "it is fetched for the store");
        drop(PipeReader(Rc::clone(&pipe)));
        assert!(!pipe.registration.is_cut());
    }

    #[test]
    fn a_fetch_ends_with_its_reader() {
        let pipe = pipe();
        drop(PipeReader(Rc::clone(&pipe)));
        assert!(pipe.registration.is_cut());
    }
}
