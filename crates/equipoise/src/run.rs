//! `equipoise run`: a configuration file, until a signal ends it.

use control::Source;

use crate::cli;
use crate::ending::Ending;
use crate::live::{self, Live};

/// Runs the command.
pub(crate) fn run(options: &cli::Run) -> Ending {
    until_a_signal(Source::File(options.config.clone()), options.workers.count())
}

/// Runs a configuration from start to end.
pub(crate) fn until_a_signal(source: Source, workers: usize) -> Ending {
    live::block_on(|mut signals| async move {
        let mut live = match Live::start(source, workers) {
            Ok(live) => live,
            Err(ending) => return ending,
        };
        live.announce();
        live.serve(&mut signals).await;
        live.end(&mut signals).await
    })
}
