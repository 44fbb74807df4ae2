//! Changes by the API of the administrator: what is asked for is there, all of it or nothing, and no request notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use serde_json::{Value, json};

use super::harness::net::free;
use super::harness::{Message, Origin, Product, Setup, eventually, http2, http3};
use super::http3::site;
use super::reload::{Load, versatile};

pub(super) const JSON: &str = "Content-Type: application/json";
pub(super) const YAML: &str = "Content-Type: application/yaml";
pub(super) const ANY: &str = "If-Match: *";

pub(super) fn parsed(answer: &Message) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.text()))
}

/// A call that works; gives what it answers.
pub(super) fn done(product: &Product, request: &str, fields: &[&str], body: &str) -> Value {
    let answer = product.call(request, fields, body);
    assert_eq!(answer.status(), 200, "{request}: {}", answer.text());
    parsed(&answer)
}

/// A call that is refused with this status; gives what it answers.
pub(super) fn refused(product: &Product, request: &str, fields: &[&str], body: &str, status: u16) -> Value {
    let answer = product.call(request, fields, body);
    assert_eq!(answer.status(), status, "{request}: {}", answer.text());
    let told = parsed(&answer);
    assert!(told["message"].as_str().is_some_and(|message| !message.is_empty()), "{told}");
    told
}

pub(super) fn etag(product: &Product) -> String {
    product.admin("/api/config").field("etag").expect("a tag").to_owned()
}

pub(super) fn written(product: &Product) -> Value {
    product.api("/api/config?as=written")
}

pub(super) fn generation(product: &Product) -> u64 {
    product.api("/api/status")["generation"].as_u64().expect("a number")
}

/// Waits until the log tells of every generation there is: what it says later is of the next.
pub(super) fn settled(product: &Product, generation: u64) -> &Product {
    eventually("the log tells it", || product.stderr().contains(&format!("generation={generation} ")));
    product
}

pub(super) fn places(told: &Value) -> Vec<&str> {
    let list = told["differences"].as_array().expect("a list");
    list.iter().map(|one| one["path"].as_str().expect("a path")).collect()
}

#[test]
fn a_whole_configuration_is_replaced_and_the_next_request_sees_it() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let product = Setup::to(&one).start();
    let mut kept = product.connect();
    assert_eq!(kept.get("/").text(), "one");
    let mut config = written(&product);
    config["clusters"]["site"]["endpoints"] = json!([two.address().to_string()]);
    let tag = format!("If-Match: {}", etag(&product));
    let told = done(&product, "PUT /api/config", &[JSON, &tag], &config.to_string());
    assert_eq!((told["generation"].as_u64(), told["dry_run"].as_bool()), (Some(2), Some(false)));
    assert_eq!(places(&told).len(), 2, "{told}");
    assert_eq!(told["effects"]["endpoints_added"][0]["name"], two.address().to_string());
    assert_eq!(told["effects"]["endpoints_removed"][0]["name"], one.address().to_string());
    assert_eq!(kept.get("/").text(), "two", "on the connection that was there");
    let stale = refused(&product, "PUT /api/config", &[JSON, &tag], &config.to_string(), 412);
    assert!(stale["message"].as_str().unwrap().contains("generation 2"), "{stale}");
    let missing = refused(&product, "PUT /api/config", &[JSON], &config.to_string(), 428);
    assert!(missing["suggestion"].as_str().unwrap().contains("etag"), "{missing}");
    refused(&product, "PUT /api/config", &[JSON, "If-Match: \"other\""], &config.to_string(), 412);
    let history = product.api("/api/generations");
    let newest = &history["generations"][0];
    assert_eq!((newest["origin"].as_str(), newest["author"].as_str()), (Some("api"), Some("local")));
    assert_eq!(newest["differences"].as_array().unwrap().len(), 2);
    assert_eq!(history["generations"].as_array().unwrap().len(), 2);
}

#[test]
fn what_is_there_already_makes_no_generation() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let put = |path: &str, kind: &str, body: &str| {
        let told = done(&product, &format!("PUT {path}"), &[kind, ANY], body);
        (told["changed"].as_bool(), told["generation"].as_u64())
    };
    let cluster = |more: &str| format!("{{ \"endpoints\": [\"{}\"{more}] }}", origin.address());
    let before = etag(&product);
    // As it was written, as it is shown with all defaults, and one object of it.
    assert_eq!(put("/api/config", JSON, &written(&product).to_string()), (Some(false), Some(1)));
    assert_eq!(put("/api/config", JSON, &product.api("/api/config").to_string()), (Some(false), Some(1)));
    assert_eq!(put("/api/config/clusters/site", JSON, &cluster("")), (Some(false), Some(1)));
    assert_eq!(put("/api/config/clusters/site?dry_run=true", JSON, &cluster("")), (Some(false), Some(1)));
    assert_eq!(put("/api/config/clusters/site?canary=10%25", JSON, &cluster("")), (Some(false), Some(1)));
    assert_eq!(etag(&product), before);
    assert_eq!(product.api("/api/generations")["generations"].as_array().unwrap().len(), 1);
    // The same beside what the API has changed.
    let more = cluster(", \"127.0.0.1:1\"");
    assert_eq!(put("/api/config/clusters/site?dry_run=true", JSON, &more), (Some(true), Some(1)));
    assert_eq!(put("/api/config/clusters/site", JSON, &more), (Some(true), Some(2)));
    assert_eq!(put("/api/config/clusters/site", JSON, &more), (Some(false), Some(2)));
    assert_eq!(put("/api/config", JSON, &written(&product).to_string()), (Some(false), Some(2)));
    let weight = format!("/api/clusters/site/endpoints/{}/weight", origin.address());
    assert_eq!(put(&weight, JSON, "{ \"weight\": 7 }"), (Some(true), Some(3)));
    assert_eq!(put(&weight, JSON, "{ \"weight\": 7 }"), (Some(false), Some(3)));
    assert_eq!(put("/api/config/clusters/site", JSON, &cluster("")), (Some(true), Some(4)));
    assert!(product.api("/api/changes")["objects"].as_array().unwrap().is_empty());
}

