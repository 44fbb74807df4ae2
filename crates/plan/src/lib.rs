//! What the proxy decides: which route, which endpoint, who waits, who is healthy.
//!
//! A [`Plan`] is a [`model::Snapshot`] compiled for the workers: routes as hash tables, clusters as sequences of turns,
//! filters as chains. This crate knows no socket, no clock and no source of chance: time and random numbers are given
//! to it, so that every decision can be tested from a seed. The atomics and the one mutex per cluster that it holds are
//! the runtime state that workers share; they survive from plan to plan by the ids of their objects.
//!
//! Start reading at [`compile()`], then [`Router::find`] (request → route) and [`ClusterPlan::pick`] (cluster →
//! endpoint), then [`queue`] (what happens when all endpoints are full).

pub mod agent;
pub mod balance;
pub mod breaker;
pub mod cluster;
pub mod compile;
pub mod concurrency;
mod conditions;
mod effect;
pub mod explain;
mod expression;
pub mod filter;
pub mod guard;
mod hash;
pub mod health;
pub mod hedge;
mod hosts;
mod key;
mod padded;
pub mod passive;
mod plan;
pub mod publish;
mod query;
pub mod queue;
mod ramp;
pub mod random;
pub mod redirect;
mod response_time;
pub mod retry;
pub mod router;
mod slot;
pub mod sni;
pub mod standing;
pub mod state;
pub mod sticky;
pub mod subset;
#[cfg(test)]
mod testing;
pub mod trunk;
pub mod weighted;

pub use balance::{Ask, PickCache};
pub use cluster::{ClusterPlan, EndpointPlan, Lease, Pick};
pub use compile::compile;
pub use guard::Pass;
pub use health::{Change, Health, HealthState, Outcome};
pub use passive::{Event, Seen};
pub use plan::{ActionPlan, ListenerPlan, ListenerTarget, Plan, RoutePlan};
pub use publish::Publisher;
pub use queue::{Refusal, Ticket, Wait};
pub use random::Random;
pub use redirect::RedirectPlan;
pub use router::Router;
pub use sni::SniTable;
pub use standing::{Roll, Standing};
pub use state::{ClusterState, EndpointState, ListenerState};
pub use sticky::{Moment, Persistence, Session};
pub use subset::Subset;
pub use weighted::WeightedClusters;
