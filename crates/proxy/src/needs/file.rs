//! A look for a file: threads beside the worker do it, and the exchange waits for a while.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use model::Fault;
use plan::filter::{FileAsk, FileFound};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::connection::Connection;
use crate::file_system;

/// Lookups that run or wait at once, over all workers.
const LOOKS_MAX: usize = 16_384;
/// How long an exchange waits for one.
const PATIENCE: Duration = Duration::from_secs(10);

static LOOKS: AtomicUsize = AtomicUsize::new(0);

/// One look among those that are bounded. It counts until its job is over, or is left out: a disk that hangs holds all that wait for it.
struct Place;

impl Place {
    fn take() -> Option<Self> {
        if LOOKS.fetch_add(1, Ordering::Relaxed) < LOOKS_MAX {
            return Some(Self);
        }
        LOOKS.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        LOOKS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A job that is left out if nobody waits for it any more and it has not begun.
struct Look(JoinHandle<FileFound>);

impl Drop for Look {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits until it is known what is there.
///
/// # Errors
/// The client has gone; the time of the whole exchange is over.
pub(super) async fn found(ask: FileAsk, connection: &mut Connection) -> Result<FileFound, Fault> {
    // What is in memory is not worth a hop to another thread and back.
    if let Some(found) = file_system::find_now(&ask) {
        return Ok(found);
    }
    let Some(place) = Place::take() else { return Ok(FileFound::Busy) };
    let mut look = Look(spawn_blocking(move || {
        let _place = place;
        file_system::find(&ask)
    }));
    connection.watch.set(Instant::now(), PATIENCE);
    poll_fn(|cx| {
        if let Poll::Ready(found) = Pin::new(&mut look.0).poll(cx) {
            return Poll::Ready(Ok(found.unwrap_or(FileFound::Failed)));
        }
        if connection.io.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Fault::ClosedInWait));
        }
        connection.watch.poll(cx).map(|()| match connection.watch.fault(Fault::VerificationFull) {
            Fault::VerificationFull => Ok(FileFound::Busy),
            fault => Err(fault),
        })
    })
    .await
}
