//! The command line, as data.

#[cfg(test)]
mod tests;
mod value;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use value::{balance, duration, endpoint, field};

use crate::client::{AdminAddress, Tls};
pub(crate) use crate::ctl::options::Ctl;

/// Workers that may be asked for.
pub(crate) const WORKERS_MAX: u64 = 1024;
/// Endpoints that `proxy --to` takes.
pub(crate) const TO_MAX: usize = 256;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Said below the help of the program, and in the reference.
pub(crate) const AFTER_HELP: &str = "\
Examples:
  equipoise demo
      See it work: endpoints, a listener and the dashboard, all in one process.
  equipoise proxy --listen 127.0.0.1:8080 --to 127.0.0.1:9001 --to 127.0.0.1:9002
      Balance over two endpoints without writing a file.
  equipoise check site.yaml && equipoise run -c site.yaml
      Check a configuration, then run it.
  equipoise explain -c site.yaml 'GET https://shop.example.com/api'
      Say which route, filters, cluster and endpoint a request would get, and why.
  equipoise ctl endpoint drain site 127.0.0.1:9001
      Take an endpoint out of rotation; its requests finish.
  equipoise schema > equipoise.schema.json
      Let your editor complete and check the file.

Signals (run, proxy, demo):
  SIGHUP   reload the configuration, certificates and host names included;
           an invalid one changes nothing (demo: stop)
  SIGUSR1  reopen the access logs, after log rotation
  SIGUSR2  upgrade: start the installed program with the same arguments and let it
           take over; if that fails, this process continues (not demo)
  SIGTERM, SIGINT
           graceful shutdown: stop accepting, let requests finish within
           shutdown.drain_timeout; a second one stops at once

Exit codes:
  0  success, or graceful shutdown
  1  the configuration is invalid, or a check failed
  2  the command line is wrong; check: the configuration cannot be read
  3  cannot start: an address is in use, or a thread or file is not available
  4  stopped with requests in flight: the drain timed out or was cut short
  5  ctl: no response came; the change may or may not have been applied";

/// An L4/L7 load balancer and reverse proxy.
#[derive(Debug, Parser)]
#[command(name = "equipoise", version, styles = STYLES, after_help = AFTER_HELP, max_term_width = 100)]
#[command(disable_version_flag = false, propagate_version = false, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a configuration
    Run(Run),
    /// Check a configuration as `run` does, without running it, and report all mistakes at once
    Check(Check),
    /// Print the effective configuration, with all defaults filled in
    Config(Config),
    /// Explain what would happen to a request: route, filters, cluster, endpoint, and why
    Explain(Explain),
    /// Proxy one address to others, without a configuration file
    Proxy(Proxy),
    /// Start a demo: endpoints, a listener and the dashboard in one process
    Demo(Demo),
    /// Inspect and change a running program over its API
    Ctl(Ctl),
    /// Print the JSON Schema of the configuration
    Schema,
    /// Print a completion script for a shell
    Completion(Completion),
    /// Print the version
    Version,
    /// Write the generated pages of the reference (for those who develop Equipoise)
    #[command(hide = true)]
    Reference(Reference),
}

/// Every command that proxies has this.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct WorkersOption {
    /// Threads that carry traffic [default: one for each core that affinity and cgroup quota allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=WORKERS_MAX))]
    workers: Option<u64>,
}

impl WorkersOption {
    /// Returns the requested number, or one per core. `available_parallelism` respects `sched_setaffinity` and the quota of the cgroup.
    pub(crate) fn count(self) -> usize {
        match self.workers {
            Some(workers) => usize::try_from(workers).unwrap_or(1),
            None => std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(WORKERS_MAX as usize),
        }
    }
}

/// `equipoise run`
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("source").required(true).args(["file", "config"])),
    after_help = "Example:\n  equipoise run -c /etc/equipoise/equipoise.yaml --workers 4\n  kill -HUP $PID     reloads the file\n  kill -USR2 $PID    upgrades to the installed program"
)]
pub(crate) struct Run {
    /// The configuration: YAML or JSON
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The same
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the process id to this file while the process serves
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) workers: WorkersOption,
}

impl Run {
    /// Returns the configuration.
    pub(crate) fn path(&self) -> &Path {
        one_of(&self.file, &self.config)
    }
}

/// Returns the path that is given in one of both ways, which the command line sees to.
fn one_of<'a>(file: &'a Option<PathBuf>, config: &'a Option<PathBuf>) -> &'a Path {
    file.as_deref().or(config.as_deref()).unwrap_or(Path::new(""))
}

/// `equipoise check`
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("source").required(true).args(["file", "config"])),
    after_help = "Examples:
  equipoise check site.yaml
  equipoise check --strict --format github site.yaml
      In a GitHub workflow: annotates each error and warning at its line.
  equipoise check --offline site.yaml
      Before the configuration is on the machine that will run it.
  render site.yaml.in | equipoise check -
      Standard input, which messages call <stdin>.

Exits with 0 when the configuration is valid, warnings allowed; with 1 when it is invalid, or has warnings and --strict is given;
with 2 when the file cannot be read or the command line is wrong.

--format json writes an array of objects, errors first, also when it is empty:
  file      as given on the command line
  line      from 1; 0 for the file as a whole
  column    from 1, in characters; 0 as above
  severity  \"error\" or \"warning\"
  message   what is wrong
  help      how to fix it, or null"
)]
pub(crate) struct Check {
    /// The configuration: YAML or JSON; - is standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The same
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How errors and warnings are shown
    #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
    pub(crate) format: CheckFormat,
    /// Check for another machine: host names that do not resolve, and certificates, keys and other files that are not here, are
    /// warnings. Included files have to be here all the same
    #[arg(long)]
    pub(crate) offline: bool,
    /// Count warnings as errors
    #[arg(long)]
    pub(crate) strict: bool,
}

