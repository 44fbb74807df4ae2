//! Exchanges are counted, and conditions read what was counted.

use std::net::IpAddr;
use std::time::Duration;

use model::Facts;
use model::filter::FilterUse;
use model::matching::When;
use model::table::{TableKey, TableTest};
use serde_json::json;

use super::super::testing::{Beside, World, issue, request, response, uses};
use super::super::{Chain, Flow};
use super::*;
use crate::map::Maps;
use crate::table::Table;

fn table(counters: &[&str], rates: &[&str]) -> Arc<Table> {
    let named = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<Counter>>();
    let settings = model::table::Table {
        name: "abuse".into(),
        key: TableKey::Client { ipv4_prefix: 32, ipv6_prefix: 64 },
        keys_max: 1_000,
        expire: Duration::from_secs(60),
        counters: named(counters),
        rates: named(rates).into_iter().map(|counter| (counter, Duration::from_secs(10))).collect(),
        is_replicated: false,
    };
    Arc::new(Table::compile(&Arc::new(settings), None).unwrap())
}

fn used(name: &str, settings: serde_json::Value, above: &[(&str, u64)]) -> FilterUse {
    let filter = uses(&json!([{ name: settings }])).remove(0);
    let above: Vec<_> = above.iter().map(|(reading, bound)| (reading.parse().unwrap(), *bound)).collect();
    let tables = if above.is_empty() { Vec::new() } else { vec![TableTest { table: "abuse".into(), above }] };
    FilterUse { when: (!tables.is_empty()).then(|| When { tables, ..When::default() }), ..filter }
}

struct Bench {
    chain: Chain,
    table: Arc<Table>,
    world: World,
    beside: Beside,
}

impl Bench {
    fn new(table: Arc<Table>, uses: &[FilterUse]) -> Self {
        let chain = Chain::compile_with(uses, None, (std::slice::from_ref(&table), Maps::Known(&[]))).unwrap();
        Self { chain, table, world: World::new(), beside: Beside::new() }
    }

    /// A whole exchange of a client.
    fn exchange(&mut self, client: &str, ended: Ended) -> Flow {
        let facts = Facts { client: client.parse::<IpAddr>().unwrap(), ..self.world.facts() };
        let mut head = request("GET", "/", &[]);
        let flow = self.chain.on_request(&mut head, &mut self.beside.turn(&facts));
        let mut answer = response(if ended.status == 0 { 502 } else { ended.status }, &[]);
        self.chain.on_response(&mut answer, &self.world.view(&head), &mut self.beside.turn(&facts));
        let now = Some(self.beside.now);
        self.beside.notes.end(&Ended { now, ..ended });
        self.beside.notes.clear();
        flow
    }

    fn get(&self, client: &str, reading: &str) -> u64 {
        let key = self.table.parse_key(client).unwrap();
        self.table.get(&key, reading.parse().unwrap(), self.beside.now)
    }
}

fn ended(status: u16) -> Ended {
    Ended { status, ..Ended::default() }
}

const ALL: [&str; 6] = ["requests", "errors", "failures", "bytes_in", "bytes_out", "marks"];

#[test]
fn an_exchange_is_counted_when_it_comes_and_when_it_ends() {
    let mut bench =
        Bench::new(table(&ALL, &["requests", "errors"]), &[used("track", json!({ "table": "abuse" }), &[])]);
    bench.exchange("192.0.2.7", Ended { received_bytes: 5, sent_bytes: 700, ..ended(200) });
    bench.exchange("192.0.2.7", ended(404));
    bench.exchange("192.0.2.7", ended(503));
    bench.exchange("192.0.2.7", Ended { fault: Some(model::Fault::ClosedInQueue), ..ended(0) });
    bench.exchange("192.0.2.7", Ended { fault: Some(model::Fault::ConnectFailed), ..ended(0) });
    let read = |reading| bench.get("192.0.2.7", reading);
    assert_eq!(ALL.map(read), [5, 1, 2, 5, 700, 0]);
    assert_eq!((read("requests_rate"), read("errors_rate")), (5, 1));
    assert_eq!(bench.get("192.0.2.8", "requests"), 0);
}

#[test]
fn conditions_read_what_was_counted() {
    let filters = [
        used("track", json!({ "table": "abuse" }), &[]),
        used("deny", json!({ "status": 403 }), &[("errors_rate", 2), ("requests", 4)]),
        used("set_response_header", json!({ "x-many": "yes" }), &[("requests", 1)]),
    ];
    let mut bench = Bench::new(table(&["requests"], &["errors"]), &filters);
    let passes = |flow: Flow| flow == Flow::Continue;
    assert!((0..4).all(|_| passes(bench.exchange("192.0.2.7", ended(404)))), "four requests are not above four");
    assert!(!passes(bench.exchange("192.0.2.7", ended(404))));
    assert!((0..9).all(|_| passes(bench.exchange("192.0.2.8", ended(200)))), "no errors");
    bench.beside.now += Duration::from_secs(30);
    assert!(passes(bench.exchange("192.0.2.7", ended(200))), "the errors are long ago");
}

