//! The way to the provider and back.

use std::sync::LazyLock;
use std::time::Duration;

use model::{Fault, FieldName, LocalResponse, Method, RequestHead};
use serde_json::{Map, Value};

use super::OidcStep;
use super::session::{LOGIN_SECONDS, Login, Session};
use super::userinfo::Begun;
use crate::filter::token_endpoint::{NoTokens, Tokens};
use crate::filter::{Flow, Need, Note, Reply, Turn};
use crate::jose::Refusal;
use crate::route::query::{decoded, equals_decoded, split_at_equals};

/// Bytes of a parameter that the provider sends with the browser.
const PARAMETER_BYTES_MAX: usize = 4_096;
/// Bytes of the path that the browser comes back to.
const TARGET_BYTES_MAX: usize = 2_048;
/// The first wait for keys; each further one is twice as long.
const WAIT: Duration = Duration::from_millis(100);
/// Waits for keys of one request: 1.5 s together.
const WAITS_MAX: u64 = 4;

static FETCH_SITE: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("sec-fetch-site").unwrap_or_else(|_| unreachable!("a constant token")));

const UNAVAILABLE: &str = "the login provider is not available";

impl OidcStep {
    /// Sends the browser to the provider.
    pub(super) fn log_in(&self, head: &RequestHead, target: String, is_second: bool, turn: &mut Turn<'_>) -> Flow {
        let Some(metadata) = self.provider.metadata() else {
            return self.wait(turn).unwrap_or_else(|| self.unavailable(turn));
        };
        if turn.is_rehearsal {
            // What is shown must not begin a login.
            return redirect(metadata.authorization_url.clone(), Vec::new());
        }
        let Some(redirect_uri) = self.own_url(head, &self.paths.callback, turn) else {
            return Flow::refuse(400, "the host of the request is not one to log in at");
        };
        let sealer = &self.cookies.sealer;
        let login = Login {
            state: sealer.draw(turn),
            nonce: sealer.draw(turn),
            verifier: sealer.draw(turn),
            target,
            ends: turn.unix_seconds() + LOGIN_SECONDS,
            is_second,
        };
        let mut cookies = Vec::new();
        if self.cookies.set_login(&login, &head.fields, &mut cookies, turn).is_none() {
            return self.unavailable(turn);
        }
        turn.count(&self.counters.redirected);
        redirect(self.provider.login_url(&metadata, &login, &redirect_uri), cookies)
    }

    /// Takes the browser that comes back from the provider (OpenID Connect Core section 3.1.2.5).
    pub(super) fn callback(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        // The code in it is a secret.
        head.hide_received_query();
        if head.method != Method::Get {
            return self.refuse(405, "the callback takes GET only", turn);
        }
        let Ok(returned) = Returned::read(head.query().unwrap_or_default()) else {
            return self.refuse(400, "the parameters of the callback are malformed", turn);
        };
        let Some(login) = self.cookies.login(&head.fields, &returned.state, turn) else {
            return self.refuse(
                400,
                "this login is unknown, was completed, or took too long: open the page again",
                turn,
            );
        };
        // RFC 9207 section 2.4.
        if returned.issuer.is_some_and(|issuer| issuer != self.issuer.as_bytes()) {
            return self.end(400, "the answer is from another login provider", &login, turn);
        }
        let Some(code) = returned.code.filter(|code| !code.is_empty() && !returned.is_error) else {
            return self.end(403, "the login provider has not let the user in", &login, turn);
        };
        let waits = self.provider.keys.keys().is_none() || (login.is_second && self.provider.keys.is_awaited());
        if waits && let Some(wait) = self.wait(turn) {
            return wait;
        }
        let redirect_uri = self.own_url(head, &self.paths.callback, turn);
        match (self.provider.keys.keys(), self.provider.metadata(), redirect_uri) {
            (Some(_), Some(metadata), Some(redirect_uri)) if !turn.is_rehearsal => {
                Flow::Need(self.provider.redeem(&metadata, &code, &login, &redirect_uri))
            }
            _ => self.unavailable(turn),
        }
    }

