//! What the userinfo endpoint of the provider says of a user (OpenID Connect Core section 5.3).

use std::time::Duration;

use model::filter::CLUSTER_FORMAT;
use model::{Fault, FieldName, Issue, RequestHead};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::OidcStep;
use super::provider::host_and_path;
use super::session::{Login, Session};
use crate::filter::form_call::FormEndpoint;
use crate::filter::token_endpoint::NoTokens;
use crate::filter::{CalledCluster, Compiling, Flow, Reply, Turn};
use crate::jose::{Algorithms, Claims, Refusal, Rules, Token};

/// What only an ID token says: of itself, and of how the user has logged in (OpenID Connect Core section 2).
const OF_TOKENS: [&str; 15] = [
    "iss",
    "sub",
    "aud",
    "exp",
    "iat",
    "nbf",
    "jti",
    "nonce",
    "azp",
    "at_hash",
    "c_hash",
    "acr",
    "amr",
    "auth_time",
    "sid",
];

/// Bytes of the member of a session that has its claims, beside them.
const MEMBER_BYTES: usize = r#","m":{}"#.len();

/// The userinfo endpoint.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UserInfoSettings {
    /// The cluster of the userinfo endpoint; by default that of the token endpoint.
    #[schemars(extend("format" = CLUSTER_FORMAT))]
    cluster: Option<String>,
    /// The claims to take from it; by default all that fit into the cookies of the session, and those that `claims`,
    /// `claim_headers` and `user_claim` name first.
    claims: Option<Vec<String>>,
}

/// See [`UserInfoSettings`].
pub(super) struct UserInfo {
    endpoint: FormEndpoint,
    claims: Option<Vec<String>>,
    content_type: FieldName,
    /// The note under which [`Begun`] waits for the answer.
    begun: usize,
}

/// A session that begins, or is refreshed, once the endpoint has answered.
#[derive(Clone)]
pub(super) struct Begun {
    pub(super) session: Session,
    /// The claims of the ID token.
    pub(super) claims: Claims,
    /// `None`: it is refreshed.
    pub(super) login: Option<Login>,
}

impl UserInfo {
    /// Compiles the settings. `cluster` is that of the token endpoint.
    pub(super) fn compile(
        settings: UserInfoSettings,
        cluster: CalledCluster,
        timeout: Duration,
        compiling: &mut Compiling<'_>,
    ) -> Result<Self, Issue> {
        let cluster = settings.cluster.map_or(cluster, |name| compiling.cluster(&name, "userinfo/cluster"));
        Ok(Self {
            endpoint: FormEndpoint::compile(cluster, ("userinfo", "/".to_owned()), None, None, timeout)?,
            claims: settings.claims,
            content_type: FieldName::new("content-type").unwrap_or_else(|_| unreachable!("a constant token")),
            begun: compiling.note(),
        })
    }

    /// Returns whether a claim is taken.
    pub(super) fn takes(&self, name: &str) -> bool {
        !OF_TOKENS.contains(&name) && self.claims.as_ref().is_none_or(|list| list.iter().any(|wanted| wanted == name))
    }

    /// Returns whether the body is a signed token, and not JSON (section 5.3.2).
    fn is_signed(&self, reply: &Reply) -> bool {
        let kind = reply.head.fields.get(&self.content_type).unwrap_or_default();
        let kind = kind.split(|&byte| byte == b';').next().unwrap_or_default();
        kind.trim_ascii().eq_ignore_ascii_case(b"application/jwt")
    }
}

impl OidcStep {
    /// Asks the endpoint, and keeps what has begun until it answers. Returns `None` if it cannot be asked.
    pub(super) fn ask_userinfo(
        &self,
        userinfo: &UserInfo,
        begun: Begun,
        access_token: Option<&str>,
        turn: &mut Turn<'_>,
    ) -> Option<Flow> {
        let metadata = self.provider.metadata()?;
        let (host, path) = host_and_path(metadata.userinfo_url.as_ref()?);
        let need = userinfo.endpoint.get_with(access_token?, (&path, &host));
        turn.notes.keep(userinfo.begun, Box::new(begun));
        Some(Flow::Need(need))
    }

    /// Takes what waits for the answer of the endpoint.
    pub(super) fn begun(&self, turn: &mut Turn<'_>) -> Option<Box<Begun>> {
        turn.notes.take(self.userinfo.as_ref()?.begun)
    }