fn table_by(expression: &str) -> Arc<Table> {
    let before = table(&["requests"], &["errors"]);
    let settings =
        model::table::Table { key: TableKey::Expression(expression.into()), ..(**before.settings()).clone() };
    Arc::new(Table::compile(&Arc::new(settings), None).unwrap())
}

fn when(filter: FilterUse, expression: &str) -> FilterUse {
    let matches = model::matching::Match { expression: Some(expression.into()), ..<_>::default() };
    FilterUse { when: Some(When { matches, ..When::default() }), ..filter }
}

#[test]
fn expressions_read_what_was_counted_by_any_key() {
    for (table, key) in [
        (table(&["requests"], &["errors"]), "192.0.2.7"),
        (table_by("string(source.address) + request.method"), "192.0.2.7GET"),
        (table_by("request.headers[\"x-none\"]"), ""),
    ] {
        let filters = [
            used("track", json!({ "table": "abuse" }), &[]),
            when(
                used("deny", json!({ "status": 403 }), &[]),
                "tables.abuse.requests > 2 && tables[\"abuse\"].errors_rate >= 1",
            ),
            used("deny", json!({ "status": 418 }), &[("requests", 3)]),
        ];
        let mut bench = Bench::new(table, &filters);
        let mut status = |ended| match bench.exchange("192.0.2.7", ended) {
            Flow::Continue => 200,
            Flow::Respond(local) => local.status,
            flow => panic!("{flow:?}"),
        };
        assert_eq!(
            [status(ended(200)), status(ended(404)), status(ended(200)), status(ended(200))],
            [200, 200, 403, 403]
        );
        bench.beside.now += Duration::from_secs(30);
        let flow = bench.exchange("192.0.2.7", ended(200));
        assert!(matches!(flow, Flow::Respond(local) if local.status == 418), "the errors are long ago");
        assert_eq!((bench.get(key, "requests"), bench.table.entries()), (5, 1));
    }
}

#[test]
fn expressions_read_the_entries_of_other_keys() {
    for (table, mine, other) in [
        (table(&["requests"], &["errors"]), "source.address", "request.query[\"who\"]"),
        (table_by("string(source.address)"), "source.address", "request.query[\"who\"]"),
        (
            table_by("request.method + string(source.address)"),
            "\"GET\" + string(source.address)",
            "\"GET\" + request.query[\"who\"]",
        ),
    ] {
        let filters = [
            used("track", json!({ "table": "abuse" }), &[]),
            when(used("deny", json!({ "status": 403 }), &[]), &format!("tables.abuse[{mine}].requests > 2")),
            when(used("deny", json!({ "status": 404 }), &[]), &format!("tables[\"abuse\"][{other}].errors_rate == 1")),
        ];
        let mut bench = Bench::new(table, &filters);
        let mut status = |client: &str, target: &str| {
            let facts = Facts { client: client.parse::<IpAddr>().unwrap(), ..bench.world.facts() };
            let mut head = request("GET", target, &[]);
            let flow = bench.chain.on_request(&mut head, &mut bench.beside.turn(&facts));
            bench.beside.notes.end(&Ended { now: Some(bench.beside.now), ..ended(404) });
            bench.beside.notes.clear();
            if let Flow::Respond(local) = flow { local.status } else { 200 }
        };
        let (ann, bob) = ("192.0.2.7", "192.0.2.8");
        assert_eq!([status(ann, "/"), status(bob, "/?who=192.0.2.7"), status(bob, "/?who=192.0.2.9")], [200, 404, 200]);
        assert_eq!([status(bob, "/?who=nobody"), status(ann, "/?who=192.0.2.8"), status(bob, "/")], [403, 200, 403]);
        assert_eq!(bench.table.entries(), 2, "to read an entry makes none");
    }
}

#[test]
fn the_value_of_a_field_may_come_from_a_table() {
    let filters = [
        used("track", json!({ "table": "abuse" }), &[]),
        used("set_request_header", json!({ "x-count": { "expression": "tables.abuse.requests" } }), &[]),
        used("set_response_header", json!({ "x-count": { "expression": "string(tables.abuse.requests * 2)" } }), &[]),
    ];
    let mut bench = Bench::new(table(&["requests"], &[]), &filters);
    let facts = bench.world.facts();
    let (mut head, mut answer) = (request("GET", "/", &[]), response(200, &[]));
    bench.chain.on_request(&mut head, &mut bench.beside.turn(&facts));
    bench.chain.on_response(&mut answer, &bench.world.view(&head), &mut bench.beside.turn(&facts));
    let name = model::FieldName::new("x-count").unwrap();
    assert_eq!((head.fields.get(&name), answer.fields.get(&name)), (Some(&b"1"[..]), Some(&b"2"[..])));
}

