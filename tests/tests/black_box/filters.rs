//! Filters, through the real program.

use super::harness::origin::ok;
use super::harness::{Message, Origin, Product, Setup, http2};

/// An origin whose response carries some fields, and a product whose route has these filters.
fn start(filters: &str) -> (Origin, Product) {
    let origin = Origin::answering(|_| {
        b"HTTP/1.1 200 OK\r\nX-Keep: 1\r\nServer: origin/1.2\r\nX-Many: a\r\nX-Many: b\r\nContent-Length: 2\r\n\r\nok"
            .to_vec()
    });
    let product = Setup::to(&origin).route(format!("filters: {filters}")).start();
    (origin, product)
}

fn exchange(started: &(Origin, Product), line: &str, fields: &str) -> (Message, Message) {
    let answer = started.1.connect().ask(format!("{line} HTTP/1.1\r\nHost: test:1\r\n{fields}\r\n"));
    (started.0.requests().pop().expect("it was passed on"), answer)
}

#[test]
fn request_fields_are_set_added_and_removed_in_order() {
    let started = start(
        "[{ set_request_header: { x-set: new, x-where: \"{client_ip} {host} {path} {request_header:x-in}\" } }, \
           { add_request_header: { x-many: c } }, { remove_request_header: [x-gone, X-Also] }, \
           { set_request_header: { x-order: \"{request_header:x-set}\" } }]",
    );
    let sent = "X-Set: old\r\nx-set: older\r\nX-Many: a\r\nX-Gone: 1\r\nx-ALSO: 1\r\nX-In: in\r\n";
    let (request, _) = exchange(&started, "GET /p?q=1", sent);
    assert_eq!(request.field("x-set"), Some("new"));
    assert_eq!(request.field("x-where"), Some("127.0.0.1 test /p in"));
    assert_eq!(request.all("x-many"), ["a", "c"]);
    assert!(request.all("x-gone").is_empty() && request.all("x-also").is_empty());
    assert_eq!(request.field("x-order"), Some("new"), "a filter sees what those before it did");
}

#[test]
fn what_filters_decide_comes_in_no_other_spelling_and_behind_no_body() {
    let started = start("[{ set_request_header: { x-user: ann } }, { remove_request_header: [x-role] }]");
    let sent = "X-User: root\r\nX_User: root\r\nx_user: root\r\nx-role: admin\r\nX_Role: admin\r\nX-Users: 2\r\n\
                X_Request_Id: forged\r\n";
    let alike = |seen: &[(String, String)], name: &str| {
        let same = |pair: &&(String, String)| pair.0.to_lowercase().replace('_', "-") == name;
        seen.iter().filter(same).map(|pair| pair.1.clone()).collect::<Vec<_>>()
    };
    let (request, _) = exchange(&started, "GET /", sent);
    assert_eq!(alike(&request.fields, "x-user"), ["ann"]);
    assert_eq!((alike(&request.fields, "x-role").len(), alike(&request.fields, "x-users").len()), (0, 1));
    let ids = alike(&request.fields, "x-request-id");
    assert!(ids.len() == 1 && ids[0] != "forged", "{ids:?}");
    // By HTTP/1.1.
    let chunks = format!("Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n{sent}X-Checksum: 1\r\n");
    let (request, answer) = exchange(&started, "POST /", &chunks);
    assert_eq!((answer.text(), request.text()), ("ok".into(), "hi".into()));
    let kept: Vec<&str> = request.trailers.iter().map(|pair| pair.0.as_str()).collect();
    assert_eq!(kept, ["X-Users", "X-Checksum"]);
    // By HTTP/2.
    let mut client = http2::Client::connect(started.1.web());
    let mut stream = client.open(http2::request("POST", "/"), false);
    client.send(&mut stream, b"hi", false);
    let mut trailers = http::HeaderMap::new();
    for name in ["x-user", "x_user", "x_role", "x-checksum"] {
        trailers.append(name, "1".parse().expect("a value"));
    }
    client.send_trailers(&mut stream, trailers);
    assert_eq!(client.answer(stream).text(), "ok");
    let request = started.0.requests().pop().expect("it was passed on");
    assert_eq!(request.trailers, [("x-checksum".to_owned(), "1".to_owned())]);
}

#[test]
fn response_fields_are_set_added_and_removed_also_in_our_own_answers() {
    let filters = "[{ set_response_header: { x-status: \"{status} {cluster}\", server: none } }, \
                    { add_response_header: { x-many: c } }, { remove_response_header: [x-keep] }]";
    let started = start(filters);
    let (_, answer) = exchange(&started, "GET /", "");
    assert_eq!(answer.field("x-status"), Some("200 site"));
    assert_eq!((answer.field("server"), answer.field("x-keep")), (Some("none"), None));
    assert_eq!(answer.all("x-many"), ["a", "b", "c"]);
    assert_eq!(answer.text(), "ok");
    let refused = Setup::to_addresses(&[super::harness::net::refusing()]).route(format!("filters: {filters}")).start();
    let answer = refused.get("/");
    assert_eq!((answer.status(), answer.all("x-many")), (502, vec!["c"]));
}

