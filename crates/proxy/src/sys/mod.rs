//! System calls that neither the standard library nor the runtime offers, by family:
//!
//! | | |
//! |---|---|
//! | `batch` | `recvmmsg`, `sendmmsg`, and `sendmsg` with segmentation: many datagrams with one call |
//! | `control` | control messages: the address of ours that a datagram was sent to, sizes of segments |
//! | `errors` | the error queue of a socket: datagrams that did not arrive |
//! | `files` | `openat2`: a file below a directory; reads that do not wait, `sendfile`; whether a folder can be written to; the user; the bound on descriptors |
//! | `options` | `setsockopt` |
#![allow(unsafe_code)]

mod batch;
mod control;
mod errors;
mod files;
mod options;

pub(crate) use batch::{Batch, Taken};
pub(crate) use errors::{tell_undelivered, undelivered};
pub(crate) use files::{
    FileIdentity, descriptors_max, identity_now, is_local, may_write, open_below, open_directory_now, read_now,
    send_file, user, will_read,
};
#[cfg(test)]
pub(crate) use options::get;
pub(crate) use options::{join, set, tell_destinations};
pub(crate) use wire::handover::Envelope;
