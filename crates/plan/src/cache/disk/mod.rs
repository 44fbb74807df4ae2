//! The disk tier: which responses are in files, and which of them go next. It does no I/O.
//!
//! Every stored response is written to a file of its own, and the index of them is in memory. What is to be done with files are jobs, which a
//! thread of the data plane does, see [`DiskJob`]. Reading is done by the threads that read files.
//!
//! A name belongs to one file, which never changes but for one byte. So two processes may use one folder during an upgrade: neither
//! touches what the other reads or writes, and each finds the files of the other when it looks through the folder.

pub mod chunks;
mod content;
mod held;
mod job;
mod name;
pub mod record;
mod tier;

pub use content::{DiskContent, DiskCounts};
pub use held::DiskEntry;
pub use job::{DiskJob, DiskJobs, Finished};
pub use name::FileName;
pub use tier::Disk;

#[cfg(test)]
mod tests;
