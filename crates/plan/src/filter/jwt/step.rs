//! What `jwt` does with a request.

use std::sync::Arc;
use std::time::Duration;

use model::RequestHead;

use super::called::Sought;
use super::decrypt::{Decryption, Decryptions, Slow};
use super::keys::TokenKeys;
use crate::filter::challenge::Lack;
use crate::filter::credential::{Carried, Place, Places};
use crate::filter::notes::Note;
use crate::filter::passing::{Passing, Verdict};
use crate::filter::token_cache::{Cache, Digest, digest_of};
use crate::filter::{EventCounter, Flow, Found, Need, RequestStep, Turn};
use crate::jose::{Algorithms, Claims, Encrypted, Refusal, Rules, TOKEN_BYTES_MAX, Token};

/// The first wait for keys; each further one is twice as long.
const WAIT: Duration = Duration::from_millis(100);
/// Waits for keys of one request: 1.5 s together.
const WAITS_MAX: u64 = 4;

const NO_KEYS: Lack = Lack::Unavailable("the keys that verify tokens are not available");

/// How tokens are verified.
pub(super) struct Verification {
    pub(super) keys: TokenKeys,
    pub(super) allowed: Algorithms,
    /// The type of token, if it matters.
    pub(super) kind: Option<String>,
    pub(super) rules: Rules,
    pub(super) passing: Passing,
    pub(super) cache: Arc<Cache<Verdict>>,
    /// What decrypts tokens, if they may be encrypted.
    pub(super) decryption: Option<Decryption>,
}

pub(super) struct Counters {
    pub(super) refused: EventCounter,
    pub(super) forbidden: EventCounter,
    pub(super) unavailable: EventCounter,
}

pub(super) struct JwtStep {
    pub(super) verification: Arc<Verification>,
    pub(super) places: Places,
    pub(super) allows_missing: bool,
    pub(super) passes_on: bool,
    /// The note that counts the waits for keys.
    pub(super) waited: usize,
    /// The note with the number of the decryption.
    pub(super) decrypted: usize,
    pub(super) decryptions: Arc<Decryptions>,
    pub(super) counters: Counters,
}

/// Why there is no verdict.
enum Failure {
    Refused(Refusal),
    /// No keys are known.
    NoKeys,
    /// The token is to be decrypted, which takes long.
    Slow,
    /// Nothing came of the decryption.
    NotDecrypted,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Verification {
    /// Verifies a token, or finds it among those that were verified. `slow` is its decryption, if that took long.
    fn verdict(&self, token: &[u8], slow: Option<&Slow>, now: u64) -> Result<Arc<Verdict>, Failure> {
        let digest = digest_of(token);
        let version = self.keys.version();
        if let Some(known) = self.cache.get(&digest, version, now) {
            return Ok(known);
        }
        let (claims, version) = match &self.decryption {
            Some(decryption) if Encrypted::has_form(token) => {
                return self.encrypted_verdict(decryption, (token, digest), slow, now);
            }
            Some(decryption) if decryption.is_required => return Err(Failure::Refused(Refusal::NotEncrypted)),
            _ => self.signed_claims(token)?,
        };
        let lifetime = self.rules.check(&claims, now)?;
        let verdict = Arc::new(self.passing.judge(claims));
        self.cache.put(digest, version, (now, lifetime.ends), (&verdict, verdict.weight()));
        Ok(verdict)
    }

    /// Returns the claims of a signed token, with the version of the keys.
    fn signed_claims(&self, token: &[u8]) -> Result<(Claims, u64), Failure> {
        let (keys, version) = self.keys.keys().ok_or(Failure::NoKeys)?;
        let parsed = Token::parse(token)?;
        if self.kind.as_deref().is_some_and(|kind| !parsed.is_of_kind(kind)) {
            return Err(Failure::Refused(Refusal::Type));
        }
        Ok((keys.verify(&parsed, self.allowed)?, version))
    }

    /// Verifies an encrypted token, or finds it among those that were verified.
    #[cold]
    fn encrypted_verdict(
        &self,
        decryption: &Decryption,
        (token, digest): (&[u8], Digest),
        slow: Option<&Slow>,
        now: u64,
    ) -> Result<Arc<Verdict>, Failure> {
        if let Some(known) = decryption.known.get(&digest, self.keys.version(), now) {
            return Ok(known);
        }
        let parsed = Encrypted::parse(token)?;
        let opened;
        let plain = match slow {
            Some(slow) => slow.found().ok_or(Failure::NotDecrypted)??,
            None if parsed.management.is_slow() => {
                decryption.check(&parsed)?;
                return Err(Failure::Slow);
            }
            None => {
                opened = decryption.open(&parsed)?;
                &opened
            }
        };
        let (claims, version) = self.claims_inside(decryption, &parsed, plain)?;
        let lifetime = self.rules.check(&claims, now)?;
        let verdict = Arc::new(self.passing.judge(claims));
        decryption.known.put((digest_of(plain), digest), version, (now, lifetime.ends), &verdict);
        Ok(verdict)
    }

    /// Returns the claims of what was in an encrypted token: a signed one, or claims if only its issuer can have encrypted them.
    fn claims_inside(
        &self,
        decryption: &Decryption,
        parsed: &Encrypted<'_>,
        plain: &[u8],
    ) -> Result<(Claims, u64), Failure> {
        if parsed.is_nested || !plain.starts_with(b"{") {
            return self.signed_claims(plain);
        }
        if !decryption.allows_unsigned || !parsed.management.is_shared() {
            return Err(Failure::Refused(Refusal::Unsigned));
        }
        if self.kind.as_deref().is_some_and(|kind| !parsed.is_of_kind(kind)) {
            return Err(Failure::Refused(Refusal::Type));
        }
        Ok((Claims::from_json(plain).ok_or(Refusal::Malformed)?, self.keys.version()))
    }
}

impl JwtStep {
    fn judge(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let place = match self.places.read(head, turn.scratch, TOKEN_BYTES_MAX) {
            Carried::None if self.allows_missing => {
                self.places.strip(None, head, turn.scratch);
                self.verification.passing.remove_forged(head);
                return Flow::Continue;
            }
            Carried::None => return self.refuse(Lack::NoToken, turn),
            Carried::Bad => return self.refuse(Lack::BadRequest, turn),
            Carried::One(place) => place,
        };
        if let TokenKeys::Called(called) = &self.verification.keys
            && let Some(fetch) = called.renew(turn)
        {
            return fetch;
        }
        let slow = self.decryption(turn);
        match self.verification.verdict(turn.scratch, slow.as_deref(), turn.unix_seconds()) {
            Ok(verdict) => self.pass((&verdict, place), head, turn),
            Err(Failure::Slow) => self.decrypt(turn),
            Err(Failure::NotDecrypted) => {
                self.refuse(Lack::Unavailable("tokens cannot be decrypted at the moment"), turn)
            }
            Err(Failure::NoKeys) => self.wait(turn).unwrap_or_else(|| self.refuse(NO_KEYS, turn)),
            Err(Failure::Refused(refusal)) => {
                let waiting = (refusal == Refusal::UnknownKey).then(|| self.wait(turn)).flatten();
                waiting.unwrap_or_else(|| self.refuse(Lack::BadToken(refusal.as_str()), turn))
            }
        }
    }

