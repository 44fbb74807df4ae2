//! `equipoise proxy`: a configuration from the command line instead of a file.

use std::path::PathBuf;

use clap::CommandFactory;
use control::Source;
use serde_json::{Value, json};

use crate::cli::{self, TO_MAX};
use crate::ending::Ending;
use crate::run;

/// Runs the command.
pub(crate) fn run(options: &cli::Proxy) -> Ending {
    if options.to.len() > TO_MAX {
        let message = format!("--to takes at most {TO_MAX} endpoints; write a file for more");
        cli::Cli::command().error(clap::error::ErrorKind::TooManyValues, message).exit();
    }
    let source = Source::Text {
        name: "command line".into(),
        text: format!("{:#}\n", configuration(options)),
        base: PathBuf::from("."),
    };
    run::until_a_signal(source, options.workers.count(), None)
}

/// Returns what the command line says, as a file would say it.
fn configuration(options: &cli::Proxy) -> Value {
    let mut listener = json!({ "bind": options.listen.to_string() });
    if options.tcp {
        listener["protocol"] = "tcp".into();
        listener["cluster"] = "to".into();
    }
    if let (Some(chain), Some(key)) = (&options.tls_cert, &options.tls_key) {
        listener["tls"] = json!({ "certificates": [{ "chain": literal(chain), "key": literal(key) }] });
    }
    let mut whole = json!({
        "version": 1,
        "listeners": { "proxy": listener },
        "clusters": { "to": { "balance": options.balance, "endpoints": options.to } },
    });
    if !options.tcp {
        whole["routes"] = json!([{ "cluster": "to" }]);
    }
    if let Some(admin) = options.admin {
        whole["admin"] = json!({ "bind": admin.to_string() });
    }
    whole
}

/// Returns a path as it stands: the configuration would take `${…}` for a variable.
fn literal(path: &std::path::Path) -> String {
    path.to_string_lossy().replace("${", "$${")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use control::Candidate;
    use model::Snapshot;
    use model::snapshot::{Balance, Protocol, TcpTarget};

    use super::*;

    fn options(line: &str) -> cli::Proxy {
        match cli::Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            cli::Command::Proxy(options) => options,
            other => panic!("{other:?}"),
        }
    }

    fn prepared(line: &str) -> Candidate {
        let text = configuration(&options(line)).to_string();
        let source = Source::Text { name: "command line".into(), text, base: ".".into() };
        control::prepare(&source, None, 1, proxy::check).unwrap_or_else(|error| panic!("{error}"))
    }

    fn snapshot(line: &str) -> Snapshot {
        Snapshot::clone(prepared(line).snapshot())
    }

    #[test]
    fn a_command_line_for_http_is_a_good_configuration() {
        let snapshot = snapshot("equipoise proxy --to 127.0.0.1:1 --to [::1]:2 --balance random --listen 127.0.0.1:0");
        assert!(matches!(snapshot.listeners[0].protocol, Protocol::Http(_)));
        assert_eq!((&snapshot.clusters[0].balance, snapshot.clusters[0].endpoints.len()), (&Balance::Random, 2));
        assert_eq!((snapshot.routes.len(), snapshot.admin), (1, None));
    }

    #[test]
    fn every_balancer_that_can_be_named_is_a_good_configuration_by_its_name() {
        for balancer in plan::balance::by_name() {
            let snapshot = snapshot(&format!("equipoise proxy --to 127.0.0.1:1 --balance {}", balancer.name));
            assert_eq!(snapshot.clusters[0].balance.name(), balancer.name);
        }
    }

    #[test]
    fn a_command_line_for_tcp_is_a_good_configuration() {
        let snapshot = snapshot("equipoise proxy --to 127.0.0.1:1 --tcp --admin 127.0.0.1:0");
        let Protocol::Tcp(tcp) = &snapshot.listeners[0].protocol else { panic!() };
        assert_eq!(tcp.target, TcpTarget::Cluster("to".into()));
        assert!(snapshot.routes.is_empty() && snapshot.admin.is_some());
    }

    #[test]
    fn an_admin_address_that_others_can_reach_is_refused() {
        let options = options("equipoise proxy --to 127.0.0.1:1 --admin 0.0.0.0:9900");
        let text = configuration(&options).to_string();
        let source = Source::Text { name: "command line".into(), text, base: ".".into() };
        let refused = control::prepare(&source, None, 1, proxy::check).err().expect("it can be reached from outside");
        assert!(refused.to_string().contains("requires no credentials"), "{refused}");
    }

    #[test]
    fn a_path_is_never_taken_for_a_variable() {
        assert_eq!(literal(Path::new("/a/${HOME}/b$c")), "/a/$${HOME}/b$c");
        let line = "equipoise proxy --to 127.0.0.1:1 --tls-cert ${HOME}.pem --tls-key nowhere.key";
        let text = configuration(&options(line)).to_string();
        let source = Source::Text { name: "command line".into(), text, base: "/nowhere".into() };
        let refused = control::prepare(&source, None, 1, proxy::check).err().unwrap().to_string();
        assert!(refused.contains("/nowhere/${HOME}.pem") && refused.contains("/nowhere/nowhere.key"), "{refused}");
    }
}
