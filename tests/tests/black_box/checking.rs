//! `check`: where the configuration comes from, in which form the outcome is written, and how it ends.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::harness::product::{Ended, command_in, executable, folder};
use super::harness::{Origin, Setup};

/// Good, with one warning in line 8.
const ODD: &str = "\
version: 1
listeners:
  web: { bind: \"127.0.0.1:8080\" }
routes:
  - cluster: site
clusters:
  site: { endpoints: [\"127.0.0.1:9001\"] }
  idle: { endpoints: [\"127.0.0.1:9002\"] }
";

/// Two mistakes and one warning.
const WRONG: &str = "\
version: 1
listeners:
  web: { bind: \"127.0.0.1:8080\" }
routes:
  - { cluster: sites }
  - { cluster: site, listeners: [wep] }
clusters:
  site: { endpoints: [\"127.0.0.1:9001\"] }
admin: { bind: \"unix:/run/none.sock\", mode: \"0666\" }
";

fn written(text: &str) -> tempfile::TempDir {
    let folder = folder();
    std::fs::write(folder.path().join("site.yaml"), text).expect("our folder");
    folder
}

fn check(text: &str, options: &[&str]) -> Ended {
    let arguments: Vec<&str> = ["check", "site.yaml"].iter().chain(options).copied().collect();
    command_in(written(text).path(), &arguments)
}

/// With a text on standard input, in a folder.
fn check_stdin(folder: &Path, text: &[u8], options: &[&str]) -> Ended {
    let mut child = Command::new(executable())
        .args(["check", "-"])
        .args(options)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the product starts");
    // One that has seen enough need not read the rest.
    let _ = child.stdin.take().expect("a pipe").write_all(text);
    let output = child.wait_with_output().expect("the product ends");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn json_of(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", ended.stdout, ended.stderr))
}

#[test]
fn the_file_is_named_in_either_way_or_comes_by_standard_input() {
    let folder = written(ODD);
    let good = "is valid: 1 listener, 1 route, 2 clusters, 2 endpoints; 1 warning\n";
    for arguments in [&["check", "site.yaml"][..], &["check", "-c", "site.yaml"], &["check", "--config", "site.yaml"]] {
        let ended = command_in(folder.path(), arguments);
        assert_eq!((ended.status.code(), ended.stdout), (Some(0), format!("site.yaml {good}")), "{arguments:?}");
    }
    let ended = check_stdin(folder.path(), ODD.as_bytes(), &[]);
    assert_eq!((ended.status.code(), ended.stdout), (Some(0), format!("<stdin> {good}")));
    assert!(ended.stderr.starts_with("<stdin>:8:3: warning: "), "{}", ended.stderr);
    // Paths in it start at the current folder.
    std::fs::write(folder.path().join("more.yaml"), "clusters: { more: { endpoints: [\"127.0.0.1:1\"] } }").unwrap();
    let ended = check_stdin(folder.path(), format!("{ODD}include: more.yaml\n").as_bytes(), &[]);
    assert!(ended.stdout.contains("3 clusters"), "{}{}", ended.stdout, ended.stderr);
    for bad in [&["check"][..], &["check", "site.yaml", "-c", "site.yaml"], &["check", "site.yaml", "--format", "xml"]]
    {
        assert_eq!(command_in(folder.path(), bad).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn providers_of_a_text_from_standard_input_are_asked_as_those_of_a_file_are() {
    let folder = folder();
    std::fs::write(folder.path().join("given.yaml"), "clusters: { site: { endpoints: [\"127.0.0.1:1\"] } }").unwrap();
    let text = "version: 1\nlisteners: { web: { bind: \"127.0.0.1:8080\" } }\nroutes: [{ cluster: site }]\n\
                providers: { fleet: { file: { path: given.yaml } } }\n";
    let ended = check_stdin(folder.path(), text.as_bytes(), &[]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
}

#[test]
fn warnings_are_shown_and_counted_apart_from_problems() {
    let ended = check(WRONG, &[]);
    assert_eq!(ended.status.code(), Some(1));
    let place = |text: &str| ended.stderr.find(text).unwrap_or_else(|| panic!("{text} in:\n{}", ended.stderr));
    let order = [
        "site.yaml:5:16: there is no cluster `sites`",
        "site.yaml:6:34: there is no listener `wep`",
        "site.yaml:9:45: warning: every user of this machine",
        "2 problems, 1 warning\n",
    ];
    assert!(order.map(place).is_sorted(), "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

#[test]
fn warnings_fail_only_where_that_is_asked_for() {
    assert_eq!(check(ODD, &[]).status.code(), Some(0));
    let strict = check(ODD, &["--strict"]);
    assert_eq!((strict.status.code(), strict.stdout.as_str()), (Some(1), ""));
    assert!(strict.stderr.ends_with("1 warning, which `--strict` counts as an error\n"), "{}", strict.stderr);
    for format in ["json", "github"] {
        assert_eq!(check(ODD, &["--format", format]).status.code(), Some(0), "{format}");
        assert_eq!(check(ODD, &["--strict", "--format", format]).status.code(), Some(1), "{format}");
    }
    let good = Setup::to(&Origin::saying("x")).text().replace("DIR/", "");
    assert_eq!(check(&good, &["--strict"]).status.code(), Some(0));
}

#[test]
fn json_is_an_array_of_what_is_wrong_and_what_is_odd() {
    let ended = check(WRONG, &["--format", "json"]);
    let told = json_of(&ended);
    assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(1), ""));
    let first = json!({ "file": "site.yaml", "line": 5, "column": 16, "severity": "error",
                        "message": "there is no cluster `sites`", "help": "did you mean `site`?" });
    assert_eq!((told.as_array().map(Vec::len), &told[0]), (Some(3), &first), "{told}");
    assert_eq!((&told[2]["severity"], &told[2]["line"]), (&json!("warning"), &json!(9)));
    let good = Setup::to(&Origin::saying("x")).text().replace("DIR/", "");
    let ended = check(&good, &["--format", "json"]);
    assert_eq!((ended.status.code(), json_of(&ended)), (Some(0), json!([])), "{}", ended.stderr);
    let folder = folder();
    let ended = command_in(folder.path(), &["check", "gone.yaml", "--format", "json"]);
    let gone = json!([{ "file": "gone.yaml", "line": 0, "column": 0, "severity": "error",
                        "message": "cannot be read: there is no such file", "help": null }]);
    assert_eq!((ended.status.code(), json_of(&ended)), (Some(2), gone));
}

#[test]
fn workflow_commands_stand_one_on_each_line_whatever_is_in_the_file() {
    let ended = check(WRONG, &["--format", "github"]);
    let first = "::error file=site.yaml,line=5,col=16::there is no cluster `sites`%0Ahelp: did you mean `site`?";
    assert_eq!((ended.status.code(), ended.stdout.lines().next()), (Some(1), Some(first)));
    assert!(ended.stdout.contains("\n::warning file=site.yaml,line=9,col=45::"), "{}", ended.stdout);
    // Neither a name nor a value of the file makes a command of its own, nor ends a property.
    let folder = folder();
    let name = "a,line=9:100%.yaml";
    let text = ODD.replace("cluster: site\n", "cluster: \"x\\n::error file=b::\\r100%25\"\n");
    std::fs::write(folder.path().join(name), text).expect("our folder");
    let ended = command_in(folder.path(), &["check", name, "--format", "github"]);
    let commands: Vec<&str> = ended.stdout.lines().collect();
    assert!(commands[0].starts_with("::error file=a%2Cline=9%3A100%25.yaml,line=5,col="), "{commands:?}");
    assert!(commands[0].contains("100%2525"), "{commands:?}");
    assert!(commands.iter().all(|line| line.starts_with("::error ") || line.starts_with("::warning ")), "{commands:?}");
    assert!(!ended.stdout.contains('\r'));
}

#[test]
fn what_cannot_be_read_is_told_apart_from_what_is_wrong() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("folder.yaml")).expect("our folder");
    for (name, why) in [("gone.yaml", "there is no such file"), ("folder.yaml", "it is not a file")] {
        let ended = command_in(folder.path(), &["check", name]);
        let wanted = format!("{name}: cannot be read: {why}\n\n1 problem\n");
        assert_eq!((ended.status.code(), ended.stderr), (Some(2), wanted));
    }
    let large = vec![b'#'; 17 << 20];
    for (wrong, code) in [(&b"\xff\xfe\0"[..], 2), (b"", 1), (b"- 1\n", 1), (&large, 2)] {
        let ended = check_stdin(folder.path(), wrong, &[]);
        assert_eq!(ended.status.code(), Some(code), "{}", ended.stderr);
        assert!(ended.stderr.starts_with("<stdin>: ") || ended.stderr.starts_with("<stdin>:1:"), "{}", ended.stderr);
    }
}

#[test]
fn offline_what_is_on_another_machine_is_a_warning() {
    let text = "\
version: 1
listeners:
  web:
    bind: \"127.0.0.1:8443\"
    http_versions: [h1, h2, h3]
    tls: { certificates: [{ chain: no/site.pem, key: no/site.key }], client: { mode: required, authorities: no/ca.pem } }
    address_list: { deny_files: [no/denied.txt] }
  other: { bind: \"127.0.0.1:8080\" }
routes:
  - { listeners: [web], cluster: site, filters: [{ basic_auth: { realm: x, file: no/users } }] }
  - { listeners: [other], cluster: site }
clusters:
  site:
    endpoints: [\"app-1.no-such-name.invalid:80\", \"app-2.no-such-name.invalid:80\"]
    tls: { authorities: no/ca.pem, certificate: { chain: no/me.pem, key: no/me.key } }
    persistence: { cookie: { name: s, secret: { file: no/secret } } }
admin: { bind: \"127.0.0.1:9900\", state: no/state, tokens: [{ name: a, role: read, token: { file: no/t1 } }, { name: b, role: admin, token: { file: no/t2 } }] }
access_logs: [{ path: no/access.log }]
";
    let here = check(text, &["--format", "json"]);
    assert_eq!(here.status.code(), Some(1), "{}", here.stdout);
    let there = check(text, &["--format", "json", "--offline"]);
    assert_eq!(there.status.code(), Some(0), "{}", there.stdout);
    let count =
        |told: &Value, of: &str| told.as_array().expect("an array").iter().filter(|one| one["severity"] == of).count();
    let (here, there) = (json_of(&here), json_of(&there));
    // That the folder of a log is not there is looked at when nothing else is wrong.
    assert_eq!(count(&here, "error"), 14, "{here:#}");
    assert_eq!((count(&there, "error"), count(&there, "warning")), (0, 15), "{there:#}");
    assert_eq!(check(text, &["--offline", "--strict"]).status.code(), Some(1));
    // What is wrong is wrong everywhere.
    for (from, to, wanted) in [
        ("app-2.no", "app-1.no", "is listed twice"),
        ("cluster: site }", "cluster: sites }", "there is no cluster `sites`"),
        ("no/site.pem", "site.yaml", "it is not PEM"),
        ("version: 1", "version: 1\ninclude: no.yaml", "cannot include `no.yaml`"),
    ] {
        let ended = check(&text.replacen(from, to, 1), &["--offline"]);
        assert_eq!(ended.status.code(), Some(1), "{wanted}");
        assert!(ended.stderr.contains(wanted), "{wanted} in:\n{}", ended.stderr);
    }
}

/// With defaults, a secret, a variable and an unused default.
const SPARSE: &str = "\
version: 1
defaults:
  listeners: { timeouts: { head: 3s }, connections_max: 77 }
  clusters: { timeouts: { connect: 1s }, balance: random }
listeners:
  web: { bind: \"127.0.0.1:8080\", connections_max: 5 }
  line: { bind: \"127.0.0.1:8081\", protocol: tcp, cluster: site }
routes:
  - { cluster: site, filters: [{ set_request_header: { authorization: \"Basic Zm9v\", x-port: \"${NO_SUCH_PORT:-90}\" } }] }
clusters:
  site: { endpoints: [\"127.0.0.1:9001\"], timeouts: { idle: 9s } }
";

#[test]
fn a_configuration_is_printed_with_all_that_it_leaves_out_and_without_secrets() {
    let folder = written(SPARSE);
    let ended = command_in(folder.path(), &["config", "--effective", "site.yaml"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let all = json_of(&ended);
    let (web, line, site) = (&all["listeners"]["web"], &all["listeners"]["line"], &all["clusters"]["site"]);
    assert_eq!((&web["connections_max"], &web["timeouts"]["head"]), (&json!(5), &json!("3s")));
    assert_eq!((&line["connections_max"], &line["timeouts"]), (&json!(77), &Value::Null), "it speaks no HTTP");
    assert_eq!((&site["balance"], &site["timeouts"]["connect"]), (&json!("random"), &json!("1s")));
    assert_eq!(site["timeouts"]["idle"], "9s");
    assert!(site["timeouts"]["response_head"].is_string() && site["pool"].is_object(), "{site}");
    let fields = &all["routes"][0]["filters"][0]["set_request_header"];
    assert_eq!((&fields["authorization"], &fields["x-port"]), (&json!("(hidden)"), &json!("${NO_SUCH_PORT:-90}")));
    // What is printed is a configuration, and comes to the same.
    let again = all.to_string().replace("(hidden)", "Basic Zm9v");
    std::fs::write(folder.path().join("again.json"), again).expect("our folder");
    let again = command_in(folder.path(), &["config", "--effective", "again.json"]);
    assert_eq!((again.status.code(), again.stdout), (Some(0), ended.stdout), "{}", again.stderr);
}

#[test]
fn a_configuration_that_is_wrong_or_absent_is_not_printed() {
    let folder = written(WRONG);
    for (arguments, code, told) in [
        (&["config", "--effective", "site.yaml"][..], 1, "site.yaml:5:16: "),
        (&["config", "--effective", "none.yaml"], 2, "none.yaml: cannot be read: there is no such file"),
        (&["config", "site.yaml"], 2, "--effective"),
    ] {
        let ended = command_in(folder.path(), arguments);
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(code), ""), "{arguments:?}");
        assert!(ended.stderr.contains(told), "{arguments:?}: {}", ended.stderr);
    }
    let help = command_in(folder.path(), &["config", "--help"]).stdout;
    assert!(help.contains("equipoise config --effective site.yaml"), "{help}");
}

#[test]
fn the_help_says_how_it_is_used_and_how_it_ends() {
    let ended = command_in(folder().path(), &["check", "--help"]);
    for wanted in
        ["equipoise check -", "--offline", "--strict", "--format github", "\nwith 2 when", "severity  \"error\""]
    {
        assert!(ended.stdout.contains(wanted), "{wanted} in:\n{}", ended.stdout);
    }
}

/// Runs with the admin address in the environment.
fn with_admin(folder: &Path, admin: &str, arguments: &[&str]) -> Ended {
    let output = Command::new(executable())
        .args(arguments)
        .current_dir(folder)
        .env("EQUIPOISE_ADMIN", admin)
        .stdin(Stdio::null())
        .output()
        .expect("the product runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[test]
fn explain_asks_the_program_that_the_environment_names_unless_a_file_is_named() {
    let product = Setup::to(&Origin::saying("x")).start();
    let admin = product.address("admin").to_string();
    let explain = |admin: &str, more: &[&str]| {
        let arguments: Vec<&str> = ["explain", "http://a/", "--listener", "web"].iter().chain(more).copied().collect();
        with_admin(product.folder(), admin, &arguments)
    };
    let ended = explain(&admin, &["--json"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let told: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(told["generation"], 1, "the running program has answered: {told}");
    std::fs::write(product.folder().join("other.yaml"), ODD).expect("our folder");
    let ended = explain("127.0.0.1:1", &["-c", "other.yaml"]);
    assert_eq!(ended.status.code(), Some(0), "the file was asked: {}", ended.stderr);
    let ended = explain("127.0.0.1:1", &["--admin", &admin]);
    assert_eq!(ended.status.code(), Some(0), "the address was asked: {}", ended.stderr);
    for (admin, wanted) in [("", "EQUIPOISE_ADMIN"), ("nowhere", "EQUIPOISE_ADMIN: an admin address is host:port")] {
        let ended = explain(admin, &[]);
        assert_eq!(ended.status.code(), Some(2), "{admin:?}");
        assert!(ended.stderr.contains(wanted), "{}", ended.stderr);
    }
}

#[test]
fn ctl_names_the_file_that_is_wrong() {
    let product = Setup::to(&Origin::saying("x")).start();
    let admin = product.address("admin").to_string();
    let wrong = "endpoints: [\"127.0.0.1:1\"]\nbalanse: random\n";
    std::fs::write(product.folder().join("wrong.yaml"), wrong).expect("our folder");
    std::fs::write(product.folder().join("all.yaml"), WRONG).expect("our folder");
    for (arguments, wanted) in [
        (&["ctl", "config", "put", "all.yaml"][..], "\nall.yaml:5:16: there is no cluster `sites`"),
        (&["ctl", "config", "set", "cluster", "site", "wrong.yaml"], "\nwrong.yaml:2:1: unknown key `balanse`"),
    ] {
        let ended = with_admin(product.folder(), &admin, arguments);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stdout);
        assert!(ended.stderr.contains(wanted) && !ended.stderr.contains("request:"), "{}", ended.stderr);
    }
}

#[test]
fn what_is_no_text_cannot_be_read_and_every_command_takes_the_file_in_both_ways() {
    let folder = folder();
    std::fs::write(folder.path().join("bad.yaml"), b"version: 1\n\xff\n").expect("our folder");
    let command = |arguments: &[&str]| command_in(folder.path(), arguments);
    for arguments in [&["check", "bad.yaml"][..], &["config", "--effective", "-c", "bad.yaml"]] {
        let ended = command(arguments);
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("it is not UTF-8: the first bad byte is in line 2"), "{}", ended.stderr);
    }
    assert_eq!(check_stdin(folder.path(), b"\xff", &[]).status.code(), Some(2));
    for arguments in [&["run", "bad.yaml"][..], &["run", "-c", "bad.yaml"]] {
        let ended = command(arguments);
        assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("bad.yaml: cannot be read"), "{}", ended.stderr);
    }
    std::fs::write(folder.path().join("good.yaml"), ODD).expect("our folder");
    let printed = |arguments: &[&str]| command(arguments).stdout;
    let printed =
        [&["config", "--effective", "good.yaml"][..], &["config", "--effective", "-c", "good.yaml"]].map(printed);
    assert!(printed[0] == printed[1] && printed[0].contains("clusters"), "{printed:?}");
}

#[test]
fn a_value_in_another_form_is_told_with_the_form_that_was_meant() {
    let check = |filter: &str| {
        let folder = folder();
        let text = format!(
            "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\nroutes:\n  - filters: [{{ {filter} }}]\n    respond: {{ status: 200 }}\n"
        );
        std::fs::write(folder.path().join("check.yaml"), text).expect("our folder");
        command_in(folder.path(), &["check", "check.yaml"]).stderr
    };
    for (filter, told, mend) in [
        ("rate_limit: { rate: 1/s, key: request.user }", "`key` must be", "write `{ expression: 'request.user' }`"),
        (
            "rate_limit: { rate: 1/s, key: 'jwt.claims[\"sub\"]' }",
            "`key` must be",
            "write `{ expression: 'jwt.claims[\"sub\"]' }`",
        ),
        ("rate_limit: { rate: 1/s, key: x-api-key }", "`key` must be", "write `{ header: x-api-key }`"),
        (
            "bandwidth_limit: { download: 1kB/s, per: key, key: request.user }",
            "`key` must be",
            "write `{ expression: 'request.user' }`",
        ),
        (
            "rate_limit: { rate: 1/s, over: { delay, tarpit } }",
            "`delay` and `tarpit` exclude each other",
            "keep one of them",
        ),
        (
            "rate_limit: { rate: 1/s, over: { delay: 1s, tarpit: 2s } }",
            "`delay` and `tarpit` exclude each other",
            "keep one of them",
        ),
        ("rate_limit: { rate: 1/s, over: { dely: 1s } }", "unknown key `dely`", "did you mean `delay`?"),
        ("rate_limit: { rate: 1/s, over: {} }", "needs one of `delay` or `tarpit`", ""),
        ("rate_limit: { rate: 1/s, over: tarpitt }", "`over` must be", "write `{ tarpit: 10s }`"),
        ("rate_limit: { rate: 1/s, over: delay }", "`over` must be", "write `{ delay: 10s }`"),
        ("rate_limit: { rate: 1/s, over: wait }", "`over` must be", "write `{ delay: 10s }` or `{ tarpit: 10s }`"),
        ("rate_limit: { rate: 1/s, over: clos }", "`over` must be", "did you mean `close`?"),
        ("fault: { bandwidth: 10kB/s }", "`bandwidth` must be a map", "write `{ rate: 10kB/s }`"),
        ("fault: { delay: 10ms }", "`delay` must be a map", "write `{ time: 10ms }`"),
        ("fault: { abort: 503 }", "`abort` must be a map", "write `{ status: 503 }`"),
    ] {
        let said = check(filter);
        assert!(said.contains(told) && said.contains(mend) && said.contains("check.yaml:4:"), "{filter}: {said}");
        assert!(said.contains("\n1 problem"), "{filter}: {said}");
    }
}

#[test]
fn a_filter_that_a_cache_goes_past_is_warned_of() {
    let of = |filters: &str| {
        let text =
            ODD.replace("  idle: { endpoints: [\"127.0.0.1:9002\"] }\n", "caches: { pages: { memory: 8MiB } }\n");
        check(&text.replace("cluster: site", &format!("cluster: site\n    filters: [{filters}]")), &[])
    };
    let (cache, guard) = ("{ cache: { store: pages } }", "{ address_list: { allow: [\"10.0.0.0/8\"] } }");
    let good = of(&format!("{guard}, {cache}"));
    assert!(good.status.success() && !good.stderr.contains("stored"), "{}", good.stderr);
    let bad = of(&format!("{cache}, {guard}"));
    assert!(bad.status.success(), "{}", bad.stderr);
    assert!(
        bad.stderr.contains("`address_list` stands behind `cache`: it does not protect stored responses"),
        "{}",
        bad.stderr
    );
    assert!(bad.stderr.contains("list `address_list` before `cache`"), "{}", bad.stderr);
}

#[test]
fn keys_of_other_products_in_a_filter_name_what_the_filter_has() {
    let check = |filter: &str| {
        let origin = Origin::saying("in");
        let text = Setup::to(&origin).top("caches: { pages: {} }").route(format!("filters: [{{ {filter} }}]")).text();
        let own = folder();
        std::fs::write(own.path().join("check.yaml"), text.replace("DIR", "/tmp")).expect("our folder");
        command_in(own.path(), &["check", "-c", "check.yaml"]).stderr
    };
    for (filter, wanted) in [
        ("cache: { store: pages, valid: { 200: 10m } }", "`ttl: { \"200\": 10m, any: 1m }`"),
        ("cache: { store: pages, ttl: 10m }", "`ttl: { any: 10m }`"),
        ("cache: { store: pages, key: \"$uri\" }", "`key: { only: [id] }`"),
        ("cache: { cache: pages }", "write `store: NAME`"),
        ("mirror: { to: site }", "write `cluster: NAME`"),
        ("mirror: { cluster: site, percent: 10 }", "write `share: 10%`"),
        ("compress: { min_length: 1k }", "write `size_min: 1KiB`"),
        ("compress: { mime_types: [text/html] }", "write `types: [text/html, application/json]`"),
        ("files: { directory: /srv }", "write `root: /srv/www`"),
        ("files: { alias: /srv }", "write `root: /srv/www`"),
        ("files: { path: /srv }", "write `root: /srv/www`"),
    ] {
        let told = check(filter);
        assert!(told.contains(wanted), "{filter}: {told}");
    }
    // What is suggested is right.
    for filter in [
        "cache: { store: pages, ttl: { any: 10m }, key: { only: [id] } }",
        "cache: { store: pages, ttl: { \"200\": 10m, any: 1m }, stale_if_error: 1h }",
        "cache: { store: pages, key: { add: [{ expression: 'request.headers[\"accept-language\"]' }] } }",
        "mirror: { cluster: site, share: 10% }",
        "compress: { size_min: 1KiB, types: [text/html, application/json], levels: { gzip: 5 }, algorithms: [br, gzip] }",
    ] {
        assert_eq!(check(filter), "", "{filter}");
    }
}
