//! Threads with a runtime of their own, for what plays the part of other machines.

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

/// A thread that lives as long as this.
pub(super) struct Running<T> {
    /// What it started.
    pub(super) value: T,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a thread, and on it `start`, whose tasks run until the result is dropped.
///
/// # Errors
/// What the system, or `start`, says against it.
pub(super) fn run<T, F>(name: &str, start: impl FnOnce() -> F + Send + 'static) -> io::Result<Running<T>>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>>,
{
    let (started, has_started) = mpsc::channel();
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
        let failed = started.clone();
        let ran = block_on(async move {
            // The other side waits for this message.
            let _ = started.send(start().await);
            let _: Result<(), _> = stopped.await;
        });
        if let Err(error) = ran {
            let _ = failed.send(Err(error));
        }
    })?;
    let value = has_started.recv().map_err(io::Error::other)??;
    Ok(Running { value, stop: Some(stop), thread: Some(thread) })
}

/// Runs a future to its end on this thread.
///
/// # Errors
/// There is no runtime to be had.
pub(super) fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the thread.
            let _ = thread.join();
        }
    }
}
