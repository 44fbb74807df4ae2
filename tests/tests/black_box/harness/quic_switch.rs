//! One address with several endpoints of QUIC behind it, as one whose threads have a socket each: every connection is at one of them,
//! and each can stand still while the others go on.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often threads look whether the test is over.
const LOOK: Duration = Duration::from_millis(50);

/// See the module. Connections are given to the endpoints in their order, and all further ones to the last.
pub(crate) struct Switch {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    front: UdpSocket,
    /// Towards each endpoint.
    behind: Vec<UdpSocket>,
    /// Which endpoint has the connections that these ids name.
    known: Mutex<Vec<(Vec<u8>, usize)>>,
    begun: AtomicUsize,
    client: Mutex<Option<SocketAddr>>,
    /// The one that stands still, and what waits for it.
    still: Mutex<Option<Still>>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Still {
    endpoint: usize,
    /// Towards it, and from it.
    waiting: [Vec<Vec<u8>>; 2],
}

impl Switch {
    /// For clients that come from one port.
    pub(crate) fn start(endpoints: &[SocketAddr]) -> Self {
        let bind = || {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
            socket.set_read_timeout(Some(LOOK)).expect("a time limit");
            socket
        };
        let towards = |endpoint: &SocketAddr| {
            let socket = bind();
            socket.connect(endpoint).expect("an address");
            socket
        };
        let front = bind();
        let address = front.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            front,
            behind: endpoints.iter().map(towards).collect(),
            known: Mutex::default(),
            begun: AtomicUsize::new(0),
            client: Mutex::default(),
            still: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        for endpoint in 0..endpoints.len() {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.carry_back(endpoint));
        }
        let forth = Arc::clone(&shared);
        std::thread::spawn(move || forth.carry_forth());
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on nothing moves at this endpoint.
    pub(crate) fn stand_still(&self, endpoint: usize) {
        *self.shared.still.lock().expect("the one") = Some(Still { endpoint, ..Still::default() });
    }

    /// It goes on, with all that came meanwhile.
    pub(crate) fn go_on(&self) {
        let waiting = self.shared.still.lock().expect("the one").take();
        let Still { endpoint, waiting: [forth, back] } = waiting.expect("one that stands still");
        forth.iter().for_each(|datagram| self.shared.send_forth(datagram, endpoint));
        back.iter().for_each(|datagram| self.shared.send_back(datagram));
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn carry_forth(&self) {
        let mut room = [0; 65_536];
        while !self.is_over() {
            let Ok((count, from)) = self.front.recv_from(&mut room) else { continue };
            *self.client.lock().expect("the client") = Some(from);
            let datagram = &room[..count];
            let Some(endpoint) = self.whose(datagram) else { continue };
            if !self.waits(datagram, endpoint, 0) {
                self.send_forth(datagram, endpoint);
            }
        }
    }

    fn carry_back(&self, endpoint: usize) {
        let mut room = [0; 65_536];
        while !self.is_over() {
            let Ok(count) = self.behind[endpoint].recv(&mut room) else { continue };
            let datagram = &room[..count];
            // What the endpoint calls its connection from now on.
            if let Some((_, own)) = long(datagram) {
                self.know(own, endpoint);
            }
            if !self.waits(datagram, endpoint, 1) {
                self.send_back(datagram);
            }
        }
    }

    /// Keeps a datagram that is for, or from, the one that stands still.
    fn waits(&self, datagram: &[u8], endpoint: usize, way: usize) -> bool {
        match &mut *self.still.lock().expect("the one") {
            Some(still) if still.endpoint == endpoint => {
                still.waiting[way].push(datagram.to_vec());
                true
            }
            _ => false,
        }
    }

    fn send_forth(&self, datagram: &[u8], endpoint: usize) {
        // What is lost is sent again.
        let _ = self.behind[endpoint].send(datagram);
    }

    fn send_back(&self, datagram: &[u8]) {
        if let Some(client) = *self.client.lock().expect("the client") {
            let _ = self.front.send_to(datagram, client);
        }
    }

    fn know(&self, id: &[u8], endpoint: usize) {
        let mut known = self.known.lock().expect("ids");
        if !known.iter().any(|(other, _)| other == id) {
            known.push((id.to_vec(), endpoint));
        }
    }

    fn whose(&self, datagram: &[u8]) -> Option<usize> {
        let known = |id: &dyn Fn(&[u8]) -> bool| {
            let known = self.known.lock().expect("ids");
            known.iter().find(|(other, _)| id(other)).map(|(_, endpoint)| *endpoint)
        };
        let Some((to, _)) = long(datagram) else { return known(&|id| datagram[1..].starts_with(id)) };
        known(&|id| id == to).or_else(|| {
            let endpoint = self.begun.fetch_add(1, Ordering::SeqCst).min(self.behind.len() - 1);
            self.know(to, endpoint);
            Some(endpoint)
        })
    }
}

/// The ids in a long header (RFC 9000 section 17.2): whom it is for, and whom it is from.
fn long(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = datagram.get(5..)?.split_first().filter(|_| datagram[0] & 0x80 != 0)?;
    let (to, rest) = rest.split_at_checked(usize::from(length))?;
    let (&length, rest) = rest.split_first()?;
    Some((to, rest.get(..usize::from(length))?))
}
