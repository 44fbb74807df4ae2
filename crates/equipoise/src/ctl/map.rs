//! Options of `ctl map`.

use clap::Subcommand;

/// A map.
#[derive(Debug, Subcommand)]
pub(crate) enum Map {
    /// List all maps, or the entries of one
    #[command(
        after_help = "Examples:\n  equipoise ctl map list\n  equipoise ctl map list tenants --containing example.com"
    )]
    List {
        /// The map
        #[arg(value_name = "MAP")]
        map: Option<String>,
        /// Only entries whose key contains this text
        #[arg(long, value_name = "TEXT", requires = "map")]
        containing: Option<String>,
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u32,
        /// Those behind the first N
        #[arg(long, value_name = "N")]
        after: Option<u64>,
    },
    /// Show the value that applies to a key
    #[command(after_help = "Example:\n  equipoise ctl map get networks 192.0.2.7")]
    Get {
        /// The map
        #[arg(value_name = "MAP")]
        map: String,
        /// What is looked up
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Set an entry
    #[command(after_help = "Example:\n  equipoise ctl map set tenants shop.example.com gold")]
    Set {
        /// The map
        #[arg(value_name = "MAP")]
        map: String,
        /// Its key
        #[arg(value_name = "KEY")]
        key: String,
        /// Its value
        #[arg(value_name = "VALUE", allow_hyphen_values = true)]
        value: String,
    },
    /// Delete an entry
    #[command(after_help = "Example:\n  equipoise ctl map delete tenants shop.example.com")]
    Delete {
        /// The map
        #[arg(value_name = "MAP")]
        map: String,
        /// Its key
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Take back what was set or deleted of one entry or of all: the configuration applies again
    #[command(
        after_help = "Examples:\n  equipoise ctl map reset tenants shop.example.com\n  equipoise ctl map reset tenants"
    )]
    Reset {
        /// The map
        #[arg(value_name = "MAP")]
        map: String,
        /// Its key
        #[arg(value_name = "KEY")]
        key: Option<String>,
    },
}
