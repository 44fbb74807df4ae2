//! The bounds of QUIC connections.

use std::time::Duration;

use model::limits::{
    HTTP3_CONNECTION_WINDOW_BYTES, HTTP3_CRYPTO_BYTES_MAX, HTTP3_SEND_WINDOW_BYTES_MIN, HTTP3_SILENCE_MIN,
    HTTP3_STREAM_WINDOW_BYTES, HTTP3_STREAMS_MAX, HTTP3_UNI_STREAMS_MAX, UPSTREAM_HTTP3_STREAM_WINDOW_BYTES,
};
use model::snapshot::SharedPool;
use quinn_proto::{AckFrequencyConfig, IdleTimeout, TransportConfig, VarInt};

/// Datagrams that a peer may receive before it acknowledges them, where it can be asked (draft-ietf-quic-ack-frequency). Half of the
/// first congestion window (RFC 9002 section 7.2), so that a connection that begins waits for no acknowledgement that is held back.
const ACKNOWLEDGED_AT_ONCE: u32 = 4;
/// How long it may hold one back: after losses the window may be smaller than that.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(5);

/// Returns the bounds of a client's QUIC connection, of which nothing may come for `idle_timeout` (RFC 9000 section 10.1), but for
/// [`HTTP3_SILENCE_MIN`] in any case: exchanges may be under way, and one without any is ended by who looks after it.
pub(crate) fn transport(idle_timeout: Duration) -> TransportConfig {
    let mut transport = bounded(idle_timeout.max(HTTP3_SILENCE_MIN));
    transport
        .max_concurrent_bidi_streams(HTTP3_STREAMS_MAX.into())
        .stream_receive_window(HTTP3_STREAM_WINDOW_BYTES.into())
        .receive_window(HTTP3_CONNECTION_WINDOW_BYTES.into());
    transport
}

/// Returns the same of a connection to an endpoint, which begins no streams of requests (RFC 9114 section 6.1). Its window is as large as
/// those of all streams together, so that who reads slowly holds up nobody else.
pub(crate) fn outgoing_transport(shared: &SharedPool, idle_timeout: Duration) -> TransportConfig {
    let silence = idle_timeout.max(shared.ping_interval + shared.ping_timeout).max(HTTP3_SILENCE_MIN);
    let window = u64::from(UPSTREAM_HTTP3_STREAM_WINDOW_BYTES) * u64::from(shared.streams_max);
    // Whoever looks after the connection ends it before.
    let mut transport = bounded(silence * 2);
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .stream_receive_window(UPSTREAM_HTTP3_STREAM_WINDOW_BYTES.into())
        .receive_window(VarInt::from_u64(window).unwrap_or(VarInt::MAX));
    transport
}

fn bounded(silence: Duration) -> TransportConfig {
    let mut acknowledgements = AckFrequencyConfig::default();
    acknowledgements.ack_eliciting_threshold(ACKNOWLEDGED_AT_ONCE.into()).max_ack_delay(Some(ACKNOWLEDGED_WITHIN));
    let mut transport = TransportConfig::default();
    transport
        .ack_frequency_config(Some(acknowledgements))
        .max_concurrent_uni_streams(HTTP3_UNI_STREAMS_MAX.into())
        .send_window(HTTP3_SEND_WINDOW_BYTES_MIN)
        .crypto_buffer_size(HTTP3_CRYPTO_BYTES_MAX)
        .max_idle_timeout(IdleTimeout::try_from(silence).ok())
        // No datagrams that are not of a stream (RFC 9221).
        .datagram_receive_buffer_size(None);
    transport
}
