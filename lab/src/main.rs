//! The lab measures Equipoise beside other load balancers, on one machine, with one method.
//!
//! It knows the product only as an executable. Start reading at [`cost`] (the study), then [`measure`] (the method);
//! [`products`] says how each product is run, [`net`] holds the lab's own small programs, and `README.md` the traps.

mod certificate;
mod conformance;
mod cost;
mod failure;
mod generators;
mod measure;
mod net;
mod paths;
mod peers;
mod policy;
mod products;
mod report;
mod study;
mod sys;
mod template;

use clap::{Parser, Subcommand};
use failure::Failure;
use paths::Paths;
use peers::Wanted;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Measures Equipoise beside other load balancers
#[derive(Parser)]
#[command(name = "lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// CPU time, latency and memory of every product, side by side
    Cost(cost::CostArgs),
    /// Published comparisons, made again: `lab study NAME`, or all of them
    Study(study::StudyArgs),
    /// Run suites of others against the product, and compare with what is expected
    Conformance(conformance::ConformanceArgs),
    /// Draw reports again from their results
    Report(report::ReportArgs),
    /// The products and generators that are compared with and by
    Peers {
        #[command(subcommand)]
        command: PeersCommand,
    },
    /// Run the floor: a bare relay on one epoll loop
    Floor {
        /// Where to listen
        #[arg(long)]
        listen: SocketAddr,
        /// The endpoints
        #[arg(long, required = true)]
        to: Vec<SocketAddr>,
    },
    /// Run the origin: the last segment of a path is the size of the answer (/12, /10k, /json/10k, /html/10k)
    Origin {
        /// Where to listen
        #[arg(long, required = true)]
        listen: Vec<SocketAddr>,
    },
    /// Run an origin for datagrams: they go back to where they came from
    Echo {
        /// Where to listen
        #[arg(long, required = true)]
        listen: Vec<SocketAddr>,
    },
    /// Run an origin that works on one request at a time on each of its addresses
    MongrelOrigin {
        /// Where to listen
        #[arg(long, required = true, value_delimiter = ',')]
        listen: Vec<SocketAddr>,
        /// What the pauses follow from
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// What a request usually takes
        #[arg(long, default_value_t = 20)]
        work_ms: u64,
    },
    /// Keep so many requests under way, each on a new connection, and print what became of each as a line of JSON
    Crowd {
        /// Where to
        #[arg(long)]
        to: SocketAddr,
        /// The target
        #[arg(long, default_value = "/12")]
        path: String,
        /// At a time
        #[arg(long)]
        at_a_time: usize,
        /// In all
        #[arg(long)]
        requests: usize,
        /// The longest that one may take
        #[arg(long, default_value_t = 60)]
        timeout_seconds: u64,
    },
    /// Send requests at a constant rate and print the latencies as JSON
    Load {
        /// Where to
        #[arg(long)]
        to: SocketAddr,
        /// The target
        #[arg(long, default_value = "/12")]
        path: String,
        /// Requests a second
        #[arg(long)]
        rate: f64,
        /// Connections
        #[arg(long, default_value_t = 50)]
        connections: usize,
        /// How long
        #[arg(long, default_value_t = 5)]
        seconds: u64,
    },
    /// Hold idle connections until the input ends
    Hold {
        /// Where to
        #[arg(long)]
        to: SocketAddr,
        /// How many
        #[arg(long)]
        connections: usize,
        /// Over TLS, trusting this certificate
        #[arg(long)]
        trust: Option<PathBuf>,
    },
}

#[derive(Subcommand)]
enum PeersCommand {
    /// Install what is missing
    Install {
        /// Only these, by the names that `peers list` shows; oha and what only suites need are only installed when named
        names: Vec<String>,
        /// Everything, also what is there: newer versions may have come
        #[arg(long)]
        again: bool,
    },
    /// Show what is installed
    List,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("lab: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Cost(args) => {
            sys::catch_interrupts();
            cost::run(&args, &Paths::new()?)
        }
        Command::Study(args) => {
            sys::catch_interrupts();
            study::run(&args, &Paths::new()?)
        }
        Command::Conformance(args) => {
            sys::catch_interrupts();
            conformance::run(&args, &Paths::new()?)
        }
        Command::Report(args) => report::run(&args),
        Command::Peers { command: PeersCommand::Install { names, again } } => {
            sys::catch_interrupts();
            let wanted = if names.is_empty() { Wanted::All } else { Wanted::Named(&names) };
            match peers::install(&Paths::new()?, again, &wanted)?.len() {
                0 => Ok(()),
                missing => Err(Failure::new(format!("{missing} could not be installed"))),
            }
        }
        Command::Peers { command: PeersCommand::List } => {
            peers::list(&Paths::new()?);
            Ok(())
        }
        Command::Floor { listen, to } => Ok(net::floor::run(listen, to)?),
        Command::Origin { listen } => Ok(net::origin::run(&listen)?),
        Command::Echo { listen } => Ok(net::echo::run(&listen)?),
        Command::MongrelOrigin { listen, seed, work_ms } => {
            let work = net::mongrel::Work { seed, usual: Duration::from_millis(work_ms) };
            Ok(net::mongrel::run(&listen, work)?)
        }
        Command::Crowd { to, path, at_a_time, requests, timeout_seconds } => {
            let timeout = Duration::from_secs(timeout_seconds);
            for sent in net::crowd::run(&net::crowd::Plan { to, path, at_a_time, requests, timeout })? {
                println!("{}", serde_json::to_string(&sent).map_err(|error| Failure::new(error.to_string()))?);
            }
            Ok(())
        }
        Command::Load { to, path, rate, connections, seconds } => {
            let duration = Duration::from_secs(seconds);
            let outcome = net::open_loop::run(&net::open_loop::Plan { to, path, rate, connections, duration })?;
            let text = serde_json::to_string(&outcome).map_err(|error| Failure::new(error.to_string()))?;
            println!("{text}");
            Ok(())
        }
        Command::Hold { to, connections, trust } => Ok(net::hold::run(to, connections, trust.as_deref())?),
    }
}
