//! Endpoints that authenticate connections, and who gets to use those.

use super::harness::origin::ok;
use super::harness::{Message, Origin, Peer, Setup, eventually, http2};

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
fn a_request_whose_connection_is_authenticated_is_never_hedged() {
    // Ann's endpoint is slow with what it knows her for; the other would say 401 at once.
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let slow = Origin::start(move |mut visit| {
        let mut user: Option<String> = None;
        while let Some(request) = visit.request() {
            let said = request.field("authorization").and_then(|value| value.split_once(' '));
            if request.target() == "/slow" {
                gone.lock().expect("channel").recv().expect("the other was waited for");
            }
            let response = match said {
                Some(("NTLM", "first")) => CHALLENGE.into(),
                Some((_, name)) => ok(user.insert(name.to_owned())),
                None => user.as_deref().map_or(ASKING.into(), ok),
            };
            if visit.peer.try_send(response).is_err() {
                return;
            }
        }
    });
    let origins = [slow, authenticating()];
    let product = Setup::to_all(&origins)
        .cluster("balance: first")
        .cluster("hedge: { after: 1s, budget: 100%, methods: any }")
        .workers(1)
        .start();
    let (mut ann, mut bob) = (product.connect(), product.connect());
    // While nobody is known there, the same is hedged: the other one's answer wins.
    bob.send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(bob.response().status(), 401);
    product.expect_metric("equipoise_cluster_hedges_total", &["cluster=\"site\"", "result=\"sent\""], 1.0);
    go.send(()).expect("the origin waits");
    assert_eq!(ask_as(&mut ann, "NTLM first").status(), 401);
    assert_eq!(ask_as(&mut ann, "NTLM ann").text(), "ann");
    for credentials in ["", "Authorization: NTLM ann\r\n"] {
        let before = origins[1].requests().len();
        ann.send(format!("GET /slow HTTP/1.1\r\nHost: test\r\n{credentials}\r\n"));
        // Longer than a hedge waits.
        std::thread::sleep(std::time::Duration::from_secs(2));
        go.send(()).expect("the origin waits");
        assert_eq!(ann.response().text(), "ann");
        assert_eq!(origins[1].requests().len(), before, "nobody else was asked");
    }
}

#[test]
fn a_connection_that_brings_credentials_which_nobody_asked_for_is_not_kept_when_it_fails() {
    let origin = Origin::answering(|request| match request.target() {
        "/missing" => b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok("fine"),
    });
    let product = Setup::to(&origin).workers(1).start();
    let mut clients: Vec<Peer> = (0..3).map(|_| product.connect()).collect();
    for client in &mut clients {
        let answer = client.ask("GET /missing HTTP/1.1\r\nHost: test\r\nAuthorization: NTLM x\r\n\r\n");
        assert_eq!(answer.status(), 404);
    }
    eventually("none of them is held", || origin.connections() == 3 && origin.open() == 0);
    drop(clients);
}

#[test]
fn who_brings_credentials_holds_half_of_the_room_at_most_and_gives_way() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).cluster("pool: { idle_max: 4 }").workers(1).start();
    let mut mallory: Vec<Peer> = (0..8).map(|_| product.connect()).collect();
    for peer in &mut mallory {
        assert_eq!(ask_as(peer, "NTLM x").text(), "fine");
    }
    eventually("half of the room is theirs", || origin.connections() == 8 && origin.open() == 2);
    for _ in 0..3 {
        assert_eq!(product.get("/").text(), "fine");
    }
    assert_eq!(origin.connections(), 9, "all others share one connection");
    drop(mallory);

    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).cluster("pool: { idle_max: 1 }").workers(1).start();
    let mut mallory = product.connect();
    assert_eq!(ask_as(&mut mallory, "NTLM x").text(), "fine");
    for _ in 0..3 {
        assert_eq!(product.get("/").text(), "fine");
    }
    assert_eq!(origin.connections(), 2, "what all can use takes the place of what one can");
}

#[test]
fn clients_of_http2_leave_no_connections_of_their_own() {
    let origin = authenticating();
    let product = Setup::to(&origin).workers(1).start();
    let mut client = http2::Client::connect(product.web());
    for _ in 0..3 {
        let request = http2::with_fields(http2::request("GET", "/"), &[("authorization", "Negotiate ann")]);
        assert_eq!(client.ask(request, b"").text(), "ann");
    }
    eventually("none is kept", || origin.connections() == 3 && origin.open() == 0);
    assert_eq!(product.get("/").status(), 401, "nobody is served as somebody else");
}

#[test]
fn no_spelling_of_an_authentication_has_a_connection_shared() {
    let origin = Origin::start(|mut visit| {
        let mut user: Option<String> = None;
        while let Some(request) = visit.request() {
            let said = request.field("authorization").or(request.field("proxy-authorization"));
            if let Some(said) = said.and_then(|value| value.split([' ', '\t']).nth(1)) {
                user = Some(said.to_owned());
            }
            if visit.peer.try_send(ok(user.as_deref().unwrap_or("nobody"))).is_err() {
                return;
            }
        }
    });
    let product = Setup::to(&origin).workers(1).start();
    for line in ["Proxy-Authorization: Negotiate ann", "Authorization: Negotiate\tann"] {
        let mut ann = product.connect();
        assert_eq!(ann.ask(format!("GET / HTTP/1.1\r\nHost: test\r\n{line}\r\n\r\n")).text(), "ann", "{line}");
        assert_eq!(product.get("/").text(), "nobody", "{line}");
        assert_eq!(ann.get("/").text(), "ann", "{line}");
    }
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
