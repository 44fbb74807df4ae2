//! Sessions and logins in progress, as sealed cookies.

use std::fmt;
use std::sync::{Arc, LazyLock};

use model::{FieldName, Fields, Known, cookie};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::seal::{SEAL_BYTES, Sealer};
use crate::filter::Turn;
use crate::filter::passing::{Passing, Verdict};
use crate::filter::token_cache::{Cache, digest_of};
use crate::jose::Claims;

/// Bytes of one cookie's value: browsers take 4,096 bytes with name and attributes (RFC 6265 section 6.1).
const CHUNK_BYTES: usize = 3_500;
/// Cookies of one session: together they stay below the bound of a request head.
const CHUNKS_MAX: usize = 4;
/// Bytes of a session as JSON, of which a seal in base64 fits into the cookies.
const PLAIN_BYTES_MAX: usize = CHUNK_BYTES * CHUNKS_MAX / 4 * 3 - SEAL_BYTES;
/// How long a user may take to log in, in seconds.
pub(super) const LOGIN_SECONDS: u64 = 600;
/// Logins of one browser that are in progress at once. One more ends the others, so that the head of its requests stays small.
const LOGINS_MAX: usize = 5;
/// The version of a session in the cache: the seal is the key.
const VERSION: u64 = 0;

static COOKIE: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("cookie").unwrap_or_else(|_| unreachable!("a constant token")));

/// What is known of a user who has logged in. Times are seconds since 1970.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Session {
    /// The same from login to logout.
    #[serde(rename = "k")]
    pub(super) key: String,
    /// When it ends, whatever happens.
    #[serde(rename = "e")]
    pub(super) ends: u64,
    /// When it was used last, roughly.
    #[serde(rename = "u")]
    pub(super) used: u64,
    /// When it is to be refreshed, if there is a token for that.
    #[serde(rename = "f")]
    pub(super) fresh_until: u64,
    /// When it ends unless it was refreshed, if there is a token for that.
    #[serde(rename = "x")]
    pub(super) expires: u64,
    /// The ID token. It was verified before it was sealed.
    #[serde(rename = "i")]
    pub(super) id_token: String,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub(super) refresh_token: Option<String>,
    /// Kept if it goes to the endpoint.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub(super) access_token: Option<String>,
    /// Claims of the userinfo endpoint that the ID token does not have.
    #[serde(rename = "m", default, skip_serializing_if = "Map::is_empty")]
    pub(super) more: Map<String, Value>,
}

/// Tokens are secrets.
impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ends, used, fresh_until, .. } = self;
        let mut shown = f.debug_struct("Session");
        shown.field("ends", ends).field("used", used).field("fresh_until", fresh_until).finish_non_exhaustive()
    }
}

/// A session that was opened, with what its claims do to a request.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) session: Session,
    pub(super) verdict: Verdict,
}

/// A login in progress.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Login {
    #[serde(rename = "s")]
    pub(super) state: String,
    #[serde(rename = "n")]
    pub(super) nonce: String,
    /// The verifier of PKCE (RFC 7636).
    #[serde(rename = "v")]
    pub(super) verifier: String,
    /// Where the user wanted to go: a path with its query.
    #[serde(rename = "t")]
    pub(super) target: String,
    #[serde(rename = "e")]
    pub(super) ends: u64,
    /// It follows one whose token had an unknown key.
    #[serde(rename = "g", default)]
    pub(super) is_second: bool,
}

/// How long sessions last, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetimes {
    pub(super) idle: u64,
    pub(super) absolute: u64,
}

/// The cookies of one filter.
pub(super) struct Cookies {
    pub(super) sealer: Arc<Sealer>,
    pub(super) name: String,
    /// Names the provider and the client: what was sealed for others is not opened.
    pub(super) purpose: String,
    pub(super) lifetimes: Lifetimes,
    pub(super) cache: Cache<Opened>,
    /// Whether browsers use TLS, if something else than the connection says so.
    pub(super) is_public_secure: Option<bool>,
}

impl Cookies {
    pub(super) fn is_secure(&self, turn: &Turn<'_>) -> bool {
        self.is_public_secure.unwrap_or_else(|| turn.is_secure())
    }

