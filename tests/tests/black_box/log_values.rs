//! `values` of access logs: what expressions say of an exchange that is over, numbers of tables included.

use serde_json::{Value, json};

use super::harness::http2::{Client, request};
use super::harness::product::{command_in, folder};
use super::harness::{Origin, Product, Setup, eventually};

const TABLE: &str =
    "tables: { clients: { key: client, counters: [requests, errors], rates: { requests: 1h, errors: 1h } } }";

fn counted(origin: &Origin, logs: &str) -> Product {
    let setup = Setup::to(origin)
        .top(TABLE)
        .listener_more("clear: { bind: \"127.0.0.1:0\" }")
        .route("filters: [{ track: { table: clients } }]");
    Product::start_in(folder(), &setup.text().replacen("access_logs: [", &format!("access_logs: [{logs}, "), 1), 2)
}

fn read(product: &Product, log: &str) -> String {
    std::fs::read_to_string(product.folder().join(log)).unwrap_or_default()
}

#[test]
fn lines_hold_the_rate_of_the_client_over_http1_and_http2() {
    let origin = Origin::saying("in");
    let values = "values: { rate: tables.clients.requests_rate, errors: tables.clients.errors_rate, \
                  user: 'request.headers[\"x-user\"]', slow: 'request.duration > duration(\"1h\")' }";
    let product = counted(
        &origin,
        &format!(
            "{{ path: \"DIR/line.log\", line: \"{{version}} rate={{value:rate}} errors={{value:errors}} {{value:user}}\", {values} }}, \
             {{ path: \"DIR/values.json\", format: json, {values} }}, {{ path: \"DIR/plain.json\", format: json }}"
        ),
    );
    let mut first = product.connect();
    let mut wanted = String::new();
    for count in 1..=2 {
        assert_eq!(first.get("/").status(), 200);
        wanted += &format!("HTTP/1.1 rate={count} errors=0 -\n");
        eventually("the line is written", || read(&product, "line.log") == wanted);
    }
    let mut second = Client::connect(product.address("clear"));
    assert_eq!(second.ask(request("GET", "/"), b"").status, 200);
    wanted += "HTTP/2 rate=3 errors=0 -\n";
    eventually("the line is written", || read(&product, "line.log") == wanted);
    eventually("the records are written", || {
        ["values.json", "plain.json"].iter().all(|log| read(&product, log).lines().count() == 3)
    });
    let last = |log: &str| serde_json::from_str::<Value>(read(&product, log).lines().last().unwrap()).unwrap();
    let values = json!({ "rate": 3, "errors": 0, "user": null, "slow": "false" });
    assert_eq!((&last("values.json")["values"], last("plain.json").get("values")), (&values, None));
    // The plan that follows reads the same tables.
    product.reload_unchanged();
    assert_eq!(first.get("/").status(), 200);
    wanted += "HTTP/1.1 rate=4 errors=0 -\n";
    eventually("the line is written", || read(&product, "line.log") == wanted);
}

#[test]
fn no_byte_of_a_value_ends_its_line_or_its_quotes() {
    let origin = Origin::saying("in");
    let q = "request.query[\"q\"]";
    let values = format!("values: {{ q: '{q}', long: '{q} + {q} + {q} + {q} + {q} + {q}' }}");
    let product = counted(
        &origin,
        &format!(
            "{{ path: \"DIR/line.log\", line: '\"{{value:q}}\" {{status}} {{value:long}}', {values} }}, {{ path: \"DIR/values.json\", format: json, {values} }}"
        ),
    );
    let mut peer = product.connect();
    assert_eq!(peer.get("/?q=%22%20500%0d%0a%5c%1b%00%ff%7d").status(), 200);
    let long = format!("/?q={}", "%0a".repeat(2_000));
    assert_eq!(peer.get(&long).status(), 200);
    eventually("both are written", || {
        ["line.log", "values.json"].iter().all(|log| read(&product, log).lines().count() == 2)
    });
    let line = read(&product, "line.log");
    let safe = r#""\x22 500\x0D\x0A\x5C\x1B\x00\xFF}" 200 "#;
    assert!(line.starts_with(safe) && line.ends_with("\\x0A...\n"), "{line}");
    assert!(line.len() < 4 * (2_000 + 8_192) + 1_000, "a value is cut: {}", line.len());
    let json = read(&product, "values.json");
    for record in json.lines() {
        assert!(serde_json::from_str::<Value>(record).unwrap()["values"]["q"].is_string(), "{record}");
    }
}

#[test]
fn a_mistake_in_a_value_names_the_log_the_value_and_the_character() {
    let check = |log: &str| {
        let origin = Origin::saying("in");
        let text = Setup::to(&origin).top(TABLE).text().replace("DIR", "/tmp");
        let text = text.replacen("access_logs: [", &format!("access_logs: [{{ stdout: true, {log} }}, "), 1);
        let folder = folder();
        std::fs::write(folder.path().join("check.yaml"), text).expect("our folder");
        command_in(folder.path(), &["check", "-c", "check.yaml"]).stderr
    };
    for (log, wanted) in [
        ("line: '{value:raet}', values: { rate: tables.clients.requests_rate }", "did you mean `{value:rate}`?"),
        ("line: '{rate}', values: { rate: tables.clients.requests_rate }", "write `{value:rate}`"),
        ("line: '{value:rate}'", "this log has no `values`"),
        ("format: json, values: { rate: tables.client.requests_rate }", "check.yaml:12:68: there is no table `client`"),
        ("format: json, values: { rate: tables.client.requests_rate }", "did you mean `clients`?"),
        ("format: json, values: { rate: '1 +' }", "check.yaml:12:"),
        ("format: json, values: { 'a b': '1' }", "`a b` cannot be the name of a value"),
        ("format: combined, values: { a: '1' }", "`values` has no effect with a format that is fixed"),
    ] {
        let told = check(log);
        assert!(told.contains(wanted), "{log}: {told}");
    }
    let many: Vec<String> = (0..65).map(|number| format!("v{number}: '1'")).collect();
    let told = check(&format!("format: json, values: {{ {} }}", many.join(", ")));
    assert!(told.contains("65 values are too many"), "{told}");
}
