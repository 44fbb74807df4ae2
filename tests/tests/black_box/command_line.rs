//! The commands beside `run`, and what is said of a configuration that is wrong.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::harness::product::{Ended, command, command_in, executable, folder};
use super::harness::tls::Authority;
use super::harness::{Origin, Product, Setup, eventually};

fn check(text: impl AsRef<[u8]>) -> Ended {
    let folder = folder();
    std::fs::write(folder.path().join("site.yaml"), text).expect("our folder");
    command_in(folder.path(), &["check", "-c", "site.yaml"])
}

#[test]
fn a_good_configuration_is_said_to_be_good() {
    let ended = check(Setup::to(&Origin::saying("fine")).text().replace("DIR/", ""));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("1 listener, 1 route, 1 cluster, 1 endpoint"), "{}", ended.stdout);
}

#[test]
fn settings_that_do_nothing_are_warned_of_and_fail_nothing() {
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin).cluster("queue: { requests_max: 10 }");
    let ended = check(setup.text().replace("DIR/", ""));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("is valid: 1 listener"), "{}", ended.stdout);
    for wanted in
        ["site.yaml:", ": warning: no request ever waits in this queue", "help: give the cluster or its endpoints"]
    {
        assert!(ended.stderr.contains(wanted), "{wanted} in:\n{}", ended.stderr);
    }
    let product = setup.start();
    assert_eq!(product.get("/").text(), "fine");
    let told = || product.stderr().matches("a setting does nothing").count();
    eventually("it is told at the start", || told() == 1);
    product.reload(&setup.text());
    eventually("it is told again", || told() == 2);
}

#[test]
fn a_value_that_is_left_empty_may_be_left_out_only_where_there_is_a_default() {
    expect_said(
        "routes: [{ cluster: a }]\nclusters: { a: { endpoints: , balance: } }\n",
        &[
            "`endpoints` is empty, but must be a list or a map",
            "help: give a value: the key is required\n",
            "`balance` is empty, but must be",
            "help: give a value, or leave the key out for the default\n",
            "2 problems",
        ],
    );
}

#[test]
fn a_warning_without_a_mend_is_logged_without_an_empty_one() {
    let origin = Origin::saying("fine");
    let address = origin.address();
    let product = Setup::to(&origin).cluster_more(format!("idle: {{ endpoints: [\"{address}\"] }}")).start();
    product.expect_said(&["no route and no listener uses the cluster `idle`"]);
    assert!(!product.stderr().contains("help="), "{}", product.stderr());
}

#[test]
fn a_log_in_a_folder_that_is_not_there_is_found_before_anything_runs() {
    let ended = check(Setup::to(&Origin::saying("fine")).text().replace("DIR/", "no/such/folder/"));
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stdout);
    assert!(ended.stderr.contains("no/such/folder` does not exist"), "{}", ended.stderr);
}

const WRONG: &str = "\
version: 1
listeners:
  web: { bind: 127.0.0.1:99999 }
  other: { bind: 127.0.0.1:8081, protocl: tcp }