    /// Returns the session of a request, if it is still good, with those claims of the userinfo endpoint that are taken. The bytes of its
    /// cookies are left in `scratch`.
    pub(super) fn session(
        &self,
        fields: &Fields,
        (passing, takes): (&Passing, &dyn Fn(&str) -> bool),
        turn: &mut Turn<'_>,
    ) -> Option<Arc<Opened>> {
        let is_secure = self.is_secure(turn);
        let now = turn.unix_seconds();
        self.read(fields, is_secure, turn.scratch)?;
        let digest = digest_of(turn.scratch);
        let is_good = |session: &Session| now < session.ends && now < session.used.saturating_add(self.lifetimes.idle);
        if let Some(opened) = self.cache.get(&digest, VERSION, now) {
            return Some(opened).filter(|opened| is_good(&opened.session));
        }
        let plain = self.sealer.open(&self.session_purpose(), turn.scratch)?;
        let mut session = serde_json::from_slice::<Session>(&plain).ok().filter(is_good)?;
        session.more.retain(|name, _| takes(name));
        let mut claims = Claims::of_verified(&session.id_token)?;
        claims.add(&session.more);
        let opened = Arc::new(Opened { verdict: passing.judge(claims), session });
        let weight = plain.len() + opened.verdict.weight();
        self.cache.put(digest, VERSION, (now, opened.session.ends), (&opened, weight));
        Some(opened)
    }

    /// Joins the cookies of a session. The first begins with their number.
    fn read(&self, fields: &Fields, is_secure: bool, out: &mut Vec<u8>) -> Option<()> {
        out.clear();
        let name = self.chunk(0, is_secure);
        let (count, first) = only(fields, name.as_bytes())?.split_first()?;
        let count = usize::from(count.checked_sub(b'0')?);
        if !(1..=CHUNKS_MAX).contains(&count) {
            return None;
        }
        out.extend_from_slice(first);
        for place in 1..count {
            out.extend_from_slice(only(fields, self.chunk(place, is_secure).as_bytes())?);
        }
        (out.len() <= CHUNK_BYTES * CHUNKS_MAX).then_some(())
    }

    /// Returns how many bytes more a session may have as JSON. `None`: it is too large.
    pub(super) fn room(&self, session: &Session) -> Option<usize> {
        PLAIN_BYTES_MAX.checked_sub(serde_json::to_vec(session).ok()?.len())
    }

    /// Appends the values of `set-cookie` for a session. Returns `None` if it is too large.
    pub(super) fn set_session(&self, session: &Session, out: &mut Vec<String>, turn: &mut Turn<'_>) -> Option<()> {
        let sealed = self.sealer.seal(&self.session_purpose(), &serde_json::to_vec(session).ok()?, turn)?;
        let chunks: Vec<&str> =
            sealed.as_bytes().chunks(CHUNK_BYTES).filter_map(|chunk| std::str::from_utf8(chunk).ok()).collect();
        if chunks.len() > CHUNKS_MAX {
            return None;
        }
        let is_secure = self.is_secure(turn);
        let age = session.ends.saturating_sub(turn.unix_seconds()).min(self.lifetimes.idle);
        for (place, chunk) in chunks.iter().enumerate() {
            let count = if place == 0 { chunks.len().to_string() } else { String::new() };
            out.push(line(&self.chunk(place, is_secure), &format!("{count}{chunk}"), age, is_secure));
        }
        Some(())
    }

    /// Appends the values of `set-cookie` that take away the session that a request has.
    pub(super) fn remove_session(&self, fields: &Fields, is_secure: bool, out: &mut Vec<String>) {
        for place in 0..CHUNKS_MAX {
            let name = self.chunk(place, is_secure);
            if cookie::values(fields, name.as_bytes()).next().is_some() {
                out.push(line(&name, "", 0, is_secure));
            }
        }
    }

    /// Removes all cookies of this filter from a request, so that the endpoint does not see them.
    pub(super) fn strip(&self, fields: &mut Fields, scratch: &mut Vec<u8>) {
        let pairs = |fields: &Fields, each: &mut dyn FnMut(&[u8])| {
            fields.all_known(Known::Cookie).flat_map(|field| field.split(|&byte| byte == b';')).for_each(each);
        };
        let mut is_there = false;
        pairs(fields, &mut |pair| is_there |= self.is_own(pair));
        if !is_there {
            return;
        }
        scratch.clear();
        pairs(fields, &mut |pair| {
            let pair = pair.trim_ascii();
            if pair.is_empty() || self.is_own(pair) {
                return;
            }
            if !scratch.is_empty() {
                scratch.extend_from_slice(b"; ");
            }
            scratch.extend_from_slice(pair);
        });
        if scratch.is_empty() {
            fields.remove_known(Known::Cookie);
        } else {
            fields.set(&COOKIE, scratch);
        }
    }