#[test]
fn a_bad_configuration_is_told_by_its_lines_and_changes_nothing() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let text = "version: 1\nlisteners: { web: { bind: \"127.0.0.1:0\" } }\nroutes: [{ cluster: sitee }]\nclusters:\n  site: { endpionts: [] }\n";
    let told = refused(&product, "PUT /api/config", &[YAML, ANY], text, 422);
    let all = told["diagnostics"].as_array().unwrap();
    let lines: Vec<_> = all.iter().map(|one| (one["file"].as_str().unwrap(), one["line"].as_u64().unwrap())).collect();
    assert_eq!(lines, [("request", 3), ("request", 5), ("request", 5)], "{told}");
    assert!(all[0]["suggestion"].as_str().unwrap().contains("`site`"), "{told}");
    assert!(all[2]["suggestion"].as_str().unwrap().contains("`endpoints`"), "{told}");
    assert_eq!((generation(&product), product.get("/").text().as_str()), (1, "fine"));
    let taken = free();
    let _other = std::net::TcpListener::bind(taken).expect("it is free");
    let bind = json!({ "bind": taken.to_string() }).to_string();
    let told = refused(&product, "PUT /api/config/listeners/more", &[JSON, ANY], &bind, 409);
    assert!(told["message"].as_str().unwrap().contains("listener more: cannot listen"), "{told}");
    assert_eq!(generation(&product), 1);
    assert!(product.api("/api/changes")["objects"].as_array().unwrap().is_empty());
}

#[test]
fn a_dry_run_tells_what_would_be_and_changes_nothing() {
    let origins = [Origin::saying("a"), Origin::saying("b")];
    let product = Setup::to_all(&origins).start();
    let mut config = written(&product);
    config["clusters"]["site"]["endpoints"].as_array_mut().unwrap().remove(0);
    config["listeners"]["more"] = json!({ "bind": "127.0.0.1:0" });
    let before = etag(&product);
    let told = done(&product, "PUT /api/config?dry_run=true", &[JSON, ANY], &config.to_string());
    assert_eq!((told["generation"].as_u64(), told["dry_run"].as_bool()), (Some(1), Some(true)));
    let mut paths = places(&told);
    paths.sort_unstable();
    assert_eq!(paths[..2], [&format!("clusters/site/endpoints/{}", origins[0].address()), "listeners/more/bind"]);
    assert!(
        paths[2..].iter().all(|path| path.starts_with("listeners/more/")),
        "a long object is told in parts: {paths:?}"
    );
    assert_eq!(told["effects"]["listeners_bound"][0]["name"], "more");
    assert_eq!(told["effects"]["endpoints_removed"][0]["cluster"], "site");
    assert_eq!((generation(&product), etag(&product)), (1, before));
    refused(&product, "PUT /api/config?dry_run=true", &[JSON, ANY], "{}", 422);
    assert_eq!(product.metric("equipoise_generations_refused_total", &[]), 0.0, "nothing was refused, only asked");
    refused(&product, "PUT /api/config?dry_run=maybe", &[JSON, ANY], "{}", 400);
}

#[test]
fn any_generation_can_be_gone_back_to_by_one_call() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let product = Setup::to(&one).start();
    let first = written(&product);
    let cluster = json!({ "endpoints": [two.address().to_string()] }).to_string();
    done(&product, "PUT /api/config/clusters/site", &[JSON, ANY], &cluster);
    done(&product, "PUT /api/config/clusters/more", &[JSON, ANY], &cluster);
    assert_eq!(product.get("/").text(), "two");
    let told = done(&product, "POST /api/generations/1/rollback", &[], "");
    assert_eq!((told["generation"].as_u64(), product.get("/").text().as_str()), (Some(4), "one"));
    assert_eq!(written(&product), first);
    assert!(product.api("/api/changes")["objects"].as_array().unwrap().is_empty(), "the file decides again");
    done(&product, "POST /api/generations/3/rollback", &[], "");
    assert_eq!(
        (product.get("/").text().as_str(), written(&product)["clusters"].as_object().unwrap().len()),
        ("two", 2)
    );
    let newest = &product.api("/api/generations")["generations"][0];
    assert_eq!((newest["origin"].as_str(), newest["generation"].as_u64()), (Some("rollback"), Some(5)));
    let told = refused(&product, "POST /api/generations/77/rollback", &[], "", 404);
    assert!(told["suggestion"].as_str().unwrap().contains("generations 1 to 5"), "{told}");
}

