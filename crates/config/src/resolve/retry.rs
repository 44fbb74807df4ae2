//! When another endpoint is tried.

use model::limits::REPLAY_BYTES_MAX;
use model::retry::{Backoff, Budget, Conditions, Methods, Retry};

use super::Resolver;
use super::cluster::status_range;
use crate::diagnostic::nearest;
use crate::elsewhere;
use crate::file;

const NAMES: [&str; 4] = ["connect_failure", "reset", "timeout", "bad_response"];
/// Statuses of gRPC by which an endpoint says that another may do better, and their numbers.
const GRPC: [(&str, u8); 5] = [
    ("grpc_cancelled", 1),
    ("grpc_deadline_exceeded", 4),
    ("grpc_resource_exhausted", 8),
    ("grpc_internal", 13),
    ("grpc_unavailable", 14),
];

impl Resolver<'_> {
    pub(super) fn retry(&mut self, at: &str, written: &file::Retry) -> Retry {
        if written.backoff.base.0 > written.backoff.max.0 {
            let mend = Some("make `max` at least as long as `base`".to_owned());
            self.report(&format!("{at}/backoff/base"), "`base` is longer than `max`", mend);
        }
        if written.body_max.0 > REPLAY_BYTES_MAX as u64 {
            let mend = Some(format!("at most {} KiB can be buffered", REPLAY_BYTES_MAX / 1024));
            self.report(&format!("{at}/body_max"), "`body_max` is too large", mend);
        }
        Retry {
            on: self.conditions(&format!("{at}/on"), &written.on),
            attempts_max: written.attempts_max,
            methods: methods(written.methods),
            timeout: written.timeout.map(|time| time.0),
            same_endpoint: written.same_endpoint,
            time_max: written.time_max.map(|time| time.0),
            backoff: Some(Backoff { base: written.backoff.base.0, max: written.backoff.max.0 }),
            body_bytes_max: written.body_max.0 as usize,
            budget: Some(Budget { percent: u32::from(written.budget.share.0), per_second: written.budget.per_second }),
        }
    }

    fn conditions(&mut self, at: &str, written: &[file::RetryOn]) -> Conditions {
        let mut all = Conditions::default();
        for (index, condition) in written.iter().enumerate() {
            let text = match condition {
                file::RetryOn::Status(status) => status.to_string(),
                file::RetryOn::Name(name) => name.clone(),
            };
            match text.as_str() {
                "connect_failure" => all.connect_failure = true,
                "reset" => all.reset = true,
                "timeout" => all.timeout = true,
                "bad_response" => all.bad_response = true,
                other => match (status_range(other), GRPC.iter().find(|(name, _)| *name == other)) {
                    (Some(range), _) => all.statuses.push(range),
                    (None, Some((_, number))) => all.grpc_statuses.push(*number),
                    (None, None) => {
                        let message = format!("`{other}` is not a reason to retry");
                        self.report(&format!("{at}/{index}"), message, Some(mend_condition(other)));
                    }
                },
            }
        }
        all
    }
}

/// Returns what may have been meant by a condition that there is not.
fn mend_condition(written: &str) -> String {
    if let Some((first, last)) = written.split_once('-')
        && status_range(&format!("{last}-{first}")).is_some()
    {
        return format!("write the smaller status first: `{last}-{first}`");
    }
    let names = || NAMES.into_iter().chain(GRPC.map(|(name, _)| name));
    let near = || nearest(written, names()).map(|name| format!("did you mean `{name}`?"));
    elsewhere::value("retry", written).or_else(near).unwrap_or_else(|| {
        let list = NAMES.map(|name| format!("`{name}`")).join(", ");
        format!(
            "there is {list}, a status such as `503`, `5xx` or `502-504`, and for gRPC `grpc_unavailable` and its like"
        )
    })
}

pub(super) fn methods(written: file::RetryMethods) -> Methods {
    match written {
        file::RetryMethods::Idempotent => Methods::Idempotent,
        file::RetryMethods::Any => Methods::Any,
    }
}
