//! Sessions that stay with their endpoint, over reloads, deaths, drains and whatever clients send.

use std::collections::BTreeSet;

use super::balancing::{hold, holding};
use super::harness::net::refusing;
use super::harness::origin::ok;
use super::harness::tls::{Authority, Client, connect};
use super::harness::{Message, Origin, Peer, Product, Setup, eventually, product};

const COOKIE: &str = "persistence: { cookie: { secret: a-secret-of-the-tests } }";
const CHECKED: &str = "health_check: { tcp: {}, interval: 50ms, timeout: 10s, rise: 1, fall: 1 }";

/// Origins that answer with their place.
fn numbered(count: usize) -> Vec<Origin> {
    (0..count).map(|place| Origin::answering(move |_| ok(&place.to_string()))).collect()
}

/// An endpoint with settings.
fn placed(origin: &Origin, settings: &str) -> String {
    format!("{{ address: \"{}\", {settings} }}", origin.address())
}

/// Asks with these fields, on a connection of its own, which any worker may get.
fn ask(product: &Product, fields: &str) -> Message {
    product.connect().ask(format!("GET / HTTP/1.1\r\nHost: test\r\n{fields}\r\n"))
}

/// `name=value` of the cookie that a response sets.
fn set_cookie(response: &Message) -> String {
    let field = response.field("set-cookie").unwrap_or_else(|| panic!("no cookie in {response:?}"));
    field.split(';').next().expect("a pair").to_owned()
}

/// A client that keeps its cookie.
struct Browser {
    cookie: Option<String>,
}

impl Browser {
    fn new() -> Self {
        Self { cookie: None }
    }

    /// Which origin answers.
    fn visit(&mut self, product: &Product) -> String {
        let fields = self.cookie.as_ref().map(|cookie| format!("Cookie: {cookie}\r\n")).unwrap_or_default();
        let response = ask(product, &fields);
        assert_eq!(response.status(), 200, "{response:?}");
        if response.field("set-cookie").is_some() {
            self.cookie = Some(set_cookie(&response));
        }
        response.text()
    }

    fn visits(&mut self, product: &Product, count: usize) -> BTreeSet<String> {
        (0..count).map(|_| self.visit(product)).collect()
    }
}

fn only(place: &str) -> BTreeSet<String> {
    [place.to_owned()].into()
}

#[test]
fn a_signed_cookie_keeps_a_session_at_its_endpoint_over_workers_and_reloads() {
    for workers in [1, 4] {
        let origins = numbered(4);
        let setup = Setup::to_all(&origins).cluster(COOKIE).workers(workers);
        let product = setup.start();
        let mut browsers: Vec<(Browser, String)> = (0..8)
            .map(|_| {
                let mut browser = Browser::new();
                let first = browser.visit(&product);
                (browser, first)
            })
            .collect();
        assert_eq!(browsers.iter().map(|(_, first)| first.clone()).collect::<BTreeSet<_>>().len(), 4);
        for (browser, first) in &mut browsers {
            assert_eq!(browser.visits(&product, 5), only(first));
        }
        product.reload(&setup.clone().cluster("balance: random").text());
        for (browser, first) in &mut browsers {
            let cookie = browser.cookie.clone();
            assert_eq!(browser.visits(&product, 5), only(first));
            assert_eq!(browser.cookie, cookie, "it is set only when it changes");
        }
        product.expect_metric("equipoise_cluster_sessions_total", &["result=\"new\""], 8.0);
        product.expect_metric("equipoise_cluster_sessions_total", &["result=\"kept\""], 80.0);
        product.record("one that was kept", |record| record["session"] == "kept");
    }
}

