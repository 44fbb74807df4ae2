//! Bodies of strangers before `replace_body`: no panic, no end without progress, and the same whatever pieces the bytes come in, with pauses or
//! without.
#![no_main]

use std::sync::LazyLock;

use equipoise_fuzz::filters::{self, Beside, World, request, view};
use libfuzzer_sys::fuzz_target;
use model::{FieldName, ResponseHead};
use plan::filter::{Chain, Coder, Extent, ResponseSource, Stage, Turning};
use serde_json::{Value, json};

static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    let texts =
        json!([{ "text": "aab", "with": "x" }, { "text": "ab", "with": "" }, { "text": "baa", "with": "long text" }]);
    let mixed =
        json!([{ "text": "aab", "with": "x" }, { "regex": "b+a", "with": "[$0]" }, { "regex": "(?m)^c$", "with": "" }]);
    let looking = json!([{ "regex": "\\bab\\b", "with": "-" }, { "regex": "a{2,40}b", "with": "$0$0" }, { "text": "\n\n", "with": "\n" }]);
    let settings = |replace: &Value, once: bool, ignore_case: bool| json!({ "replace": replace, "types": ["*/*"], "once": once, "ignore_case": ignore_case });
    let all = [
        (&texts, false, false),
        (&texts, true, true),
        (&mixed, false, true),
        (&mixed, true, false),
        (&looking, false, false),
    ];
    let chain = |(replace, once, ignore_case)| filters::chain("replace_body", settings(replace, once, ignore_case));
    all.into_iter().map(chain).collect()
});

fn coder(chain: &Chain) -> Box<dyn Coder> {
    let request = request("GET", b"/", &[]);
    let mut head = ResponseHead::default();
    head.status = 200;
    head.fields.append(&FieldName::new("content-type").expect("a name"), b"text/plain");
    let (world, mut beside) = (World::default(), Beside::default());
    let (facts, view) = (world.facts(), view(&request, ResponseSource::Endpoint));
    let mut turn = beside.turn(&facts);
    let (mut stages, _) = chain.begin_response_body(&mut head, &view, Extent::Unknown, &mut turn);
    match stages.pop().expect("it is searched") {
        Stage::Coder(coder) => coder,
        _ => panic!("it is a coder"),
    }
}

/// What comes of a body in pieces of one size, in rooms of another, with a pause after each piece or none.
fn replaced(chain: &Chain, body: &[u8], (piece, room, pauses): (usize, usize, bool)) -> Vec<u8> {
    let (mut coder, mut out, mut buffer) = (coder(chain), Vec::new(), vec![0; room]);
    let mut drive = |mut rest: &[u8], turning: Turning| {
        loop {
            let done = coder.code(rest, &mut buffer, turning).expect("no body is bad");
            rest = &rest[done.read..];
            out.extend_from_slice(&buffer[..done.written]);
            if done.is_done || turning == Turning::More && rest.is_empty() && done.written < room {
                break;
            }
            assert!(done.read + done.written > 0, "it goes on");
        }
    };
    for piece in body.chunks(piece) {
        drive(piece, Turning::More);
        if pauses {
            drive(b"", Turning::Flush);
        }
    }
    drive(b"", Turning::End);
    out
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, body)) = input.split_first() else { return };
    let chain = &CHAINS[usize::from(choice & 7) % CHAINS.len()];
    let whole = replaced(chain, body, (65_536, 65_536, false));
    let parts = replaced(chain, body, (1 + usize::from(choice >> 3), 7, choice & 8 != 0));
    assert_eq!(whole, parts);
});