#[test]
fn the_file_decides_what_the_api_has_not_changed() {
    let origins = [Origin::saying("file"), Origin::saying("api"), Origin::saying("later")];
    let setup = Setup::to(&origins[0]);
    let product = setup.start();
    let by_api = json!({ "endpoints": [origins[1].address().to_string()] }).to_string();
    done(&product, "PUT /api/config/clusters/site", &[JSON, ANY], &by_api);
    let changed = product.api("/api/changes");
    assert_eq!(changed["objects"], json!([{ "place": "clusters/site", "change": "set" }]));
    // The file is edited: its own cluster of this name stays behind that of the API, and all else comes into force.
    let more = format!("more: {{ endpoints: [\"{}\"] }}", origins[2].address());
    let edited = setup.clone().cluster_more(more).route_before("{ match: { path: /more }, cluster: more }").text();
    assert!(
        settled(&product, 2)
            .reload(&edited.replace("path: /more", "path: { exact: /more }"))
            .contains("configuration is live")
    );
    assert_eq!((product.get("/").text().as_str(), product.get("/more").text().as_str()), ("api", "later"));
    product.expect_said(&["API changes override the files objects=1 first=clusters/site"]);
    // A file that no longer fits is refused, with the place in what the API has set.
    let route = json!({ "match": { "path": { "exact": "/by-api" } }, "cluster": "more" }).to_string();
    done(&product, "PUT /api/config/routes/by-api", &[JSON, ANY], &route);
    let said = settled(&product, 4).reload(&setup.text());
    assert!(said.contains("there is no cluster `more`") && said.contains("api:routes"), "{said}");
    assert_eq!(product.get("/by-api").text(), "later");
    // Without its changes, the file alone decides; it was read when it was good for the last time.
    let told = done(&product, "DELETE /api/config", &[], "");
    assert!(!places(&told).is_empty());
    assert_eq!((product.get("/").text().as_str(), product.get("/by-api").text().as_str()), ("file", "file"));
    done(&product, "POST /api/reload", &[], "");
    assert_eq!(product.get("/more").text(), "file", "the route is gone from the file");
}

#[test]
fn one_listener_route_or_cluster_comes_changes_and_goes() {
    let (one, two) = (Origin::saying("one"), Origin::saying("two"));
    let product = Setup::to(&one).start();
    let cluster = format!("# the second\nendpoints: [\"{}\"]\n", two.address());
    done(&product, "PUT /api/config/clusters/second", &[YAML, ANY], &cluster);
    let route = "match: { path: { prefix: /second } }\ncluster: second\n";
    done(&product, "PUT /api/config/routes/second", &[YAML, ANY], route);
    assert_eq!((product.get("/second").text().as_str(), product.get("/").text().as_str()), ("two", "one"));
    let told = refused(&product, "DELETE /api/config/clusters/second", &[], "", 422);
    assert!(told["diagnostics"][0]["message"].as_str().unwrap().contains("there is no cluster `second`"), "{told}");
    done(&product, "PUT /api/config/listeners/more", &[JSON, ANY], "{ \"bind\": \"127.0.0.1:0\" }");
    let listeners = product.api("/api/status")["listeners"].clone();
    let more = listeners.as_array().unwrap().iter().find(|listener| listener["name"] == "more").unwrap();
    let address = more["address"].as_str().unwrap().parse().unwrap();
    assert_eq!(super::harness::Peer::connect(address).get("/").text(), "one");
    done(&product, "DELETE /api/config/listeners/more", &[], "");
    done(&product, "DELETE /api/config/routes/second", &[], "");
    done(&product, "DELETE /api/config/clusters/second", &[], "");
    assert!(product.api("/api/changes")["objects"].as_array().unwrap().is_empty(), "all is as in the file");
    let told = refused(&product, "DELETE /api/config/clusters/sitee", &[], "", 404);
    assert_eq!(told["suggestion"], "did you mean `site`?");
    let bad = "endpoints: [\"127.0.0.1:1\"]\nbalanse: random\n";
    let told = refused(&product, "PUT /api/config/clusters/site", &[YAML, ANY], bad, 422);
    let first = &told["diagnostics"][0];
    assert_eq!((first["file"].as_str(), first["line"].as_u64()), (Some("api:clusters/site"), Some(2)), "{told}");
}

