//! Calls of gRPC with one message each way.

use std::sync::LazyLock;
use std::time::Duration;

use model::fields::Span;
use model::protobuf::Writer;
use model::{FieldName, Issue, RequestHead, Version};

use super::{Call, CalledCluster, Compiling, Need};

/// The largest answer, in bytes with its trailers.
const RESPONSE_BYTES_MAX: usize = 256 << 10;
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

static HOST: LazyLock<FieldName> =
    LazyLock::new(|| FieldName::new("host").unwrap_or_else(|_| unreachable!("a constant token")));

/// One method of a service, and what is the same in all calls.
pub(super) struct GrpcMethod {
    cluster: CalledCluster,
    path: &'static str,
    host: Option<String>,
    timeout: Duration,
}

impl GrpcMethod {
    /// Checks the settings `cluster`, `host` and `timeout`.
    ///
    /// # Errors
    /// The host is none, or the timeout is too long. Whether the cluster speaks HTTP/2 is found out with the plan.
    pub(super) fn compile(
        path: &'static str,
        cluster: &str,
        host: Option<String>,
        timeout: Duration,
        compiling: &mut Compiling<'_>,
    ) -> Result<Self, Issue> {
        let is_host = |text: &str| text.bytes().all(|byte| (b'!'..0x7f).contains(&byte) && !b"#/?@".contains(&byte));
        if let Some(host) = host.as_ref().filter(|host| host.is_empty() || !is_host(host)) {
            let issue = Issue::at("host", format!("`{host}` is not a host"));
            return Err(issue.suggest("write one such as `auth.internal`"));
        }
        if timeout > TIMEOUT_MAX {
            let issue = Issue::at("timeout", "a request may wait for at most 60s");
            return Err(issue.suggest("use a few hundred milliseconds; each request waits for the service"));
        }
        Ok(Self { cluster: compiling.grpc_cluster(cluster, "cluster"), path, host, timeout })
    }

    /// Returns the need for a call with this message. What is found is the message of the answer.
    pub(super) fn call(&self, write: impl FnOnce(&mut Writer)) -> Need {
        let mut head = RequestHead::default();
        let mut load = |text: &str| {
            let start = head.fields.load(text.as_bytes());
            Span::new(start, start + text.len())
        };
        let (method, target) = (load("POST"), load(self.path));
        head.set_line(method, target, Version::Http11);
        if let Some(host) = &self.host {
            head.fields.set(&HOST, host.as_bytes());
        }
        let mut message = Writer::default();
        write(&mut message);
        let message = message.into_bytes();
        // Bodies, the largest part of it, are bounded by `Need::BODY_BYTES_MAX`.
        let length = message.len() as u32;
        Need::Grpc(Box::new(Call {
            cluster: self.cluster,
            head,
            body: [&[0][..], &length.to_be_bytes(), &message].concat().into(),
            timeout: self.timeout,
            response_bytes_max: RESPONSE_BYTES_MAX,
        }))
    }
}
