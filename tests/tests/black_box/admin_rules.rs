//! What may be asked of the administrator's listener, by whom, and what becomes of it when the rules change meanwhile.

use serde_json::{Value, json};

use super::admin_api::{
    ANY, JSON, TOKENS, answer_if_any, done, etag, folder_with_state, generation, refused, with_state, written,
};
use super::harness::net::free;
use super::harness::product::command_in;
use super::harness::{Origin, Product, Setup, eventually};

const HAND: &str = "Authorization: Bearer fedcba9876543210";

/// Changes by which the program would use more of what its user may.
fn reaching(product: &Product, fields: &[&str]) -> Vec<Value> {
    let config: Value =
        serde_json::from_slice(&product.call("GET /api/config?as=written", fields, "").body).expect("a configuration");
    let mut log = config.clone();
    log["access_logs"] =
        json!([{ "path": "/tmp/equipoise-test-never-written", "format": "line", "line": "* * * * *" }]);
    let mut socket = config.clone();
    socket["clusters"]["site"]["endpoints"] = json!(["unix:/run/docker.sock"]);
    let mut variable = config.clone();
    variable["routes"][0]["filters"] = json!([{ "set_response_header": { "x-leak": "${PATH}" } }]);
    let mut file = config;
    file["clusters"]["site"]["queue"] = json!({ "requests_max": 1, "page": { "file": "/etc/hostname" } });
    vec![log, socket, variable, file]
}

#[test]
fn who_shows_no_credentials_cannot_have_the_program_reach_further() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    eventually("it is said at the start", || {
        product
            .stderr()
            .contains("the admin listener requires no credentials so=\"every user of this machine may change")
    });
    let words = ["the file `/tmp/equipoise-test-never-written`", "the socket `unix:/run/docker.sock`", "`${PATH}`"];
    for (at, config) in reaching(&product, &[]).iter().enumerate() {
        let told = refused(&product, "PUT /api/config", &[JSON, ANY], &config.to_string(), 403);
        let message = told["message"].as_str().unwrap();
        assert!(message.contains(words.get(at).unwrap_or(&"/etc/hostname")), "{told}");
        assert!(told["suggestion"].as_str().unwrap().contains("`tokens`"), "{told}");
        refused(&product, "PUT /api/config?dry_run=true", &[JSON, ANY], &config.to_string(), 403);
    }
    let added = "\"unix:/run/docker.sock\"";
    refused(&product, "POST /api/clusters/site/endpoints", &[JSON], added, 403);
    // Nor where a provider asks there.
    let watched =
        Setup::to(&origin).top("providers: { containers: { docker: { url: \"unix:/run/docker.sock\" } } }").start();
    refused(&watched, "POST /api/clusters/site/endpoints", &[JSON], added, 403);
    // What is there already may be put anew.
    let mut config = written(&product);
    config["clusters"]["site"]["balance"] = "random".into();
    done(&product, "PUT /api/config", &[JSON, ANY], &config.to_string());
    let text = Setup::to(&origin).text();
    let text = text.replace("admin: { bind: \"127.0.0.1:0\"", &format!("admin: {{ bind: \"127.0.0.1:0\", {TOKENS}"));
    let product = Product::start(&text);
    for config in reaching(&product, &[HAND]) {
        let answer = product.call("PUT /api/config?dry_run=true", &[JSON, ANY, HAND], &config.to_string());
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
}

