//! The UDP sockets from which a worker connects to endpoints.
//!
//! One socket carries the connections to all endpoints that are to be reached from the same address, so that what they have to say
//! together is sent by the same calls. It lasts as long as any of them.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};

use model::socket::{ClusterSocket, Source};

use super::{Keys, Socket, hubs};
use crate::socket;

/// See the module.
#[derive(Default)]
pub(crate) struct Outgoing {
    sockets: RefCell<Vec<(From, Weak<Socket>)>>,
}

/// What the other side sees.
#[derive(Clone, Copy, PartialEq, Eq)]
struct From {
    is_v4: bool,
    source: Option<IpAddr>,
}

impl From {
    fn of(address: SocketAddr, settings: &ClusterSocket) -> Self {
        let is_v4 = address.is_ipv4();
        let source = match &settings.source {
            Source::Address(addresses) => addresses.iter().copied().find(|source| source.is_ipv4() == is_v4),
            // That of a client is refused where many share connections.
            Source::Kernel | Source::Client => None,
        };
        Self { is_v4, source }
    }
}

impl Outgoing {
    /// Returns the socket for connections to this address. A connection is to be made before anything else is waited for, or it may end.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn socket(&self, address: SocketAddr, settings: &ClusterSocket) -> io::Result<Rc<Socket>> {
        let from = From::of(address, settings);
        let mut sockets = self.sockets.borrow_mut();
        sockets.retain(|(_, socket)| socket.upgrade().is_some_and(|socket| !socket.is_over()));
        let found = sockets.iter().find(|(own, _)| *own == from).and_then(|(_, socket)| socket.upgrade());
        if let Some(socket) = found {
            return Ok(socket);
        }
        let socket = socket::datagrams_from(from.is_v4, from.source)?;
        let hub = hubs(1, (Keys::new(), 0), None).pop().ok_or(io::ErrorKind::Other)?;
        let socket = Socket::new(socket, hub, None, Box::new(|socket, incoming| socket.refuse(incoming)))?;
        sockets.push((from, Rc::downgrade(&socket)));
        let driven = socket.clone();
        tokio::task::spawn_local(async move { driven.drive(|| driven.open() == 0).await });
        Ok(socket)
    }

    /// Tells all endpoints that the program ends.
    pub(crate) fn end(&self) {
        for (_, socket) in self.sockets.borrow_mut().drain(..) {
            if let Some(socket) = socket.upgrade() {
                socket.close_all();
            }
        }
    }
}