#[test]
fn the_cookie_has_its_attributes_and_endpoints_do_not_see_it() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin)
        .cluster("persistence: { cookie: { secret: a-secret-of-the-tests, name: lb, path: /, max_age: 1h, same_site: strict } }")
        .start();
    let response = product.get("/");
    let cookie = set_cookie(&response);
    assert_eq!(
        response.field("set-cookie"),
        Some(format!("{cookie}; Path=/; SameSite=Strict; HttpOnly; Max-Age=3600").as_str())
    );
    assert!(cookie.starts_with("lb=") && cookie.len() == 47, "{cookie}");
    assert_eq!(response.field("cache-control"), Some("private"));
    let again = ask(&product, &format!("Cookie: a=1; {cookie}; b=2\r\n"));
    assert_eq!((again.field("set-cookie"), again.field("cache-control")), (None, None));
    assert_eq!(origin.requests()[1].field("cookie"), Some("a=1; b=2"));
    ask(&product, &format!("Cookie: {cookie}\r\n"));
    assert_eq!(origin.requests()[2].field("cookie"), None);
}

#[test]
fn over_tls_the_cookie_is_secure() {
    let (authority, folder) = (Authority::new("the tests' own"), product::folder());
    authority.issue(&["shop.example"]).write(folder.path(), "site");
    let origin = Origin::saying("fine");
    let setup =
        Setup::to(&origin).listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }").cluster(COOKIE);
    let product = Product::start_in(folder, &setup.text(), 2);
    let mut peer = connect(product.web(), "shop.example", &Client::trusting(&authority).config());
    let response = peer.get("/");
    assert!(response.field("set-cookie").is_some_and(|field| field.ends_with("; HttpOnly; Secure")), "{response:?}");
}

#[test]
fn a_cookie_that_is_forged_or_of_another_cluster_is_as_if_there_were_none() {
    let origins = numbered(2);
    // Of another path, or the same clients would get both.
    let cookie = COOKIE.replace("secret:", "path: /other, secret:");
    let other =
        format!("other: {{ endpoints: [\"{}\", \"{}\"], {cookie} }}", origins[0].address(), origins[1].address());
    let product = Setup::to_all(&origins)
        .cluster(COOKIE)
        .cluster_more(other)
        .route_before("{ name: other, match: { path: { prefix: /other } }, cluster: other }")
        .start();
    let genuine = set_cookie(&product.get("/"));
    let foreign = set_cookie(&product.get("/other"));
    let mut changed = genuine.clone();
    changed.replace_range(20..21, if &genuine[20..21] == "A" { "B" } else { "A" });
    for wrong in [
        changed,
        foreign,
        genuine[..genuine.len() - 1].to_owned(),
        format!("equipoise={}", "A".repeat(20_000)),
        "equipoise=".to_owned(),
        "equipoise".to_owned(),
        format!("equipoise=\"{}\"", &genuine[10..]),
        "equipoise=;;=;\x01\x7f".replace(['\x01', '\x7f'], "\u{e9}"),
    ] {
        let response = ask(&product, &format!("Cookie: {wrong}\r\n"));
        assert_eq!(response.status(), 200);
        assert_ne!(set_cookie(&response), wrong, "a new session begins");
    }
    let planted = ask(&product, &format!("Cookie: equipoise=planted; {genuine}\r\n"));
    assert_eq!(planted.field("set-cookie"), None, "the genuine one counts");
}

#[test]
fn a_cookie_that_was_idle_too_long_begins_a_new_session() {
    let origin = Origin::saying("fine");
    let product =
        Setup::to(&origin).cluster("persistence: { cookie: { secret: a-secret-of-the-tests, idle_max: 2s } }").start();
    let first = set_cookie(&product.get("/"));
    eventually("it is replayed after its end", || {
        // A session that goes on is refreshed, so only the first cookie is shown again and again.
        ask(&product, &format!("Cookie: {first}\r\n"));
        product.metric("equipoise_cluster_sessions_total", &["result=\"new\""]) >= 2.0
    });
}

