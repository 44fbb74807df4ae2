//! Everything that can go wrong with an exchange or a stream, and the one table that says what follows from it.

/// Whose doing a fault is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The client.
    Downstream,
    /// The endpoint.
    Upstream,
    /// This program or its configuration.
    Local,
}

impl Source {
    /// Returns the label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Downstream => "downstream",
            Self::Upstream => "upstream",
            Self::Local => "local",
        }
    }
}

/// When in the life of an exchange it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Handshake or anything before a request.
    Accept,
    /// Reading the request head.
    Receive,
    /// Route and filters.
    Route,
    /// Choosing an endpoint and waiting for one.
    Pick,
    /// Connecting.
    Connect,
    /// Sending the request.
    Send,
    /// Waiting for the response head.
    Await,
    /// Moving the response or a tunnel.
    Relay,
}

impl Phase {
    /// Returns the label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Receive => "receive",
            Self::Route => "route",
            Self::Pick => "pick",
            Self::Connect => "connect",
            Self::Send => "send",
            Self::Await => "await",
            Self::Relay => "relay",
        }
    }
}

/// What follows from a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consequence {
    /// Whose doing.
    pub source: Source,
    /// When.
    pub phase: Phase,
    /// The answer to the client; 0: none can be given, the connection is closed.
    pub status: u16,
    /// Whether another endpoint may be tried for any request: the endpoint has seen none of it.
    pub retryable: bool,
    /// Whether it counts against the endpoint's health.
    pub against_health: bool,
    /// Code in the access log: first letter the source (C client, U upstream, P proxy), then what.
    pub flag: &'static str,
    /// Label in metrics.
    pub label: &'static str,
}

macro_rules! faults {
    ($($(#[doc = $doc:literal])+ $name:ident = $source:ident $phase:ident $status:literal $retry:literal $health:literal $flag:literal $label:literal;)+) => {
        /// A fault. The table below is exhaustive: status, retry, health, flag and label of each are said once.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Fault {
            /// Every fault, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the consequences of the fault.
            pub const fn consequence(self) -> Consequence {
                match self {
                    $(Self::$name => Consequence {
                        source: Source::$source,
                        phase: Phase::$phase,
                        status: $status,
                        retryable: $retry,
                        against_health: $health,
                        flag: $flag,
                        label: $label,
                    },)+
                }
            }

            /// Returns the meaning of the fault, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc,)+),)+
                }
            }
        }
    };
}

