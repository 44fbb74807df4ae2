//! How the configuration names a filter without knowing any.

use serde_json::Value;

use crate::matching::When;
use crate::{Issue, Name};

/// The format by which a filter's schema says that a text is the name of a file. Before the settings are checked, the
/// configuration puts an object in its place: the name under `name`, and under [`FILE_TEXT`] what the file holds.
pub const FILE_FORMAT: &str = "equipoise-path";
/// The format by which a filter's schema says that a text is a path with which those of requests are compared. The configuration
/// brings it into the form that these have, see [`crate::path`].
pub const PATH_FORMAT: &str = "equipoise-compared-path";
/// The format by which a filter's schema says that a text is the name of a cluster.
pub const CLUSTER_FORMAT: &str = "equipoise-cluster";
/// Marks a text that is a rate such as `10/s` in the schema of a filter.
pub const RATE_FORMAT: &str = "equipoise-rate";
/// See [`FILE_FORMAT`].
pub const FILE_TEXT: &str = "text";

/// One filter as a route uses it: the name in the registry and its settings, already checked by [`FilterSpec::check`].
#[derive(Clone, Debug, PartialEq)]
pub struct FilterUse {
    /// Name in the registry, such as `set_request_header`.
    pub name: String,
    /// Its settings, with what files hold in the place of their names; see [`FILE_FORMAT`].
    pub settings: Value,
    /// When it applies; `None`: always.
    pub when: Option<When>,
    /// Clusters that it calls: those that its settings name, see [`CLUSTER_FORMAT`].
    pub calls: Vec<Name>,
}

/// What the configuration crate must know of a filter: enough to complete, document and check it.
#[derive(Clone, Copy)]
pub struct FilterSpec {
    /// The key under `filters:`.
    pub name: &'static str,
    /// Markdown: first line a summary, then explanation and an example.
    pub doc: &'static str,
    /// JSON Schema of its settings (self-contained, definitions inside).
    pub schema: fn() -> Value,
    /// Everything that the schema cannot say. Paths in the issues are below the settings.
    pub check: fn(&Value) -> Result<(), Issue>,
}
