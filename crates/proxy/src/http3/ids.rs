//! Connection ids that name the worker of their connection and its process, so that a datagram finds its way when the kernel has
//! given it to another: it goes by addresses, and those of a client change (RFC 9000 section 9), and it knows nothing of processes
//! that follow one another.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::BytesMut;
use model::limits::HTTP3_PASSED_MAX;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, EcnCodepoint, InvalidCid};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::predecessor::Predecessor;

/// Random bytes of an id.
const NONCE_BYTES: usize = 5;
/// Behind them it says whose it is, and that this was said by us: so that of the ids that clients choose themselves none is
/// ever taken for one of ours.
const CHECK_BYTES: usize = 4;
const ID_BYTES: usize = NONCE_BYTES + 3 + CHECK_BYTES;

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// Number of the process: each that follows another has the next.
    pub process: u8,
    /// Number of the socket among those of its listener there.
    pub socket: u16,
}

/// Of the sockets of one listener: nobody else can tell the worker by an id, nor which ids belong together (RFC 9000 section
/// 5.1), and what one listener signs is of no use at another (section 21.11). Processes that follow one another share them.
#[derive(Clone)]
pub(crate) struct Keys {
    ids: [u64; 2],
    secret: [u8; RESET_KEY_BYTES],
    /// What stateless resets are signed with (section 10.3).
    pub resets: Arc<aws_lc_rs::hmac::Key>,
}

/// Bytes of the key of stateless resets.
pub(crate) const RESET_KEY_BYTES: usize = 64;

impl Keys {
    pub(crate) fn new() -> Self {
        let mut both = [0; 16];
        let mut secret = [0; RESET_KEY_BYTES];
        // Without randomness there is no TLS either.
        let _ = aws_lc_rs::rand::fill(&mut both);
        let _ = aws_lc_rs::rand::fill(&mut secret);
        let (words, _) = both.as_chunks::<8>();
        Self::of([u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])], secret)
    }

    /// Those of another process.
    pub(crate) fn of(ids: [u64; 2], secret: [u8; RESET_KEY_BYTES]) -> Self {
        let resets = Arc::new(aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &secret));
        Self { ids, secret, resets }
    }

    /// Whether ids of the one tell the other whose they are.
    fn are(&self, other: &Self) -> bool {
        self.ids == other.ids
    }

    /// For another process.
    pub(crate) fn parts(&self) -> ([u64; 2], [u8; RESET_KEY_BYTES]) {
        (self.ids, self.secret)
    }

    fn mask(&self, nonce: &[u8]) -> [u8; 3] {
        let [a, b, c, ..] = plan::keyed::hash(self.ids, nonce).to_be_bytes();
        [a, b, c]
    }

    fn check(&self, nonce: &[u8], owner: Owner) -> [u8; CHECK_BYTES] {
        let mut all = [0; NONCE_BYTES + 3];
        all[..NONCE_BYTES].copy_from_slice(nonce);
        all[NONCE_BYTES..].copy_from_slice(&owner.bytes());
        let [a, b, c, d, ..] = plan::keyed::hash(self.ids, &all).to_be_bytes();
        [a, b, c, d]
    }

    /// Writes behind the nonce whose it is.
    fn name(&self, id: &mut [u8; ID_BYTES], owner: Owner) {
        let (nonce, named) = id.split_at_mut(NONCE_BYTES);
        let masked = self.mask(nonce).into_iter().zip(owner.bytes()).map(|(mask, byte)| mask ^ byte);
        named.iter_mut().zip(masked).for_each(|(into, byte)| *into = byte);
        named[3..].copy_from_slice(&self.check(nonce, owner));
    }

    fn owner_of(&self, id: &[u8]) -> Option<Owner> {
        let (nonce, named) = id.split_at(NONCE_BYTES);
        let [a, b, c] = self.mask(nonce);
        let owner = Owner { process: named[2] ^ c, socket: u16::from_be_bytes([named[0] ^ a, named[1] ^ b]) };
        (self.check(nonce, owner) == named[3..]).then_some(owner)
    }
}

impl Owner {
    fn bytes(self) -> [u8; 3] {
        let [high, low] = self.socket.to_be_bytes();
        [high, low, self.process]
    }
}

/// Whose connection a datagram is for, if that can be told: once its client has heard of us, it uses the ids that we gave it.
/// What comes before, the kernel gives to one worker, and is the latest process's. The id stands behind the first byte of a
/// short header (RFC 9000 section 17.3), and with its length behind the version of a long one (section 17.2).
pub(super) fn owner(datagram: &[u8], keys: &Keys) -> Option<Owner> {
    let (first, rest) = datagram.split_first()?;
    let id = match first & 0x80 {
        0 => rest.get(..ID_BYTES)?,
        _ if usize::from(*rest.get(4)?) == ID_BYTES => rest.get(5..5 + ID_BYTES)?,
        _ => return None,
    };
    keys.owner_of(id)
}

/// Whether one process, or one socket at an address, has followed another, by their numbers, which start again after the last.
pub(super) fn is_after(one: u8, other: u8) -> bool {
    (1..=u8::MAX / 2).contains(&one.wrapping_sub(other))
}

