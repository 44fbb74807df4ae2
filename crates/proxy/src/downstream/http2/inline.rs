//! The stream that the task of its connection carries itself.
//!
//! Most connections have one request at a time. A task for it would be made, put in line, looked up, and taken down for one
//! answer, and would wake the connection's own in between. So the first stream is carried by the connection's task, and those
//! that come meanwhile by tasks of their own. The connection's task is then woken for the stream or for the socket, and a
//! [`FlagWaker`](super::waker::FlagWaker) for each tells which, so that neither is asked in vain. Cells `h2-c500` and `h2c-c500` of `lab cost` pay for it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Waker};

use super::waker::FlagWaker;
use crate::registry::Registration;

/// What carries a stream to its end.
pub(super) type Carried = Pin<Box<dyn Future<Output = ()>>>;

/// See the module.
pub(super) struct Inline {
    carried: Option<Carried>,
    /// Set when something has happened to what is carried, or did while it was.
    flag: Arc<FlagWaker>,
    waker: Waker,
    /// That of the connection.
    registration: Rc<Registration>,
}

impl Inline {
    /// Returns a place of the connection that has this task and this registration.
    pub(super) fn new(task: &Waker, registration: Rc<Registration>) -> Self {
        let flag = FlagWaker::new(task);
        Self { carried: None, waker: flag.clone().into(), flag, registration }
    }

    /// Returns whether no stream is carried.
    pub(super) fn is_free(&self) -> bool {
        self.carried.is_none()
    }

    /// Begins to carry a stream.
    pub(super) fn begin(&mut self, stream: Carried) {
        self.carried = Some(stream);
        // It was set for the stream before.
        self.flag.take();
        self.poll();
    }

    /// Returns whether something has happened to the stream that is carried. Then it is to be polled.
    pub(super) fn is_called(&self) -> bool {
        self.carried.is_some() && (self.flag.take() || self.registration.is_cut())
    }

    /// Lets the stream go on.
    pub(super) fn poll(&mut self) {
        if let Some(stream) = &mut self.carried
            && stream.as_mut().poll(&mut TaskContext::from_waker(&self.waker)).is_ready()
        {
            self.carried = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::task::Poll;

    use super::super::waker::testing::Task;
    use super::*;

    #[test]
    fn a_stream_goes_on_when_it_is_called_and_leaves_its_place_when_it_is_over() {
        let task = Arc::new(Task::default());
        let mut inline = Inline::new(&task.clone().into(), Registration::loose());
        assert!(inline.is_free() && !inline.is_called());
        for _ in 0..2 {
            let told = Rc::new(RefCell::new((0, None)));
            let seen = told.clone();
            inline.begin(Box::pin(poll_fn(move |cx| {
                let (turns, waker) = &mut *seen.borrow_mut();
                *turns += 1;
                *waker = Some(cx.waker().clone());
                if *turns < 3 { Poll::Pending } else { Poll::Ready(()) }
            })));
            for turn in 1..3 {
                assert_eq!(told.borrow().0, turn);
                assert!(!inline.is_free() && !inline.is_called());
                let waker = told.borrow().1.clone();
                waker.iter().for_each(Waker::wake_by_ref);
                assert!(inline.is_called());
                inline.poll();
            }
            assert!(inline.is_free());
            // Who holds its waker may still use it.
            told.borrow().1.iter().for_each(Waker::wake_by_ref);
            assert!(!inline.is_called());
        }
        assert_eq!(task.woken(), 6);
    }
}
