//! What objects have where they do not say it themselves.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// The key at the top of the file, and the one in an object that leaves them out.
pub(crate) const DEFAULTS_KEY: &str = "defaults";

/// Objects that have defaults: the key at the top of the file, the definition of one such object, and the keys that are each
/// object's own.
pub(crate) const DEFAULTS: [(&str, &str, &[&str]); 3] = [
    ("listeners", "Listener", &["bind", "protocol", "cluster", "sni", "defaults"]),
    ("routes", "Route", &["name", "match", "cluster", "clusters", "redirect", "respond", "routes", "defaults"]),
    ("clusters", "Cluster", &["endpoints", "defaults"]),
];

/// Settings that listeners, routes and clusters have unless they set them themselves. The object's own setting wins: maps with
/// settings are merged key by key; lists, maps with names of your own, and choices (`balance`, `health_check`, `persistence`)
/// are replaced as a whole. A map that lacks a required key, such as `tls` without `certificates`, applies only to objects that
/// have that map themselves. `defaults: false` in an object ignores all of them.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[allow(dead_code, reason = "only its schema is used: defaults are joined with objects before these are typed")]
pub struct Defaults {
    /// For listeners: all keys except `bind`, `protocol`, `cluster` and `sni`. Keys that do not fit the protocol of a listener
    /// are ignored there.
    #[schemars(default, schema_with = "of_listeners")]
    pub listeners: (),
    /// For routes: all keys except `name`, `match`, `cluster`, `clusters`, `redirect`, `respond` and `routes`. Routes without a
    /// cluster ignore `retry`, `hedge`, `subset` and `queue`.
    #[schemars(default, schema_with = "of_routes")]
    pub routes: (),
    /// For clusters: all keys except `endpoints`.
    #[schemars(default, schema_with = "of_clusters")]
    pub clusters: (),
}

fn of_listeners(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "$ref": "#/$defs/ListenerDefaults" })
}

fn of_routes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "$ref": "#/$defs/RouteDefaults" })
}

fn of_clusters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "$ref": "#/$defs/ClusterDefaults" })
}

/// Returns whether an object takes defaults, unless it says otherwise.
pub(super) fn taken() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) fn is_taken(taken: &bool) -> bool {
    *taken
}