#[test]
fn what_is_wished_of_an_endpoint_survives_changes_of_the_configuration() {
    let origins = [Origin::saying("a"), Origin::saying("b")];
    let product = Setup::to_all(&origins).start();
    let first = origins[0].address().to_string();
    let path = format!("/api/clusters/site/endpoints/{first}");
    let put =
        |state: &str| done(&product, &format!("PUT {path}/state"), &[JSON], &json!({ "state": state }).to_string());
    let only = |text: &str| (0..8).all(|_| product.get("/").text() == text);
    let tag = etag(&product);
    let told = put("drain");
    assert_eq!(told["effects"]["endpoints_drained"][0]["name"], first.as_str());
    assert!(only("b"), "nothing new goes there");
    let shown = product.api(&path);
    assert_eq!((shown["standing"].as_str(), shown["wish"]["state"].as_str()), (Some("drain"), Some("drain")));
    assert_eq!(shown["wish"]["author"], "local");
    assert_eq!(etag(&product), tag, "the configuration is the same");
    let newest = product.api("/api/generations")["generations"][0].clone();
    assert_eq!(
        (newest["origin"].as_str(), newest["differences"][0]["after"].as_str()),
        (Some("endpoint"), Some("drain"))
    );
    // A change of the cluster, by the file and by the API.
    assert!(settled(&product, 2).reload_unchanged().contains("configuration is live"));
    let mut cluster = product.api("/api/config/clusters/site?as=written");
    cluster["balance"] = "random".into();
    done(&product, "PUT /api/config/clusters/site", &[JSON, ANY], &cluster.to_string());
    assert!(only("b"));
    put("down");
    assert_eq!(product.api(&path)["standing"], "forced_down");
    let told = put("ready");
    assert_eq!(told["effects"]["endpoints_readied"][0]["name"], first.as_str());
    eventually("it works again", || product.get("/").text() == "a");
    assert_eq!(product.api(&path)["wish"], Value::Null);
    put("maintenance");
    // An endpoint that goes takes its wish with it.
    done(&product, &format!("DELETE {path}"), &[], "");
    done(&product, "POST /api/clusters/site/endpoints", &[JSON], &json!(first).to_string());
    assert_eq!(product.api(&path)["standing"], "fit");
    let told = refused(&product, &format!("PUT {path}/state"), &[JSON], "{ \"state\": \"drian\" }", 422);
    assert_eq!(told["suggestion"], "did you mean `drain`?");
    refused(&product, "PUT /api/clusters/site/endpoints/1.2.3.4:5/state", &[JSON], "{ \"state\": \"up\" }", 404);
    refused(&product, "PUT /api/clusters/sites/endpoints/x/state", &[JSON], "{ \"state\": \"up\" }", 404);
}

#[test]
fn endpoints_come_and_go_and_get_weights_while_requests_run() {
    let origins = [versatile(), versatile(), versatile()];
    let product = Setup::to_all(&origins[..2]).start();
    let load = Load::on(&product, 4);
    let name = origins[2].address().to_string();
    let path = format!("/api/clusters/site/endpoints/{name}");
    for round in 0..5 {
        let goes_on = |change: &str| {
            let before = load.done();
            eventually(change, || load.done() > before + 10);
        };
        let added = json!({ "address": name, "weight": 2 }).to_string();
        let told = done(&product, "POST /api/clusters/site/endpoints", &[JSON], &added);
        assert_eq!(told["effects"]["endpoints_added"].as_array().unwrap().len(), 1, "round {round}");
        goes_on("added");
        done(&product, &format!("PUT {path}/weight"), &[JSON], "{ \"weight\": 50 }");
        assert_eq!(product.api(&path)["weight"], 50);
        goes_on("weighed");
        done(&product, &format!("PUT {path}/state"), &[JSON], "{ \"state\": \"drain\" }");
        goes_on("drained");
        done(&product, &format!("DELETE {path}"), &[], "");
        goes_on("removed");
    }
    let done_in_all = load.end();
    product.expect_metric("equipoise_http_requests_total", &["class=\"2xx\""], done_in_all as f64);
    assert!(product.api("/api/changes")["objects"].as_array().unwrap().is_empty(), "all is as in the file");
    refused(&product, &format!("PUT {path}/weight"), &[JSON], "{ \"weight\": 5 }", 404);
    for bad in
        ["{ \"weight\": -1 }", "{ \"weight\": 1e9 }", "{ \"wieght\": 1 }", "5", "{", "{ \"weight\": 1, \"x\": 2 }"]
    {
        let path = format!("PUT /api/clusters/site/endpoints/{}/weight", origins[0].address());
        refused(&product, &path, &[JSON], bad, 422);
    }
}

#[test]
fn twenty_changes_by_the_api_under_load_fail_no_request() {
    let origins = [versatile(), versatile(), versatile()];
    let product = Setup::to_all(&origins).start();
    let load = Load::on(&product, 6);
    for change in 0..20 {
        let before = load.done();
        eventually("the load goes on", || load.done() > before + 10);
        let mut config = written(&product);
        let kept = [change % 3, (change + 1) % 3].map(|at| origins[at].address().to_string());
        config["clusters"]["site"]["endpoints"] = json!(kept);
        config["listeners"]["more"] = json!({ "bind": "127.0.0.1:0", "head_bytes_max": format!("{}KiB", 8 + change) });
        let tag = format!("If-Match: {}", etag(&product));
        done(&product, "PUT /api/config", &[JSON, &tag], &config.to_string());
    }
    load.end();
    assert_eq!(generation(&product), 21);
}

