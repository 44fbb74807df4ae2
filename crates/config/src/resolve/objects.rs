//! The objects that others refer to.

use std::collections::HashMap;

use model::snapshot::Paths;

use crate::file;
use crate::tree::{ByName, Kind, Node};

/// See the module.
pub(super) struct Objects<'a> {
    /// `None`: some are not known, so any reference may be right.
    pub clusters: Option<ByName<'a>>,
    /// Whether each speaks HTTP. `None` as above.
    pub listeners: Option<HashMap<&'a str, bool>>,
    /// What each that speaks HTTP makes of paths.
    pub paths: Vec<(String, Option<Paths>)>,
    /// The same of the listeners of the route that is resolved, each but once.
    pub forms: Vec<Option<Paths>>,
}

impl<'a> Objects<'a> {
    /// Returns those of a tree.
    pub(super) fn of(tree: &'a Node) -> Self {
        let named = |kind: &str| match tree.get(kind) {
            None => Some(&[][..]),
            Some(Node { kind: Kind::Map(entries), .. }) => Some(entries.as_slice()),
            Some(_) => None,
        };
        let clusters = named("clusters").map(|_| ByName::of(tree.get("clusters")));
        let is_http = |node: &Node| file::Protocol::has_routes(node.get("protocol").and_then(Node::text));
        let listeners = named("listeners")
            .map(|entries| entries.iter().map(|(key, node)| (key.text.as_str(), is_http(node))).collect());
        Self { clusters, listeners, paths: Vec::new(), forms: Vec::new() }
    }
}