/// Makes the ids of a worker.
pub(super) struct Ids {
    pub owner: Owner,
    pub keys: Keys,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; ID_BYTES];
        // Without randomness there is no TLS either; ids would only be easier to guess.
        let _ = aws_lc_rs::rand::fill(&mut id[..NONCE_BYTES]);
        self.keys.name(&mut id, self.owner);
        ConnectionId::new(&id)
    }

    /// Of datagrams for connections that nobody knows, those are reset whose ids are ours, or were made by a process before this
    /// one, that is gone (RFC 9000 section 10.3).
    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        if id.len() == ID_BYTES && self.keys.owner_of(id).is_some() { Ok(()) } else { Err(InvalidCid) }
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
pub(crate) struct Hub {
    /// Number of the socket among those of the listener.
    pub socket: usize,
    pub process: u8,
    pub others: Arc<Others>,
    pub own: Receiver<Passed>,
    pub keys: Keys,
    /// Where what is for the predecessor goes.
    pub predecessor: Option<Arc<Predecessor>>,
    /// Those of this process that had the address before, and may have connections still.
    pub before: Arc<[Generation]>,
}

impl Hub {
    pub(super) fn owner(&self) -> Owner {
        Owner { process: self.process, socket: self.socket as u16 }
    }
}

/// One for each socket. What finds a full channel is dropped, as any network may do.
pub(crate) fn hubs(sockets: usize, (keys, process): (Keys, u8), predecessor: Option<&Arc<Predecessor>>) -> Vec<Hub> {
    hubs_after(sockets, (keys, process), predecessor, Vec::new())
}

fn hubs_after(
    sockets: usize,
    (keys, process): (Keys, u8),
    predecessor: Option<&Arc<Predecessor>>,
    before: Vec<Generation>,
) -> Vec<Hub> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..sockets).map(|_| channel(HTTP3_PASSED_MAX)).unzip();
    let (others, before): (Arc<Others>, Arc<[Generation]>) = (senders.into(), before.into());
    let ends = receivers.into_iter().enumerate();
    let hub = |(socket, own)| {
        let (others, keys, predecessor, before) = (others.clone(), keys.clone(), predecessor.cloned(), before.clone());
        Hub { socket, process, others, own, keys, predecessor, before }
    };
    ends.map(hub).collect()
}

/// The sockets of one listener for as long as it had its address, as those know them that follow them there.
#[derive(Clone)]
pub(crate) struct Generation {
    keys: Keys,
    /// What their ids tell.
    process: u8,
    /// There as long as any of the sockets.
    others: Weak<Others>,
    predecessor: Weak<Predecessor>,
}

impl Generation {
    /// That of these sockets.
    pub(crate) fn of(sockets: &[Hub]) -> Option<Self> {
        let Hub { keys, process, others, predecessor, .. } = sockets.first()?;
        let predecessor = predecessor.as_ref().map_or_else(Weak::new, Arc::downgrade);
        Some(Self { keys: keys.clone(), process: *process, others: Arc::downgrade(others), predecessor })
    }

    /// Whether any of the sockets is there.
    pub(crate) fn is_there(&self) -> bool {
        self.others.strong_count() > 0
    }

    /// Whether each knows the ids of the other.
    pub(crate) fn shares_keys(&self, other: &Self) -> bool {
        self.keys.are(&other.keys)
    }