#[test]
fn what_is_wrong_with_a_reading_points_at_it() {
    let told = |expression: &str| {
        let filters = [when(used("deny", json!({}), &[]), expression)];
        let tables = [table(&["requests"], &[])];
        let issues = Chain::compile_with(&filters, None, (&tables, Maps::Known(&[]))).err().unwrap();
        let (start, end) = issues[0].part.unwrap();
        (issues[0].message.clone(), expression[start..end].to_owned())
    };
    for (expression, message, marked) in [
        ("tables.abus.requests > 1", "there is no table `abus`", "abus"),
        ("tables.abuse.errors > 1", "the table `abuse` does not count `errors`", "errors"),
        ("tables.abuse.hits > 1", "`hits` is no counter", "hits"),
        ("tables.abuse > 1", "a table is not a value", "tables.abuse"),
        ("tables[request.host].errors > 1", "the name of a table is a text in quotes", "request.host"),
        ("tables.abuse[request.size].requests > 1", "this is of the type int, but ip is needed", "request.size"),
        ("tables.abuse[request.hots].requests > 1", "there is no fact `request.hots`", "request.hots"),
        ("tables.abuse[source.address] > 1", "a table is not a value", "tables.abuse"),
        ("tables.abuse.requests == \"1\"", "int and string cannot be compared", "tables.abuse.requests == \"1\""),
    ] {
        let (found, part) = told(expression);
        assert!(found.starts_with(message) && part == marked, "{expression}: {found}, {part}");
    }
}

#[test]
fn what_a_condition_found_for_the_request_counts_for_its_response() {
    let filters = [
        used("set_response_header", json!({ "x-many": "yes" }), &[("requests", 1)]),
        used("track", json!({ "table": "abuse" }), &[]),
    ];
    let mut bench = Bench::new(table(&["requests"], &[]), &filters);
    let mut told = || {
        let facts = bench.world.facts();
        let (mut head, mut answer) = (request("GET", "/", &[]), response(200, &[]));
        bench.chain.on_request(&mut head, &mut bench.beside.turn(&facts));
        bench.chain.on_response(&mut answer, &bench.world.view(&head), &mut bench.beside.turn(&facts));
        bench.beside.notes.clear();
        !answer.fields.is_empty()
    };
    assert_eq!([told(), told(), told()], [false, false, true]);
}

#[test]
fn marks_are_made_by_requests_or_responses() {
    let filters = [
        used("track", json!({ "table": "abuse", "mark": "request" }), &[]),
        used("track", json!({ "table": "abuse", "mark": "response" }), &[]),
    ];
    let mut bench = Bench::new(table(&ALL, &["marks"]), &filters);
    bench.exchange("192.0.2.7", ended(200));
    assert_eq!(["marks", "marks_rate", "requests"].map(|reading| bench.get("192.0.2.7", reading)), [2, 2, 0]);
}

#[test]
fn a_rehearsal_counts_nothing() {
    let filters = [
        used("track", json!({ "table": "abuse" }), &[]),
        used("track", json!({ "table": "abuse", "mark": "request" }), &[]),
    ];
    let mut bench = Bench::new(table(&ALL, &[]), &filters);
    bench.beside.is_rehearsal = true;
    bench.exchange("192.0.2.7", ended(404));
    assert_eq!(bench.table.entries(), 0);
}

#[test]
fn a_table_that_is_missing_or_does_not_count_what_is_wanted_is_an_issue() {
    let told = |filter: FilterUse, tables: &[Arc<Table>]| {
        let issues = Chain::compile_with(&[filter], None, (tables, Maps::Known(&[]))).err().unwrap();
        issues.iter().map(ToString::to_string).collect::<String>()
    };
    let tables = [table(&["requests"], &[])];
    assert_eq!(
        told(used("track", json!({ "table": "abuse" }), &[]), &[]),
        "0/track/table: there is no table `abuse` (define it in `tables` at the top level)"
    );
    assert_eq!(
        told(used("track", json!({ "table": "abusee" }), &[]), &tables),
        "0/track/table: there is no table `abusee` (did you mean `abuse`?)"
    );
    assert_eq!(
        told(used("track", json!({ "table": "abuse", "mark": "response" }), &[]), &tables),
        "0/track/mark: the table `abuse` does not count `marks` (add `marks` to its `counters` or `rates`)"
    );
    assert_eq!(
        told(used("deny", json!({}), &[("requests", 1)]), &[]),
        "0/when/table/name: there is no table `abuse` (define it in `tables` at the top level)"
    );
    assert!(issue("track", json!({})).contains("missing field `table`"));
    assert!(issue("track", json!({ "table": "a", "mark": "both" })).contains("unknown variant `both`"));
}
