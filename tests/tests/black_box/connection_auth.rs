//! Endpoints that authenticate connections, and who gets to use those.

use super::harness::origin::ok;
use super::harness::{Message, Origin, Peer, Setup, eventually};

const ASKING: &str = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Negotiate\r\nWWW-Authenticate: NTLM\r\n\
                      Content-Length: 0\r\n\r\n";
const CHALLENGE: &str = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: NTLM c2Vjb25k\r\nContent-Length: 0\r\n\r\n";

/// Takes all that comes on a connection for the word of whoever has authenticated there, as NTLM has it.
fn authenticating() -> Origin {
    Origin::start(|mut visit| {
        let mut user: Option<String> = None;
        while let Some(request) = visit.request() {
            let said = request.field("authorization").and_then(|value| value.split_once(' '));
            let response = match said {
                Some(("NTLM", "first")) => CHALLENGE.into(),
                Some(("NTLM" | "Negotiate", name)) => ok(user.insert(name.to_owned())),
                _ => user.as_deref().map_or(ASKING.into(), ok),
            };
            if visit.peer.try_send(response).is_err() {
                return;
            }
        }
    })
}

fn ask_as(peer: &mut Peer, credentials: &str) -> Message {
    peer.ask(format!("GET / HTTP/1.1\r\nHost: test\r\nAuthorization: {credentials}\r\n\r\n"))
}

#[test]
fn a_connection_that_an_endpoint_has_authenticated_is_used_for_its_client_alone() {
    let origin = authenticating();
    // Fields of the response that filters remove are seen before.
    let product =
        Setup::to(&origin).workers(1).route("filters: [{ remove_response_header: [www-authenticate] }]").start();
    let (mut ann, mut bob) = (product.connect(), product.connect());
    assert_eq!(ann.get("/").status(), 401);
    assert_eq!(ask_as(&mut ann, "NTLM first").status(), 401);
    assert_eq!(ask_as(&mut ann, "NTLM ann").text(), "ann");
    assert_eq!(ann.get("/").text(), "ann");
    assert_eq!(origin.connections(), 1, "the whole conversation is on one connection");
    for _ in 0..3 {
        assert_eq!(bob.get("/").status(), 401, "nobody is served as somebody else");
        assert_eq!(ann.get("/").text(), "ann");
    }
    assert_eq!(ask_as(&mut bob, "NTLM bob").text(), "bob");
    assert_eq!((ann.get("/").text(), bob.get("/").text()), ("ann".into(), "bob".into()));
    assert_eq!(origin.connections(), 2);
    assert_eq!(product.get("/").status(), 401);
    drop((ann, bob));
    eventually("what speaks for a client ends with it", || origin.open() == 0);
}

#[test]
fn who_authenticates_without_being_asked_has_the_connection_too() {
    let origin = authenticating();
    let product = Setup::to(&origin).workers(1).start();
    let mut ann = product.connect();
    assert_eq!(ask_as(&mut ann, "Negotiate ann").text(), "ann");
    assert_eq!(product.connect().get("/").status(), 401);
    assert_eq!(ann.get("/").text(), "ann");
}

#[test]
fn what_is_authenticated_by_request_shares_connections_as_ever() {
    let origin = Origin::answering(|request| match request.field("authorization") {
        Some(_) => ok("fine"),
        None => b"HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"a\"\r\nContent-Length: 0\r\n\r\n".to_vec(),
    });
    let product = Setup::to(&origin).workers(1).start();
    for _ in 0..3 {
        assert_eq!(product.get("/").status(), 401);
        assert_eq!(ask_as(&mut product.connect(), "Basic YTpi").text(), "fine");
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn all_steps_of_an_authentication_meet_at_one_endpoint() {
    let origins = [authenticating(), authenticating(), authenticating()];
    let product = Setup::to_all(&origins).workers(1).start();
    let mut peers: Vec<Peer> = (0..4).map(|_| product.connect()).collect();
    let names = ["ann", "bob", "cid", "dee"];
    for peer in &mut peers {
        assert_eq!(peer.get("/").status(), 401);
    }
    for peer in &mut peers {
        assert_eq!(ask_as(peer, "NTLM first").status(), 401);
    }
    for (peer, name) in peers.iter_mut().zip(names) {
        assert_eq!(ask_as(peer, &format!("NTLM {name}")).text(), name);
    }
    for _ in 0..3 {
        for (peer, name) in peers.iter_mut().zip(names) {
            assert_eq!(peer.get("/").text(), name);
        }
    }
    assert_eq!(origins.iter().map(Origin::connections).sum::<usize>(), names.len());
}
