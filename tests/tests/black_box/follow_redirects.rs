//! The filter `follow_redirects`: redirects of endpoints are followed along the routes, and nowhere else.

use super::harness::http2::{Client, request};
use super::harness::net::free;
use super::harness::origin::ok;
use super::harness::{Origin, Peer, Setup, eventually, http3};
use super::http3::site;

const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

/// Redirects to what the path says behind its status, such as `/302/there`; everything else is echoed.
fn redirecting() -> Origin {
    Origin::answering(|request| {
        let target = request.target();
        let parts = target.strip_prefix('/').and_then(|rest| rest.split_once('/'));
        match parts.filter(|(status, _)| status.len() == 3 && status.parse::<u16>().is_ok()) {
            Some((status, to)) => {
                // Two slashes of a path are one.
                let to = if to.contains("~~") { to.replace("~~", "//") } else { format!("/{to}") };
                let field = if status == "200" { "X-Accel-Redirect" } else { "Location" };
                let head = format!("HTTP/1.1 {status} Moved\r\n{field}: {to}\r\nContent-Length: 5\r\n\r\n");
                format!("{head}moved").into_bytes()
            }
            None => ok(&format!("{} {target} {}", request.method(), request.text())),
        }
    })
}

/// A site that follows, with a route `/files` to another cluster, and one for another host.
fn setup(origin: &Origin, files: &Origin, more: &str) -> Setup {
    let follow = format!("follow_redirects: {{ hosts: [files.example], {more} }}");
    Setup::to(origin)
        .route(format!("match: {{ host: [test, shop.example] }}, filters: [{{ buffer: {{ request: 1KiB }} }}, {{ {follow} }}]").replace(", filters", "\n    filters"))
        .route_before("{ name: files, match: { host: [test, shop.example, files.example], path: { prefix: /files } }, cluster: files, filters: [{ set_response_header: { x-route: files } }] }")
        .cluster_more(format!("files: {{ endpoints: [\"{}\"] }}", files.address()))
}

#[test]
fn redirects_are_followed_to_other_routes_over_every_version() {
    let (origin, files) = (redirecting(), redirecting());
    let site = site(setup(&origin, &files, "").listener_more(CLEAR), 1);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    for status in [301, 302, 303, 307, 308] {
        let path = format!("/{status}/files/a?b=c");
        let answer = first.get(&path);
        assert_eq!((answer.status(), answer.text()), (200, "GET /files/a?b=c ".to_owned()));
        assert_eq!(answer.field("x-route"), Some("files"), "the filters of the last route have changed it");
        assert_eq!(second.get(&path).text(), "GET /files/a?b=c ");
        assert_eq!(third.get(&path).text(), "GET /files/a?b=c ");
    }
    // The connections carry on, on both sides.
    assert_eq!(first.get("/plain").text(), "GET /plain ");
    assert!(origin.connections() <= 2, "{} connections", origin.connections());
    let labels = ["filter=\"follow_redirects\"", "event=\"followed\""];
    site.product.expect_metric("equipoise_filter_events_total", &labels, 15.0);
    site.product.expect_metric("equipoise_endpoint_faults_total", &["fault=\"redirected\""], 15.0);
    let record = site.product.record("one that was followed", |record| record["route"] == "files");
    assert_eq!((record["status"].as_u64(), record["cluster"].as_str()), (Some(200), Some("files")));
}

#[test]
fn bodies_are_sent_again_or_left_out_as_the_status_says() {
    let (origin, files) = (redirecting(), redirecting());
    let site = site(setup(&origin, &files, "").listener_more(CLEAR), 1);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    for (status, told) in
        [(307, "POST /files body"), (308, "POST /files body"), (303, "GET /files "), (302, "GET /files ")]
    {
        let path = format!("/{status}/files");
        let post = format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody");
        assert_eq!(first.ask(post).text(), told);
        let post =
            format!("POST {path} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n");
        assert_eq!(first.ask(post).text(), told);
        assert_eq!(second.ask(request("POST", &path), b"body").text(), told);
        assert_eq!(third.ask(http3::request("POST", &path), b"body").text(), told);
    }
    for copy in files.requests().iter().filter(|seen| seen.method() == "GET") {
        assert_eq!((copy.field("content-length"), copy.field("transfer-encoding")), (None, None));
    }
    // A body that nobody holds cannot be sent again: the client decides.
    let streamed = Setup::to(&origin).route("filters: [{ follow_redirects: {} }]").start();
    let post = "POST /307/there HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\nbody";
    let mut peer = streamed.connect();
    let answer = peer.ask(post);
    assert_eq!((answer.status(), answer.field("location"), answer.text()), (307, Some("/there"), "moved".to_owned()));
    assert_eq!(peer.get("/307/there").text(), "GET /there ");
}

