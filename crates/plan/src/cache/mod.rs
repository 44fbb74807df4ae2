//! An HTTP cache (RFC 9111) without I/O: what may be stored and for how long, which stored response answers a request, and the store
//! that all workers share.
//!
//! The filter `cache` decides by these, and the data plane sends what it finds. Times are whole seconds since 1970, as arguments.

mod ask;
pub mod control;
pub mod date;
pub mod disk;
pub mod entry;
pub mod filling;
pub mod flight;
pub mod fresh;
pub mod key;
mod marks;
pub mod purges;
pub mod range;
pub mod serve;
mod shard;
pub mod slice;
pub mod store;
pub mod validate;
mod validity;
pub mod vary;

pub use ask::{DiskAsk, DiskRead};
pub use disk::{Disk, DiskContent, DiskEntry, DiskJob, DiskJobs, FileName};
pub use entry::{Body, Entry};
pub use filling::Filling;
pub use flight::{Flight, Waiter};
pub use purges::Purge;
pub use serve::{Form, Served};
pub use store::{CacheStore, Room};
pub use validity::Begun;
