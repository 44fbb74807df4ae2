use serde_json::json;

use super::super::Elapsed;
use super::super::testing::{Beside, World, compiled, issue, listed, request, response};
use super::*;

#[test]
fn times_stand_beside_those_of_the_endpoint() {
    let (world, mut beside) = (World::new(), Beside::new());
    let asked = request("GET", "/", &[]);
    let ms = |ms: u64| Duration::from_micros(ms * 1_000 + 500);
    let elapsed = Elapsed { queue: ms(1), connect: ms(2), first_byte: ms(30), total: ms(400) };
    let mut shown = |settings, is_local: bool| {
        let step = compiled(&ENTRY, &settings).response.unwrap();
        let mut head = response(200, &[("server-timing", "db;dur=3")]);
        let mut view = ResponseView { elapsed, ..world.view(&asked) };
        if is_local {
            view.endpoint = None;
        }
        step.apply(&mut head, &view, &mut beside.turn(&world.facts()));
        listed(&head.fields)
    };
    let all = "server-timing: db;dur=3|server-timing: queue;dur=1.500, connect;dur=2.500, endpoint;dur=30.500, total;dur=400.500";
    assert_eq!(shown(json!({}), false), all);
    assert_eq!(shown(json!({ "prefix": "a-" }), true), "server-timing: db;dur=3|server-timing: a-total;dur=400.500");
}

#[test]
fn a_prefix_that_would_end_a_name_is_an_issue() {
    for prefix in ["a;b", "a b", "\"", &"x".repeat(33)] {
        assert!(issue("server_timing", json!({ "prefix": prefix })).contains("prefix: "), "{prefix}");
    }
}
