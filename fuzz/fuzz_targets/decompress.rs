//! Coded bodies of strangers before `decompress`: no panic, no end without progress, never more than the bounds allow, and the same
//! however the bytes come.
#![no_main]

use std::sync::LazyLock;

use equipoise_fuzz::filters::{self, Beside, World, request};
use libfuzzer_sys::fuzz_target;
use plan::filter::{BadBody, Chain, Coder, Extent, Stage, Turning};
use serde_json::json;

const SIZE_MAX: usize = 1 << 20;
const CODINGS: [&[u8]; 4] = [b"gzip", b"deflate", b"br", b"zstd"];

static CHAIN: LazyLock<Chain> =
    LazyLock::new(|| filters::chain("decompress", json!({ "ratio_max": 1000, "size_max": "1MiB" })));

/// The coder of a request's body with this coding.
fn coder(coding: &[u8]) -> Box<dyn Coder> {
    let mut head = request("PUT", b"/", &[("content-encoding", coding)]);
    let (world, mut beside) = (World::default(), Beside::default());
    let facts = world.facts();
    let mut turn = beside.turn(&facts);
    let (make, _) = CHAIN.begin_request_body(&mut head, Extent::Unknown, &mut turn);
    match make.first().expect("it is decoded")() {
        Stage::Coder(coder) => coder,
        _ => panic!("it is a coder"),
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
