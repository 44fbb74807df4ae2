//! The pick of an endpoint by each balancer, with giving the place back.

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::snapshot::{Balance, Hash, HashAlgorithm, HashKey, Snapshot};
use plan::{Ask, ClusterPlan, Pick, PickCache, Random, Seen};

use crate::made;
use crate::{Cell, count};

pub(crate) fn cells() -> Vec<Cell> {
    let hash = |algorithm| Balance::Hash(Hash { on: vec![HashKey::Path], algorithm, load_max: None });
    let named = Balance::NAMED.iter().map(|named| (named.name(), (named.make)()));
    let hashes = [("hash=maglev", HashAlgorithm::Maglev), ("hash=ketama", HashAlgorithm::Ketama)];
    let balancers = named.chain(hashes.map(|(name, algorithm)| (name, hash(algorithm))));
    let sized = |(name, balance): (&str, Balance)| {
        [4, 100].map(|endpoints| {
            let balance = balance.clone();
            Cell::new(format!("pick/{name}/endpoints={endpoints}"), move || pick(balance.clone(), endpoints))
        })
    };
    balancers.flat_map(sized).collect()
}

fn pick(balance: Balance, endpoints: u16) {
    let snapshot = Snapshot { clusters: vec![made::cluster(balance, endpoints).into()], ..Snapshot::default() };
    let plan = made::compiled(snapshot);
    let cluster = &plan.clusters[0];
    // All times differ by whole seconds: with others, fractions would carry in some runs and not in others.
    let begun = Instant::now();
    let now = begun + Duration::from_secs(5);
    let (mut cache, mut random) = (PickCache::default(), Random::new(7));
    teach(cluster, begun);
    // Some requests are in flight, half as many as there are endpoints.
    let mut leases = Vec::new();
    for _ in 0..endpoints / 2 {
        leases.push(cluster.pick(&mut cache, &mut || random.next_u64(), &Ask::new(now)));
    }
    let heads: Vec<_> = (0..64)
        .map(|request| made::request(&("shop.example.com".to_owned(), format!("/api/items/{request}"))))
        .collect();
    let mut turn = 0_usize;
    count(&mut || {
        turn += 1;
        let client = IpAddr::from([192, 0, 2, turn as u8]);
        let key = cluster.key(black_box(&heads[turn % heads.len()]), client);
        let ask = Ask { key, ..Ask::new(now) };
        let picked = cluster.pick(&mut cache, &mut || random.next_u64(), &ask);
        assert!(matches!(black_box(picked), Pick::Endpoint(_)));
    });
}

/// Lets the balancers know of times.
fn teach(cluster: &Arc<ClusterPlan>, now: Instant) {
    let mut random = Random::new(5);
    for endpoint in &cluster.endpoints {
        let latency = Duration::from_micros(500 + random.below(1_000));
        cluster.witness(&endpoint.state, Seen::Answered { status: 200, latency }, now);
    }
}
