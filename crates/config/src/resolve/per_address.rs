//! Bounds on the connections of each client address.

use model::Address;
use model::snapshot::ConnectionsPerAddress;

use super::Resolver;
use crate::file;

impl Resolver<'_> {
    /// Resolves the limits of the listener at `listener`, which is bound at this address and may read PROXY headers.
    pub(super) fn per_address(
        &mut self,
        listener: &str,
        written: &file::ConnectionsPerAddress,
        (bind, is_proxied): (Option<&Address>, bool),
    ) -> ConnectionsPerAddress {
        let at = format!("{listener}/connections_per_address");
        if !self.has(&at, "max") && !self.has(&at, "rate") {
            let mend = "add `max`, `rate` or both, such as `{ max: 100, rate: 20/s }`";
            self.report(&at, "no limit is given", Some(mend.to_owned()));
        }
        if written.burst.is_some() && !self.has(&at, "rate") {
            let span = self.key_span(&at, "burst");
            self.sink.push(span, "`burst` has no effect without `rate`".to_owned(), Some("add `rate`".to_owned()));
        }
        if matches!(bind, Some(Address::Unix(_))) && !is_proxied {
            let mend = "leave it out; `connections_max` limits all of them together".to_owned();
            self.report(&at, "clients of a Unix socket have no addresses to tell them apart", Some(mend));
        }
        ConnectionsPerAddress {
            max: written.max,
            rate: written.rate.clone(),
            burst: written.burst,
            except: self.parsed(&format!("{at}/except"), &written.except, false),
            ipv4_prefix: written.ipv4_prefix,
            ipv6_prefix: written.ipv6_prefix,
            keys_max: written.keys_max,
        }
    }
}
