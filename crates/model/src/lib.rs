//! The nouns of a running configuration, the head of a request or response, and the faults an exchange can meet.
//!
//! This crate knows no file format, no protocol bytes and no I/O. Every other crate speaks in its words.
//! Start reading at [`snapshot`] (what is configured), then [`head`] (what travels), then [`fault`] (what goes wrong).

pub mod address;
pub mod base64;
pub mod cache;
pub mod check;
pub mod connections;
pub mod cookie;
mod discovery;
pub mod facts;
pub mod fault;
pub mod fields;
pub mod filter;
pub mod fitness;
mod hash_key;
pub mod head;
pub mod issue;
pub mod limits;
pub mod local;
pub mod map;
pub mod matching;
pub mod name;
mod origin;
pub mod path;
pub mod peers;
pub mod persistence;
pub mod pick;
pub mod placement;
pub mod protobuf;
pub mod provider;
pub mod proxy_protocol;
pub mod queue;
pub mod resilience;
pub mod retry;
pub mod snapshot;
pub mod socket;
pub mod status;
pub mod table;
pub mod template;
mod tls;

pub use address::{Address, AddressList, Cidr, HostPattern};
pub use facts::{Facts, Scheme};
pub use fault::Fault;
pub use fields::{FieldName, Fields, Known};
pub use head::{Method, RequestHead, ResponseHead, Version};
pub use issue::Issue;
pub use local::LocalResponse;
pub use name::Name;
pub use pick::PickReason;
pub use snapshot::Snapshot;
