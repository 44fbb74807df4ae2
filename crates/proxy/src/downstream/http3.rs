//! The life of a client's HTTP/3 connection (RFC 9114).
//!
//! ```text
//! a first datagram ─► listener ─┬─ too many handshakes: prove where you are (RFC 9000 section 8.1), or refused
//!                               └─ serve ──┬── a stream ──► a task with an exchange of its own, as on any connection
//!                                          ├── nothing to do for too long, the listener gone, requests enough:
//!                                          │      GOAWAY, what is begun is finished, GOAWAY with the last stream (section 5.2), end
//!                                          └── rules broken, too much of no use: closed with the reason, end
//! ```
//!
//! As with HTTP/2, this task looks after the connection and begins streams, and knows nothing of what they carry. The socket
//! and the state of QUIC are driven elsewhere (`crate::http3`).

mod handshakes;
mod listener;
mod session;
mod shared;
mod stream_task;

pub(crate) use self::listener::open;
