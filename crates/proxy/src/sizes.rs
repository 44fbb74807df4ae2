//! Bounds on the memory that an exchange takes. They are the sizes of today: whatever makes one of them larger does so on purpose.

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<crate::exchange::Exchange<'_>>() <= 536);

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use std::rc::Rc;

    use model::snapshot::HttpListener;

    use crate::connection::Connection;
    use crate::exchange::{self, Arrived};
    use crate::worker::Worker;
    use crate::worker_plan::{ListenerLocal, WorkerPlan};

    type By = (&'static WorkerPlan, &'static ListenerLocal, &'static HttpListener);

    fn of_run<F>(_: impl FnOnce(&'static Rc<Worker>, &'static mut Connection) -> F) -> usize {
        size_of::<F>()
    }

    fn of_carry<F>(_: impl FnOnce(&'static Worker, By, &'static mut Connection, Arrived) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_future_of_an_exchange_stays_small() {
        let (run, carry) = (of_run(exchange::run), of_carry(exchange::carry));
        assert!(run <= 2440, "of HTTP/1: {run}");
        assert!(carry <= 2336, "of a stream: {carry}");
    }
}
