//! What endpoints are told about the client, and whose word about it is believed.

use super::harness::{Message, Origin, Product, Setup, http2, http3, tls};
use super::http3::{Site, site};

/// The request that an endpoint gets when a client sends these extra fields.
fn passed_on(product: &Product, origin: &Origin, fields: &str) -> Message {
    product.connect().ask(format!("GET / HTTP/1.1\r\nHost: shop.example:81\r\n{fields}\r\n"));
    origin.requests().pop().expect("it was passed on")
}

const SPOOFED: &str = "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: evil\r\n\
                       X-Forwarded-Port: 1\r\nForwarded: for=1.2.3.4\r\nX-Real-IP: 1.2.3.4\r\nX_Forwarded_For: 1.2.3.4\r\n";

#[test]
fn what_a_stranger_says_of_itself_is_replaced() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let request = passed_on(&product, &origin, SPOOFED);
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.field("x-forwarded-proto"), Some("http"));
    assert_eq!(request.field("x-forwarded-host"), Some("shop.example:81"));
    for gone in ["forwarded", "x-real-ip", "x_forwarded_for", "x-forwarded-port"] {
        assert!(request.all(gone).is_empty(), "{gone} in {request:?}");
    }
    assert!(!request.head_text().contains("1.2.3.4"));
}

#[test]
fn what_a_trusted_proxy_says_is_believed_and_extended() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin)
        .listener("forwarding: { trusted: [\"127.0.0.0/8\", \"10.0.0.0/8\"], forwarded: true }")
        .start();
    let request = passed_on(
        &product,
        &origin,
        "X-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.1.1.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: shop\r\n\
         Forwarded: for=1.2.3.4;proto=https\r\n",
    );
    assert_eq!(request.field("x-forwarded-for"), Some("6.6.6.6, 1.2.3.4, 10.1.1.1, 127.0.0.1"));
    assert_eq!(request.field("x-forwarded-proto"), Some("https"));
    assert_eq!(request.field("x-forwarded-host"), Some("shop"));
    let forwarded = request.field("forwarded").expect("it is on");
    assert!(forwarded.starts_with("for=1.2.3.4;proto=https, for=127.0.0.1"), "{forwarded}");
    // The nearest address that is no trusted proxy, not what the client claims further left.
    let record = product.record("the exchange", |record| record["status"] == 200);
    assert_eq!(record["client_ip"], "1.2.3.4");
    assert_eq!(record["peer_ip"], "127.0.0.1");
}

#[test]
fn forwarded_is_sent_when_it_is_on_and_nothing_when_both_are_off() {
    let origin = Origin::saying("fine");
    let on = Setup::to(&origin).listener("forwarding: { x_forwarded: false, forwarded: true }").start();
    let request = passed_on(&on, &origin, SPOOFED);
    assert_eq!(request.field("forwarded"), Some("for=127.0.0.1;host=\"shop.example:81\";proto=http"));
    assert!(request.all("x-forwarded-for").is_empty());
    let off = Setup::to(&origin).listener("forwarding: { x_forwarded: false }").start();
    let request = passed_on(&off, &origin, SPOOFED);
    assert!(!request.head_text().to_lowercase().contains("forwarded"), "{request:?}");
}

#[test]
fn a_source_condition_sees_the_client_behind_a_trusted_proxy() {
    let (site, office) = (Origin::saying("site"), Origin::saying("office"));
    let setup = Setup::to(&site)
        .route_before("{ match: { source: 192.0.2.0/24 }, cluster: office }")
        .cluster_more(format!("office: {{ endpoints: [\"{}\"] }}", office.address()));
    let request = "GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n";
    let trusting = setup.clone().listener("forwarding: { trusted: [\"127.0.0.1\"] }").start();
    assert_eq!(trusting.connect().ask(request).text(), "office");
    let wary = setup.start();
    assert_eq!(wary.connect().ask(request).text(), "site");
}

