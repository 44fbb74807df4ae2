//! The part of each worker in a handover.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;

use super::inherited::Place;
use super::retired::Retired;
use crate::accept::Accepting;
use crate::bound::Bound;
use crate::http3::Keys;
use crate::sys::Envelope;
use crate::worker::Worker;

/// The flows at one place of a worker.
pub(crate) struct Paused {
    pub worker: usize,
    pub place: Place,
    pub flows: Vec<Envelope>,
}

/// What a worker has at one place.
pub(crate) struct Offered {
    pub worker: usize,
    pub place: Place,
    pub bound: Bound,
    pub socket: io::Result<OwnedFd>,
    pub way: io::Result<Option<OwnedFd>>,
    pub keys: Option<(Keys, u8)>,
}

/// Offers every socket of a worker.
pub(crate) fn offer(worker: &Worker, listening: &[Accepting], retired: &Retired, offers: &Sender<Offered>) {
    for accepting in listening {
        let Some(socket) = accepting.duplicate() else { continue };
        let place = (accepting.name.clone(), accepting.bound.transport);
        let (way, keys, bound) = (accepting.open_way(), accepting.keys(), accepting.bound.clone());
        // Whatever asked may have given up.
        let _ = offers.send(Offered { worker: worker.index, place, bound, socket, way, keys });
    }
    retired.offer(listening, |place, bound, socket| {
        let (bound, keys) = (bound.clone(), Some(socket.keys()));
        let (socket, way) = (socket.duplicate(), socket.open_way().map(Some));
        let _ = offers.send(Offered { worker: worker.index, place, bound, socket, way, keys });
    });
}

/// Leaves the sockets of these places to another process. Datagrams at others, which it does not want, are read here again.
pub(crate) fn give(listening: &[Accepting], retired: &Retired, places: &[Place]) {
    for accepting in listening {
        if places.contains(&(accepting.name.clone(), accepting.bound.transport)) {
            accepting.handle.is_given.set(true);
        } else {
            accepting.pause(false);
        }
    }
    retired.pause(|place| places.contains(place));
}

/// Pauses the sockets of datagrams, since another process is about to read them, or reads them again. Sends the flows that there are.
pub(crate) fn pause(
    worker: &Worker,
    (listening, retired): (&[Accepting], &Retired),
    is_paused: bool,
    answers: &Sender<Paused>,
) {
    for accepting in listening {
        let place = (accepting.name.clone(), accepting.bound.transport);
        let flows = accepting.pause(is_paused);
        if !is_paused
            && let Some(listener) = worker.plan_of(&accepting.handle).listeners.get(accepting.handle.index.get())
        {
            // The other process may have set it up as it was asked for.
            accepting.tune(&listener.plan.listener.socket);
        }
        // Whatever asked may have given up.
        let _ = answers.send(Paused { worker: worker.index, place, flows });
    }
    retired.pause(|_| is_paused);
}
