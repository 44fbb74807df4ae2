//! Sessions that stay with the endpoint where they began.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::one_of;
use crate::units::Time;

/// Requests of one session go to one endpoint: exactly one of `cookie`, `learn`, `header`, `source` and `route` says how a
/// session is known.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["cookie", "learn", "header", "source", "route"])))]
pub struct Persistence {
    /// By a cookie that is set for the client. Needs no memory, and all instances with the same secret understand it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<SessionCookie>,
    /// By a cookie or header field that the application sets, which is learned from its responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learn: Option<SessionLearn>,
    /// By the value of a header field of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<SessionHeader>,
    /// By the client's address. For TCP listeners, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SessionSource>,
    /// By a value that names the endpoint itself, such as `JSESSIONID=7F3A.node1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<SessionRoute>,
    /// What happens when the endpoint of a session is away: gone from the file, down, ejected or in maintenance. An endpoint
    /// that is drained or has weight 0 keeps its sessions as long as it is well.
    pub otherwise: SessionAway,
    /// What happens when the endpoint of a session has all its places taken (`connections_max`).
    pub when_full: SessionFull,
}

/// What happens to a session whose endpoint is away.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionAway {
    /// Another one is chosen, and the session moves there.
    #[default]
    Another,
    /// The answer is 503 until the endpoint is back.
    Refuse,
}

/// What happens to a request of a session whose endpoint is full.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionFull {
    /// It waits in the queue for a place there. Without a queue, what `otherwise` says happens.
    #[default]
    Wait,
    /// What `otherwise` says.
    Away,
}

/// A cookie that is set for the client.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionCookie {
    /// Signs the cookie, so that nobody else can write one: at least 16 characters, better `${NAME}` or
    /// `{ file: PATH }` with what `openssl rand -hex 32` gives. Of a list, the first signs and all verify.
    pub secret: Secrets,
    /// Its name.
    #[serde(default = "cookie_name")]
    pub name: String,
    /// The path that it is sent for.
    #[serde(default = "cookie_path")]
    pub path: String,
    /// The domain that it is sent to, with all below it. By default only the host that set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Whether it is sent with requests that other sites cause.
    #[serde(default)]
    pub same_site: SameSite,
    /// Whether it is sent over TLS only. By default it is if the client speaks TLS to this program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure: Option<bool>,
    /// Hide it from scripts.
    #[serde(default = "yes")]
    pub http_only: bool,
    /// Time that a browser keeps it. By default to the end of its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Time>,
    /// Time without a request after which it is worth nothing. No bound by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_max: Option<Time>,
    /// Time from the session's beginning after which it is worth nothing. No bound by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life_max: Option<Time>,
    /// Let endpoints see it.
    #[serde(default)]
    pub pass_on: bool,
    /// Mark responses that set it `Cache-Control: private`, so that no shared cache gives it to others.
    #[serde(default = "yes")]
    pub mark_private: bool,
}

/// One secret, or a list of them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Secrets {
    /// Several.
    Many(#[schemars(length(min = 1, max = limits::SECRETS_MAX))] Vec<Secret>),
    /// One.
    One(Secret),
}

impl Secrets {
    /// All of them.
    pub fn as_slice(&self) -> &[Secret] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

/// A secret: itself, or the file that holds it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Secret {
    /// Itself.
    Written(String),
    /// A file.
    File(SecretFile),
}

/// A file that holds a secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretFile {
    /// Relative to the file that names it. A line end behind the secret does not belong to it.
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub file: String,
}

/// When a browser sends a cookie along with requests that other sites cause.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SameSite {
    /// When the user follows a link.
    #[default]
    Lax,
    /// Never.
    Strict,
    /// Always. Browsers want `Secure` with it, which is then set.
    None,
}

/// What the application sets.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["cookie", "header"])))]
pub struct SessionLearn {
    /// A cookie, such as `JSESSIONID`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// A header field of its responses, which clients send back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Sessions that are remembered, over all workers. A new one takes the place of the one used least lately.
    #[serde(default = "entries_max")]
    #[schemars(range(min = 1, max = limits::SESSIONS_HARD_MAX))]
    pub entries_max: u32,
    /// Time without a request after which a session is forgotten.
    #[serde(default = "expires")]
    pub expires: Time,
}

/// A header field of requests.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionHeader {
    /// Its name (upper or lower case).
    pub name: String,
    /// Sessions that are remembered, over all workers. A new one takes the place of the one used least lately.
    #[serde(default = "entries_max")]
    #[schemars(range(min = 1, max = limits::SESSIONS_HARD_MAX))]
    pub entries_max: u32,
    /// Time without a request after which a session is forgotten.
    #[serde(default = "expires")]
    pub expires: Time,
}

/// The client's address.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSource {
    /// Leading bits of an IPv4 address that count: clients that have them in common share a session.
    #[schemars(range(min = 0, max = 32))]
    pub ipv4_prefix: u8,
    /// The same for IPv6. A client often has a network of 64 bits to itself, and changes its address within it.
    #[schemars(range(min = 0, max = 128))]
    pub ipv6_prefix: u8,
    /// Clients that are remembered, over all workers. A new one takes the place of the one used least lately.
    #[schemars(range(min = 1, max = limits::SESSIONS_HARD_MAX))]
    pub entries_max: u32,
    /// Time without a request or connection after which a client is forgotten.
    pub expires: Time,
}

impl Default for SessionSource {
    fn default() -> Self {
        Self { ipv4_prefix: 32, ipv6_prefix: 64, entries_max: entries_max(), expires: expires() }
    }
}

/// A value that names the endpoint: what stands after its last `.`, or the whole.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["cookie", "header", "query"])))]
pub struct SessionRoute {
    /// In this cookie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// In this header field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// In this query parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The label that gives endpoints their names: `{ address: "127.0.0.1:9001", labels: { route: node1 } }`.
    #[serde(default = "route_label")]
    pub label: String,
}

fn cookie_name() -> String {
    "equipoise".to_owned()
}

fn cookie_path() -> String {
    "/".to_owned()
}

fn yes() -> bool {
    true
}

fn entries_max() -> u32 {
    limits::SESSIONS_MAX
}

fn expires() -> Time {
    Time(limits::SESSION_IDLE)
}

fn route_label() -> String {
    "route".to_owned()
}