#[test]
fn loops_end_and_what_no_route_takes_goes_to_the_client() {
    let (origin, files) = (redirecting(), redirecting());
    let product = setup(&origin, &files, "max: 2").start();
    let mut peer = product.connect();
    assert_eq!(peer.get("/302/302/there").text(), "GET /there ");
    let third = peer.get("/302/302/302/there");
    assert_eq!((third.status(), third.field("location")), (302, Some("/there")), "the third");
    for location in ["https:~~evil.example/x", "http:~~127.0.0.1:1/x", "ftp:~~test/x"] {
        let answer = peer.get(&format!("/302/{location}"));
        assert_eq!((answer.status(), answer.field("location")), (302, Some(&*location.replace("~~", "//"))));
    }
    // It is named, but no route of the listener takes it.
    let answer = peer.get("/302/https:~~files.example/else");
    assert_eq!((answer.status(), answer.text()), (302, "moved".to_owned()));
    assert_eq!(peer.get("/404/x").status(), 404);
    let endless = Origin::answering(|_| b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n".to_vec());
    let product = Setup::to(&endless).route("filters: [{ follow_redirects: { max: 8 } }]").start();
    assert_eq!(product.get("/").status(), 302);
    assert_eq!(endless.requests().len(), 9);
}

#[test]
fn another_host_gets_no_credentials_and_the_same_host_does() {
    let (origin, files) = (redirecting(), redirecting());
    let product = setup(&origin, &files, "").start();
    let mut peer = product.connect();
    let ask = |location: &str| {
        format!(
            "GET /302/{location} HTTP/1.1\r\nHost: test\r\nAuthorization: Basic eA==\r\nCookie: a=b\r\nX-Other: c\r\n\r\n"
        )
    };
    assert_eq!(peer.ask(ask("https:~~files.example/files/x")).text(), "GET /files/x ");
    assert_eq!(peer.ask(ask("http:~~test/files/y")).text(), "GET /files/y ");
    eventually("both are there", || files.requests().len() == 2);
    let seen = files.requests();
    let secrets = |place: usize| ["authorization", "cookie"].map(|name| seen[place].field(name).is_some());
    assert_eq!((secrets(0), secrets(1)), ([false, false], [true, true]));
    assert_eq!((seen[0].field("host"), seen[0].field("x-other")), (Some("files.example"), Some("c")));
    assert_eq!(seen[1].field("host"), Some("test"));
}

#[test]
fn a_field_leads_to_routes_that_no_client_reaches() {
    let (origin, files) = (redirecting(), redirecting());
    let setup = Setup::to(&origin)
        .route("filters: [{ set_response_header: { x-hops: \"{redirects}\" } }, { follow_redirects: { max: 2, field: x-accel-redirect } }]")
        .route_before("{ name: files, internal: true, match: { path: { prefix: /files } }, cluster: files, filters: [{ set_response_header: { x-hops: \"{redirects}\" } }] }")
        .cluster_more(format!("files: {{ endpoints: [\"{}\"] }}", files.address()));
    let site = site(setup.listener_more(CLEAR), 1);
    let clear = site.product.address("clear");
    let (mut first, mut second, mut third) = (Peer::connect(clear), Client::connect(clear), site.connect());
    let answer = first.get("/200/files/a?b=c");
    assert_eq!((answer.text(), answer.field("x-hops")), ("GET /files/a?b=c ".to_owned(), Some("1")));
    assert_eq!(second.get("/200/files/a").text(), "GET /files/a ");
    assert_eq!(third.get("/200/files/a").text(), "GET /files/a ");
    // Clients ask for it in vain, and a redirect by status leads nowhere else than to them.
    for path in ["/files/a", "/files", "/%66iles/a"] {
        assert_eq!(first.get(path).text(), format!("GET {} ", path.replace("%66", "f")), "the other route has it");
    }
    assert_eq!(files.requests().len(), 3);
    assert_eq!(first.get("/302/files/a").status(), 302);
    // One hop more than is allowed goes to the client, without the field.
    let answer = first.get("/200/200/200/x");
    assert_eq!((answer.status(), answer.field("x-accel-redirect"), answer.text()), (200, None, "moved".to_owned()));
}

#[test]
fn an_endpoint_that_fails_after_a_redirect_is_retried_or_answered_for() {
    let (origin, files) = (redirecting(), redirecting());
    let dead = free();
    let product = Setup::to(&origin)
        .route("filters: [{ follow_redirects: {} }]\n    timeout: 10s")
        .route_before("{ match: { path: { prefix: /dead } }, cluster: dead }")
        .route_before("{ match: { path: { prefix: /half } }, cluster: half, retry: { attempts_max: 3 } }")
        .route_before("{ match: { path: { prefix: /here } }, respond: { status: 203, body: here } }")
        .cluster_more(format!("dead: {{ endpoints: [\"{dead}\"] }}"))
        .cluster_more(format!("half: {{ endpoints: [\"{dead}\", \"{}\"], balance: first }}", files.address()))
        .start();
    let mut peer = product.connect();
    assert_eq!(peer.get("/302/dead/x").status(), 502);
    assert_eq!(peer.get("/302/half/x").text(), "GET /half/x ");
    let here = peer.get("/302/here");
    assert_eq!((here.status(), here.text()), (203, "here".to_owned()));
    let record = product.record("one that failed", |record| record["status"] == 502);
    assert_eq!(record["cluster"], "dead");
    // What follows on the connection is the next request.
    assert_eq!(peer.get("/plain").text(), "GET /plain ");
}

#[test]
fn each_part_of_a_request_that_is_followed_has_its_own_copies_and_retries() {
    let files = [Origin::mortal(None, "away"), Origin::saying("there")];
    files[0].kill();
    let (origin, shadow) = (redirecting(), Origin::saying("a copy"));
    let clusters = format!(
        "files: {{ endpoints: [\"{}\", \"{}\"], retry: {{}} }}\n  shadow: {{ endpoints: [\"{}\"] }}",
        files[0].address(),
        files[1].address(),
        shadow.address()
    );
    let product = Setup::to(&origin)
        .route("filters: [{ mirror: { cluster: shadow } }, { follow_redirects: {} }]")
        .route_before("{ name: files, match: { path: { prefix: /files } }, cluster: files, filters: [{ mirror: { cluster: shadow, set_headers: { x-part: files } } }] }")
        .cluster_more(clusters)
        .start();
    let mut peer = product.connect();
    for _ in 0..4 {
        assert_eq!(peer.get("/302/files/a").text(), "there");
    }
    eventually("both parts of all are copied", || shadow.requests().len() == 8);
    let copies = shadow.requests();
    let of = |target: &str| copies.iter().filter(|copy| copy.target() == target).count();
    assert_eq!((of("/302/files/a"), of("/files/a")), (4, 4));
    assert!(copies.iter().all(|copy| copy.field("x-part").is_some() == (copy.target() == "/files/a")));
    let labels = ["filter=\"follow_redirects\"", "event=\"followed\""];
    product.expect_metric("equipoise_filter_events_total", &labels, 4.0);
}

#[test]
fn a_request_that_is_followed_is_hedged_on_its_last_route() {
    let silent = Origin::start(|mut visit| {
        if visit.request().is_some() {
            let _ = visit.peer.fill();
        }
    });
    let (origin, quick) = (redirecting(), Origin::saying("quick"));
    let product = Setup::to(&origin)
        .route("filters: [{ follow_redirects: {} }]")
        .route_before("{ name: files, match: { path: { prefix: /files } }, cluster: files }")
        .cluster_more(format!(
            "files: {{ endpoints: [\"{}\", \"{}\"], hedge: {{ after: 300ms, budget: 100% }} }}",
            silent.address(),
            quick.address()
        ))
        .workers(1)
        .start();
    let mut peer = product.connect();
    for _ in 0..4 {
        assert_eq!(peer.get("/302/files/a").text(), "quick");
    }
    assert!(!silent.requests().is_empty(), "some were sent there first");
    let labels = ["cluster=\"files\"", "result=\"won\""];
    product.expect_metric_at_least("equipoise_cluster_hedges_total", &labels, 1.0);
}
