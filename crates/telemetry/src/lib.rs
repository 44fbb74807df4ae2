//! Observability of exchanges: records, counters, histograms, the Prometheus page, access logs, and the program's own
//! diagnostics.
//!
//! This crate knows no socket, no runtime and no configuration file. It never asks what happened: the data plane builds
//! one [`Record`] when an exchange or a stream is over, and all output comes from there. On the path of a
//! request nothing here takes a contended lock, writes to memory that another worker writes, or makes a system call.
//!
//! Start reading at [`record`] (what is known of an exchange), then [`series`] (what is counted, by whom), then
//! [`names`] (every metric there is), then [`access_log`].

pub mod access_log;
pub mod counter;
mod expose;
pub mod figures;
pub mod histogram;
mod listing;
pub mod log;
pub mod names;
mod process;
pub mod record;
mod reference;
pub mod registry;
pub mod series;
pub mod summary;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
pub mod trial;

pub use access_log::{AccessLogs, LogWriter, check_line};
pub use counter::Counter;
pub use expose::Gauge;
pub use figures::Figures;
pub use histogram::{Histogram, HistogramSnapshot};
pub use names::Metric;
pub use record::{Kind, Phases, Record};
pub use reference::reference;
pub use registry::Telemetry;
pub use series::{
    ClusterSeries, ClusterShard, EndpointSeries, EndpointShard, ListenerSeries, ListenerShard, RouteSeries, RouteShard,
    WorkerSeries, count,
};
pub use summary::Summary;