    /// Returns whether a pair is a cookie of this filter, over TLS or not.
    fn is_own(&self, pair: &[u8]) -> bool {
        let name = pair.split(|&byte| byte == b'=').next().unwrap_or_default().trim_ascii();
        let name = name.strip_prefix(b"__Host-").unwrap_or(name);
        let Some(rest) = name.strip_prefix(self.name.as_bytes()) else { return false };
        let is_chunk = matches!(rest, [b'_', place] if place.is_ascii_digit());
        rest.is_empty() || is_chunk || rest.starts_with(b"_login_")
    }

    /// Returns the login that a state belongs to.
    pub(super) fn login(&self, fields: &Fields, state: &[u8], turn: &Turn<'_>) -> Option<Login> {
        let state = std::str::from_utf8(state).ok()?;
        let name = self.login_name(state, self.is_secure(turn))?;
        let sealed = only(fields, name.as_bytes())?;
        let login: Login = serde_json::from_slice(&self.sealer.open(&self.login_purpose(), sealed)?).ok()?;
        let is_same = aws_lc_rs::constant_time::verify_slices_are_equal(login.state.as_bytes(), state.as_bytes());
        (is_same.is_ok() && turn.unix_seconds() < login.ends).then_some(login)
    }

    /// Appends the values of `set-cookie` for a login, and those that end others if there are too many.
    pub(super) fn set_login(
        &self,
        login: &Login,
        fields: &Fields,
        out: &mut Vec<String>,
        turn: &mut Turn<'_>,
    ) -> Option<()> {
        let is_secure = self.is_secure(turn);
        let prefix = format!("{}_login_", self.chunk(0, is_secure));
        let pairs = fields.all_known(Known::Cookie).flat_map(|field| field.split(|&byte| byte == b';'));
        let names = pairs.filter_map(|pair| pair.split(|&byte| byte == b'=').next());
        let names = names.filter_map(|name| std::str::from_utf8(name.trim_ascii()).ok());
        let others: Vec<&str> = names.filter(|name| name.starts_with(&prefix) && name.len() <= 100).collect();
        if others.len() >= LOGINS_MAX {
            let others = others.into_iter().filter(|name| model::fields::is_token(name.as_bytes())).take(64);
            out.extend(others.map(|name| line(name, "", 0, is_secure)));
        }
        let sealed = self.sealer.seal(&self.login_purpose(), &serde_json::to_vec(login).ok()?, turn)?;
        out.push(line(&self.login_name(&login.state, is_secure)?, &sealed, LOGIN_SECONDS, is_secure));
        Some(())
    }

    /// Returns the value of `set-cookie` that takes a login away.
    pub(super) fn remove_login(&self, state: &str, is_secure: bool) -> Option<String> {
        Some(line(&self.login_name(state, is_secure)?, "", 0, is_secure))
    }

    /// Each login has a cookie of its own: a user may log in in two windows at once.
    fn login_name(&self, state: &str, is_secure: bool) -> Option<String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let start = state.get(..8).filter(|start| start.bytes().all(is_plain))?;
        Some(format!("{}_login_{start}", self.chunk(0, is_secure)))
    }

    /// The prefix has browsers refuse a cookie of this name from other hosts, and without TLS (RFC 6265bis section 4.1.3.2).
    fn chunk(&self, place: usize, is_secure: bool) -> String {
        let prefix = if is_secure { "__Host-" } else { "" };
        let end = if place == 0 { String::new() } else { format!("_{place}") };
        format!("{prefix}{}{end}", self.name)
    }

    fn session_purpose(&self) -> String {
        format!("session {}", self.purpose)
    }

    fn login_purpose(&self) -> String {
        format!("login {}", self.purpose)
    }
}

/// Returns the only cookie of a name: if there are two, another host below the same domain may have set one of them.
fn only<'a>(fields: &'a Fields, name: &'a [u8]) -> Option<&'a [u8]> {
    let mut values = cookie::values(fields, name);
    values.next().filter(|_| values.next().is_none())
}

fn line(name: &str, value: &str, age: u64, is_secure: bool) -> String {
    let secure = if is_secure { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}; Max-Age={age}")
}
