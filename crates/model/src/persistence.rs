//! Sessions that stay with the endpoint where they began.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::hash_key::HashKey;

/// How the sessions of a cluster are distinguished, and what becomes of them when their endpoint cannot serve them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persistence {
    /// How a request shows which session it belongs to.
    pub by: SessionBy,
    /// What happens when the endpoint of a session is away.
    pub otherwise: WhenAway,
    /// What happens when the endpoint of a session is full.
    pub when_full: WhenFull,
}

/// How a request shows which session it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionBy {
    /// By a cookie that we set.
    Cookie(SessionCookie),
    /// By a cookie or header field that the application sets.
    Learned(Learned, SessionTable),
    /// By a header field of the request, its name in lower case.
    Header(String, SessionTable),
    /// By the client's address, of which so many bits count.
    Source(PrefixLengths, SessionTable),
    /// By a value of the request that names the endpoint itself.
    Route(SessionRoute),
    /// By the cookie of a client of Remote Desktop, which is its user or names the endpoint itself.
    Rdp(SessionTable),
}

/// The cookie that we set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCookie {
    /// A token.
    pub name: String,
    /// At least one. The first signs, all verify.
    pub secrets: Vec<Secret>,
    /// Its `Path`.
    pub path: String,
    /// Its `Domain`.
    pub domain: Option<String>,
    /// Its `SameSite`.
    pub same_site: SameSite,
    /// Whether it is `Secure`; `None`: when the client speaks TLS to us.
    pub secure: Option<bool>,
    /// Whether scripts of a page cannot read it.
    pub http_only: bool,
    /// How long browsers keep it; `None`: to the end of their session.
    pub max_age: Option<Duration>,
    /// Time without a request after which it is worth nothing.
    pub idle_max: Option<Duration>,
    /// Time since the session began after which it is worth nothing.
    pub life_max: Option<Duration>,
    /// Endpoints get to see it.
    pub pass_on: bool,
    /// Responses that set it are marked `Cache-Control: private`.
    pub mark_private: bool,
}

/// Key of a signature.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Arc<[u8]>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It must never reach a log.
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

/// When a browser sends a cookie along with requests that other sites cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SameSite {
    /// When the user follows a link.
    #[default]
    Lax,
    /// Never.
    Strict,
    /// Always.
    None,
}

impl SameSite {
    /// Returns the name in `Set-Cookie`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lax => "Lax",
            Self::Strict => "Strict",
            Self::None => "None",
        }
    }
}

/// What of a response names the session that requests with the same value belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    /// A cookie that it sets.
    Cookie(String),
    /// A header field, by its name in lower case.
    Header(String),
}

/// Bounds of a table of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTable {
    /// Sessions that are remembered, over all workers. A new one takes the place of the one that was used least lately.
    pub entries_max: u32,
    /// Time without a request after which one is forgotten.
    pub expires: Duration,
    /// Instances send the sessions to each other.
    pub is_replicated: bool,
}

/// Leading bits of an address that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixLengths {
    /// Of IPv4, at most 32.
    pub v4: u8,
    /// Of IPv6, at most 128.
    pub v6: u8,
}

/// A value that names its endpoint: the part after the last `.`, or the whole, is the value of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRoute {
    /// Where a request has it: a header field, a cookie or a query parameter.
    pub on: HashKey,
    /// The label of the endpoints.
    pub label: String,
}

/// What happens when the endpoint of a session is away: gone from the configuration, down, ejected or in maintenance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenAway {
    /// Another one is chosen, and the session moves there.
    #[default]
    Another,
    /// The request is refused; the session waits for its endpoint.
    Refuse,
}

/// What happens when the endpoint of a session has all its places taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The request waits in the queue for a place there. Without a queue it is as if the endpoint were away.
    #[default]
    Wait,
    /// It is as if the endpoint were away.
    Away,
}

/// What became of the session of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionPick {
    /// It had none that is known: one begins.
    New,
    /// It went to the endpoint of its session.
    Kept,
    /// Its session was known, but another endpoint was chosen.
    Moved,
    /// Its session was known, but it got no endpoint.
    Refused,
}

impl SessionPick {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::New, Self::Kept, Self::Moved, Self::Refused];

    /// Returns the name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Kept => "kept",
            Self::Moved => "moved",
            Self::Refused => "refused",
        }
    }
}
