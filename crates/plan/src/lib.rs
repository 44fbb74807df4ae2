//! What the proxy decides: which route, which endpoint, who waits, who is healthy.
//!
//! A [`Plan`] is a [`model::Snapshot`] compiled for the workers: routes as hash tables, clusters as sequences of turns,
//! filters as chains. This crate knows no socket, no clock and no source of chance: time and random numbers are given
//! to it, so that every decision can be tested from a seed. The atomics and the one mutex per cluster that it holds are
//! the runtime state that workers share; they survive from plan to plan by the ids of their objects.
//!
//! Start reading at [`compile()`], then [`Router::find`] (request → route) and [`ClusterPlan::pick`] (cluster →
//! endpoint), then [`queue`] (what happens when all endpoints are full).

mod addresses;
mod agents;
pub mod balance;
mod by_name;
pub mod cache;
pub mod cluster;
mod content;
pub mod explain;
pub mod expression;
pub mod filter;
mod hash;
pub mod health;
pub mod jose;
pub mod json;
mod key;
pub mod keyed;
pub mod limit;
pub mod map;
mod padded;
mod plan;
pub mod queue;
pub mod random;
pub mod resilience;
pub mod route;
pub mod shared_connection;
pub mod sticky;
pub mod table;
#[cfg(test)]
mod testing;
mod units;

pub use addresses::AddressTable;
pub use balance::{Ask, LastResort, PickCache};
pub use by_name::ByName;
pub use cluster::state::{ClusterState, EndpointState, ListenerState};
pub use cluster::subset::Subset;
pub use cluster::{ClusterPlan, Configured, EndpointPlan, Endpoints, Lease, Pick};
pub use health::passive::{Event, Seen};
pub use health::standing::{Roll, Standing};
pub use health::{Change, Health, HealthState, Outcome};
pub use plan::compile::compile;
pub use plan::publish::{Publisher, Trial};
pub use plan::{ActionPlan, ListenerPlan, ListenerTarget, Plan, RoutePlan, Slots};
pub use queue::{Refusal, Ticket, Tried, Wait};
pub use random::Random;
pub use resilience::guard::Pass;
pub use resilience::{breaker, hedge, retry};
pub use route::choice::ClusterChoice;
pub use route::redirect::RedirectPlan;
pub use route::router::Router;
pub use route::sni::SniTable;
pub use route::weighted::WeightedClusters;
pub use sticky::{Moment, Persistence, RdpCookie, Session, SessionCopy, SharedSessions, TableHandover, session_age};
