//! What the proxy decides: routes, picks, queues, filters, health; pure

pub mod filter;
