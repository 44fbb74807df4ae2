//! The program: command line, wiring, signals. The only crate that sees both `proxy` and `control`.
//!
//! It refuses to know what a configuration means or how traffic is carried. Start reading at [`live`], which every
//! command that proxies goes through.

mod adhoc;
mod check;
mod cli;
mod client;
mod ctl;
mod demo;
mod effective;
mod ending;
mod escape;
mod explain;
mod limits;
mod live;
mod memory;
mod pid_file;
mod reference;
mod run;
mod signals;
mod systemd;
mod upgrade;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::cli::{Cli, Command, Shell};
use crate::ending::Ending;

#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::Allocator;

fn main() -> ExitCode {
    memory::take_small_pages();
    memory::keep_freed_tables();
    if upgrade::is_to_follow() {
        // The process before carries traffic on the same cores.
        limits::take_long_turns(true);
    }
    let ending = match Cli::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Check(options) => check::check(&options),
        Command::Config(options) => effective::run(&options),
        Command::Explain(options) => explain::run(&options),
        Command::Proxy(options) => adhoc::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::Ctl(options) => ctl::run(&options),
        Command::Completion(options) => completion(options.shell),
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

fn completion(shell: Shell) -> Ending {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "equipoise", &mut out);
    print(&String::from_utf8_lossy(&out))
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
