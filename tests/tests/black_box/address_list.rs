//! The filter `address_list`: who is let in by address.

use super::harness::http2::{Client, request, with_fields};
use super::harness::{Origin, Product, Setup, eventually, product};

/// A product that believes its clients what they say of whom they speak for.
fn start(filter: &str) -> (Origin, Product) {
    let origin = Origin::saying("in");
    let product = trusting(&origin, filter).start();
    (origin, product)
}

fn trusting(origin: &Origin, filter: &str) -> Setup {
    Setup::to(origin)
        .listener("forwarding: { trusted: [127.0.0.0/8] }")
        .route(format!("filters: [{{ address_list: {filter} }}]"))
}

fn ask(product: &Product, client: &str) -> u16 {
    let request = format!("GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: {client}\r\n\r\n");
    product.connect().ask(request).status()
}

#[test]
fn the_client_behind_trusted_proxies_is_asked_for_and_the_most_specific_network_decides() {
    let (origin, product) = start("{ deny: [10.1.0.0/16, \"2001:db8::7\"], allow: [10.0.0.0/8, \"2001:db8::/32\"] }");
    for (client, status) in [
        ("10.0.0.1", 200),
        ("10.1.2.3", 403),
        ("192.0.2.7", 403),
        ("2001:db8::1", 200),
        ("2001:db8::7", 403),
        ("10.0.0.1, 10.1.2.3", 403),
        ("10.1.2.3, 10.0.0.1", 200),
    ] {
        assert_eq!(ask(&product, client), status, "{client}");
    }
    assert_eq!(product.get("/").status(), 403, "the connection's own address where nobody tells another");
    assert_eq!(origin.requests().len(), 3);
    let mut client = Client::connect(product.web());
    let by = |address: &str| with_fields(request("GET", "/"), &[("x-forwarded-for", address)]);
    assert_eq!(client.ask(by("10.0.0.1"), b"").status, 200);
    assert_eq!(client.ask(by("10.1.0.1"), b"").status, 403);
    assert_eq!(product.flagged("PF")["fault"], "refused_by_filter");
}

#[test]
fn a_client_that_nobody_speaks_for_cannot_choose_its_address() {
    let origin = Origin::saying("in");
    let product = Setup::to(&origin).route("filters: [{ address_list: { allow: [10.0.0.0/8] } }]").start();
    assert_eq!(ask(&product, "10.0.0.1"), 403);
    assert!(origin.requests().is_empty());
}

#[test]
fn who_stays_out_may_get_no_answer_at_all() {
    let (origin, product) = start("{ deny: [10.0.0.0/8], close: true }");
    let mut kept = product.connect();
    kept.send("GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n");
    assert!(kept.rest().is_empty());
    let mut client = Client::connect(product.web());
    let refused = client.open(with_fields(request("GET", "/"), &[("x-forwarded-for", "10.0.0.1")]), true);
    assert!(client.try_answer(refused).is_err());
    assert_eq!(client.get("/").text(), "in", "other streams of the connection live on");
    assert_eq!(origin.requests().len(), 1);
    let record = product.flagged("PZ");
    assert_eq!(record["fault"], "closed_by_filter", "{record}");
    product.expect_metric("equipoise_faults_total", &["fault=\"closed_by_filter\""], 2.0);
}

#[test]
fn files_are_read_again_when_they_change_and_a_bad_one_changes_nothing() {
    let origin = Origin::saying("in");
    let folder = product::folder();
    let list = folder.path().join("office.txt");
    std::fs::write(&list, "# who works here\n10.0.0.0/8\n").expect("our folder");
    let text = trusting(&origin, "{ allow_files: [office.txt] }").text();
    let product = Product::start_in(folder, &text, 2);
    let mut kept = product.connect();
    let mut ask =
        |client: &str| kept.ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: {client}\r\n\r\n")).status();
    assert_eq!((ask("10.0.0.1"), ask("192.0.2.7")), (200, 403));
    let swap = |text: &str| {
        std::fs::write(list.with_extension("next"), text).expect("our folder");
        std::fs::rename(list.with_extension("next"), &list).expect("our folder");
    };
    swap("192.0.2.0/24\n");
    eventually("the new list holds", || ask("192.0.2.7") == 200);
    assert_eq!(ask("10.0.0.1"), 403);
    swap("192.0.2.0/24\nnobody\n");
    let told = "`office.txt`, line 2 is not an address or a network such as 10.0.0.0/8";
    eventually("it is told of", || product.stderr().contains(told));
    assert_eq!((ask("192.0.2.7"), ask("10.0.0.1")), (200, 403));
    swap("10.0.0.0/8\n");
    eventually("a good one is taken again", || ask("10.0.0.1") == 200);
}

#[test]
fn a_list_that_cannot_be_read_is_told_with_its_line() {
    let origin = Origin::saying("in");
    let check = |list: &[u8]| {
        let folder = product::folder();
        let text = trusting(&origin, "{ deny_files: [list.txt] }").text().replace("DIR", "/tmp");
        std::fs::write(folder.path().join("list.txt"), list).expect("our folder");
        std::fs::write(folder.path().join("check.yaml"), text).expect("our folder");
        if list.is_empty() {
            std::fs::remove_file(folder.path().join("list.txt")).expect("our folder");
        }
        product::command_in(folder.path(), &["check", "-c", "check.yaml"]).stderr
    };
    for (list, told) in [
        (&b""[..], "cannot read `list.txt`: there is no such file"),
        (b"10.0.0.1\n\xff\n", "cannot read `list.txt`: line 2 is not UTF-8"),
        (b"10.0.0.1\n\n10.0.0.0/40\n", "`list.txt`, line 3 is not an address or a network such as 10.0.0.0/8"),
    ] {
        let stderr = check(list);
        assert!(stderr.contains(told) && stderr.contains("check.yaml:"), "{told}\n{stderr}");
    }
}

#[test]
fn a_file_is_looked_for_beside_the_file_that_names_it() {
    let origin = Origin::saying("in");
    let folder = product::folder();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).expect("our folder");
    std::fs::write(inner.join("list.txt"), "10.0.0.0/8\n").expect("our folder");
    let route = "routes: [{ name: more, match: { path: { prefix: /more } }, cluster: site, \
                 filters: [{ address_list: { allow_files: [list.txt] } }] }]\n";
    std::fs::write(inner.join("more.yaml"), route).expect("our folder");
    let text = Setup::to(&origin).listener("forwarding: { trusted: [127.0.0.0/8] }").top("include: inner").text();
    let product = Product::start_in(folder, &text, 1);
    let ask = |client: &str| {
        let request = format!("GET /more HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: {client}\r\n\r\n");
        product.connect().ask(request).status()
    };
    assert_eq!((ask("10.0.0.1"), ask("192.0.2.7")), (200, 403));
}