    /// Goes on with the answer to the code.
    pub(super) fn redeemed(&self, head: &RequestHead, reply: Result<Box<Reply>, Fault>, turn: &mut Turn<'_>) -> Flow {
        let returned = Returned::read(head.query().unwrap_or_default());
        let login = returned.ok().and_then(|returned| self.cookies.login(&head.fields, &returned.state, turn));
        let Some(login) = login else { return self.refuse(400, "this login took too long: open the page again", turn) };
        let tokens = match Tokens::read(reply) {
            Ok(tokens) => tokens,
            Err(NoTokens::Refused) => return self.end(403, "the login provider refuses this login", &login, turn),
            Err(NoTokens::Unavailable) => return self.unavailable(turn),
        };
        let now = turn.unix_seconds();
        let Some(id_token) = &tokens.id_token else { return self.unavailable(turn) };
        let claims = match self.verify(id_token, Some(&login.nonce), now) {
            Ok(claims) => claims,
            Err(Refusal::UnknownKey) if !login.is_second => {
                // The code is spent: the browser fetches another while the keys are fetched.
                self.provider.keys.is_awaited();
                return self.log_in(head, login.target, true, turn);
            }
            Err(_) => return self.end(403, "the ID token of the login provider is refused", &login, turn),
        };
        let key = self.cookies.sealer.draw(turn);
        let access_token = tokens.access_token.clone();
        let Some(session) = self.session_of(tokens, None, &key, now) else { return self.unavailable(turn) };
        match &self.userinfo {
            None => self.enter(&session, login, turn),
            Some(userinfo) => {
                let begun = Begun { session, claims, login: Some(login) };
                self.ask_userinfo(userinfo, begun, access_token.as_deref(), turn)
                    .unwrap_or_else(|| self.unavailable(turn))
            }
        }
    }

    /// Goes on with what the userinfo endpoint says of a user who logs in.
    pub(super) fn described(
        &self,
        mut session: Session,
        login: Login,
        more: Result<Map<String, Value>, NoTokens>,
        turn: &mut Turn<'_>,
    ) -> Flow {
        match more {
            Ok(more) => {
                self.give_claims(&mut session, more, turn);
                self.enter(&session, login, turn)
            }
            Err(NoTokens::Refused) => {
                self.end(403, "what the login provider says of the user is refused", &login, turn)
            }
            Err(NoTokens::Unavailable) => self.unavailable(turn),
        }
    }

    /// Lets the browser in, and back to its page.
    fn enter(&self, session: &Session, login: Login, turn: &mut Turn<'_>) -> Flow {
        let mut cookies = Vec::new();
        if self.cookies.set_session(session, &mut cookies, turn).is_none() {
            return self.end(
                500,
                "the tokens and claims of the login provider are too large for cookies",
                &login,
                turn,
            );
        }
        cookies.extend(self.cookies.remove_login(&login.state, self.cookies.is_secure(turn)));
        turn.count(&self.counters.logged_in);
        redirect(login.target, cookies)
    }