#[test]
fn a_session_moves_when_its_endpoint_dies_and_stays_where_it_went() {
    for workers in [1, 4] {
        let mut origins: Vec<Origin> = ["0", "1", "2"].map(|body| Origin::mortal(None, body)).into();
        let product = Setup::to_all(&origins).cluster(COOKIE).cluster("retry: {}").workers(workers).start();
        let mut browser = Browser::new();
        let first = browser.visit(&product);
        let dead = origins.remove(first.parse().expect("a place"));
        dead.kill();
        let second = browser.visit(&product);
        assert_ne!(second, first);
        assert_eq!(browser.visits(&product, 10), only(&second));
        product.expect_metric("equipoise_cluster_sessions_total", &["result=\"moved\""], 1.0);
        let _back = Origin::mortal(Some(dead.address()), "back");
        assert_eq!(browser.visits(&product, 10), only(&second), "it does not move back");
    }
}

#[test]
fn checks_that_fail_move_sessions_and_with_refuse_they_wait() {
    let origins: Vec<Origin> = ["0", "1"].map(|body| Origin::mortal(None, body)).into();
    let refuse = "persistence: { otherwise: refuse, cookie: { secret: a-secret-of-the-tests } }";
    let product = Setup::to_all(&origins).cluster(refuse).cluster(CHECKED).start();
    let mut browser = Browser::new();
    let first = browser.visit(&product);
    let place: usize = first.parse().expect("a place");
    origins[place].kill();
    let fields = format!("Cookie: {}\r\n", browser.cookie.as_ref().expect("a cookie"));
    eventually("it is down", || ask(&product, &fields).status() == 503);
    assert_eq!(ask(&product, "").status(), 200, "others are served");
    product.record("the refused one", |record| record["session"] == "refused" && record["status"] == 503);
    let _back = Origin::mortal(Some(origins[place].address()), "back");
    eventually("the session goes on", || ask(&product, &fields).text() == "back");
}

#[test]
fn a_drained_endpoint_keeps_its_sessions_and_gets_no_new_ones() {
    let origins = numbered(2);
    let setup = |state: &str| {
        Setup::to_endpoints([placed(&origins[0], &format!("state: {state}")), placed(&origins[1], "weight: 1")])
            .cluster(COOKIE)
    };
    let product = setup("auto").start();
    let mut browser = Browser::new();
    while browser.visit(&product) != "0" {
        browser = Browser::new();
    }
    product.reload(&setup("drain").text());
    assert_eq!(browser.visits(&product, 10), only("0"));
    assert!((0..10).all(|_| Browser::new().visit(&product) == "1"));
    product.reload(&setup("maintenance").text());
    assert_eq!(browser.visits(&product, 10), only("1"));
    product.reload(&setup("auto").text());
    assert_eq!(browser.visits(&product, 10), only("1"), "it has moved");
}

#[test]
fn a_session_finds_its_endpoint_again_when_that_was_out_of_the_file() {
    let origins = numbered(3);
    let setup = |origins: &[Origin], persistence: &str| Setup::to_all(origins).cluster(persistence).workers(4);
    for persistence in [COOKIE, "persistence: { header: { name: x-user } }"] {
        let product = setup(&origins, persistence).start();
        let mut asked = (0..).map(|user| {
            let response = ask(&product, &format!("X-User: {user}\r\n"));
            let cookie = response.field("set-cookie").map(|_| set_cookie(&response)).unwrap_or_default();
            (response.text(), format!("X-User: {user}\r\nCookie: {cookie}\r\n"))
        });
        let (_, fields) = asked.find(|(text, _)| text == "2").expect("one goes there");
        assert_eq!(ask(&product, &fields).text(), "2");
        product.reload(&setup(&origins[..2], persistence).text());
        product.reload(&setup(&origins, persistence).text());
        assert_eq!(ask(&product, &fields).text(), "2", "nobody asked meanwhile");
        product.reload(&setup(&origins[..2], persistence).text());
        let moved = ask(&product, &fields);
        assert_ne!(moved.text(), "2");
    }
}

