//! `rate_limit` with `shared`: one allowance over several instances, in a real Redis, and what happens while that is away.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::harness::product::folder;
use super::harness::{Origin, Peer, Product, Setup, eventually, net};

/// A Redis of the test's own. Ends with it.
pub(super) struct Redis {
    pub(super) address: SocketAddr,
    child: Child,
    password: Option<&'static str>,
}

impl Redis {
    fn start(password: Option<&'static str>) -> Self {
        Self::start_at(net::free(), password)
    }

    fn start_at(address: SocketAddr, password: Option<&'static str>) -> Self {
        Self::start_with(address, password, &[])
    }

    /// With these arguments beside the usual ones.
    pub(super) fn start_with(address: SocketAddr, password: Option<&'static str>, more: &[&str]) -> Self {
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &address.port().to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        if let Some(password) = password {
            command.args(["--requirepass", password]);
        }
        command.args(more);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("`redis-server` is needed: Debian has it as `redis-server`");
        let redis = Self { address, child, password };
        eventually("redis listens", || Peer::try_connect(address).is_some());
        redis
    }

    /// What it answers to a command, as text.
    pub(super) fn ask(&self, command: &str) -> String {
        let mut peer = Peer::connect(self.address);
        if let Some(password) = self.password {
            peer.send(format!("AUTH {password}\r\n"));
            peer.take(5);
        }
        peer.send(format!("{command}\r\nQUIT\r\n"));
        String::from_utf8_lossy(&peer.rest()).into_owned()
    }

    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(super) fn setup(origin: &Origin, redis: SocketAddr, more: &str) -> Setup {
    Setup::to(origin)
        .cluster_more(format!("redis: {{ endpoints: [\"{redis}\"] }}"))
        .route(format!(
            "filters: [{{ rate_limit: {{ rate: 1/h, burst: 50, shared: {{ redis: {{ cluster: redis }}, name: test, timeout: 5s{more} }} }} }}]"
        ))
}

/// How many of so many requests pass.
fn passed(product: &Product, count: usize) -> usize {
    let mut peer = product.connect();
    (0..count).filter(|_| peer.get("/").status() == 200).count()
}

#[test]
fn instances_share_one_allowance_exactly() {
    let (origin, redis) = (Origin::saying("in"), Redis::start(None));
    let products = [(); 2].map(|()| setup(&origin, redis.address, "").start());
    let all = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for product in &products {
            for _ in 0..4 {
                scope.spawn(|| all.fetch_add(passed(product, 30), Ordering::SeqCst));
            }
        }
    });
    assert_eq!(all.into_inner(), 50);
    let refused = products[1].get("/");
    assert_eq!(refused.status(), 429);
    let seconds: u32 = refused.field("retry-after").and_then(|text| text.parse().ok()).expect("a number");
    assert!((3_500..=3_600).contains(&seconds), "{seconds}");
    for product in &products {
        product.expect_metric("equipoise_filter_events_total", &["event=\"away\""], 0.0);
    }
    // A new process counts on, and the script is loaded again after `SCRIPT FLUSH`.
    let third = setup(&origin, redis.address, "").start();
    assert_eq!(passed(&third, 3), 0);
    assert!(redis.ask("SCRIPT FLUSH").contains("OK"));
    eventually("it is refused by the store again", || {
        let before = third.metric("equipoise_filter_events_total", &["event=\"away\""]);
        third.get("/").status() == 429 && third.metric("equipoise_filter_events_total", &["event=\"away\""]) == before
    });
}

#[test]
fn a_cost_is_taken_of_the_allowance_that_instances_share() {
    let (origin, redis) = (Origin::saying("in"), Redis::start(None));
    let cost = " }, headers: true, cost: { expression: 'int(request.headers[\"x-n\"])'";
    let [one, other] = [(); 2].map(|()| setup(&origin, redis.address, cost).start());
    let asked = |product: &Product, cost: &str| {
        let response = product.connect().ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-N: {cost}\r\n\r\n"));
        (response.status(), response.field("ratelimit").unwrap_or_default().to_owned())
    };
    let (status, left) = asked(&one, "20");
    assert!(status == 200 && left.contains("r=30"), "{status} {left}");
    assert_eq!(asked(&other, "20").0, 200);
    assert_eq!(asked(&one, "20").0, 429, "ten are left");
    assert_eq!(asked(&one, "none").0, 200, "a missing cost is one");
    assert_eq!((asked(&other, "9").0, asked(&other, "0").0, asked(&one, "none").0), (200, 429, 429));
    // What costs nothing takes nothing, and more than the burst is the burst.
    assert!(redis.ask("FLUSHALL").contains("OK"));
    assert_eq!(["0", "-7", "0"].map(|cost| asked(&one, cost).0), [200; 3]);
    assert!(redis.ask("DBSIZE").contains(":0"), "nothing is kept of it");
    assert_eq!((asked(&other, "99999999999").0, asked(&one, "1").0), (200, 429));
    for product in [&one, &other] {
        product.expect_metric("equipoise_filter_events_total", &["event=\"away\""], 0.0);
    }
}

