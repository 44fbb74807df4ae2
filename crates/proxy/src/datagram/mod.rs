//! UDP listeners: datagrams from one port of one client go to one endpoint, and the endpoint's answers go back.
//!
//! ```text
//!             ┌ Socket: the listener's socket in a worker ┐
//!  client ──► │ a flow of this client? ─ no ─► pick, begin │ ──► endpoint
//!         ◄── │        └─ yes ─► its socket                │ ◄──
//!             └────────────────────────────────────────────┘
//! ```
//! A flow ends when nothing moves for a while, when all expected answers have come, or when its endpoint refuses. The client's
//! next datagram then begins another. The kernel hands all datagrams of a client's port to the same worker, so flows belong to
//! the worker. Nothing waits: a datagram without a place, or for a full socket, is dropped and counted, as any network may do.
//! Datagrams that arrived together are received, and sent on, by one system call ([`crate::sys`]).
//!
//! | File | |
//! |---|---|
//! | `listener.rs` | takes datagrams of clients, begins flows |
//! | `route.rs` | decides where a datagram goes, without I/O |
//! | `flow.rs` | a client with its endpoint, and the way there |
//! | `flow_task.rs` | the task of a flow: answers, its end, its record |
//! | `handover.rs` | datagrams between this process and its predecessor or successor |
//! | `socket.rs` | the socket, and all that these share |

mod flow;
mod flow_task;
mod handover;
mod listener;
mod receive;
mod refusals;
mod route;
mod socket;

pub(crate) use self::refusals::REFUSAL_PAUSE;
pub(crate) use self::socket::Socket;
