use serde_json::{Value, json};

use super::super::testing::{Beside, World, chain, issue, request, response};
use super::*;

/// The answer in place of one with this status and fault, to a request with these fields.
fn paged(
    filters: Value,
    failed: (u16, Option<Fault>, bool),
    target: &str,
    fields: &[(&str, &str)],
) -> Option<LocalResponse> {
    let world = World::new();
    let (facts, request, chain) = (world.facts(), request("GET", target, fields), chain(filters));
    let view = world.view(&request);
    let (status, fault, is_of_endpoint) = failed;
    let source = if is_of_endpoint { ResponseSource::Endpoint } else { ResponseSource::Local(fault) };
    let (view, head) = (ResponseView { source, ..view }, response(status, &[("retry-after", "1")]));
    match chain.answer(&mut 0, (&head, &view), &mut Beside::new().turn(&facts)) {
        Flow::Continue => None,
        Flow::Respond(local) => Some(*local),
        other => panic!("{other:?}"),
    }
}

fn text(answer: Option<LocalResponse>) -> String {
    String::from_utf8(answer.expect("a page").body).unwrap()
}

const FAULT: (u16, Option<Fault>, bool) = (502, Some(Fault::ConnectFailed), false);

#[test]
fn a_page_is_shown_for_its_statuses_and_faults_and_nothing_else() {
    let fits = |settings: Value, failed| {
        let mut settings = settings;
        settings["body"] = json!("page");
        paged(json!([{ "error_page": settings }]), failed, "/", &[]).is_some()
    };
    for (settings, wanted) in [
        (json!({}), true),
        (json!({ "status": 502 }), true),
        (json!({ "status": "5xx" }), true),
        (json!({ "status": [404, "500-503"] }), true),
        (json!({ "status": "4xx" }), false),
        (json!({ "faults": ["connect_failed"] }), true),
        (json!({ "faults": ["connect_timeout"] }), false),
        (json!({ "status": 503, "faults": ["connect_failed"] }), false),
    ] {
        assert_eq!(fits(settings.clone(), FAULT), wanted, "{settings}");
    }
    assert!(!fits(json!({ "faults": ["connect_failed"] }), (502, None, false)), "it was no fault");
    assert!(!fits(json!({}), (399, None, false)));
    assert!(!fits(json!({}), (502, None, true)), "endpoints' own pages stay");
    assert!(fits(json!({ "intercept": true }), (502, None, true)));
}

#[test]
fn values_are_made_harmless_and_other_braces_stand_for_themselves() {
    let page = |content_type: &str, body: &str| {
        let filters = json!([{ "error_page": { "body": body, "content_type": content_type } }]);
        text(paged(filters, FAULT, "/<b>?q=\"&'", &[("x-evil", "</script>\u{1}\\")]))
    };
    assert_eq!(
        page("text/html", "<p>{uri} {request_header:x-evil}"),
        "<p>/&lt;b&gt;?q=&quot;&amp;&#39; &lt;/script&gt; \\"
    );
    assert_eq!(page("application/problem+json", "{\"at\":\"{uri}\"}"), "{\"at\":\"/\\u003cb\\u003e?q=\\\"\\u0026'\"}");
    assert_eq!(page("text/plain", "{path} {request_header:x-evil}"), "/<b> </script> \\");
    let style = "body { color: red } a{b} {} {unknown} {UPPER} {status {status} {";
    assert_eq!(page("text/html", style), "body { color: red } a{b} {} {unknown} {UPPER} {status 502 {");
    let all = page("text/html", "{status} {reason} {fault} {request_id} {client_ip} {cluster}");
    assert_eq!(all, "502 Bad Gateway connect_failed id-1 192.0.2.7 api");
}

#[test]
fn the_content_type_that_the_client_likes_best_is_shown() {
    let filters = || {
        json!([
            { "error_page": { "body": "html" } },
            { "error_page": { "body": "json", "content_type": "application/json; charset=utf-8" } },
            { "error_page": { "body": "other html" } },
        ])
    };
    for (accept, wanted) in [
        ("application/json", "json"),
        ("APPLICATION/JSON", "json"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "html"),
        ("*/*", "html"),
        ("", "html"),
        ("text/*;q=0.2, application/*;q=0.3", "json"),
        ("text/html;q=0.1, application/json;q=0.101", "json"),
        ("application/json;q=0, */*", "html"),
        ("image/png", "html"),
        ("application/json;q=2, text/html;q=x", "html"),
    ] {
        assert_eq!(text(paged(filters(), FAULT, "/", &[("accept", accept)])), wanted, "{accept}");
    }
    assert_eq!(text(paged(filters(), FAULT, "/", &[])), "html");
}

#[test]
fn fields_stay_and_are_added_and_the_status_may_be_another() {
    let settings = json!({ "body": "b", "as": 200, "headers": { "x-a": "1", "Retry-After": "9" } });
    let answer = paged(json!([{ "error_page": settings }]), FAULT, "/", &[]).unwrap();
    assert_eq!(answer.status, 200);
    let fields: Vec<_> = answer.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    assert_eq!(fields, ["content-type: text/html; charset=utf-8", "Retry-After: 9", "x-a: 1"]);
}

#[test]
fn a_page_may_come_from_a_file() {
    let file = json!({ "name": "sorry.html", "text": "from {status}" });
    assert_eq!(text(paged(json!([{ "error_page": { "file": file } }]), FAULT, "/", &[])), "from 502");
}

#[test]
fn mistakes_are_told_with_their_place() {
    let page = |mut settings: Value| {
        settings["body"] = json!("b");
        settings
    };
    for (settings, told) in [
        (json!({}), ": there is no page (add `body` or `file`)"),
        (
            page(json!({ "file": { "name": "a", "text": "" } })),
            "file: `body` and `file` exclude each other (keep one of them)",
        ),
        (page(json!({ "status": "5x" })), "status: `5x` is not a status such as 404, 5xx or 500-599"),
        (page(json!({ "status": [404, 302] })), "status/1: `302` is no error: only statuses from 400 on have pages"),
        (
            page(json!({ "faults": ["conect_failed"] })),
            "faults/0: there is no fault `conect_failed` (did you mean `connect_failed`?)",
        ),
        (page(json!({ "faults": ["closed_in_head"] })), "faults/0: no response is possible after `closed_in_head`"),
        (page(json!({ "as": 304 })), "as: a response with status 304 has no body"),
        (page(json!({ "as": 99 })), "as: a status is between 200 and 599"),
        (
            page(json!({ "content_type": "html" })),
            "content_type: `html` is not a content type (write one such as `text/html; charset=utf-8`)",
        ),
        (
            page(json!({ "headers": { "connection": "close" } })),
            "headers/connection: `connection` is written by the proxy itself",
        ),
        (
            page(json!({ "headers": { "Content-Type": "a/b" } })),
            "headers/Content-Type: set the content type with `content_type`",
        ),
        (
            page(json!({ "headers": { "x": "a\nb" } })),
            "headers/x: the value of a header field cannot contain control characters",
        ),
        (json!({ "body": "{cookie}" }), "body: `{cookie}` needs a name (write {cookie:NAME})"),
        (json!({ "body": "{status}".repeat(65) }), "body: the page holds 65 variables, more than 64"),
        (json!({ "body": "x".repeat((1 << 20) + 1) }), "body: the page is larger than 1048576 bytes"),
    ] {
        assert_eq!(issue("error_page", settings), told);
    }
}