#[test]
fn clients_who_spoke_tls_to_a_trusted_proxy_are_not_led_to_plain_http() {
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin)
        .route_before("{ match: { path: { prefix: /old } }, redirect: { host: new.example } }")
        .cluster("persistence: { cookie: { secret: a-secret-of-the-tests } }")
        // So that records stand in the order of their requests.
        .workers(1);
    let trusting = setup.clone().listener("forwarding: { trusted: [\"127.0.0.1\"] }").start();
    let wary = setup.start();
    let ask = |product: &Product, path: &str, fields: &str| {
        product.connect().ask(format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n{fields}\r\n"))
    };
    let told = "X-Forwarded-Proto: https\r\n";
    let location = |product: &Product, fields: &str| {
        let answer = ask(product, "/old?a=1", fields);
        answer.field("location").map(str::to_owned)
    };
    assert_eq!(location(&trusting, told).as_deref(), Some("https://new.example/old?a=1"));
    let forwarded = "Forwarded: for=192.0.2.7;proto=https\r\n";
    assert_eq!(location(&trusting, forwarded).as_deref(), Some("https://new.example/old?a=1"));
    assert_eq!(location(&trusting, "").as_deref(), Some("http://new.example/old?a=1"));
    assert_eq!(location(&wary, told).as_deref(), Some("http://new.example/old?a=1"), "a stranger says so");
    let is_secure = |product: &Product, fields: &str| {
        let answer = ask(product, "/", fields);
        answer.field("set-cookie").expect("a session").contains("; Secure")
    };
    assert!(is_secure(&trusting, told) && !is_secure(&trusting, "") && !is_secure(&wary, told));
    let record = trusting.record("the first", |record| record["path"] == "/old");
    assert_eq!(record["scheme"], "https");
}

#[test]
fn every_request_has_an_id_that_a_stranger_cannot_choose() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let first = passed_on(&product, &origin, "X-Request-Id: chosen\r\n");
    let second = passed_on(&product, &origin, "");
    let ids = [first.field("x-request-id").expect("an id"), second.field("x-request-id").expect("an id")];
    assert!(ids[0] != ids[1] && ids[0] != "chosen" && ids.iter().all(|id| id.len() >= 16), "{ids:?}");
    let logged = product.record("the second", |record| record["request_id"] == ids[1]);
    assert_eq!(logged["status"], 200);
}

#[test]
fn the_id_of_a_trusted_proxy_is_kept_unless_it_is_no_id() {
    let origin = Origin::saying("fine");
    let product =
        Setup::to(&origin).listener("forwarding: { trusted: [\"127.0.0.1\"] }").listener("request_id: x-trace").start();
    assert_eq!(passed_on(&product, &origin, "X-Trace: abc-123\r\n").field("x-trace"), Some("abc-123"));
    let endless = "x".repeat(5000);
    let request = passed_on(&product, &origin, &format!("X-Trace: {endless}\r\n"));
    assert!(request.field("x-trace").is_some_and(|id| id.len() < 300), "an id has a bound");
    let request = passed_on(&product, &origin, "X-Trace: a\r\nX-Trace: b\r\n");
    assert_eq!(request.all("x-trace").len(), 1, "there is one id");
}

#[test]
fn request_ids_can_be_off() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).listener("request_id: false").start();
    assert_eq!(passed_on(&product, &origin, "").field("x-request-id"), None);
}

