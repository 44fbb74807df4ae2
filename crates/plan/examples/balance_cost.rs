//! What balancing costs with many endpoints: `cargo run --release -p equipoise-plan --example balance_cost [COUNT]`.
//!
//! For each balancer, of 10,000 endpoints or as many as are asked for: nanoseconds per pick (with giving the place back)
//! without bounds and with `connections_max`, and while half of all places are taken; the time to build the view again
//! after one endpoint went down, and that to compile the cluster after one weight has changed. From one thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::fitness::{AdminState, Fitness};
use model::limits::BALANCE_HALF_LIFE as HALF_LIFE;
use model::placement::{Aperture, Placed, Spread};
use model::snapshot::{
    Balance, Cluster, ClusterSettings, Endpoint, Hash, HashAlgorithm, HealthCheck, HealthCheckKind, Pool, Snapshot,
    UpstreamTimeouts,
};
use plan::{Ask, ClusterPlan, Outcome, Pick, PickCache, Plan, Random, Seen};

const SECOND: Duration = Duration::from_secs(1);
const ROUNDS: u32 = 500_000;

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_000);
    println!("{count} endpoints of weights 1 to 3            pick  bounded  half busy    down    compile");
    let hash = |algorithm, load_max| Balance::Hash(Hash { algorithm, load_max, ..Hash::of_source() });
    let plain = [
        ("round_robin", Balance::RoundRobin),
        ("random", Balance::Random),
        ("least_request", Balance::LeastRequest),
        ("power_of_two", Balance::PowerOfTwo),
        ("least_time", Balance::LeastTime { half_life: HALF_LIFE }),
        ("peak_ewma", Balance::PeakEwma { half_life: HALF_LIFE }),
        ("hash, rendezvous", hash(HashAlgorithm::Rendezvous, None)),
        ("hash, maglev", hash(HashAlgorithm::Maglev, None)),
        ("hash, ketama", hash(HashAlgorithm::Ketama, None)),
        ("hash, rendezvous, load_max: 125%", hash(HashAlgorithm::Rendezvous, Some(125))),
        ("hash, maglev, load_max: 125%", hash(HashAlgorithm::Maglev, Some(125))),
        ("hash, ketama, load_max: 125%", hash(HashAlgorithm::Ketama, Some(125))),
        ("first", Balance::First),
    ];
    for (title, balance) in plain {
        measure(title, &|bound| cluster(balance.clone(), count, bound));
    }
    measure("least_request, three priorities", &|bound| {
        let mut cluster = cluster(Balance::LeastRequest, count, bound);
        (0..).zip(&mut cluster.endpoints).for_each(|(place, endpoint)| endpoint.placement.priority = place % 3);
        cluster
    });
    measure("least_request, aperture of a tenth", &|bound| {
        let mut cluster = cluster(Balance::LeastRequest, count, bound);
        cluster.spread.aperture = Some(Aperture { instance: 3, instances: 10, endpoints_min: 12 });
        cluster
    });
}

fn measure(title: &str, cluster: &dyn Fn(Option<u32>) -> Cluster) {
    let free = compile(cluster(None), None);
    teach(&free.clusters[0]);
    let bounded = compile(cluster(Some(2)), None);
    teach(&bounded.clusters[0]);
    let (pick, with_bound) = (picks(&free.clusters[0]), picks(&bounded.clusters[0]));
    // As many places as there are endpoints in use, which is half of all.
    let in_use = bounded.clusters[0].endpoints.len() / if title.contains("tenth") { 10 } else { 1 };
    let held: Vec<Pick> = many(&bounded.clusters[0], in_use);
    let half_busy = picks(&bounded.clusters[0]);
    drop(held);
    let begun = Instant::now();
    free.clusters[0].observe(7, Outcome::Failure);
    let down = begun.elapsed();
    free.clusters[0].observe(7, Outcome::Success);
    let mut changed = cluster(None);
    changed.endpoints[11].weight += 1;
    let begun = Instant::now();
    let after = compile(changed, Some(&free));
    let recompiled = begun.elapsed();
    assert_eq!(after.clusters.len(), 1);
    println!("{title:44} {pick:5.0} ns {with_bound:5.0} ns {half_busy:6.0} ns {down:9.1?} {recompiled:9.1?}");
}

/// Lets the balancers know of times.
fn teach(cluster: &ClusterPlan) {
    let now = Instant::now();
    let mut random = Random::new(5);
    for endpoint in &cluster.endpoints {
        let latency = Duration::from_micros(500 + random.below(1_000));
        cluster.witness(&endpoint.state, Seen::Answered { status: 200, latency }, now);
    }
}

fn many(cluster: &ClusterPlan, count: usize) -> Vec<Pick> {
    let (mut cache, mut random) = (PickCache::default(), Random::new(3));
    (0..count).map(|_| pick(cluster, (&mut cache, &mut random), Instant::now())).collect()
}

fn picks(cluster: &ClusterPlan) -> f64 {
    let (mut cache, mut random) = (PickCache::default(), Random::new(7));
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let picked = pick(cluster, (&mut cache, &mut random), start);
        assert!(matches!(std::hint::black_box(picked), Pick::Endpoint(_)));
    }
    start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}

fn pick(cluster: &ClusterPlan, (cache, random): (&mut PickCache, &mut Random), now: Instant) -> Pick {
    let ask = Ask { key: Some(random.next_u64()), ..Ask::new(now) };
    cluster.pick(cache, &mut || random.next_u64(), &ask)
}

fn compile(cluster: Cluster, previous: Option<&Plan>) -> Plan {
    let snapshot = Snapshot { clusters: vec![Arc::new(cluster)], ..Snapshot::default() };
    match plan::compile(Arc::new(snapshot), previous, 1) {
        Ok(plan) => plan,
        Err(issues) => panic!("{issues:?}"),
    }
}

fn cluster(balance: Balance, endpoints: u32, connections_max: Option<u32>) -> Cluster {
    let endpoint = |place: u32| {
        let address = ([10, (place >> 16) as u8, (place >> 8) as u8, place as u8], 8080);
        Endpoint {
            name: format!("10.{}.{}.{}:8080", place >> 16, place >> 8 & 255, place & 255).into(),
            address: std::net::SocketAddr::from(address).into(),
            weight: 1 + place % 3,
            connections_max,
            queue_max: None,
            agent_port: None,
            state: AdminState::Auto,
            placement: Placed::default(),
        }
    };
    Cluster {
        name: "c".into(),
        endpoints: (0..endpoints).map(endpoint).collect(),
        endpoints_from: None,
        settings: Arc::new(ClusterSettings {
            connections_max: None,
            balance,
            spread: Spread::default(),
            health_check: Some(HealthCheck {
                rise: 1,
                fall: 1,
                ..HealthCheck::new(HealthCheckKind::Tcp, SECOND, SECOND)
            }),
            fitness: Fitness::default(),
            queue: None,
            tls: None,
            socket: model::socket::ClusterSocket::default(),
            proxy_protocol: None,
            grpc_web: false,
            follows_names: false,
            pool: Pool { idle_max: 1, idle_timeout: SECOND, requests_per_connection_max: None, shared: None },
            timeouts: UpstreamTimeouts { connect: SECOND, response_head: SECOND, idle: SECOND, tunnel: None },
            retry: model::retry::Retry::default(),
            resilience: model::resilience::Resilience::default(),
            persistence: None,
        }),
    }
}
