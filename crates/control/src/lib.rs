//! The control plane: reads the configuration, makes a plan of it, publishes it, and probes the endpoints.
//!
//! It refuses to know how traffic is carried: workers are behind a [`plan::Publisher`], and what only they can check
//! behind an [`Inspect`]. It is one owner, [`Reconciler`], that changes things, and a [`View`] that others read.
//!
//! Start reading at [`Reconciler`], then [`load`] (text to plan), then [`probes`] (active health checks).

pub mod admin_state;
pub mod admin_tls;
mod atomic_file;
pub mod caches;
pub mod canary;
mod chance;
pub mod connections;
pub mod difference;
mod disk_status;
pub mod effects;
pub mod explain;
mod given;
pub mod handover;
pub mod handover_limits;
pub mod handover_tables;
pub mod history;
pub mod load;
mod loader;
pub mod names;
pub mod orders;
pub mod overrides;
pub mod peers;
mod prepare;
pub mod probes;
pub mod providers;
mod reconciler;
mod refusal;
mod replication;
pub mod status;
pub mod tables;
mod token_keys;
mod view;
pub mod watch;

pub mod maps;

pub use config::{Diagnostics, EndpointEdit};
pub use history::Cause;
pub use load::{Candidate, Inspect, Source, prepare, prepare_offline};
pub use orders::{Change, Done, Order, OrderSender, Orders};
pub use prepare::{Moves, Preparation, ProviderOutcome, Wanted};
pub use reconciler::{ConfigurationHandover, Reconciler};
pub use refusal::Refusal;
pub use status::{State, Status};
pub use view::{Canary, LostRecords, Shown, View};
pub use wire::http1::{HeadLimits, client as http_client};