    /// Whether these are the same sockets.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.others.ptr_eq(&other.others)
    }

    /// The sockets that follow these at their address or at one that covers it, or is covered by it. `before` has the latest last, and
    /// all that are there: who reads has to know whose each datagram is. Nobody can know that of ids that were made with other keys.
    pub(crate) fn succeed(before: &[Self], sockets: usize) -> Vec<Hub> {
        let there: Vec<&Self> = before.iter().filter(|one| one.is_there()).collect();
        let Some(latest) = there.last() else { return hubs(sockets, (Keys::new(), 0), None) };
        let kin: Vec<Self> = there.iter().filter(|one| one.keys.are(&latest.keys)).map(|one| (*one).clone()).collect();
        // As many as there are may have been between the oldest and this one, so that numbers come again.
        let mut next = (1..=u8::MAX).map(|step| latest.process.wrapping_add(step));
        let free = next.find(|number| kin.iter().all(|one| one.process != *number));
        let process = free.unwrap_or(latest.process.wrapping_add(1));
        let predecessor = kin.iter().find_map(|one| one.predecessor.upgrade());
        hubs_after(sockets, (latest.keys.clone(), process), predecessor.as_ref(), kin)
    }

    /// The place of the generation of this process number that is still there, and how many sockets it had.
    pub(super) fn find(all: &[Self], process: u8) -> Option<(usize, usize)> {
        let mut there = all.iter().enumerate().filter(|(_, one)| one.process == process);
        there.find_map(|(place, one)| Some((place, one.others.upgrade()?.len())))
    }

    /// The way to one of these sockets. `None` if they are over.
    pub(super) fn way(&self, socket: usize) -> Option<Sender<Passed>> {
        self.others.upgrade()?.get(socket).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_process_and_port_and_shows_them_to_nobody() {
        let (keys, mut seen) = (Keys::new(), std::collections::HashSet::new());
        for (process, socket) in [(0, 0), (0, 1), (7, 1), (255, u16::MAX)] {
            let owned = Owner { process, socket };
            let mut ids = Ids { owner: owned, keys: keys.clone() };
            for _ in 0..50 {
                let id = ids.generate_cid();
                assert!(ids.validate(&id).is_ok());
                let other = Owner { process, socket: socket ^ 1 };
                assert!(Ids { owner: other, keys: keys.clone() }.validate(&id).is_ok(), "should that be over");
                assert!(Ids { owner: owned, keys: Keys::new() }.validate(&id).is_err());
                let short = [&[0x41][..], &id, b"payload"].concat();
                let long = [&[0xe1, 0, 0, 0, 1, ID_BYTES as u8][..], &id, b"payload"].concat();
                assert_eq!((owner(&short, &keys), owner(&long, &keys)), (Some(owned), Some(owned)));
                seen.insert(id[NONCE_BYTES..].to_vec());
            }
        }
        assert!(seen.len() > 190, "{}", seen.len());
    }

    #[test]
    fn a_process_that_follows_reads_the_ids_of_the_one_before() {
        let keys = Keys::new();
        let id = Ids { owner: Owner { process: 3, socket: 2 }, keys: keys.clone() }.generate_cid();
        let (ids, secret) = keys.parts();
        let datagram = [&[0x41][..], &id].concat();
        assert_eq!(owner(&datagram, &Keys::of(ids, secret)), Some(Owner { process: 3, socket: 2 }));
    }

    #[test]
    fn processes_follow_one_another_beyond_the_last_number() {
        for (one, other) in [(1, 0), (127, 0), (0, 255), (3, 250)] {
            assert!(is_after(one, other) && !is_after(other, one), "{one} {other}");
        }
        assert!(!is_after(7, 7));
    }

    #[test]
    fn datagrams_that_say_nothing_of_it_have_no_owner() {
        let keys = Keys::new();
        assert_eq!(owner(b"", &keys), None);
        assert_eq!(owner(b"\x41short", &keys), None);
        for length in 0..20 {
            assert_eq!(owner(&[0xc1; 20][..length], &keys), None);
            assert_eq!(owner(&[&[0xc1, 0, 0, 0, 1, ID_BYTES as u8][..], &[7; 20][..length]].concat(), &keys), None);
        }
        assert_eq!(owner(&[0xc1; 1200], &keys), None);
    }

    #[test]
    fn ids_of_other_sockets_and_ids_that_were_changed_name_nobody() {
        let (keys, others) = (Keys::new(), Keys::new());
        let mut ids = Ids { owner: Owner { process: 0, socket: 3 }, keys: keys.clone() };
        let made: Vec<_> = (0..1_000).map(|_| ids.generate_cid()).collect();
        let strange = made.iter().filter(|id| others.owner_of(id).is_some()).count();
        let changed = |id: &ConnectionId| {
            let mut id = id.to_vec();
            id[NONCE_BYTES + 1] ^= 2;
            keys.owner_of(&id).is_some()
        };
        let changed = made.iter().filter(|id| changed(id)).count();
        assert_eq!((strange, changed), (0, 0));
    }

    #[test]
    fn who_follows_knows_all_that_are_there_by_numbers_of_their_own() {
        let first = hubs(2, (Keys::new(), 7), None);
        let mut all = vec![Generation::of(&first).unwrap()];
        let mut latest = Vec::new();
        // Far more than there are numbers; of those between only the latest is there.
        for _ in 0..1_000 {
            let made = Generation::succeed(&all, 2);
            assert!(made[0].keys.are(&first[0].keys) && made[0].process != 7);
            assert!(made[0].before.len() <= 2 && made[0].before.iter().any(|one| one.process == 7));
            latest = made;
            all.retain(Generation::is_there);
            all.push(Generation::of(&latest).unwrap());
        }
        let before = &latest[0].before;
        let (place, sockets) = Generation::find(before, 7).unwrap();
        assert!(before[place].way(1).is_some_and(|way| !way.is_closed()));
        assert!(sockets == 2 && before[place].way(2).is_none());
        assert!(Generation::find(before, latest[0].process).is_none());
        drop(first);
        assert!(Generation::find(before, 7).is_none(), "they are over");
        let strange = Generation::of(&hubs(1, (Keys::new(), 9), None)).unwrap();
        assert!(Generation::succeed(&[strange], 1)[0].before.is_empty());
        let (one, other) = (hubs(1, (Keys::new(), 3), None), hubs(1, (Keys::new(), 3), None));
        let both = [&one, &other].map(|sockets| Generation::of(sockets).unwrap());
        let made = Generation::succeed(&both, 1);
        assert!(made[0].keys.are(&other[0].keys) && made[0].process == 4 && made[0].before.len() == 1);
        assert!(made[0].before[0].is(&both[1]) && !both[0].is(&both[1]));
    }
}
