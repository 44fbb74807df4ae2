//! Sessions that stay with the endpoint where they began.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::one_of;
use crate::units::Time;

/// Session persistence (sticky sessions): the requests of one session go to one endpoint. Exactly one of `cookie`, `learn`,
/// `header`, `source`, `route` and `rdp_cookie` identifies a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["cookie", "learn", "header", "source", "route", "rdp_cookie"])))]
pub struct Persistence {
    /// By a signed cookie that the proxy sets. Needs no memory, and all instances with the same secret understand it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<SessionCookie>,
    /// By a cookie or header field that the application sets, learned from its responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learn: Option<SessionLearn>,
    /// By the value of a request header field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<SessionHeader>,
    /// By the client's address. For TCP listeners, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SessionSource>,
    /// By a value that names the endpoint itself, such as `JSESSIONID=7F3A.node1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<SessionRoute>,
    /// By the cookie of Remote Desktop clients, for TCP listeners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdp_cookie: Option<SessionRdp>,
    /// What happens if the endpoint of a session is not available: removed, down, ejected or in maintenance. An endpoint that
    /// is draining or has weight 0 keeps its sessions while it is healthy.
    pub otherwise: SessionAway,
    /// What happens if the endpoint of a session is full (`connections_max`).
    pub when_full: SessionFull,
}

/// What happens if the endpoint of a session is not available.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionAway {
    /// Another endpoint is chosen, and the session moves there.
    #[default]
    Another,
    /// The request is answered with 503 until the endpoint is available again.
    Refuse,
}

/// What happens if the endpoint of a session is full.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionFull {
    /// The request waits in the queue for that endpoint. Without a queue, `otherwise` applies.
    #[default]
    Wait,
    /// `otherwise` applies.
    Away,
}

/// A signed cookie that the proxy sets.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionCookie {
    /// Key that signs the cookie, so that clients cannot forge one: at least 16 characters, better `${NAME}` or `{ file: PATH
    /// }` with the output of `openssl rand -hex 32`. In a list, the first signs and all verify.
    pub secret: Secrets,
    /// Name of the cookie.
    #[serde(default = "cookie_name")]
    pub name: String,
    /// `Path` of the cookie.
    #[serde(default = "cookie_path")]
    pub path: String,
    /// `Domain` of the cookie, which includes subdomains. By default only the host that set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// `SameSite` of the cookie.
    #[serde(default)]
    pub same_site: SameSite,
    /// `Secure`: the cookie is sent over TLS only. By default it is set if the client uses TLS to this program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure: Option<bool>,
    /// `HttpOnly`: hide the cookie from scripts.
    #[serde(default = "yes")]
    pub http_only: bool,
    /// `Max-Age`: how long a browser keeps it. By default until the browser session ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<Time>,
    /// Time without a request after which the cookie expires. Unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_max: Option<Time>,
    /// Time since the session began after which the cookie expires. Unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub life_max: Option<Time>,
    /// Forward the cookie to endpoints.
    #[serde(default)]
    pub pass_on: bool,
    /// Add `Cache-Control: private` to responses that set it, so that shared caches do not store it.
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
    /// Returns all of them.
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
    /// Relative to the file that names it. A line end after the secret is ignored.
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub file: String,
}

/// `SameSite` of a cookie.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SameSite {
    /// Sent when the user follows a link from another site.
    #[default]
    Lax,
    /// Not sent with requests from other sites.
    Strict,
    /// Always sent. Browsers require `Secure`, which is then set.
    None,
}

/// A session id that the application sets.
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
    /// Limit on remembered sessions, over all workers. When full, the least recently used one is forgotten.
    #[serde(default = "entries_max")]
    #[schemars(range(min = 1, max = limits::SESSIONS_HARD_MAX))]
    pub entries_max: u32,
    /// Time without a request after which a session is forgotten.
    #[serde(default = "expires")]
    pub expires: Time,
    /// Replicate the sessions to `peers`: a session that one instance has learned goes to the same endpoint at all of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replicate: bool,
}

/// A header field of requests.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionHeader {
    /// Its name (upper or lower case).
    pub name: String,
    /// Limit on remembered sessions, over all workers. When full, the least recently used one is forgotten.
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
    /// Prefix length of IPv4 addresses: clients in the same network share a session.
    #[schemars(range(min = 0, max = 32))]
    pub ipv4_prefix: u8,
    /// The same for IPv6. A client often has a whole /64, and changes its address within it.
    #[schemars(range(min = 0, max = 128))]
    pub ipv6_prefix: u8,
    /// Limit on remembered clients, over all workers. When full, the least recently used one is forgotten.
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

/// The cookie of Remote Desktop clients (RDP): `mstshash`, the user, or `msts`, which names the endpoint that has the session. The client
/// must send it within ten seconds; connections without one go where the balancer chooses.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionRdp {
    /// Limit on remembered users, over all workers. When full, the least recently used one is forgotten.
    #[schemars(range(min = 1, max = limits::SESSIONS_HARD_MAX))]
    pub entries_max: u32,
    /// Time without a connection after which a user is forgotten.
    pub expires: Time,
}

impl Default for SessionRdp {
    fn default() -> Self {
        Self { entries_max: entries_max(), expires: expires() }
    }
}

/// A value that names the endpoint: the part after its last `.`, or all of it.
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
    /// The label that holds the endpoints' names: `{ address: "127.0.0.1:9001", labels: { route: node1 } }`.
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