// Nothing counts against health that clients can bring about at will, nor what may be just as it should be: a stream of events in which
// nothing happens is silent.
//
//  name = source phase status retryable against_health flag label
faults! {
    /// The TLS handshake with the client failed.
    HandshakeFailed = Downstream Accept 0 false false "CH" "handshake_failed";
    /// The TLS handshake with the client did not end in time.
    HandshakeTimeout = Downstream Accept 0 false false "CHT" "handshake_timeout";
    /// A peer that must send a PROXY protocol header sent none, or a malformed one.
    BadProxyHeader = Downstream Accept 0 false false "CP" "bad_proxy_header";
    /// A PROXY protocol header did not arrive in time.
    ProxyHeaderTimeout = Downstream Accept 0 false false "CPT" "proxy_header_timeout";
    /// The request head is not valid in its HTTP version.
    BadRequest = Downstream Receive 400 false false "CB" "bad_request";
    /// The request head is longer, or has more fields, than the listener accepts.
    HeadTooLarge = Downstream Receive 431 false false "CL" "head_too_large";
    /// The request target is longer than accepted.
    TargetTooLong = Downstream Receive 414 false false "CU" "target_too_long";
    /// The HTTP version of the request is not supported.
    VersionNotSupported = Downstream Receive 505 false false "CV" "version_not_supported";
    /// The request uses a transfer coding or method form that is not supported.
    NotImplemented = Downstream Receive 501 false false "CN" "not_implemented";
    /// The request expects something other than `100-continue`.
    ExpectationFailed = Downstream Receive 417 false false "CE" "expectation_failed";
    /// The request path is ambiguous, and the listener rejects such paths.
    AmbiguousPath = Downstream Receive 400 false false "CA" "ambiguous_path";
    /// The request head did not arrive in time.
    HeadTimeout = Downstream Receive 408 false false "CT" "head_timeout";
    /// The client closed before its request head was complete.
    ClosedInHead = Downstream Receive 0 false false "CC" "closed_in_head";
    /// No route matches.
    NoRoute = Local Route 404 false false "PN" "no_route";
    /// The request names a cluster that its route does not allow.
    UnknownCluster = Local Route 404 false false "PU" "unknown_cluster";
    /// A filter rejected the request.
    Refused = Local Route 403 false false "PF" "refused_by_filter";
    /// A filter closed the connection, or the stream, without a response.
    ClosedByFilter = Local Route 0 false false "PZ" "closed_by_filter";
    /// Too many credentials wait for verification, or these waited too long.
    VerificationFull = Local Route 503 false false "PV" "verification_full";
    /// The cluster has no endpoint that is up.
    NoEndpoint = Local Pick 503 false false "PE" "no_endpoint";
    /// The cluster has no endpoints.
    EmptyCluster = Local Pick 503 false false "PM" "empty_cluster";
    /// All endpoints are full, and the queue is full or missing.
    QueueFull = Local Pick 503 false false "PQ" "queue_full";
    /// The queue has exceeded its target delay; some requests are rejected so that the rest can be served.
    Shed = Local Pick 503 false false "PS" "shed";
    /// The queue time-out passed before an endpoint became free.
    QueueTimeout = Local Pick 503 false false "PT" "queue_timeout";
    /// The circuit breaker's limit on in-flight requests is reached.
    CircuitFull = Local Pick 503 false false "PB" "circuit_full";
    /// The circuit is open: too many requests of the cluster failed.
    CircuitOpen = Local Pick 503 false false "PO" "circuit_open";
    /// The adaptive concurrency limit is reached and the cluster has no queue.
    ConcurrencyLimit = Local Pick 503 false false "PA" "concurrency_limit";
    /// The client closed while its request waited.
    ClosedInQueue = Downstream Pick 0 false false "CQ" "closed_in_queue";
    /// The endpoint refused the connection or could not be reached.
    ConnectFailed = Upstream Connect 502 true true "UC" "connect_failed";
    /// The endpoint did not accept a connection in time.
    ConnectTimeout = Upstream Connect 504 true true "UCT" "connect_timeout";
    /// The TLS handshake with the endpoint failed, or it does not speak the configured HTTP version.
    UpstreamHandshakeFailed = Upstream Connect 502 true true "UH" "upstream_handshake_failed";
    /// The endpoint closed or reset while the request was sent.
    SendFailed = Upstream Send 502 false true "US" "send_failed";
    /// The request asks for an upgrade that the endpoint does not offer over HTTP/2 or HTTP/3.
    UpgradeNotOffered = Upstream Send 502 false false "UP" "upgrade_not_offered";
    /// The endpoint read no byte of the request for too long.
    SendTimeout = Upstream Send 504 false true "UST" "send_timeout";
    /// The framing of the request body is invalid.
    BadRequestBody = Downstream Send 400 false false "CF" "bad_request_body";
    /// The request body is longer than its route allows.
    BodyTooLarge = Downstream Send 413 false false "CO" "body_too_large";
    /// The client sent no byte of its request body for too long.
    RequestBodyTimeout = Downstream Send 408 false false "CBT" "request_body_timeout";
    /// The client closed before its request body was complete.
    ClosedInBody = Downstream Send 0 false false "CCB" "closed_in_body";
    /// A kept connection was closed by the endpoint as the request arrived there.
    StaleConnection = Upstream Await 502 false false "UK" "stale_connection";
    /// The endpoint refused the stream of the request, and has not processed it.
    StreamRefused = Upstream Await 502 true false "UQ" "stream_refused";
    /// The endpoint closed or reset before a response head.
    ClosedBeforeResponse = Upstream Await 502 false true "UR" "closed_before_response";
    /// The endpoint sent no response head in time.
    ResponseHeadTimeout = Upstream Await 504 false true "URT" "response_head_timeout";
    /// The response head is not valid in its HTTP version.
    BadResponse = Upstream Await 502 false true "UB" "bad_response";
    /// The endpoint answered with a status that the retry rules list.
    RetriedStatus = Upstream Await 502 false true "UV" "retried_status";
    /// The endpoint answered with a redirect, and the request went on along another route.
    Redirected = Upstream Await 502 false false "UJ" "redirected";
    /// The response head is longer than accepted.
    ResponseHeadTooLarge = Upstream Await 502 false false "UL" "response_head_too_large";
    /// A filter bounds the response body, and it is longer.
    ResponseTooLarge = Local Relay 502 false false "PR" "response_too_large";
    /// A body that a filter holds could not be written to its spool, or read from there.
    SpoolFailed = Local Relay 503 false false "PW" "spool_failed";
    /// A file, or what is stored, could not be read while it was sent, or became shorter.
    ContentFailed = Local Relay 0 false false "PY" "content_failed";
    /// The client closed while the response was awaited.
    ClosedInWait = Downstream Await 0 false false "CW" "closed_in_wait";
    /// The exchange took longer than its route allows.
    TotalTimeout = Local Await 504 false false "PD" "total_timeout";
    /// The endpoint closed before its response body was complete.
    ResponseBodyClosed = Upstream Relay 0 false true "UD" "response_body_closed";
    /// The framing of the response body is invalid.
    BadResponseBody = Upstream Relay 0 false true "UF" "bad_response_body";
    /// The endpoint sent no byte of its response body for too long.
    ResponseBodyTimeout = Upstream Relay 0 false false "UDT" "response_body_timeout";
    /// The client closed before the response was complete.
    ClosedInResponse = Downstream Relay 0 false false "CD" "closed_in_response";
    /// The client read no byte of the response for too long.
    ClientWriteTimeout = Downstream Relay 0 false false "CDT" "client_write_timeout";
    /// A tunnel or TCP stream moved no byte for too long.
    StreamIdle = Local Relay 0 false false "PI" "stream_idle";
    /// The client violated HTTP/2: a connection error, or a malformed request.
    Http2Error = Downstream Accept 0 false false "CX" "http2_error";
    /// The client flooded an HTTP/2 connection with control frames or stream resets.
    Http2Flood = Downstream Accept 0 false false "CG" "http2_flood";
    /// The client violated HTTP/3 or QUIC: a connection error.
    Http3Error = Downstream Accept 0 false false "CY" "http3_error";
    /// The client flooded an HTTP/3 connection with control frames or stream resets.
    Http3Flood = Downstream Accept 0 false false "CJ" "http3_flood";
    /// No cluster is configured for the connection's server name (SNI), or the connection is not TLS.
    NoServerName = Downstream Accept 0 false false "CS" "no_server_name";
    /// The listener has reached its limit on connections.
    ListenerFull = Local Accept 0 false false "PL" "listener_full";
    /// The listener's address list rejects the client's address.
    KeptOut = Local Accept 0 false false "PK" "kept_out";
    /// The client's address has too many connections at this listener, or opens them too fast.
    AddressFull = Downstream Accept 0 false false "CM" "address_full";
    /// The program is shutting down and the drain time-out has passed.
    DrainEnded = Local Relay 0 false false "PX" "drain_ended";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_fault_has_its_own_flag_and_label_and_a_fitting_status() {
        let mut flags = HashSet::new();
        let mut labels = HashSet::new();
        for fault in Fault::ALL {
            let told = fault.consequence();
            assert!(flags.insert(told.flag), "flag {} twice", told.flag);
            assert!(labels.insert(told.label), "label {} twice", told.label);
            let first = match told.source {
                Source::Downstream => 'C',
                Source::Upstream => 'U',
                Source::Local => 'P',
            };
            assert!(told.flag.starts_with(first), "{}", told.flag);
            assert!(told.status == 0 || (400..600).contains(&told.status));
            assert!(fault.meaning().trim().ends_with('.'));
            assert!(!told.against_health || told.source == Source::Upstream);
        }
    }

    #[test]
    fn what_may_be_in_good_order_or_a_clients_doing_does_not_count_against_an_endpoint() {
        let harmless =
            [Fault::StaleConnection, Fault::StreamRefused, Fault::ResponseBodyTimeout, Fault::ResponseHeadTooLarge];
        for fault in harmless {
            assert!(!fault.consequence().against_health, "{fault:?}");
        }
        for fault in [Fault::ResponseHeadTimeout, Fault::ResponseBodyClosed, Fault::BadResponse] {
            assert!(fault.consequence().against_health, "{fault:?}");
        }
    }
}
