//! `equipoise check`: all that `run` does before it touches a socket. Warnings fail nothing, unless that is asked for.

mod report;

use std::io;
use std::path::Path;

use config::{Diagnostic, Diagnostics};
use control::{Candidate, Source};
use model::Snapshot;

use crate::cli;
use crate::ending::Ending;

/// What stands for standard input on the command line.
const STDIN: &str = "-";
/// What messages call it.
const STDIN_NAME: &str = "<stdin>";

/// What checking came to.
pub(crate) struct Checked {
    /// Errors and warnings.
    diagnostics: Diagnostics,
    /// What is configured, in one line. `None`: something is wrong.
    summary: Option<String>,
    /// The file as messages call it.
    name: String,
    /// Whether the configuration could be looked at.
    is_read: bool,
}

/// Runs the command.
pub(crate) fn check(options: &cli::Check) -> Ending {
    let checked = checked(options);
    let written = report::write(&checked, options);
    match written {
        Ending::Good => ending(&checked, options.strict),
        cannot_write => cannot_write,
    }
}

fn ending(checked: &Checked, is_strict: bool) -> Ending {
    if !checked.is_read {
        Ending::CannotTell
    } else if checked.summary.is_none() || (is_strict && !checked.diagnostics.warnings.is_empty()) {
        Ending::Bad
    } else {
        Ending::Good
    }
}

/// A configuration that was looked at, but is not to be run.
pub(crate) struct Looked {
    /// What there is, or what is wrong.
    pub(crate) outcome: Result<Candidate, Diagnostics>,
    /// The file as messages call it.
    name: String,
    /// Whether the configuration could be looked at.
    is_read: bool,
}

impl Looked {
    /// Reads a file, or standard input where the path is `-`.
    pub(crate) fn at(path: &Path, is_offline: bool) -> Self {
        let is_stdin = path == Path::new(STDIN);
        let name = if is_stdin { STDIN_NAME.to_owned() } else { path.display().to_string() };
        let source = if is_stdin { stdin() } else { file(path) };
        let (outcome, is_read) = match source {
            Ok(source) => (prepare(&source, is_offline), true),
            Err(message) => (Err(whole(&name, message).into()), false),
        };
        Self { outcome, name, is_read }
    }

    /// Returns the exit of a command that needs a valid configuration.
    pub(crate) fn failure(&self) -> Ending {
        if self.is_read { Ending::Bad } else { Ending::CannotTell }
    }
}

fn checked(options: &cli::Check) -> Checked {
    let Looked { outcome, name, is_read } = Looked::at(options.path(), options.offline);
    let (diagnostics, summary) = match outcome {
        Ok(candidate) => {
            let warnings = candidate.warnings().to_vec();
            (Diagnostics { warnings, ..Diagnostics::default() }, Some(summary(candidate.snapshot())))
        }
        Err(diagnostics) => (diagnostics, None),
    };
    Checked { diagnostics, summary, name, is_read }
}

fn prepare(source: &Source, is_offline: bool) -> Result<Candidate, Diagnostics> {
    if is_offline {
        control::prepare_offline(source, proxy::check)
    } else {
        control::prepare(source, None, 1, proxy::check)
    }
}

/// Returns a file that can be read. What is wrong with its text is found when it is loaded.
fn file(path: &Path) -> Result<Source, String> {
    match config::open_file(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err("cannot be read: there is no such file".to_owned());
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Err("cannot be read: permission denied".to_owned());
        }
        Err(error) => return Err(format!("cannot be read: {error}")),
    }
    match config::read_text(path) {
        Ok(_) => Ok(Source::File(path.to_owned())),
        Err(message) => Err(format!("cannot be read: {message}")),
    }
}

/// Returns standard input. Relative paths in it start at the current folder.
fn stdin() -> Result<Source, String> {
    match config::read_text_from(io::stdin().lock()) {
        Ok(text) => Ok(Source::Text { name: STDIN_NAME.to_owned(), text: text.to_string(), base: "".into() }),
        Err(message) => Err(format!("cannot be read: {message}")),
    }
}

/// Returns an error that concerns a file as a whole.
fn whole(name: &str, message: String) -> Diagnostic {
    Diagnostic {
        file: name.to_owned(),
        line: 0,
        column: 0,
        width: 1,
        line_text: String::new(),
        caret: 0,
        message,
        suggestion: None,
        is_warning: false,
        bond: None,
    }
}

/// Returns what is configured, in one line.
fn summary(snapshot: &Snapshot) -> String {
    let endpoints = snapshot.clusters.iter().map(|cluster| cluster.endpoints.len()).sum();
    let counts = [
        (snapshot.listeners.len(), "listener"),
        (snapshot.routes.len(), "route"),
        (snapshot.clusters.len(), "cluster"),
        (endpoints, "endpoint"),
    ];
    let told = counts.map(|(count, noun)| counted(count, noun));
    told.join(", ")
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
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
