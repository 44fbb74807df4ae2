//! Protocol code without I/O: bytes in, heads and data out, and back.
//!
//! This crate reads no socket, no clock and no configuration file, and it draws no random number. It knows no route,
//! cluster or endpoint. Whatever it is given may be hostile: nothing here panics, and everything has a bound.
//!
//! Start reading at [`http1`] (RFC 9112), then [`crossing`] (what HTTP/2 asks of a message), [`http2::connection`]
//! (RFC 9113 as a state machine), [`path`] (the one form of a path), [`forwarding`]
//! (`X-Forwarded-*` and `Forwarded`), then [`client_hello`] (the server name of a TLS connection that is passed on
//! unopened) and [`proxy_protocol`] (who a connection speaks for). [`grpc`] is what a check asks with,
//! [`dns`] how names are asked for, [`subject`] whose a certificate is, [`authentication`] whose
//! a connection, [`resp`] how Redis is asked, [`handover`] what two processes of the program say
//! to each other, [`peers`] what instances do.

pub mod authentication;
pub mod client_hello;
pub mod crossing;
pub mod dns;
pub mod forwarding;
pub mod grpc;
pub mod handover;
pub mod http1;
pub mod http2;
pub mod http3;
pub mod path;
pub mod peers;
pub mod proxy_protocol;
pub mod rdp;
pub mod resp;
pub mod subject;

mod compression;
mod text;
