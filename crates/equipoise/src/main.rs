//! The program: command line, wiring, signals. The only crate that sees both `proxy` and `control`.
//!
//! It refuses to know what a configuration means or how traffic is carried. Start reading at [`live`], which every
//! command that proxies goes through.

mod check;
mod cli;
mod demo;
mod ending;
mod explain;
mod limits;
mod live;
mod quick;
mod reference;
mod run;
mod signals;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::ending::Ending;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let ending = match Cli::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Check(options) => check::check(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Proxy(options) => quick::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Schema => schema(),
        Command::Version => print(&format!("equipoise {}\n", env!("CARGO_PKG_VERSION"))),
        Command::Reference(options) => reference::run(&options),
    };
    ending.into()
}

fn schema() -> Ending {
    let schema = config::schema(&plan::filter::specs());
    print(&format!("{schema:#}\n"))
}

/// Writes data to standard output. That its reader went away early, as `head` does, is not a failure.
fn print(text: &str) -> Ending {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("equipoise: cannot write to standard output: {error}");
            Ending::CannotStart
        }
        _ => Ending::Good,
    }
}
