//! The command line of `equipoise ctl`, as data.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::map::Map;
use crate::client::{AdminAddress, Tls};

/// `equipoise ctl`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  equipoise ctl status
  equipoise ctl endpoint drain site 127.0.0.1:9001
      No new requests go there; requests in flight finish.
  equipoise ctl endpoint ready site 127.0.0.1:9001
  equipoise ctl config get > site.yaml && $EDITOR site.yaml
  equipoise ctl config put site.yaml --dry-run
  equipoise ctl config put site.yaml
  equipoise ctl config get --etag-file tag > site.yaml && $EDITOR site.yaml && equipoise ctl config put site.yaml --etag-file tag
      Rejected if the configuration has changed in between.
  equipoise ctl config put site.yaml --canary 10% --for 60s --errors-max 1% --latency-max 50%
      Canary on one exchange in ten: promoted after a minute, rolled back if it does worse.
  equipoise ctl canary
  equipoise ctl generations
  equipoise ctl rollback 3
  EQUIPOISE_TOKEN=$(cat token) equipoise ctl --admin unix:/run/equipoise/admin.sock status --json
  equipoise ctl --admin https://lb.example.com:9900 --ca-file ca.pem --cert-file me.pem --key-file me.key status

Exits with 0 when it was done, with 1 when it was rejected, with 2 when the command line is wrong, and with 5 when no response came: the change may or may not have been applied.")]
pub(crate) struct Ctl {
    /// The admin address of the running program: host:port, https://host:port, or unix:/path
    #[arg(long, global = true, value_name = "ADDR", env = crate::client::ADMIN, hide_env_values = true, default_value = "127.0.0.1:9900", value_parser = AdminAddress::parse)]
    pub(crate) admin: AdminAddress,
    /// A file that holds the token [default: the variable EQUIPOISE_TOKEN]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tls: Tls,
    /// Answer in JSON, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show listeners, clusters and endpoints of the running program
    #[command(
        after_help = "Examples:\n  equipoise ctl status\n  equipoise ctl --admin unix:/run/equipoise/admin.sock status --json"
    )]
    Status,
    /// Show and change the configuration
    #[command(
        after_help = "Examples:\n  equipoise ctl config get > site.yaml\n  equipoise ctl config put site.yaml --dry-run\n  equipoise ctl config set route shop shop.yaml\n  equipoise ctl config remove cluster old\n  equipoise ctl config reset"
    )]
    #[command(subcommand)]
    Config(Config),
    /// List what overrides the files: changed objects and states of endpoints
    #[command(after_help = "Example:\n  equipoise ctl changes")]
    Changes,
    /// Show providers: whether they are reachable, what is active, what was rejected and why
    #[command(after_help = "Example:\n  equipoise ctl providers")]
    Providers,
    /// Reload the files, as SIGHUP does
    #[command(after_help = "Example:\n  equipoise ctl reload")]
    Reload,
    /// Upgrade: start the installed program, same file and arguments, and let it take over
    #[command(after_help = "Example:\n  equipoise ctl upgrade")]
    Upgrade,
    /// List generations: who changed what, and when
    #[command(after_help = "Examples:\n  equipoise ctl generations\n  equipoise ctl generations 3")]
    Generations {
        /// One of them, in full
        #[arg(value_name = "N")]
        generation: Option<u64>,
    },
    /// Roll back to the configuration of a generation
    #[command(after_help = "Examples:\n  equipoise ctl rollback 3 --dry-run\n  equipoise ctl rollback 3")]
    Rollback {
        /// Its number
        #[arg(value_name = "N")]
        generation: u64,
        #[command(flatten)]
        dry: Dry,
    },
    /// Show the canary, or end it: promote applies it, abort rolls it back
    #[command(
        after_help = "Examples:\n  equipoise ctl canary\n  equipoise ctl canary promote\n  equipoise ctl canary abort"
    )]
    Canary {
        /// How it is to end
        #[arg(value_enum)]
        end: Option<CanaryEnd>,
    },
    /// Show the endpoints of a cluster
    #[command(after_help = "Example:\n  equipoise ctl endpoints site")]
    Endpoints {
        /// The cluster
        #[arg(value_name = "CLUSTER")]
        cluster: String,
    },
    /// Change one endpoint
    Endpoint(Endpoint),
    /// List maps, look into them, and change entries in memory
    ///
    /// Changes apply at once, and until the program ends: put lasting entries into the configuration or the file of the map.
    #[command(
        after_help = "Examples:\n  equipoise ctl map list\n  equipoise ctl map list tenants\n  equipoise ctl map get tenants shop.example.com\n  equipoise ctl map set tenants shop.example.com gold\n  equipoise ctl map delete tenants shop.example.com\n  equipoise ctl map reset tenants"
    )]
    #[command(subcommand)]
    Map(Map),
    /// List open client connections
    #[command(
        after_help = "Examples:\n  equipoise ctl connections\n  equipoise ctl connections --listener web --limit 10"
    )]
    Connections {
        /// Those of one listener
        #[arg(long, value_name = "NAME")]
        listener: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
        /// Those behind this one
        #[arg(long, value_name = "ID")]
        after: Option<u64>,
    },
    /// Close a connection at once, whatever is in flight
    #[command(after_help = "Example:\n  equipoise ctl end 4711")]
    End {
        /// Its number, as `connections` shows it
        #[arg(value_name = "ID")]
        connection: u64,
    },
    /// Show the instances that tables are replicated to
    #[command(after_help = "Example:\n  equipoise ctl peers")]
    Peers,
    /// Show and change tables of counters
    #[command(
        after_help = "Examples:\n  equipoise ctl table\n  equipoise ctl table show abuse --by errors_rate\n  equipoise ctl table get abuse 192.0.2.7\n  equipoise ctl table set abuse 192.0.2.7 errors=0\n  equipoise ctl table clear abuse"
    )]
    Table {
        /// What to do; without it, list the tables
        #[command(subcommand)]
        action: Option<TableAction>,
    },
    /// Show and purge caches
    #[command(
        after_help = "Examples:\n  equipoise ctl cache\n  equipoise ctl cache purge pages --url https://shop.example/a\n  equipoise ctl cache purge pages --prefix https://shop.example/img/ --soft\n  equipoise ctl cache purge pages --tag product-42\n  equipoise ctl cache purge pages --all"
    )]
    Cache {
        /// What to do; without it, list the caches
        #[command(subcommand)]
        action: Option<CacheAction>,
    },
    /// Show or set the level of the program's own log
    #[command(after_help = "Examples:\n  equipoise ctl log\n  equipoise ctl log warn")]
    Log {
        /// The new level
        #[arg(value_enum)]
        level: Option<Level>,
    },
}

