//! What came of one stream, until its exchange takes it.

use std::task::{Context as TaskContext, Waker};

use bytes::BytesMut;
use model::fields::Fields;

/// How a stream ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reset {
    /// The peer has reset it, with this code.
    ByPeer(u32),
    /// The peer has broken its rules.
    Broken,
}

/// What came of a stream, until its exchange takes it. The windows bound it.
pub(crate) struct Inbox<X> {
    pub stream: u32,
    pub data: BytesMut,
    pub trailers: Option<Box<Fields>>,
    /// The peer's half has ended in good order.
    pub is_over: bool,
    /// The stream is gone, and how.
    pub reset: Option<Reset>,
    /// It has something to write, and its own window is shut.
    pub is_shut: bool,
    /// It has something to write, and waits for the window of the connection.
    pub is_waiting: bool,
    /// It has something to write, and waits for its turn.
    pub is_queued: bool,
    /// Of the task that carries it.
    pub waker: Option<Waker>,
    /// That has not been woken since it last asked for it.
    pub is_listening: bool,
    /// What only streams of one direction have.
    pub extra: X,
}

impl<X: Default> Inbox<X> {
    /// Of a stream that was begun; the peer's half `ends` with its head if there is no body.
    pub(super) fn new(stream: u32, ends: bool) -> Self {
        Self {
            stream,
            data: BytesMut::new(),
            trailers: None,
            is_over: ends,
            reset: None,
            is_shut: false,
            is_waiting: false,
            is_queued: false,
            waker: None,
            is_listening: false,
            extra: X::default(),
        }
    }
}

impl<X> Inbox<X> {
    /// Wakes the task of the stream, if that waits.
    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.is_listening)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }

    /// Has `cx` woken for what comes next.
    pub(super) fn listen(&mut self, cx: &TaskContext<'_>) {
        self.is_listening = true;
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }
}