    /// Returns the decryption that this exchange has begun.
    fn decryption(&self, turn: &Turn<'_>) -> Option<Arc<Slow>> {
        self.verification.decryption.as_ref().and_then(|_| self.decryptions.get(self.decrypted, turn))
    }

    /// Has other threads decrypt the token.
    #[cold]
    fn decrypt(&self, turn: &mut Turn<'_>) -> Flow {
        let token = turn.scratch.clone();
        let by = self.verification.decryption.as_ref();
        by.and_then(|by| self.decryptions.begin(by, token, self.decrypted, turn))
            .unwrap_or_else(|| self.refuse(Lack::Unavailable("too many tokens are being decrypted"), turn))
    }

    /// Waits for keys, if any are on their way. A key that may be among them is not unknown.
    fn wait(&self, turn: &mut Turn<'_>) -> Option<Flow> {
        let waits = match turn.notes.get(self.waited) {
            Note::Number(waits) => waits,
            Note::None | Note::Flag(_) => 0,
        };
        if let TokenKeys::Called(called) = &self.verification.keys {
            return match called.seek(turn) {
                Sought::Comes(flow) => Some(flow),
                Sought::Late => Some(self.refuse(NO_KEYS, turn)),
                Sought::Absent => None,
            };
        }
        if turn.is_rehearsal || waits >= WAITS_MAX || !self.verification.keys.is_awaited() {
            return None;
        }
        turn.notes.set(self.waited, Note::Number(waits + 1));
        Some(Flow::Need(Need::Until(turn.now + WAIT * (1 << waits))))
    }

    fn pass(&self, (verdict, place): (&Verdict, Place), head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        if !verdict.is_allowed {
            return self.refuse(Lack::Claims, turn);
        }
        verdict.note(turn.notes);
        self.places.strip(self.passes_on.then_some(place), head, turn.scratch);
        self.verification.passing.write(verdict, head);
        Flow::Continue
    }

    fn refuse(&self, lack: Lack, turn: &Turn<'_>) -> Flow {
        turn.count(match lack {
            Lack::Claims => &self.counters.forbidden,
            Lack::Unavailable(_) => &self.counters.unavailable,
            Lack::NoToken | Lack::BadRequest | Lack::BadToken(_) => &self.counters.refused,
        });
        lack.answer()
    }
}

impl RequestStep for JwtStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        self.judge(head, turn)
    }

    fn resume(&self, head: &mut RequestHead, _: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        let flow = self.judge(head, turn);
        if !matches!(flow, Flow::Need(_)) && self.verification.decryption.is_some() {
            self.decryptions.end(self.decrypted, turn);
        }
        flow
    }
}
