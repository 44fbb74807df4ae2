//! What the filter `compress` costs for each body, by algorithm, level and size: `cargo run --release -p equipoise-plan --example
//! compress_cost`. The bodies are pages of our documentation, as HTML or JSON would have them. The time includes the begin and the end of a
//! body, with the coder of the body before.

use std::hint::black_box;
use std::time::{Duration, Instant};

use model::fields::Span;
use model::filter::FilterUse;
use model::{Facts, FieldName, Name, RequestHead, ResponseHead, Scheme, Version};
use plan::filter::{Chain, Extent, Notes, ResponseSource, ResponseView, Stage, Turn, Turning};
use serde_json::json;

const TEXTS: [&str; 5] = [
    include_str!("../../../docs/reference/configuration.md"),
    include_str!("../../../docs/guides/change-by-api.md"),
    include_str!("../../../docs/guides/discovery.md"),
    include_str!("../src/filter/mod.rs"),
    include_str!("../src/filter/variables.rs"),
];
const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
const LEVELS: [(&str, &[u8]); 3] = [("zstd", &[1, 3, 6, 12]), ("br", &[0, 3, 4, 6]), ("gzip", &[1, 5, 6, 9])];

fn main() {
    let text = TEXTS.concat().into_bytes();
    for size in SIZES {
        for (algorithm, levels) in LEVELS {
            for level in levels {
                measure(algorithm, *level, &text[..size.min(text.len())]);
            }
        }
    }
}

fn measure(algorithm: &str, level: u8, body: &[u8]) {
    let settings = json!({ "algorithms": [algorithm], "levels": { algorithm: level }, "size_min": 0 });
    let uses = [FilterUse { name: "compress".into(), settings, when: None, calls: Vec::new() }];
    let chain = Chain::compile(&uses, None).expect("good settings");
    let rounds = (20_000_000 / body.len() / usize::from(level + 1)).clamp(3, 5_000) as u32;
    let mut coded = code(&chain, body);
    let begin = Instant::now();
    for _ in 0..rounds {
        coded = code(black_box(&chain), body);
    }
    let seconds = begin.elapsed().as_secs_f64() / f64::from(rounds);
    let (length, ratio) = (body.len(), body.len() as f64 / coded as f64);
    println!("{length:7} bytes, {algorithm:4} {level:2}: {ratio:5.2} times smaller, {:7.0} us", seconds * 1e6);
}

/// Bytes of the body when it is coded.
fn code(chain: &Chain, body: &[u8]) -> usize {
    let listener = Name::from("web");
    let (mut request, mut response) = (RequestHead::default(), ResponseHead::default());
    let mut load = |text: &str| {
        let start = request.fields.load(text.as_bytes());
        Span::new(start, start + text.len())
    };
    let (method, target) = (load("GET"), load("/"));
    request.set_line(method, target, Version::Http11);
    let name = |text| FieldName::new(text).expect("a name");
    request.fields.append(&name("accept-encoding"), b"gzip, br, zstd");
    response.status = 200;
    response.fields.append(&name("content-type"), b"text/html");
    let address = |text: &str| text.parse().expect("an address");
    let (peer, local) = (address("192.0.2.7:40000"), address("127.0.0.1:8080"));
    let facts = Facts {
        peer,
        client: peer.ip(),
        local,
        scheme: Scheme::Http,
        tls: None,
        sender: None,
        listener: &listener,
        request_id: "",
        user: None,
    };
    let mut turn = Turn {
        facts: &facts,
        now: Instant::now(),
        wall_clock: &Duration::default,
        chance: &mut || 7,
        notes: &mut Notes::default(),
        scratch: &mut Vec::new(),
        is_rehearsal: false,
    };
    let view = ResponseView {
        request: &request,
        cluster: None,
        endpoint: None,
        source: ResponseSource::Endpoint,
        elapsed: <_>::default(),
    };
    let extent = Extent::Known(body.len() as u64);
    let (mut stages, _) = chain.begin_response_body(&mut response, &view, extent, &mut turn);
    let Some(Stage::Coder(coder)) = stages.first_mut() else { panic!("the body is not coded") };
    let (mut room, mut input, mut written) = (vec![0; 16 << 10], body, 0);
    loop {
        let coded = coder.code(input, &mut room, Turning::End).expect("a body");
        (input, written) = (&input[coded.read..], written + coded.written);
        if coded.is_done {
            return written;
        }
    }
}