#[test]
fn a_store_with_a_password_and_another_database_is_used_and_a_wrong_one_is_told() {
    let (origin, redis) = (Origin::saying("in"), Redis::start(Some("open-sesame")));
    let start = |password: &str| {
        let folder = folder();
        std::fs::write(folder.path().join("redis.password"), format!("{password}\n")).expect("our folder");
        let text = setup(&origin, redis.address, "")
            .text()
            .replace("{ cluster: redis }", "{ cluster: redis, password_file: redis.password, database: 3 }");
        Product::start_in(folder, &text, 2)
    };
    let product = start("open-sesame");
    assert_eq!(passed(&product, 60), 50);
    assert!(redis.ask("INFO keyspace").contains("db3:keys=1"), "{}", redis.ask("INFO keyspace"));
    let wrong = start("wrong");
    assert_eq!(passed(&wrong, 60), 50, "it counts on its own");
    wrong.expect_said(&["the store of a shared limit refuses", "WRONGPASS"]);
    assert!(!wrong.stderr().contains("wrong\""), "the password is in no message");
    let mut asked = 0;
    let mut connections = || -> usize {
        asked += 1;
        let stats = redis.ask("INFO stats");
        let count = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        // Each question is a connection of its own.
        count.expect("a figure").trim().parse::<usize>().expect("a number") - asked
    };
    let before = connections();
    eventually("it tries again several times", || connections() >= before + 6);
    let told = wrong.stderr().matches("the store of a shared limit refuses").count();
    assert!(told <= 2, "each of two workers tells it once, not {told} times");
}

#[test]
fn a_lost_connection_does_not_move_a_limit_to_another_endpoint() {
    let (origin, first, second) = (Origin::saying("in"), Redis::start(None), Redis::start(None));
    let text = setup(&origin, first.address, "")
        .text()
        .replace(&format!("\"{}\"", first.address), &format!("\"{}\", \"{}\"", first.address, second.address));
    let product = Product::start(&text);
    assert_eq!(passed(&product, 10), 10);
    for _ in 0..3 {
        assert!(first.ask("DBSIZE").contains(":1"));
        assert!(first.ask("FLUSHALL").contains("OK"));
        first.ask("CLIENT KILL TYPE normal SKIPME yes");
        eventually("the first endpoint is asked again", || {
            assert_eq!(product.get("/").status(), 200);
            first.ask("DBSIZE").contains(":1")
        });
    }
    assert!(second.ask("DBSIZE").contains(":0"), "{}", second.ask("DBSIZE"));
}

#[test]
fn an_error_about_one_key_costs_neither_the_connection_nor_other_questions() {
    let (origin, redis) = (Origin::saying("in"), Redis::start(None));
    let product = setup(&origin, redis.address, ", when_away: open").start();
    assert_eq!(passed(&product, 1), 1);
    let keys = redis.ask("KEYS *");
    let key = keys.lines().find(|line| line.starts_with("equipoise:limit:4:test:=")).expect("the key of a client");
    // The key of a client is the bytes of its address.
    assert!(redis.ask("FLUSHALL").contains("OK"), "{key}");
    let refuse = "EVAL \"redis.call('RPUSH', 'equipoise:limit:4:test:='..string.char(127,0,0,1), 'x')\" 0";
    redis.ask(refuse);
    let connections = || -> usize {
        let stats = redis.ask("INFO stats");
        let count = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        count.expect("a figure of Redis").parse().expect("a number")
    };
    let before = connections();
    let away = || product.metric("equipoise_filter_events_total", &["event=\"away\""]);
    let missed = away();
    assert_eq!(passed(&product, 40), 40);
    assert!(away() >= missed + 40.0, "the store has not judged them");
    // One of the connections is that which asks, and each worker may have made its first.
    assert!(connections() <= before + 4, "{before} {}", connections());
    let told = product.stderr().matches("the store of a shared limit fails").count();
    assert!((1..=4).contains(&told), "{told}");
    redis.ask("FLUSHALL");
    let missed = away();
    assert_eq!(passed(&product, 10), 10);
    assert!((away() - missed).abs() < 0.5, "the same connection answers");
}