impl Check {
    /// Returns the configuration. One of both is given.
    pub(crate) fn path(&self) -> &Path {
        one_of(&self.file, &self.config)
    }
}

/// How errors and warnings are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckFormat {
    /// For people, on standard error
    Text,
    /// One array of objects, on standard output
    Json,
    /// Workflow commands of GitHub, on standard output
    Github,
}

/// `equipoise config`
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("source").required(true).args(["file", "config"])), after_help = "Examples:
  equipoise config --effective site.yaml
  equipoise config --effective site.yaml | jq .clusters.shop
      One cluster with all its settings.
  render site.yaml.in | equipoise config --effective --offline -

The configuration is JSON, which is YAML too. Secrets are shown as (hidden), and what comes from the environment as ${NAME}. Exits
with 1 when the configuration is wrong, and with 2 when it cannot be read. `equipoise ctl config get --defaults` prints what a running
program has.")]
pub(crate) struct Config {
    /// Merge `defaults` into the objects, and write out every default
    #[arg(long, required = true)]
    pub(crate) effective: bool,
    /// The configuration: YAML or JSON; - is standard input
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The same
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Accept the configuration of another machine, as `check --offline` does
    #[arg(long)]
    pub(crate) offline: bool,
}

impl Config {
    /// Returns the configuration.
    pub(crate) fn path(&self) -> &Path {
        one_of(&self.file, &self.config)
    }
}

/// `equipoise explain`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  equipoise explain -c site.yaml 'GET https://shop.example.com/api/orders'
  equipoise explain -c site.yaml http://localhost:8080/ -H 'cookie: beta=1' --client 10.0.0.7
  equipoise explain --admin 127.0.0.1:9900 'POST https://shop.example.com/cart'
      Asks the running program: current health, requests in flight and round-robin turns.
  equipoise explain -c site.yaml tcp://127.0.0.1:5432
      A connection to a TCP listener.
  equipoise explain -c site.yaml 'tcp://api.example.com:8443?alpn=h2,http/1.1'
      A TLS connection that names this host and offers these protocols.

Nothing is sent anywhere, and no counter moves. Exits with 1 when the question cannot be answered.")]
pub(crate) struct Explain {
    /// The request: `GET https://host/path`, or a URL alone
    #[arg(value_name = "REQUEST")]
    pub(crate) request: String,
    /// The configuration: YAML or JSON
    #[arg(short, long, value_name = "FILE", conflicts_with = "admin")]
    pub(crate) config: Option<PathBuf>,
    /// Ask the running program at this admin address [default without -c: the variable EQUIPOISE_ADMIN]
    #[arg(long, value_name = "ADDR", value_parser = AdminAddress::parse)]
    pub(crate) admin: Option<AdminAddress>,
    #[command(flatten)]
    pub(crate) tls: Tls,
    /// A header field of the request, `name: value`; may be repeated
    #[arg(short = 'H', long = "header", value_name = "FIELD", value_parser = field)]
    pub(crate) fields: Vec<(String, String)>,
    /// The address of the client
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub(crate) client: std::net::IpAddr,
    /// The listener; by default the one that matches scheme and port
    #[arg(long, value_name = "NAME")]
    pub(crate) listener: Option<String>,
    /// Answer in JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

/// `equipoise proxy`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  equipoise proxy --listen 127.0.0.1:8080 --to 127.0.0.1:9001 --to 127.0.0.1:9002
  equipoise proxy --listen 0.0.0.0:8443 --tls-cert site.pem --tls-key site.key --to app:9000
  equipoise proxy --tcp --listen 127.0.0.1:5432 --to database:5432 --admin 127.0.0.1:9900")]
pub(crate) struct Proxy {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) listen: SocketAddr,
    /// An endpoint, `host:port`, `http://host:port` or `unix:/path`; give it several times to balance
    #[arg(long, value_name = "ADDR", required = true, value_parser = endpoint)]
    pub(crate) to: Vec<String>,
    /// Load-balancing algorithm
    #[arg(long, value_parser = balance(), default_value = BALANCE_DEFAULT)]
    pub(crate) balance: String,
    /// Proxy TCP connections instead of HTTP
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    pub(crate) tcp: bool,
    /// Certificate chain (PEM), for TLS with clients
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Address of the dashboard and metrics; none by default
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) workers: WorkersOption,
}

/// The balancer of `--balance` where none is given.
const BALANCE_DEFAULT: &str = "least_request";

/// `equipoise demo`
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  equipoise demo\n  equipoise demo --for 5s      sends load to itself, prints a summary and stops"
)]
pub(crate) struct Demo {
    /// Send load to itself for this long (such as 5s or 1m), print a summary and stop
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) load_for: Option<Duration>,
    /// Address of the listener [default: 127.0.0.1:8080, or a free port if that is taken]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Load-balancing algorithm
    #[arg(long, value_parser = balance(), default_value = BALANCE_DEFAULT)]
    pub(crate) balance: String,
    #[command(flatten)]
    pub(crate) workers: WorkersOption,
}

/// `equipoise completion`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  equipoise completion bash > /etc/bash_completion.d/equipoise
  equipoise completion zsh > \"${fpath[1]}/_equipoise\"
  equipoise completion fish > ~/.config/fish/completions/equipoise.fish")]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Shells that can complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// Bash
    Bash,
    /// Zsh
    Zsh,
    /// Fish
    Fish,
}

/// `equipoise reference`
#[derive(Args, Debug)]
pub(crate) struct Reference {
    /// The folder of the pages
    pub(crate) folder: PathBuf,
    /// Write nothing; exit with 1 and name what is stale
    #[arg(long)]
    pub(crate) check: bool,
}
