//! The data plane: workers that accept connections and carry exchanges and streams between clients and endpoints.
//!
//! It knows no configuration file, no provider and no administrator: a [`plan::Plan`] comes in through
//! [`Workers::publisher`], records go out through `telemetry`. Start reading at `worker` (who does the work), then
//! `downstream::http1` (a connection's life) and `exchange` (a request's life); `reconcile` tells how a new plan arrives.

mod accept;
mod access_logs;
mod admission;
mod answer;
mod body_steps;
mod bound;
mod boxed;
mod buffer;
mod byte_stream;
pub mod clients;
mod connection;
mod datagram;
mod disk_cache;
mod downstream;
mod exchange;
mod feed;
mod file_body;
mod file_system;
mod finish;
mod grpc;
pub mod handover;
mod http2;
mod http3;
mod io;
mod lazy_table;
mod listen;
mod message;
mod needs;
mod per_address;
mod persistence;
mod predecessor;
mod proxy_header;
mod pulse;
mod random;
mod reconcile;
mod registry;
mod relay;
mod replay;
mod request_head;
mod respond;
mod retry;
mod sizes;
mod socket;
mod socket_file;
mod spool;
mod stages;
mod stored;
mod stream;
mod sys;
mod tls;
mod trailers;
mod upstream;
mod watch;
mod witness;
mod worker;
mod worker_plan;

pub use listen::{Transport, in_place_of};
pub use pulse::Pulse;
pub use reconcile::{Options, Workers, check};