#[test]
fn the_client_is_whom_a_believed_peer_names_in_a_field_of_the_operators_choice() {
    let (outside, inside) = (Origin::saying("outside"), Origin::saying("inside"));
    let setup = Setup::to(&outside)
        .route_before("{ match: { source: 192.0.2.0/24 }, cluster: inside }")
        .cluster_more(format!("inside: {{ endpoints: [\"{}\"] }}", inside.address()));
    let rules = |from: &str| {
        format!(
            "forwarding: {{ client_address: [{{ header: x-none, from: [\"0.0.0.0/0\"] }}, \
             {{ header: CF-Connecting-IP, from: [{from}] }}] }}"
        )
    };
    let believing = site(setup.clone().listener(rules("127.0.0.0/8")), 2);
    let wary = site(setup.listener(rules("10.0.0.0/8")), 2);
    for (place, version) in ["h1", "h2", "h3"].into_iter().enumerate() {
        let ask = |site: &Site, values: &[&str]| {
            let mut head = http3::request("GET", "/");
            values.iter().for_each(|value| {
                head.headers_mut().append("cf-connecting-ip", value.parse().expect("a value"));
            });
            head.headers_mut().append("cf_connecting_ip", "203.0.113.1".parse().expect("a value"));
            over(site, version, head)
        };
        let named = format!("192.0.2.{place}");
        assert_eq!(ask(&believing, &[&format!("{named}:4711")]), "inside", "{version}");
        let request = inside.requests().pop().expect("it was passed on");
        assert_eq!(request.field("x-forwarded-for"), Some(named.as_str()), "{version}");
        assert!(request.field("cf-connecting-ip").is_some(), "{version}: what was believed is passed on");
        assert!(request.all("cf_connecting_ip").is_empty(), "{version}: in no other spelling");
        let record = believing.product.record("the request", |record| record["client_ip"] == named.as_str());
        assert_eq!(record["peer_ip"], "127.0.0.1", "{version}");
        for values in [&[][..], &["192.0.2.7, 192.0.2.8"], &["192.0.2.7", "192.0.2.7"], &["nobody"]] {
            assert_eq!(ask(&believing, values), "outside", "{version} {values:?}");
            let request = outside.requests().pop().expect("it was passed on");
            assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"), "{version} {values:?}");
        }
        assert_eq!(ask(&wary, &[&named]), "outside", "{version}");
        let request = outside.requests().pop().expect("it was passed on");
        assert!(!request.head_text().to_lowercase().contains("connecting"), "{version}: {request:?}");
        assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"), "{version}");
    }
}

/// The body of the answer to a request over this version.
fn over(site: &Site, version: &str, mut head: http::Request<()>) -> String {
    let config = |protocol: &'static str| {
        tls::Client { protocols: &[protocol], ..tls::Client::trusting(&site.authority) }.config()
    };
    match version {
        "h1" => {
            let value = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            let line = |(name, text): (&http::HeaderName, &http::HeaderValue)| format!("{name}: {}\r\n", value(text));
            let lines: String = head.headers().iter().map(line).collect();
            let mut peer = tls::connect(site.product.web(), "shop.example", &config("http/1.1"));
            peer.ask(format!("GET / HTTP/1.1\r\nHost: shop.example\r\n{lines}\r\n")).text()
        }
        "h2" => {
            *head.version_mut() = http::Version::HTTP_2;
            http2::Client::connect_tls(site.product.web(), "shop.example", &config("h2")).ask(head, b"").text()
        }
        _ => site.connect().ask(head, b"").text(),
    }
}

#[test]
fn what_a_chosen_field_says_may_stand_beside_what_trusted_proxies_say() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin)
        .listener(
            "forwarding: { trusted: [\"127.0.0.1\"], client_address: [{ header: x-client, from: [\"127.0.0.1\"] }] }",
        )
        .route("filters: [{ set_request_header: { x-client-seen: \"{client_ip}\" } }]")
        .start();
    let request = passed_on(&product, &origin, "X-Forwarded-For: 192.0.2.9\r\nX-Client: 2001:db8::7\r\n");
    assert_eq!(request.field("x-client-seen"), Some("2001:db8::7"));
    assert_eq!(request.field("x-forwarded-for"), Some("192.0.2.9, 127.0.0.1"));
    let request = passed_on(&product, &origin, "X-Client: 2001:db8::7\r\n");
    assert_eq!(request.field("x-forwarded-for"), Some("2001:db8::7, 127.0.0.1"));
    let request = passed_on(&product, &origin, "X-Forwarded-For: 192.0.2.9\r\nX-Client: ?\r\n");
    assert_eq!(request.field("x-client-seen"), Some("192.0.2.9"));
    // As a trailer it comes from nobody.
    let chunks = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX_Client: 1.1.1.1\r\nX-Sum: 1\r\n\r\n";
    product.connect().ask(chunks);
    let request = origin.requests().pop().expect("it was passed on");
    assert_eq!(request.trailers, [("X-Sum".to_owned(), "1".to_owned())]);
}
