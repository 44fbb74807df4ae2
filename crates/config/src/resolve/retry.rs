//! When another endpoint is tried.

use model::limits::REPLAY_BYTES_MAX;
use model::retry::{Backoff, Budget, Conditions, Methods, Retry};

use super::Resolver;
use super::cluster::status_range;
use crate::diagnostic::did_you_mean;
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
            self.report(&format!("{at}/backoff/base"), "the first pause is longer than the longest", mend);
        }
        if written.body_max.0 > REPLAY_BYTES_MAX as u64 {
            let mend = Some(format!("at most {} KiB can be kept", REPLAY_BYTES_MAX / 1024));
            self.report(&format!("{at}/body_max"), "so much of a body is not kept", mend);
        }
        Retry {
            on: self.conditions(&format!("{at}/on"), &written.on),
            attempts_max: written.attempts_max,
            methods: methods(written.methods),
            timeout: written.timeout.map(|time| time.0),
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
                        let names = NAMES.into_iter().chain(GRPC.map(|(name, _)| name));
                        let mend = did_you_mean(other, names.chain(["a status such as 503", "502-504"]));
                        let message = format!("nothing is tried again after `{other}`");
                        self.report(&format!("{at}/{index}"), message, mend);
                    }
                },
            }
        }
        all
    }
}

pub(super) fn methods(written: file::RetryMethods) -> Methods {
    match written {
        file::RetryMethods::Idempotent => Methods::Idempotent,
        file::RetryMethods::Any => Methods::Any,
    }
}
