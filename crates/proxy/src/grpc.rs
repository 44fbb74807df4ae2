//! gRPC: what is done for its exchanges that is not done for others. Nothing here is touched for requests by HTTP/1.1.

pub(crate) mod web;

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use model::{Fault, FieldName, Known, LocalResponse, RequestHead, ResponseHead, Version};
use wire::grpc::call::{self, Status, WebForm};

use crate::exchange::Exchange;

static TIMEOUT: LazyLock<FieldName> = LazyLock::new(|| name("grpc-timeout"));
static STATUS: LazyLock<FieldName> = LazyLock::new(|| name("grpc-status"));
static TE: LazyLock<FieldName> = LazyLock::new(|| name("te"));
static CONTENT_TYPE: LazyLock<FieldName> = LazyLock::new(|| name("content-type"));
static ACCEPT: LazyLock<FieldName> = LazyLock::new(|| name("accept"));

/// How much sooner than its client's deadline an endpoint may say that it is over, and be believed: a tenth of what the client gave,
/// within these.
const SLACK_MIN: Duration = Duration::from_millis(100);
const SLACK_MAX: Duration = Duration::from_secs(1);

fn name(text: &str) -> FieldName {
    FieldName::new(text).unwrap_or_else(|_| unreachable!("a constant token"))
}

/// What is known of an exchange that is gRPC.
#[derive(Debug)]
pub(crate) struct Grpc {
    /// When the client does not wait any more.
    deadline: Option<Instant>,
    /// The client speaks gRPC-Web.
    web: Option<Web>,
}

/// How a client of gRPC-Web writes its bodies, and wants to have those of answers.
#[derive(Clone, Copy, Debug)]
struct Web {
    asks: WebForm,
    wants: WebForm,
}

impl Grpc {
    /// Looks at a request that began to arrive at `begun`.
    pub(crate) fn of(head: &RequestHead, begun: Instant) -> Option<Box<Self>> {
        if head.version < Version::Http2 || !head.fields.get(&CONTENT_TYPE).is_some_and(call::is_grpc) {
            return None;
        }
        Some(Self::new(head, begun, None))
    }

    fn new(head: &RequestHead, begun: Instant, web: Option<Web>) -> Box<Self> {
        let timeout = head.fields.get(&TIMEOUT).and_then(call::parse_timeout);
        Box::new(Self { deadline: timeout.and_then(|timeout| begun.checked_add(timeout)), web })
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
            // As the libraries of gRPC say it of a message, or of metadata, that is too long.
            Fault::BodyTooLarge | Fault::HeadTooLarge => Status::ResourceExhausted,
            _ => Status::of_http(local.status),
        };
        self.trailers_only(&local.fields, status, fault.meaning().trim())
    }

    /// A response without a message, whose head holds what else is in the trailers.
    fn trailers_only(&self, fields: &[(String, String)], status: Status, text: &str) -> LocalResponse {
        let own_type = self.web.map_or("application/grpc", |web| web.wants.content_type());
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

    /// Whether the bound on the exchange is the client's own: it said how long it waits, which is shorter than what its route allows.
    /// What ends by that says nothing of endpoints, since anybody can give too little.
    pub(crate) fn is_bounded_by_client(&self) -> bool {
        let Some(deadline) = self.grpc.as_ref().and_then(|grpc| grpc.deadline) else { return false };
        let timeout = self.progress.route.and_then(|route| route.timeout);
        timeout.is_none_or(|timeout| deadline < self.progress.begun + timeout)
    }

    /// Whether the time that the client gave is over, or nearly: an endpoint that says so when it is not has none but its own
    /// time to tell of.
    pub(crate) fn is_over_for_client(&self) -> bool {
        let Some(deadline) = self.grpc.as_ref().and_then(|grpc| grpc.deadline) else { return false };
        let given = deadline.saturating_duration_since(self.progress.begun);
        // Endpoints are told of it in whole units, have a clock of their own, and may end what they wait for themselves a little sooner.
        let slack = (given / 10).clamp(SLACK_MIN, SLACK_MAX);
        self.is_bounded_by_client() && self.progress.now + slack >= deadline
    }

    /// Makes a call of gRPC from one of gRPC-Web, for an endpoint that speaks HTTP/2.
    pub(crate) fn bridge_from_web(&mut self) {
        let head = &mut self.incoming.head;
        let rewritten = head.fields.get(&CONTENT_TYPE).filter(|_| self.grpc.is_none()).and_then(call::from_web);
        let Some((asks, content_type)) = rewritten else { return };
        head.fields.set(&CONTENT_TYPE, &content_type);
        head.fields.set(&TE, b"trailers");
        let wants = head.fields.get(&ACCEPT).and_then(call::accepted_web).unwrap_or(asks);
        let made = Grpc::new(head, self.progress.begun, Some(Web { asks, wants }));
        let watch = &mut self.connection.watch;
        watch.set_bound(made.bound(watch.bound()));
        self.grpc = Some(made);
    }

    /// Whether the client writes the body in base64, which the endpoint gets as the bytes that it stands for.
    pub(crate) fn sends_text(&self) -> bool {
        self.grpc.as_ref().and_then(|grpc| grpc.web).is_some_and(|web| web.asks == WebForm::Text)
    }

    /// Makes a response of gRPC-Web from one of gRPC, if that is what the client speaks; says in which form. Its trailers go into
    /// its body, whose length is no longer what it was.
    pub(crate) fn bridge_to_web(&mut self) -> Option<WebForm> {
        let web = self.grpc.as_ref()?.web?;
        let fields = &mut self.response().fields;
        fields.remove_known(Known::ContentLength);
        let Some(content_type) = fields.get(&CONTENT_TYPE).and_then(|own| call::to_web(own, web.wants)) else {
            // Not of gRPC: what it says of itself must hold.
            return Some(WebForm::Binary);
        };
        fields.set(&CONTENT_TYPE, &content_type);
        Some(web.wants)
    }

    /// Tells the endpoint how long the client still waits.
    pub(crate) fn pass_deadline_on(&mut self) {
        let Some(deadline) = self.grpc.as_ref().and_then(|grpc| grpc.deadline) else { return };
        let deadline = self.connection.watch.bound().map_or(deadline, |bound| bound.min(deadline));
        let left = deadline.saturating_duration_since(self.progress.now);
        self.incoming.head.fields.set_with(&TIMEOUT, |out| call::write_timeout(left, out));
    }
}
