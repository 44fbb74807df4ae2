//! Receiving whole batches.

use std::io;
use std::os::fd::AsFd;

use model::limits::{DATAGRAMS_PER_BATCH_MAX, DATAGRAMS_PER_TURN_MAX};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::sys::{Batch, Taken};

/// Batches taken from one socket before other work of the worker gets a turn.
pub(super) const BATCHES_PER_TURN_MAX: usize = DATAGRAMS_PER_TURN_MAX / DATAGRAMS_PER_BATCH_MAX;

/// Receives the datagrams that a socket has. With `is_addressed` each has its envelope.
///
/// # Errors
/// Those of the kernel, but for [`io::ErrorKind::WouldBlock`], which is none here.
pub(super) fn take(socket: &UdpSocket, batch: &mut Batch, is_addressed: bool) -> io::Result<Taken> {
    let mut taken = Taken { count: 0, is_all: true };
    let done = socket.try_io(Interest::READABLE, || {
        taken = batch.receive(socket.as_fd(), is_addressed)?;
        // There was room for more: that is known to be all, without another look.
        if taken.is_all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match done {
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(taken),
    }
}
