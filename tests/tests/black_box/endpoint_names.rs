//! Host names of endpoints, looked up again while the program runs, with a real name server (NSD) behind it.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use serde_json::Value;

use super::admin_api::{ANY, JSON, done, generation};
use super::discovery_dns::{NameServer, fleet};
use super::harness::http2_origin::{self, Http2Origin};
use super::harness::http3_origin::{self, Http3Origin};
use super::harness::net::free;
use super::harness::origin::ok;
use super::harness::product::{command_in, folder};
use super::harness::tls::{self, Authority};
use super::harness::{Origin, Peer, Product, Setup, eventually};
use super::reload::Load;
use super::udp::{Client, Echo};

/// A cluster `site` with one endpoint that is named so, where this name server is asked.
fn named(names: &NameServer, endpoint: &str) -> Setup {
    Setup::to_endpoints([format!("\"{endpoint}\"")]).top(settings(names))
}

fn settings(names: &NameServer) -> String {
    format!("names: {{ resolvers: [\"{}\"], ttl_min: 50ms, timeout: 5s }}", names.address)
}

fn says(product: &Product, path: &str, body: &str) {
    eventually(&format!("the answer is {body}"), || {
        let answer = product.get(path);
        assert_eq!(answer.status(), 200, "{answer:?}");
        answer.text() == body
    });
}

/// The first endpoint of a cluster: its name and where it is.
fn endpoint(product: &Product, cluster: &str) -> (String, String) {
    let told = product.api(&format!("/api/clusters/{cluster}/endpoints"));
    let text = |key: &str| told["endpoints"][0][key].as_str().expect("a text").to_owned();
    (text("name"), text("address"))
}

fn origins_of_generations(product: &Product) -> Vec<String> {
    let told = product.api("/api/generations");
    let origin = |entry: &Value| entry["origin"].as_str().expect("an origin").to_owned();
    told["generations"].as_array().expect("a list").iter().map(origin).collect()
}

#[test]
fn an_endpoint_follows_its_host_name_and_no_request_fails() {
    let (_origins, port) = fleet(&[2, 3, 4]);
    let names = NameServer::start("web A 127.0.0.2");
    let name = format!("web.test:{port}");
    let setup = named(&names, &name).listener_more("raw: { bind: \"127.0.0.1:0\", protocol: tcp, cluster: site }");
    let product = setup.start();
    assert_eq!(product.get("/").text(), "2", "known before the first request");
    let mut stream = Peer::connect(product.address("raw"));
    assert_eq!(stream.get("/").text(), "2");
    let load = Load::on(&product, 4);
    for _ in 0..3 {
        for last in ["3", "4", "2"] {
            names.change(&format!("web A 127.0.0.{last}"));
            says(&product, "/", last);
            assert_eq!(endpoint(&product, "site"), (name.clone(), format!("127.0.0.{last}:{port}")));
        }
    }
    names.change("web A 127.0.0.3");
    says(&product, "/", "3");
    assert!(load.end() > 0);
    assert_eq!(stream.get("/").text(), "2", "a stream stays where it began");
    assert_eq!(Peer::connect(product.address("raw")).get("/").text(), "3");
    assert_eq!(origins_of_generations(&product), ["names", "start"], "the history has room for others");
    product.expect_said(&["an endpoint has moved", &format!("to=127.0.0.4:{port}"), "origin=names"]);
    product.expect_metric("equipoise_http_requests_total", &["class=\"5xx\""], 0.0);
    assert!(product.records().iter().all(|record| record["flag"].is_null()));
    product.expect_metric("equipoise_name_lookups_failed_total", &[], 0.0);
}

