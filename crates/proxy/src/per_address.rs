//! The connections of each client address: bounds, and tables that count them.

use std::net::IpAddr;
use std::time::Instant;

use plan::limit::{Beyond, OpenPlace};

use crate::worker::Worker;
use crate::worker_plan::ListenerLocal;

/// Counts a new connection among those of its address. What this returns is held until the connection ends; mostly it is nothing.
///
/// # Errors
/// The address is beyond a bound. Tables have counted the connection, but not as open.
pub(crate) fn open(
    worker: &Worker,
    listener: &ListenerLocal,
    address: IpAddr,
    now: Instant,
) -> Result<Vec<OpenPlace>, Beyond> {
    let plan = &listener.plan;
    let mut chance = || worker.random.next();
    let mut places = Vec::new();
    for table in &plan.tracked {
        places.extend(table.connect(address, now, &mut chance));
    }
    if let Some(bounds) = &plan.per_address {
        places.extend(bounds.open(address, now, &mut chance)?);
    }
    Ok(places)
}
