//! Caches of responses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Size;

/// A store of responses, which the filter `cache` of routes fills and answers from. All workers share it, and several routes may. A
/// configuration change keeps what it holds. After a restart or an upgrade it has what is on `disk`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Memory for responses, their heads and keys included, from 1MiB to 1TiB. When it is full, responses that were not asked for again
    /// make room first.
    #[serde(default = "memory")]
    pub memory: Size,
    /// A folder that holds all responses, also those that memory has no room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<CacheDisk>,
}

/// A folder of responses. Each is a file of its own, which only the user of the process can read. Two caches cannot share a folder.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheDisk {
    /// Absolute path of the folder. It is made if it is missing.
    pub path: String,
    /// Bytes that the files may take, from 1MiB to 1PiB. When they are used up, responses that were not asked for again make room first.
    pub max: Size,
}

fn memory() -> Size {
    Size(256 << 20)
}
