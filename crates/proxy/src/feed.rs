//! A request's body on its way to the copy of the request: what the original sends is put in, and the copy takes it out as its endpoint
//! can. Neither waits for the other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use model::fields::Fields;
use plan::filter::{Mirror, Tap};

use crate::registry::Registration;

/// Memory that a queue keeps however little it holds; a larger one is cut down when three quarters of it are unused.
const KEPT_BYTES: usize = 64 << 10;

/// What is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// More.
    Open,
    /// Nothing: the body is whole.
    Whole,
    /// Nothing: it is cut short.
    Cut,
}

/// See the module. It belongs to one worker.
pub(crate) struct Feed {
    mirror: Arc<Mirror>,
    /// The copy's: it is ended at once when it is given up.
    registration: Rc<Registration>,
    queue: RefCell<VecDeque<u8>>,
    /// Bytes of the body that were put in. An attempt that sends it again puts in what is beyond.
    seen: Cell<u64>,
    end: Cell<End>,
    /// What is behind the body, once it is whole. A head of HTTP bounds it.
    trailers: RefCell<Option<Box<Fields>>>,
    waker: RefCell<Option<Waker>>,
}

impl Feed {
    /// One for the copy of this registration.
    pub(crate) fn new(mirror: Arc<Mirror>, registration: Rc<Registration>) -> Rc<Self> {
        let (queue, seen, trailers, waker) = <_>::default();
        Rc::new(Self { mirror, registration, queue, seen, end: Cell::new(End::Open), trailers, waker })
    }

    /// Whether the copy cannot become whole any more.
    pub(crate) fn is_cut(&self) -> bool {
        self.end.get() == End::Cut
    }

    /// Takes the trailers, when the body was taken to its end.
    pub(crate) fn take_trailers(&self) -> Option<Box<Fields>> {
        self.trailers.take()
    }

    /// Takes what is here; 0 is the end of the body.
    pub(crate) fn poll_read(&self, cx: &mut TaskContext<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        if !self.is_ready(cx) {
            return Poll::Pending;
        }
        if self.is_cut() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let mut queue = self.queue.borrow_mut();
        let count = queue.read(room)?;
        self.mirror.give_room(count as u64);
        if queue.capacity() > KEPT_BYTES && queue.len() < queue.capacity() / 4 {
            let kept = (queue.len() * 2).max(KEPT_BYTES);
            queue.shrink_to(kept);
        }
        Poll::Ready(Ok(count))
    }

    /// Ready when there is something to take, the end included.
    pub(crate) fn poll_read_ready(&self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        if self.is_ready(cx) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn is_ready(&self, cx: &mut TaskContext<'_>) -> bool {
        if self.end.get() != End::Open || !self.queue.borrow().is_empty() {
            return true;
        }
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        false
    }

    /// Puts in what lies at `from` of the body.
    fn put(&self, from: u64, bytes: &[u8]) {
        let skipped = self.seen.get().saturating_sub(from).min(bytes.len() as u64);
        let bytes = &bytes[skipped as usize..];
        if bytes.is_empty() || self.end.get() != End::Open {
            return;
        }
        let seen = from + skipped;
        let mut queue = self.queue.borrow_mut();
        if !self.mirror.take_room(seen, queue.len() as u64, bytes.len() as u64) {
            drop(queue);
            return self.give_up();
        }
        queue.extend(bytes);
        drop(queue);
        self.seen.set(seen + bytes.len() as u64);
        self.wake();
    }

    fn finish(&self, length: u64, trailers: Option<&Fields>) {
        if self.end.get() == End::Open && self.seen.get() == length {
            self.trailers.replace(trailers.cloned().map(Box::new));
            self.end.set(End::Whole);
            self.wake();
        }
    }

    /// Ends the copy at once, and gives its memory back.
    fn give_up(&self) {
        if self.end.get() == End::Open {
            self.end.set(End::Cut);
            self.empty();
            // Its endpoint may take nothing, so that no task reads here.
            self.registration.cut();
            self.wake();
        }
    }

    fn empty(&self) {
        let queue = self.queue.take();
        self.mirror.give_room(queue.len() as u64);
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.empty();
    }
}

/// The original's side. When the last is dropped before the body is whole, the copy is given up.
pub(crate) struct Source(pub Rc<Feed>);

impl Drop for Source {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Puts in what one attempt of the original sends.
pub(crate) struct FeedTap {
    source: Rc<Source>,
    at: u64,
}

impl FeedTap {
    pub(crate) fn new(source: &Rc<Source>) -> Self {
        Self { source: source.clone(), at: 0 }
    }
}

impl Tap for FeedTap {
    fn see(&mut self, bytes: &[u8]) {
        self.source.0.put(self.at, bytes);
        self.at += bytes.len() as u64;
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        self.source.0.finish(self.at, trailers);
    }
}
