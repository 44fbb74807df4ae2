//! Handover: sockets go from one process to the next, so that no attempt to connect is lost between them, and datagrams find the
//! process that has their connection or flow.
//!
//! ```text
//! the predecessor                       the successor
//!   offer: the very same sockets  ──►   Options::inheritance; publish adopts what its plan has a listener for,
//!                                       and holds it: nothing is taken yet
//!   give: accept there no more    ──►   begin: take what arrives
//!   drain
//! ```
//! What waits in a socket is taken by whichever process takes next: while one of them has it open, the kernel has no reason to
//! reset anything. `docs/adr/0016-binary-upgrade.md` tells the whole story.
//!
//! | File | |
//! |---|---|
//! | `inherited.rs` | what a process starts with |
//! | `adopt.rs` | the successor: gives inherited sockets to its workers, and begins |
//! | `offer.rs`, `on_worker.rs` | the predecessor: offers its sockets, gives them away; the part of each worker |
//! | `../predecessor.rs` | the predecessor as the successor knows it: where datagrams are passed on; below all that use it |
//! | `retired.rs`, `take_back.rs` | within one process: sockets that outlive their listener, and those that follow them |

pub(crate) mod adopt;
pub(crate) mod inherited;
mod offer;
pub(crate) mod on_worker;
pub(crate) mod retired;
mod take_back;

use std::time::Duration;

pub use self::inherited::{Flow, Inheritance, Inherited, Place, QuicHandover};
pub use self::offer::Threshold;
pub use crate::tls::{TicketHandover, TicketKey};
pub use wire::handover::{FrameHead, HEAD_BYTES, Kind};

/// Longest wait for what workers offer. A worker is never busy with one thing for long.
const ANSWER: Duration = Duration::from_secs(10);
