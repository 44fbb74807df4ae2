//! A look for a file: threads beside the worker do it, and the exchange waits for a while.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use model::Fault;
use plan::cache::{DiskAsk, DiskRead};
use plan::filter::{FileAsk, FileFound};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::connection::Connection;
use crate::disk_cache;
use crate::file_system;

/// Lookups that run or wait at once, over all workers.
const LOOKS_MAX: usize = 16_384;
/// How long an exchange waits for one.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for a stored response, which an endpoint can give, too.
const CACHE_PATIENCE: Duration = Duration::from_secs(1);

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
struct Look<T>(JoinHandle<T>);

impl<T> Drop for Look<T> {
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
    let looked = look(move || file_system::find(&ask), connection, PATIENCE).await?;
    Ok(looked.unwrap_or_else(|none| match none {
        NoLook::Busy => FileFound::Busy,
        NoLook::Failed => FileFound::Failed,
    }))
}

/// Waits until a stored response is read.
///
/// # Errors
/// As [`found`].
pub(super) async fn cached(ask: DiskAsk, connection: &mut Connection) -> Result<DiskRead, Fault> {
    let read = look(move || disk_cache::read(&ask), connection, CACHE_PATIENCE).await?;
    Ok(read.unwrap_or(DiskRead::Failed))
}

/// The same for a body that is on its way: its sender watches the client.
pub(crate) async fn read_cached(ask: DiskAsk) -> DiskRead {
    let Some(place) = Place::take() else { return DiskRead::Failed };
    let look = Look(spawn_blocking(move || {
        let _place = place;
        disk_cache::read(&ask)
    }));
    match tokio::time::timeout(CACHE_PATIENCE, async move {
        let mut look = look;
        poll_fn(|cx| Pin::new(&mut look.0).poll(cx)).await
    })
    .await
    {
        Ok(Ok(read)) => read,
        Ok(Err(_)) | Err(_) => DiskRead::Failed,
    }
}

/// Why there is nothing to be told.
enum NoLook {
    /// Too many look, or the disk takes too long.
    Busy,
    /// The look has panicked.
    Failed,
}

async fn look<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
    connection: &mut Connection,
    patience: Duration,
) -> Result<Result<T, NoLook>, Fault> {
    let Some(place) = Place::take() else { return Ok(Err(NoLook::Busy)) };
    let mut look = Look(spawn_blocking(move || {
        let _place = place;
        run()
    }));
    connection.watch.set(Instant::now(), patience);
    poll_fn(|cx| {
        if let Poll::Ready(found) = Pin::new(&mut look.0).poll(cx) {
            return Poll::Ready(Ok(found.map_err(|_| NoLook::Failed)));
        }
        if connection.io.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Fault::ClosedInWait));
        }
        connection.watch.poll(cx).map(|()| match connection.watch.fault(Fault::VerificationFull) {
            Fault::VerificationFull => Ok(Err(NoLook::Busy)),
            fault => Err(fault),
        })
    })
    .await
}
