//! What an exchange does differently when it is a call of gRPC.

use std::sync::LazyLock;
use std::time::Duration;

use model::{FieldName, Known};
use wire::grpc::call::{self, WebForm};

use super::{CONTENT_TYPE, Grpc, TIMEOUT, Web, name, status_of};
use crate::exchange::Exchange;

static TE: LazyLock<FieldName> = LazyLock::new(|| name("te"));
static ACCEPT: LazyLock<FieldName> = LazyLock::new(|| name("accept"));

/// How much sooner than its client's deadline an endpoint may say that it is over, and be believed: a tenth of what the client gave,
/// within these.
const SLACK_MIN: Duration = Duration::from_millis(100);
const SLACK_MAX: Duration = Duration::from_secs(1);

impl Exchange<'_> {
    /// What the response that is here says of its endpoint. A call that failed has the HTTP status 200 all the same.
    pub(crate) fn answered_status(&self) -> u16 {
        let Some(response) = &self.response else { return 0 };
        match &self.grpc {
            None => response.status,
            Some(_) => status_of(response).map_or(response.status, call::nearest_http),
        }
    }

    /// Returns whether the bound on the exchange is the client's own deadline, which is shorter than the time-out of its route. A timeout
    /// then says nothing about endpoints: any client can give too little time.
    pub(crate) fn is_bounded_by_client(&self) -> bool {
        let Some(deadline) = self.grpc.as_ref().and_then(|grpc| grpc.deadline) else { return false };
        let timeout = self.progress.route.and_then(|route| route.timeout);
        timeout.is_none_or(|timeout| deadline < self.progress.begun + timeout)
    }

    /// Returns whether the client's deadline has passed, or nearly: an endpoint that reports it much earlier has run into a time-out of
    /// its own.
    pub(crate) fn is_over_for_client(&self) -> bool {
        let Some(deadline) = self.grpc.as_ref().and_then(|grpc| grpc.deadline) else { return false };
        let given = deadline.saturating_duration_since(self.progress.begun);
        // Endpoints get the deadline in whole units, have a clock of their own, and may time out a little sooner.
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

    /// Makes the exchange a call of gRPC by a filter. Its client gets the trailers as the last message of the body: it has no others.
    ///
    /// The deadline is sent to the endpoint, but it is not a client's: a timeout counts against the endpoint, as in other calls of filters.
    pub(crate) fn call_by_grpc(&mut self, timeout: Duration) {
        let fields = &mut self.incoming.head.fields;
        fields.set(&CONTENT_TYPE, b"application/grpc");
        fields.set(&TE, b"trailers");
        fields.set_with(&TIMEOUT, |out| call::write_timeout(timeout, out));
        let web = Web { asks: WebForm::Binary, wants: WebForm::Binary };
        self.grpc = Some(Box::new(Grpc { deadline: None, web: Some(web) }));
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
