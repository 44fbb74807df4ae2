//! What filters need and do not do themselves, a file for each kind.

mod apart;
pub(crate) mod body;
mod call;
mod file;
mod flight;
mod instead;
pub(crate) mod mirror;
mod store;
mod work;

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use model::Fault;
use plan::RoutePlan;
use plan::cache::DiskRead;
use plan::filter::{Away, Beginning, FileFound, Flow, Found, Need, Reply, Spent, TooLong};

use self::body::Begun;
use self::call::Protocol;
pub(crate) use self::file::read_cached;
use crate::exchange::Exchange;

/// The body of a request that has none.
static NO_BODY: LazyLock<Arc<[u8]>> = LazyLock::new(|| Arc::from([]));

/// What came of a need, while no step has seen it.
enum Met {
    Work(bool),
    Call(Result<Box<Reply>, Fault>),
    Body(Result<(), TooLong>),
    Beginning(body::Begun),
    Now,
    Store(Result<Spent, Away>),
    File(FileFound),
    Cached(DiskRead),
}

impl Exchange<'_> {
    /// Meets the need of the request step at `place`, and goes on with that step and those after it, which may have others.
    ///
    /// # Errors
    /// It cannot be met, or took too long; the client has gone.
    pub(crate) async fn meet_needs(
        &mut self,
        route: &RoutePlan,
        place: &mut usize,
        first: Need,
    ) -> Result<Flow, Fault> {
        let (mut need, mut left) = (first, Need::PER_STEP_MAX);
        while left > 0 {
            let met = self.meet(need).await;
            // Also for a fault: the steps that count it go by the present.
            self.progress.look();
            let before = *place;
            match self.resume(route, place, met?) {
                Flow::Need(next) => need = next,
                flow => return Ok(flow),
            }
            // Places only rise: there are no more needs than so many for each step.
            left = if *place == before { left - 1 } else { Need::PER_STEP_MAX };
        }
        Err(Fault::VerificationFull)
    }

    async fn meet(&mut self, need: Need) -> Result<Met, Fault> {
        match need {
            Need::Work(job) => work::done(job, self.connection).await.map(Met::Work),
            Need::Call(call) => call::made((*call, Protocol::Http), self).await.map(Met::Call),
            Need::Grpc(call) => call::made((*call, Protocol::Grpc), self).await.map(Met::Call),
            // Boxed: it is rare, and its state would make every exchange larger.
            Need::Apart(apart) => Box::pin(apart::begun(*apart, self)).await.map(|()| Met::Now),
            Need::Body { max } => body::held(self, max).await.map(Met::Body),
            Need::Beginning { max, wants_part } => {
                // Boxed: it is rare, and its state would make every exchange larger.
                Box::pin(body::begun(self, max, wants_part)).await.map(Met::Beginning)
            }
            // Too late, or too early: only what answers in the place of a response can have it.
            Need::Redirect(_) | Need::Again => Ok(Met::Now),
            Need::Hold(hold) => body::held_by(self, &hold).await.map(|()| Met::Now),
            // Boxed: it is rare, and its state would make every exchange larger.
            Need::Store(ask) => Box::pin(store::spent(*ask, self)).await.map(Met::Store),
            Need::File(ask) => Box::pin(file::found(*ask, self.connection)).await.map(Met::File),
            Need::Cached(ask) => Box::pin(file::cached(*ask, self.connection)).await.map(Met::Cached),
            Need::Flight(awaited) => flight::over(&awaited, self).await.map(|()| Met::Now),
            Need::Until(moment) => self.wait_until(moment).await.map(|()| Met::Now),
        }
    }

    async fn wait_until(&mut self, moment: Instant) -> Result<(), Fault> {
        let now = self.progress.look();
        self.pause(moment.saturating_duration_since(now)).await
    }

    fn resume(&mut self, route: &RoutePlan, place: &mut usize, met: Met) -> Flow {
        self.with_found(met, |exchange, found| {
            exchange.in_turn(|head, _, turn| route.chain.resume(place, found, head, turn))
        })
    }

    /// The body is lent to the step, beside the exchange.
    fn with_found(&mut self, met: Met, run: impl FnOnce(&mut Self, Found<'_>) -> Flow) -> Flow {
        let (held, ahead) = (self.replay.body.take(), self.replay.ahead.take());
        let found = match met {
            Met::Work(found) => Found::Work(found),
            Met::Call(replied) => Found::Call(replied),
            Met::Body(read) => Found::Body(read.map(|()| held.as_deref().map_or(&*NO_BODY, |held| &held.bytes))),
            Met::Beginning(begun) => Found::Beginning(match (begun, &ahead) {
                (Begun::Whole, _) => Beginning::Whole(held.as_deref().map_or(&*NO_BODY, |held| &held.bytes)),
                (Begun::Part(max), Some(ahead)) => {
                    Beginning::Part(&ahead.bytes()[..ahead.bytes().len().min(max as usize)])
                }
                (Begun::Part(_), None) | (Begun::Unread, _) => Beginning::Unread,
            }),
            Met::Now => Found::Now,
            Met::Store(spent) => Found::Store(spent),
            Met::File(found) => Found::File(found),
            Met::Cached(found) => Found::Cached(found),
        };
        let flow = run(self, found);
        (self.replay.body, self.replay.ahead) = (held, ahead);
        flow
    }
}
