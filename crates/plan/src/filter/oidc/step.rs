//! What `oidc` does with a request.

use std::sync::{Arc, LazyLock};

use model::{Fault, FieldName, LocalResponse, Method, RequestHead, ResponseHead};

use super::login::target_of;
use super::refreshes::{Refresh, Refreshes, number_of};
use super::session::{Opened, Session};
use super::userinfo::Begun;
use super::{OidcStep, WithoutSession};
use crate::filter::token_endpoint::{NoTokens, Tokens};
use crate::filter::{Flow, Found, Note, Reply, RequestStep, ResponseStep, ResponseView, Turn, trace};
use crate::jose::{Claims, Refusal};

/// Names of fields.
pub(super) struct Names {
    pub(super) authorization: FieldName,
    accept: FieldName,
    fetch_mode: FieldName,
    requested_with: FieldName,
    set_cookie: FieldName,
    cache_control: FieldName,
}

pub(super) static NAMES: LazyLock<Names> = LazyLock::new(|| {
    let name = |text| FieldName::new(text).unwrap_or_else(|_| unreachable!("a constant token"));
    Names {
        authorization: name("authorization"),
        accept: name("accept"),
        fetch_mode: name("sec-fetch-mode"),
        requested_with: name("x-requested-with"),
        set_cookie: name("set-cookie"),
        cache_control: name("cache-control"),
    }
});

impl RequestStep for OidcStep {
    fn apply(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        if self.passes_access_token
            && let Some(refusal) = trace::refusal(head)
        {
            return refusal;
        }
        if head.path() == self.paths.callback.as_bytes() {
            self.callback(head, turn)
        } else if head.path() == self.paths.logout.as_bytes() {
            self.log_out(head, turn)
        } else {
            self.judge(head, turn)
        }
    }

    fn resume(&self, head: &mut RequestHead, found: Found<'_>, turn: &mut Turn<'_>) -> Flow {
        match found {
            Found::Call(reply) if let Some(begun) = self.begun(turn) => self.informed(begun, head, reply, turn),
            Found::Call(reply) if head.path() == self.paths.callback.as_bytes() => self.redeemed(head, reply, turn),
            Found::Call(reply) => self.refreshed(head, reply, turn),
            _ => self.apply(head, turn),
        }
    }
}

impl OidcStep {
    fn judge(&self, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let Some(opened) = self.session(head, turn) else {
            return self.without_session(head, turn);
        };
        let session = &opened.session;
        let token = session.refresh_token.as_deref().filter(|_| turn.unix_seconds() >= session.fresh_until);
        let (Some(token), false) = (token, turn.is_rehearsal) else { return self.pass(&opened, head, turn) };
        let Some(metadata) = self.provider.metadata() else { return self.pass_until_expiry(&opened, head, turn) };
        match self.refreshes.begin(session, turn.now, self.timeout) {
            None => Flow::Need(self.provider.refresh(&metadata, token)),
            Some(Refresh::Running | Refresh::Redeemed(..)) if turn.unix_seconds() < session.expires => {
                self.pass(&opened, head, turn)
            }
            Some(Refresh::Running) => self.pause(turn).unwrap_or_else(|| self.unavailable(turn)),
            // A moment later it is done, unless its exchange has ended: then the new tokens must not be lost.
            Some(Refresh::Redeemed(_, new)) => match self.pause(turn) {
                Some(wait) => wait,
                None => self.pass_with_cookies(&new, head, turn),
            },
            Some(Refresh::Failed) => self.pass_until_expiry(&opened, head, turn),
            Some(Refresh::Done(new)) => self.pass_with_cookies(&new, head, turn),
            Some(Refresh::Refused) => self.without_session(head, turn),
        }
    }

