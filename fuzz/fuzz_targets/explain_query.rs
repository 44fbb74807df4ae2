//! The query of `/api/explain`: no panic; what is understood gets an explanation or a reason, and no values are told.
#![no_main]

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use plan::explain::{Question, explain};
use plan::{Moment, Plan};

static PLAN: LazyLock<Plan> = LazyLock::new(|| {
    let text = r#"
version: 1
listeners:
  web: { bind: "127.0.0.1:80" }
  raw: { bind: "127.0.0.1:5432", protocol: tcp, cluster: some }
routes:
  - { match: { host: "*.example", path: { prefix: /a }, headers: { x-a: "1" } }, cluster: some }
  - { match: { path: { regex: "^/b(c|d)*$" } }, redirect: { path: "/to{path}" } }
  - { match: { query: { q: "1" } }, respond: { status: 204 } }
  - cluster: hashed
clusters:
  some: { endpoints: ["127.0.0.1:1", "127.0.0.1:2"] }
  hashed: { endpoints: ["127.0.0.1:1", "127.0.0.1:2"], balance: { hash: { on: [{ cookie: c }, { query: q }, uri] } } }
"#;
    let snapshot = config::check_text(text).unwrap_or_else(|error| panic!("{error}"));
    plan::compile(snapshot.into(), None, 1).unwrap_or_else(|issues| panic!("{issues:?}"))
});

fuzz_target!(|input: &[u8]| {
    let Ok(query) = std::str::from_utf8(input) else { return };
    let question = match Question::from_query(query) {
        Ok(question) => question,
        Err(reason) => return assert!(!reason.is_empty()),
    };
    assert!(question.hides_values && !question.request.is_empty() && question.fields.len() <= 100);
    let at = Moment { now: Instant::now(), unix: Duration::from_secs(1) };
    match explain(&PLAN, &question, at, &mut || 7, &mut |_, _, _| Ok(())) {
        Ok(told) => assert!(!told.request.is_empty()),
        Err(reason) => assert!(!reason.is_empty()),
    }
});
