use model::RequestHead;
use serde_json::{Value, json};

use super::super::Chain;
use super::super::testing::{answered, chain, issue, listed, passed, request, response, returned};

fn cors(settings: Value) -> Chain {
    chain(json!([{ "cors": settings }]))
}

fn of_origin(origin: &str) -> RequestHead {
    request("GET", "/", &[("origin", origin)])
}

/// The fields of a plain answer to a request from `origin`.
fn answer(chain: &Chain, origin: &str) -> String {
    let request = passed(chain, of_origin(origin));
    listed(&returned(chain, &request, response(200, &[])).fields)
}

/// Status and fields of the answer to a preflight, made as the data plane makes it.
fn preflight(chain: &Chain, origin: &str) -> (u16, String) {
    let fields =
        [("Origin", origin), ("Access-Control-Request-Method", "PUT"), ("access-control-request-headers", "x-a")];
    let mut request = request("OPTIONS", "/", &fields);
    let local = answered(chain, &mut request);
    assert!(local.body.is_empty());
    let head = response(local.status, &[]);
    (local.status, listed(&returned(chain, &request, head).fields))
}

fn full() -> Chain {
    cors(json!({
        "allow_origins": ["https://shop.example.com"],
        "allow_methods": ["PUT", "DELETE"],
        "allow_headers": ["content-type", "Authorization"],
        "expose_headers": ["x-total"],
        "allow_credentials": true,
        "max_age": "10m",
    }))
}

#[test]
fn a_preflight_of_an_allowed_origin_is_answered_in_full() {
    let expected = "vary: Origin|access-control-allow-origin: https://shop.example.com\
        |access-control-allow-credentials: true|access-control-allow-methods: PUT, DELETE\
        |access-control-allow-headers: content-type, Authorization|access-control-max-age: 600";
    assert_eq!(preflight(&full(), "https://shop.example.com"), (204, expected.to_owned()));
}

#[test]
fn a_preflight_of_another_origin_is_answered_without_leave() {
    assert_eq!(preflight(&full(), "https://evil.example"), (204, "vary: Origin".to_owned()));
}

#[test]
fn a_response_to_an_allowed_origin_says_so_and_one_to_another_does_not() {
    let expected = "vary: Origin|access-control-allow-origin: https://shop.example.com\
        |access-control-allow-credentials: true|access-control-expose-headers: x-total";
    assert_eq!(answer(&full(), "https://shop.example.com"), expected);
    assert_eq!(answer(&full(), "https://evil.example"), "vary: Origin");
}

#[test]
fn a_response_to_no_origin_varies_too() {
    let plain = request("GET", "/", &[]);
    assert_eq!(listed(&returned(&full(), &plain, response(200, &[])).fields), "vary: Origin");
}

#[test]
fn an_error_answer_of_the_proxy_carries_leave_as_well() {
    let head = returned(&full(), &of_origin("https://shop.example.com"), response(503, &[]));
    assert!(listed(&head.fields).contains("access-control-allow-origin: https://shop.example.com"));
}

#[test]
fn options_that_are_no_preflight_pass() {
    let with_method = ("access-control-request-method", "PUT");
    for fields in [&[][..], &[("origin", "https://shop.example.com")], &[with_method]] {
        passed(&full(), request("OPTIONS", "/", fields));
    }
    passed(&full(), request("GET", "/", &[("origin", "https://shop.example.com"), with_method]));
}

#[test]
fn every_origin_is_allowed_by_a_star_and_the_answer_does_not_vary() {
    let chain = cors(json!({ "allow_origins": ["*"], "expose_headers": ["*"], "allow_methods": ["*"] }));
    let expected = "access-control-allow-origin: *|access-control-expose-headers: *";
    assert_eq!(answer(&chain, "https://any.example"), expected);
    assert_eq!(answer(&chain, "null"), expected);
    let plain = request("GET", "/", &[]);
    assert_eq!(listed(&returned(&chain, &plain, response(200, &[])).fields), expected);
    assert_eq!(
        preflight(&chain, "https://any.example").1,
        "access-control-allow-origin: *|access-control-allow-methods: *"
    );
}

#[test]
fn origins_are_compared_as_wholes() {
    let chain = cors(json!({ "allow_origins": [
        "HTTPS://Shop.example.com", "http://[::1]:8080", "https://*.partner.example", "https://*.dev.example:8443",
        "capacitor://localhost", { "regex": "https://app-[0-9]+\\.example\\.net|https://x\\.example" }
    ] }));
    let allowed = |origin: &str| answer(&chain, origin).contains("access-control-allow-origin");
    for good in [
        "https://shop.example.com",
        "http://[::1]:8080",
        "https://a.partner.example",
        "https://a-1.b.partner.example",
        "https://a.dev.example:8443",
        "capacitor://localhost",
        "https://app-12.example.net",
        "https://x.example",
    ] {
        assert!(allowed(good), "{good}");
    }
    for bad in [
        "",
        "null",
        "*",
        "http://shop.example.com",
        "https://shop.example.com:8443",
        "https://shop.example.com.evil.example",
        "https://evil.example/https://shop.example.com",
        "https://partner.example",
        "https://.partner.example",
        "https://evilpartner.example",
        "https://a..partner.example",
        "https://evil.example/.partner.example",
        "https://evil.example:1.partner.example",
        "https://user@evil.example?.partner.example",
        "https://a.partner.example:8443",
        "http://a.partner.example",
        "https://a.dev.example",
        "https://app-1.example.net.evil.example",
        "https://evil.example/?https://x.example",
        "https://app-1xexample.net",
        "https://x.example\nhttps://evil.example",
    ] {
        assert!(!allowed(bad), "{bad}");
    }
}

