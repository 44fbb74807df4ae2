//! `equipoise check`: all that `run` does before it touches a socket. Warnings are told, and fail nothing.

use control::Source;
use model::Snapshot;

use crate::cli;
use crate::ending::Ending;

/// Runs the command.
pub(crate) fn check(options: &cli::Check) -> Ending {
    match control::prepare(&Source::File(options.config.clone()), None, 1, proxy::check) {
        Ok(candidate) => {
            for warning in candidate.warnings() {
                eprintln!("{warning}\n");
            }
            crate::print(&format!("{} is good: {}\n", options.config.display(), summary(candidate.snapshot())))
        }
        Err(diagnostics) => {
            eprintln!("{diagnostics}");
            Ending::Bad
        }
    }
}

/// What is configured, in one line.
fn summary(snapshot: &Snapshot) -> String {
    let endpoints = snapshot.clusters.iter().map(|cluster| cluster.endpoints.len()).sum();
    let counts = [
        (snapshot.listeners.len(), "listener"),
        (snapshot.routes.len(), "route"),
        (snapshot.clusters.len(), "cluster"),
        (endpoints, "endpoint"),
    ];
    let told = counts.map(|(count, noun)| format!("{count} {noun}{}", if count == 1 { "" } else { "s" }));
    told.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_summary_counts_what_is_configured() {
        let text = "version: 1\nlisteners: { web: { bind: \"127.0.0.1:0\" } }\nroutes: [{ cluster: a }]\n\
                    clusters: { a: { endpoints: [\"127.0.0.1:1\", \"127.0.0.1:2\"] } }\n";
        let source = Source::Text { name: "test".into(), text: text.into(), base: ".".into() };
        let candidate = control::prepare(&source, None, 1, proxy::check).unwrap_or_else(|error| panic!("{error}"));
        let snapshot = Arc::clone(candidate.snapshot());
        assert_eq!(summary(&snapshot), "1 listener, 1 route, 1 cluster, 2 endpoints");
    }
}
