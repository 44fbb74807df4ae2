//! gRPC: what is done for its exchanges that is not done for others. Nothing here is touched for requests by HTTP/1.1.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Instant;

use model::{Fault, FieldName, Known, LocalResponse, RequestHead, ResponseHead, Version};
use wire::grpc::call::{self, Status};

use crate::exchange::Exchange;

static TIMEOUT: LazyLock<FieldName> = LazyLock::new(|| name("grpc-timeout"));
static STATUS: LazyLock<FieldName> = LazyLock::new(|| name("grpc-status"));
static TE: LazyLock<FieldName> = LazyLock::new(|| name("te"));
static CONTENT_TYPE: LazyLock<FieldName> = LazyLock::new(|| name("content-type"));

fn name(text: &str) -> FieldName {
    FieldName::new(text).unwrap_or_else(|_| unreachable!("a constant token"))
}

/// What is known of an exchange that is gRPC.
#[derive(Debug)]
pub(crate) struct Grpc {
    /// When the client does not wait any more.
    deadline: Option<Instant>,
    /// The client speaks gRPC-Web.
    is_web: bool,
}

impl Grpc {
    /// Looks at a request that began to arrive at `begun`.
    pub(crate) fn of(head: &RequestHead, begun: Instant) -> Option<Box<Self>> {
        if head.version < Version::Http2 || !head.fields.get(&CONTENT_TYPE).is_some_and(call::is_grpc) {
            return None;
        }
        Some(Self::new(head, begun, false))
    }

    fn new(head: &RequestHead, begun: Instant, is_web: bool) -> Box<Self> {
        let timeout = head.fields.get(&TIMEOUT).and_then(call::parse_timeout);
        Box::new(Self { deadline: timeout.and_then(|timeout| begun.checked_add(timeout)), is_web })
    }

    /// The sooner of the client's deadline and the bound of the route.
    pub(crate) fn bound(&self, route: Option<Instant>) -> Option<Instant> {
        self.deadline.into_iter().chain(route).min()
    }

    /// The answer in place of one for HTTP. What is no error stays as it is.
    pub(crate) fn answer<'a>(&self, local: &'a LocalResponse) -> Cow<'a, LocalResponse> {
        if local.status < 300 {
            return Cow::Borrowed(local);
        }
        let text = model::head::reason_phrase(local.status);
        Cow::Owned(self.trailers_only(&local.fields, Status::of_http(local.status), text))
    }

    /// The answer to a fault, in place of that for HTTP.
    pub(crate) fn answer_to_fault(&self, fault: Fault, local: &LocalResponse) -> LocalResponse {
        let status = match fault {
            // That of the client, or that of the route: for the client it is the same.
            Fault::TotalTimeout => Status::DeadlineExceeded,
            // As the libraries of gRPC say it of a message that is too long.
            Fault::BodyTooLarge => Status::ResourceExhausted,
            _ => Status::of_http(local.status),
        };
        self.trailers_only(&local.fields, status, fault.meaning().trim())
    }

    /// A response without a message, whose head holds what else is in the trailers.
    fn trailers_only(&self, fields: &[(String, String)], status: Status, text: &str) -> LocalResponse {
        let own_type = if self.is_web { "application/grpc-web" } else { "application/grpc" };
        let own = |name: &str| ["content-type", "content-length"].iter().any(|own| name.eq_ignore_ascii_case(own));
        let mut all: Vec<_> = fields.iter().filter(|(name, _)| !own(name)).cloned().collect();
        let mut message = Vec::new();
        call::write_message(text, &mut message);
        all.push(("content-type".to_owned(), own_type.to_owned()));
        all.push(("grpc-status".to_owned(), status.number().to_string()));
        all.push(("grpc-message".to_owned(), String::from_utf8(message).unwrap_or_default()));
        LocalResponse { status: 200, fields: all, body: Vec::new() }
    }
}

/// The gRPC status of a response that has it in its head, so that there is nothing else to it.
pub(crate) fn status_of(head: &ResponseHead) -> Option<u8> {
    head.fields.get(&STATUS).and_then(call::status_number)
}

/// Whether a response is one to a call of gRPC, of which every byte is left as it is.
pub(crate) fn is_grpc(head: &ResponseHead) -> bool {
    head.fields.get(&STATUS).is_some() || head.fields.get(&CONTENT_TYPE).is_some_and(call::is_grpc)
}

impl Exchange<'_> {
    /// What the response that is here says of its endpoint. A call that failed has the HTTP status 200 all the same.
    pub(crate) fn answered_status(&self) -> u16 {
        let Some(response) = &self.response else { return 0 };
        match &self.grpc {
            None => response.status,
            Some(_) => status_of(response).map_or(response.status, call::nearest_http),
        }
    }

    /// Makes a call of gRPC from one of gRPC-Web, for an endpoint that speaks HTTP/2.
    pub(crate) fn bridge_from_web(&mut self) {
        let head = &mut self.incoming.head;
        let rewritten = head.fields.get(&CONTENT_TYPE).filter(|_| self.grpc.is_none()).and_then(call::from_web);
        let Some(content_type) = rewritten else { return };
        head.fields.set(&CONTENT_TYPE, &content_type);
        head.fields.set(&TE, b"trailers");
        let made = Grpc::new(head, self.told.begun, true);
        let watch = &mut self.connection.watch;
        watch.set_bound(made.bound(watch.bound()));
        self.grpc = Some(made);
    }

    /// Makes a response of gRPC-Web from one of gRPC, if that is what the client speaks; says so. Its trailers go into its
    /// body, whose length is no longer what it was.
    pub(crate) fn bridge_to_web(&mut self) -> bool {
        if !self.grpc.as_ref().is_some_and(|grpc| grpc.is_web) {
            return false;
        }
        let fields = &mut self.response().fields;
        if let Some(content_type) = fields.get(&CONTENT_TYPE).and_then(call::to_web) {
            fields.set(&CONTENT_TYPE, &content_type);
        }
        fields.remove_known(Known::ContentLength);
        true
    }

    /// Tells the endpoint how long the client still waits.
    pub(crate) fn pass_deadline_on(&mut self) {
        let Some(deadline) = self.grpc.as_ref().and_then(|grpc| grpc.deadline) else { return };
        let deadline = self.connection.watch.bound().map_or(deadline, |bound| bound.min(deadline));
        let left = deadline.saturating_duration_since(self.told.now);
        self.incoming.head.fields.set_with(&TIMEOUT, |out| call::write_timeout(left, out));
    }
}
