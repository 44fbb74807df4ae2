//! What every test uses: the product as a child process, endpoints that follow a script, and raw connections.
//!
//! Threads and blocking sockets only, each with a time limit on every read and write, so that a product that hangs
//! fails one test and never the run. Start reading at [`product`], then [`origin`], then [`peer`].

pub(crate) mod dex;
pub(crate) mod frames;
pub(crate) mod http2;
pub(crate) mod http2_origin;
pub(crate) mod http3;
pub(crate) mod http3_origin;
pub(crate) mod net;
pub(crate) mod origin;
pub(crate) mod peer;
pub(crate) mod poll;
pub(crate) mod product;
pub(crate) mod quic_switch;
pub(crate) mod services;
pub(crate) mod setup;
pub(crate) mod sys;
pub(crate) mod tls;
pub(crate) mod tokens;

pub(crate) use origin::Origin;
pub(crate) use peer::{Message, Peer};
pub(crate) use poll::{eventually, until};
pub(crate) use product::Product;
pub(crate) use setup::Setup;
