//! Every bound and default of the program that is not a choice of the operator, in one place.
//!
//! Bounds end in `_MAX`; sizes are bytes.

use std::time::Duration;

/// Size of a relay buffer taken from a worker's pool. Large bodies cost fewer system calls with larger buffers;
/// `lab cost` cells `100k` pay for this choice.
pub const BUFFER_BYTES: usize = 64 * 1024;
/// Idle relay buffers that a worker keeps for reuse.
pub const POOLED_BUFFERS_MAX: usize = 64;
/// Default bound of a request or response head.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Default bound on the number of fields in a head or in trailers.
pub const FIELDS_MAX: usize = 128;
/// Hard bound on the number of fields whatever the configuration says.
pub const FIELDS_HARD_MAX: usize = 512;
/// Bound of a request target (RFC 9112 section 3 recommends at least 8000).
pub const TARGET_BYTES_MAX: usize = 16 * 1024;
/// Bound of one chunk-size line with its extensions (RFC 9112 section 7.1.1 asks for a bound).
pub const CHUNK_LINE_BYTES_MAX: usize = 4 * 1024;
/// Bound of a trailer section.
pub const TRAILER_BYTES_MAX: usize = 16 * 1024;
/// Interim (1xx) responses accepted from an upstream before the final one.
pub const INTERIM_RESPONSES_MAX: u32 = 16;
/// Empty lines ignored before a request line (RFC 9112 section 2.2).
pub const LEADING_EMPTY_LINES_MAX: usize = 4;
/// Connections accepted from one listener before other work of the worker gets a turn.
pub const ACCEPTS_PER_TURN_MAX: usize = 64;
/// Largest `attempts_max` of a retry: attempts for one exchange, the first included.
pub const ATTEMPTS_MAX: u32 = 10;
/// How long the body of a request may take that is read whole before it is sent, unless a filter says otherwise.
pub const HELD_BODY_TIME: Duration = Duration::from_secs(600);
/// Largest request body that is kept to be sent again: with its head it fits into one relay buffer.
pub const REPLAY_BYTES_MAX: usize = 48 * 1024;
/// Answers that must be known before a percentile of their times means anything.
pub const HEDGE_SAMPLES_MIN: u32 = 100;
/// Shortest time over which a circuit breaker looks at the share of what fails.
pub const ERROR_WINDOW_MIN: Duration = Duration::from_millis(100);
/// Retries that a cluster can save up in one worker while nothing fails.
pub const RETRIES_SAVED_MAX: u32 = 100;
/// Longest sequence that weighted round robin precomputes for one cluster.
pub const ROUND_ROBIN_STEPS_MAX: usize = 65_536;
/// Longest sequence of turns that endpoints with an equal load take, as `least_request` precomputes it for one cluster.
pub const LEAST_TURNS_MAX: usize = 1_024;
/// Points on a ketama ring of an endpoint of mean weight.
pub const KETAMA_POINTS: u64 = 160;
/// Points on one ketama ring, 8 bytes each.
pub const KETAMA_POINTS_MAX: u64 = 4 << 20;
/// Endpoints up to which rendezvous hashing looks at each.
pub const RENDEZVOUS_FLAT_MAX: usize = 256;
/// Default time after which the response time of an exchange counts half for a balancer.
pub const BALANCE_HALF_LIFE: Duration = Duration::from_secs(10);
/// Default of how many endpoints an instance uses at least where it uses only a part of them.
pub const APERTURE_ENDPOINTS_MIN: u32 = 12;
/// Largest number of a priority.
pub const PRIORITY_MAX: u32 = 127;
/// Default of how much more than its share an endpoint is taken to bear, in percent.
pub const OVERPROVISIONING: u32 = 140;
/// Default of how many sessions a table of a cluster remembers.
pub const SESSIONS_MAX: u32 = 100_000;
/// Largest `entries_max` of a session table; each takes up to 100 bytes.
pub const SESSIONS_HARD_MAX: u32 = 10_000_000;
/// Default time without a request after which a table forgets a session.
pub const SESSION_IDLE: Duration = Duration::from_secs(1_800);
/// Shortest secret that signs cookies.
pub const SECRET_BYTES_MIN: usize = 16;
/// Most secrets that verify the cookies of a cluster.
pub const SECRETS_MAX: usize = 8;
/// Cookies of the right name in one request that are looked at: others may plant theirs.
pub const SESSION_COOKIES_MAX: usize = 4;
/// Classes of precedence in a queue reach from minus this to this.
pub const QUEUE_CLASS_MAX: i8 = 100;
/// How much earlier or later than it did an exchange can be taken to have come.
pub const QUEUE_OFFSET_MAX: Duration = Duration::from_secs(3600);
/// Default of the time after which a client that was refused by a queue may come again.
pub const QUEUE_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Default of the wait that does no harm, where a queue sheds.
pub const SHED_TARGET: Duration = Duration::from_millis(100);
/// Default of how long waits may be longer before a queue sheds.
pub const SHED_INTERVAL: Duration = Duration::from_secs(1);
/// Largest page for those whom a queue refuses.
pub const QUEUE_PAGE_BYTES_MAX: usize = 64 * 1024;
/// Largest weight of an endpoint.
pub const WEIGHT_MAX: u32 = 1_000;
/// Bytes of one worker's access-log ring. A full ring drops the record and counts it.
pub const LOG_RING_BYTES: usize = 1 << 20;
/// Expressions whose values one access log writes.
pub const LOG_VALUES_MAX: usize = 64;
/// Bytes of records that wait for a receiver of syslog messages over TCP. More are lost and counted.
pub const SYSLOG_WAITING_BYTES_MAX: usize = 4 << 20;
/// Longest value of an attribute that is written into a cookie; browsers ignore longer ones (RFC 6265bis section 5.6).
pub const COOKIE_ATTRIBUTE_BYTES_MAX: usize = 1024;
/// Longest name of a program in a syslog message (RFC 3164 section 4.1.3 has 32, RFC 5424 section 6.2.5 has 48).
pub const SYSLOG_TAG_BYTES_MAX: usize = 32;
/// Default of the name of the program in a syslog message.
pub const SYSLOG_TAG: &str = "equipoise";
/// Largest ClientHello that is read to route by SNI.
pub const CLIENT_HELLO_BYTES_MAX: usize = 16 * 1024;
/// Default of the connections that the kernel holds for one worker until it accepts them.
pub const BACKLOG: u32 = 4096;
/// Longest path of a Unix socket (unix(7)).
pub const UNIX_PATH_BYTES_MAX: usize = 107;
/// Default of the silence before a connection is asked whether it is there, where it is asked.
pub const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Default of the time between such questions.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Default of the questions without an answer after which a connection is given up.
pub const KEEPALIVES: u32 = 3;
/// Longest header of the PROXY protocol that is read. Certificates make them long; all else fits into a few hundred bytes.
pub const PROXY_HEADER_BYTES_MAX: usize = 16 * 1024;
/// Longest header of the PROXY protocol that is sent: it fits into the first segment of any network, so that it arrives
/// whole (section 2 of its specification).
pub const PROXY_HEADER_SENT_BYTES_MAX: usize = 536;
/// Longest value of a header of the PROXY protocol that is kept for variables and conditions. Longer ones are as if they were not there.
pub const PROXY_TLV_BYTES_MAX: usize = 1024;
/// Bytes of all those values of one client connection, with 3 before each. What follows is as if it were not there.
pub const PROXY_TLVS_BYTES_MAX: usize = 4 * 1024;
/// Longest value of the operator's own in a header that is sent: with addresses it leaves room for others.
pub const PROXY_OWN_TLV_BYTES_MAX: usize = 256;
/// All of them together, with 3 bytes before each: the rest of the header is for addresses, TLS and a checksum.
pub const PROXY_OWN_TLVS_BYTES_MAX: usize = 300;
/// Default time for a header of the PROXY protocol to arrive.
pub const PROXY_HEADER: Duration = Duration::from_secs(5);
/// Most expressions in `no_keep_alive_for` of a listener.
pub const NO_KEEP_ALIVE_FOR_MAX: usize = 32;
/// Default of `connections_max` of a listener, per listener over all workers.
pub const CONNECTIONS_MAX: u32 = 100_000;
/// Default bound on idle upstream connections that one worker keeps for one endpoint.
pub const IDLE_UPSTREAM_CONNECTIONS_MAX: u32 = 512;
/// Default time an idle upstream connection is kept. Shorter than the 60–75 s that common origins keep theirs.
pub const UPSTREAM_IDLE: Duration = Duration::from_secs(50);
/// Bytes of a discarded response, because a page or another attempt takes its place, which are read so that its connection can be
/// used again.
pub const DISCARDED_BYTES_MAX: u64 = BUFFER_BYTES as u64;
/// How long the rest of such a response is waited for. Nearly always all of it has come with its head, or is on its way.
pub const DISCARD_PATIENCE: Duration = Duration::from_millis(5);
/// How long after a request was begun on a kept connection the end of that may still be the end of an idle one, which the request
/// has crossed on its way. It takes a round trip; beyond, the endpoint has ended it in the middle of its work.
pub const STALE_WITHIN: Duration = Duration::from_secs(2);
/// Default bound on requests at once on one HTTP/2 connection to an endpoint.
pub const UPSTREAM_STREAMS_MAX: u32 = 100;
/// Largest bound on requests at once on one HTTP/2 connection to an endpoint.
pub const UPSTREAM_STREAMS_HARD_MAX: u32 = 10_000;
/// Bytes of one response that an endpoint may send ahead of its reader (RFC 9113 section 6.9). The window of a connection is
/// as large as those of all its streams together, so that a slow reader blocks no other stream.
pub const UPSTREAM_STREAM_WINDOW_BYTES: u32 = 128 * 1024;
/// What that grows to at most on a connection whose endpoint is far away and whose readers keep up.
pub const UPSTREAM_STREAM_WINDOW_BYTES_MAX: u32 = 1 << 20;
/// From which round trip on an endpoint is far away: to a nearer one a window that does not grow carries 40 MB a second.
pub const UPSTREAM_FAR: Duration = Duration::from_millis(3);
/// Round trips that are measured before an endpoint is taken to be far away: one may have waited for a busy worker.
pub const UPSTREAM_ROUND_TRIPS_MIN: u32 = 2;
/// Bytes of one response that an endpoint may send ahead of its reader over HTTP/3, whose windows cannot grow. As with HTTP/2, the
/// window of a connection is as large as those of all its streams together.
pub const UPSTREAM_HTTP3_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Largest head that is read from an HTTP/2 connection to an endpoint to find that it is too large. A larger one breaks its
/// stream, and one of four times the size the connection, so this is well above [`HEAD_BYTES_MAX`].
pub const UPSTREAM_HEAD_READ_BYTES_MAX: u32 = 256 * 1024;
/// Streams of an HTTP/2 connection to an endpoint that were given up and that are remembered, so that what still comes for
/// them is known for what it is.
pub const UPSTREAM_STREAMS_LEFT_MAX: usize = 4096;
/// Streams given up in the whole life of an HTTP/2 connection to an endpoint, after which another takes its place: what comes for
/// them is charged to the connection for good.
pub const UPSTREAM_STREAMS_LEFT_EVER_MAX: u32 = 10_000;
/// Frames of no use that an endpoint may send at once on one HTTP/2 connection, beyond those that it may send for each request and each
/// piece of a body. Far more than a client may send: the connection carries the requests of many.
pub const UPSTREAM_IDLE_FRAMES_MAX: u32 = 10_000;
/// How many more of them it may send with every second.
pub const UPSTREAM_IDLE_FRAMES_PER_SECOND: u32 = 1_000;
/// Time for an endpoint to end a stream whose response is whole, before it is cancelled.
pub const UPSTREAM_STREAM_END: Duration = Duration::from_secs(10);
/// Pause before a connection that could not be made is tried again for those who wait for a stream, while others to the same
/// endpoint are at work.
pub const UPSTREAM_DIAL_PAUSE: Duration = Duration::from_millis(200);
/// Default time without a byte from an endpoint after which it is asked whether it is there.
pub const UPSTREAM_PING_INTERVAL: Duration = Duration::from_secs(15);
/// Default time for an endpoint to answer that.
pub const UPSTREAM_PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Times that one attempt is sent again because the endpoint refused its stream unprocessed.
pub const REFUSED_STREAMS_MAX: u32 = 3;
/// Default time to connect to an endpoint.
pub const CONNECT: Duration = Duration::from_secs(5);
/// Default time from the request being sent to the response head.
pub const RESPONSE_HEAD: Duration = Duration::from_secs(60);
/// Default time without a byte on a body, tunnel or TCP stream (each direction counts for both).
pub const STREAM_IDLE: Duration = Duration::from_secs(300);
/// Default time without a datagram after which a flow is over.
pub const FLOW_IDLE: Duration = Duration::from_secs(60);
/// Datagrams taken from one socket, or given to one, by one system call.
pub const DATAGRAMS_PER_BATCH_MAX: usize = 16;
/// Datagrams taken from one socket before other work of the worker gets a turn.
pub const DATAGRAMS_PER_TURN_MAX: usize = 64;
/// Largest datagram (RFC 768 over IPv4).
pub const DATAGRAM_BYTES_MAX: usize = 65_507;
/// Default time for a whole request head to arrive once its first byte has.
pub const REQUEST_HEAD: Duration = Duration::from_secs(10);
/// Default time a client connection may be idle between requests.
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Default time for a TLS handshake.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// Default time that a new program gets to be ready to take over.
pub const UPGRADE: Duration = Duration::from_secs(60);
/// Default bound on draining at shutdown.
pub const DRAIN: Duration = Duration::from_secs(30);
/// Streams that a client may have open at once on one HTTP/2 connection.
pub const HTTP2_STREAMS_MAX: u32 = 128;
/// Bytes of one stream's body that a client may send before we have read them. With the next two, a bound on what one
/// HTTP/2 connection can make us hold.
pub const HTTP2_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Bytes of all bodies of one HTTP/2 connection that a client may send before we have read them.
pub const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Bytes of frames that wait on one HTTP/2 connection before nothing more is read of it, and no other piece of a body is written to
/// it. One that has begun is written whole, so there may be twice as many.
pub const HTTP2_GATHERED_BYTES_MAX: usize = 64 * 1024;
/// Frames of no use, such as PING or SETTINGS, that one HTTP/2 client may send at once.
pub const HTTP2_IDLE_FRAMES_MAX: u32 = 1_000;
/// How many more of them it may send with every second.
pub const HTTP2_IDLE_FRAMES_PER_SECOND: u32 = 100;
/// How many more of them it may send for every exchange.
pub const HTTP2_IDLE_FRAMES_PER_EXCHANGE: u32 = 4;
/// And for every piece of a body that was sent to them, within their windows.
pub const HTTP2_IDLE_FRAMES_PER_PIECE: u32 = 3;
/// Streams that one HTTP/2 client may throw away before their answer begins, by resets or by breaking their rules, beyond those that it
/// lets be answered.
pub const HTTP2_DISCARDED_MAX: u32 = 500;
/// How many more of them it may throw away with every second.
pub const HTTP2_DISCARDED_PER_SECOND: u32 = 20;
/// Streams of a client that were ended before the client had said all, such as an upload that was refused, and that are
/// remembered: what still comes for them is no breach of the rules.
pub const HTTP2_STREAMS_LEFT_MAX: usize = 1024;
/// Streams that one HTTP/2 client may break the rules of before its connection is closed.
pub const HTTP2_STREAM_ERRORS_MAX: usize = 256;
/// Time to answer a PING, for an HTTP/2 client that has been silent while its exchanges go on.
pub const HTTP2_PING: Duration = Duration::from_secs(20);
/// Streams that a client may have open at once on one HTTP/3 connection.
pub const HTTP3_STREAMS_MAX: u32 = 128;
/// Streams that go one way: one for control, two of QPACK, and some of unknown types (RFC 9114 section 6.2).
pub const HTTP3_UNI_STREAMS_MAX: u32 = 8;
/// Bytes of one stream's body that a client may send before we have read them.
pub const HTTP3_STREAM_WINDOW_BYTES: u32 = 256 * 1024;
/// Bytes of all bodies of one HTTP/3 connection that a client may send before we have read them.
pub const HTTP3_CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// The same while the handshake of a client is under way that may send requests before its end: nobody has proven an address.
pub const HTTP3_EARLY_WINDOW_BYTES: u32 = 256 * 1024;
/// Bytes of all responses of one HTTP/3 connection that its client has not said to have, at least. It is twice what may be under
/// way by the rules of congestion, within these bounds.
pub const HTTP3_SEND_WINDOW_BYTES_MIN: u64 = 128 * 1024;
/// See [`HTTP3_SEND_WINDOW_BYTES_MIN`].
pub const HTTP3_SEND_WINDOW_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a TLS handshake that come out of order and are kept.
pub const HTTP3_CRYPTO_BYTES_MAX: usize = 64 * 1024;
/// Datagrams that one worker holds for another, whose connections they are for.
pub const HTTP3_PASSED_MAX: usize = 1024;
/// Pieces that are taken from the kernel by one system call, each of one or more datagrams.
pub const HTTP3_RECEIVE_BATCH: usize = 4;
/// Such calls before other work of the worker gets a turn.
pub const HTTP3_TURNS_MAX: usize = 4;
/// Datagrams that are given to the kernel by one system call.
pub const HTTP3_SEGMENTS_MAX: usize = 32;
/// Frames and streams of no use that one HTTP/3 client may send at once.
pub const HTTP3_IDLE_FRAMES_MAX: u32 = 1_000;
/// How many more of them it may send with every second.
pub const HTTP3_IDLE_FRAMES_PER_SECOND: u32 = 100;
/// How many more for every exchange that was carried to its end.
pub const HTTP3_IDLE_FRAMES_PER_EXCHANGE: u32 = 4;
/// And for every piece of a body that was sent to it.
pub const HTTP3_IDLE_FRAMES_PER_PIECE: u32 = 3;
/// Streams that one HTTP/3 client may throw away before their answer begins, by resets or by breaking their rules, beyond those that it
/// lets be answered.
pub const HTTP3_DISCARDED_MAX: u32 = 500;
/// How many more of them it may throw away with every second.
pub const HTTP3_DISCARDED_PER_SECOND: u32 = 20;
/// How often a client whose exchanges go on is looked after: one of which nothing came for half of it is asked whether it is
/// there.
pub const HTTP3_PING: Duration = Duration::from_secs(10);
/// Silence after which a client of HTTP/3 is given up, at least: it is asked several times before.
pub const HTTP3_SILENCE_MIN: Duration = Duration::from_secs(60);
/// For how long a handshake that failed counts as one that is under way, from its beginning, where nobody has proven an address.
pub const HTTP3_FAILED_HANDSHAKE: Duration = Duration::from_secs(3);
/// Frames of no use from which on a connection is looked at without delay.
pub const HTTP3_IDLE_FRAMES_SOON: u32 = 256;
/// Default of the handshakes at once of one listener in one worker beyond which clients are asked to prove where they are.
pub const HTTP3_UNPROVEN_MAX: u32 = 100;
/// How long the end of a request is waited for that should have no body, and whose stream is not at its end with its head.
pub const HTTP3_END_PATIENCE: Duration = Duration::from_millis(20);
/// Handshakes at once of one listener in one worker beyond which clients are refused that have not proven where they are.
pub const HTTP3_HANDSHAKES_MAX: usize = 4096;
/// Bytes that are kept of one client that has not begun its handshake.
pub const HTTP3_INCOMING_BYTES_MAX: u64 = 64 * 1024;
/// Default of how long clients remember that a listener speaks HTTP/3.
pub const HTTP3_MAX_AGE: Duration = Duration::from_secs(86_400);
/// Sessions of TLS that a listener remembers which lets requests come before a handshake is over.
pub const HTTP3_SESSIONS_MAX: usize = 10_000;
/// After an early final response, time and bytes spent reading the rest of the request body so that the client sees
/// the response before a reset (RFC 9112 section 9.6).
pub const LINGER: Duration = Duration::from_secs(2);
/// See [`LINGER`].
pub const LINGER_BYTES_MAX: u64 = 1 << 20;
/// Time for a client to end its request after the response is complete, before its stream is reset with NO_ERROR (RFC 9113
/// section 8.1, RFC 9114 section 4.1). Many clients report a reset while they still send as a failure.
pub const EARLY_RESPONSE_PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of the rest of such a request that are read and thrown away. Half of a stream's window: what a client may send without a
/// further WINDOW_UPDATE never falls below it, so that no client stalls within this bound.
pub const EARLY_RESPONSE_BYTES_MAX: usize = HTTP2_STREAM_WINDOW_BYTES as usize / 2;
/// Default of the least time for which an answer of the domain name system holds.
pub const DNS_TTL_MIN: Duration = Duration::from_secs(1);
/// Default of the longest.
pub const DNS_TTL_MAX: Duration = Duration::from_secs(300);
/// Default of the longest time for which an address of an endpoint's host name holds.
pub const NAME_TTL_MAX: Duration = Duration::from_secs(3_600);
/// Default of the time between lookups of a host name whose answer has no time to live.
pub const NAME_INTERVAL: Duration = Duration::from_secs(30);
/// Host names of endpoints that are looked up at once; others wait for their turn.
pub const NAME_LOOKUPS_MAX: usize = 32;
/// Threads on which the system is asked for host names. More lookups wait, within their time-out.
pub const NAME_THREADS_MAX: usize = 4;
/// Default of the time for one answer of a registry.
pub const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Default of how long a query to Consul waits for something new.
pub const CONSUL_WAIT: Duration = Duration::from_secs(60);
/// Default of how long a start waits for what a provider says first.
pub const PROVIDER_START: Duration = Duration::from_secs(5);
/// Default of how often a provider looks at files.
pub const PROVIDER_LOOK: Duration = Duration::from_millis(500);
/// Default of how often a provider asks for a document.
pub const PROVIDER_POLL: Duration = Duration::from_secs(10);
/// Default of the time for the whole of an answer to a provider.
pub const PROVIDER_TIMEOUT: Duration = Duration::from_secs(5);
/// Default of the size of a document that a provider asks for.
pub const PROVIDER_BYTES_MAX: u64 = 16 << 20;
/// Steps of one health check.
pub const CHECK_STEPS_MAX: usize = 16;
/// Conditions of one kind, on the body or on its JSON, that a health check sets on a response.
pub const CHECK_CONDITIONS_MAX: usize = 16;
/// Largest body that a health check sends.
pub const CHECK_BODY_SENT_BYTES_MAX: usize = 16 * 1024;
/// Default of how much of a response's body a health check looks at.
pub const CHECK_BODY_BYTES_MAX: usize = 64 * 1024;
/// Largest setting of [`CHECK_BODY_BYTES_MAX`].
pub const CHECK_BODY_BYTES_HARD_MAX: usize = 1 << 20;
/// Keys and indices in one path to a JSON value.
pub const JSON_PATH_STEPS_MAX: usize = 32;