#[test]
fn who_shows_no_credentials_learns_nothing_of_files_and_variables() {
    let origin = Origin::saying("fine");
    let text = Setup::to(&origin).cluster("queue: { requests_max: 1, page: { file: busy.txt } }").text();
    let folder = super::harness::product::folder();
    std::fs::write(folder.path().join("busy.txt"), "busy").expect("our folder");
    std::fs::write(folder.path().join("theirs"), "root:*:20228:0\n").expect("our folder");
    let product = Product::start_in(folder, &text, 1);
    let config = written(&product);
    let listener = |settings: Value| {
        let mut config = config.clone();
        config["listeners"]["web"]["address_list"] = settings;
        config.to_string()
    };
    let route = |filter: Value| {
        let mut config = config.clone();
        config["routes"][0]["filters"] = json!([filter]);
        config.to_string()
    };
    for (config, what) in [
        (listener(json!({ "deny_files": ["theirs"] })), "the file `theirs` in `listeners/address_list/deny_files`"),
        (listener(json!({ "allow_files": ["not-there"] })), "the file `not-there` in "),
        (route(json!({ "address_list": { "deny_files": ["theirs"] } })), "the file `theirs` in "),
        (route(json!({ "basic_auth": { "file": "theirs" } })), "the file `theirs` in "),
        // It is used, but not for this.
        (listener(json!({ "deny_files": ["busy.txt"] })), "the file `busy.txt` in `listeners/address_list/deny_files`"),
        (route(json!({ "set_response_header": { "x": "${NOBODY_HAS_SET_THIS}" } })), "`${NOBODY_HAS_SET_THIS}` in "),
    ] {
        for request in ["PUT /api/config?dry_run=true", "PUT /api/config"] {
            let told = refused(&product, request, &[JSON, ANY], &config, 403).to_string();
            assert!(told.contains(what) && !told.contains("root"), "{told}");
        }
    }
    let one = json!({ "cluster": "site", "filters": [{ "address_list": { "deny_files": ["theirs"] } }] }).to_string();
    let told = refused(&product, "PUT /api/config/routes/x?dry_run=true", &[JSON, ANY], &one, 403).to_string();
    assert!(told.contains("the file `theirs` in ") && !told.contains("root"), "{told}");
    let named = json!({ "cluster": "site", "name": "${HOME}" }).to_string();
    let told = answered(&product, "PUT /api/config/routes/x?dry_run=true", &named);
    assert!(!told.contains(&std::env::var("HOME").unwrap_or("/root".to_owned())), "{told}");
}

fn answered(product: &Product, request: &str, body: &str) -> String {
    product.call(request, &[JSON, ANY], body).text()
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_and_holds_nothing_up() {
    let origin = Origin::saying("fine");
    let text = Setup::to(&origin).text();
    let text = text.replace("admin: { bind: \"127.0.0.1:0\"", &format!("admin: {{ bind: \"127.0.0.1:0\", {TOKENS}"));
    let mut product = Product::start(&text);
    super::harness::sys::pipe_at(&product.folder().join("pipe"));
    let mut config = super::admin_api::parsed(&product.call("GET /api/config?as=written", &[HAND], ""));
    config["listeners"]["web"]["address_list"] = json!({ "deny_files": ["pipe"] });
    let told = refused(&product, "PUT /api/config?dry_run=true", &[JSON, ANY, HAND], &config.to_string(), 422);
    assert!(told.to_string().contains("it is not a file"), "{told}");
    done(&product, "POST /api/reload", &[HAND], "");
    product.signal(libc::SIGTERM);
    assert!(product.wait_ended().success());
}

#[test]
fn a_socket_that_everybody_may_open_is_no_guard_and_is_told_of() {
    let origin = Origin::saying("fine");
    let text = Setup::to(&origin).text();
    let start = |mode: &str| {
        let admin = format!("admin: {{ bind: \"unix:DIR/admin.sock\", mode: \"{mode}\"");
        Product::start(&text.replace("admin: { bind: \"127.0.0.1:0\"", &admin))
    };
    let put = |product: &Product| {
        let file = product.folder().join("equipoise.yaml");
        let text = std::fs::read_to_string(&file).expect("it is there");
        let more = text.replace("access_logs: [", "access_logs: [{ path: other.json, format: json }, ");
        std::fs::write(product.folder().join("more.yaml"), more).expect("ours");
        let admin = format!("unix:{}/admin.sock", product.folder().display());
        command_in(product.folder(), &["ctl", "--admin", &admin, "config", "put", "more.yaml", "--dry-run"])
    };
    let product = start("0666");
    product.expect_said(&["its `mode` lets every user of this machine change the configuration"]);
    let told = put(&product);
    assert!(!told.status.success() && told.stderr.contains("requires a token"), "{}{}", told.stdout, told.stderr);
    let product = start("0660");
    product.expect_said(&["its group may change the configuration"]);
    let told = put(&product);
    assert!(told.status.success(), "{}{}", told.stdout, told.stderr);
}

#[test]
fn who_asks_for_a_reload_that_moves_the_listener_is_answered() {
    let origin = Origin::saying("fine");
    let (first, second) = (free(), free());
    let text =
        Setup::to(&origin).text().replace("admin: { bind: \"127.0.0.1:0\"", &format!("admin: {{ bind: \"{first}\""));
    let product = Product::start(&text);
    let file = product.folder().join("equipoise.yaml");
    let written = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, written.replace(&first.to_string(), &second.to_string())).expect("the folder is ours");
    let ctl = |address: std::net::SocketAddr, call: &[&str]| {
        command_in(product.folder(), &[&["ctl", "--admin", &address.to_string()], call].concat())
    };
    let told = ctl(first, &["reload"]);
    assert!(told.status.success(), "{}{}", told.stdout, told.stderr);
    assert!(ctl(second, &["status"]).status.success());
    // It lets nobody in any more, and soon is gone.
    assert!(!ctl(first, &["status"]).status.success());
    eventually("it is gone", || std::net::TcpStream::connect(first).is_err());
}