#[test]
fn requests_that_are_not_meant_well_get_what_they_deserve() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    refused(&product, "PUT /api/config", &["Content-Type: text/plain", ANY], "{}", 415);
    refused(&product, "PUT /api/config", &[ANY], "{}", 415);
    refused(&product, "PUT /api/log", &[YAML], "level: warn", 415);
    let told = refused(&product, "POST /api/config", &[JSON], "{}", 405);
    assert!(told["suggestion"].as_str().unwrap().contains("PUT"), "{told}");
    assert_eq!(refused(&product, "PUT /api/confg", &[JSON], "{}", 404)["suggestion"], "did you mean `/api/config`?");
    refused(&product, "PUT /api/log", &[JSON], &" ".repeat(5_000), 413);
    let mut peer = super::harness::Peer::connect(product.address("admin"));
    let head = "PUT /api/config HTTP/1.1\r\nHost: localhost\r\nIf-Match: *\r\nContent-Type: application/json\r\n";
    let large = peer.ask(format!("{head}Connection: close\r\nContent-Length: 9000000000\r\n\r\n"));
    assert_eq!(large.status(), 413, "before a byte of it is read");
    for text in [
        "[",
        "\u{1}",
        "- 1",
        "version: 1\ninclude: /etc/passwd\n",
        "version: 1\nadmin: { bind: \"0.0.0.0:1\", allow_remote: true }\n",
    ] {
        refused(&product, "PUT /api/config", &[YAML, ANY], text, 422);
    }
    let bombs = format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(999), "*a,".repeat(5_000));
    refused(&product, "PUT /api/config", &[YAML, ANY], &bombs, 422);
    refused(&product, "PUT /api/config", &[YAML, ANY], &"[".repeat(100_000), 422);
    // Half a request, many times over, locks nobody out.
    let slow: Vec<_> = (0..70)
        .map(|_| {
            let mut peer = super::harness::Peer::connect(product.address("admin"));
            let _ = peer.try_send(format!("{head}Content-Length: 100\r\n\r\n{{"));
            peer
        })
        .collect();
    assert_eq!(product.admin("/healthz").status(), 200);
    drop(slow);
    assert_eq!((generation(&product), product.get("/").text().as_str()), (1, "fine"));
    assert_eq!(done(&product, "PUT /api/log", &[JSON], "{ \"level\": \"warn\" }")["level"], "warn");
    assert_eq!(product.api("/api/log")["level"], "warn");
    product.expect_said(&["the level of this log was set by the API from=info to=warn by=local"]);
    assert_eq!(
        refused(&product, "PUT /api/log", &[JSON], "{ \"level\": \"inf\" }", 422)["suggestion"],
        "did you mean `info`?"
    );
}

pub(super) const TOKENS: &str = "tokens: [{ name: eye, role: read, token: 0123456789abcdef }, { name: hand, role: admin, token: fedcba9876543210 }]";

/// With tokens, whose admin address the harness can only ask with one of them.
pub(super) fn with_tokens(origin: &Origin) -> String {
    let admin = "admin: { bind: \"127.0.0.1:0\" }";
    Setup::to(origin).text().replace(admin, &format!("admin: {{ bind: \"127.0.0.1:0\", {TOKENS} }}"))
}

#[test]
fn with_tokens_each_may_what_its_role_says_and_the_history_tells_whose_it_was() {
    let origin = Origin::saying("fine");
    let product = Product::start(&with_tokens(&origin));
    let (eye, hand) = ("Authorization: Bearer 0123456789abcdef", "Authorization: Bearer fedcba9876543210");
    for open in ["/healthz", "/readyz", "/"] {
        assert_eq!(product.admin(open).status(), 200, "{open}");
    }
    for closed in ["/metrics", "/api/status", "/api/config", "/api/openapi.json", "/api/generations"] {
        let answer = product.admin(closed);
        assert_eq!(
            (answer.status(), answer.field("www-authenticate")),
            (401, Some("Bearer realm=\"equipoise\"")),
            "{closed}"
        );
        assert_eq!(product.call(&format!("GET {closed}"), &[eye], "").status(), 200, "{closed}");
    }
    let drain = format!("PUT /api/clusters/site/endpoints/{}/state", origin.address());
    let body = "{ \"state\": \"drain\" }";
    refused(&product, &drain, &[JSON], body, 401);
    refused(&product, &drain, &[JSON, "Authorization: Bearer 0000000000000000"], body, 401);
    let told = refused(&product, &drain, &[JSON, eye], body, 403);
    assert_eq!(told["message"], "the token `eye` may only read");
    done(&product, &drain, &[JSON, hand], body);
    let history = parsed(&product.call("GET /api/generations", &[eye], ""));
    assert_eq!(history["generations"][0]["author"], "hand");
    let config = product.call("GET /api/config?as=written", &[eye], "").text();
    assert!(
        config.contains("(hidden)") && !config.contains("0123456789abcdef") && !config.contains("fedcba"),
        "{config}"
    );
    // A token that is taken out of the file opens nothing any more.
    let text = with_tokens(&origin).replace("fedcba9876543210", "another-one-0123456789");
    assert!(settled(&product, 2).reload(&text).contains("configuration is live"));
    refused(&product, &drain, &[JSON, hand], body, 401);
}

