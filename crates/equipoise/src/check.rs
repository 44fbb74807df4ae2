//! `equipoise check`: all that `run` does before it touches a socket.

use control::Source;
use model::Snapshot;

use crate::cli;
use crate::ending::Ending;

/// Runs the command.
pub(crate) fn check(options: &cli::Check) -> Ending {
    match control::prepare(&Source::File(options.config.clone()), None, 1, proxy::check) {
        Ok(candidate) => {
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
