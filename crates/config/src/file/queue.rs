//! Waiting for a free endpoint.

use model::limits;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{HashKey, OneOrMany, one_of};
use crate::units::{Shift, Time};

/// Requests that wait for a free endpoint, in order of arrival.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Limit on waiting requests, over all workers. Further ones are answered with 503.
    #[schemars(range(min = 1))]
    pub requests_max: u32,
    /// Longest wait; after that the request is answered with 503.
    #[serde(default = "queue_timeout")]
    pub timeout: Time,
    /// Fair queueing: requests with different keys take turns, one of each key, in the order in which the keys arrived. In a
    /// list, the first key that the request has counts; requests without any share one turn. When the queue is full, a new
    /// request displaces the last one of the longest key, unless that is its own. By default only the order of arrival counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minItems" = 1))]
    pub fair_by: Option<OneOrMany<HashKey>>,
    /// Load shedding: reject some requests when waits stay too long, so that the others are served soon. Off by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shed: Option<Shed>,
    /// Send a request to a free backup instead of queueing it while all regular endpoints are full. By default it waits for one
    /// of these, and backups get only requests that they cannot take: all are down, or have failed this request.
    #[serde(default)]
    pub use_backups: bool,
    /// `Retry-After` of rejected requests (queue full, time-out, shed), in whole seconds.
    #[serde(default = "retry_after")]
    pub retry_after: Time,
    /// Response to rejected requests. By default a line of plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
}

/// Load shedding by the control law of CoDel (RFC 8289).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shed {
    /// Acceptable wait. Allow for short bursts separately: they cause no shedding.
    #[serde(default = "target")]
    pub target: Time,
    /// When even the shortest wait has exceeded `target` for this long, requests are rejected: one at once, the next after this
    /// time, and further ones at shrinking intervals.
    #[serde(default = "interval")]
    pub interval: Time,
    /// Which requests are rejected.
    #[serde(default)]
    pub from: ShedFrom,
}

/// Which requests of the lowest class are rejected.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShedFrom {
    /// The one that has waited longest, whose client has most likely given up.
    #[default]
    Oldest,
    /// The newest one.
    Newest,
}

/// A custom response.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("oneOf" = one_of(&["file", "body"])))]
pub struct Page {
    /// A file with the page, at most 64 KiB, read with the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = super::PATH_FORMAT))]
    pub file: Option<String>,
    /// The page itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Content type. By default it follows from the file's extension (`.html`, `.json`), otherwise it is plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Status. By default 503.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 400, max = 599))]
    pub status: Option<u16>,
}

/// Priority of a route's requests in the queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouteQueue {
    /// Class: requests of a lower class come first, whenever they arrived.
    #[schemars(range(min = -100, max = limits::QUEUE_CLASS_MAX))]
    pub class: i8,
    /// Within a class: treat them as if they had arrived later, such as `2s`, or earlier, such as `-500ms`.
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
