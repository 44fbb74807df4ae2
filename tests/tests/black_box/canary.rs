//! A configuration that is tried on a share of what comes in: it comes into force or goes, by what is seen of it.

use serde_json::{Value, json};

use super::admin_api::{ANY, JSON, done, folder_with_state, generation, refused, with_state, written};
use super::harness::net::free;
use super::harness::product::command_in;
use super::harness::{Origin, Product, Setup, eventually};

fn endpoint(address: std::net::SocketAddr) -> String {
    json!({ "endpoints": [address.to_string()] }).to_string()
}

/// Begins to try this cluster, for a time that is longer than any test, unless the terms say otherwise.
fn try_out(product: &Product, cluster: &str, terms: &str) -> Value {
    let told = done(product, &format!("PUT /api/config/clusters/site?canary={terms}"), &[JSON, ANY], cluster);
    assert_eq!((told["canary"].as_bool(), told["generation"].as_u64()), (Some(true), Some(generation(product))));
    told
}

fn newest(product: &Product) -> Value {
    product.api("/api/canary")["canaries"][0].clone()
}

/// Asks until the trial has ended.
fn until_it_ends(product: &Product) -> Value {
    eventually("the trial ends", || {
        for _ in 0..20 {
            product.get("/");
        }
        newest(product)["result"] != "tried"
    });
    newest(product)
}

#[test]
fn what_is_as_good_comes_into_force_by_itself_with_one_worker_too() {
    let (old, new) = (Origin::saying("old"), Origin::saying("new"));
    let product = Product::start_in(super::harness::product::folder(), &Setup::to(&old).text(), 1);
    assert_eq!(product.metric("equipoise_canary_share", &[]), 0.0);
    try_out(&product, &endpoint(new.address()), "50%25&for=1h");
    assert_eq!(product.metric("equipoise_canary_share", &[]), 0.5);
    let mut kept = product.connect();
    let told: Vec<String> = (0..100).map(|_| kept.get("/").text()).collect();
    let count = told.iter().filter(|text| *text == "new").count();
    // Chance: outside of this in one of 10^9 runs.
    assert!((20..=80).contains(&count), "{count} of 100 on one connection");
    assert_eq!((generation(&product), newest(&product)["result"].as_str()), (1, Some("tried")));
    assert!(product.api("/api/changes")["objects"].as_array().unwrap().is_empty(), "it is not in force");
    done(&product, "DELETE /api/canary", &[], "");
    try_out(&product, &endpoint(new.address()), "50%25&for=2s&errors_max=0&latency_max=100000&exchanges_min=5");
    let ended = until_it_ends(&product);
    assert_eq!(ended["result"], "promoted", "{ended}");
    assert!(ended["new"]["exchanges"].as_u64() >= Some(5) && ended["new"]["failed"] == 0, "{ended}");
    assert!((0..20).all(|_| product.get("/").text() == "new"), "all of it");
    assert_eq!((kept.get("/").text().as_str(), generation(&product)), ("new", 2));
    let entry = product.api("/api/generations/2");
    assert!(entry["tried"].as_str().unwrap().contains("exchanges used it, 0 failed"), "{entry}");
    product.expect_metric("equipoise_canaries_total", &["result=\"promoted\""], 1.0);
    product.expect_metric("equipoise_canary_share", &[], 0.0);
    eventually("the log tells it", || product.stderr().contains("canary promoted"));
}

#[test]
fn what_fails_goes_back_before_its_time_and_leaves_nothing() {
    let old = Origin::saying("old");
    let product = Setup::to(&old).start();
    // Nobody listens there.
    try_out(&product, &endpoint(free()), "30%25&for=1h");
    let ended = until_it_ends(&product);
    assert_eq!(ended["result"], "went_back", "{ended}");
    assert!(ended["reason"].as_str().unwrap().contains("exchanges failed (100.00 %)"), "{ended}");
    assert!((0..50).all(|_| product.get("/").text() == "old"));
    assert_eq!(generation(&product), 1);
    assert!(product.api("/api/changes")["objects"].as_array().unwrap().is_empty());
    product.expect_metric("equipoise_canaries_total", &["result=\"went_back\""], 1.0);
    eventually("the log tells it", || product.stderr().contains("canary rolled back"));
}

