//! What came of one stream, until its exchange takes it.

use std::task::{Context as TaskContext, Waker};

use bytes::BytesMut;
use model::fields::Fields;

/// What came of a stream, until its exchange takes it. The windows bound it.
pub(super) struct Inbox {
    pub stream: u32,
    pub data: BytesMut,
    pub trailers: Option<Box<Fields>>,
    /// The peer's half has ended in good order.
    pub is_over: bool,
    /// The stream is gone.
    pub is_reset: bool,
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
}

impl Inbox {
    /// Of a stream that was begun; it `ends` with its head if there is no body.
    pub(super) fn new(stream: u32, ends: bool) -> Self {
        Self {
            stream,
            data: BytesMut::new(),
            trailers: None,
            is_over: ends,
            is_reset: false,
            is_shut: false,
            is_waiting: false,
            is_queued: false,
            waker: None,
            is_listening: false,
        }
    }

    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.is_listening)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }

    pub(super) fn listen(&mut self, cx: &TaskContext<'_>) {
        self.is_listening = true;
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }
}