#[test]
fn an_address_stays_while_its_name_has_it_and_its_answer_lives_and_where_names_are_looked_up_once() {
    let (_origins, port) = fleet(&[2, 3, 4]);
    let zone = |web: &str, mark: u8, others: u8| {
        format!("{web}\nmark A 127.0.0.{mark}\nslow 3600 A 127.0.0.{others}\nonce A 127.0.0.{others}")
    };
    let names = NameServer::start(&zone("web A 127.0.0.3", 2, 2));
    let mut setup = named(&names, &format!("web.test:{port}"));
    for name in ["mark", "slow", "once"] {
        let more = if name == "once" { "resolve: once, " } else { "" };
        setup = setup
            .route_before(format!("{{ match: {{ path: {{ exact: /{name} }} }}, cluster: {name} }}"))
            .cluster_more(format!("{name}: {{ {more}endpoints: [\"{name}.test:{port}\"] }}"));
    }
    let product = setup.start();
    // Each time that one has moved, all others of its time to live were asked for as well, or are next.
    for (mark, others) in [(3, 2), (2, 2), (4, 2), (3, 3), (4, 3), (3, 3)] {
        names.change(&zone("web A 127.0.0.2\nweb A 127.0.0.3\nweb A 127.0.0.4", mark, others));
        says(&product, "/mark", &mark.to_string());
        assert_eq!(product.get("/").text(), "3", "the name has it still");
    }
    assert_eq!(product.get("/slow").text(), "2", "its records live for an hour");
    assert_eq!(product.get("/once").text(), "2");
    assert_eq!(generation(&product), 7, "what stays makes no generation");
    // Names are looked up when the configuration is read, too.
    product.reload_unchanged();
    let now = ["/", "/slow", "/once"].map(|path| product.get(path).text());
    assert_eq!(now, ["3", "3", "3"]);
    names.change(&zone("web A 127.0.0.4\nweb A 127.0.0.2", 4, 4));
    says(&product, "/", "2");
    says(&product, "/mark", "4");
    assert_eq!(product.get("/once").text(), "3");
}

#[test]
fn endpoints_whose_names_swap_their_addresses_follow_and_one_that_cannot_is_logged() {
    let (_origins, port) = fleet(&[2, 3, 4]);
    let names = NameServer::start("a A 127.0.0.2\nb A 127.0.0.3");
    let listed = ["a", "b"].map(|name| format!("\"{name}.test:{port}\""));
    let product = Setup::to_endpoints(listed).cluster("balance: first").top(settings(&names)).start();
    let places = || {
        let told = product.api("/api/clusters/site/endpoints");
        [0, 1].map(|at| told["endpoints"][at]["address"].as_str().expect("an address").to_owned())
    };
    let at = |lasts: [u8; 2]| lasts.map(|last| format!("127.0.0.{last}:{port}"));
    for (a, b) in [(3, 2), (2, 3), (3, 4)] {
        names.change(&format!("a A 127.0.0.{a}\nb A 127.0.0.{b}"));
        eventually("both are where their names are", || places() == at([a, b]));
        assert_eq!(product.get("/").text(), a.to_string());
    }
    // One stays, so that the other has nowhere to go.
    names.change("a A 127.0.0.4\nb A 127.0.0.4");
    let told = "the host name of an endpoint resolves only to addresses of other endpoints";
    product.expect_said(&[told, &format!("endpoint=a.test:{port} address=127.0.0.3:{port}")]);
    assert_eq!((places(), product.get("/").text()), (at([3, 4]), "3".to_owned()));
    assert_eq!(product.stderr().matches(told).count(), 1, "{}", product.stderr());
}

#[test]
fn a_name_that_is_not_found_keeps_its_address_and_is_logged_once() {
    let (_origins, port) = fleet(&[2, 3]);
    let mut names = NameServer::start("web A 127.0.0.2");
    let product = named(&names, &format!("web.test:{port}")).start();
    let load = Load::on(&product, 2);
    let failing = |count: f64| product.expect_metric("equipoise_names_failing", &[], count);
    for records in ["", "web TXT only"] {
        names.change(records);
        failing(1.0);
        assert_eq!(product.get("/").text(), "2");
        names.change("web A 127.0.0.2");
        failing(0.0);
    }
    names.stop();
    failing(1.0);
    product.expect_metric_at_least("equipoise_name_lookups_failed_total", &[], 3.0);
    assert_eq!(product.get("/").text(), "2");
    names.write("web A 127.0.0.3");
    names.run("test");
    says(&product, "/", "3");
    failing(0.0);
    assert!(load.end() > 0);
    product.expect_said(&["there is no such name", "the name has no such records", "resolves again"]);
    let told = product.stderr().matches("does not resolve; its last address stays in use").count();
    assert_eq!(told, 3, "{}", product.stderr());
}