#[test]
fn a_client_cannot_smuggle_a_line_through_a_template() {
    let started = start(
        "[{ set_request_header: { x-query: \"{query_param:q}\", x-path: \"{path}\" } }, \
           { set_response_header: { x-echo: \"{query_param:q} {request_header:x-in}\" } }]",
    );
    let (request, answer) = exchange(&started, "GET /%0d%0aX-Evil:1?q=%0d%0aX-Evil:%201", "X-In: a\tb\r\n");
    assert!(request.all("x-evil").is_empty() && answer.all("x-evil").is_empty());
    assert!(!request.head_text().contains("\nX-Evil") && !answer.head_text().contains("\nX-Evil"));
    assert_eq!(request.field("x-query"), Some("%0d%0aX-Evil:%201"), "as sent, percent-encoding kept");
}

#[test]
fn filters_cannot_break_the_framing_of_a_message() {
    // Whether such a filter is refused by `check` or has no effect: no message may come out with two lengths.
    let configuration = |origin: &Origin, filter: &str| Setup::to(origin).route(format!("filters: [{filter}]")).text();
    for filter in [
        "{ set_request_header: { content-length: \"1\" } }",
        "{ set_request_header: { transfer-encoding: chunked } }",
        "{ remove_request_header: [content-length] }",
        "{ remove_request_header: [host] }",
        "{ add_request_header: { host: evil } }",
        "{ set_response_header: { content-length: \"1\" } }",
        "{ add_response_header: { transfer-encoding: chunked } }",
        "{ set_response_header: { connection: upgrade } }",
    ] {
        let origin = Origin::answering(|request| ok(&request.text()));
        let text = configuration(&origin, filter);
        let folder = super::harness::product::folder();
        std::fs::write(folder.path().join("check.yaml"), text.replace("DIR", "/tmp")).expect("our folder");
        let checked = super::harness::product::command_in(folder.path(), &["check", "-c", "check.yaml"]);
        if !checked.status.success() {
            continue;
        }
        let product = Product::start(&text);
        let mut peer = product.connect();
        for _ in 0..2 {
            let answer = peer.ask("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello");
            assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"), "{filter}");
        }
        for request in origin.requests() {
            assert_eq!((request.text().as_str(), request.all("host").len()), ("hello", 1), "{filter}");
        }
    }
}

#[test]
fn a_path_is_rewritten_and_the_query_kept() {
    for (rewrite, line, wanted) in [
        ("path: { full: /new }", "GET /old/x?q=1", "/new?q=1"),
        ("path: { full: \"/u/{query_param:id}\" }", "GET /old?id=7", "/u/7?id=7"),
        ("path: { prefix: { from: /api/v1, to: / } }", "GET /api/v1/users?x", "/users?x"),
        ("path: { prefix: { from: /api/v1, to: / } }", "GET /api/v1", "/"),
        ("path: { prefix: { from: /a, to: /b/c } }", "GET /a/x", "/b/c/x"),
        ("path: { prefix: { from: /a, to: /b } }", "GET /ax", "/ax"),
        ("path: { prefix: { from: /a, to: / } }", "GET /a//evil.example/x", "/evil.example/x"),
        ("path: { regex: { pattern: \"^/([a-z]+)/([0-9]+)$\", replacement: \"/$2/$1\" } }", "GET /ab/12?q", "/12/ab?q"),
        ("path: { regex: { pattern: \"^/([a-z]+)/([0-9]+)$\", replacement: \"/$2/$1\" } }", "GET /ab/x", "/ab/x"),
    ] {
        let started = start(&format!("[{{ rewrite: {{ {rewrite} }} }}]"));
        let (request, _) = exchange(&started, line, "");
        assert_eq!(request.target(), wanted, "{rewrite}");
        let record = started.1.record("the exchange", |record| record["status"] == 200);
        assert!(record["path"].is_string());
    }
}

#[test]
fn a_host_is_rewritten_and_a_bad_one_refused() {
    let started = start("[{ rewrite: { host: \"{query_param:tenant}.internal.example\" } }]");
    let (request, _) = exchange(&started, "GET /?tenant=red", "");
    assert_eq!(request.field("host"), Some("red.internal.example"));
    assert_eq!(request.field("x-forwarded-host"), Some("test:1"), "endpoints still learn what was asked for");
    for evil in ["a%0d%0aX:%201", "a/b", "user@", ""] {
        let answer = started.1.connect().ask(format!("GET /?tenant={evil} HTTP/1.1\r\nHost: test\r\n\r\n"));
        if !evil.is_empty() {
            assert_eq!(answer.status(), 400, "{evil}");
        }
    }
    let record = started.1.flagged("PF");
    assert_eq!((record["fault"].as_str(), record["status"].as_u64()), (Some("refused_by_filter"), Some(400)));
}

