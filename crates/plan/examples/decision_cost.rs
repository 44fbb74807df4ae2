//! What decisions cost: `cargo run --release -p equipoise-plan --example decision_cost`.
//!
//! Prints nanoseconds per pick (with giving the place back) by balancer and number of endpoints, from one thread and
//! from two, and per route found among 10 and 10,000. Take figures of one run in turn; a shared machine moves them by half.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::fields::Span;
use model::matching::{Match, PathMatch};
use model::snapshot::{
    Action, Balance, Cluster, ClusterSettings, Endpoint, Forwarding, HttpListener, HttpVersions, Listener, Pool,
    Protocol, Route, Snapshot, UpstreamTimeouts,
};
use model::{FieldName, RequestHead, Version};
use plan::{Ask, ClusterPlan, ListenerTarget, Pick, PickCache, Plan, Random, Router};

const SECOND: Duration = Duration::from_secs(1);
const ROUNDS: u32 = 2_000_000;

fn main() {
    for balance in [Balance::RoundRobin, Balance::Random, Balance::LeastRequest] {
        for endpoints in [1, 4, 64] {
            for bound in [None, Some(1_000)] {
                let plan = plan(cluster(balance.clone(), endpoints, bound), vec![]);
                let cluster = &plan.clusters[0];
                let one = picks(cluster);
                let two = std::thread::scope(|scope| {
                    let other = scope.spawn(|| picks(cluster));
                    picks(cluster).max(other.join().unwrap_or_default())
                });
                println!("pick {balance:?} of {endpoints:2}, bound {bound:?}: {one:5.1} ns, two threads {two:5.1} ns");
            }
        }
    }
    for count in [10, 10_000] {
        let by_host = plan(cluster(Balance::Random, 1, None), (0..count).map(by_host).collect());
        let by_path = plan(cluster(Balance::Random, 1, None), (0..count).map(by_path).collect());
        let head = request("shop-7.example.com:8080", "/api/v7/things/1234?x=1");
        println!("find among {count:5} hosts:    {:5.1} ns", finds(&by_host, &head));
        println!("find among {count:5} prefixes: {:5.1} ns", finds(&by_path, &head));
        let start = Instant::now();
        let again = plan::compile(by_host.snapshot.clone(), Some(&by_host), 2);
        println!("compile again, {count} routes unchanged: {:?} {}", start.elapsed(), again.is_ok());
    }
}

fn picks(cluster: &Arc<ClusterPlan>) -> f64 {
    let mut cache = PickCache::default();
    let mut random = Random::new(7);
    let start = Instant::now();
    let ask = Ask::new(start);
    for _ in 0..ROUNDS {
        let pick = cluster.pick(&mut cache, &mut || random.next_u64(), &ask);
        assert!(matches!(std::hint::black_box(pick), Pick::Endpoint(_)));
    }
    start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}

fn finds(plan: &Plan, head: &RequestHead) -> f64 {
    let ListenerTarget::Http(router) = &plan.listeners[0].target else { return f64::NAN };
    let router: &Router = router;
    let client = std::net::IpAddr::from([192, 0, 2, 1]);
    let mut scratch = Vec::new();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let route = router.find(std::hint::black_box(head), client, &mut scratch);
        assert_eq!(std::hint::black_box(route).map(|route| route.index), Some(7));
    }
    start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}

fn plan(cluster: Cluster, routes: Vec<Route>) -> Plan {
    let http = HttpListener {
        versions: HttpVersions { h1: true, h2: true, h3: false },
        head_bytes_max: 8192,
        fields_max: 100,
        paths: None,
        host_mismatch: model::snapshot::HostMismatch::Replace,
        head_timeout: SECOND,
        idle_timeout: SECOND,
        stream_timeout: SECOND,
        requests_per_connection_max: None,
        no_keep_alive_for: Vec::new(),
        forwarding: Forwarding {
            trusted: Vec::new(),
            client_address: Vec::new(),
            x_forwarded: false,
            forwarded: false,
        },
        request_id: None,
        http3: model::snapshot::Http3 { advertised_for: None, advertised_port: None, unproven_max: 1 },
    };
    let bind = std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into();
    let listener = Listener {
        name: "web".into(),
        bind,
        socket: model::socket::ListenerSocket::default(),
        tls: None,
        proxy_protocol: None,
        address_list: None,
        per_address: None,
        track: Vec::new(),
        connections_max: 10,
        protocol: Protocol::Http(http),
    };
    let snapshot = Snapshot {
        listeners: vec![Arc::new(listener)],
        routes: routes.into_iter().map(Arc::new).collect(),
        clusters: vec![Arc::new(cluster)],
        ..Snapshot::default()
    };
    match plan::compile(Arc::new(snapshot), None, 1) {
        Ok(plan) => plan,
        Err(issues) => panic!("{issues:?}"),
    }
}

fn cluster(balance: Balance, endpoints: u16, connections_max: Option<u32>) -> Cluster {
    let endpoint = |place| Endpoint {
        name: format!("127.0.0.1:{}", 9000 + place).into(),
        address: std::net::SocketAddr::from(([127, 0, 0, 1], 9000 + place)).into(),
        weight: 1 + u32::from(place % 3),
        connections_max,
        state: model::fitness::AdminState::Auto,
        placement: model::placement::Placed::default(),
        queue_max: None,
        agent_port: None,
    };
    Cluster {
        name: "c".into(),
        endpoints: (0..endpoints).map(endpoint).collect(),
        endpoints_from: None,
        settings: Arc::new(ClusterSettings {
            connections_max: None,
            balance,
            spread: model::placement::Spread::default(),
            health_check: None,
            fitness: model::fitness::Fitness::default(),
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

fn route(place: usize, matches: Match) -> Route {
    Route {
        name: format!("r{place}").into(),
        above: Vec::new(),
        listeners: vec![],
        matches,
        priority: 0,
        filters: vec![],
        action: Action::Cluster("c".into()),
        timeout: None,
        retry: None,
        hedge: None,
        subset: None,
        precedence: model::queue::Precedence::default(),
        early_data: false,
        is_internal: false,
    }
}

fn by_host(place: usize) -> Route {
    let hosts = format!("shop-{place}.example.com").parse().into_iter().collect();
    route(place, Match { hosts, path: Some(PathMatch::Prefix("/api".into())), ..Match::default() })
}

fn by_path(place: usize) -> Route {
    route(place, Match { path: Some(PathMatch::Prefix(format!("/api/v{place}/things"))), ..Match::default() })
}

fn request(host: &str, target: &str) -> RequestHead {
    let mut head = RequestHead::default();
    let at = head.fields.load(b"GET");
    let start = head.fields.load(target.as_bytes());
    head.set_line(Span::new(at, start), Span::new(start, start + target.len()), Version::Http11);
    for (name, value) in [("User-Agent", "example"), ("Host", host), ("Accept", "*/*")] {
        head.fields.append(&FieldName::new(name).unwrap_or_else(|error| panic!("{error}")), value.as_bytes());
    }
    head
}
