//! The header of the PROXY protocol in front of a client's connection.
//!
//! Bytes are looked at before they are taken: what is no part of the header stays in the kernel, for TLS or whoever
//! comes next.

use std::future::poll_fn;
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Instant;

use model::Fault;
use model::facts::{SenderFacts, TlsFacts};
use model::proxy_protocol::{AcceptProxy, SenderTlvs};
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use wire::client_hello::is_server_name;
use wire::proxy_protocol::{Header, Proxied, has_signature, read};

use crate::connection::ConnectionFacts;
use crate::registry::Registration;
use crate::watch::Watch;

/// Looked at in one go; most headers are shorter.
const LOOK_BYTES: usize = 2048;

/// Waits for the header, and puts what it says into `facts`. What is given back was taken from the socket and turned out
/// to be the client's; it is nearly always nothing. `None`: the sender closed without a byte, as those do who only look
/// whether we listen.
///
/// # Errors
/// [`Fault::BadProxyHeader`], [`Fault::ProxyHeaderTimeout`], or what rang the watch before.
pub(crate) async fn receive(
    tcp: &TcpStream,
    accepted: &AcceptProxy,
    facts: &mut ConnectionFacts,
    (watch, registration): (&mut Watch, &Registration),
) -> Result<Option<Vec<u8>>, Fault> {
    let is_last_call = registration.is_closing();
    watch.set(
        Instant::now(),
        if is_last_call { accepted.timeout.min(registration.handle.last_call()) } else { accepted.timeout },
    );
    let mut waiting = Waiting { came: Vec::new(), is_required: accepted.is_required, is_last_call };
    poll_fn(|cx| {
        if let Poll::Ready(done) = waiting.poll(tcp, facts, cx) {
            return Poll::Ready(done);
        }
        if registration.is_closing() && !waiting.is_last_call {
            waiting.is_last_call = true;
            watch.set(Instant::now(), accepted.timeout.min(registration.handle.last_call()));
        }
        watch.poll(cx).map(|()| match watch.fault(Fault::ProxyHeaderTimeout) {
            // It may be one who waits for us to speak, with or without a word before.
            Fault::ProxyHeaderTimeout if waiting.may_be_none() => Ok(Some(std::mem::take(&mut waiting.came))),
            fault => Err(fault),
        })
    })
    .await
}

struct Waiting {
    came: Vec<u8>,
    is_required: bool,
    is_last_call: bool,
}

impl Waiting {
    /// Returns whether what came may be the client's own, which only happens to begin as a header would.
    fn may_be_none(&self) -> bool {
        !self.is_required && !has_signature(&self.came)
    }

    fn poll(
        &mut self,
        tcp: &TcpStream,
        facts: &mut ConnectionFacts,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Result<Option<Vec<u8>>, Fault>> {
        loop {
            let mut room = [0; LOOK_BYTES];
            let mut look = ReadBuf::new(&mut room);
            let looked = ready!(tcp.poll_peek(cx, &mut look));
            if looked.is_err() || look.filled().is_empty() {
                return Poll::Ready(match self.came.is_empty() {
                    true => Ok(None),
                    false if looked.is_ok() && self.may_be_none() => Ok(Some(std::mem::take(&mut self.came))),
                    false => Err(Fault::BadProxyHeader),
                });
            }
            let before = self.came.len();
            self.came.extend_from_slice(look.filled());
            let (taken, is_whole) = match read(&self.came) {
                Proxied::NeedMore => (self.came.len() - before, false),
                Proxied::Whole(header) => {
                    tell(&header, facts);
                    (header.len - before, true)
                }
                Proxied::Absent if !self.is_required => {
                    self.came.truncate(before);
                    return Poll::Ready(Ok(Some(std::mem::take(&mut self.came))));
                }
                Proxied::Absent | Proxied::Malformed => return Poll::Ready(Err(Fault::BadProxyHeader)),
            };
            if !take(tcp, &mut room[..taken]) {
                return Poll::Ready(Err(Fault::BadProxyHeader));
            }
            if is_whole {
                return Poll::Ready(Ok(Some(Vec::new())));
            }
        }
    }
}

/// Takes bytes that were seen already. False: the connection broke meanwhile.
fn take(tcp: &TcpStream, mut room: &mut [u8]) -> bool {
    while !room.is_empty() {
        match tcp.try_read(room) {
            Ok(count @ 1..) => room = &mut room[count..],
            _ => return false,
        }
    }
    true
}

fn tell(header: &Header<'_>, facts: &mut ConnectionFacts) {
    let Some(peers) = header.peers else { return };
    let told = &header.told;
    let mut tlvs = SenderTlvs::default();
    told.each(|kind, value| tlvs.add(kind, value));
    facts.sender = Some(Box::new(SenderFacts { address: facts.peer, unique_id: told.unique_id.map(Into::into), tlvs }));
    (facts.peer, facts.local) = (peers.source, peers.destination);
    if told.ssl.as_ref().is_some_and(|ssl| ssl.is_tls) {
        // What the sender took apart is told on as what it was.
        // The client chose it, and the sender may not have looked.
        let authority = told.authority.filter(|name| is_server_name(name));
        let server_name = authority.map(str::to_ascii_lowercase);
        facts.tls = Some(Box::new(TlsFacts { server_name, ..TlsFacts::default() }));
    }
}
