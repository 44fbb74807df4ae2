//! Which requests go where.

use std::time::Duration;

use crate::filter::FilterUse;
use crate::matching::Match;
use crate::placement::SubsetRule;
use crate::queue::Precedence;
use crate::resilience::Hedge;
use crate::retry::Retry;
use crate::{LocalResponse, Name};

/// Which requests go where.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Given, or `route-N` by its place in the file from 1. Unique; the stable id.
    pub name: Name,
    /// Names of the routes that it is nested in, outermost first.
    pub above: Vec<Name>,
    /// Only these listeners; empty: all HTTP listeners.
    pub listeners: Vec<Name>,
    /// The conditions.
    pub matches: Match,
    /// Higher wins before any other rule of precedence; 0 by default.
    pub priority: i32,
    /// Clients do not reach it, only requests that an endpoint sends on.
    pub is_internal: bool,
    /// In order.
    pub filters: Vec<FilterUse>,
    /// What happens.
    pub action: Action,
    /// Bound on the whole exchange, from the request head to the last byte of the response.
    pub timeout: Option<Duration>,
    /// When another endpoint is tried, in place of what the cluster says.
    pub retry: Option<Retry>,
    /// When the same request goes to another endpoint too, instead of the cluster's rules.
    pub hedge: Option<Hedge>,
    /// Only some endpoints of the cluster.
    pub subset: Option<SubsetRule>,
    /// Its turn where it has to wait.
    pub precedence: Precedence,
    /// Requests may be carried that came before their handshake was over (RFC 8470).
    pub early_data: bool,
}

/// What a route does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Forward to one cluster.
    Cluster(Name),
    /// Forward to one of several, at random by weight. Weights may be 0, not all.
    Weighted(Vec<(Name, u32)>),
    /// Forward to the one that the request names.
    Choice(ClusterChoice),
    /// Send the client elsewhere.
    Redirect(Redirect),
    /// Answer here.
    Respond(LocalResponse),
}

impl Action {
    /// Returns the clusters that it may forward to, in the order of the file.
    pub fn clusters(&self) -> Vec<&Name> {
        match self {
            Self::Cluster(name) => vec![name],
            Self::Weighted(shares) => shares.iter().map(|(name, _)| name).collect(),
            Self::Choice(choice) => choice.allowed.iter().chain(&choice.otherwise).collect(),
            Self::Redirect(_) | Self::Respond(_) => Vec::new(),
        }
    }
}

/// Clusters of which a request names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterChoice {
    /// What gives the name: text with variables as in [`crate::template`].
    pub from: String,
    /// Those that may be named; at least one, each once.
    pub allowed: Vec<Name>,
    /// For all other values. `None`: the request is refused.
    pub otherwise: Option<Name>,
}

/// Where a client is sent. What is not given is kept from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// `http` or `https`.
    pub scheme: Option<String>,
    /// Host without port.
    pub host: Option<String>,
    /// Port; left out of the location when it is the scheme's own.
    pub port: Option<u16>,
    /// The path; may hold variables as in [`crate::template`].
    pub path: Option<String>,
    /// An expression (CEL) that gives the whole location; then there are no other parts.
    pub to: Option<String>,
}
