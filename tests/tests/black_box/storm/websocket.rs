//! WebSockets (RFC 6455) of short words: the handshake, the frames, the end that says again what it hears.

use super::super::harness::Peer;
use super::super::http2_both::proof;

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// Shakes hands, and looks at the proof.
pub(super) fn begin(peer: &mut Peer) {
    peer.send(
        "GET /chat HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    let answer = peer.head();
    assert_eq!(answer.status(), 101, "{answer:?}");
    assert_eq!(answer.field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer:?}");
}

/// A word as a client sends it, and as it comes back.
pub(super) fn word(number: u64) -> (Vec<u8>, Vec<u8>) {
    let text = number.to_string().into_bytes();
    let length = u8::try_from(text.len()).expect("a few digits");
    let masked = text.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    let sent = [0x81, 0x80 | length].into_iter().chain(MASK).chain(masked).collect();
    (sent, [0x81, length].into_iter().chain(text.iter().copied()).collect())
}

/// Says a word and hears it back.
pub(super) fn says(peer: &mut Peer, number: u64) {
    let (sent, awaited) = word(number);
    peer.send(sent);
    assert_eq!(peer.take(awaited.len()), awaited);
}

/// The end that says again what it hears.
#[derive(Default)]
pub(super) struct Echo {
    /// Of a frame that has not come whole.
    heard: Vec<u8>,
}

impl Echo {
    /// What it says to these bytes.
    pub(super) fn answer(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.heard.extend_from_slice(bytes);
        let mut said = Vec::new();
        while let [kind, length, rest @ ..] = &self.heard[..] {
            let (length, from) = (length & 0x7f, MASK.len());
            let Some(masked) = rest.get(from..from + usize::from(length)) else { break };
            said.extend([*kind, length]);
            said.extend(masked.iter().zip(rest[..from].iter().cycle()).map(|(byte, mask)| byte ^ mask));
            self.heard.drain(..2 + from + usize::from(length));
        }
        said
    }

    /// Goes on until the other side leaves.
    pub(super) fn serve(mut self, peer: &mut Peer, key: &str) {
        let mut answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {}\r\n\r\n",
            proof(key)
        )
        .into_bytes();
        loop {
            let heard = peer.drain();
            answer.extend(self.answer(&heard));
            if peer.try_send(std::mem::take(&mut answer)).is_err() || !peer.fill().is_ok_and(|count| count > 0) {
                return;
            }
        }
    }
}
