//! Bounds on the connections of each client address.

use std::net::IpAddr;
use std::time::Instant;

use plan::limit::{Beyond, OpenPlace};

use crate::worker::Worker;
use crate::worker_plan::ListenerLocal;

/// Counts a new connection among those of its address. `None`: these have no bounds.
///
/// # Errors
/// The address is beyond a bound.
pub(crate) fn open(
    worker: &Worker,
    listener: &ListenerLocal,
    address: IpAddr,
    now: Instant,
) -> Result<Option<OpenPlace>, Beyond> {
    let Some(bounds) = &listener.plan.per_address else { return Ok(None) };
    bounds.open(address, now, &mut || worker.random.next())
}