#[test]
fn what_nobody_has_seen_does_not_come_into_force() {
    let (old, new) = (Origin::saying("old"), Origin::saying("new"));
    let product = Setup::to(&old).start();
    try_out(&product, &endpoint(new.address()), "50%25&for=1s");
    eventually("the trial ends", || newest(&product)["result"] != "tried");
    let ended = newest(&product);
    assert_eq!(ended["result"], "went_back", "{ended}");
    assert!(
        ended["reason"].as_str().unwrap().contains("only 0 exchanges used it, fewer than the 20 needed"),
        "{ended}"
    );
    assert_eq!(product.get("/").text(), "old");
}

#[test]
fn it_is_promoted_and_given_up_by_hand_and_others_wait() {
    let (old, new) = (Origin::saying("old"), Origin::saying("new"));
    let product = Product::start_in(folder_with_state(), &with_state(&Setup::to(&old)), 2);
    let kept = product.folder().join("state/changes.json");
    let cluster = endpoint(new.address());
    refused(&product, "POST /api/canary/promote", &[], "", 404);
    refused(&product, "DELETE /api/canary", &[], "", 404);
    try_out(&product, &cluster, "1%25&for=1h");
    assert!(!kept.exists(), "what is tried is not there after a start");
    for call in ["PUT /api/config/clusters/site", "PUT /api/config/clusters/site?canary=10"] {
        let told = refused(&product, call, &[JSON, ANY], &cluster, 409);
        assert!(told["suggestion"].as_str().unwrap().contains("/api/canary"), "{told}");
    }
    refused(&product, "POST /api/reload", &[], "", 409);
    done(&product, "PUT /api/config/clusters/site?dry_run=true", &[JSON, ANY], &cluster);
    done(&product, "DELETE /api/canary", &[], "");
    let ended = newest(&product);
    assert_eq!((ended["result"].as_str(), ended["reason"].as_str()), (Some("ended"), Some("local requested it")));
    assert!((0..20).all(|_| product.get("/").text() == "old"));
    try_out(&product, &cluster, "1%25&for=1h");
    let admin = product.address("admin").to_string();
    let ctl = |arguments: &[&str]| command_in(product.folder(), &[&["ctl", "--admin", &admin], arguments].concat());
    let told = ctl(&["canary"]).stdout;
    assert!(told.contains("1% for 3600 s") && told.contains("tried"), "{told}");
    let promoted = ctl(&["canary", "promote"]);
    assert!(promoted.status.success() && promoted.stdout.contains("generation 2 is active"), "{}", promoted.stdout);
    assert!((0..20).all(|_| product.get("/").text() == "new"));
    assert!(std::fs::read_to_string(&kept).expect("it is kept now").contains(&new.address().to_string()));
    std::fs::write(product.folder().join("cluster.json"), endpoint(old.address())).expect("the folder is ours");
    let set =
        ["config", "set", "cluster", "site", "cluster.json", "--canary", "10%", "--for", "30m", "--errors-max", "2%"];
    let set = ctl(&set);
    assert!(set.stdout.starts_with("canary running beside generation 2"), "{}{}", set.stdout, set.stderr);
    assert!(ctl(&["canary", "abort"]).stdout.contains("rolled back"));
}