#[test]
fn an_address_that_others_reach_needs_tokens_to_change_anything() {
    let origin = Origin::saying("fine");
    let admin = "admin: { bind: \"127.0.0.1:0\"";
    let open = Setup::to(&origin).text().replace(admin, "admin: { bind: \"0.0.0.0:0\"");
    let folder = super::harness::product::folder();
    let check = |text: &str| {
        std::fs::write(folder.path().join("site.yaml"), text.replace("DIR", "/tmp")).expect("the folder is ours");
        super::harness::product::command_in(folder.path(), &["check", "-c", "site.yaml"])
    };
    let refused_file = check(&open);
    assert!(!refused_file.status.success());
    assert!(refused_file.stderr.contains("the admin API requires no credentials"), "{}", refused_file.stderr);
    assert!(refused_file.stderr.contains("add `tokens`"), "{}", refused_file.stderr);
    let in_clear = open.replace("0.0.0.0:0\"", &format!("0.0.0.0:0\", {TOKENS}"));
    let warned = check(&in_clear);
    assert!(warned.status.success());
    assert!(warned.stderr.contains("warning: tokens are sent unencrypted to `0.0.0.0:0`"), "{}", warned.stderr);
    assert!(warned.stderr.contains("accept this with `tokens_in_clear: true`"), "{}", warned.stderr);
    let product = Product::start(&in_clear);
    eventually("the start says so too", || product.stderr().contains("tokens are sent unencrypted"));
    drop(product);
    let accepted = check(&in_clear.replace("0.0.0.0:0\"", "0.0.0.0:0\", tokens_in_clear: true"));
    assert!(accepted.status.success() && !accepted.stderr.contains("travel"), "{}", accepted.stderr);
    let readable = open.replace("0.0.0.0:0\"", "0.0.0.0:0\", allow_remote: true");
    let product = Product::start(&readable);
    eventually("it says so", || product.stderr().contains("the admin listener requires no credentials"));
    assert_eq!(product.admin("/api/status").status(), 200);
    let told = refused(&product, "POST /api/reload", &[], "", 403);
    assert!(told["suggestion"].as_str().unwrap().contains("tokens"), "{told}");
}

#[test]
fn a_socket_without_a_file_has_no_permissions_and_needs_tokens_to_change_anything() {
    let origin = Origin::saying("fine");
    let name = format!("unix:@equipoise-test-{}-{}", std::process::id(), origin.address().port());
    let text =
        Setup::to(&origin).text().replace("bind: \"127.0.0.1:0\" }\naccess", &format!("bind: \"{name}\" }}\naccess"));
    assert!(text.contains(&name));
    let product = Product::start(&text);
    eventually("it says so", || product.stderr().contains("the admin listener requires no credentials"));
    let ctl = |call: &str| super::harness::product::command(&["ctl", "--admin", &name, call]);
    let status = ctl("status");
    assert!(status.status.success(), "{}", status.stderr);
    let reload = ctl("reload");
    assert!(!reload.status.success() && reload.stderr.contains("tokens"), "{}", reload.stderr);
}

#[test]
fn a_misspelt_rehearsal_changes_nothing() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let (endpoint, before) = (origin.address(), generation(&product));
    let call = |query: &str| format!("PUT /api/clusters/site/endpoints/{endpoint}/weight?{query}");
    for wrong in ["dry-run=true", "dryrun", "dry%5Frun=true", "dry_run=true&dryrun=1"] {
        let told = refused(&product, &call(wrong), &[JSON], "{ \"weight\": 7 }", 400);
        assert!(told["message"].as_str().unwrap().starts_with("there is no parameter `"), "{told}");
        assert!(told["suggestion"].as_str().unwrap().contains("`dry_run`"), "{told}");
    }
    let told = refused(&product, "PUT /api/log?dry_run=true", &[JSON], "{ \"level\": \"error\" }", 400);
    assert_eq!(told["suggestion"], "this call takes none");
    done(&product, &call("dry_run=true"), &[JSON], "{ \"weight\": 7 }");
    assert_eq!(generation(&product), before);
}