/// What is done with a cache.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum CacheAction {
    /// Purge responses
    #[command(
        group = clap::ArgGroup::new("what").required(true),
        after_help = "Example:\n  equipoise ctl cache purge pages --tag product-42"
    )]
    Purge {
        /// The cache
        #[arg(value_name = "CACHE")]
        cache: String,
        /// A URL, with all its variants
        #[arg(long, value_name = "URL", group = "what")]
        url: Option<String>,
        /// All URLs that begin so
        #[arg(long, value_name = "URL", group = "what")]
        prefix: Option<String>,
        /// All responses that have this tag
        #[arg(long, value_name = "TAG", group = "what")]
        tag: Option<String>,
        /// All responses
        #[arg(long, group = "what")]
        all: bool,
        /// Keep them, and validate them before they are served again
        #[arg(long)]
        soft: bool,
    },
}

/// What is done with a table.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TableAction {
    /// Show the entries that have most of a counter or rate
    #[command(
        after_help = "Examples:\n  equipoise ctl table show clients\n  equipoise ctl table show clients --by errors_rate --limit 10"
    )]
    Show {
        /// The table
        #[arg(value_name = "TABLE")]
        table: String,
        /// The counter or rate that orders them, such as errors_rate; by default the first of the table
        #[arg(long, value_name = "COUNTER")]
        by: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
    },
    /// Show one entry
    #[command(after_help = "Example:\n  equipoise ctl table get clients 203.0.113.7")]
    Get {
        /// The table
        #[arg(value_name = "TABLE")]
        table: String,
        /// Its key: an address, or the value of the header field
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Set counters or rates of an entry, and make it if there is none
    #[command(after_help = "Example:\n  equipoise ctl table set clients 203.0.113.7 errors=0")]
    Set {
        /// The table
        #[arg(value_name = "TABLE")]
        table: String,
        /// Its key: an address, or the value of the header field
        #[arg(value_name = "KEY")]
        key: String,
        /// What to set, such as errors=0
        #[arg(value_name = "COUNTER=NUMBER", required = true, value_parser = assignment)]
        values: Vec<(String, u64)>,
    },
    /// Forget an entry, or all of them
    #[command(
        after_help = "Examples:\n  equipoise ctl table clear clients 203.0.113.7\n  equipoise ctl table clear clients"
    )]
    Clear {
        /// The table
        #[arg(value_name = "TABLE")]
        table: String,
        /// The key of the entry; without it, all entries
        #[arg(value_name = "KEY")]
        key: Option<String>,
    },
}