    /// Goes on with the answer to a refresh token.
    fn refreshed(&self, head: &mut RequestHead, reply: Result<Box<Reply>, Fault>, turn: &mut Turn<'_>) -> Flow {
        let Some(opened) = self.session(head, turn) else {
            return self.without_session(head, turn);
        };
        let before = &opened.session;
        let read = Tokens::read(reply).and_then(|tokens| {
            let access_token = tokens.access_token.clone();
            Ok((self.renewed(tokens, before, turn)?, access_token))
        });
        let renewed = match (read, &self.userinfo) {
            (Ok((begun, access_token)), Some(userinfo)) => {
                // The tokens before are spent, also if this exchange ends.
                let new = self.opened(begun.session.clone(), begun.claims.clone());
                self.refreshes.redeemed(before, turn.now, self.timeout, new);
                // Without an access token the claims stay as they were.
                match self.ask_userinfo(userinfo, begun.clone(), access_token.as_deref(), turn) {
                    Some(asks) => return asks,
                    None => Ok(begun),
                }
            }
            (read, _) => read.map(|(begun, _)| begun),
        };
        self.end_refresh(&opened, renewed, head, turn)
    }

    /// Ends a refresh, and lets the request go on as it ended.
    pub(super) fn end_refresh(
        &self,
        opened: &Opened,
        renewed: Result<Begun, NoTokens>,
        head: &mut RequestHead,
        turn: &mut Turn<'_>,
    ) -> Flow {
        let before = &opened.session;
        match renewed {
            Ok(Begun { session, claims, login: _ }) => {
                turn.count(&self.counters.refreshed);
                let new = self.opened(session, claims);
                if !self.refreshes.end(before, turn.now, Refresh::Done(Arc::clone(&new))) {
                    return self.without_session(head, turn);
                }
                self.pass_with_cookies(&new, head, turn)
            }
            Err(NoTokens::Refused) => {
                self.refreshes.end(before, turn.now, Refresh::Refused);
                self.without_session(head, turn)
            }
            Err(NoTokens::Unavailable) => {
                self.refreshes.end(before, turn.now, Refresh::Failed);
                self.pass_until_expiry(opened, head, turn)
            }
        }
    }

    /// Returns a session with the claims of its ID token, as requests have it.
    fn opened(&self, session: Session, mut claims: Claims) -> Arc<Opened> {
        claims.add(&session.more);
        Arc::new(Opened { session, verdict: self.passing.judge(claims) })
    }

