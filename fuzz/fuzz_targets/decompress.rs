//! Coded bodies of strangers before `decompress`: no panic, no end without progress, never more than the bounds allow, and the same
//! however the bytes come.
#![no_main]

use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use model::fields::Span;
use model::filter::FilterUse;
use model::{Facts, FieldName, Name, RequestHead, Scheme, Version};
use plan::filter::{BadBody, Chain, Coder, Extent, Notes, Stage, Turn, Turning};
use serde_json::json;

const SIZE_MAX: usize = 1 << 20;
const CODINGS: [&[u8]; 4] = [b"gzip", b"deflate", b"br", b"zstd"];

static CHAIN: LazyLock<Chain> = LazyLock::new(|| {
    let settings = json!({ "ratio_max": 1000, "size_max": "1MiB" });
    let filter = FilterUse { name: "decompress".into(), settings, when: None, calls: Vec::new() };
    Chain::compile(&[filter], None).expect("good settings")
});

/// The coder of a request's body with this coding.
fn coder(coding: &[u8]) -> Box<dyn Coder> {
    let mut head = RequestHead::default();
    let start = head.fields.load(b"PUT/");
    head.set_line(Span::new(start, start + 3), Span::new(start + 3, start + 4), Version::Http11);
    head.fields.append(&FieldName::new("content-encoding").expect("a name"), coding);
    let (listener, peer) = (Name::from("web"), "192.0.2.7:40000".parse::<SocketAddr>().expect("an address"));
    let facts = Facts {
        peer,
        client: peer.ip(),
        local: peer,
        scheme: Scheme::Http,
        tls: None,
        sender: None,
        listener: &listener,
        request_id: "",
        user: None,
    };
    let (mut scratch, mut notes, mut chance) = (Vec::new(), Notes::default(), || 7);
    let now = std::time::Instant::now();
    let mut turn = Turn {
        facts: &facts,
        now,
        wall_clock: &Duration::default,
        chance: &mut chance,
        notes: &mut notes,
        scratch: &mut scratch,
        is_rehearsal: false,
    };
    let (make, _) = CHAIN.begin_request_body(&mut head, Extent::Unknown, &mut turn);
    match make.first().expect("it is decoded")() {
        Stage::Coder(coder) => coder,
        Stage::Tap(_) | Stage::Pace(_) => panic!("neither decodes"),
    }
}

/// What comes of a body in pieces of one size, in rooms of another.
fn decoded(coding: &[u8], body: &[u8], (piece, room): (usize, usize)) -> Result<Vec<u8>, BadBody> {
    let (mut coder, mut out, mut buffer) = (coder(coding), Vec::new(), vec![0; room]);
    let pieces = body.chunks(piece).map(|piece| (piece, Turning::More)).chain([(&[][..], Turning::End)]);
    for (mut rest, turning) in pieces {
        loop {
            let done = coder.code(rest, &mut buffer, turning)?;
            rest = &rest[done.read..];
            out.extend_from_slice(&buffer[..done.written]);
            assert!(out.len() <= SIZE_MAX, "the bound holds");
            if done.is_done || turning == Turning::More && rest.is_empty() && done.written < room {
                break;
            }
            assert!(done.read + done.written > 0, "it goes on");
        }
    }
    Ok(out)
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, body)) = input.split_first() else { return };
    let coding = CODINGS[usize::from(choice & 3)];
    let whole = decoded(coding, body, (4_096, 65_536));
    let parts = decoded(coding, body, (1 + usize::from(choice >> 2), 997));
    if let (Ok(whole), Ok(parts)) = (&whole, &parts) {
        assert_eq!(whole, parts);
    }
    assert_eq!(whole.is_ok(), parts.is_ok());
});