#[test]
fn ctl_asks_by_a_unix_socket_that_only_its_user_may_open() {
    use std::os::unix::fs::PermissionsExt;
    let origins = [Origin::saying("a"), Origin::saying("b")];
    let text = Setup::to_all(&origins)
        .text()
        .replace("bind: \"127.0.0.1:0\" }\naccess", "bind: \"unix:DIR/admin.sock\" }\naccess");
    let product = Product::start(&text);
    let socket = product.folder().join("admin.sock");
    assert_eq!(std::fs::metadata(&socket).expect("a file").permissions().mode() & 0o777, 0o600);
    let admin = format!("unix:{}", socket.display());
    let ctl = |arguments: &[&str]| {
        let all = [&["ctl", "--admin", admin.as_str()], arguments].concat();
        super::harness::product::command_in(product.folder(), &all)
    };
    let works = |arguments: &[&str]| {
        let ended = ctl(arguments);
        assert!(ended.status.success(), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
        ended.stdout
    };
    let first = origins[0].address().to_string();
    assert!(works(&["status"]).contains("cluster site"));
    assert!(works(&["endpoint", "drain", "site", &first]).contains("gets nothing new"));
    assert!(works(&["endpoints", "site"]).contains("drain by local"));
    assert_eq!(product.get("/").text(), "b");
    assert!(works(&["changes"]).contains("lost when the program stops"));
    works(&["endpoint", "ready", "site", &first]);
    let config = works(&["config", "get"]);
    std::fs::write(product.folder().join("new.yaml"), config.replace("127.0.0.1:0", "127.0.0.1:0\", \"backlog\": \"x"))
        .unwrap();
    let wrong = ctl(&["config", "put", "new.yaml"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(wrong.stderr.contains("unknown key `backlog`") && wrong.stderr.contains("new.yaml:"), "{}", wrong.stderr);
    let mut changed: Value = serde_json::from_str(&config).expect("JSON");
    changed["clusters"]["site"]["endpoints"] = json!([first]);
    std::fs::write(product.folder().join("new.yaml"), changed.to_string()).unwrap();
    let told = works(&["config", "put", "new.yaml", "--dry-run"]);
    assert!(told.starts_with("dry run, nothing was changed") && told.contains("is removed"), "{told}");
    assert_eq!(works(&["config", "get"]), config);
    assert!(works(&["config", "put", "new.yaml"]).contains("is active"));
    assert!(works(&["config", "put", "new.yaml"]).contains("nothing to change"));
    assert_eq!(product.get("/").text(), "a");
    assert!(works(&["generations"]).contains("local"));
    assert!(works(&["rollback", "1"]).contains("is added"));
    let generation: Value = serde_json::from_str(&works(&["generations", "1", "--json"])).expect("JSON");
    assert_eq!(generation["origin"], "start");
    assert_eq!((works(&["log", "error"]).as_str(), works(&["log"]).as_str()), ("error\n", "error\n"));
    let missing = ctl(&["endpoints", "sit"]);
    assert_eq!(missing.stderr, "there is no cluster `sit`\n     help: did you mean `site`?\n");
    let json: Value = serde_json::from_str(&ctl(&["endpoints", "sit", "--json"]).stderr).expect("JSON");
    assert_eq!(json["suggestion"], "did you mean `site`?");
    assert!(works(&["config", "reset"]).contains("no differences"));
    drop(product);
    let nobody = super::harness::product::command(&["ctl", "--admin", "unix:/nowhere/at/all", "status"]);
    assert!(nobody.stderr.contains("Is the program running"), "{}", nobody.stderr);
}

#[test]
fn ctl_sends_a_token_and_says_how_when_it_has_none() {
    let origin = Origin::saying("fine");
    let product = Product::start(&with_tokens(&origin));
    let admin = product.address("admin").to_string();
    std::fs::write(product.folder().join("token"), "0123456789abcdef\n").unwrap();
    let ctl = |arguments: &[&str]| {
        super::harness::product::command_in(product.folder(), &[&["ctl", "--admin", &admin], arguments].concat())
    };
    let without = ctl(&["status"]);
    assert!(
        without.stderr.contains("a token is required") && without.stderr.contains("EQUIPOISE_TOKEN"),
        "{}",
        without.stderr
    );
    assert!(ctl(&["status", "--token-file", "token"]).status.success());
    let reload = ctl(&["reload", "--token-file", "token"]);
    assert_eq!((reload.status.code(), reload.stderr.contains("may only read")), (Some(1), true), "{}", reload.stderr);
}

#[test]
fn shells_can_complete_what_there_is() {
    for (shell, wanted) in [("bash", "complete -F"), ("zsh", "#compdef equipoise"), ("fish", "__fish_equipoise")] {
        let ended = super::harness::product::command(&["completion", shell]);
        assert!(
            ended.status.success() && ended.stdout.contains(wanted) && ended.stdout.contains("rollback"),
            "{shell}"
        );
    }
}

pub(super) fn with_state(setup: &Setup) -> String {
    setup.text().replace("admin: { bind: \"127.0.0.1:0\" }", "admin: { bind: \"127.0.0.1:0\", state: \"DIR/state\" }")
}

pub(super) fn folder_with_state() -> tempfile::TempDir {
    let folder = super::harness::product::folder();
    std::fs::create_dir(folder.path().join("state")).expect("the folder is ours");
    folder
}

#[test]
fn what_was_changed_is_there_again_after_a_start() {
    let origins = [Origin::saying("a"), Origin::saying("b"), Origin::saying("c")];
    let text = with_state(&Setup::to_all(&origins[..2]));
    let folder = folder_with_state();
    let place = folder.path().to_owned();
    let names = origins.iter().map(|origin| origin.address().to_string()).collect::<Vec<_>>();
    let product = Product::start_in(folder, &text, 2);
    done(&product, "POST /api/clusters/site/endpoints", &[JSON], &json!(names[2]).to_string());
    for name in &names[..2] {
        let path = format!("PUT /api/clusters/site/endpoints/{name}/state");
        done(&product, &path, &[JSON], "{ \"state\": \"drain\" }");
    }
    let kept = std::fs::read_to_string(place.join("state/changes.json")).expect("it is kept");
    assert!(kept.contains(&names[2]) && kept.contains("drain"), "{kept}");
    let before = product.api("/api/changes");
    let copy = folder_with_state();
    std::fs::copy(place.join("state/changes.json"), copy.path().join("state/changes.json")).unwrap();
    drop(product);
    let product = Product::start_in(copy, &text, 2);
    assert_eq!(product.get("/").text(), "c");
    let after = product.api("/api/changes");
    assert_eq!((&after["objects"], &after["wishes"]), (&before["objects"], &before["wishes"]));
    done(&product, "DELETE /api/config", &[], "");
    assert_eq!(product.api("/api/changes")["objects"], json!([]));
}

#[test]
fn killed_at_any_moment_it_keeps_the_old_or_the_new_whole() {
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin);
    let text = with_state(&setup);
    let name = origin.address().to_string();
    let mut last = folder_with_state();
    for round in 0..4 {
        let place = last.path().to_owned();
        let mut product = Product::start_in(last, &text, 1);
        let weight = product.api(&format!("/api/clusters/site/endpoints/{name}"))["weight"].as_u64().expect("a weight");
        assert!(round == 0 || (1..=50).contains(&weight), "{weight}");
        let admin = product.address("admin");
        let path = format!("/api/clusters/site/endpoints/{name}/weight");
        let acknowledged = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&acknowledged);
        let storm = std::thread::spawn(move || {
            for weight in 2..=50_u64 {
                let body = format!("{{\"weight\":{weight}}}");
                let head = format!(
                    "PUT {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json"
                );
                let request = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                match answer_if_any(admin, &request) {
                    Some(200) => seen.store(weight, Ordering::Relaxed),
                    _ => break,
                }
            }
        });
        // Somewhere within the next change.
        eventually("some are acknowledged", || acknowledged.load(Ordering::Relaxed) >= 2 * round);
        product.signal(libc::SIGKILL);
        product.wait_ended();
        storm.join().expect("it ends");
        let acknowledged = acknowledged.load(Ordering::Relaxed);
        let next = folder_with_state();
        let kept = place.join("state/changes.json");
        if acknowledged > 0 {
            let text = std::fs::read_to_string(&kept).expect("what was acknowledged is kept");
            let whole: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            let cluster = whole["changes"]["clusters/site"].as_str().expect("a text");
            let found = (acknowledged..=50).any(|weight| cluster.contains(&format!("\"weight\": {weight}\n")));
            assert!(found, "acknowledged {acknowledged}: {cluster}");
        }
        for file in std::fs::read_dir(place.join("state")).expect("a folder") {
            let file = file.expect("an entry");
            std::fs::copy(file.path(), next.path().join("state").join(file.file_name())).expect("a copy");
        }
        last = next;
    }
}

/// The status of an answer; `None`: there was none.
pub(super) fn answer_if_any(address: std::net::SocketAddr, request: &str) -> Option<u16> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

#[test]
fn connections_are_listed_in_pages_and_ended_one_by_one() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let mut peers: Vec<_> = (0..7).map(|_| product.connect()).collect();
    peers.iter_mut().for_each(|peer| assert_eq!(peer.get("/").text(), "fine"));
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let page = product.api(&format!("/api/connections?limit=3&after={after}&listener=web"));
        let list = page["connections"].as_array().expect("a list").clone();
        assert!(list.len() <= 3);
        seen.extend(list);
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(seen.len(), 7, "{seen:?}");
    let told = refused(&product, "GET /api/connections?listener=wbe", &[], "", 404);
    assert!(told["suggestion"].as_str().unwrap().contains("`web`"), "{told}");
    let of = |peer: &super::harness::Peer| {
        let own = peer.tcp().local_addr().expect("connected").to_string();
        seen.iter().find(|one| one["peer"] == own.as_str()).expect("it is listed")["id"].as_u64().expect("a number")
    };
    let id = of(&peers[3]);
    assert_eq!(done(&product, &format!("DELETE /api/connections/{id}"), &[], "")["id"].as_u64(), Some(id));
    peers[3].wait_closed();
    for (at, peer) in peers.iter_mut().enumerate().filter(|(at, _)| *at != 3) {
        assert_eq!(peer.get("/").text(), "fine", "{at}");
    }
    eventually("it is gone", || product.call(&format!("DELETE /api/connections/{id}"), &[], "").status() == 404);
    refused(&product, "DELETE /api/connections/x", &[], "", 404);
    assert_eq!(product.admin("/api/connections?limit=x").status(), 400);
}

