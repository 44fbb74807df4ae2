//! What filters need and do not do themselves, a file for each kind.

mod work;

use model::Fault;
use plan::filter::{Found, Need};

use crate::exchange::Exchange;

/// Does what a step needs, and says what was found.
///
/// # Errors
/// It cannot be had, or took too long; the client has gone.
pub(crate) async fn meet(need: Need, exchange: &mut Exchange<'_>) -> Result<Found, Fault> {
    match need {
        Need::Work(job) => work::done(job, exchange.connection).await.map(Found::Work),
        Need::Until(moment) => {
            let now = exchange.told.look();
            exchange.pause(moment.saturating_duration_since(now)).await?;
            Ok(Found::Now)
        }
    }
}
