//! Nested routes, and filters of a listener, on the real program.

use super::admin_api::{ANY, YAML, done, written};
use super::harness::http2::{Client, request};
use super::harness::origin::ok;
use super::harness::{Origin, Peer, Setup, http3};
use super::http3::site;

/// An endpoint that answers with its name and what filters have set.
fn endpoint(name: &'static str) -> Origin {
    Origin::answering(move |request| {
        let fields = ["x-listener", "x-shop", "x-carts"].map(|name| request.all(name).join("+"));
        ok(&format!("{name} {}", fields.join(",")))
    })
}

fn setup(site: &Origin, carts: &Origin) -> Setup {
    let shop = "{ name: shop, match: { path: { prefix: /shop } }, filters: [{ set_request_header: { x-shop: s } }], cluster: site, routes: [\
        { name: carts, match: { path: { prefix: /shop/carts } }, filters: [{ add_request_header: { x-shop: t, x-carts: c } }], cluster: carts, routes: [\
            { name: posts, match: { method: POST }, respond: { status: 405, body: none } }] }, \
        { name: gone, match: { path: { exact: /shop/gone } }, respond: { status: 410, body: gone } }] }";
    Setup::to(site).route_before(shop).cluster_more(format!("carts: {{ endpoints: [\"{}\"] }}", carts.address()))
}

#[test]
fn nested_routes_inherit_over_every_version_and_filters_of_a_listener_are_its_own() {
    let (shop, carts) = (endpoint("site"), endpoint("carts"));
    let clear = "clear: { bind: \"127.0.0.1:0\", filters: [{ set_request_header: { x-listener: clear } }, \
        { set_response_header: { x-seen: clear } }] }";
    let site = site(setup(&shop, &carts).listener_more(clear), 2);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    for (method, path, status, text) in [
        ("GET", "/shop/a", 200, "site L,s,"),
        ("GET", "/shop/carts/1", 200, "carts L,s+t,c"),
        ("POST", "/shop/carts/1", 405, "none"),
        ("POST", "/shop/a", 200, "site L,s,"),
        ("GET", "/shop/gone", 410, "gone"),
        ("GET", "/else", 200, "site L,,"),
    ] {
        let on_clear = text.replace('L', "clear");
        let forged =
            format!("{method} {path} HTTP/1.1\r\nHost: test\r\nX-Listener: forged\r\nContent-Length: 0\r\n\r\n");
        let answer = first.ask(forged);
        assert_eq!((answer.status(), answer.text().as_str()), (status, on_clear.as_str()), "{method} {path}");
        assert_eq!(answer.field("x-seen"), Some("clear"), "{method} {path}");
        let answer = second.ask(request(method, path), b"");
        assert_eq!((answer.status, answer.text()), (status, on_clear), "{method} {path} over HTTP/2");
        assert_eq!(answer.field("x-seen"), Some("clear"));
        let answer = third.ask(http3::request(method, path), b"");
        assert_eq!((answer.status, answer.text()), (status, text.replace('L', "")), "{method} {path} over HTTP/3");
        assert_eq!(answer.field("x-seen"), None, "the other listener has no such filter");
    }
    let record = site.product.record("of a nested route", |record| record["route"] == "posts");
    assert_eq!(record["status"].as_u64(), Some(405));
}

#[test]
fn a_route_that_is_sent_by_the_api_keeps_the_routes_below_it() {
    let (site, carts) = (endpoint("site"), endpoint("carts"));
    let product = setup(&site, &carts).start();
    let shop =
        "match: { path: { prefix: /shop } }\nfilters: [{ set_request_header: { x-shop: new } }]\ncluster: site\n";
    done(&product, "PUT /api/config/routes/shop", &[YAML, ANY], shop);
    assert_eq!(product.get("/shop/a").text(), "site ,new,");
    assert_eq!(product.get("/shop/carts/1").text(), "carts ,new+t,c");
    assert_eq!(product.get("/shop/gone").status(), 410);
    assert!(written(&product).to_string().contains("posts"));
    done(&product, "PUT /api/config/routes/shop", &[YAML, ANY], &format!("{shop}routes: []\n"));
    assert_eq!(product.get("/shop/carts/1").text(), "site ,new,");
    assert_eq!(product.get("/shop/gone").text(), "site ,new,");
}