/// An origin whose answers never end.
fn endless() -> Origin {
    Origin::start(|mut visit| {
        while visit.request().is_some() {
            let _ = visit.peer.try_send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n");
        }
    })
}

/// Ends the connection to `web` that was the first.
fn end_first_connection(product: &Product) {
    let list = product.api("/api/connections?listener=web");
    let id = list["connections"][0]["id"].as_u64().unwrap_or_else(|| panic!("none in {list}"));
    done(product, &format!("DELETE /api/connections/{id}"), &[], "");
}

#[test]
fn a_connection_of_http2_that_is_ended_ends_with_all_that_is_under_way_on_it() {
    let origin = endless();
    let product = Setup::to(&origin).workers(1).start();
    let (mut client, mut other) = (http2::Client::connect(product.web()), product.connect());
    let mut streams: Vec<_> = (0..3).map(|_| client.open(http2::request("GET", "/"), true)).collect();
    for stream in &mut streams {
        assert_eq!(client.head(stream).expect("a head").0, 200);
    }
    end_first_connection(&product);
    let _however_it_ends = client.ended();
    eventually("the endpoint is left", || origin.open() == 0);
    product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 1.0);
    other.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(other.head().status(), 200, "another connection goes on");
}

#[test]
fn a_connection_of_http3_that_is_ended_ends_with_all_that_is_under_way_on_it() {
    let origin = endless();
    let site = site(Setup::to(&origin), 1);
    let mut client = site.connect();
    let mut streams: Vec<_> = (0..3).map(|_| client.open(http3::request("GET", "/"))).collect();
    for stream in &mut streams {
        client.end(stream, HeaderMap::new());
        assert_eq!(client.head(stream).expect("a head").0, 200);
    }
    end_first_connection(&site.product);
    let _however_it_ends = client.ended();
    eventually("the endpoint is left", || origin.open() == 0);
    site.product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
}
