//! gRPC: how its exchanges differ from others. Requests over HTTP/1.1 touch none of this.

mod of_exchange;
pub(crate) mod web;

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Instant;

use model::{Fault, FieldName, LocalResponse, RequestHead, ResponseHead, Version};
use plan::filter::Reply;
use wire::grpc::call::{self, Status, WebForm};
use wire::grpc::unary;

static TIMEOUT: LazyLock<FieldName> = LazyLock::new(|| name("grpc-timeout"));
static STATUS: LazyLock<FieldName> = LazyLock::new(|| name("grpc-status"));
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

/// Returns the message of a response to a call that [`crate::exchange::Exchange::call_by_grpc`] began.
///
/// # Errors
/// It is no response of gRPC with one message and the status 0.
pub(crate) fn answer(reply: Reply) -> Result<Reply, Fault> {
    let Reply { head, body } = reply;
    if head.status != 200 {
        return Err(Fault::BadResponse);
    }
    let answer = unary::answer(head.fields.get(&CONTENT_TYPE), head.fields.get(&STATUS), &body);
    let body = answer.map_err(|_| Fault::BadResponse)?.to_vec();
    Ok(Reply { head, body })
}

/// Whether a response is one to a call of gRPC, of which every byte is left as it is.
pub(crate) fn is_grpc(head: &ResponseHead) -> bool {
    head.fields.get(&STATUS).is_some() || head.fields.get(&CONTENT_TYPE).is_some_and(call::is_grpc)
}
