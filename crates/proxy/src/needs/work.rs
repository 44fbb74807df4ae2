//! Work of filters that is too slow for a worker: a few threads do it, in the order in which it came, and workers carry on.
//!
//! The threads are there from the first work on; who has no such filter has none.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use model::Fault;
use plan::filter::Job;
use tokio::sync::oneshot;

use crate::connection::Connection;
use crate::random::Random;

/// Work that waits at once, over all workers.
const WAITING_MAX: usize = 64;
/// How long an exchange waits for its work.
const PATIENCE: Duration = Duration::from_secs(10);
/// One thread for so many cores: hashing must leave most of the machine to the traffic.
const CORES_PER_THREAD: usize = 4;

struct Order {
    job: Job,
    answer: oneshot::Sender<bool>,
}

/// Waits until the work is done, and says what was found.
///
/// # Errors
/// There is too much of it, or it took too long; the client has gone.
pub(crate) async fn done(job: Job, connection: &mut Connection) -> Result<bool, Fault> {
    static ORDERS: OnceLock<Option<SyncSender<Order>>> = OnceLock::new();
    let (answer, found) = oneshot::channel();
    let orders = ORDERS.get_or_init(begin).as_ref().ok_or(Fault::VerificationFull)?;
    orders.try_send(Order { job, answer }).map_err(|_| Fault::VerificationFull)?;
    connection.watch.set(Instant::now(), PATIENCE);
    let mut found = pin!(found);
    poll_fn(|cx| {
        if let Poll::Ready(found) = found.as_mut().poll(cx) {
            return Poll::Ready(found.map_err(|_| Fault::VerificationFull));
        }
        if connection.io.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Fault::ClosedInWait));
        }
        connection.watch.poll(cx).map(|()| Err(connection.watch.fault(Fault::VerificationFull)))
    })
    .await
}

/// Starts the threads. `None`: there is none to be had.
fn begin() -> Option<SyncSender<Order>> {
    let (orders, waiting) = sync_channel(WAITING_MAX);
    let waiting = Arc::new(Mutex::new(waiting));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut are_there = false;
    for _ in 0..cores.div_ceil(CORES_PER_THREAD) {
        let waiting = Arc::clone(&waiting);
        let thread = std::thread::Builder::new().name("verify".into());
        are_there |= thread.spawn(move || work(&waiting)).is_ok();
    }
    are_there.then_some(orders)
}

fn work(waiting: &Mutex<Receiver<Order>>) {
    let random = Random::from_system();
    loop {
        // Whoever has the lock waits for the next order, the others for the lock.
        let order = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Order { job, answer }) = order else { return };
        // Who has gone meanwhile needs no answer.
        if !answer.is_closed() {
            let _ = answer.send(job.0.run(&mut || random.next()));
        }
    }
}
