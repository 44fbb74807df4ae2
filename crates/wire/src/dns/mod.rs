//! Asking resolvers (RFC 1035): questions out, answers in, and what an answer means. No socket and no clock.
//!
//! ```text
//! system::Candidates → the names to ask for, in order
//! message::question → bytes → (a resolver) → bytes → message::Answer::read → Answer::meaning
//! ```
//! An answer comes from the network and may be anything: every name is bounded, pointers only go backwards, and what does not
//! answer the question is not looked at.

pub mod message;
pub mod name;
pub mod system;

pub use message::{Answer, Kind, Meaning, Refused, Srv, question};
pub use name::Name;