fn assignment(text: &str) -> Result<(String, u64), String> {
    let found = text.split_once('=').and_then(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
    found.filter(|(name, _)| !name.is_empty()).ok_or_else(|| "write COUNTER=NUMBER, such as errors=0".to_owned())
}

/// What is replaced.
#[derive(Args, Clone, Debug)]
pub(crate) struct Tag {
    /// Reject the change if the configuration has changed since `config get --etag-file FILE`; without it, overwrite
    #[arg(long, value_name = "FILE")]
    pub(crate) etag_file: Option<PathBuf>,
}

/// How a configuration that is tried ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CanaryEnd {
    /// Promote it: it becomes the active configuration
    Promote,
    /// Roll it back: the previous configuration stays active
    Abort,
}

/// Try it first.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Try {
    /// Canary: apply it to this share of exchanges first, such as 10%; then it is promoted or rolled back automatically
    #[arg(long, value_name = "SHARE")]
    pub(crate) canary: Option<String>,
    /// Duration of the canary [default: 60s]
    #[arg(long = "for", value_name = "TIME", requires = "canary")]
    pub(crate) time: Option<String>,
    /// Allowed increase of the error rate, in percentage points [default: 1%]
    #[arg(long, value_name = "PERCENT", requires = "canary")]
    pub(crate) errors_max: Option<String>,
    /// Allowed increase of p90 latency [default: 50%]
    #[arg(long, value_name = "PERCENT", requires = "canary")]
    pub(crate) latency_max: Option<String>,
    /// Minimum number of exchanges with the new configuration; with fewer it is rolled back [default: 20]
    #[arg(long, value_name = "N", requires = "canary")]
    pub(crate) exchanges_min: Option<u64>,
}