#[test]
fn while_the_store_is_away_requests_are_counted_here_or_pass_or_are_rejected() {
    let origin = Origin::saying("in");
    let nobody = net::refusing();
    for (when_away, passing, status) in [("local", 50, 429), ("open", 60, 200), ("closed", 0, 503)] {
        let product = setup(&origin, nobody, &format!(", when_away: {when_away}")).start();
        assert_eq!(passed(&product, 60), passing, "{when_away}");
        assert_eq!(product.get("/").status(), status, "{when_away}");
        product.expect_metric("equipoise_filter_events_total", &["event=\"away\""], 61.0);
    }
}

#[test]
fn a_store_that_accepts_and_says_nothing_holds_nobody_up() {
    let origin = Origin::saying("in");
    let mute = Origin::start(|mut visit| {
        visit.peer.wait_closed();
    });
    let text = setup(&origin, mute.address(), ", when_away: open").text().replace("timeout: 5s", "timeout: 100ms");
    let product = Product::start(&text);
    let begun = Instant::now();
    assert_eq!(passed(&product, 10), 10);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // One that says rubbish is no better.
    let rubbish = Origin::start(|mut visit| {
        visit.peer.send("HTTP/1.1 400 Bad Request\r\n\r\n");
        visit.peer.wait_closed();
    });
    let product = setup(&origin, rubbish.address(), ", when_away: open").start();
    assert_eq!(passed(&product, 10), 10);
}

#[test]
fn a_store_that_is_killed_under_load_and_comes_back_costs_no_request() {
    let origin = Origin::saying("in");
    let mut redis = Redis::start(None);
    let text =
        setup(&origin, redis.address, ", when_away: open").text().replace("rate: 1/h, burst: 50", "rate: 1000000/s");
    let product = Product::start(&text);
    let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let away = || product.metric("equipoise_filter_events_total", &["event=\"away\""]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut peer = product.connect();
                while !is_over.load(Ordering::SeqCst) {
                    assert_eq!(peer.get("/").status(), 200);
                    count.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let more = |than: usize| eventually("requests go on", || count.load(Ordering::SeqCst) > than + 50);
            more(0);
            redis.kill();
            eventually("it is missed", || away() > 0.0);
            more(count.load(Ordering::SeqCst));
            let back = Redis::start_at(redis.address, None);
            eventually("it is asked again", || back.ask("DBSIZE").contains(":1"));
            eventually("nobody misses it", || {
                let before = (away(), count.load(Ordering::SeqCst));
                eventually("requests go on", || count.load(Ordering::SeqCst) > before.1 + 50);
                away() == before.0
            });
        }));
        is_over.store(true, Ordering::SeqCst);
        outcome.expect("what was waited for");
    });
}

/// Answers with the cost that the path names, and a limit that takes it from what two instances share.
fn tokens() -> Origin {
    Origin::answering(|request| {
        let cost = request.target().trim_start_matches('/').to_owned();
        format!("HTTP/1.1 200 OK\r\nX-Tokens: {cost}\r\nContent-Length: 2\r\n\r\nin").into_bytes()
    })
}

const TOKENS: &str =
    " }, headers: true, cost: { expression: '0' }, response_cost: { expression: 'int(response.headers[\"x-tokens\"])'";

fn lost(product: &Product) -> f64 {
    product.metric("equipoise_filter_events_total", &["event=\"charge_lost\""])
}