routes:
  - { match: { path: { regex: \"(\" } }, cluster: sight }
  - { cluster: site, filters: [{ set_request_heder: { a: b } }] }
  - { cluster: site, timeout: 5 parsecs }
clusters:
  site: { endpoints: [\"127.0.0.1:9001\", \"127.0.0.1:9001\"], balance: rownd_robin }
";

#[test]
fn everything_that_is_wrong_is_told_at_once_with_place_and_mend() {
    for command in ["check", "run"] {
        let folder = folder();
        std::fs::write(folder.path().join("site.yaml"), WRONG).expect("our folder");
        let ended = command_in(folder.path(), &[command, "-c", "site.yaml"]);
        assert_eq!(ended.status.code(), Some(1), "{command}");
        let said = ended.stderr;
        for wanted in [
            "site.yaml:3:",
            "site.yaml:4:",
            "did you mean `protocol`?",
            "site.yaml:6:",
            "`site`",
            "site.yaml:7:",
            "did you mean `set_request_header`?",
            "site.yaml:8:",
            "site.yaml:10:",
            "did you mean `round_robin`?",
            "problems",
        ] {
            assert!(said.contains(wanted), "`{wanted}` is not in:\n{said}");
        }
        assert!(said.contains("  web: { bind: 127.0.0.1:99999 }"), "the line itself is shown:\n{said}");
    }
}

#[test]
fn hostile_files_end_in_an_error_and_never_in_a_crash_or_a_wait() {
    let mut bomb = String::from("version: 1\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let links = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb += &format!("a{level}: &a{level} [{links}]\n");
    }
    let deep = format!("version: 1\nroutes: {}{}", "[".repeat(50_000), "]".repeat(50_000));
    let long = format!("version: 1\nlisteners: {{ web: {{ bind: \"{}\" }} }}", "x".repeat(3_000_000));
    let many = format!("version: 1\n{}", (0..50_000).map(|n| format!("key{n}: 1\n")).collect::<String>());
    let cases: [(&str, Vec<u8>); 12] = [
        ("nothing", Vec::new()),
        ("bomb", bomb.into_bytes()),
        ("depth", deep.into_bytes()),
        ("length", long.into_bytes()),
        ("keys", many.into_bytes()),
        ("no text", b"\xff\xfe\0\x01version".to_vec()),
        ("nul", b"version: 1\0".to_vec()),
        ("list", b"- 1\n- 2\n".to_vec()),
        ("tabs", b"version:\t1\n\tlisteners: {}\n".to_vec()),
        ("twice", b"version: 1\nversion: 1\nlisteners: {}\nlisteners: {}\n".to_vec()),
        ("documents", b"version: 1\n---\nversion: 1\n".to_vec()),
        ("version", b"version: 2\n".to_vec()),
    ];
    for (name, bytes) in cases {
        let start = Instant::now();
        let ended = check(bytes);
        let code = if name == "no text" { 2 } else { 1 };
        assert_eq!(ended.status.code(), Some(code), "{name}: {:?}", ended.status);
        assert!(!ended.stderr.is_empty() && !ended.stderr.contains("panicked"), "{name}: {}", ended.stderr);
        assert!(ended.stderr.len() < 1_000_000, "{name}: {} bytes of messages", ended.stderr.len());
        // A second on an idle machine; this one is busy with other tests.
        assert!(start.elapsed() < Duration::from_secs(60), "{name} took {:?}", start.elapsed());
    }
    let missing = command(&["check", "-c", "/nowhere/at/all.yaml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(missing.stderr.contains("/nowhere/at/all.yaml"), "{}", missing.stderr);
}

#[test]
fn a_configuration_may_be_json_and_take_values_and_parts_from_elsewhere() {
    let origin = Origin::saying("included");
    let folder = folder();
    std::fs::create_dir(folder.path().join("parts")).expect("our folder");
    std::fs::write(
        folder.path().join("parts/site.json"),
        format!(
            "{{ \"clusters\": {{ \"site\": {{ \"endpoints\": [\"${{HOST_OF_TESTS:-127.0.0.1}}:{}\"] }} }} }}",
            origin.address().port()
        ),
    )
    .expect("our folder");
    let text =
        "version: 1\ninclude: parts\nlisteners: { web: { bind: \"127.0.0.1:0\" } }\nroutes: [{ cluster: site }]\n";
    let product = Product::start_in(folder, text, 1);
    assert_eq!(product.get("/").text(), "included");
}

#[test]
fn the_schema_is_one_and_names_every_filter() {
    let ended = command(&["schema"]);
    assert_eq!(ended.status.code(), Some(0));
    let schema: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert!(schema["properties"]["listeners"].is_object(), "{schema}");
    for filter in ["set_request_header", "cors", "rewrite", "remove_response_header"] {
        assert!(ended.stdout.contains(&format!("\"{filter}\"")), "{filter}");
    }
}

#[test]
fn the_version_is_told_and_a_wrong_command_line_is_explained() {
    let version = command(&["version"]);
    assert!(version.stdout.starts_with("equipoise 0."), "{}", version.stdout);
    for wrong in
        [&["frobnicate"][..], &["run"], &["proxy"], &["run", "-c", "x", "--workers", "0"], &["demo", "--for", "x"]]
    {
        let ended = command(wrong);
        assert_eq!(ended.status.code(), Some(2), "{wrong:?}");
        assert!(!ended.stderr.is_empty());
    }
    let help = command(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(help.stdout.contains("SIGHUP"), "{}", help.stdout);
}

#[test]
fn an_address_that_is_taken_is_told_before_anything_starts() {
    let origin = Origin::saying("fine");
    let text = Setup::to(&origin).text().replace("DIR/", "").replacen(
        "bind: \"127.0.0.1:0\"",
        &format!("bind: \"{}\"", origin.address()),
        1,
    );
    let folder = folder();
    std::fs::write(folder.path().join("site.yaml"), text).expect("our folder");
    let ended = command_in(folder.path(), &["run", "-c", "site.yaml", "--workers", "2"]);
    assert_eq!(ended.status.code(), Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains(&origin.address().to_string()), "{}", ended.stderr);
}

#[test]
fn a_proxy_runs_from_the_command_line_alone() {
    let origins = [Origin::saying("one"), Origin::saying("two")];
    let addresses = origins.each_ref().map(|origin| origin.address().to_string());
    let arguments = |more: &[&'static str]| {
        let mut all = vec!["proxy", "--listen", "127.0.0.1:0", "--workers", "2", "--to", &addresses[0]];
        all.extend(more);
        all.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>()
    };
    let run = |arguments: Vec<String>| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Product::spawn(folder(), &arguments)
    };
    let mut both = arguments(&["--balance", "round_robin", "--to"]);
    both.push(addresses[1].clone());
    let product = run(both);
    let web = product.only_address();
    let said: std::collections::BTreeSet<String> =
        (0..4).map(|_| super::harness::Peer::connect(web).get("/").text()).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    let url = format!("http://{}/", origins[0].address());
    let by_url = Product::spawn(folder(), &["proxy", "--listen", "127.0.0.1:0", "--workers", "1", "--to", &url]);
    assert_eq!(super::harness::Peer::connect(by_url.only_address()).get("/").text(), "one");
    for (wrong, wanted) in [
        (
            "https://app.example",
            "`proxy` does not use TLS to endpoints: write a file whose cluster has `endpoints: [\"app.example:443\"]`",
        ),
        ("http://app.example/x", "an endpoint has no path: write app.example:80"),
    ] {
        let ended = command(&["proxy", "--to", wrong]);
        assert_eq!(ended.status.code(), Some(2), "{wrong}");
        assert!(ended.stderr.contains(wanted), "{wrong}: {}", ended.stderr);
    }
    let line = run(arguments(&["--tcp", "--admin", "127.0.0.1:0"]));
    assert_eq!(line.api("/api/status")["listeners"][0]["protocol"], "tcp");
}

#[test]
fn the_demo_puts_load_on_itself_and_tells_how_it_went() {
    let ended = command(&["demo", "--for", "2s", "--listen", "127.0.0.1:0", "--workers", "2"]);
    assert_eq!(ended.status.code(), Some(0), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("requests"), "{}", ended.stdout);
}

#[test]
fn the_pages_of_the_reference_are_those_of_this_program() {
    let pages = equipoise_tests::repository().join("docs/reference");
    let ended = command(&["reference", "--check", pages.to_str().expect("a path in UTF-8")]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
}

/// Every file in `examples/` that runs by itself; `tidy` holds that none is left out.
const EXAMPLES: &[&str] = &[
    "access-log.yaml",
    "cache.yaml",
    "discovery.yaml",
    "edge.yaml",
    "files.yaml",
    "health-all.yaml",
    "health.yaml",
    "http2-endpoints.yaml",
    "http3-endpoints.yaml",
    "http3.yaml",
    "include/main.yaml",
    "nested-routes.yaml",
    "peers.yaml",
    "persistence.yaml",
    "protect.yaml",
    "providers.yaml",
    "routing.yaml",
    "sni.yaml",
    "tcp.yaml",
    "tls.yaml",
    "waf.yaml",
    "web.yaml",
];

#[test]
fn every_example_is_good() {
    // Where an example needs certificates, it says so by `CERTS`.
    let (authority, certificates) = (Authority::new("the examples'"), folder());
    authority.write(certificates.path(), "ca.pem");
    authority.issue_client("proxy").write(certificates.path(), "client");
    for name in ["site", "shop"] {
        authority.issue(&[&format!("{name}.example.com")]).write(certificates.path(), name);
    }
    for name in EXAMPLES {
        let ended = Command::new(executable())
            .args(["check", "-c", name])
            .env("CERTS", certificates.path())
            .current_dir(equipoise_tests::repository().join("examples"))
            .stdin(Stdio::null())
            .output()
            .expect("the product runs");
        assert_eq!(ended.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&ended.stderr));
    }
}

/// What is said of a configuration that begins with a version and a listener of its own.
fn said_of(lines: &str) -> String {
    let ended = check(format!("version: 1\nlisteners: {{ web: {{ bind: 0 }} }}\n{lines}"));
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    ended.stderr
}

fn expect_said(lines: &str, wanted: &[&str]) {
    let said = said_of(lines);
    for wanted in wanted {
        assert!(said.contains(wanted), "{wanted}\nis not in:\n{said}");
    }
}

#[test]
fn a_port_alone_and_a_variable_in_quotes_are_what_they_stand_for() {
    let origin = Origin::saying("fine");
    let text = format!(
        "version: 1
listeners: {{ web: {{ bind: \"${{NO_SUCH_PORT:-0}}\", connections_max: \"${{NO_SUCH_BOUND:-100}}\" }} }}
routes: [{{ cluster: site, early_data: \"${{NO_SUCH_FLAG:-false}}\" }}]
clusters: {{ site: {{ endpoints: [\"{}\"] }} }}
",
        origin.address()
    );
    let product = Product::start_in(folder(), &text, 1);
    assert_eq!(product.get("/").text(), "fine");
    for port in ["0", "\"0\"", "\":0\""] {
        let ended =
            check(format!("version: 1\nlisteners: {{ web: {{ bind: {port} }} }}\nroutes: [{{ respond: {{}} }}]\n"));
        assert_eq!(ended.status.code(), Some(0), "{port}: {}", ended.stderr);
    }
}

#[test]
fn a_size_with_a_wrong_unit_is_the_only_mistake_that_is_told() {
    let said = said_of("routes: [{ respond: {}, filters: [{ body_limit: { max: 10m } }] }]\n");
    let wanted = "site.yaml:3:56: `max`: `10m` is not a size
   3 | routes: [{ respond: {}, filters: [{ body_limit: { max: 10m } }] }]
     |                                                        ^^^
     help: did you mean `10MiB`?

1 problem";
    assert_eq!(said.trim_end(), wanted);
}

#[test]
fn words_of_other_products_lead_to_ours_and_to_their_guide() {
    expect_said(
        "routes:
  - { proxy_pass: \"http://site\" }
  - { cluster: site, filters: [{ stripPrefix: {} }, { add_header: {} }, { client_max_body_size: 1m }] }
clusters:
  site: { endpoints: [\"127.0.0.1:1\"], balance: leastconn, outlier_detection: {} }
",
        &[
            "unknown key `proxy_pass` in route 1",
            "help: did you mean `cluster`? See docs/guides/coming-from-nginx.md",
            "unknown filter `stripPrefix` in `filters` of route 2",
            "help: did you mean `rewrite`? See docs/guides/coming-from-traefik.md",
            "unknown filter `add_header` in `filters` of route 2",
            "help: did you mean `set_response_header`? See docs/guides/coming-from-nginx.md",
            "unknown filter `client_max_body_size` in `filters` of route 2",
            "help: write the filter `body_limit: { max: 10MiB }` in a route; see docs/guides/coming-from-nginx.md",
            "not the text `leastconn`",
            "help: did you mean `least_request`? See docs/guides/coming-from-haproxy.md",
            "unknown key `outlier_detection` in cluster `site`",
            "help: did you mean `passive_health`? See docs/guides/coming-from-envoy.md",
            "6 problems",
        ],
    );
    expect_said(
        "server: { listen: 80 }
upstream: { servers: [] }
backend: {}
entryPoints: {}
lb_policy: RANDOM
log_format: main
resolver: 1.1.1.1
routes:
  - { cluster: site, proxy_next_upstream_timeout: 1s, proxy_redirect: off, proxy_method: GET }
  - { cluster: site, filters: [{ proxy_cookie_path: / }, { set-method: PUT }, { set-query: a }] }
clusters:
  site: { endpoints: [\"127.0.0.1:1\"], balance: roundrobin, http-reuse: never }
  two: { endpoints: [\"127.0.0.1:1\"], balance: least_conn }
",
        &[
            "unknown key `server` in the file",
            "help: write what a `server` block holds as `listeners: { NAME: { bind: … } }`, `routes: [",
            "unknown key `upstream` in the file",
            "help: write a cluster: `clusters: { NAME: { endpoints: […] } }`; see docs/guides/coming-from-nginx.md",
            "help: write a cluster: `clusters: { NAME: { endpoints: […] } }`; see docs/guides/coming-from-haproxy.md",
            "help: write a listener: `listeners: { NAME: { bind: … } }`; see docs/guides/coming-from-traefik.md",
            "help: write `balance` in the cluster; see docs/guides/coming-from-envoy.md",
            "help: write `log_formats: { NAME: … }` at the top of the file; see docs/guides/coming-from-nginx.md",
            "help: did you mean `names: { resolvers: […] }`? See docs/guides/coming-from-nginx.md",
            "unknown key `proxy_next_upstream_timeout` in route 1",
            "help: write `retry: { time_max: … }` in a route or cluster; see docs/guides/coming-from-nginx.md",
            "help: write it as a filter: `filters: [{ rewrite_location: … }]`; see docs/guides/coming-from-nginx.md",
            "help: write the filter `rewrite: { method: … }` in a route; see docs/guides/coming-from-nginx.md",
            "help: did you mean `rewrite_cookie: { … }`? See docs/guides/coming-from-nginx.md",
            "help: write the filter `rewrite: { query: … }` in a route; see docs/guides/coming-from-haproxy.md",
            "not the text `roundrobin`",
            "help: did you mean `round_robin`? See docs/guides/coming-from-haproxy.md",
            "not the text `least_conn`",
            "help: did you mean `least_request`? See docs/guides/coming-from-nginx.md",
            "help: write `pool: { reuse: … }` in the cluster; see docs/guides/coming-from-haproxy.md",
            "16 problems",
        ],
    );
    let many = said_of("routes: [{ respond: {}, filters: [{ wibble: {} }] }]\n");
    assert!(many.contains(", such as `"), "{many}");
    assert!(many.contains("; all are in docs/reference/filters.md\n"), "{many}");
    assert!(!many.contains("did you mean"), "nothing is near: {many}");
}

#[test]
fn what_comes_from_defaults_is_no_key_of_an_object_that_is_set_already() {
    expect_said(
        "defaults: { clusters: { balance: least_request, retry: { attempts_max: 2 } } }
clusters:
  a: { endpoints: [\"127.0.0.1:1\"], balanse: random }
  b: { endpoints: [\"127.0.0.1:1\"], lb_policy: RANDOM }
  c: { endpoints: [\"127.0.0.1:1\"], retry: { attempts_mx: 3 } }
  d: { endpoints: [\"127.0.0.1:1\"], balance: random, lb_policy: RANDOM }
",
        &[
            "unknown key `balanse` in cluster `a`",
            "help: did you mean `balance`?\n",
            "unknown key `lb_policy` in cluster `b`",
            "help: did you mean `balance`? See docs/guides/coming-from-envoy.md",
            "unknown key `attempts_mx` in `retry` of cluster `c`",
            "help: did you mean `attempts_max`?\n",
            "help: here it is `balance`, which is already set: leave this out",
            "4 problems",
        ],
    );
}

#[test]
fn of_many_variables_and_tlvs_the_nearest_are_named_and_the_page_with_all() {
    let said = said_of(
        "routes:
  - { respond: {}, filters: [{ set_request_header: { x-a: \"{wibble}\" } }, { set_request_header: { x-b: \"{client_iq}\" } }] }
  - { match: { proxy_tlvs: { vpce: a } }, respond: {} }
  - { respond: {}, filters: [{ set_request_header: { x-c: \"{proxy_tlv:authorty}\" } }] }
",
    );
    for wanted in [
        "there is no variable `{wibble}`",
        "help: there are 32, such as `",
        "; all are in docs/reference/filters.md\n",
        "help: did you mean `client_ip`?\n",
        "there is no TLV `vpce`: write a name such as `aws_vpce_id`",
        "there is no TLV `authorty`: write a name such as `authority`",
        "or a type such as `0xea`; all are in docs/guides/client-addresses.md\n",
    ] {
        assert!(said.contains(wanted), "{wanted}\nis not in:\n{said}");
    }
    assert!(said.lines().all(|line| line.matches(", ").count() < 12), "{said}");
}

#[test]
fn routes_that_nothing_reaches_are_warned_of_and_fail_nothing() {
    let lines = r"routes:
  - { name: a, match: { path: { prefix: /x } }, respond: {} }
  - { name: b, match: { path: { prefix: /x/ } }, respond: {} }
  - { name: c, match: { path: { regex: '\.php$' } }, respond: {} }
  - { name: d, match: { path: { regex: '/a$b' } }, respond: {} }
  - { name: e, match: { path: { prefix: /e }, method: [GET, POST] }, respond: {} }
  - { name: f, match: { path: { prefix: /e }, method: GET }, respond: {} }
  - { name: g, match: { source: 10.0.0.0/8 }, respond: {} }
  - { name: h, match: { source: 10.1.0.0/16 }, respond: {} }
";
    let wanted = [
        "site.yaml:5:16: warning: no request reaches route `b`: route `a` in line 4 matches the same requests and comes first",
        "help: give it another `match`, or take it out",
        "site.yaml:6:",
        ": warning: no path matches `\\.php$`: it must match the whole path, which begins with `/`",
        "help: write `.*\\.php`",
        "site.yaml:7:",
        ": warning: no path matches `/a$b`: `^` stands only at the beginning of a whole path, and `$` at its end",
        "warning: no request reaches route `f`: route `e` in line 8 matches the same requests and comes first",
        "warning: no request reaches route `h`: route `g` in line 10 matches the same requests and comes first",
    ];
    expect_said(lines, &wanted);
    let ended = check(format!("version: 1\nlisteners: {{ web: {{ bind: 0 }} }}\n{lines}"));
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    expect_said(
        "routes: [{ name: a, respond: {} }, { name: b, priority: 10, respond: {} }, { name: c, match: { host: c.example }, respond: {} }]\n",
        &[
            "reaches route `a`: route `b` in line 3 matches the same requests and has a higher `priority`",
            "reaches route `c`: ",
        ],
    );
    let none = check("version: 1\nroutes: [{ respond: {} }]\n");
    assert_eq!(none.status.code(), Some(0), "{}", none.stderr);
    assert!(
        none.stderr.contains("site.yaml: warning: there are no listeners: no connection is accepted"),
        "{}",
        none.stderr
    );
}

#[test]
fn statuses_are_written_alike_for_retries_and_for_pages() {
    let text = "routes:
  - { cluster: a, retry: { on: [5xx, 429, 502-504] }, filters: [{ error_page: { status: [5xx, 429, 502-504], body: x } }] }
clusters: { a: { endpoints: [\"127.0.0.1:1\", \"127.0.0.1:2\"] } }
";
    assert_eq!(said_of(text), "");
}

#[test]
fn what_is_not_yaml_is_told_where_it_has_to_change() {
    expect_said(
        "clusters:\n  a: { endpoints: [\"127.0.0.1:1\"]\nroutes: []\n",
        &[
            "site.yaml:4:6: not YAML: the `{` that is opened here is never closed",
            "help: add the `}` that belongs to it",
        ],
    );
    expect_said(
        "routes:\n  - match: { host: *.example.com }\n    respond: {}\n",
        &[
            "site.yaml:4:20: not YAML: `*.example.com` is not text here: `*` refers to an anchor, and there is none of that name",
            "help: put it in quotes: \"*.example.com\"",
        ],
    );
    expect_said(
        "routes:\n  - match: { path: { regex: \"/a\\.php\" } }\n    respond: {}\n",
        &[
            "site.yaml:4:32: not YAML: `\\.` is not a valid escape in double quotes",
            "help: put the text in single quotes: '/a\\.php'",
        ],
    );
}

#[test]
fn all_that_is_wrong_with_a_route_is_told_at_once() {
    expect_said(
        "routes: [{ match: { host: \"a b\", path: { regex: \"(\" } }, respond: {} }]\n",
        &["`a b` is not a host name", "`(` is not a regular expression: unclosed group", "2 problems"],
    );
}

const SHOP: &str = "\
version: 1
listeners: { web: { bind: \"127.0.0.1:8080\" }, raw: { bind: \"127.0.0.1:5432\", protocol: tcp, cluster: site } }
routes:
  - { name: shop, match: { host: shop.example.com, path: { prefix: /api } }, cluster: api,
      filters: [{ set_request_header: { x-shop: \"1\" } }] }
  - { name: rest, cluster: site }
clusters:
  api: { endpoints: [\"127.0.0.1:9003\", { address: \"127.0.0.1:9004\", state: drain }], balance: least_request }
  site: { endpoints: [\"127.0.0.1:9001\"] }
";

#[test]
fn a_request_is_explained_from_a_file_to_its_endpoint() {
    let folder = folder();
    std::fs::write(folder.path().join("site.yaml"), SHOP).expect("our folder");
    let explain = |rest: &[&str]| command_in(folder.path(), &[&["explain", "-c", "site.yaml"], rest].concat());
    let ended = explain(&["GET http://shop.example.com/api/x"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    for wanted in [
        "listener web (http, 127.0.0.1:8080)",
        "route `shop` (host shop.example.com, paths below /api)",
        "route `rest` (any host and path) matches too, but has lower precedence",
        "set_request_header: changes the request",
        "+ x-shop: 1",
        "cluster `api`, balance least_request",
        "`127.0.0.1:9003`: no other is available (`only`)",
        "drain",
    ] {
        assert!(ended.stdout.contains(wanted), "{wanted} in:\n{}", ended.stdout);
    }
    let told: Value = serde_json::from_str(&explain(&["tcp://localhost:5432", "--json"]).stdout).expect("JSON");
    assert_eq!(told["outcome"]["forward"][0]["endpoint"], "127.0.0.1:9001");
    let unheard = "no such listener has port 5555";
    assert!(explain(&["http://shop.example.com:5555/api/x"]).stdout.contains(unheard));
    for heard in [&["http://shop.example.com:8080/"][..], &["http://h:5555/", "--listener", "web"], &["http://h/"]] {
        assert!(!explain(heard).stdout.contains("no such listener"), "{heard:?}");
    }
    let ended = explain(&["https://shop.example.com/"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("no listener takes https; there are `web` (http, "), "{}", ended.stderr);
}

#[test]
fn a_request_is_explained_by_the_running_program_with_what_is_there_now() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    product.get("/");
    product.expect_metric("equipoise_http_requests_total", &[], 1.0);
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
    let admin = product.address("admin").to_string();
    let ended = command(&["explain", "--admin", &admin, "http://anything/", "--json"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let told: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let cluster = &told["outcome"]["forward"][0];
    assert_eq!(cluster["endpoint"].as_str(), Some(origin.address().to_string().as_str()));
    assert_eq!((cluster["endpoints"][0]["in_flight"].as_u64(), told["generation"].as_u64()), (Some(0), Some(1)));
    let ended = command(&["explain", "--admin", &origin.address().to_string(), "http://anything/"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("is not the admin address of Equipoise"), "{}", ended.stderr);
    let ended = command(&["explain", "--admin", &admin, "anything"]);
    assert_eq!((ended.status.code(), ended.stderr.contains("has no scheme")), (Some(1), true), "{}", ended.stderr);
}
