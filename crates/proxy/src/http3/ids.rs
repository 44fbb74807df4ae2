//! Connection ids that name the worker of their connection, so that a datagram finds its way when the kernel has given it to
//! another: it goes by addresses, and those of a client change (RFC 9000 section 9).

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use model::limits::HTTP3_PASSED_MAX;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, EcnCodepoint, InvalidCid};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Random bytes of an id; two more say whose it is, and one that this was said by us.
const NONCE_BYTES: usize = 5;
const ID_BYTES: usize = NONCE_BYTES + 3;

/// Of the sockets of one listener: nobody else can tell the worker by an id, nor which ids belong together (RFC 9000 section
/// 5.1), and what one listener signs is of no use at another (section 21.11).
#[derive(Clone)]
pub(crate) struct Keys {
    ids: RandomState,
    /// What stateless resets are signed with (section 10.3).
    pub resets: Arc<aws_lc_rs::hmac::Key>,
}

impl Keys {
    fn new() -> Self {
        let mut key = [0; 64];
        // Without randomness there is no TLS either.
        let _ = aws_lc_rs::rand::fill(&mut key);
        let resets = Arc::new(aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &key));
        Self { ids: RandomState::new(), resets }
    }

    fn mask(&self, nonce: &[u8]) -> u16 {
        self.ids.hash_one(nonce) as u16
    }

    fn check(&self, nonce: &[u8], worker: u16) -> u8 {
        self.ids.hash_one((nonce, worker)) as u8
    }

    /// What follows the nonce.
    fn name(&self, nonce: &[u8], worker: u16) -> [u8; 3] {
        let [high, low] = (self.mask(nonce) ^ worker).to_be_bytes();
        [high, low, self.check(nonce, worker)]
    }

    fn owner_of(&self, id: &[u8]) -> Option<u16> {
        let (nonce, named) = id.split_at(NONCE_BYTES);
        let worker = self.mask(nonce) ^ u16::from_be_bytes([named[0], named[1]]);
        (self.check(nonce, worker) == named[2]).then_some(worker)
    }
}

/// Whose connection a datagram is for, if that can be told: once a connection is made, its client uses the ids that we gave
/// it, and a short header (RFC 9000 section 17.3), and before that in packets of type Handshake (section 17.2.4). What comes
/// before those, the kernel gives to one worker.
pub(super) fn owner(datagram: &[u8], keys: &Keys) -> Option<u16> {
    let (first, rest) = datagram.split_first()?;
    let id = match first & 0xb0 {
        0xa0 => {
            rest.get(4..).and_then(|rest| rest.split_first()).filter(|(length, _)| usize::from(**length) == ID_BYTES)?.1
        }
        _ if first & 0x80 == 0 => rest,
        _ => return None,
    };
    keys.owner_of(id.get(..ID_BYTES)?)
}

/// Makes the ids of a worker.
pub(super) struct Ids {
    pub worker: u16,
    pub keys: Keys,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_BYTES];
        // Without randomness there is no TLS either; ids would only be easier to guess.
        let _ = aws_lc_rs::rand::fill(&mut id[..NONCE_BYTES]);
        let named = self.keys.name(&id[..NONCE_BYTES], self.worker);
        id[NONCE_BYTES..].copy_from_slice(&named);
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        if id.len() == ID_BYTES && self.keys.owner_of(id) == Some(self.worker) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// A datagram that another worker got.
pub(crate) struct Passed {
    pub remote: SocketAddr,
    pub local_ip: Option<IpAddr>,
    pub ecn: Option<EcnCodepoint>,
    pub bytes: BytesMut,
}

/// The ways to all workers of a listener.
pub(crate) type Others = [Sender<Passed>];

/// How a worker gives the others of a listener what is theirs, and gets what is its own.
pub(crate) struct Mesh {
    pub worker: usize,
    pub others: Arc<Others>,
    pub own: Receiver<Passed>,
    pub keys: Keys,
}

/// One for each worker. What finds a full channel is dropped, as any network may do.
pub(crate) fn mesh(workers: usize) -> Vec<Mesh> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..workers).map(|_| channel(HTTP3_PASSED_MAX)).unzip();
    let others: Arc<Others> = senders.into();
    let ends = receivers.into_iter().enumerate();
    let keys = Keys::new();
    ends.map(|(worker, own)| Mesh { worker, others: others.clone(), own, keys: keys.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_worker_and_shows_it_to_nobody() {
        let (keys, mut seen) = (Keys::new(), std::collections::HashSet::new());
        for worker in [0, 1, 7, u16::MAX] {
            let mut ids = Ids { worker, keys: keys.clone() };
            for _ in 0..50 {
                let id = ids.generate_cid();
                assert!(ids.validate(&id).is_ok());
                assert!(Ids { worker: worker ^ 1, keys: keys.clone() }.validate(&id).is_err());
                let datagram = [&[0x41][..], &id, b"payload"].concat();
                assert_eq!(owner(&datagram, &keys), Some(worker));
                let handshake = [&[0xe3, 0, 0, 0, 1, ID_BYTES as u8][..], &id, b"more"].concat();
                assert_eq!(owner(&handshake, &keys), Some(worker));
                let initial = [&[0xc3, 0, 0, 0, 1, ID_BYTES as u8][..], &id, b"more"].concat();
                assert_eq!(owner(&initial, &keys), None);
                assert_eq!(owner(&handshake[..10], &keys), None);
                seen.insert(id[NONCE_BYTES..].to_vec());
            }
        }
        assert!(seen.len() > 100, "{}", seen.len());
    }

    #[test]
    fn datagrams_that_say_nothing_of_it_have_no_owner() {
        let keys = Keys::new();
        assert_eq!(owner(b"", &keys), None);
        assert_eq!(owner(b"\x41short", &keys), None);
        assert_eq!(owner(&[0xc1; 1200], &keys), None);
    }

    #[test]
    fn ids_of_other_sockets_and_ids_that_were_changed_name_nobody_but_by_chance() {
        let (keys, others) = (Keys::new(), Keys::new());
        let mut ids = Ids { worker: 3, keys: keys.clone() };
        let made: Vec<_> = (0..1_000).map(|_| ids.generate_cid()).collect();
        let strange = made.iter().filter(|id| others.owner_of(id).is_some()).count();
        let changed = |id: &ConnectionId| {
            let mut id = id.to_vec();
            id[NONCE_BYTES + 1] ^= 2;
            keys.owner_of(&id).is_some()
        };
        let changed = made.iter().filter(|id| changed(id)).count();
        // One of 256 each.
        assert!(strange < 40 && changed < 40, "{strange} {changed}");
    }
}
