//! One lookup of one name: what DNS says, and what else the system knows.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use model::provider::NameLookup;
use tokio::sync::Semaphore;

use crate::providers::dns::{Answers, DnsClient, addresses};

/// Time for the system to find a name, beyond that for the answer of a resolver.
const SYSTEM_GRACE: Duration = Duration::from_secs(5);

/// The addresses of a name, and their TTL.
pub(super) type Resolved = (Vec<SocketAddr>, Duration);

/// A host name of endpoints with its port.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

impl Host {
    /// Splits the name of an endpoint. `None`: it is an address, or nothing that could be looked up.
    pub(super) fn of(endpoint: &str) -> Option<Self> {
        let (name, port) = endpoint.rsplit_once(':')?;
        let is_address = endpoint.parse::<SocketAddr>().is_ok();
        Some(Self { name: name.to_owned(), port: port.parse().ok()? }).filter(|_| !is_address)
    }
}

/// Looks a name up once, when a configuration is read. Blocks.
///
/// # Errors
/// Nothing knows the name, or no resolver answers.
pub(crate) fn look_up(lookup: &NameLookup, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if lookup.dns.resolvers.is_empty() {
        return (name, port).to_socket_addrs().map(Iterator::collect);
    }
    let host = Host { name: name.to_owned(), port };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(by_dns(&host, lookup, &mut Answers::default()));
    found.map(|(found, _)| found).map_err(io::Error::other)
}

/// Looks a name up again, of which endpoints have these addresses now.
///
/// DNS says how long its answer holds. Where the system is asked, it has the last word all the same, as it had when the
/// configuration was read: it may know a name by other means first. So it is asked where DNS knows nothing, and before an address
/// that is in use is given up.
///
/// # Errors
/// Nothing knows the name, or no resolver answers.
pub(super) async fn look_up_again(
    host: &Host,
    (lookup, threads): (&NameLookup, &Arc<Semaphore>),
    answers: &mut Answers,
    present: &HashSet<SocketAddr>,
) -> Result<Resolved, String> {
    let told = by_dns(host, lookup, answers).await;
    let stays = told.as_ref().is_ok_and(|(found, _)| present.iter().all(|address| found.contains(address)));
    if stays || !lookup.dns.resolvers.is_empty() {
        return told;
    }
    let found = by_system(host.clone(), threads, lookup.dns.timeout + SYSTEM_GRACE).await?;
    Ok((found, told.map_or(lookup.interval, |(_, lives)| lives)))
}

/// Asks resolvers for addresses of both families.
async fn by_dns(host: &Host, lookup: &NameLookup, answers: &mut Answers) -> Result<Resolved, String> {
    let client = DnsClient::of(&lookup.dns);
    let lives = addresses(&client, (&host.name, &lookup.dns), answers).await?;
    if let Some(lack) = lives.lack {
        return Err(lack.as_str().to_owned());
    }
    let found = answers.addresses_of(&host.name).iter().flatten();
    // That a family has none holds for less: nothing that is in use depends on it.
    Ok((found.map(|ip| SocketAddr::new(*ip, host.port)).collect(), lives.addresses))
}

/// Asks the system, on a thread that may be held for long: there are few of them.
async fn by_system(host: Host, threads: &Arc<Semaphore>, patience: Duration) -> Result<Vec<SocketAddr>, String> {
    let work = async {
        let turn = Arc::clone(threads).acquire_owned().await.map_err(|error| error.to_string())?;
        let asked = tokio::task::spawn_blocking(move || {
            // Held as long as the thread runs, even after the caller has stopped waiting.
            let _turn = turn;
            (host.name.as_str(), host.port).to_socket_addrs().map(Iterator::collect::<Vec<_>>)
        });
        let found = asked.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        if found.is_empty() { Err("the name has no address".to_owned()) } else { Ok(found) }
    };
    let late = || Err("the lookup took too long".to_owned());
    tokio::time::timeout(patience, work).await.unwrap_or_else(|_| late())
}