#[test]
fn a_name_that_is_not_found_when_it_is_read_starts_nothing_and_a_reload_changes_nothing() {
    let origin = Origin::saying("fine");
    let names = NameServer::start("web A 127.0.0.1");
    let setup = named(&names, &format!("web.test:{}", origin.address().port()));
    let product = setup.start();
    let place = folder();
    let wrong = setup.text().replace("web.test", "nowhere.test");
    std::fs::write(place.path().join("site.yaml"), wrong.replace("DIR", ".")).expect("our folder");
    let ended = command_in(place.path(), &["check", "-c", "site.yaml"]);
    assert!(!ended.status.success());
    let message = "the name `nowhere.test` cannot be looked up: there is no such name";
    assert!(ended.stderr.contains(message), "{}", ended.stderr);
    let folder = product.folder().display().to_string();
    let said = product.reload(&wrong.replace("DIR", &folder));
    assert!(said.contains(message), "{said}");
    assert_eq!(product.get("/").text(), "fine");
}

#[test]
fn what_is_at_an_address_that_a_name_leaves_comes_to_its_end() {
    let (_origins, port) = fleet(&[3]);
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let slow = Origin::start_at(SocketAddr::from(([127, 0, 0, 2], port)), move |mut visit| {
        visit.answer_all(|_| gone.lock().ok()?.recv().ok().map(|()| ok("late")));
    });
    let names = NameServer::start("web A 127.0.0.2");
    let product = named(&names, &format!("web.test:{port}")).start();
    let mut waiting = product.connect();
    waiting.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("it is there", || slow.requests().len() == 1);
    names.change("web A 127.0.0.3");
    eventually("it moves", || endpoint(&product, "site").1.starts_with("127.0.0.3:"));
    assert_eq!(product.get("/").text(), "3");
    go.send(()).expect("it waits");
    assert_eq!(waiting.response().text(), "late");
}

#[test]
fn connections_that_many_requests_share_end_where_a_name_has_left() {
    let port = free().port();
    let at = |last: u8| SocketAddr::from(([127, 0, 0, last], port));
    let answer = |last: u8| -> &'static str { if last == 2 { "2" } else { "3" } };
    let second = [2, 3].map(|last| {
        Http2Origin::start_at(at(last), http2_origin::Rules::default(), move |asked| {
            Box::pin(asked.answer(answer(last)))
        })
    });
    let authority = Authority::new("the endpoints");
    let certificates = authority.issue(&["web.test"]);
    let third = [2, 3].map(|last| {
        let rules = http3_origin::Rules::with(&tls::origin(&certificates, None));
        Http3Origin::start_at(at(last), rules, move |asked| Box::pin(asked.answer(answer(last))))
    });
    let trusted = folder();
    authority.write(trusted.path(), "a.pem");
    let trusting = format!("tls: {{ authorities: \"{}\" }}", trusted.path().join("a.pem").display());
    let names = NameServer::start("web A 127.0.0.2");
    let setup = || named(&names, &format!("web.test:{port}"));
    let over_h2 = setup().cluster("http_versions: [h2]").start();
    let over_h3 = setup().cluster("http_versions: [h3]").cluster(trusting).start();
    for product in [&over_h2, &over_h3] {
        for _ in 0..3 {
            assert_eq!(product.get("/").text(), "2");
        }
    }
    assert!(second[0].open() > 0 && third[0].open() > 0);
    names.change("web A 127.0.0.3");
    says(&over_h2, "/", "3");
    says(&over_h3, "/", "3");
    eventually("no connection is kept where nothing goes", || second[0].open() == 0 && third[0].open() == 0);
    names.change("web A 127.0.0.2");
    says(&over_h2, "/", "2");
    says(&over_h3, "/", "2");
    for product in [&over_h2, &over_h3] {
        product.expect_metric("equipoise_http_requests_total", &["class=\"5xx\""], 0.0);
    }
}

