//! The filters of the guide, compiled so that they stay true: each is one file, beside its line in the registry.

#[path = "guide_examples/ask_first.rs"]
mod ask_first;
#[path = "guide_examples/mask_digits.rs"]
mod mask_digits;
#[path = "guide_examples/quota.rs"]
mod quota;
#[path = "guide_examples/require_header.rs"]
mod require_header;

// Where the files say `super`, they mean the folder of filters, in which they would lie.
use super::*;

use serde_json::json;

use super::testing::{Beside, World, compiled, request, response};

/// Each with its text, as the guide shows it.
const ALL: [(FilterEntry, &str); 4] = [
    (require_header::ENTRY, include_str!("guide_examples/require_header.rs")),
    (mask_digits::ENTRY, include_str!("guide_examples/mask_digits.rs")),
    (quota::ENTRY, include_str!("guide_examples/quota.rs")),
    (ask_first::ENTRY, include_str!("guide_examples/ask_first.rs")),
];

#[test]
fn the_guide_shows_each_example_as_it_is_compiled() {
    let guide = include_str!("../../../../docs/guides/write-a-filter.md");
    for (example, text) in ALL {
        let name = example.name;
        assert!(guide.contains(&format!("````rust\n{text}````\n")), "copy guide_examples/{name}.rs into the guide");
        assert!(FILTERS.iter().all(|entry| entry.name != name), "the example `{name}` exists by now: choose another");
    }
}

/// What the step makes of the body of a response, in rooms of four bytes.
fn body_through(steps: &Steps, body: &[u8]) -> Vec<u8> {
    let (world, request) = (World::new(), request("GET", "/", &[]));
    let step = steps.response_body.as_ref().unwrap();
    let (mut head, mut beside) = (response(200, &[]), Beside::new());
    let extent = Extent::Known(body.len() as u64);
    let begun = step.begin(&mut head, &world.view(&request), extent, &mut beside.turn(&world.facts()));
    let (mut rest, mut out) = (body, Vec::new());
    match begun.unwrap() {
        (Stage::Tap(mut tap), behind) => {
            assert_eq!(behind, extent);
            tap.see(body);
            tap.end(None);
            body.to_vec()
        }
        (Stage::Coder(mut coder), _) => loop {
            let mut room = [0; 4];
            let coded = coder.code(rest, &mut room, Turning::End).unwrap();
            rest = &rest[coded.read..];
            out.extend_from_slice(&room[..coded.written]);
            if coded.is_done {
                return out;
            }
        },
        (Stage::Pace(_) | Stage::Hold(_) | Stage::Slices(_), _) => panic!("these change no bytes"),
    }
}

fn apply(steps: &Steps, head: &mut RequestHead) -> Flow {
    let world = World::new();
    steps.request.as_ref().unwrap().apply(head, &mut Beside::new().turn(&world.facts()))
}

#[test]
fn a_filter_of_bodies_changes_them() {
    let steps = compiled(&mask_digits::ENTRY, &json!({ "by": "#" }));
    assert_eq!(body_through(&steps, b"call 555-0199 now"), b"call ###-#### now");
    assert_eq!((mask_digits::ENTRY.check)(&json!({ "by": "é" })).unwrap_err().path, "by");
}

#[test]
fn a_filter_keeps_what_it_has_counted_over_a_change() {
    let uses = |max| super::testing::uses(&json!([{ "quota": { "max": max } }]));
    let compile = |settings, compiling: &mut Compiling<'_>| {
        compiling.filter(0, "quota");
        (quota::ENTRY.compile)(&settings, compiling).unwrap()
    };
    let mut first = Compiling::alone();
    let steps = compile(uses(10)[0].settings.clone(), &mut first);
    assert_eq!(apply(&steps, &mut request("GET", "/", &[])), Flow::Continue);
    assert_eq!(body_through(&steps, b"0123456789"), b"0123456789");
    assert_eq!(apply(&steps, &mut request("GET", "/", &[])), Flow::refuse(429, "the quota is used up"));
    let kept = first.finish().kept;
    let after = compile(uses(11)[0].settings.clone(), &mut Compiling::after(&kept));
    assert_eq!(apply(&after, &mut request("GET", "/", &[])), Flow::Continue);
    assert_eq!(body_through(&after, b"x"), b"x");
    assert_ne!(apply(&after, &mut request("GET", "/", &[])), Flow::Continue);
}

#[test]
fn a_filter_asks_a_cluster_and_goes_on_with_its_response() {
    let steps = compiled(&ask_first::ENTRY, &json!({ "cluster": "gatekeeper" }));
    let (world, mut head) = (World::new(), request("GET", "/a", &[]));
    let Flow::Need(Need::Call(call)) = apply(&steps, &mut head) else { panic!("it asks") };
    assert_eq!((call.cluster.place(), call.head.path()), (0, &b"/a"[..]));
    let step = steps.request.as_ref().unwrap();
    let mut resume = |found| step.resume(&mut head, found, &mut Beside::new().turn(&world.facts()));
    let reply = |status| Found::Call(Ok(Box::new(Reply { head: response(status, &[]), body: Vec::new() })));
    assert_eq!(resume(reply(200)), Flow::Continue);
    assert_eq!(resume(reply(404)), Flow::refuse(403, "not allowed"));
    assert_eq!(resume(Found::Call(Err(Fault::ConnectFailed))), Flow::refuse(503, "the gatekeeper does not answer"));
}
