//! `equipoise run`: a configuration file, until a signal ends it.

use std::path::PathBuf;

use control::Source;

use crate::cli;
use crate::ending::Ending;
use crate::live::{self, After, Live};
use crate::pid_file::PidFile;
use crate::systemd;
use crate::upgrade::Program;

/// Runs the command.
pub(crate) fn run(options: &cli::Run) -> Ending {
    until_a_signal(Source::File(options.path().to_owned()), options.workers.count(), options.pid_file.clone())
}

/// Runs a configuration from start to end.
pub(crate) fn until_a_signal(source: Source, workers: usize, pid_file: Option<PathBuf>) -> Ending {
    // Before anyone replaces the file.
    let program = Program::of_this_process();
    live::block_on(|mut signals| async move {
        let mut live = match Live::start(source, workers) {
            Ok(live) => live,
            Err(ending) => return ending,
        };
        live.may_be_followed_by(program);
        live.announce();
        live.tell_ready();
        let _pid_file = pid_file.map(PidFile::write);
        match live.serve(&mut signals).await {
            After::Shutdown => {
                systemd::stopping();
                live.end(&mut signals).await
            }
            After::Followed(successor) => live.retire(&successor, &mut signals).await,
        }
    })
}
