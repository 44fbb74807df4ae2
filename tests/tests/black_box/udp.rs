//! Datagrams: those of a client go to one endpoint, and its answers go back.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::harness::net::free;
use super::harness::poll::PATIENCE;
use super::harness::product::folder;
use super::harness::{Product, eventually};

/// What an endpoint does with a datagram: the answers that it sends.
type Script = dyn Fn(&[u8]) -> Vec<Vec<u8>> + Send + Sync;

/// An endpoint for datagrams, and where they came from.
pub(super) struct Echo {
    address: SocketAddr,
    sources: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Echo {
    /// Answers with a letter and what it got.
    pub(super) fn start(letter: &'static str) -> Self {
        Self::start_at("127.0.0.1:0", move |bytes| vec![[letter.as_bytes(), bytes].concat()])
    }

    pub(super) fn start_at(address: &str, script: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Self {
        let socket = UdpSocket::bind(address).expect("a free port");
        let (address, sources) = (socket.local_addr().expect("an address"), Arc::default());
        let book: Arc<Mutex<Vec<SocketAddr>>> = Arc::clone(&sources);
        let script: Box<Script> = Box::new(script);
        std::thread::spawn(move || {
            let mut room = vec![0; 65_536];
            while let Ok((count, from)) = socket.recv_from(&mut room) {
                book.lock().expect("sources").push(from);
                for answer in script(&room[..count]) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Self { address, sources }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Every socket that something came from.
    pub(super) fn sources(&self) -> HashSet<SocketAddr> {
        self.sources.lock().expect("sources").iter().copied().collect()
    }
}

/// A client for datagrams.
pub(super) struct Client(UdpSocket);

impl Client {
    pub(super) fn of(product: &Product) -> Self {
        Self::at(product.address("dns"))
    }

    pub(super) fn at(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.connect(address).expect("an address");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        Self(socket)
    }

    pub(super) fn send(&self, bytes: &[u8]) {
        self.0.send(bytes).expect("it is taken");
    }

    fn receive(&self) -> Vec<u8> {
        let mut room = vec![0; 65_536];
        let count = self.0.recv(&mut room).expect("an answer was due");
        room.truncate(count);
        room
    }

    pub(super) fn ask(&self, text: &str) -> String {
        self.send(text.as_bytes());
        String::from_utf8_lossy(&self.receive()).into_owned()
    }

    /// Sends again and again until something comes back.
    fn ask_until(&self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        self.0.set_read_timeout(Some(Duration::from_millis(100))).expect("a time limit");
        let mut room = [0; 2048];
        loop {
            // What came back as an error belongs to what was sent before.
            let _ = self.0.send(text.as_bytes());
            if let Ok(count) = self.0.recv(&mut room) {
                self.0.set_read_timeout(Some(PATIENCE)).expect("a time limit");
                return String::from_utf8_lossy(&room[..count]).into_owned();
            }
            assert!(Instant::now() < end, "no answer to `{text}`");
        }
    }
}

fn text(listener: &str, endpoints: &str, cluster: &str) -> String {
    format!(
        "version: 1\n\
         listeners:\n  dns:\n    bind: \"127.0.0.1:0\"\n    protocol: udp\n    cluster: names\n    {listener}\n\
         clusters:\n  names:\n    endpoints: [{endpoints}]\n    {cluster}\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n\
         access_logs: [{{ path: \"DIR/access.json\", format: json }}]\n"
    )
}

pub(super) fn start(listener: &str, endpoints: &[&Echo], cluster: &str) -> Product {
    Product::start(&text(listener, &list(endpoints), cluster))
}

fn list(endpoints: &[&Echo]) -> String {
    endpoints.iter().map(|echo| format!("\"{}\"", echo.address)).collect::<Vec<_>>().join(", ")
}

#[test]
fn datagrams_go_to_one_endpoint_and_answers_come_back() {
    let (one, other) = (Echo::start("a"), Echo::start("b"));
    let product = start("idle_timeout: 5s", &[&one, &other], "");
    let client = Client::of(&product);
    let first = client.ask("0");
    for turn in 1..10 {
        assert_eq!(client.ask(&turn.to_string()), first.replace('0', &turn.to_string()));
    }
    assert_eq!(one.sources().len() + other.sources().len(), 1, "one flow, one socket");
    product.expect_said(&["listener dns on udp://127.0.0.1:"]);
    let record = product.record("the flow", |record| record["kind"] == "flow");
    assert_eq!((record["received_bytes"].as_u64(), record["sent_bytes"].as_u64()), (Some(10), Some(20)));
    assert_eq!((record["client_ip"].as_str(), record["flag"].as_str()), (Some("127.0.0.1"), None));
    assert_eq!(record["client_port"], client.0.local_addr().expect("ours").port());
    assert_eq!((record["listener"].as_str(), record["cluster"].as_str()), (Some("dns"), Some("names")));
    product.expect_metric("equipoise_streams_total", &["listener=\"dns\""], 1.0);
    product.expect_metric("equipoise_received_bytes_total", &["listener=\"dns\""], 10.0);
    product.expect_metric("equipoise_connections_open", &["listener=\"dns\""], 0.0);
    product.expect_metric("equipoise_endpoint_in_flight", &[], 0.0);
    // The next datagram begins another flow.
    client.ask("again");
    eventually("another socket", || one.sources().len() + other.sources().len() == 2);
}

#[test]
fn clients_are_spread_and_each_gets_its_own_answers() {
    let (one, other) = (Echo::start("a"), Echo::start("b"));
    let product = start("", &[&one, &other], "");
    let clients: Vec<_> = (0..64).map(|_| Client::of(&product)).collect();
    for (number, client) in clients.iter().enumerate() {
        client.send(number.to_string().as_bytes());
    }
    for (number, client) in clients.iter().enumerate() {
        let answer = String::from_utf8(client.receive()).expect("text");
        assert_eq!(answer[1..], number.to_string());
    }
    assert_eq!((one.sources().len(), other.sources().len()), (32, 32));
    product.expect_metric("equipoise_connections_open", &["listener=\"dns\""], 64.0);
    let hashed = start("", &[&one, &other], "balance: source_hash");
    let letters: HashSet<_> = (0..10).map(|_| Client::of(&hashed).ask("x")).collect();
    assert_eq!(letters.len(), 1, "one address, one endpoint");
}

#[test]
fn datagrams_of_any_size_pass_and_there_may_be_several_answers_or_none() {
    let echo = Echo::start_at("127.0.0.1:0", |bytes| match bytes {
        b"three" => vec![b"1".to_vec(), b"2".to_vec(), b"3".to_vec()],
        b"none" => Vec::new(),
        other => vec![other.to_vec()],
    });
    let product = start("", &[&echo], "");
    let client = Client::of(&product);
    for size in [0, 1, 1_500, 9_000, 65_507] {
        let bytes: Vec<u8> = (0..size).map(|at| at as u8).collect();
        client.send(&bytes);
        assert!(client.receive() == bytes, "{size}");
    }
    client.send(b"three");
    let answers: Vec<_> = (0..3).map(|_| client.receive()).collect();
    assert_eq!(answers, [b"1", b"2", b"3"]);
    client.send(b"none");
    assert_eq!(client.ask("on"), "on");
}

#[test]
fn a_flow_is_over_when_all_answers_that_are_expected_have_come() {
    let echo = Echo::start_at("127.0.0.1:0", |bytes| match bytes {
        b"first" => Vec::new(),
        b"second" => vec![b"1".to_vec(), b"2".to_vec()],
        other => vec![other.to_vec()],
    });
    let product = start("responses_max: 1", &[&echo], "");
    let client = Client::of(&product);
    for turn in 1..4 {
        assert_eq!(client.ask("x"), "x");
        product.expect_metric("equipoise_streams_total", &["listener=\"dns\""], f64::from(turn));
    }
    product.expect_metric("equipoise_connections_open", &["listener=\"dns\""], 0.0);
    assert_eq!(echo.sources().len(), 3);
    // Two questions at once: neither answer is lost.
    client.send(b"first");
    client.send(b"second");
    assert_eq!((client.receive(), client.receive()), (b"1".to_vec(), b"2".to_vec()));
    product.expect_metric("equipoise_streams_total", &["listener=\"dns\""], 4.0);
    assert_eq!(echo.sources().len(), 4);
}

#[test]
fn no_more_flows_than_the_bound_says() {
    let echo = Echo::start_at("127.0.0.1:0", |bytes| match bytes {
        b"end" => vec![b"end".to_vec(); 3],
        other => vec![other.to_vec()],
    });
    let product = start("connections_max: 2\n    responses_max: 2", &[&echo], "");
    let (one, other, third) = (Client::of(&product), Client::of(&product), Client::of(&product));
    assert_eq!((one.ask("1"), other.ask("2")), ("1".to_owned(), "2".to_owned()));
    third.send(b"3");
    product.expect_metric("equipoise_faults_total", &["fault=\"listener_full\""], 1.0);
    product.expect_metric("equipoise_datagrams_dropped_total", &["listener=\"dns\""], 1.0);
    // One answer to the first and three to the second: those are all that are expected.
    assert_eq!(one.ask("end"), "end", "those that are there go on");
    assert_eq!(third.ask_until("3"), "3");
}

#[test]
fn an_endpoint_that_refuses_ends_its_flow_and_another_is_tried() {
    let echo = Echo::start("a");
    // Of somebody who takes datagrams from one peer alone: all others are refused.
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    taken.connect("127.0.0.1:9").expect("a peer");
    let gone = taken.local_addr().expect("an address");
    let endpoints = format!("\"{gone}\", \"{}\"", echo.address);
    let rules = "passive_health: { consecutive_failures: 1, ejection_time: 1m }";
    let product = Product::start(&text("", &endpoints, rules));
    for _ in 0..4 {
        assert_eq!(Client::of(&product).ask_until("x"), "ax");
    }
    let record = product.flagged("UC");
    assert_eq!(
        (record["kind"].as_str(), record["endpoint_address"].as_str()),
        (Some("flow"), Some(gone.to_string().as_str()))
    );
    product.expect_metric_at_least("equipoise_faults_total", &["fault=\"connect_failed\""], 1.0);
}

#[test]
fn without_an_endpoint_that_is_up_datagrams_are_dropped() {
    let echo = Echo::start("a");
    let endpoint = format!("{{ address: \"{}\", state: maintenance }}", echo.address);
    let product = Product::start(&text("", &endpoint, ""));
    Client::of(&product).send(b"x");
    assert_eq!(product.flagged("PE")["kind"], "flow");
    product.expect_metric("equipoise_datagrams_dropped_total", &["listener=\"dns\""], 1.0);
    assert!(echo.sources().is_empty());
}

#[test]
fn a_change_keeps_flows_whose_listener_and_endpoint_remain() {
    let (one, other) = (Echo::start("a"), Echo::start("b"));
    let product = start("", &[&one], "");
    let client = Client::of(&product);
    assert_eq!(client.ask("1"), "a1");
    product.reload(&text("idle_timeout: 2m", &list(&[&other, &one]), ""));
    for turn in 2..6 {
        assert_eq!(client.ask(&turn.to_string()), format!("a{turn}"));
    }
    assert_eq!((one.sources().len(), other.sources().len()), (1, 0));
    // The endpoint goes, and the flow with it.
    product.reload(&text("", &list(&[&other]), ""));
    assert_eq!(client.ask("6"), "b6");
    // So does a flow whose listener goes; the address is free for another then.
    let elsewhere = text("", &list(&[&other]), "").replace("  dns:", "  later:");
    product.reload(&elsewhere);
    product.expect_metric("equipoise_connections_open", &["listener=\"dns\""], 0.0);
}

#[test]
fn a_flow_leaves_an_endpoint_whose_checks_fail() {
    let (first, second, port) = one_port_twice();
    let (one, other) = (Echo::start("a"), Echo::start_at("127.0.0.2:0", |bytes| vec![[b"b", bytes].concat()]));
    let check = format!("health_check: {{ tcp: {{}}, port: {port}, interval: 250ms, timeout: 10s, fall: 1, rise: 1 }}");
    let product = start("", &[&one, &other], &check);
    product.expect_metric("equipoise_endpoint_up", &["cluster=\"names\""], 2.0);
    let client = Client::of(&product);
    let before = client.ask("x");
    let (kept, gone, expected) = if before == "ax" { (second, first, "bx") } else { (first, second, "ax") };
    drop(gone);
    eventually("the endpoint is down", || product.metric("equipoise_endpoint_up", &["cluster=\"names\""]) < 2.0);
    assert_eq!(client.ask_until("x"), expected);
    drop(kept);
}

/// The same port at two addresses, of those that are free at both.
fn one_port_twice() -> (TcpListener, TcpListener, u16) {
    let found = (0..100).find_map(|_| {
        let first = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = first.local_addr().expect("an address").port();
        Some((first, TcpListener::bind(("127.0.0.2", port)).ok()?, port))
    });
    found.expect("a port that is free at both addresses")
}

#[test]
fn a_flow_of_an_old_process_leaves_an_endpoint_whose_checks_fail_and_is_over() {
    let (first, second, port) = one_port_twice();
    let (one, other) = (Echo::start("a"), Echo::start_at("127.0.0.2:0", |bytes| vec![[b"b", bytes].concat()]));
    let check = format!("health_check: {{ tcp: {{}}, port: {port}, interval: 250ms, timeout: 10s, fall: 1, rise: 1 }}");
    let text = text("idle_timeout: 5m", &list(&[&one, &other]), &check);
    let mut product = Product::start(&format!("{text}shutdown: {{ drain_timeout: 5m }}\n"));
    product.expect_metric("equipoise_endpoint_up", &["cluster=\"names\""], 2.0);
    let client = Client::of(&product);
    let before = client.ask("x");
    let (kept, gone, expected) = if before == "ax" { (second, first, "bx") } else { (first, second, "ax") };
    product.upgrade();
    assert_eq!(client.ask("x"), before, "by the old process");
    assert!(product.is_running());
    drop(gone);
    // Either process finds out by its own checks.
    eventually("it leaves the endpoint", || client.ask_until("x") == expected);
    assert_eq!(product.wait_ended().code(), Some(0), "the old process has nothing left to do");
    drop(kept);
}

#[test]
fn answers_leave_from_the_address_that_was_asked() {
    let echo = Echo::start("a");
    let product = Product::start(&text("", &list(&[&echo]), "").replacen("127.0.0.1:0", "0.0.0.0:0", 1));
    let port = product.address("dns").port();
    let client = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    client.set_read_timeout(Some(PATIENCE)).expect("a time limit");
    for (last, text) in [(2, "1"), (3, "2"), (2, "3")] {
        // With a peer, so that nothing is taken from another address.
        client.connect((Ipv4Addr::new(127, 0, 0, last), port)).expect("an address");
        client.send(text.as_bytes()).expect("it is taken");
        let mut room = [0; 16];
        let count = client.recv(&mut room).expect("an answer was due");
        assert_eq!(room[..count], *format!("a{text}").as_bytes());
    }
    assert_eq!(echo.sources().len(), 2, "each address that is asked has flows of its own");
    product.expect_metric("equipoise_connections_open", &["listener=\"dns\""], 2.0);
}

#[test]
fn datagrams_that_come_together_all_pass_in_their_order() {
    let echo = Echo::start("a");
    let product = start("", &[&echo], "");
    let (one, other) = (Client::of(&product), Client::of(&product));
    for round in 0..10 {
        for number in 0..40 {
            one.send(format!("{round}-{number}").as_bytes());
            other.send(&[b'x'; 700]);
        }
        for number in 0..40 {
            assert_eq!(one.receive(), format!("a{round}-{number}").as_bytes());
            assert_eq!(other.receive().len(), 701);
        }
    }
    assert_eq!(echo.sources().len(), 2);
    product.expect_metric("equipoise_datagrams_dropped_total", &["listener=\"dns\""], 0.0);
}

#[test]
fn a_flood_that_finds_no_endpoint_fills_counters_and_no_disk() {
    let echo = Echo::start("a");
    let endpoint = format!("{{ address: \"{}\", state: maintenance }}", echo.address);
    let product = Product::start(&text("", &endpoint, ""));
    let (client, begun) = (Client::of(&product), Instant::now());
    for sent in 1..=100 {
        client.send(b"x");
        product.expect_metric("equipoise_datagrams_dropped_total", &["listener=\"dns\""], f64::from(sent));
    }
    product.expect_metric("equipoise_faults_total", &["fault=\"no_endpoint\"", "listener=\"dns\""], 100.0);
    product.flagged("PE");
    let seconds = begun.elapsed().as_secs() as usize;
    assert!(product.records().len() <= seconds + 2, "{} records in {seconds} s", product.records().len());
}

#[test]
fn a_circuit_closes_again_by_flows_that_are_never_answered() {
    let shared = || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
        socket.set_reuse_address(true).expect("an option");
        socket
    };
    let taken = shared();
    taken.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    // Of somebody who takes datagrams from one peer alone: all others are refused.
    taken.connect(&SocketAddr::from(([127, 0, 0, 1], 9)).into()).expect("a peer");
    let address = taken.local_addr().expect("bound").as_socket().expect("an address");
    let rules = "circuit_breaker: { error_ratio: { requests_min: 1, open_for: 500ms } }";
    let product = Product::start(&text("idle_timeout: 300ms", &format!("\"{address}\""), rules));
    let refused = Client::of(&product);
    eventually("it opens", || {
        // That the first is refused is seen with the second.
        refused.send(b"x");
        product.metric("equipoise_cluster_circuit_opened_total", &[]) >= 1.0
    });
    // From now on somebody listens, who never says a word.
    let silent = shared();
    silent.bind(&address.into()).expect("a shared port");
    eventually("it closes", || {
        Client::of(&product).send(b"x");
        product.metric("equipoise_cluster_circuit", &[]) == 0.0
    });
}

#[test]
fn a_change_ends_the_flows_of_an_endpoint_that_goes_though_their_clients_are_silent() {
    let (one, other) = (Echo::start("a"), Echo::start("b"));
    let product = start("idle_timeout: 1h", &[&one], "");
    let client = Client::of(&product);
    assert_eq!(client.ask("1"), "a1");
    product.reload(&text("idle_timeout: 1h", &list(&[&other]), ""));
    product.expect_metric("equipoise_connections_open", &["listener=\"dns\""], 0.0);
    assert_eq!(product.record("the flow", |record| record["kind"] == "flow")["sent_bytes"], 2);
    assert_eq!(client.ask("2"), "b2");
    // One whose endpoint remains stays.
    product.reload(&text("idle_timeout: 1h", &list(&[&one, &other]), ""));
    product.expect_metric("equipoise_connections_open", &["listener=\"dns\""], 1.0);
    assert_eq!(client.ask("3"), "b3");
    assert_eq!(other.sources().len(), 1);
}

#[test]
fn the_end_of_the_program_does_not_wait_for_silent_flows() {
    let echo = Echo::start("a");
    let mut product = start("idle_timeout: 1h", &[&echo], "");
    let client = Client::of(&product);
    client.ask("x");
    let begun = Instant::now();
    product.signal(libc::SIGTERM);
    assert!(product.wait_ended().success());
    assert!(begun.elapsed() < Duration::from_secs(20), "the bound on draining is 30 s");
    let record = product.record("the flow", |record| record["kind"] == "flow");
    assert_eq!(record["sent_bytes"], 2);
}

#[test]
fn many_datagrams_at_once_cross_two_products_in_order_and_as_they_are() {
    let echo = Echo::start("");
    let second = start("", &[&echo], "");
    // What the first has taken together goes as one piece, which the second gets uncut.
    let first = Product::start(&text("", &format!("\"{}\"", second.address("dns")), ""));
    let client = Client::of(&first);
    for round in 0..50_u8 {
        let sizes = |place: u8| if place == 20 { 7 } else { 900 };
        let sent: Vec<Vec<u8>> = (0..21_u8).map(|place| vec![place ^ round; sizes(place)]).collect();
        sent.iter().for_each(|bytes| client.send(bytes));
        for bytes in sent {
            assert_eq!(client.receive(), bytes, "in round {round}");
        }
    }
}

#[test]
fn a_listener_that_is_gone_leaves_its_address_to_the_next_though_it_had_flows() {
    let (one, other, address) = (Echo::start("a"), Echo::start("b"), free());
    let with = |bind: String, echo: &Echo| {
        let listener = format!("  dns: {{ bind: \"{bind}\", protocol: udp, cluster: echo }}\n");
        let cluster = format!("clusters: {{ echo: {{ endpoints: [\"{}\"] }} }}\n", echo.address());
        format!("version: 1\nlisteners:\n  web: {{ bind: \"127.0.0.1:0\" }}\n{listener}{cluster}")
    };
    let first = with(address.to_string(), &one);
    let gone = first.lines().filter(|line| !line.contains("dns:")).map(|line| format!("{line}\n")).collect::<String>();
    let product = Product::start_in(folder(), &first, 2);
    let clients: Vec<Client> = (0..8).map(|_| Client::at(address)).collect();
    let ask_all = |letter: &str| {
        for (number, client) in clients.iter().enumerate() {
            let text = number.to_string();
            assert_eq!(client.ask(&text), format!("{letter}{text}"));
        }
    };
    ask_all("a");
    // Its flows would wait for a minute, and so would their sockets.
    assert!(product.reload(&gone).contains("configuration is live"));
    assert!(product.reload(&with(address.to_string(), &other)).contains("configuration is live"));
    ask_all("b");
    let all = with(format!("0.0.0.0:{}", address.port()), &one);
    assert!(product.reload(&all).contains("configuration is live"));
    ask_all("a");
}
