//! Clusters without endpoints: what they answer, and how endpoints come and go.

use serde_json::{Value, json};

use super::admin_api::{JSON, done};
use super::harness::product::{command, command_in, folder};
use super::harness::{Message, Origin, Peer, Product, Setup, eventually, http2};
use super::http3::{Site, site};
use super::udp::{Client, Echo};

const ENDPOINTS: &str = "/api/clusters/site/endpoints";

/// The status over every version: HTTP/1.1 and HTTP/2 with TLS would be the same listener, so they are asked without.
fn statuses(product: &Product, over_http3: &Site) -> [u16; 3] {
    let http1: Message = product.get("/");
    let http2 = http2::Client::connect(product.web()).get("/").status;
    [http1.status(), http2, over_http3.connect().get("/").status]
}

/// The record of a request that found nothing.
fn expect_empty(product: &Product) {
    let record = product.flagged("PM");
    assert_eq!((record["fault"].as_str(), record["status"].as_u64()), (Some("empty_cluster"), Some(503)), "{record}");
    assert_eq!(record["cluster"], "site");
    product.expect_metric_at_least("equipoise_faults_total", &["fault=\"empty_cluster\""], 1.0);
}

#[test]
fn an_empty_cluster_answers_503_at_once_until_endpoints_are_added_and_when_the_last_is_removed() {
    let origin = Origin::saying("fine");
    let none = || Setup::to_endpoints([]);
    // With a queue in which others would wait longer than any test.
    let queue = "queue: { requests_max: 10, timeout: 10m }";
    for setup in [none(), none().cluster(queue).cluster("connections_max: 1")] {
        let product = setup.clone().listener("http_versions: [h1, h2]").start();
        let over_http3 = site(setup, 2);
        let both = [&product, &over_http3.product];
        assert_eq!(statuses(&product, &over_http3), [503; 3]);
        both.into_iter().for_each(expect_empty);
        assert_eq!(product.admin("/readyz").status(), 200);
        assert_eq!(product.api(ENDPOINTS)["endpoints"], json!([]));
        for product in both {
            done(product, &format!("POST {ENDPOINTS}"), &[JSON], &json!(origin.address().to_string()).to_string());
        }
        assert_eq!(statuses(&product, &over_http3), [200; 3]);
        let before = product.metric("equipoise_faults_total", &["fault=\"empty_cluster\""]);
        for product in both {
            let told = done(product, &format!("DELETE {ENDPOINTS}/{}", origin.address()), &[], "");
            assert_eq!(told["effects"]["endpoints_removed"][0]["name"], origin.address().to_string(), "{told}");
        }
        assert_eq!(statuses(&product, &over_http3), [503; 3]);
        product.expect_metric("equipoise_faults_total", &["fault=\"empty_cluster\""], before + 2.0);
        let admin = product.address("admin").to_string();
        let ended = command(&["explain", "--admin", &admin, "http://anything/", "--json"]);
        let told: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        assert_eq!(told["outcome"]["forward"][0]["why"], "the cluster has no endpoints: 503");
        assert_eq!(told["outcome"]["forward"][0]["endpoint"], Value::Null);
    }
}

#[test]
fn a_cluster_that_a_provider_fills_answers_503_until_then_and_recovers_over_every_version() {
    let origin = Origin::saying("fine");
    let place = folder();
    let put = |list: &str| {
        std::fs::write(place.path().join("fleet.tmp"), format!("endpoints: {{ given: [{list}] }}\n"))
            .expect("our folder");
        std::fs::rename(place.path().join("fleet.tmp"), place.path().join("fleet.yaml")).expect("our folder");
    };
    put("");
    let path = place.path().join("fleet.yaml").display().to_string();
    let setup = Setup::to(&origin)
        .route_before("{ name: given, match: { path: { prefix: /given } }, cluster: given }")
        .cluster_more("given: { endpoints: { from: fleet } }")
        .top(format!("providers: {{ fleet: {{ file: {{ path: \"{path}\", interval: 20ms }} }} }}"));
    let product = setup.clone().listener("http_versions: [h1, h2]").start();
    let over_http3 = site(setup, 1);
    let statuses = || {
        let http1: Message = product.get("/given");
        let http2 = http2::Client::connect(product.web()).get("/given").status;
        [http1.status(), http2, over_http3.connect().get("/given").status]
    };
    for _ in 0..2 {
        assert_eq!(statuses(), [503; 3]);
        for product in [&product, &over_http3.product] {
            let record = product.flagged("PM");
            assert_eq!((&record["fault"], &record["cluster"]), (&json!("empty_cluster"), &json!("given")), "{record}");
        }
        put(&format!("\"{}\"", origin.address()));
        eventually("all are served", || statuses() == [200; 3]);
        put("");
        eventually("none is served", || statuses() == [503; 3]);
    }
}

#[test]
fn an_endpoint_that_is_down_is_not_an_empty_cluster() {
    let product = Setup::to_endpoints(["{ address: \"127.0.0.1:1\", state: maintenance }".to_owned()]).start();
    assert_eq!(product.get("/").status(), 503);
    product.flagged("PE");
}

#[test]
fn streams_and_flows_to_an_empty_cluster_are_ended_until_endpoints_are_added() {
    let (origin, echo) = (Origin::saying("fine"), Echo::start("a"));
    let product = Setup::to_endpoints([])
        .listener_more("raw: { bind: \"127.0.0.1:0\", protocol: tcp, cluster: site }")
        .listener_more("dns: { bind: \"127.0.0.1:0\", protocol: udp, cluster: names }")
        .cluster_more("names: { endpoints: [] }")
        .start();
    let mut peer = Peer::connect(product.address("raw"));
    peer.assert_closed();
    let client = Client::at(product.address("dns"));
    client.send(b"x");
    for kind in ["stream", "flow"] {
        product.record(kind, |record| record["flag"] == "PM" && record["kind"] == kind);
    }
    for (cluster, address) in [("site", origin.address()), ("names", echo.address())] {
        let path = format!("POST /api/clusters/{cluster}/endpoints");
        done(&product, &path, &[JSON], &json!(address.to_string()).to_string());
    }
    assert_eq!(Peer::connect(product.address("raw")).get("/").text(), "fine");
    assert_eq!(client.ask("1"), "a1");
}

#[test]
fn only_an_empty_cluster_to_which_nothing_can_be_added_is_warned_of() {
    let place = folder();
    let text = "version: 1\nlisteners: { web: { bind: \"127.0.0.1:0\" } }\nroutes: [{ cluster: site }]\n\
                clusters: { site: { endpoints: [] } }\n";
    let check = |more: &str| {
        std::fs::write(place.path().join("site.yaml"), format!("{text}{more}")).expect("our folder");
        let ended = command_in(place.path(), &["check", "-c", "site.yaml"]);
        assert!(ended.status.success(), "{}", ended.stderr);
        ended.stderr + &ended.stdout
    };
    let warning = "the cluster `site` has no endpoints, and neither the API nor a provider can add any";
    let told = check("");
    assert!(told.contains(warning) && told.contains("site.yaml:4:"), "{told}");
    for more in ["admin: { bind: \"127.0.0.1:0\" }\n", "providers: { more: { file: { path: more.yaml } } }\n"] {
        let told = check(more);
        assert!(!told.contains(warning), "{told}");
    }
}
