//! `rate_limit` with `shared` in a real Redis Cluster: keys on several nodes, slots that move, and a node that dies.

use std::net::SocketAddr;

use tempfile::TempDir;

use super::harness::{Origin, Product, eventually, net};
use super::shared_limit::{Redis, setup};

/// Nodes of one cluster.
struct RedisCluster {
    nodes: Vec<Redis>,
    _folders: Vec<TempDir>,
}

impl RedisCluster {
    /// Three masters with a third of the slots each, and a replica of the first if there is to be one.
    fn start(has_replica: bool) -> Self {
        let (mut nodes, mut folders, mut buses) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..3 + usize::from(has_replica) {
            let (folder, bus) = (TempDir::new().expect("a folder"), net::free());
            let (port, place) = (bus.port().to_string(), folder.path().to_string_lossy().into_owned());
            let more = [
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &port,
                "--cluster-node-timeout",
                "1000",
                "--dir",
                &place,
            ];
            nodes.push(Redis::start_with(net::free(), None, &more));
            folders.push(folder);
            buses.push(bus);
        }
        for (node, slots) in nodes.iter().zip(["0 5460", "5461 10922", "10923 16383"]) {
            assert!(node.ask(&format!("CLUSTER ADDSLOTSRANGE {slots}")).starts_with("+OK"));
        }
        for (place, node) in nodes.iter().enumerate() {
            assert!(node.ask("CONFIG SET cluster-replica-validity-factor 0").starts_with("+OK"));
            assert!(node.ask(&format!("CLUSTER SET-CONFIG-EPOCH {}", place + 1)).starts_with("+OK"));
        }
        for (node, bus) in nodes.iter().zip(&buses).skip(1) {
            let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", node.address.port(), bus.port());
            assert!(nodes[0].ask(&meet).starts_with("+OK"));
        }
        let all = Self { nodes, _folders: folders };
        all.expect_whole();
        if has_replica {
            let first = all.id(0);
            eventually("the fourth knows the first", || {
                all.nodes[3].ask(&format!("CLUSTER REPLICATE {first}")).starts_with("+OK")
            });
            eventually("it has what the first has", || {
                all.nodes[3].ask("INFO replication").contains("master_link_status:up")
            });
            eventually("all know it", || {
                all.nodes
                    .iter()
                    .all(|node| node.ask("CLUSTER SLOTS").contains(&all.nodes[3].address.port().to_string()))
            });
        }
        all
    }

    fn expect_whole(&self) {
        let count = format!("cluster_known_nodes:{}", self.nodes.len());
        eventually("the cluster is whole", || {
            self.nodes.iter().all(|node| {
                let info = node.ask("CLUSTER INFO");
                info.contains("cluster_state:ok") && info.contains(&count)
            })
        });
    }

    fn id(&self, place: usize) -> String {
        let answer = self.nodes[place].ask("CLUSTER MYID");
        answer.lines().nth(1).expect("its id").to_owned()
    }

    /// Which node has the key of a user, and its slot.
    fn owner(&self, user: &str) -> (usize, u16) {
        let answer = self.nodes[0].ask(&format!("CLUSTER KEYSLOT equipoise:limit:4:test:={user}"));
        let slot: u16 = answer.lines().next().and_then(|line| line[1..].parse().ok()).expect("a slot");
        (usize::from(slot / 5_461).min(2), slot)
    }

    /// A user whose key is on this node.
    fn user_of(&self, node: usize) -> String {
        (0..).map(|number| format!("u{number}")).find(|user| self.owner(user).0 == node).expect("numbers do not end")
    }

    fn address(&self) -> SocketAddr {
        self.nodes[0].address
    }

    fn product(&self, origin: &Origin) -> Product {
        self.product_of(origin, 2)
    }

    fn product_of(&self, origin: &Origin, workers: usize) -> Product {
        let text = setup(origin, self.address(), "").text();
        let text = text.replace("burst: 50,", "burst: 5, key: { header: x-user },");
        Product::start_in(tempfile::tempdir().expect("a folder"), &text, workers)
    }
}

fn status(product: &Product, user: &str) -> u16 {
    product.connect().ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-User: {user}\r\n\r\n")).status()
}

fn away(product: &Product) -> f64 {
    product.metric("equipoise_filter_events_total", &["event=\"away\""])
}

#[test]
fn keys_on_all_nodes_are_counted_exactly_by_all_instances() {
    let (origin, cluster) = (Origin::saying("in"), RedisCluster::start(false));
    let products = [(); 2].map(|()| cluster.product(&origin));
    for number in 0..40 {
        let user = format!("user{number}");
        let passed = (0..8).filter(|turn| status(&products[turn % 2], &user) == 200).count();
        assert_eq!(passed, 5, "{user}");
    }
    for product in &products {
        assert!(away(product) == 0.0, "each was judged by the store");
    }
    for node in &cluster.nodes {
        assert!(!node.ask("DBSIZE").starts_with(":0"), "each node has some of the keys");
    }
    // What other keys look like decides where they are: a tag, and one that is none.
    for user in ["{tag}a", "{tag}b", "a{}b", "a{b"] {
        assert_eq!((0..8).filter(|_| status(&products[0], user) == 200).count(), 5, "{user}");
    }
    assert!(away(&products[0]) == 0.0);
}

#[test]
fn a_slot_that_moves_takes_its_counts_with_it() {
    let (origin, cluster) = (Origin::saying("in"), RedisCluster::start(false));
    let product = cluster.product(&origin);
    let user = cluster.user_of(1);
    let (_, slot) = cluster.owner(&user);
    let (from, to) = (&cluster.nodes[1], &cluster.nodes[2]);
    assert_eq!((status(&product, &user), status(&product, &user)), (200, 200));
    assert!(to.ask(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", cluster.id(1))).starts_with("+OK"));
    assert!(from.ask(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", cluster.id(2))).starts_with("+OK"));
    assert_eq!(status(&product, &user), 200, "the key is still where it was");
    let key = format!("equipoise:limit:4:test:={user}");
    assert!(from.ask(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.address.port())).starts_with("+OK"));
    assert_eq!(status(&product, &user), 200, "the old node says ASK");
    for node in [to, from, &cluster.nodes[0]] {
        assert!(node.ask(&format!("CLUSTER SETSLOT {slot} NODE {}", cluster.id(2))).starts_with("+OK"));
    }
    assert_eq!(status(&product, &user), 200, "the old node says MOVED");
    assert_eq!((status(&product, &user), away(&product) as u32), (429, 0));
    assert!(from.ask("DBSIZE").starts_with(":0") && to.ask("DBSIZE").starts_with(":1"));
}

#[test]
fn a_node_that_dies_is_missed_until_its_replica_follows() {
    let (origin, mut cluster) = (Origin::saying("in"), RedisCluster::start(true));
    // Each worker learns for itself where the slots are.
    let product = cluster.product_of(&origin, 1);
    let (user, other) = (cluster.user_of(0), cluster.user_of(1));
    assert_eq!((0..8).filter(|_| status(&product, &user) == 200).count(), 5);
    eventually("the replica has it", || cluster.nodes[3].ask("DBSIZE").starts_with(":1"));
    cluster.nodes[0].kill();
    // The endpoint of the configuration is gone too: other nodes know the cluster.
    eventually("the replica is asked", || {
        let before = away(&product);
        let is_refused = status(&product, &user) == 429;
        is_refused && away(&product) == before
    });
    let before = away(&product);
    assert_eq!((0..8).filter(|_| status(&product, &other) == 200).count(), 5);
    assert!(status(&product, &user) == 429 && away(&product) == before);
}