/// Only tell.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Dry {
    /// Report what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Print the configuration, or one kind of objects, or one object, as it was written
    #[command(
        after_help = "Examples:\n  equipoise ctl config get > site.yaml\n  equipoise ctl config get cluster site\n  equipoise ctl config get --defaults"
    )]
    Get {
        /// The kind of the object
        #[arg(value_enum)]
        kind: Option<Kind>,
        /// Its name
        #[arg(requires = "kind")]
        name: Option<String>,
        /// With defaults filled in
        #[arg(long)]
        defaults: bool,
        /// Write the etag of this configuration to FILE, for `put` and `set`
        #[arg(long, value_name = "FILE")]
        etag_file: Option<PathBuf>,
    },
    /// Replace the whole configuration
    #[command(
        after_help = "Examples:\n  equipoise ctl config put site.yaml --dry-run\n  equipoise ctl config put site.yaml --canary 10% --for 60s"
    )]
    Put {
        /// The configuration in YAML or JSON; `-` is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        tag: Tag,
        #[command(flatten)]
        first: Try,
        #[command(flatten)]
        dry: Dry,
    },
    /// Add or replace one listener, route or cluster
    #[command(
        after_help = "Examples:\n  equipoise ctl config set cluster site site.yaml\n  equipoise ctl config set route shop - < shop.yaml"
    )]
    Set {
        /// Its kind
        #[arg(value_enum)]
        kind: Kind,
        /// Its name
        name: String,
        /// The object in YAML or JSON; `-` is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        tag: Tag,
        #[command(flatten)]
        first: Try,
        #[command(flatten)]
        dry: Dry,
    },
    /// Remove one listener, route or cluster
    #[command(after_help = "Example:\n  equipoise ctl config remove route shop")]
    Remove {
        /// Its kind
        #[arg(value_enum)]
        kind: Kind,
        /// Its name
        name: String,
        #[command(flatten)]
        dry: Dry,
    },
    /// Drop all API changes: the files apply again
    #[command(after_help = "Examples:\n  equipoise ctl config reset --dry-run\n  equipoise ctl config reset")]
    Reset {
        #[command(flatten)]
        dry: Dry,
    },
}

/// One endpoint.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  equipoise ctl endpoint drain site 127.0.0.1:9001\n  equipoise ctl endpoint ready site 127.0.0.1:9001\n  equipoise ctl endpoint add site 127.0.0.1:9003 2\n  equipoise ctl endpoint weight site 127.0.0.1:9003 5"
)]
pub(crate) struct Endpoint {
    /// What to do with it
    #[arg(value_enum)]
    pub(crate) action: Action,
    /// Its cluster
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: String,
    /// Its address as the configuration has it
    #[arg(value_name = "ENDPOINT")]
    pub(crate) endpoint: String,
    /// The new weight, for `weight` and `add`
    #[arg(value_name = "WEIGHT", required_if_eq("action", "weight"))]
    pub(crate) weight: Option<u32>,
    #[command(flatten)]
    pub(crate) dry: Dry,
}

/// What to do with an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Action {
    /// Add it to the configuration
    Add,
    /// Remove it from the configuration
    Remove,
    /// Set its weight in the configuration
    Weight,
    /// Send no new requests; those in flight finish
    Drain,
    /// Like `drain`, without health checks
    Maintain,
    /// Force it up, whatever its checks report
    Up,
    /// Force it down, as if its checks failed
    Down,
    /// End the override
    Ready,
}

impl Action {
    /// Returns the wish that the API knows, if it is one.
    pub(crate) fn state(self) -> Option<&'static str> {
        match self {
            Self::Drain => Some("drain"),
            Self::Maintain => Some("maintenance"),
            Self::Up => Some("up"),
            Self::Down => Some("down"),
            Self::Ready => Some("ready"),
            Self::Add | Self::Remove | Self::Weight => None,
        }
    }
}

/// A kind of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Listeners
    #[value(alias = "listener")]
    Listeners,
    /// Routes
    #[value(alias = "route")]
    Routes,
    /// Clusters
    #[value(alias = "cluster")]
    Clusters,
}

impl Kind {
    /// Returns the name in the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Listeners => "listeners",
            Self::Routes => "routes",
            Self::Clusters => "clusters",
        }
    }
}

/// A level of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// What happens as it should, too
    Info,
    /// Something is wrong, and the program copes with it
    Warn,
    /// Needs attention
    Error,
}

impl Level {
    /// Returns the name in the API.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}
