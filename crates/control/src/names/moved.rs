//! Endpoints that have moved since the configuration was read, laid over its snapshot.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use model::snapshot::Cluster;
use model::{Address, Name, Snapshot};

/// An endpoint that gets another address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Move {
    pub(crate) cluster: Name,
    pub(crate) endpoint: Name,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
}

/// An endpoint that keeps an address that its name has no longer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) cluster: Name,
    pub(crate) endpoint: Name,
    pub(crate) address: SocketAddr,
}

/// By endpoint of one cluster.
type Addresses = HashMap<Name, SocketAddr>;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moved {
    by_cluster: Arc<HashMap<Name, Addresses>>,
    /// Clusters with moved endpoints, made once as long as they are made of the same.
    laid: Arc<Mutex<HashMap<Name, Laid>>>,
}

#[derive(Debug)]
struct Laid {
    bare: Arc<Cluster>,
    whole: Arc<Cluster>,
}

impl Moved {
    /// Returns the new addresses of active endpoints, or `None` if nothing changes; and the endpoints whose names resolve only to
    /// addresses that other endpoints have. An address stays as long as its name resolves to it. Otherwise the lowest address follows that
    /// no endpoint of the cluster has, or that one gives up.
    pub(crate) fn after(
        &self,
        in_force: &Snapshot,
        answers: &HashMap<Name, Vec<SocketAddr>>,
    ) -> (Option<(Self, Vec<Move>)>, Vec<Left>) {
        let (mut moves, mut left) = (Vec::new(), Vec::new());
        for cluster in in_force.clusters.iter().filter(|cluster| cluster.follows_names) {
            let (going, staying) = settled(cluster, answers);
            moves.extend(going);
            left.extend(staying);
        }
        if moves.is_empty() {
            return (None, left);
        }
        let mut moved = self.clone();
        let by_cluster = Arc::make_mut(&mut moved.by_cluster);
        for one in &moves {
            by_cluster.entry(one.cluster.clone()).or_default().insert(one.endpoint.clone(), one.to);
        }
        (Some((moved, moves)), left)
    }

    /// Gives the endpoints of a snapshot the addresses that they have by now. Endpoints that it does not have are forgotten.
    pub(crate) fn apply(&mut self, snapshot: &mut Snapshot) {
        if self.by_cluster.is_empty() {
            return;
        }
        let mut found = HashMap::new();
        for cluster in snapshot.clusters.iter_mut().filter(|cluster| cluster.follows_names) {
            let Some(addresses) = self.by_cluster.get(&cluster.name) else { continue };
            let there = cluster.endpoints.iter().filter_map(|endpoint| addresses.get_key_value(&endpoint.name));
            let there: Addresses = there.map(|(name, address)| (name.clone(), *address)).collect();
            *cluster = self.laid(cluster, &there);
            found.insert(cluster.name.clone(), there);
        }
        if found != *self.by_cluster {
            let mut laid = self.laid.lock().unwrap_or_else(PoisonError::into_inner);
            laid.retain(|name, _| found.contains_key(name));
            drop(laid);
            self.by_cluster = Arc::new(found);
        }
    }

    fn laid(&self, bare: &Arc<Cluster>, addresses: &Addresses) -> Arc<Cluster> {
        let mut laid = self.laid.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = |whole: &Cluster| {
            let asked = whole.endpoints.iter().filter_map(|endpoint| Some((endpoint, addresses.get(&endpoint.name)?)));
            asked.into_iter().all(|(endpoint, address)| endpoint.address.ip() == Some(*address))
        };
        if let Some(known) = laid.get(&bare.name)
            && Arc::ptr_eq(&known.bare, bare)
            && is_there(&known.whole)
        {
            return Arc::clone(&known.whole);
        }
        let mut cluster = Cluster::clone(bare);
        for endpoint in &mut cluster.endpoints {
            if let Some(address) = addresses.get(&endpoint.name) {
                endpoint.address = Address::Ip(*address);
            }
        }
        let whole = Arc::new(cluster);
        laid.insert(bare.name.clone(), Laid { bare: Arc::clone(bare), whole: Arc::clone(&whole) });
        whole
    }
}

