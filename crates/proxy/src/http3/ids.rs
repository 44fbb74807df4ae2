//! Connection ids that name the worker of their connection, so that a datagram finds its way when the kernel has given it to
//! another: it goes by addresses, and those of a client change (RFC 9000 section 9).

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::BytesMut;
use model::limits::HTTP3_PASSED_MAX;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, EcnCodepoint, InvalidCid};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Random bytes of an id; two more say whose it is.
const NONCE_BYTES: usize = 6;
const ID_BYTES: usize = NONCE_BYTES + 2;

/// Of this process: nobody else can tell the worker by the id, nor which ids belong together (RFC 9000 section 5.1).
static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

fn mask(nonce: &[u8]) -> u16 {
    KEY.hash_one(nonce) as u16
}

/// Whose connection a datagram is for, if that can be told: once a connection is made, its client uses the ids that we gave
/// it, and a short header (RFC 9000 section 17.3). What comes before, the kernel gives to one worker.
pub(super) fn owner(datagram: &[u8]) -> Option<u16> {
    let (first, rest) = datagram.split_first()?;
    let id = rest.get(..ID_BYTES).filter(|_| first & 0x80 == 0)?;
    Some(owner_of(id))
}

fn owner_of(id: &[u8]) -> u16 {
    let (nonce, named) = id.split_at(NONCE_BYTES);
    mask(nonce) ^ u16::from_be_bytes([named[0], named[1]])
}

/// Makes the ids of a worker.
pub(super) struct Ids {
    pub worker: u16,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_BYTES];
        // Without randomness there is no TLS either; ids would only be easier to guess.
        let _ = aws_lc_rs::rand::fill(&mut id[..NONCE_BYTES]);
        let named = mask(&id[..NONCE_BYTES]) ^ self.worker;
        id[NONCE_BYTES..].copy_from_slice(&named.to_be_bytes());
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        if id.len() == ID_BYTES && owner_of(id) == self.worker { Ok(()) } else { Err(InvalidCid) }
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
}

/// One for each worker. What finds a full channel is dropped, as any network may do.
pub(crate) fn mesh(workers: usize) -> Vec<Mesh> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..workers).map(|_| channel(HTTP3_PASSED_MAX)).unzip();
    let others: Arc<Others> = senders.into();
    let ends = receivers.into_iter().enumerate();
    ends.map(|(worker, own)| Mesh { worker, others: others.clone(), own }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_worker_and_shows_it_to_nobody() {
        let mut seen = std::collections::HashSet::new();
        for worker in [0, 1, 7, u16::MAX] {
            let mut ids = Ids { worker };
            for _ in 0..50 {
                let id = ids.generate_cid();
                assert!(ids.validate(&id).is_ok());
                assert!(Ids { worker: worker ^ 1 }.validate(&id).is_err());
                let datagram = [&[0x41][..], &id, b"payload"].concat();
                assert_eq!(owner(&datagram), Some(worker));
                seen.insert(id[NONCE_BYTES..].to_vec());
            }
        }
        assert!(seen.len() > 100, "{}", seen.len());
    }

    #[test]
    fn datagrams_that_say_nothing_of_it_have_no_owner() {
        assert_eq!(owner(b""), None);
        assert_eq!(owner(b"\x41short"), None);
        assert_eq!(owner(&[0xc1; 1200]), None);
    }
}
