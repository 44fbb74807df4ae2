//! Encrypted tokens: the settings, and decryptions that other threads do.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use model::Issue;
use schemars::JsonSchema;
use serde::Deserialize;

use super::wrapped::Wrapped;
use crate::filter::settings::FileText;
use crate::filter::{AtEnd, Ended, Flow, Job, Need, Note, Turn, Work};
use crate::jose::{DecryptionKeys, Encrypted, KeyManagement, Refusal};

/// Decryptions of one filter at once, with those that wait for a thread.
const RUNNING_MAX: usize = 16;
/// The same of all filters together: threads also verify passwords.
const ALL_MAX: usize = 48;

static ALL: AtomicUsize = AtomicUsize::new(0);

/// How encrypted tokens are decrypted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decrypt {
    /// A file with private keys or shared secrets: a JSON Web Key Set, or private keys in PEM.
    keys_file: FileText,
    /// Accept tokens that are encrypted with a shared secret and not signed. The secret then is what proves their origin.
    #[serde(default)]
    pub(super) allow_unsigned: bool,
    /// Refuse tokens that are not encrypted.
    #[serde(default)]
    required: bool,
}

/// What decrypts the tokens of a filter.
pub(super) struct Decryption {
    keys: Arc<DecryptionKeys>,
    pub(super) allows_unsigned: bool,
    pub(super) is_required: bool,
    /// What is known of them.
    pub(super) known: Wrapped,
}

impl Decrypt {
    /// Reads the keys.
    ///
    /// # Errors
    /// A key of the file cannot decrypt tokens, or none is a shared secret where unsigned tokens are accepted.
    pub(super) fn compile(self) -> Result<Decryption, Issue> {
        let keys = DecryptionKeys::parse(&self.keys_file.text);
        let keys = keys.map_err(|why| Issue::at("decrypt/keys_file", format!("`{}`: {why}", self.keys_file.name)))?;
        let has_shared = KeyManagement::ALL.iter().any(|one| one.is_shared() && keys.allows(*one));
        if self.allow_unsigned && !has_shared {
            // Everyone can encrypt with a public key.
            let issue = Issue::at("decrypt/allow_unsigned", "no key in `keys_file` is a shared secret");
            return Err(issue.suggest("leave `allow_unsigned` out: tokens for a public key must be signed"));
        }
        Ok(Decryption {
            keys: Arc::new(keys),
            allows_unsigned: self.allow_unsigned,
            is_required: self.required,
            known: Wrapped::default(),
        })
    }
}

impl Decryption {
    /// Checks what is visible of a token without its key.
    ///
    /// # Errors
    /// See [`DecryptionKeys::check`].
    pub(super) fn check(&self, token: &Encrypted<'_>) -> Result<(), Refusal> {
        self.keys.check(token)
    }

    /// Decrypts a token.
    ///
    /// # Errors
    /// See [`DecryptionKeys::decrypt`].
    pub(super) fn open(&self, token: &Encrypted<'_>) -> Result<Vec<u8>, Refusal> {
        self.keys.decrypt(token)
    }
}

/// Decryptions that take long, from their begin until their token is judged or their exchange has ended.
#[derive(Default)]
pub(super) struct Decryptions {
    running: Mutex<HashMap<u64, Arc<Slow>>>,
    numbers: AtomicU64,
    places: Arc<AtomicUsize>,
}

/// One of the places that are bounded. A decryption holds it until no thread has it either.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(own: &Arc<AtomicUsize>) -> Option<Self> {
        let enter = |count: &AtomicUsize, max: usize| {
            count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |now| (now < max).then_some(now + 1)).is_ok()
        };
        if !enter(own, RUNNING_MAX) {
            return None;
        }
        if !enter(&ALL, ALL_MAX) {
            own.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        Some(Self(Arc::clone(own)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
        ALL.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One of them.
pub(super) struct Slow {
    keys: Arc<DecryptionKeys>,
    token: Vec<u8>,
    found: OnceLock<Result<Vec<u8>, Refusal>>,
    _place: Place,
}

impl Work for Slow {
    fn run(&self, _: &mut dyn FnMut() -> u64) -> bool {
        let found = self.found.get_or_init(|| self.keys.decrypt(&Encrypted::parse(&self.token)?));
        found.is_ok()
    }
}

impl Slow {
    /// Returns what is in the token, if it was decrypted.
    pub(super) fn found(&self) -> Option<Result<&[u8], Refusal>> {
        self.found.get().map(|found| found.as_deref().map_err(|refusal| *refusal))
    }
}

impl Decryptions {
    /// Begins one, whose number stands under this note from now on. Returns `None` if too many are running.
    pub(super) fn begin(
        self: &Arc<Self>,
        by: &Decryption,
        token: Vec<u8>,
        note: usize,
        turn: &mut Turn<'_>,
    ) -> Option<Flow> {
        let place = Place::take(&self.places)?;
        let slow = Arc::new(Slow { keys: Arc::clone(&by.keys), token, found: OnceLock::new(), _place: place });
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.running().insert(number, Arc::clone(&slow));
        turn.notes.set(note, Note::Number(number));
        turn.notes.at_end(Arc::clone(self) as Arc<dyn AtEnd>, number);
        Some(Flow::Need(Need::Work(Job(slow))))
    }

    /// Returns the one that an exchange has begun.
    pub(super) fn get(&self, note: usize, turn: &Turn<'_>) -> Option<Arc<Slow>> {
        let Note::Number(number) = turn.notes.get(note) else { return None };
        self.running().get(&number).cloned()
    }

    /// Ends the one that an exchange has begun.
    pub(super) fn end(&self, note: usize, turn: &Turn<'_>) {
        if let Note::Number(number) = turn.notes.get(note) {
            self.running().remove(&number);
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<u64, Arc<Slow>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AtEnd for Decryptions {
    fn at_end(&self, number: u64, _: &Ended) {
        self.running().remove(&number);
    }
}
