//! Session tickets (RFC 8446 section 4.6.1, RFC 5077): what a client needs to come again without a whole handshake, sealed by a
//! key that only we have.
//!
//! A key seals for [`TURN`] and opens for as long again. Keys go to the process that follows this one, so that clients
//! resume their sessions there.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::server::ProducesTickets;

/// How long a key seals.
const TURN: Duration = Duration::from_secs(6 * 3600);
const NAME_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
const TAG_BYTES: usize = 16;

/// The keys of one listener.
pub(crate) struct Tickets(RwLock<Keys>);

struct Keys {
    current: Key,
    previous: Option<Key>,
}

struct Key {
    parts: TicketKey,
    sealing: LessSafeKey,
    made: Instant,
}

/// A key, for another process.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKey {
    /// By which tickets say what they are sealed with.
    pub name: [u8; NAME_BYTES],
    /// The key itself.
    pub secret: [u8; SECRET_BYTES],
    /// How long ago it was made.
    pub age: Duration,
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketKey({:?} old)", self.age)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

impl Key {
    fn new(now: Instant) -> Option<Self> {
        let (mut name, mut secret) = ([0; NAME_BYTES], [0; SECRET_BYTES]);
        aws_lc_rs::rand::fill(&mut name).ok()?;
        aws_lc_rs::rand::fill(&mut secret).ok()?;
        Self::of(TicketKey { name, secret, age: Duration::ZERO }, now)
    }

    fn of(parts: TicketKey, now: Instant) -> Option<Self> {
        let sealing = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &parts.secret).ok()?);
        let made = now.checked_sub(parts.age).unwrap_or(now);
        Some(Self { parts, sealing, made })
    }

    /// Name, nonce, and the sealed content with its tag.
    fn seal(&self, content: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let mut ticket = Vec::with_capacity(NAME_BYTES + NONCE_LEN + content.len() + TAG_BYTES);
        ticket.extend(self.parts.name);
        ticket.extend(nonce);
        let mut sealed = content.to_vec();
        let name = Aad::from(self.parts.name);
        self.sealing.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), name, &mut sealed).ok()?;
        ticket.extend(sealed);
        Some(ticket)
    }

    fn open(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        if *name != self.parts.name {
            return None;
        }
        let mut content = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.sealing.open_in_place(nonce, Aad::from(*name), &mut content).ok()?.len();
        content.truncate(length);
        Some(content)
    }
}

impl Tickets {
    /// With keys of another process, the one that seals first; new ones without. `None`: the system has no randomness.
    pub(crate) fn new(inherited: &[TicketKey]) -> Option<Arc<Self>> {
        let now = Instant::now();
        let mut known = inherited.iter().filter(|key| key.age < TURN * 2).filter_map(|key| Key::of(key.clone(), now));
        let keys = match known.next() {
            Some(current) => Keys { current, previous: known.next() },
            None => Keys { current: Key::new(now)?, previous: None },
        };
        Some(Arc::new(Self(RwLock::new(keys))))
    }

    fn keys(&self) -> RwLockReadGuard<'_, Keys> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the keys, for another process.
    pub(crate) fn hand_over(&self) -> Vec<TicketKey> {
        let (keys, now) = (self.keys(), Instant::now());
        let all = std::iter::once(&keys.current).chain(&keys.previous);
        all.map(|key| TicketKey { age: now.saturating_duration_since(key.made), ..key.parts.clone() }).collect()
    }

    fn turn(&self, now: Instant) {
        let is_due = |keys: &Keys| now.saturating_duration_since(keys.current.made) >= TURN;
        if !is_due(&self.keys()) {
            return;
        }
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if is_due(&keys)
            && let Some(next) = Key::new(now)
        {
            let before = std::mem::replace(&mut keys.current, next);
            keys.previous = Some(before);
        }
    }

    fn seal_at(&self, content: &[u8], now: Instant) -> Option<Vec<u8>> {
        self.turn(now);
        self.keys().current.seal(content)
    }

    fn open_at(&self, ticket: &[u8], now: Instant) -> Option<Vec<u8>> {
        let keys = self.keys();
        let mut all = std::iter::once(&keys.current).chain(&keys.previous);
        all.find_map(|key| {
            let lives = now.saturating_duration_since(key.made) < TURN * 2;
            lives.then(|| key.open(ticket)).flatten()
        })
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        (TURN * 2).as_secs() as u32
    }

    fn encrypt(&self, content: &[u8]) -> Option<Vec<u8>> {
        self.seal_at(content, Instant::now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open_at(ticket, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_opens_for_two_turns_here_and_with_who_follows() {
        let (tickets, now) = (Tickets::new(&[]).unwrap(), Instant::now());
        let ticket = tickets.seal_at(b"session", now).unwrap();
        let opened = |tickets: &Tickets, later: Duration| tickets.open_at(&ticket, now + later);
        let known = Some(b"session".to_vec());
        assert_eq!(opened(&tickets, Duration::ZERO), known);
        assert_eq!(opened(&Tickets::new(&tickets.hand_over()).unwrap(), Duration::ZERO), known);
        assert_eq!(opened(&Tickets::new(&[]).unwrap(), Duration::ZERO), None);
        let other = tickets.seal_at(b"another", now + TURN).unwrap();
        assert_ne!(other[..NAME_BYTES], ticket[..NAME_BYTES], "another key's turn");
        assert_eq!(opened(&tickets, TURN), known);
        assert_eq!(opened(&Tickets::new(&tickets.hand_over()).unwrap(), Duration::ZERO), known);
        assert_eq!(opened(&tickets, TURN * 2 + Duration::from_secs(1)), None);
        assert_eq!(tickets.open_at(&other, now + TURN * 2).as_deref(), Some(&b"another"[..]));
    }

    #[test]
    fn what_was_changed_is_no_ticket() {
        let tickets = Tickets::new(&[]).unwrap();
        let ticket = tickets.encrypt(b"session").unwrap();
        assert_eq!(tickets.encrypt(b"").and_then(|ticket| tickets.decrypt(&ticket)), Some(Vec::new()));
        for place in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[place] ^= 1;
            assert_eq!(tickets.decrypt(&changed), None, "{place}");
            assert_eq!(tickets.decrypt(&ticket[..place]), None, "{place}");
        }
    }
}