#[test]
fn the_listener_moves_to_all_addresses_of_the_machine_at_the_same_port_and_back() {
    let origin = Origin::saying("fine");
    let here = free();
    let all = format!("0.0.0.0:{}", here.port());
    let at = |bind: &str| {
        Setup::to(&origin)
            .text()
            .replace("admin: { bind: \"127.0.0.1:0\"", &format!("admin: {{ bind: \"{bind}\", {TOKENS}"))
    };
    let product = Product::start(&at(&here.to_string()));
    // Another address of loopback is where nobody is as long as it listens at one.
    let elsewhere = std::net::SocketAddr::from(([127, 0, 0, 2], here.port()));
    let reaches = |address| std::net::TcpStream::connect(address).is_ok();
    assert!(reaches(here) && !reaches(elsewhere));
    let said = product.reload(&at(&all));
    assert!(said.contains("configuration is live"), "{said}");
    assert!(reaches(here) && reaches(elsewhere));
    let file = product.folder().join("equipoise.yaml");
    let written = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, written.replace(&all, &here.to_string())).expect("the folder is ours");
    product.upgrade();
    eventually("it is gone from the other", || reaches(here) && !reaches(elsewhere));
}

#[test]
fn any_of_several_tags_will_do_and_ctl_keeps_one_in_a_file() {
    let origins = [Origin::saying("a"), Origin::saying("b")];
    let product = Setup::to(&origins[0]).start();
    let mut config = written(&product);
    config["clusters"]["site"]["balance"] = "random".into();
    let tags = format!("If-Match: \"other-7\", {}", etag(&product));
    done(&product, "PUT /api/config", &[JSON, &tags], &config.to_string());
    let admin = product.address("admin").to_string();
    let ctl = |arguments: &[&str]| command_in(product.folder(), &[&["ctl", "--admin", &admin], arguments].concat());
    let shown = ctl(&["config", "get", "--etag-file", "tag"]);
    std::fs::write(product.folder().join("new.json"), shown.stdout).expect("the folder is ours");
    done(&product, "POST /api/clusters/site/endpoints", &[JSON], &json!(origins[1].address().to_string()).to_string());
    let late = ctl(&["config", "put", "new.json", "--etag-file", "tag"]);
    assert!(!late.status.success() && late.stderr.contains("was changed by generation 3"), "{}", late.stderr);
    ctl(&["config", "get", "--etag-file", "tag"]);
    assert!(ctl(&["config", "put", "new.json", "--etag-file", "tag"]).status.success());
    let missing = ctl(&["config", "put", "new.json", "--etag-file", "nowhere"]);
    assert!(missing.stderr.starts_with("cannot read nowhere"), "{}", missing.stderr);
}

#[test]
fn a_change_of_a_secret_alone_is_told_but_not_the_secret() {
    let origin = Origin::saying("fine");
    let route = "{ name: secret, match: { path: { exact: /s } }, cluster: site, filters: [{ set_request_header: { authorization: 'Basic one' } }] }";
    let product = Setup::to(&origin).route_before(route).start();
    let mut config = written(&product);
    let put = |config: &Value| done(&product, "PUT /api/config?dry_run=true", &[JSON, ANY], &config.to_string());
    assert_eq!(put(&config)["differences"], json!([]));
    config["routes"][0]["filters"][0]["set_request_header"]["authorization"] = "Basic two".into();
    let told = put(&config)["differences"].clone();
    assert_eq!((&told[0]["before"], &told[0]["after"]), (&json!("(hidden)"), &json!("(hidden, changed)")), "{told}");
    assert_eq!(told.as_array().unwrap().len(), 1);
}

