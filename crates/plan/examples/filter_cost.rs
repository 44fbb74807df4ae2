//! What the steps of a route cost, in nanoseconds per exchange: `cargo run --release -p equipoise-plan --example
//! filter_cost`. Each chain runs on a request such as a browser sends. The figure of the row without filters is what
//! filling the head costs; subtract it from the others.

use std::hint::black_box;
use std::time::{Duration, Instant};

use model::fields::Span;
use model::filter::FilterUse;
use model::{Facts, Name, RequestHead, ResponseHead, Scheme, Version};
use plan::filter::{Chain, Flow, Notes, ResponseSource, ResponseView, Turn};
use serde_json::{Value, json};

const ROUNDS: u32 = 1_000_000;
const TARGET: &str = "/api/v1/cart/items?page=2&sort=price";
const FIELDS: &[(&str, &str)] = &[
    ("host", "shop.example.com"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("referer", "https://shop.example.com/cart"),
    ("origin", "https://shop.example.com"),
    ("cookie", "session=0123456789abcdef; theme=dark"),
    ("x-shop", "0"),
    ("cache-control", "no-cache"),
];

fn main() {
    let set = |name: &str, value: &str| json!({ "set_request_header": { name: value } });
    let literals = ["a", "b", "c", "d", "shop"].map(|name| set(&format!("x-{name}"), "value"));
    let variables = [
        set("x-real-ip", "{client_ip}"),
        set("x-host", "{host}"),
        set("x-uri", "{uri}"),
        set("x-session", "{cookie:session}"),
        set("x-agent", "{request_header:user-agent} via {listener}"),
    ];
    let reply =
        ["a", "b", "c", "d", "e"].map(|name| json!({ "set_response_header": { format!("x-{name}"): "value" } }));
    let path = |path: Value| json!([{ "rewrite": { "path": path } }]);
    let origins = json!([{ "cors": { "allow_origins": ["https://*.example.com"], "allow_credentials": true } }]);
    measure("no filter", json!([]));
    measure("5 fields of the request, plain text", json!(literals));
    measure("5 fields of the request, variables", json!(variables));
    measure("5 fields of the response, plain text", json!(reply));
    measure("path prefix", path(json!({ "prefix": { "from": "/api", "to": "/" } })));
    measure("path expression", path(json!({ "regex": { "pattern": "^/api/v([0-9]+)", "replacement": "/$1" } })));
    let query = json!({ "remove": ["utm_*"], "rename": { "page": "p" }, "set": { "client": "{client_ip}" } });
    measure("query", json!([{ "rewrite": { "query": query } }]));
    measure("names of fields", json!([{ "header_names": {} }]));
    measure("fields by a part of their names", json!([{ "remove_request_header": ["x-internal-*"] }]));
    measure("cors", origins);
    let limit = |more: Value| {
        let mut settings = json!({ "rate": "1000000000/s", "burst": 1_000_000 });
        settings.as_object_mut().expect("a mapping").extend(more.as_object().expect("a mapping").clone());
        json!([{ "rate_limit": settings }])
    };
    measure("rate limit by client", limit(json!({})));
    measure("rate limit by a header field", limit(json!({ "key": { "header": "x-shop" } })));
    measure("rate limit, told in the response", limit(json!({ "headers": true })));
    measure("concurrency limit by client", json!([{ "concurrency_limit": { "max": 1_000_000 } }]));
}

fn measure(title: &str, filters: Value) {
    let one = |filter: &Value| {
        let (name, settings) = filter.as_object().and_then(|map| map.iter().next()).expect("a filter");
        FilterUse { name: name.clone(), settings: settings.clone(), when: None, calls: Vec::new() }
    };
    let uses: Vec<_> = filters.as_array().expect("a list").iter().map(one).collect();
    let chain = Chain::compile(&uses, None).expect("good settings");
    let (listener, mut request, mut response) = (Name::from("web"), RequestHead::default(), ResponseHead::default());
    let facts = facts(&listener);
    let (mut scratch, mut notes, mut chance) = (Vec::new(), Notes::default(), || 7);
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        fill(&mut request);
        response.clear();
        notes.clear();
        let mut turn = Turn {
            facts: &facts,
            now: begin,
            wall_clock: &Duration::default,
            chance: &mut chance,
            notes: &mut notes,
            scratch: &mut scratch,
            is_rehearsal: false,
        };
        let flow = chain.on_request(black_box(&mut request), &mut turn);
        assert!(matches!(flow, Flow::Continue));
        let view = ResponseView {
            request: &request,
            cluster: None,
            endpoint: None,
            source: ResponseSource::Endpoint,
            elapsed: <_>::default(),
        };
        chain.on_response(black_box(&mut response), &view, &mut turn);
    }
    println!("{title:40} {:6.0} ns", begin.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
}

fn facts(listener: &Name) -> Facts<'_> {
    let address = |text: &str| text.parse().expect("an address");
    let (peer, local) = (address("192.0.2.7:40000"), address("127.0.0.1:8080"));
    Facts {
        peer,
        client: peer.ip(),
        local,
        scheme: Scheme::Http,
        tls: None,
        sender: None,
        listener,
        request_id: "",
        user: None,
    }
}

fn fill(head: &mut RequestHead) {
    head.clear();
    let mut load = |text: &str| {
        let start = head.fields.load(text.as_bytes());
        Span::new(start, start + text.len())
    };
    let (method, target) = (load("GET"), load(TARGET));
    head.set_line(method, target, Version::Http11);
    for (name, value) in FIELDS {
        let start = head.fields.load(name.as_bytes());
        let middle = head.fields.load(value.as_bytes());
        head.fields.push_span(Span::new(start, middle), Span::new(middle, middle + value.len()));
    }
}
