//! From a request to where it goes: [`router`] finds the route among hosts, paths and other conditions, [`sni`] the cluster of a
//! connection, [`weighted`] and [`choice`] one cluster of several, and [`redirect`] makes an answer.

pub mod body;
pub mod choice;
pub(crate) mod conditions;
pub(crate) mod expression;
pub(crate) mod hosts;
pub mod plan;
pub(crate) mod query;
pub mod redirect;
pub mod router;
pub mod sni;
pub mod weighted;
pub(crate) mod when;
