//! Routes.

use std::collections::BTreeMap;

use model::limits;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::defaults::{is_taken, taken};
use super::{FILTER_DEFINITION, Hedge, Match, NAME_FORMAT, Retry, RouteQueue, Subset, When, one_of};
use crate::units::Time;

/// What a route may do: one of these keys.
pub(crate) const ROUTE_TARGETS: [&str; 4] = ["cluster", "clusters", "redirect", "respond"];

/// A route: conditions, filters, and one of `cluster`, `clusters`, `redirect` and `respond`, or `routes` below it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&ROUTE_TARGETS)))]
pub struct Route {
    /// Name in logs and metrics. By default `route-` and its position, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = NAME_FORMAT), length(max = 64))]
    pub name: Option<String>,
    /// Only requests of these listeners. By default those of all HTTP listeners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<String>,
    /// Conditions, which must all hold. Without any, every request matches.
    #[serde(default, rename = "match")]
    pub matches: Match,
    /// A route of higher priority wins before all other rules.
    #[serde(default)]
    pub priority: i32,
    /// Clients do not reach this route. Only requests that an endpoint sends on do, by the `field` of the filter `follow_redirects`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub internal: bool,
    /// Filters for requests and responses, applied in this order.
    #[serde(default)]
    pub filters: Vec<FilterUse>,
    /// Time-out of the whole exchange, from the request head to the last byte of the response. Unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Time>,
    /// When a failed request is retried; replaces the setting of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// When a slow request is sent to a second endpoint; replaces the setting of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Hedge>,
    /// Use only some endpoints of the cluster, by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subset: Option<Subset>,
    /// Priority of these requests in the `queue` of the cluster. By default they are served in order of arrival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<RouteQueue>,
    /// HTTP/3: accept requests sent as early data (0-RTT), before the handshake is complete. An attacker who recorded one can
    /// replay it, so use this only for requests that may be repeated: GET, HEAD and OPTIONS; all other requests wait for the
    /// handshake, as do those of other routes. Endpoints get `early-data: 1` (RFC 8470).
    #[serde(default)]
    pub early_data: bool,
    /// Forward to this cluster; or to the one that the request names, such as
    /// `{ from: "{request_header:x-cluster}", allowed: [one, two] }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<RouteCluster>,
    /// Forward to one of these clusters, at random by weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub clusters: Option<Vec<WeightedCluster>>,
    /// Redirect the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<Redirect>,
    /// Respond without an endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub respond: Option<Respond>,
    /// Routes nested in this one, at most 8 levels deep. Each takes over the conditions of this route, which must hold too, and all its
    /// settings except `name`; its own settings win. Filters of this route run before its own. Paths are whole paths, and must lie
    /// within the path of this route. With a `cluster`, `clusters`, `redirect` or `respond` beside it, this route also takes the
    /// requests that match none of them; otherwise other routes do. A route without a name has the name of this one, a dot and its
    /// position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub routes: Option<Vec<Route>>,
    /// Apply `defaults` for routes. `false`: none of them apply here.
    #[serde(default = "taken", skip_serializing_if = "is_taken")]
    pub defaults: bool,
}

impl Route {
    /// Returns the clusters that it may forward to.
    pub(crate) fn clusters(&self) -> Vec<&str> {
        let of_one = self.cluster.iter().flat_map(RouteCluster::names);
        of_one.chain(self.clusters.iter().flatten().map(|part| part.cluster.as_str())).collect()
    }
}

/// The target of a route: a cluster, or one of several that the request selects.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum RouteCluster {
    /// The cluster.
    Name(String),
    /// One of several.
    Choice(ClusterChoice),
}

impl RouteCluster {
    fn names(&self) -> Vec<&str> {
        match self {
            Self::Name(name) => vec![name],
            Self::Choice(choice) => choice.allowed.iter().chain(&choice.otherwise).map(String::as_str).collect(),
        }
    }
}

/// Clusters that the request selects from.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterChoice {
    /// Name of the cluster: text with variables, such as `{request_header:x-cluster}` or `shop-{cookie:group}`, evaluated after
    /// the filters of the route. Case-sensitive.
    #[schemars(length(min = 1))]
    pub from: String,
    /// The clusters that may be selected.
    #[schemars(length(min = 1))]
    pub allowed: Vec<String>,
    /// The cluster for other values, and for requests without one. By default these are answered with 404.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub otherwise: Option<String>,
}

/// The key beside the name of a filter.
pub const WHEN: &str = "when";

/// One filter: its name, then its settings. Beside it may stand [`WHEN`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FilterUse(pub Map<String, Value>);

impl JsonSchema for FilterUse {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        FILTER_DEFINITION.into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut when = generator.subschema_for::<When>();
        when.insert("description".to_owned(), "Where the filter applies. By default always.".into());
        // The other properties are added by `crate::schema`, which knows the filters.
        json_schema!({
            "description": "One filter: its name, then its settings; and `when`, if it does not apply always.",
            "type": "object",
            "properties": { WHEN: when },
            "minProperties": 1,
            "maxProperties": 2,
            "additionalProperties": false,
        })
    }
}

/// A cluster and its share.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WeightedCluster {
    /// The cluster.
    pub cluster: String,
    /// Its share among the weights of all.
    #[serde(default = "weight")]
    #[schemars(range(min = 0, max = limits::WEIGHT_MAX))]
    pub weight: u32,
}

/// A redirect. Parts that are left out are kept from the request; at least one of `scheme`, `host`, `port` and `path`, or `to`, is
/// required.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Redirect {
    /// The status.
    #[serde(default = "redirect_status")]
    #[schemars(extend("enum" = [301, 302, 303, 307, 308]))]
    pub status: u16,
    /// `http` or `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["http", "https"]))]
    pub scheme: Option<String>,
    /// Host, without a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Path, which may hold variables such as `{path}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// An expression that gives the whole location instead, such as `maps.moved[request.path]`: a path, or a URL. Only constants and values of
    /// maps may name another host. A request for which it gives nothing is answered 404.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<RedirectTo>,
}

/// The location of a redirect by expression.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedirectTo {
    /// A CEL expression over facts that are known when the route is chosen.
    #[schemars(length(min = 1))]
    pub expression: String,
}

/// A fixed response.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Respond {
    /// The status.
    #[serde(default = "respond_status")]
    #[schemars(range(min = 200, max = 599))]
    pub status: u16,
    /// Header fields.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body.
    #[serde(default)]
    pub body: String,
}

fn weight() -> u32 {
    1
}

fn redirect_status() -> u16 {
    302
}

fn respond_status() -> u16 {
    200
}
