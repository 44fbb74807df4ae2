//! Caches of responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Size;

/// A store of responses, which the filter `cache` of routes fills and answers from. All workers share it, and several routes may. A
/// configuration change keeps what it holds; a restart or an upgrade begins with an empty one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Memory for responses, their heads and keys included, from 1MiB to 1TiB. When it is full, responses that were not asked for again
    /// make room first.
    #[serde(default = "memory")]
    pub memory: Size,
}

fn memory() -> Size {
    Size(256 << 20)
}