/// The endpoints of a cluster that go elsewhere, and those that would, had others not all that their names have.
fn settled(cluster: &Cluster, answers: &HashMap<Name, Vec<SocketAddr>>) -> (Vec<Move>, Vec<Left>) {
    let of = |endpoint: &model::snapshot::Endpoint| Some((answers.get(&endpoint.name)?, endpoint.address.ip()?));
    let leaving = cluster.endpoints.iter().filter_map(|endpoint| Some((&endpoint.name, of(endpoint)?)));
    let mut leaving: Vec<_> = leaving.filter(|(_, (found, from))| !found.contains(from)).collect();
    let mut staying: HashSet<SocketAddr> =
        cluster.endpoints.iter().filter_map(|endpoint| endpoint.address.ip()).collect();
    leaving.iter().for_each(|(_, (_, from))| _ = staying.remove(from));
    let mut left = Vec::new();
    loop {
        let (mut taken, mut moves, mut goes) = (staying.clone(), Vec::new(), Vec::new());
        for (name, (found, from)) in &leaving {
            let to = found.iter().filter(|address| !taken.contains(address)).min().copied();
            goes.push(to.is_some());
            if let Some(to) = to {
                taken.insert(to);
                moves.push(Move { cluster: cluster.name.clone(), endpoint: (*name).clone(), from: *from, to });
            }
        }
        if goes.iter().all(|goes| *goes) {
            return (moves, left);
        }
        // What cannot go keeps its address, so that no other may come there.
        let mut goes = goes.into_iter();
        leaving.retain(|(name, (_, from))| {
            let goes = goes.next().unwrap_or(false);
            if !goes {
                staying.insert(*from);
                left.push(Left { cluster: cluster.name.clone(), endpoint: (*name).clone(), address: *from });
            }
            goes
        });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TEXT: &str = "version: 1\nlisteners: { web: { bind: '127.0.0.1:0' } }\nroutes: [{ cluster: site }]\n\
                        clusters:\n  site: { endpoints: ['a.test:80', 'b.test:80', '10.0.0.9:80'] }\n  \
                        fixed: { resolve: once, endpoints: ['a.test:80'] }\n";

    fn address(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 80).into()
    }

    fn loaded(text: &str) -> Snapshot {
        let resolve = |_: &model::provider::NameLookup, host: &str, _: u16| {
            Ok(vec![if host == "a.test" { address(1) } else { address(2) }])
        };
        let environment = |_: &str| None;
        let loader = config::Loader {
            filters: &[],
            environment: &environment,
            resolve_host: &resolve,
            within: None,
            is_offline: false,
        };
        let loaded = loader.load_text("test", text, Path::new(""));
        loaded.unwrap_or_else(|error| panic!("{error}")).snapshot
    }

    fn answers(all: &[(&str, &[u8])]) -> HashMap<Name, Vec<SocketAddr>> {
        let list = |last: &[u8]| last.iter().copied().map(address).collect();
        all.iter().map(|(name, last)| ((*name).into(), list(last))).collect()
    }

    fn shown(snapshot: &Snapshot) -> Vec<Vec<Option<u8>>> {
        let last = |address: &Address| match address.ip()? {
            SocketAddr::V4(address) => Some(address.ip().octets()[3]),
            SocketAddr::V6(_) => None,
        };
        let cluster = |cluster: &Arc<Cluster>| cluster.endpoints.iter().map(|one| last(&one.address)).collect();
        snapshot.clusters.iter().map(cluster).collect()
    }

    #[test]
    fn an_address_stays_while_its_name_has_it_and_else_the_least_free_one_comes() {
        let snapshot = loaded(TEXT);
        let none = Moved::default();
        assert!(none.after(&snapshot, &answers(&[("a.test:80", &[7, 1]), ("other.test:80", &[3])])).0.is_none());
        let (moves, left) = none.after(&snapshot, &answers(&[("a.test:80", &[2, 9])]));
        assert!(moves.is_none(), "others have these");
        assert_eq!((left.len(), left[0].address), (1, address(1)));
        let (mut moved, moves) = none.after(&snapshot, &answers(&[("a.test:80", &[5, 2, 4])])).0.unwrap();
        assert_eq!((moves.len(), moves[0].to), (1, address(4)));
        let mut now = snapshot.clone();
        moved.apply(&mut now);
        assert_eq!(shown(&now)[0], [Some(4), Some(2), Some(9)]);
        assert_eq!(shown(&now)[1], [Some(1)], "it is looked up once");
        let mut again = snapshot.clone();
        moved.apply(&mut again);
        assert!(Arc::ptr_eq(&now.clusters[0], &again.clusters[0]), "the same is made once");
        // One takes what the other leaves.
        let swapped = answers(&[("a.test:80", &[5]), ("b.test:80", &[4])]);
        let (mut moved, moves) = moved.after(&now, &swapped).0.unwrap();
        assert_eq!(moves.len(), 2);
        let mut last = snapshot.clone();
        moved.apply(&mut last);
        assert_eq!(shown(&last)[0], [Some(5), Some(4), Some(9)]);
        assert_eq!(shown(&snapshot)[0], [Some(1), Some(2), Some(9)]);
    }

    #[test]
    fn names_may_swap_their_addresses_and_what_cannot_move_keeps_its_own_for_itself() {
        let text = TEXT.replace("'b.test:80'", "'b.test:80', 'c.test:80'");
        let resolve = |_: &model::provider::NameLookup, host: &str, _: u16| {
            Ok(vec![address(["a.test", "b.test", "c.test"].iter().position(|name| *name == host).unwrap() as u8 + 1)])
        };
        let environment = |_: &str| None;
        let loader = config::Loader {
            filters: &[],
            environment: &environment,
            resolve_host: &resolve,
            within: None,
            is_offline: false,
        };
        let snapshot =
            loader.load_text("test", &text, Path::new("")).unwrap_or_else(|error| panic!("{error}")).snapshot;
        for (found, wanted, left) in [
            ([&[2][..], &[1], &[3]], [2, 1, 3], 0),
            ([&[2], &[3], &[1]], [2, 3, 1], 0),
            // The last cannot go, so that nothing else can.
            ([&[2], &[3], &[9]], [1, 2, 3], 3),
            ([&[3], &[1], &[4]], [3, 1, 4], 0),
            ([&[9], &[1], &[2]], [1, 2, 3], 3),
            ([&[9], &[3], &[2]], [1, 3, 2], 1),
        ] {
            let names = ["a.test:80", "b.test:80", "c.test:80"];
            let all: Vec<(&str, &[u8])> = names.into_iter().zip(found).collect();
            let (moved, stays) = Moved::default().after(&snapshot, &answers(&all));
            let mut now = snapshot.clone();
            moved.into_iter().for_each(|(mut moved, _)| moved.apply(&mut now));
            let addresses: Vec<u8> = shown(&now)[0].iter().flatten().copied().take(3).collect();
            assert_eq!((addresses, stays.len()), (wanted.to_vec(), left), "{found:?}");
        }
    }

    #[test]
    fn endpoints_that_are_gone_are_forgotten() {
        let snapshot = loaded(TEXT);
        let found = answers(&[("a.test:80", &[5]), ("b.test:80", &[6])]);
        let (mut moved, _) = Moved::default().after(&snapshot, &found).0.unwrap();
        moved.apply(&mut loaded(&TEXT.replace("'b.test:80', ", "")));
        let mut again = snapshot.clone();
        moved.apply(&mut again);
        assert_eq!(shown(&again)[0], [Some(5), Some(2), Some(9)]);
        moved.apply(&mut Snapshot::default());
        assert!(moved.by_cluster.is_empty());
    }
}