#[test]
fn flows_of_datagrams_follow_the_name_of_their_endpoint() {
    let port = free().port();
    let echo = |last: u8| {
        Echo::start_at(&format!("127.0.0.{last}:{port}"), move |bytes| {
            vec![[format!("{last}").as_bytes(), bytes].concat()]
        })
    };
    let _echoes = [echo(2), echo(3)];
    let names = NameServer::start("web A 127.0.0.2");
    let product = named(&names, &format!("web.test:{port}"))
        .listener_more("dns: { bind: \"127.0.0.1:0\", protocol: udp, cluster: site, idle_timeout: 5m }")
        .start();
    let first = Client::of(&product);
    assert_eq!(first.ask("a"), "2a");
    names.change("web A 127.0.0.3");
    eventually("it moves", || endpoint(&product, "site").1.starts_with("127.0.0.3:"));
    // The endpoint at the old address is gone, and with it its flows: the client begins another.
    eventually("the client is answered from the new address", || first.ask("b") == "3b");
    assert_eq!(Client::of(&product).ask("c"), "3c");
}

#[test]
fn what_is_known_of_health_is_that_of_the_address() {
    let (_origins, port) = fleet(&[3]);
    let names = NameServer::start("web A 127.0.0.2");
    let check = "health_check: { tcp: {}, interval: 50ms, timeout: 10s, rise: 1, fall: 1 }";
    let product = named(&names, &format!("web.test:{port}")).cluster(check).start();
    // Nobody listens there.
    eventually("it is down", || product.get("/").status() == 503);
    product.flagged("PE");
    names.change("web A 127.0.0.3");
    eventually("it is up", || product.get("/").status() == 200);
    names.change("web A 127.0.0.2");
    eventually("it is down", || product.get("/").status() == 503);
}

#[test]
fn changes_by_the_api_and_trials_go_on_with_where_names_are() {
    let (_origins, port) = fleet(&[2, 3, 4]);
    let names = NameServer::start("web A 127.0.0.2\nother A 127.0.0.2");
    let (web, other) = (format!("web.test:{port}"), format!("other.test:{port}"));
    let product = named(&names, &web).cluster_more(format!("other: {{ endpoints: [\"{other}\"] }}")).start();
    names.change("web A 127.0.0.3\nother A 127.0.0.2");
    says(&product, "/", "3");
    let weight = |cluster: &str, name: &str| {
        let path = format!("PUT /api/clusters/{cluster}/endpoints/{name}/weight");
        done(&product, &path, &[JSON], "{ \"weight\": 3 }");
    };
    weight("site", &web);
    assert_eq!(product.get("/").text(), "3", "a change of the cluster moves it nowhere");
    weight("other", &other);
    assert_eq!(product.get("/").text(), "3", "nor one of another");
    let tried = serde_json::json!({ "endpoints": [web], "timeouts": { "connect": "3s" } }).to_string();
    done(&product, "PUT /api/config/clusters/site?canary=50%25&for=1h", &[JSON, ANY], &tried);
    names.change("web A 127.0.0.4\nother A 127.0.0.2");
    says(&product, "/", "4");
    for _ in 0..40 {
        assert_eq!(product.get("/").text(), "4", "what is tried, and what is in force");
    }
    assert_eq!(product.api("/api/canary")["canaries"][0]["result"], "tried");
    done(&product, "POST /api/canary/promote", &[], "");
    assert_eq!(product.get("/").text(), "4");
    names.change("web A 127.0.0.2\nother A 127.0.0.2");
    says(&product, "/", "2");
}

#[test]
fn names_that_the_system_knows_are_looked_up_there() {
    let origin = Origin::saying("here");
    let name = format!("localhost:{}", origin.address().port());
    let product = Setup::to_endpoints([format!("\"{name}\"")]).top("names: { ttl_min: 20ms, ttl_max: 50ms }").start();
    says(&product, "/", "here");
    assert_eq!(endpoint(&product, "site"), (name, origin.address().to_string()));
    product.expect_metric("equipoise_names_failing", &[], 0.0);
    assert_eq!(generation(&product), 1);
}