    /// Goes on with the answer of the endpoint.
    pub(super) fn informed(
        &self,
        begun: Box<Begun>,
        head: &mut RequestHead,
        reply: Result<Box<Reply>, Fault>,
        turn: &mut Turn<'_>,
    ) -> Flow {
        let more = self.more_claims(&begun.claims, reply, turn.unix_seconds());
        let Begun { mut session, claims, login } = *begun;
        if let Some(login) = login {
            return self.described(session, login, more, turn);
        }
        let Some(opened) = self.session(head, turn) else {
            return self.without_session(head, turn);
        };
        let renewed = match more {
            Ok(more) => {
                self.give_claims(&mut session, more, turn);
                if self.cookies.room(&session).is_none() {
                    session.more = opened.session.more.clone();
                }
                Ok(Begun { session, claims, login: None })
            }
            // The refresh token is spent: the session goes on with the claims that it had.
            Err(NoTokens::Unavailable) => Ok(Begun { session, claims, login: None }),
            Err(NoTokens::Refused) => Err(NoTokens::Refused),
        };
        self.end_refresh(&opened, renewed, head, turn)
    }

    /// Gives a session claims. Where they do not fit into its cookies, the largest of those are left out that no setting names.
    pub(super) fn give_claims(&self, session: &mut Session, more: Map<String, Value>, turn: &Turn<'_>) {
        session.more = more;
        if self.cookies.room(session).is_some() {
            return;
        }
        turn.count(&self.counters.claims_left_out);
        let is_listed = self.userinfo.as_ref().is_some_and(|userinfo| userinfo.claims.is_some());
        let (needed, others): (Map<_, _>, Map<_, _>) =
            std::mem::take(&mut session.more).into_iter().partition(|(name, _)| is_listed || self.passing.needs(name));
        session.more = needed;
        let Some(mut room) = self.cookies.room(session).and_then(|room| room.checked_sub(MEMBER_BYTES)) else { return };
        // As a list of two it has a byte more than as a member.
        let sized = |claim: (String, Value)| Some((serde_json::to_vec(&claim).ok()?.len(), claim));
        let mut others: Vec<(usize, (String, Value))> = others.into_iter().filter_map(sized).collect();
        others.sort_by_key(|(bytes, _)| *bytes);
        for (bytes, (name, value)) in others {
            let Some(rest) = room.checked_sub(bytes) else { return };
            room = rest;
            session.more.insert(name, value);
        }
    }

    /// Reads the answer of the endpoint: claims that the ID token does not have.
    fn more_claims(
        &self,
        known: &Claims,
        reply: Result<Box<Reply>, Fault>,
        now: u64,
    ) -> Result<Map<String, Value>, NoTokens> {
        let userinfo = self.userinfo.as_ref().ok_or(NoTokens::Unavailable)?;
        let reply = reply.map_err(|_| NoTokens::Unavailable)?;
        match reply.head.status {
            200 => {}
            401 | 403 => return Err(NoTokens::Refused),
            _ => return Err(NoTokens::Unavailable),
        }
        let claims = if userinfo.is_signed(&reply) {
            self.signed(&reply.body, now).map_err(|refusal| match refusal {
                // Its keys have changed, and are being fetched.
                Refusal::UnknownKey if self.provider.keys.is_awaited() => NoTokens::Unavailable,
                _ => NoTokens::Refused,
            })?
        } else {
            Claims::from_json(&reply.body).ok_or(NoTokens::Unavailable)?
        };
        // Section 5.3.2: without this, an answer about another user could be taken for one about this user.
        let subject = |claims: &Claims| claims.get("sub").and_then(Value::as_str).map(str::to_owned);
        if subject(&claims).is_none() || subject(&claims) != subject(known) {
            return Err(NoTokens::Refused);
        }
        let mut more = claims.beyond(known);
        more.retain(|name, _| userinfo.takes(name));
        Ok(more)
    }

    /// Verifies a signed answer, which must be by this provider and for this client.
    fn signed(&self, body: &[u8], now: u64) -> Result<Claims, Refusal> {
        let parsed = Token::parse(body.trim_ascii())?;
        let (keys, _) = self.provider.keys.keys().ok_or(Refusal::UnknownKey)?;
        let claims = keys.verify(&parsed, Algorithms::ALL)?;
        Rules { needs_expiry: false, ..self.rules.clone() }.check(&claims, now)?;
        Ok(claims)
    }
}
