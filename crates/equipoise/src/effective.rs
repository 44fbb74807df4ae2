//! `equipoise config`: prints what a configuration comes to. Nothing runs.

use crate::check::Looked;
use crate::cli;
use crate::ending::Ending;

/// Runs the command.
pub(crate) fn run(options: &cli::Config) -> Ending {
    let looked = Looked::at(options.path(), options.offline);
    match &looked.outcome {
        Ok(candidate) => {
            // Warnings are what `check` is for.
            crate::print(&format!("{:#}\n", candidate.effective()))
        }
        Err(diagnostics) => {
            eprintln!("{}", crate::escape::lines(&diagnostics.to_string()));
            looked.failure()
        }
    }
}
