//! What responses cost in limits that instances share. It is sent beside the response, which does not wait for it.
//!
//! A charge is a task of its worker until the store has taken it. Their number has a bound; those beyond it, and those that the store
//! does not take, are lost and counted. None is sent twice: the store may have taken one whose answer is missing.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use plan::filter::Charge;

use super::link::Missed;
use crate::exchange::Exchange;
use crate::worker_plan::ClusterLocal;

/// Charges of a worker that wait for their store at the same time.
const CHARGES_MAX: usize = 4096;
/// How long a charge waits at least: it holds nothing up, and a late answer still says that it was taken.
const TIMEOUT_MIN: Duration = Duration::from_secs(2);

thread_local! {
    /// How many wait on this worker.
    static WAITING: Cell<usize> = const { Cell::new(0) };
}

/// A charge that the store has not taken yet. One that is dropped is lost, as when the worker ends.
struct Waiting {
    charge: Option<Charge>,
}

impl Waiting {
    /// `None`: too many wait, and it is lost.
    fn new(charge: Charge) -> Option<Self> {
        if WAITING.get() >= CHARGES_MAX {
            charge.lose(Instant::now());
            return None;
        }
        WAITING.set(WAITING.get() + 1);
        Some(Self { charge: Some(charge) })
    }

    async fn send(mut self, local: Rc<ClusterLocal>) {
        let Some(charge) = &self.charge else { return };
        let wait = charge.ask.timeout.max(TIMEOUT_MIN);
        let asked = super::asked(&charge.ask, &local, async |answer| {
            let answer = tokio::time::timeout(wait, answer).await.ok();
            Ok(answer.map(|answer| answer.unwrap_or(Err(Missed::Away))))
        });
        if matches!(asked.await, Ok(Ok(_))) {
            self.charge = None;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.set(WAITING.get().saturating_sub(1));
        if let Some(charge) = self.charge.take() {
            charge.lose(Instant::now());
        }
    }
}

impl Exchange<'_> {
    /// Sends what filters have charged for the response.
    #[cold]
    pub(crate) fn begin_charges(&mut self) {
        for charge in std::mem::take(&mut self.incoming.notes.charges) {
            let called = self.progress.route.and_then(|route| route.called.get(charge.ask.cluster.place()));
            let Some(local) = called.and_then(|cluster| self.plan.cluster(cluster)) else {
                charge.lose(Instant::now());
                continue;
            };
            if let Some(waiting) = Waiting::new(charge) {
                tokio::task::spawn_local(waiting.send(local.clone()));
            }
        }
    }
}
