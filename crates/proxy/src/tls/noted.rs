//! What the library of QUIC does not tell of a client's handshake: its cipher suite, and whether a session was resumed.
//!
//! A step of a handshake is done within one call, on one thread. So what it asks of cryptography and of tickets is noted beside,
//! and taken by whoever made the call. Where a ticket was good, the session is taken for resumed: the library may still do without,
//! as when the name is another.

use std::cell::Cell;
use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey};
use rustls::server::{ProducesTickets, StoresServerSessions};
use rustls::{CipherSuiteCommon, SupportedCipherSuite, Tls13CipherSuite};

use super::provider::Provider;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noted {
    /// The suite of the keys that were made last.
    pub cipher: Option<&'static str>,
    pub is_resumed: bool,
}

thread_local! {
    static NOTED: Cell<Noted> = const { Cell::new(Noted { cipher: None, is_resumed: false }) };
}

impl Noted {
    /// Returns what was noted on this thread since this was last asked.
    pub(crate) fn take() -> Self {
        NOTED.take()
    }

    /// Adds what was noted later.
    pub(crate) fn add(&mut self, later: Self) {
        self.cipher = later.cipher.or(self.cipher);
        self.is_resumed |= later.is_resumed;
    }
}

fn note_resumed() {
    NOTED.set(Noted { is_resumed: true, ..NOTED.get() });
}

/// Suites that note which of them makes keys.
static SUITES: LazyLock<Vec<SupportedCipherSuite>> =
    LazyLock::new(|| rustls::crypto::aws_lc_rs::default_provider().cipher_suites.into_iter().map(noting).collect());

/// Returns the same cryptography, which notes.
pub(super) fn provider(provider: &Provider) -> Provider {
    Arc::new(CryptoProvider { cipher_suites: SUITES.clone(), ..CryptoProvider::clone(provider) })
}

fn noting(suite: SupportedCipherSuite) -> SupportedCipherSuite {
    let SupportedCipherSuite::Tls13(own) = suite else { return suite };
    let Some(inner) = own.quic else { return suite };
    let name = own.common.suite.as_str().unwrap_or("unknown");
    // Once in the life of the process for each suite.
    let quic: &'static Keys = Box::leak(Box::new(Keys { inner, name }));
    let common = CipherSuiteCommon {
        suite: own.common.suite,
        hash_provider: own.common.hash_provider,
        confidentiality_limit: own.common.confidentiality_limit,
    };
    let (hkdf_provider, aead_alg) = (own.hkdf_provider, own.aead_alg);
    let suite = Tls13CipherSuite { common, hkdf_provider, aead_alg, quic: Some(quic) };
    SupportedCipherSuite::Tls13(Box::leak(Box::new(suite)))
}

/// Makes the keys of a suite.
struct Keys {
    inner: &'static dyn Algorithm,
    name: &'static str,
}

impl Algorithm for Keys {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn PacketKey> {
        NOTED.set(Noted { cipher: Some(self.name), ..NOTED.get() });
        self.inner.packet_key(key, iv)
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn HeaderProtectionKey> {
        self.inner.header_protection_key(key)
    }

    fn aead_key_len(&self) -> usize {
        self.inner.aead_key_len()
    }

    fn fips(&self) -> bool {
        self.inner.fips()
    }
}

/// Tickets that note when one was good.
#[derive(Debug)]
pub(super) struct Tickets(pub Arc<dyn ProducesTickets>);

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.0.decrypt(cipher).inspect(|_| note_resumed())
    }
}

/// Sessions that note when one was there.
#[derive(Debug)]
pub(super) struct Sessions(pub Arc<dyn StoresServerSessions>);

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.0.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.get(key).inspect(|_| note_resumed())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.take(key).inspect(|_| note_resumed())
    }

    fn can_cache(&self) -> bool {
        self.0.can_cache()
    }
}