#[test]
fn what_a_response_costs_is_a_debt_over_all_instances_until_it_is_paid() {
    let (origin, redis) = (tokens(), Redis::start(None));
    let [one, other] = [(); 2].map(|()| setup(&origin, redis.address, TOKENS).start());
    let asked = |product: &Product, cost: &str| {
        let response = product.get(&format!("/{cost}"));
        (response.status(), response.field("ratelimit").unwrap_or_default().to_owned())
    };
    let (status, left) = asked(&one, "20");
    assert!(status == 200 && left.contains("r=30"), "{status} {left}");
    eventually("the other instance sees it", || asked(&other, "0").1.contains("r=30"));
    // What is missing, negative, or no number takes nothing.
    for cost in ["0", "-7", "none", "", "99999999999999999999999"] {
        assert_eq!(asked(&one, cost).0, 200, "{cost}");
    }
    assert!(asked(&other, "0").1.contains("r=30"));
    // All that is left and more: a debt.
    assert_eq!(asked(&other, "31").0, 200);
    eventually("the first instance sees it", || asked(&one, "0").0 == 429);
    assert_eq!(asked(&other, "0").0, 429);
    let wait = |product: &Product| -> u64 {
        product.get("/0").field("retry-after").and_then(|text| text.parse().ok()).expect("a number")
    };
    assert!((7_000..=7_200).contains(&wait(&one)), "one of the debt, and one to go on: {}", wait(&one));
    // No answer, however large it says it was, keeps a key out for more than a day.
    assert!(redis.ask("FLUSHALL").contains("OK"));
    assert_eq!(asked(&one, "9223372036854775807").0, 200);
    eventually("it is charged", || asked(&other, "0").0 == 429);
    assert!((86_400..=90_000).contains(&wait(&other)), "{}", wait(&other));
    for product in [&one, &other] {
        assert_eq!(lost(product), 0.0);
        product.expect_metric("equipoise_filter_events_total", &["event=\"away\""], 0.0);
    }
}

#[test]
fn charges_of_many_responses_at_once_are_all_taken() {
    let (origin, redis) = (tokens(), Redis::start(None));
    let text =
        |address| setup(&origin, address, TOKENS).text().replace("burst: 50", "burst: 100000").replace("1/h", "12/h");
    let products = [(); 2].map(|()| Product::start(&text(redis.address)));
    std::thread::scope(|scope| {
        for product in &products {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut peer = product.connect();
                    (0..100).for_each(|_| assert_eq!(peer.get("/7").status(), 200));
                });
            }
        }
    });
    eventually("all of 800 times 7 is taken", || {
        products[0].get("/0").field("ratelimit").is_some_and(|left| left.contains("r=94400"))
    });
    assert_eq!(products.each_ref().map(lost), [0.0; 2]);
}

#[test]
fn a_charge_that_a_killed_store_does_not_take_is_counted_and_held_here_or_forgotten() {
    let origin = tokens();
    for (when_away, after) in [("local", 429), ("open", 200), ("closed", 503)] {
        let mut redis = Redis::start(None);
        let product = setup(&origin, redis.address, &format!(", when_away: {when_away}{TOKENS}")).start();
        let mut peer = product.connect();
        assert_eq!(peer.get("/1").status(), 200);
        eventually("it is charged", || redis.ask("DBSIZE").contains(":1"));
        redis.kill();
        let away = || product.metric("equipoise_filter_events_total", &["event=\"away\""]);
        eventually("it is missed", || {
            peer.get("/60");
            away() >= 2.0
        });
        assert_eq!(peer.get("/60").status(), after, "{when_away}");
        if when_away == "open" {
            assert!(lost(&product) >= 1.0, "{}", lost(&product));
        }
        let back = Redis::start_at(redis.address, None);
        eventually("responses are charged again", || {
            peer.get("/60").status();
            back.ask("DBSIZE").contains(":1")
        });
        eventually("and the limit holds again", || peer.get("/0").status() == 429);
    }
}

#[test]
fn a_response_does_not_wait_for_a_store_that_has_stopped_and_its_cost_is_counted_here() {
    let redis = Redis::start(None);
    let (release, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let origin = Origin::answering(move |request| {
        if request.target() == "/held" {
            gate.lock().expect("the only one").recv_timeout(Duration::from_secs(20)).expect("the test goes on");
        }
        b"HTTP/1.1 200 OK\r\nX-Tokens: 60\r\nContent-Length: 2\r\n\r\nin".to_vec()
    });
    let text = setup(&origin, redis.address, TOKENS).text().replace("timeout: 5s", "timeout: 100ms");
    let product = Product::start_in(folder(), &text, 1);
    let mut peer = product.connect();
    peer.send("GET /held HTTP/1.1\r\nHost: test\r\n\r\n");
    eventually("the endpoint has the request", || origin.requests().len() == 1);
    // Far longer than the test takes: it ends with the store.
    let mut pausing = Peer::connect(redis.address);
    pausing.send("CLIENT PAUSE 60000 ALL\r\n");
    assert_eq!(pausing.take(5), b"+OK\r\n");
    let begun = Instant::now();
    release.send(()).expect("the endpoint waits");
    assert_eq!(peer.response().status(), 200);
    assert!(begun.elapsed() < Duration::from_millis(1_900), "{:?}", begun.elapsed());
    eventually("the charge is given up", || lost(&product) == 1.0);
    assert_eq!(peer.get("/").status(), 429, "it counts here while the store is away");
}
