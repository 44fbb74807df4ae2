use serde_json::json;

use super::super::testing::{Beside, World, compiled, request, response};
use super::*;

fn step() -> Steps {
    compiled(&ENTRY, &json!({ "max": 10 }))
}

fn answered(method: &str, status: u16, length: &str, source: ResponseSource) -> Flow {
    let (world, mut beside) = (World::new(), Beside::new());
    let asked = request(method, "/", &[]);
    let view = ResponseView { source, ..world.view(&asked) };
    let head = response(status, &[("content-length", length)]);
    let step = step().response.unwrap();
    assert_eq!(step.answers(), Answers::All);
    step.answer(&head, &view, &mut beside.turn(&world.facts()))
}

#[test]
fn a_response_that_says_it_is_too_long_is_replaced() {
    let refused = Flow::refuse(502, "the response is too long");
    assert_eq!(answered("GET", 200, "11", ResponseSource::Endpoint), refused);
    for (method, status, length, source) in [
        ("GET", 200, "10", ResponseSource::Endpoint),
        ("HEAD", 200, "11", ResponseSource::Endpoint),
        ("GET", 304, "11", ResponseSource::Endpoint),
        ("GET", 200, "11", ResponseSource::Local(None)),
    ] {
        assert_eq!(answered(method, status, length, source), Flow::Continue, "{method} {status} {length}");
    }
}

#[test]
fn a_body_of_unknown_length_is_cut_at_the_first_byte_too_many() {
    let (world, mut beside) = (World::new(), Beside::new());
    let asked = request("GET", "/", &[]);
    let facts = world.facts();
    let mut head = response(200, &[]);
    let mut begin = |extent| {
        let step = step().response_body.unwrap();
        step.begin(&mut head, &world.view(&asked), extent, &mut beside.turn(&facts))
    };
    assert!(begin(Extent::Known(5)).is_none() && begin(Extent::Absent).is_none());
    let Some((Stage::Coder(mut coder), Extent::Unknown)) = begin(Extent::Unknown) else { panic!("it is counted") };
    let mut room = [0; 4];
    let done = coder.code(b"12345", &mut room, Turning::More).unwrap();
    assert_eq!((done, &room), (Coded { read: 4, written: 4, is_done: false }, b"1234"));
    assert!(coder.code(b"5", &mut room, Turning::Flush).unwrap().is_done);
    assert_eq!(coder.code(b"6789", &mut room, Turning::More).unwrap().read, 4);
    assert!(coder.code(b"A", &mut room, Turning::End).unwrap().is_done, "ten bytes are not too many");
    assert_eq!(coder.code(b"B", &mut room, Turning::End), Err(BadBody::TooLong));
}

#[test]
fn a_body_that_says_it_is_too_long_but_was_not_replaced_is_cut() {
    let (world, mut beside) = (World::new(), Beside::new());
    let (asked, facts) = (request("GET", "/", &[]), world.facts());
    let mut head = response(200, &[("content-length", "11")]);
    let mut begin = |extent, source| {
        let view = ResponseView { source, ..world.view(&asked) };
        step().response_body.unwrap().begin(&mut head, &view, extent, &mut beside.turn(&facts))
    };
    assert!(begin(Extent::Known(10), ResponseSource::Endpoint).is_none());
    assert!(begin(Extent::Known(11), ResponseSource::Local(None)).is_none());
    let begun = begin(Extent::Known(11), ResponseSource::Endpoint);
    let Some((Stage::Coder(mut coder), Extent::Known(11))) = begun else { panic!("it is counted") };
    assert_eq!(coder.code(b"12345678901", &mut [0; 16], Turning::End), Err(BadBody::TooLong));
}