    /// Ends the session, here and at the provider.
    pub(super) fn log_out(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Flow {
        if head.fields.get(&FETCH_SITE) == Some(b"cross-site") {
            // Another site must not log users out by a link that they follow, or a form that it submits.
            return self.refuse(403, "log out from a page of this site", turn);
        }
        let session = self.session(head, turn);
        if let Some(opened) = session.as_ref().filter(|_| !turn.is_rehearsal) {
            self.refreshes.log_out(&opened.session, turn.now);
        }
        let id_token = session.as_ref().map(|opened| opened.session.id_token.as_str()).filter(|_| !turn.is_rehearsal);
        let back_to = match self.paths.after_logout.as_deref() {
            Some(path) if path.starts_with('/') => self.own_url(head, path, turn),
            other => other.map(str::to_owned),
        };
        let metadata = self.provider.metadata();
        let at_provider =
            metadata.and_then(|metadata| self.provider.logout_url(&metadata, id_token, back_to.as_deref()));
        let mut cookies = Vec::new();
        self.cookies.remove_session(&head.fields, self.cookies.is_secure(turn), &mut cookies);
        turn.count(&self.counters.logged_out);
        redirect(at_provider.or(back_to).unwrap_or_else(|| "/".to_owned()), cookies)
    }

    /// Waits for what the provider says of itself, if that is on its way.
    fn wait(&self, turn: &mut Turn<'_>) -> Option<Flow> {
        if self.provider.keys.is_awaited() { self.pause(turn) } else { None }
    }

    /// Waits a moment, each time longer. Returns `None` if the request has waited long enough.
    pub(super) fn pause(&self, turn: &mut Turn<'_>) -> Option<Flow> {
        let waits = match turn.notes.get(self.waited) {
            Note::Number(waits) => waits,
            Note::None | Note::Flag(_) => 0,
        };
        if turn.is_rehearsal || waits >= WAITS_MAX {
            return None;
        }
        turn.notes.set(self.waited, Note::Number(waits + 1));
        Some(Flow::Need(Need::Until(turn.now + WAIT * (1 << waits))))
    }

    pub(super) fn unavailable(&self, turn: &Turn<'_>) -> Flow {
        turn.count(&self.counters.unavailable);
        Flow::refuse(503, UNAVAILABLE)
    }

    fn refuse(&self, status: u16, text: &str, turn: &Turn<'_>) -> Flow {
        turn.count(&self.counters.refused);
        answer(status, text, Vec::new())
    }

    /// Refuses, and takes the login away.
    fn end(&self, status: u16, text: &str, login: &Login, turn: &Turn<'_>) -> Flow {
        turn.count(&self.counters.refused);
        let cookie = self.cookies.remove_login(&login.state, self.cookies.is_secure(turn));
        answer(status, text, cookie.into_iter().collect())
    }

    /// Returns the URL of a path of this host, as browsers see it.
    fn own_url(&self, head: &RequestHead, path: &str, turn: &Turn<'_>) -> Option<String> {
        if let Some(url) = &self.paths.public_url {
            return Some(format!("{url}{path}"));
        }
        let authority = std::str::from_utf8(head.received_authority()).ok()?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
        let scheme = if turn.is_secure() { "https" } else { "http" };
        let is_host = !authority.is_empty() && authority.bytes().all(is_plain);
        is_host.then(|| format!("{scheme}://{authority}{path}"))
    }
}

/// What the provider has the browser bring along.
struct Returned {
    state: Vec<u8>,
    code: Option<Vec<u8>>,
    issuer: Option<Vec<u8>>,
    is_error: bool,
}

impl Returned {
    /// Reads the query. A parameter that is there twice or too long is an error, and so is a missing state.
    fn read(query: &[u8]) -> Result<Self, ()> {
        let one = |name: &str| {
            let pairs = query.split(|&byte| byte == b'&').map(split_at_equals);
            let mut values = pairs.filter(|(key, _)| equals_decoded(key, name.as_bytes())).map(|(_, value)| value);
            match (values.next(), values.next()) {
                (None, _) => Ok(None),
                (Some(value), None) if value.len() <= PARAMETER_BYTES_MAX => Ok(Some(decoded(value).collect())),
                _ => Err(()),
            }
        };
        let state = one("state")?.ok_or(())?;
        Ok(Self { state, code: one("code")?, issuer: one("iss")?, is_error: one("error")?.is_some() })
    }
}

/// Returns the path and the query that a browser comes back to: never anything that leads to another host.
pub(super) fn target_of(head: &RequestHead) -> String {
    let mut target = head.received_path().to_vec();
    if let Some(query) = head.received_query() {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    own_path(target).unwrap_or_else(|| "/".to_owned())
}

/// Returns the text if browsers read it as a path of the same host. They read `\` as `/`, and ignore controls (WHATWG URL).
pub(super) fn own_path(target: Vec<u8>) -> Option<String> {
    let is_plain = target.iter().all(|&byte| byte.is_ascii_graphic() && byte != b'\\' && byte != b'#');
    let is_own = target.starts_with(b"/") && !target.starts_with(b"//") && target.len() <= TARGET_BYTES_MAX;
    if is_plain && is_own { String::from_utf8(target).ok() } else { None }
}

fn redirect(location: String, cookies: Vec<String>) -> Flow {
    let fields = [("location".to_owned(), location), ("cache-control".to_owned(), "no-store".to_owned())];
    let cookies = cookies.into_iter().map(|cookie| ("set-cookie".to_owned(), cookie));
    let fields = fields.into_iter().chain(cookies).collect();
    Flow::Respond(Box::new(LocalResponse { status: 302, fields, body: Vec::new() }))
}

fn answer(status: u16, text: &str, cookies: Vec<String>) -> Flow {
    let fields = [("content-type", "text/plain; charset=utf-8"), ("cache-control", "no-store")];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter();
    let fields = fields.chain(cookies.into_iter().map(|cookie| ("set-cookie".to_owned(), cookie))).collect();
    Flow::Respond(Box::new(LocalResponse { status, fields, body: format!("{text}\n").into_bytes() }))
}