#[test]
fn the_cookie_of_an_application_is_learned_and_followed() {
    for workers in [1, 4] {
        let origins: Vec<Origin> = (0..3)
            .map(|place: usize| {
                Origin::answering(move |request| match request.target() {
                    "/login" => format!(
                        "HTTP/1.1 200 OK\r\nSet-Cookie: theme=dark\r\nSet-Cookie: JSESSIONID=s{place}; Path=/\r\n\
                         Content-Length: 1\r\n\r\n{place}"
                    )
                    .into_bytes(),
                    _ => ok(&place.to_string()),
                })
            })
            .collect();
        let setup = Setup::to_all(&origins)
            .cluster("persistence: { learn: { cookie: JSESSIONID, entries_max: 100 } }")
            .workers(workers);
        let product = setup.start();
        for _ in 0..3 {
            product.connect().ask("GET /login HTTP/1.1\r\nHost: test\r\n\r\n");
        }
        product.expect_metric("equipoise_cluster_sessions_total", &["result=\"new\""], 3.0);
        let follow = |place: usize| ask(&product, &format!("Cookie: a=b; JSESSIONID=s{place}\r\n")).text();
        for place in 0..3 {
            assert!((0..5).all(|_| follow(place) == place.to_string()));
        }
        product.reload(&setup.clone().cluster("balance: random").text());
        assert!((0..3).all(|place| follow(place) == place.to_string()));
        product.expect_metric("equipoise_cluster_session_entries", &[], 3.0);
        let strangers: BTreeSet<String> =
            (0..40).map(|n| ask(&product, &format!("Cookie: JSESSIONID=x{n}\r\n")).text()).collect();
        assert_eq!(strangers.len(), 3, "a session that nobody gave out goes anywhere");
        product.expect_metric("equipoise_cluster_session_entries", &[], 3.0);
    }
}

#[test]
fn a_table_stays_within_its_bound_under_a_flood_of_keys() {
    let origins = numbered(2);
    let product = Setup::to_all(&origins)
        .cluster("persistence: { header: { name: x-user, entries_max: 50 } }")
        .workers(4)
        .start();
    let mut peer = product.connect();
    for user in 0..300 {
        peer.ask(format!("GET / HTTP/1.1\r\nHost: test\r\nX-User: {user}\r\n\r\n"));
    }
    product.expect_metric("equipoise_cluster_session_entries", &[], 50.0);
    product.expect_metric("equipoise_cluster_session_evictions_total", &[], 250.0);
    let known = |user: usize| {
        let before = product.metric("equipoise_cluster_sessions_total", &["result=\"kept\""]);
        ask(&product, &format!("X-User: {user}\r\n"));
        eventually("it is counted", || {
            product.metric("equipoise_cluster_sessions_total", &["result=\"new\""])
                + product.metric("equipoise_cluster_sessions_total", &["result=\"kept\""])
                > 300.0
        });
        product.metric("equipoise_cluster_sessions_total", &["result=\"kept\""]) > before
    };
    assert!(known(299), "the last is remembered");
}

