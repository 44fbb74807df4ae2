//! `equipoise proxy`: a configuration from the command line instead of a file.

use std::path::PathBuf;

use control::Source;
use serde_json::{Value, json};

use crate::cli::{self, TO_MAX};
use crate::ending::Ending;
use crate::run;

/// Runs the command.
pub(crate) fn run(options: &cli::Proxy) -> Ending {
    if options.to.len() > TO_MAX {
        eprintln!("equipoise: --to takes at most {TO_MAX} endpoints; write a file for more");
        return Ending::Bad;
    }
    let source = Source::Text {
        name: "command line".into(),
        text: format!("{:#}\n", configuration(options)),
        base: PathBuf::from("."),
    };
    run::until_a_signal(source, options.workers.count())
}

/// What the command line says, as a file would say it.
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
        "listeners": { "listen": listener },
        "clusters": { "to": { "balance": options.balance.as_str(), "endpoints": options.to } },
    });
    if !options.tcp {
        whole["routes"] = json!([{ "cluster": "to" }]);
    }
    if let Some(admin) = options.admin {
        // Whoever types an address that others can reach means it.
        whole["admin"] = json!({ "bind": admin.to_string(), "allow_remote": !admin.ip().is_loopback() });
    }
    whole
}

/// A path as it stands: the configuration would take `${…}` for a variable.
fn literal(path: &std::path::Path) -> String {
    path.to_string_lossy().replace("${", "$${")
}
