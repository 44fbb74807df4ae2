//! What loading asks of the world.

use std::io;
use std::net::SocketAddr;

use model::filter::FilterSpec;
use model::provider::NameLookup;

use crate::loaded::Loaded;

/// Gives the addresses of a host name with a port.
pub type ResolveHost<'a> = dyn Fn(&NameLookup, &str, u16) -> io::Result<Vec<SocketAddr>> + 'a;

/// What loading needs to know of the world. It reads files itself, but asks for everything else.
#[derive(Clone, Copy)]
pub struct Loader<'a> {
    /// The filters that routes may use.
    pub filters: &'a [FilterSpec],
    /// An environment variable, for `${NAME}`.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// The addresses of a host name with a port, for endpoints; the least is used. May block.
    pub resolve_host: &'a ResolveHost<'a>,
    /// For changes: files, Unix sockets and variables that this one does not use already may not be used
    /// ([`Diagnostics::beyond`]). That is found before any file is opened, and before anything else is reported. `None`: all may.
    pub within: Option<&'a Loaded>,
    /// What is not on this machine is a warning: host names that do not resolve, and certificates, keys and other files that cannot
    /// be read. The snapshot is then fit to be checked, not to be run. Included files must be there all the same.
    pub is_offline: bool,
}

impl Loader<'_> {
    /// Returns an environment variable, for changes. Where not all may be used, each seems to be there: whether it may is reported elsewhere,
    /// and whether it is there is not.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name).or_else(|| self.within.map(|_| String::new()))
    }
}
