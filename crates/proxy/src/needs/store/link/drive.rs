//! What keeps a connection to a store: it connects, writes what is asked, reads what is answered, and connects again.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::{Duration, Instant};

use wire::resp::read_reply;

use super::{CONNECT, End, Link, State};
use crate::byte_stream::ByteStream;
use crate::socket;

/// Pauses between attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A link that nobody asks for so long ends.
const IDLE: Duration = Duration::from_secs(60);
/// Bytes of replies that are not read yet. They are small, but for a map of slots.
const INPUT_BYTES_MAX: usize = 256 << 10;
/// The same while a map of slots is awaited: 16,384 ranges with a node each, or fewer with replicas.
const MAP_BYTES_MAX: usize = 2 << 20;
/// A part of a reply that is so long is parsed only when it may be whole, because parsing begins with its first byte each time.
const LARGE_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 4 << 10;

/// Connects, answers and connects again, until nobody asks any more.
pub(super) async fn drive(link: Rc<Link>, forget: fn(&Rc<Link>)) {
    let (mut pause, mut failures) = (PAUSE_MIN, 0);
    loop {
        link.is_spent.set(false);
        link.has_answered.set(false);
        let connected = tokio::time::timeout(CONNECT, connect(&link, failures)).await;
        let end = match connected.ok().flatten() {
            Some(io) => {
                link.greet();
                serve(&link, io).await
            }
            None => End::Broken,
        };
        if end == End::Better {
            // What is asked from now on waits for the next connection.
            link.state.set(State::Beginning);
            link.give_up();
            (pause, failures) = (PAUSE_MIN, 0);
            continue;
        }
        if link.has_answered.get() {
            // It begins with the first endpoint again.
            (pause, failures) = (PAUSE_MIN, 0);
        } else {
            failures += 1;
        }
        if link.state.replace(State::Down) == State::Up && end == End::Broken && link.told.borrow().is_none() {
            link.tell_once("the connection to the store of a shared limit is lost", b"trying again");
        }
        link.give_up();
        if end == End::Idle || link.asked_at.get().elapsed() >= IDLE {
            return forget(&link);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn connect(link: &Link, failures: usize) -> Option<ByteStream> {
    let local = link.local.borrow().clone();
    let (address, name) = match &link.target {
        Some(target) => (target.address(&local.plan.cluster)?, target.to_string()),
        None => {
            let endpoint = local.plan.cluster.endpoints.get(link.endpoint(failures)?)?;
            (endpoint.address.clone(), endpoint.name.to_string())
        }
    };
    let tcp = socket::connect(&address, &local.plan.cluster.socket, None, true).await.ok()?;
    *link.address.borrow_mut() = Some(address);
    match &local.tls {
        None => Some(ByteStream::Plain(tcp)),
        Some(tls) => {
            let stream = Box::pin(tls.connector.connect(tls.name_of(&name)?, tcp)).await.ok()?;
            Some(ByteStream::Connected(Box::new(stream)))
        }
    }
}

/// Writes what is asked and reads what is answered, until the connection ends or nobody asks any more.
async fn serve(link: &Link, mut io: ByteStream) -> End {
    let (mut writing, mut written, mut input) = (Vec::new(), 0, Vec::new());
    let begun = Instant::now();
    let mut look = Box::pin(tokio::time::sleep(CONNECT));
    let (mut is_first, mut is_outranked) = (false, false);
    poll_fn(|cx| {
        link.waker.borrow_mut().clone_from(&Some(cx.waker().clone()));
        if link.is_spent.get() {
            return Poll::Ready(End::Broken);
        }
        if let Poll::Ready(end) = poll_replies(link, cx, &mut io, &mut input) {
            return Poll::Ready(end);
        }
        if poll_commands(link, cx, &mut io, (&mut writing, &mut written)).is_err() {
            return Poll::Ready(End::Broken);
        }
        if is_outranked && link.waiting.borrow().is_empty() {
            return Poll::Ready(End::Better);
        }
        while look.as_mut().poll(cx).is_ready() {
            if link.asked_at.get().elapsed() >= IDLE {
                return Poll::Ready(End::Idle);
            }
            if link.state.get() != State::Up && begun.elapsed() >= CONNECT {
                return Poll::Ready(End::Broken);
            }
            if is_outranked {
                // There was always a question: those of this moment get no answer.
                return Poll::Ready(End::Better);
            }
            is_outranked = link.is_outranked(&mut is_first);
            look.as_mut().reset(tokio::time::Instant::now() + CONNECT);
        }
        Poll::Pending
    })
    .await
}

/// Ready when the connection has ended.
fn poll_replies(link: &Link, cx: &mut TaskContext<'_>, io: &mut ByteStream, input: &mut Vec<u8>) -> Poll<End> {
    let mut room = [0; READ_BYTES];
    loop {
        let count = match ready!(io.poll_read(cx, &mut room)) {
            Ok(0) | Err(_) => return Poll::Ready(End::Broken),
            Ok(count) => count,
        };
        input.extend_from_slice(&room[..count]);
        let bytes_max = if link.awaits_slots() { MAP_BYTES_MAX } else { INPUT_BYTES_MAX };
        if (LARGE_BYTES..bytes_max).contains(&input.len()) && !input.ends_with(b"\r\n") {
            continue;
        }
        let mut taken = 0;
        loop {
            match read_reply(&input[taken..]) {
                Ok(Some((reply, count))) => {
                    taken += count;
                    if let Err(end) = link.take(&reply) {
                        return Poll::Ready(end);
                    }
                }
                Ok(None) => break,
                Err(_) => return Poll::Ready(End::Broken),
            }
        }
        input.drain(..taken);
        if input.len() > bytes_max {
            return Poll::Ready(End::Broken);
        }
    }
}

/// Writes as much as the store takes.
fn poll_commands(
    link: &Link,
    cx: &mut TaskContext<'_>,
    io: &mut ByteStream,
    (writing, written): (&mut Vec<u8>, &mut usize),
) -> std::io::Result<()> {
    loop {
        if *written == writing.len() {
            writing.clear();
            *written = 0;
            std::mem::swap(writing, &mut link.out.borrow_mut());
            if writing.is_empty() {
                return match io.poll_flush(cx) {
                    Poll::Ready(flushed) => flushed,
                    Poll::Pending => Ok(()),
                };
            }
        }
        match io.poll_write(cx, &writing[*written..]) {
            Poll::Ready(count) => *written += count?,
            Poll::Pending => return Ok(()),
        }
    }
}
