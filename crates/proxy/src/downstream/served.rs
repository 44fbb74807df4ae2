//! By what a stream is served.

use std::rc::Rc;

use crate::worker::Worker;
use crate::worker_plan::WorkerPlan;

/// The listener of a stream, in the plan that its exchange follows.
pub(super) struct Served {
    pub worker: Rc<Worker>,
    pub plan: Rc<WorkerPlan>,
    /// The place of the listener in that plan: another may have been taken over since.
    pub index: usize,
}