#[test]
fn the_log_tells_what_the_client_asked_for_not_what_filters_made_of_it() {
    let started = start("[{ rewrite: { host: inside.example, path: { prefix: { from: /api, to: / } } } }]");
    let (request, _) = exchange(&started, "GET /api/users?id=1", "");
    assert_eq!((request.target(), request.field("host")), ("/users?id=1", Some("inside.example")));
    let record = started.1.record("the exchange", |record| record["status"] == 200);
    assert_eq!((&record["path"], &record["host"]), (&"/api/users".into(), &"test".into()), "{record}");
}

const CORS: &str = "[{ cors: { allow_origins: [\"https://shop.example\", \"https://*.partner.example\"], \
                    allow_methods: [PUT], allow_headers: [x-token], expose_headers: [x-keep], \
                    allow_credentials: true, max_age: 10m } }]";

#[test]
fn a_preflight_is_answered_here() {
    let (origin, product) = start(CORS);
    let answer = product.connect().ask(
        "OPTIONS /x HTTP/1.1\r\nHost: test\r\nOrigin: https://a.partner.example\r\n\
         Access-Control-Request-Method: PUT\r\nAccess-Control-Request-Headers: x-token\r\n\r\n",
    );
    assert_eq!(answer.status(), 204);
    assert_eq!(answer.field("access-control-allow-origin"), Some("https://a.partner.example"));
    assert_eq!(answer.field("access-control-allow-credentials"), Some("true"));
    assert_eq!(answer.field("access-control-max-age"), Some("600"));
    assert!(answer.field("access-control-allow-methods").is_some_and(|list| list.contains("PUT")));
    assert!(answer.field("access-control-allow-headers").is_some_and(|list| list.contains("x-token")));
    assert!(answer.field("vary").is_some_and(|list| list.to_lowercase().contains("origin")));
    assert_eq!(origin.connections(), 0);
}

#[test]
fn an_origin_that_is_not_allowed_gets_no_permission() {
    let started = start(CORS);
    for origin in
        ["https://evil.example", "https://shop.example.evil", "http://shop.example", "https://partner.example", "null"]
    {
        let (_, answer) = exchange(&started, "GET /", &format!("Origin: {origin}\r\n"));
        assert_eq!(answer.text(), "ok");
        assert!(answer.all("access-control-allow-origin").is_empty(), "{origin}");
        assert!(answer.field("vary").is_some_and(|list| list.to_lowercase().contains("origin")));
    }
    let (_, answer) = exchange(&started, "GET /", "Origin: https://shop.example\r\n");
    assert_eq!(answer.field("access-control-allow-origin"), Some("https://shop.example"));
    assert_eq!(answer.field("access-control-expose-headers"), Some("x-keep"));
    let (_, plain) = exchange(&started, "OPTIONS /", "");
    assert_eq!(plain.text(), "ok", "OPTIONS without a preflight's fields goes on");
}

#[test]
fn a_head_that_filters_make_longer_leaves_the_body_behind_it_whole_in_both_directions() {
    let body: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    let wanted = body.clone();
    let origin = Origin::answering(move |request| {
        let same = request.body.is_empty() || request.body == wanted;
        let head = format!("HTTP/1.1 200 OK\r\nX-Same: {same}\r\nContent-Length: {}\r\n\r\n", wanted.len());
        [head.as_bytes(), &wanted].concat()
    });
    let long = "v".repeat(3000);
    let filters = format!(
        "filters: [{{ set_response_header: {{ x-long: {long} }} }}, {{ set_request_header: {{ x-long: {long} }} }}]"
    );
    let product = Setup::to(&origin).route(filters).start();
    let upload = format!("PUT / HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len());
    let upload = [upload.as_bytes(), &body].concat();
    let mut kept = product.connect();
    for _ in 0..20 {
        for answer in [kept.get("/"), kept.ask(&upload), product.get("/"), product.connect().ask(&upload)] {
            assert_eq!((answer.status(), answer.field("x-same")), (200, Some("true")));
            assert_eq!(answer.field("x-long"), Some(long.as_str()));
            assert!(answer.body == body, "the response came through changed");
        }
    }
    let requests = origin.requests();
    assert_eq!(requests.len(), 80);
    assert!(requests.iter().all(|request| request.field("x-long") == Some(long.as_str())));
}
