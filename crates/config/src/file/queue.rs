//! Waiting for a free endpoint.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HashKey, OneOrMany, one_of};
use crate::units::{Shift, Time};

/// Waiting for a free endpoint, in order of arrival.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Requests that wait at once, over all workers. Further ones are answered with 503.
    #[schemars(range(min = 1))]
    pub requests_max: u32,
    /// Longest wait; then the answer is 503.
    #[serde(default = "queue_timeout")]
    pub timeout: Time,
    /// Let those who wait take turns by this key of their requests: one of each key, in the order in which the keys came,
    /// and again from the first. Of a list the first counts that the request has; all that have none share one turn. When
    /// the queue is full, a newcomer displaces the last of the key that has most in it, unless that is its own. By default
    /// only the order of arrival counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minItems" = 1))]
    pub fair_by: Option<OneOrMany<HashKey>>,
    /// Refuse some while waiting is hopeless, so that the others get through soon. By default none is refused for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shed: Option<Shed>,
    /// Send a request to a free backup instead of letting it wait while all other endpoints are full. By default it waits for one of
    /// these, and backups get only requests that they cannot take: all are unfit, or have failed in this exchange.
    #[serde(default)]
    pub use_backups: bool,
    /// What `Retry-After` tells those who find the queue full, wait too long or are shed, in whole seconds.
    #[serde(default = "retry_after")]
    pub retry_after: Time,
    /// What they get to see. By default a line of plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
}

/// When waiting is hopeless, and who is refused then: the control law of CoDel (RFC 8289).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shed {
    /// A wait that does no harm. Longer than what a burst brings is not needed: bursts are borne.
    #[serde(default = "target")]
    pub target: Time,
    /// While even the shortest wait has been longer than `target` for so long, requests are refused: one at once, the next
    /// after this time, and each further one sooner than the one before.
    #[serde(default = "interval")]
    pub interval: Time,
    /// Who is refused.
    #[serde(default)]
    pub from: ShedFrom,
}

/// Who is refused while waiting is hopeless, among those of the last class.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShedFrom {
    /// Who has waited longest, and has most likely given up.
    #[default]
    Oldest,
    /// Who has come last.
    Newest,
}

/// An answer of the operator's choice.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["file", "body"])))]
pub struct Page {
    /// A file with the page, at most 64 KiB, read when the configuration is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub file: Option<String>,
    /// The page itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// What it is. By default it follows from the ending of the file (`.html`, `.json`), else it is plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The status. By default 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 400, max = 599))]
    pub status: Option<u16>,
}

/// The turn of a route's requests among those that wait.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouteQueue {
    /// Those of a lower class come first, whenever they came.
    #[schemars(range(min = -100, max = limits::QUEUE_CLASS_MAX))]
    pub class: i8,
    /// Within a class: as if they had come so much later, such as `2s`, or so much earlier, such as `-500ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<Shift>,
}

fn queue_timeout() -> Time {
    Time(std::time::Duration::from_secs(5))
}

fn retry_after() -> Time {
    Time(limits::QUEUE_RETRY_AFTER)
}

fn target() -> Time {
    Time(limits::SHED_TARGET)
}

fn interval() -> Time {
    Time(limits::SHED_INTERVAL)
}