#[test]
fn a_client_address_keeps_its_endpoint_for_requests_and_for_streams() {
    let origins: Vec<Origin> = (0..4)
        .map(|place| {
            Origin::start(move |mut visit| {
                while visit.peer.fill().is_ok_and(|count| count > 0) {
                    visit.peer.drain();
                    if visit.peer.try_send(ok(&place.to_string())).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    let text = Setup::to_all(&origins).cluster("persistence: { source: { expires: 10m } }").workers(4).text();
    let line = "routes:\n";
    let text =
        text.replace(line, &format!("  line: {{ bind: \"127.0.0.1:0\", protocol: tcp, cluster: site }}\n{line}"));
    let product = Product::start_in(product::folder(), &text, 4);
    let first = ask(&product, "").text();
    for _ in 0..10 {
        assert_eq!(ask(&product, "").text(), first);
        let mut stream = Peer::connect(product.address("line"));
        assert_eq!(stream.ask("anything\r\n\r\n").text(), first);
    }
    product.record("a stream that was kept", |record| record["kind"] == "stream" && record["session"] == "kept");
    product.expect_metric("equipoise_cluster_session_entries", &[], 1.0);
}

/// The first message of a client of Remote Desktop, with this cookie.
fn rdp_request(cookie: &str) -> Vec<u8> {
    let rest = [cookie.as_bytes(), &[1, 0, 8, 0, 3, 0, 0, 0]].concat();
    let indicator = (6 + rest.len()) as u8;
    [&[3, 0, 0, indicator + 5, indicator, 0xe0, 0, 0, 0, 0, 0], &rest[..]].concat()
}

#[test]
fn users_of_remote_desktop_come_back_to_their_endpoint() {
    // Each says where it is, and then what it was told.
    let origins: Vec<Origin> = (0..3)
        .map(|place: usize| {
            Origin::start(move |mut visit| {
                while visit.peer.fill().is_ok_and(|count| count > 0) {
                    let told = visit.peer.drain();
                    if visit.peer.try_send([place.to_string().as_bytes(), &told].concat()).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    let cluster = "balance: round_robin\n    persistence: { rdp_cookie: { expires: 10m } }";
    let text = Setup::to_all(&origins)
        .cluster(cluster)
        .text()
        .replace("routes:\n", "  line: { bind: \"127.0.0.1:0\", protocol: tcp, cluster: site }\nroutes:\n");
    let product = Product::start_in(product::folder(), &text, 4);
    let visit = |message: &[u8]| -> char {
        let mut peer = Peer::connect(product.address("line"));
        // In two pieces, of which the first does not tell yet.
        peer.send(&message[..3]);
        peer.send(&message[3..]);
        let answer = peer.take(message.len() + 1);
        assert_eq!(&answer[1..], message, "it is passed on untouched");
        char::from(answer[0])
    };
    let user = |name: &str| visit(&rdp_request(&format!("Cookie: mstshash={name}\r\n")));
    let first: Vec<char> = (0..6).map(|number| user(&format!("user{number}"))).collect();
    assert!(first.iter().collect::<BTreeSet<_>>().len() > 1, "{first:?}");
    product.upgrade();
    for _ in 0..3 {
        assert_eq!((0..6).map(|number| user(&format!("user{number}"))).collect::<Vec<_>>(), first);
    }
    product.expect_metric("equipoise_cluster_session_entries", &[], 6.0);
    product.record("a stream that was kept", |record| record["kind"] == "stream" && record["session"] == "kept");
    // A server has told the client where its session is.
    for (place, origin) in origins.iter().enumerate() {
        let address = u32::from_le_bytes([127, 0, 0, 1]);
        let token = format!("Cookie: msts={address}.{}.0000\r\n", origin.address().port().swap_bytes());
        assert_eq!(visit(&rdp_request(&token)).to_digit(10), Some(place as u32));
    }
    // Without a cookie, with one of a server that is not here, and what is no such client: the balancer chooses.
    for message in [rdp_request(""), rdp_request("Cookie: msts=1.1.0000\r\n"), b"GET / HTTP/1.1\r\n\r\n".to_vec()] {
        // Each worker has a turn of its own.
        let mut seen = BTreeSet::new();
        eventually(&format!("{} reaches all", message.escape_ascii()), || {
            seen.insert(visit(&message));
            seen.len() == 3
        });
    }
    // A client that leaves before it has said anything reaches no endpoint.
    let mut silent = Peer::connect(product.address("line"));
    silent.send([3, 0]);
    silent.half_close();
    silent.assert_closed();
    product.record("the silent one", |record| record["kind"] == "stream" && record["flag"] == "CW");
    product.expect_metric("equipoise_cluster_session_entries", &[], 6.0);
}

#[test]
fn a_stream_whose_endpoint_is_gone_moves_to_one_that_answers() {
    let (alive, dead) = (Origin::echo(), refusing());
    let text = Setup::to_addresses(&[dead, alive.address()])
        .cluster("persistence: { source: {} }")
        .text()
        .replace("routes:\n", "  line: { bind: \"127.0.0.1:0\", protocol: tcp, cluster: site }\nroutes:\n");
    let product = Product::start_in(product::folder(), &text, 1);
    for _ in 0..5 {
        let mut stream = Peer::connect(product.address("line"));
        stream.send("echo");
        assert_eq!(stream.take(4), b"echo");
    }
    let failed = product.metric("equipoise_endpoint_connects_total", &["result=\"failed\"", &format!("\"{dead}\"")]);
    assert!(failed <= 1.0, "only the first could find the dead one: {failed}");
}

#[test]
fn a_route_in_a_cookie_names_the_endpoint() {
    let origins = numbered(3);
    let listed: Vec<String> = origins
        .iter()
        .enumerate()
        .map(|(place, origin)| placed(origin, &format!("labels: {{ route: n{place} }}")))
        .collect();
    let product =
        Setup::to_endpoints(listed).cluster("persistence: { route: { cookie: JSESSIONID } }").workers(4).start();
    for place in 0..3 {
        let fields = format!("Cookie: JSESSIONID=7F3A.n{place}\r\n");
        assert!((0..5).all(|_| ask(&product, &fields).text() == place.to_string()));
    }
    assert_eq!(ask(&product, "Cookie: JSESSIONID=7F3A.gone\r\n").status(), 200);
}

#[test]
fn a_session_whose_endpoint_is_full_waits_for_it_in_the_queue() {
    let ((full, go), other) = (holding(), Origin::saying("other"));
    let listed = [placed(&full, "connections_max: 1, labels: { route: full }"), placed(&other, "connections_max: 1")];
    let product = Setup::to_endpoints(listed)
        .cluster("persistence: { route: { header: x-node } }")
        .cluster("queue: { requests_max: 10, timeout: 30s }")
        .workers(4)
        .start();
    let pinned =
        |path: &str| Peer::sending(product.web(), format!("GET {path} HTTP/1.1\r\nHost: test\r\nX-Node: full\r\n\r\n"));
    let mut held = pinned("/hold");
    eventually("it arrived", || full.busy() == 1);
    let mut waits = pinned("/next");
    product.expect_metric("equipoise_cluster_queue_length", &[], 1.0);
    assert_eq!(other.requests().len(), 0);
    go.send(()).expect("the origin waits");
    assert_eq!((held.response().status(), waits.response().text().as_str()), (200, "/next"));
    drop(hold(&product, ""));
}

#[test]
fn a_session_stays_in_its_cluster_of_several() {
    let origins = numbered(4);
    let list = |origins: &[Origin]| {
        origins.iter().map(|origin| format!("\"{}\"", origin.address())).collect::<Vec<_>>().join(", ")
    };
    let text = format!(
        "version: 1\nlisteners: {{ web: {{ bind: \"127.0.0.1:0\" }} }}\n\
         routes: [{{ clusters: [{{ cluster: one, weight: 1 }}, {{ cluster: two, weight: 1 }}] }}]\n\
         clusters:\n  one: {{ endpoints: [{}], {COOKIE} }}\n  two: {{ endpoints: [{}], {COOKIE} }}\n\
         admin: {{ bind: \"127.0.0.1:0\" }}\n",
        list(&origins[..2]),
        list(&origins[2..])
    );
    let product = Product::start_in(product::folder(), &text, 4);
    let mut reached = BTreeSet::new();
    for _ in 0..12 {
        let mut browser = Browser::new();
        let first = browser.visit(&product);
        assert_eq!(browser.visits(&product, 5), only(&first));
        reached.insert(first);
    }
    assert!(reached.len() > 2, "both clusters get sessions: {reached:?}");
}

#[test]
fn a_request_of_a_known_session_is_not_hedged() {
    let slow = Origin::answering(|_| {
        // Far more than the other takes, and than the time after which it would be asked.
        std::thread::sleep(std::time::Duration::from_millis(200));
        ok("slow")
    });
    let fast = Origin::saying("fast");
    let listed = [placed(&slow, "labels: { route: slow }"), placed(&fast, "labels: { route: fast }")];
    let product = Setup::to_endpoints(listed)
        .cluster("persistence: { route: { header: x-node } }")
        .cluster("hedge: { after: 10ms, budget: 100% }")
        .start();
    assert!((0..3).all(|_| ask(&product, "X-Node: slow\r\n").text() == "slow"));
    assert_eq!(fast.requests().len(), 0);
}
