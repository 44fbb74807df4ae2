//! Requests of strangers before filters that read them: no panic, nobody is let in whom nobody knows, and what a page quotes stays
//! text.
#![no_main]

use std::sync::LazyLock;

use equipoise_fuzz::filters::{Beside, World, request, view};
use libfuzzer_sys::fuzz_target;
use model::filter::FilterUse;
use model::matching::{Match, ValueMatch, ValueTest, When};
use model::{FieldName, ResponseHead};
use plan::filter::{Chain, Extent, Flow, Found, Need, ResponseSource};
use serde_json::{Value, json};

static CHAIN: LazyLock<Chain> = LazyLock::new(|| {
    let quotes = |content_type: &str, body: &str| json!({ "content_type": content_type, "body": body, "headers": { "x-page": content_type } });
    let asked = ValueMatch { name: "q".into(), test: ValueTest::Regex("a+".into()) };
    let when = When {
        not: Some(Box::new(When { matches: Match { query: vec![asked], ..Match::default() }, ..When::default() })),
        ..When::default()
    };
    let uses = [
        ("basic_auth", json!({ "users": { "ann": "$apr1$ozAnnRQ8$nRw8p2UQymJFqVKCCtq5l1" } }), None),
        ("compress", json!({}), None),
        ("error_page", quotes("text/html", "<p title=\"{uri}\">{request_header:accept} {cookie:c} {user}</p>"), None),
        (
            "error_page",
            quotes("application/json", "{\"at\": \"{uri}\", \"like\": \"{request_header:accept}\"}"),
            Some(when),
        ),
    ];
    let uses = uses.map(|(name, settings, when)| FilterUse { name: name.into(), settings, when, calls: Vec::new() });
    Chain::compile(&uses, None).expect("good settings")
});

/// Fields that filters read.
const NAMES: [&str; 8] = [
    "authorization",
    "accept",
    "cookie",
    "accept",
    "authorization",
    "accept-encoding",
    "accept-encoding",
    "cache-control",
];

fuzz_target!(|input: &[u8]| {
    let mut lines = input.split(|byte| *byte == b'\n');
    let target = lines.next().unwrap_or_default();
    let fields: Vec<_> = NAMES.into_iter().zip(lines).collect();
    let mut head = request("GET", target, &fields);
    let (world, mut beside) = (World::default(), Beside::default());
    let facts = world.facts();
    let mut turn = beside.turn(&facts);
    let mut place = 0;
    let mut flow = CHAIN.on_request_from(&mut place, &mut head, &mut turn);
    if let Flow::Need(Need::Work(job)) = &flow {
        let found = Found::Work(job.0.run(&mut || 7));
        flow = CHAIN.resume(&mut place, found, &mut head, &mut turn);
    }
    match flow {
        Flow::Continue => {
            assert_eq!(turn.notes.user(), Some(&b"ann"[..]));
            assert!(head.fields.get(&FieldName::new("authorization").expect("a name")).is_none());
        }
        Flow::Respond(local) => assert_eq!((local.status, turn.notes.user()), (401, None)),
        other => panic!("{other:?}"),
    }
    let view = view(&head, ResponseSource::Local(None));
    let mut turn = beside.turn(&facts);
    let mut response = ResponseHead::default();
    response.status = 200;
    response.fields.append(&FieldName::new("content-type").expect("a name"), b"text/html");
    let (stages, _) = CHAIN.begin_response_body(&mut response, &view, Extent::Unknown, &mut turn);
    let coding = response.fields.get(&FieldName::new("content-encoding").expect("a name")).is_some();
    assert_eq!(stages.len(), usize::from(coding), "a body is coded exactly if its head says so");
    response.status = 401;
    let Flow::Respond(page) = CHAIN.answer(&mut 0, (&response, &view), &mut turn) else { panic!("one fits always") };
    let text = String::from_utf8(page.body).expect("text");
    if page.fields.iter().any(|(_, value)| value == "application/json") {
        serde_json::from_str::<Value>(&text).expect("JSON");
    } else {
        let count = |what: char| text.matches(what).count();
        assert_eq!((count('<'), count('>'), count('"')), (2, 2, 2), "{text}");
    }
});
