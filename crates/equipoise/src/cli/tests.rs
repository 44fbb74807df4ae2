use clap::CommandFactory;

use super::*;

fn parse(line: &str) -> Result<Command, clap::Error> {
    Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.command)
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_verb_of_ctl_has_an_example_that_is_a_command_line() {
    fn verbs(command: &clap::Command, found: &mut Vec<(String, String)>) {
        for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            found.push((verb.get_name().to_owned(), help));
            verbs(verb, found);
        }
    }
    let mut found = Vec::new();
    let command = Cli::command();
    verbs(command.find_subcommand("ctl").unwrap(), &mut found);
    assert!(found.len() >= 18, "{found:?}");
    for (name, help) in found {
        let lines: Vec<&str> = help.lines().skip(1).collect();
        assert!(!lines.is_empty() && help.starts_with("Example"), "{name}");
        for line in lines {
            let line = line.split(['>', '<']).next().unwrap();
            assert!(line.contains(&name) && parse(line).is_ok(), "{line}");
        }
    }
}

#[test]
fn run_takes_a_file_and_workers() {
    let Ok(Command::Run(run)) = parse("equipoise run -c site.yaml --workers 3") else { panic!() };
    assert_eq!((run.path(), run.workers.count()), (Path::new("site.yaml"), 3));
    let Ok(Command::Run(run)) = parse("equipoise run site.yaml") else { panic!() };
    assert_eq!(run.path(), Path::new("site.yaml"));
    assert!(parse("equipoise run a.yaml -c b.yaml").is_err());
    let Ok(Command::Run(run)) = parse("equipoise run --config site.yaml") else { panic!() };
    assert!((1..=WORKERS_MAX as usize).contains(&run.workers.count()));
    assert!(parse("equipoise run").is_err());
    for workers in ["0", "-1", "1025", "many"] {
        assert!(parse(&format!("equipoise run -c a --workers {workers}")).is_err(), "{workers}");
    }
}

#[test]
fn proxy_takes_several_endpoints_and_refuses_what_is_none() {
    let Ok(Command::Proxy(proxy)) = parse("equipoise proxy --to a:1 --to [::1]:2 --balance round_robin") else {
        panic!()
    };
    assert_eq!((proxy.to, proxy.balance), (vec!["a:1".into(), "[::1]:2".into()], "round_robin".into()));
    assert_eq!(proxy.listen, "127.0.0.1:8080".parse().unwrap());
    let Ok(Command::Proxy(proxy)) = parse("equipoise proxy --to unix:/run/${x}.sock") else { panic!() };
    assert_eq!(proxy.to, ["unix:/run/$${x}.sock"]);
    for (url, wanted) in
        [("http://a:1", "a:1"), ("HTTP://a/", "a:80"), ("http://[::1]", "[::1]:80"), ("http://[::1]:2", "[::1]:2")]
    {
        assert_eq!(endpoint(url).as_deref(), Ok(wanted));
    }
    let told = |url: &str| endpoint(url).unwrap_err();
    assert_eq!(
        told("http://127.0.0.1/api"),
        "an endpoint has no path: write 127.0.0.1:80; in a file, the filter `rewrite` changes the paths of requests"
    );
    assert_eq!(told("ftp://a:1"), "`ftp://a:1` is no endpoint: write host:port, such as 127.0.0.1:9001");
    assert!(told("https://a.example").contains("`endpoints: [\"a.example:443\"]` and `tls: true`"));
    for bad in ["a", "a:", ":1", "a:0", "a:65536", "::1:80", "a:b", "http://", "http://:80", "http://::1"] {
        assert!(parse(&format!("equipoise proxy --to {bad}")).is_err(), "{bad}");
    }
    assert!(parse("equipoise proxy").is_err());
}

#[test]
fn a_certificate_needs_its_key_and_the_other_way_round() {
    assert!(parse("equipoise proxy --to a:1 --tls-cert a").is_err());
    assert!(parse("equipoise proxy --to a:1 --tls-key a").is_err());
    assert!(parse("equipoise proxy --to a:1 --tls-cert a --tls-key b").is_ok());
    assert!(parse("equipoise proxy --to a:1 --tls-cert a --tls-key b --tcp").is_err());
}

#[test]
fn explain_takes_a_request_and_asks_either_a_file_or_a_running_program() {
    let line = "equipoise explain -c a.yaml http://b/ -H x:1 -H y: --client ::1";
    let Ok(Command::Explain(explain)) = parse(line) else { panic!() };
    assert_eq!(explain.fields, [("x".into(), "1".into()), ("y".into(), String::new())]);
    assert_eq!((explain.request.as_str(), explain.client), ("http://b/", "::1".parse().unwrap()));
    for admin in ["127.0.0.1:9900", "http://127.0.0.1:9900/"] {
        assert!(parse(&format!("equipoise explain --admin {admin} http://b/")).is_ok());
    }
    for bad in ["-c a.yaml", "-c a --admin 127.0.0.1:1 http://b/", "-c a http://b/ -H x", "--admin nowhere http://b/"] {
        assert!(parse(&format!("equipoise explain {bad}")).is_err(), "{bad}");
    }
}

#[test]
fn check_takes_one_file_in_either_way() {
    for line in ["check a.yaml", "check -c a.yaml", "check --config a.yaml --strict --offline --format json"] {
        let Ok(Command::Check(check)) = parse(&format!("equipoise {line}")) else { panic!("{line}") };
        assert_eq!(check.path(), Path::new("a.yaml"));
    }
    let Ok(Command::Check(check)) = parse("equipoise check -") else { panic!() };
    assert_eq!((check.path(), check.format), (Path::new("-"), CheckFormat::Text));
    for bad in ["check", "check a.yaml b.yaml", "check a.yaml -c b.yaml", "check a.yaml --format xml"] {
        assert!(parse(&format!("equipoise {bad}")).is_err(), "{bad}");
    }
}

#[test]
fn config_is_asked_for_in_its_form() {
    let Ok(Command::Config(config)) = parse("equipoise config --effective a.yaml") else { panic!() };
    assert_eq!((config.path(), config.offline), (Path::new("a.yaml"), false));
    let Ok(Command::Config(config)) = parse("equipoise config --effective -c a.yaml") else { panic!() };
    assert_eq!(config.path(), Path::new("a.yaml"));
    for bad in ["config a.yaml", "config --effective", "config --effective a.yaml b.yaml"] {
        assert!(parse(&format!("equipoise {bad}")).is_err(), "{bad}");
    }
}

#[test]
fn demo_takes_a_time() {
    let Ok(Command::Demo(demo)) = parse("equipoise demo --for 250ms") else { panic!() };
    assert_eq!(demo.load_for, Some(Duration::from_millis(250)));
    for bad in ["", "5", "s", "0s", "-1s", "5h", "61m", "99999999999999999999s", "5 s", "é"] {
        assert!(duration(bad).is_err(), "{bad:?}");
    }
    assert_eq!(duration("60m"), Ok(Duration::from_secs(3600)));
}

#[test]
fn the_help_has_examples_and_the_exit_codes_and_hides_what_is_for_developers() {
    let help = Cli::command().render_long_help().to_string();
    for wanted in ["equipoise demo", "SIGHUP", "Exit codes", "check"] {
        assert!(help.contains(wanted), "{wanted}");
    }
    assert!(!help.contains("  reference"), "{help}");
}
