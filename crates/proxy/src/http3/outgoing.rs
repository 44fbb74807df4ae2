//! The UDP ports from which a worker connects to endpoints.
//!
//! One port carries the connections to all endpoints that are to be reached from the same address, so that what they have to say
//! together is sent by the same calls. It lasts as long as any of them.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};

use model::socket::{ClusterSocket, Source};

use super::{Keys, Port, mesh};
use crate::socket;

/// See the module.
#[derive(Default)]
pub(crate) struct Outgoing {
    ports: RefCell<Vec<(From, Weak<Port>)>>,
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
    /// The port for connections to this address. A connection is to be made before anything else is waited for, or it may end.
    ///
    /// # Errors
    /// As the kernel says.
    pub(crate) fn port(&self, address: SocketAddr, settings: &ClusterSocket) -> io::Result<Rc<Port>> {
        let from = From::of(address, settings);
        let mut ports = self.ports.borrow_mut();
        ports.retain(|(_, port)| port.upgrade().is_some_and(|port| !port.is_over()));
        let found = ports.iter().find(|(own, _)| *own == from).and_then(|(_, port)| port.upgrade());
        if let Some(port) = found {
            return Ok(port);
        }
        let socket = socket::datagrams_from(from.is_v4, from.source)?;
        let mesh = mesh(1, (Keys::new(), 0), None).pop().ok_or(io::ErrorKind::Other)?;
        let port = Port::new(socket, mesh, None, Box::new(|port, incoming| port.refuse(incoming)))?;
        ports.push((from, Rc::downgrade(&port)));
        let driven = port.clone();
        tokio::task::spawn_local(async move { driven.drive(|| driven.open() == 0).await });
        Ok(port)
    }

    /// Tells all endpoints that the program ends.
    pub(crate) fn end(&self) {
        for (_, port) in self.ports.borrow_mut().drain(..) {
            if let Some(port) = port.upgrade() {
                port.close_all();
            }
        }
    }
}