#[test]
fn what_another_run_has_kept_is_neither_lost_nor_brought_back_unasked() {
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin);
    let folder = folder_with_state();
    let kept = folder.path().join("state/changes.json");
    let product = Product::start_in(folder, &setup.text(), 1);
    let text = r#"{"format":1,"changes":{},"wishes":[{"cluster":"site","endpoint":"ENDPOINT","state":"drain","author":"me","at_unix_s":5.0}]}"#;
    let text = text.replace("ENDPOINT", &origin.address().to_string());
    std::fs::write(&kept, &text).expect("the folder is ours");
    let said = product.reload(&with_state(&setup));
    assert!(said.contains("has API changes of an earlier run"), "{said}");
    assert_eq!((generation(&product), std::fs::read_to_string(&kept).expect("it is there")), (1, text));
    std::fs::remove_file(&kept).expect("it is there");
    assert!(product.reload(&with_state(&setup)).contains("configuration is live"));
    let path = format!("PUT /api/clusters/site/endpoints/{}/state", origin.address());
    done(&product, &path, &[JSON], "{ \"state\": \"drain\" }");
    assert!(std::fs::read_to_string(&kept).expect("it is kept").contains("drain"));
}

/// What is kept of the weight of the endpoint: `None`, nothing; otherwise the file is whole.
fn kept_weight(folder: &std::path::Path) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join("state/changes.json")).ok()?;
    let whole: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let cluster = whole["changes"]["clusters/site"].as_str().expect("the cluster");
    let rest = cluster.split("\"weight\": ").nth(1).unwrap_or_else(|| panic!("{cluster}"));
    rest.split('\n').next().and_then(|number| number.parse().ok())
}

#[test]
fn killed_at_any_of_thirty_two_moments_of_a_change_it_keeps_the_old_or_the_new() {
    const SEED: u64 = 20_261_122;
    let origin = Origin::saying("fine");
    let text = with_state(&Setup::to(&origin));
    let path = format!("/api/clusters/site/endpoints/{}/weight", origin.address());
    let mut last = folder_with_state();
    let mut before = None;
    for round in 0..32_u64 {
        let place = last.path().to_owned();
        let mut product = Product::start_in(last, &text, 1);
        let shown = product.api(path.trim_end_matches("/weight"))["weight"].as_u64();
        assert_eq!(shown, before.or(Some(1)), "seed {SEED}, round {round}: what was kept is in force");
        let (admin, weight) = (product.address("admin"), round + 2);
        let body = format!("{{\"weight\":{weight}}}");
        let fields = format!("Host: localhost\r\nConnection: close\r\n{JSON}\r\nContent-Length: {}", body.len());
        let request = format!("PUT {path} HTTP/1.1\r\n{fields}\r\n\r\n{body}");
        let asking = std::thread::spawn(move || answer_if_any(admin, &request));
        // The moment: from before it is read until after it is answered.
        let mixed = (SEED + round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        std::thread::sleep(std::time::Duration::from_micros(mixed % 25_000));
        product.signal(libc::SIGKILL);
        product.wait_ended();
        let answered = asking.join().expect("it ends");
        let now = kept_weight(&place);
        let is_one_of_both = now == before || now == Some(weight);
        assert!(is_one_of_both, "seed {SEED}, round {round}: {now:?} is neither {before:?} nor {weight}");
        assert!(answered != Some(200) || now == Some(weight), "seed {SEED}, round {round}: it was answered");
        let next = folder_with_state();
        for file in std::fs::read_dir(place.join("state")).expect("a folder") {
            let file = file.expect("an entry");
            std::fs::copy(file.path(), next.path().join("state").join(file.file_name())).expect("a copy");
        }
        (last, before) = (next, now);
    }
    assert!(before.is_some(), "some came that far");
}