#[test]
fn a_wish_or_a_signal_ends_it_and_what_is_for_all_cannot_be_tried() {
    let (old, new) = (Origin::saying("old"), Origin::saying("new"));
    let product = Setup::to(&old).start();
    try_out(&product, &endpoint(new.address()), "50%25&for=1h");
    let path = format!("PUT /api/clusters/site/endpoints/{}/state", old.address());
    done(&product, &path, &[JSON], "{ \"state\": \"up\" }");
    assert_eq!(newest(&product)["result"], "ended");
    assert!((0..20).all(|_| product.get("/").text() == "old"));
    try_out(&product, &endpoint(new.address()), "50%25&for=1h");
    product.reload_unchanged();
    eventually("it ends", || newest(&product)["result"] == "ended");
    assert!((0..20).all(|_| product.get("/").text() == "old"));
    let mut config = written(&product);
    config["listeners"]["more"] = json!({ "bind": "127.0.0.1:0" });
    let told = refused(&product, "PUT /api/config?canary=10%25", &[JSON, ANY], &config.to_string(), 409);
    assert!(told["message"].as_str().unwrap().contains("listeners"), "{told}");
    refused(&product, "PUT /api/config?canary=100%25", &[JSON, ANY], &config.to_string(), 400);
    refused(&product, "PUT /api/config?for=1s", &[JSON, ANY], &config.to_string(), 400);
    product.expect_metric("equipoise_canaries_total", &["result=\"ended\""], 2.0);
}

#[test]
fn endpoints_that_providers_give_come_into_both_and_whole_objects_wait_for_its_end() {
    let [one, two, old, new] = ["one", "two", "old", "new"].map(Origin::saying);
    let folder = super::harness::product::folder();
    let put = |folder: &std::path::Path, text: &str| {
        std::fs::write(folder.join("next"), text).expect("the folder is ours");
        std::fs::rename(folder.join("next"), folder.join("fleet.yaml")).expect("the folder is ours");
    };
    let fleet = |origin: &Origin| format!("endpoints: {{ site: [\"{}\"] }}\n", origin.address());
    put(folder.path(), &fleet(&one));
    let text = format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nadmin: {{ bind: \"127.0.0.1:0\" }}\n\
         routes: [{{ match: {{ path: {{ exact: /own }} }}, cluster: own }}, {{ cluster: site }}]\n\
         clusters: {{ own: {{ endpoints: [\"{}\"] }}, site: {{ endpoints: {{ from: fleet }} }} }}\n\
         providers: {{ fleet: {{ file: {{ path: fleet.yaml, interval: 20ms }} }} }}\n",
        old.address()
    );
    let product = Product::start_in(folder, &text, 2);
    let call = "PUT /api/config/clusters/own?canary=50%25&for=1h&latency_max=100000";
    done(&product, call, &[JSON, ANY], &endpoint(new.address()));
    let seen = |path: &str| -> std::collections::BTreeSet<String> {
        // Of one half of them nothing is seen in one of 10^17 runs.
        (0..60).map(|_| product.get(path).text()).collect()
    };
    let both = || std::collections::BTreeSet::from(["new".to_owned(), "old".to_owned()]);
    assert_eq!(seen("/own"), both());
    for origin in [&two, &one, &two] {
        put(product.folder(), &fleet(origin));
        let wanted = if std::ptr::eq(origin, &one) { "one" } else { "two" };
        eventually("both sides have them", || seen("/").into_iter().eq([wanted.to_owned()]));
    }
    assert_eq!((seen("/own"), newest(&product)["result"].as_str()), (both(), Some("tried")));
    // It is counted as what it is.
    let counted = |side: &str| newest(&product)[side]["exchanges"].as_u64().expect("a number");
    let before = (counted("old"), counted("new"));
    assert_eq!(seen("/own"), both());
    eventually("both are counted", || counted("old") > before.0 && counted("new") > before.1);
    // Whole objects would make it something else than it was begun beside.
    let changed = || product.api("/api/providers")["providers"][0]["last_change_unix_s"].as_f64();
    let then = changed();
    put(product.folder(), &format!("{}clusters: {{ more: {{ endpoints: [\"127.0.0.1:1\"] }} }}\n", fleet(&one)));
    eventually("the provider has said it", || changed() != then);
    assert!(seen("/").into_iter().eq(["two".to_owned()]));
    assert_eq!(newest(&product)["result"], "tried");
    done(&product, "DELETE /api/canary", &[], "");
    eventually("it is there", || product.admin("/api/config/clusters/more").status() == 200);
    assert!(seen("/").into_iter().eq(["one".to_owned()]));
    assert!(seen("/own").into_iter().eq(["old".to_owned()]));
}
