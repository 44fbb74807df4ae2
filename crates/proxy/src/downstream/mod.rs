//! Towards clients: one module per HTTP version, all of which end in `exchange`.

mod exchanges;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod http3;
mod served;
mod shutdown;

use std::future::poll_fn;
use std::task::Poll;
use std::time::Instant;

use model::limits::{EARLY_RESPONSE_BYTES_MAX, EARLY_RESPONSE_PATIENCE};

use crate::message::MessageStream;
use crate::watch::Watch;

/// Waits for the end of a request whose response is complete, and throws the rest of its body away, both within bounds: a client that
/// sees its stream reset while it sends may take the response for a failure, whatever the code (RFC 9113 section 8.1, RFC 9114
/// section 4.1). The stream counts as open until then.
pub(crate) async fn linger(stream: &mut MessageStream, watch: &mut Watch) {
    watch.set_bound(None);
    watch.set(Instant::now(), EARLY_RESPONSE_PATIENCE);
    let mut left = EARLY_RESPONSE_BYTES_MAX;
    poll_fn(|cx| match stream.poll_discard(cx, &mut left) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => watch.poll(cx),
    })
    .await;
}