    /// Returns the session of a request, if it is still good.
    pub(super) fn session(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Option<Arc<Opened>> {
        // What the settings no longer take does not outlive them.
        let takes = |name: &str| self.userinfo.as_ref().is_some_and(|userinfo| userinfo.takes(name));
        self.cookies.session(&head.fields, (&self.passing, &takes), turn)
    }

    fn renewed(&self, mut tokens: Tokens, before: &Session, turn: &Turn<'_>) -> Result<Begun, NoTokens> {
        let now = turn.unix_seconds();
        let known = Claims::of_verified(&before.id_token).ok_or(NoTokens::Refused)?;
        let claims = match tokens.id_token.as_ref().map(|token| self.verify(token, None, now)) {
            None => known,
            // OpenID Connect Core section 12.2.
            Some(Ok(claims)) if claims.get("sub") == known.get("sub") => claims,
            Some(Err(Refusal::UnknownKey)) => {
                // The provider has changed its keys. A refresh need not give an ID token: the one before stays until the next.
                self.provider.keys.is_awaited();
                tokens.id_token = None;
                known
            }
            Some(_) => return Err(NoTokens::Refused),
        };
        let session = self.session_of(tokens, Some(before), &before.key, now).ok_or(NoTokens::Refused)?;
        Ok(Begun { session, claims, login: None })
    }

    /// Lets a request pass whose session could not be refreshed, while the session is still good without that.
    fn pass_until_expiry(&self, opened: &Opened, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        if turn.unix_seconds() < opened.session.expires {
            self.pass(opened, head, turn)
        } else {
            self.unavailable(turn)
        }
    }

    fn pass(&self, opened: &Opened, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        let now = turn.unix_seconds();
        let idle = now.saturating_sub(opened.session.used);
        let is_due = idle > self.cookies.lifetimes.idle / 8 && !turn.is_rehearsal;
        if is_due && !self.refreshes.is_refused(&opened.session, turn.now) {
            let session = Session { used: now, ..opened.session.clone() };
            self.leave_cookies(&session, turn);
        }
        self.pass_on(opened, head, turn)
    }

    fn pass_with_cookies(&self, opened: &Opened, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        self.leave_cookies(&opened.session, turn);
        self.pass_on(opened, head, turn)
    }

    /// Leaves the cookies of a session for the response.
    fn leave_cookies(&self, session: &Session, turn: &mut Turn<'_>) {
        let mut cookies = Vec::new();
        // A session that has become too large goes on with its old cookies.
        if self.cookies.set_session(session, &mut cookies, turn).is_some() {
            turn.notes.cookies.append(&mut cookies);
            turn.notes.set(self.left, Note::Number(number_of(session)));
        }
    }

    fn pass_on(&self, opened: &Opened, head: &mut RequestHead, turn: &mut Turn<'_>) -> Flow {
        if !opened.verdict.is_allowed {
            turn.count(&self.counters.forbidden);
            return Flow::refuse(403, "the user may not see this");
        }
        opened.verdict.note(turn.notes);
        self.cookies.strip(&mut head.fields, turn.scratch);
        self.passing.write(&opened.verdict, head);
        if self.passes_access_token {
            match &opened.session.access_token {
                Some(token) => {
                    head.fields.set_with(&NAMES.authorization, |out| {
                        out.extend_from_slice(b"Bearer ");
                        out.extend_from_slice(token.as_bytes());
                    });
                }
                None => drop(head.fields.remove(&NAMES.authorization)),
            }
        }
        Flow::Continue
    }

    pub(super) fn without_session(&self, head: &RequestHead, turn: &mut Turn<'_>) -> Flow {
        let is_redirected = match self.without_session {
            WithoutSession::Auto => is_navigation(head),
            WithoutSession::Redirect => true,
            WithoutSession::Refuse => false,
        };
        if is_redirected {
            // Only what a browser can ask for again.
            let is_repeatable = matches!(head.received_method(), Method::Get | Method::Head);
            let target = if is_repeatable { target_of(head) } else { "/".to_owned() };
            return self.log_in(head, target, false, turn);
        }
        turn.count(&self.counters.refused);
        let text = |text: &str| text.to_owned();
        let fields = vec![
            (text("content-type"), text("text/plain; charset=utf-8")),
            (text("www-authenticate"), text("Bearer")),
            (text("cache-control"), text("no-store")),
        ];
        Flow::Respond(Box::new(LocalResponse { status: 401, fields, body: b"a login is required\n".to_vec() }))
    }
}

/// Returns whether a browser shows the response as a page, so that it can follow a login.
fn is_navigation(head: &RequestHead) -> bool {
    if !matches!(head.method, Method::Get | Method::Head) {
        return false;
    }
    let fields = &head.fields;
    if fields.get(&NAMES.requested_with).is_some_and(|value| value.eq_ignore_ascii_case(b"xmlhttprequest")) {
        return false;
    }
    // Fetch Metadata, which current browsers send to secure origins.
    if let Some(mode) = fields.get(&NAMES.fetch_mode) {
        return mode == b"navigate";
    }
    let is_html = |range: &[u8]| {
        let range = range.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        range.eq_ignore_ascii_case(b"text/html") || range.eq_ignore_ascii_case(b"application/xhtml+xml")
    };
    fields.all(&NAMES.accept).flat_map(|value| value.split(|&byte| byte == b',')).any(is_html)
}

/// Sends the cookies of a session that has changed.
pub(super) struct CookieStep {
    pub(super) refreshes: Arc<Refreshes>,
    /// The note with the number of the session.
    pub(super) left: usize,
}

impl ResponseStep for CookieStep {
    fn apply(&self, head: &mut ResponseHead, _: &ResponseView<'_>, turn: &mut Turn<'_>) {
        if turn.notes.cookies.is_empty() {
            return;
        }
        if let Note::Number(session) = turn.notes.get(self.left)
            && self.refreshes.has_ended(session, turn.now)
        {
            // The user has logged out while the endpoint was busy.
            turn.notes.cookies.clear();
            return;
        }
        for cookie in turn.notes.cookies.drain(..) {
            head.fields.append(&NAMES.set_cookie, cookie.as_bytes());
        }
        // Caches between must not give the session to others.
        head.fields.append(&NAMES.cache_control, b"private");
    }
}