#[test]
fn two_origins_in_one_request_are_none() {
    let shop = ("origin", "https://shop.example.com");
    let request = request("GET", "/", &[shop, shop]);
    assert_eq!(listed(&returned(&full(), &request, response(200, &[])).fields), "vary: Origin");
}

#[test]
fn null_is_allowed_by_name_only() {
    let named = cors(json!({ "allow_origins": ["null"] }));
    assert_eq!(answer(&named, "null"), "vary: Origin|access-control-allow-origin: null");
    let pattern = cors(json!({ "allow_origins": [{ "regex": ".*" }] }));
    assert_eq!(answer(&pattern, "null"), "vary: Origin");
}

#[test]
fn what_the_endpoint_says_about_origins_is_replaced() {
    let sent = || {
        response(
            200,
            &[
                ("Access-Control-Allow-Origin", "*"),
                ("x-a", "1"),
                ("access-control-allow-credentials", "true"),
                ("access-control-expose-headers", "x-secret"),
            ],
        )
    };
    let of = |origin: &str| listed(&returned(&full(), &of_origin(origin), sent()).fields);
    assert_eq!(of("https://evil.example"), "x-a: 1|vary: Origin");
    assert_eq!(of("https://shop.example.com").matches("access-control-allow-origin").count(), 1);
    assert!(!of("https://shop.example.com").contains("x-secret"));
}

#[test]
fn vary_is_added_once_and_beside_what_is_there() {
    let of =
        |vary: &str| listed(&returned(&full(), &request("GET", "/", &[]), response(200, &[("Vary", vary)])).fields);
    assert_eq!(of("Accept-Encoding"), "Vary: Accept-Encoding|vary: Origin");
    assert_eq!(of("accept, ORIGIN"), "Vary: accept, ORIGIN");
    assert_eq!(of("*"), "Vary: *");
    assert_eq!(of("x-origin"), "Vary: x-origin|vary: Origin");
}

#[test]
fn mistakes_are_found_when_the_configuration_is_checked() {
    let origin = |origin: &str| json!({ "allow_origins": ["https://a.example", origin] });
    for (settings, start) in [
        (json!({}), ": missing field `allow_origins`"),
        (json!({ "allow_origins": [] }), "allow_origins: the list is empty"),
        (json!({ "allow_origins": "*" }), ": invalid type: string"),
        (json!({ "allow_origins": [1] }), ": data did not match"),
        (json!({ "allow_origins": [{ "regx": "a" }] }), ": data did not match"),
        (json!({ "origins": ["*"] }), ": unknown field `origins`"),
        (json!({ "allow_origins": ["*"], "allow_credentials": true }), "allow_origins/0: `*` cannot stand with"),
        (json!({ "allow_origins": ["*"], "allow_credentials": "yes" }), ": invalid type: string"),
        (origin("*"), "allow_origins/1: `*` allows every origin already"),
        (origin("shop.example"), "allow_origins/1: `shop.example` is not an origin (write `https://shop.example`)"),
        (
            origin("https://b.example/"),
            "allow_origins/1: `https://b.example/` is not an origin (an origin has no path: write `https://b.example`)",
        ),
        (origin("https://b.example:443"), "allow_origins/1: `https://b.example:443` is not an origin (browsers leave"),
        (origin("https://*"), "allow_origins/1: `https://*` is not an origin"),
        (origin("https://a*.example"), "allow_origins/1: `https://a*.example` is not an origin"),
        (origin("https://*."), "allow_origins/1: `https://*.` is not an origin"),
        (origin("https://x\r\ny"), "allow_origins/1: `https://x\r\ny` is not an origin"),
        (origin("://x"), "allow_origins/1: `://x` is not an origin"),
        (json!({ "allow_origins": [{ "regex": "(" }] }), "allow_origins/0/regex: `(` is not a regular expression"),
        (json!({ "allow_origins": [{ "regex": "a)|(?:b" }] }), "allow_origins/0/regex: `a)|(?:b` is not a regular"),
        (json!({ "allow_origins": ["null"], "allow_methods": ["GET", "P T"] }), "allow_methods/1: `P T` is not a name"),
        (json!({ "allow_origins": ["null"], "allow_headers": ["a\r\nb: c"] }), "allow_headers/0: "),
        (
            json!({ "allow_origins": ["null"], "expose_headers": ["*"], "allow_credentials": true }),
            "expose_headers/0: `*` does not stand for all",
        ),
        (json!({ "allow_origins": ["null"], "max_age": "1500ms" }), "max_age: whole seconds are needed here"),
        (json!({ "allow_origins": ["null"], "max_age": "ten minutes" }), ": `ten minutes` is not a duration"),
        (json!({ "allow_origins": ["null"], "max_age": 600 }), ": invalid type: integer"),
    ] {
        let text = issue("cors", settings);
        assert!(text.starts_with(start), "{text}");
    }
}
