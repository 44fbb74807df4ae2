//! How HTTP/3 connections begin, move, live through changes, and end.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use rustls::ClientConfig;

use super::harness::http2;
use super::harness::http3::{Client, Stream, request, trusting};
use super::harness::origin::{ok, ok_for};
use super::harness::poll::PATIENCE;
use super::harness::tls::{Authority, Client as TlsClient, connect};
use super::harness::{Origin, Product, Setup, eventually, net, product, sys};
use super::http3::{Site, site, speaking};
use super::retries::Over;

const NO_ERROR: Option<u64> = Some(0x100);

#[test]
fn clients_of_other_versions_are_told_of_http3() {
    let origin = Origin::answering(|request| match request.target() {
        "/own" => b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nAlt-Svc: clear\r\n\r\n".to_vec(),
        _ => ok_for(request, "fine"),
    });
    let Site { authority, product } = site(Setup::to(&origin), 2);
    let port = product.web().port();
    let told = format!("h3=\":{port}\"; ma=86400");
    let plain = TlsClient::trusting(&authority).config();
    let mut first = connect(product.web(), "shop.example", &plain);
    assert_eq!(first.get("/").field("alt-svc"), Some(told.as_str()));
    assert_eq!(first.get("/own").field("alt-svc"), Some("clear"), "what an endpoint says stays");
    let h2 = TlsClient { protocols: &["h2"], ..TlsClient::trusting(&authority) }.config();
    let mut second = http2::Client::connect_tls(product.web(), "shop.example", &h2);
    assert_eq!(second.get("/").field("alt-svc"), Some(told.as_str()));
    // Who speaks it needs no telling.
    let mut third = Client::connect(product.web(), "shop.example", &trusting(&authority, None));
    assert_eq!(third.get("/").field("alt-svc"), None);
}

#[test]
fn what_clients_are_told_of_http3_can_be_chosen() {
    let origin = Origin::saying("fine");
    for (settings, told) in
        [("http3: { max_age: 5m, port: 443 }", Some("h3=\":443\"; ma=300")), ("http3: { advertise: false }", None)]
    {
        let Site { authority, product } = site(Setup::to(&origin).listener(settings), 1);
        let mut client = connect(product.web(), "shop.example", &TlsClient::trusting(&authority).config());
        assert_eq!(client.get("/").field("alt-svc"), told);
    }
}

#[test]
fn a_listener_may_speak_nothing_but_http3() {
    let origin = Origin::saying("fine");
    let site = speaking("[h3]", Setup::to(&origin), 2);
    assert_eq!(site.connect().get("/").text(), "fine");
    assert!(std::net::TcpStream::connect(site.product.web()).is_err(), "nobody listens there by TCP");
}

#[test]
fn a_client_may_move_while_its_requests_go_on() {
    let origin = Origin::answering(|request| ok(request.target()));
    let site = site(Setup::to(&origin), 4);
    let mut clients: Vec<Client> = (0..3).map(|_| site.connect()).collect();
    for round in 0..12 {
        for (index, client) in clients.iter_mut().enumerate() {
            // From each port the kernel may give its datagrams to another worker.
            let from = client.move_away();
            let path = format!("/{index}/{round}");
            assert_eq!(client.get(&path).text(), path);
            // Where it is now is known at the latest with the request after that.
            let again = format!("{path}/again");
            assert_eq!(client.get(&again).text(), again);
            let record = site.product.record("the request", |record| record["path"] == again.as_str());
            assert_eq!(record["client_port"], from.port());
        }
    }
    site.product.expect_metric("equipoise_connections_opened_total", &["listener=\"web\""], 3.0);
}

#[test]
fn an_address_that_no_handshake_has_proven_is_not_believed() {
    let origin = Origin::answering(|request| ok(request.target()));
    let site = site(Setup::to(&origin), 2);
    let mut client = site.connect();
    assert_eq!(client.get("/0").text(), "/0", "the handshake is over on both sides");
    client.move_to("127.0.0.2".parse().unwrap());
    for path in ["/1", "/2", "/3"] {
        assert_eq!(client.get(path).text(), path);
        let record = site.product.record("the request", |record| record["path"] == path);
        assert_eq!(record["client_ip"], "127.0.0.1");
    }
}

#[test]
fn an_exchange_may_take_longer_than_a_connection_may_idle() {
    let origin = Origin::answering(|request| {
        std::thread::sleep(std::time::Duration::from_secs(8));
        ok(request.target())
    });
    let site = site(Setup::to(&origin).listener("timeouts: { idle: 3s }"), 1);
    assert_eq!(site.connect().get("/slow").text(), "/slow");
}

#[test]
fn where_there_are_many_handshakes_clients_prove_where_they_are() {
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin).listener("http3: { unproven_max: 0 }"), 2);
    for _ in 0..3 {
        assert_eq!(site.connect().get("/").text(), "fine");
    }
    // A first flight may be of several datagrams.
    site.product.expect_metric_at_least("equipoise_http3_retries_total", &["listener=\"web\""], 3.0);
}

#[test]
fn a_full_listener_refuses_and_lets_in_again() {
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin).listener("connections_max: 1"), 2);
    let mut first = site.connect();
    assert_eq!(first.get("/").status, 200);
    assert!(Client::try_connect(site.product.web(), "shop.example", &site.tls()).is_err());
    site.product.expect_metric_at_least("equipoise_connections_refused_total", &["listener=\"web\""], 1.0);
    drop(first);
    site.product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
    assert_eq!(site.connect().get("/").status, 200);
}

#[test]
fn certificates_are_chosen_by_name_and_change_while_connections_live() {
    let (authority, folder) = (Authority::new("the tests' own"), product::folder());
    let names = ["one.example", "two.example"];
    for name in names {
        authority.issue(&[name]).write(folder.path(), name);
    }
    let origin = Origin::saying("fine");
    let text = Setup::to(&origin)
        .listener("http_versions: [h2, h3]")
        .listener(
            "tls: { certificates: [{ chain: one.example.pem, key: one.example.key }, \
             { chain: two.example.pem, key: two.example.key }] }",
        )
        .text();
    let product = Product::start_in(folder, &text, 2);
    let tls = trusting(&authority, None);
    let mut clients: Vec<_> = names.map(|name| Client::connect(product.web(), name, &tls)).into();
    let other = Authority::new("another");
    for name in names {
        other.issue(&[name]).write(product.folder(), name);
    }
    let said = product.reload_unchanged();
    assert!(said.contains("configuration is live"), "{said}");
    for client in &mut clients {
        assert_eq!(client.get("/").text(), "fine", "what is connected stays");
    }
    // One that has a ticket asks for no certificate.
    assert!(Client::try_connect(product.web(), "one.example", &trusting(&authority, None)).is_err());
    product.flagged("CH");
    let trusting_other = trusting(&other, None);
    assert_eq!(Client::connect(product.web(), "two.example", &trusting_other).get("/").status, 200);
}

#[test]
fn endpoints_are_told_who_a_client_is_that_shows_a_certificate() {
    let authority = Authority::new("the tests' own");
    let identity = authority.issue_client("a friend");
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin);
    let client = "client: { mode: required, authorities: authority.pem, identity_header: x-client }";
    let site = Site::of(authority, "[h1, h3]", client, setup, 1);
    let tls = trusting(&site.authority, Some(&identity));
    let mut known = Client::connect(site.product.web(), "shop.example", &tls);
    let mut asked = request("GET", "/");
    asked.headers_mut().insert("x-client", "CN=somebody else".parse().unwrap());
    assert_eq!(known.ask(asked, b"").status, 200);
    assert_eq!(origin.only_request().field("x-client"), Some("CN=a friend"));
    let stranger = Client::try_connect(site.product.web(), "shop.example", &site.tls());
    // The client has finished its part before it hears that this was not enough.
    if let Ok(mut stranger) = stranger {
        let refused = stranger.try_open(request("GET", "/")).and_then(|mut stream| stranger.try_answer(&mut stream));
        assert!(refused.is_err());
    }
    site.product.flagged("CH");
    assert_eq!(origin.requests().len(), 1);
}

/// A client that has a ticket.
fn with_ticket(site: &Site) -> Arc<ClientConfig> {
    let mut tls = ClientConfig::clone(&site.tls());
    tls.enable_early_data = true;
    let tls = Arc::new(tls);
    let mut client = Client::connect(site.product.web(), "shop.example", &tls);
    assert_eq!(client.get("/first").status, 200);
    drop(client);
    tls
}

#[test]
fn a_request_before_the_end_of_the_handshake_is_carried_only_where_its_route_says_so() {
    let origin = Origin::answering(|request| ok_for(request, "fine"));
    let early = "{ match: { path: { prefix: /early } }, cluster: site, early_data: true }";
    let site = site(Setup::to(&origin).route_before(early), 1);
    let marks = |method: &str, path: &str| {
        let tls = with_ticket(&site);
        let asked = request(method, path);
        let (_client, accepted, answer) = Client::connect_early(site.product.web(), "shop.example", &tls, asked);
        assert!(accepted, "the ticket allows it");
        assert_eq!(answer.status, 200);
        let received = origin.requests().pop().expect("a request");
        assert!(received.line.contains(path), "{}", received.line);
        received.field("early-data").map(str::to_owned)
    };
    assert_eq!(marks("GET", "/early/1"), Some("1".to_owned()));
    // Carried too, but only once nobody else can have sent it.
    assert_eq!(marks("POST", "/early/2"), None);
    assert_eq!(marks("GET", "/late"), None);
}

/// Stands between a client and the product, and writes down what the client sends.
fn recorder(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let socket = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let (front, back) = (socket(), socket());
    back.connect(to).expect("an address");
    let address = front.local_addr().expect("an address");
    let said: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let book = Arc::clone(&said);
    std::thread::spawn(move || {
        let mut room = [0; 2048];
        let Ok((count, mut client)) = front.recv_from(&mut room) else { return };
        book.lock().expect("a book").push(room[..count].to_vec());
        let _ = back.send(&room[..count]);
        let step = Some(std::time::Duration::from_millis(2));
        front.set_read_timeout(step).expect("a time");
        back.set_read_timeout(step).expect("a time");
        let idle = std::time::Instant::now();
        while idle.elapsed() < PATIENCE {
            while let Ok((count, from)) = front.recv_from(&mut room) {
                client = from;
                book.lock().expect("a book").push(room[..count].to_vec());
                let _ = back.send(&room[..count]);
            }
            while let Ok(count) = back.recv(&mut room) {
                let _ = front.send_to(&room[..count], client);
            }
        }
    });
    (address, said)
}

#[test]
fn what_was_sent_before_the_end_of_a_handshake_counts_once_though_it_is_sent_again() {
    let origin = Origin::answering(|request| ok_for(request, "fine"));
    let site = site(Setup::to(&origin).route("early_data: true"), 1);
    let tls = with_ticket(&site);
    let (address, said) = recorder(site.product.web());
    let (client, accepted, _) = Client::connect_early(address, "shop.example", &tls, request("GET", "/once"));
    assert!(accepted);
    let again = UdpSocket::bind("127.0.0.1:0").unwrap();
    for datagram in &*said.lock().unwrap() {
        again.send_to(datagram, site.product.web()).unwrap();
    }
    drop(client);
    // Once more, with nothing left of the connection that it was sent on first.
    site.product.expect_metric("equipoise_http_requests_total", &["class=\"2xx\""], 2.0);
    let later = UdpSocket::bind("127.0.0.1:0").unwrap();
    for datagram in &*said.lock().unwrap() {
        later.send_to(datagram, site.product.web()).unwrap();
    }
    assert_eq!(site.connect().get("/other").status, 200);
    let carried = origin.requests().iter().filter(|request| request.line.contains("/once")).count();
    assert_eq!(carried, 1);
}

#[test]
fn nothing_comes_early_where_no_route_takes_it() {
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin), 1);
    let tls = with_ticket(&site);
    assert!(!Client::offers_early(site.product.web(), "shop.example", &tls));
}

#[test]
fn a_drain_finishes_what_is_begun_and_begins_nothing() {
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::answering(move |_| {
        wait.lock().expect("channel").recv().expect("the test lets it go");
        ok("last")
    });
    let mut site = site(Setup::to(&origin), 2);
    let mut client = site.connect();
    let mut idle = site.connect();
    idle.flush();
    let mut slow = client.open(request("GET", "/"));
    client.end(&mut slow, http::HeaderMap::new());
    eventually("it is under way", || {
        client.flush();
        origin.busy() == 1
    });
    site.product.signal(libc::SIGTERM);
    eventually("it drains", || site.product.stderr().contains("draining"));
    assert_eq!(idle.ended(), NO_ERROR);
    assert!(Client::try_connect(site.product.web(), "shop.example", &site.tls()).is_err(), "nobody else is let in");
    go.send(()).expect("the origin waits");
    assert_eq!(client.answer(slow).text(), "last");
    assert_eq!(client.ended(), NO_ERROR);
    assert_eq!(site.product.wait_ended().code(), Some(0));
}

#[test]
fn a_drain_that_lasts_too_long_cuts_streams_off_and_still_records_them() {
    let origin = Origin::start(|mut visit| {
        if visit.request().is_some() {
            visit.peer.wait_closed();
        }
    });
    let mut site = site(Setup::to(&origin).top("shutdown: { drain_timeout: 200ms }"), 1);
    let mut client = site.connect();
    let mut hanging = client.open(request("GET", "/hang"));
    client.end(&mut hanging, http::HeaderMap::new());
    eventually("it is under way", || {
        client.flush();
        origin.requests().len() == 1
    });
    site.product.signal(libc::SIGTERM);
    assert!(client.try_answer(&mut hanging).is_err());
    assert_eq!(site.product.wait_ended().code(), Some(4));
    assert_eq!(site.product.flagged("PX")["path"], "/hang");
}

#[test]
fn a_change_of_configuration_loses_no_request_of_any_stream() {
    let origins: Vec<_> = (0..3).map(|_| Origin::answering(|request| ok(request.target()))).collect();
    let lines = |setup: Setup| {
        setup
            .listener("http_versions: [h1, h2, h3]")
            .listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }")
            .text()
    };
    let site = site(Setup::to_all(&origins[..2]), 2);
    let one = lines(Setup::to_all(&origins[..2]));
    let two = lines(Setup::to_all(&origins[1..]).route("timeout: 20s"));
    let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _over = Over(&stop);
        for client in 0..3 {
            let (stop, rounds, site) = (&stop, &rounds, &site);
            scope.spawn(move || {
                let mut connection = site.connect();
                let mut round = 0;
                while round == 0 || !stop.load(Ordering::Relaxed) {
                    let path = |index| format!("/{client}/{round}/{index}");
                    let mut streams: Vec<_> =
                        (0..8).map(|index| connection.open(request("GET", &path(index)))).collect();
                    for stream in &mut streams {
                        connection.end(stream, http::HeaderMap::new());
                    }
                    for (index, stream) in streams.into_iter().enumerate() {
                        assert_eq!(connection.answer(stream).text(), path(index));
                    }
                    round += 1;
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..5 {
            for text in [&two, &one] {
                let before = rounds.load(Ordering::Relaxed);
                eventually("all go on", || rounds.load(Ordering::Relaxed) > before + 6);
                let said = site.product.reload(text);
                assert!(said.contains("configuration is live"), "{said}");
            }
        }
    });
    site.product.expect_metric("equipoise_connections_opened_total", &["listener=\"web\""], 3.0);
}

#[test]
fn http3_comes_and_goes_with_the_configuration_and_tcp_stays() {
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin), 2);
    let plain = TlsClient::trusting(&site.authority).config();
    let mut first = connect(site.product.web(), "shop.example", &plain);
    let mut client = site.connect();
    assert_eq!((first.get("/").status(), client.get("/").status), (200, 200));
    let text = |versions: &str| {
        Setup::to(&origin)
            .listener(format!("http_versions: {versions}"))
            .listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }")
            .text()
    };
    site.product.reload(&text("[h1, h2]"));
    assert_eq!(client.ended(), NO_ERROR);
    assert_eq!(first.get("/").status(), 200);
    assert_eq!(first.get("/").field("alt-svc"), None);
    let said = site.product.reload(&text("[h1, h2, h3]"));
    assert!(said.contains("configuration is live"), "{said}");
    // What is left of the connection before is not in the way.
    assert_eq!(site.connect().get("/").status, 200);
    assert_eq!(first.get("/").status(), 200);
}

#[test]
fn what_was_begun_before_http3_went_and_came_back_is_finished() {
    let origin = Origin::answering(|request| ok(&request.text()));
    let site = site(Setup::to(&origin), 4);
    let text = |versions: &str| {
        Setup::to(&origin)
            .listener(format!("http_versions: {versions}"))
            .listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }")
            .text()
    };
    let mut begun: Vec<(Client, Stream)> = Vec::new();
    for _ in 0..3 {
        for _ in 0..6 {
            let mut client = site.connect();
            let mut stream = client.open(request("POST", "/"));
            client.send(&mut stream, b"before, ");
            begun.push((client, stream));
        }
        eventually("they are under way", || {
            begun.iter().for_each(|(client, _)| client.flush());
            origin.connections() == begun.len()
        });
        for versions in ["[h1, h2]", "[h1, h2, h3]"] {
            let said = site.product.reload(&text(versions));
            assert!(said.contains("configuration is live"), "{said}");
        }
    }
    for (index, (client, stream)) in begun.iter_mut().enumerate() {
        if index % 2 == 0 {
            // Somebody else may get its datagrams from now on, of any of those that were there.
            client.move_away();
        }
        client.send(stream, b"after");
        client.end(stream, http::HeaderMap::new());
    }
    // All at once: a client hears nothing while another one is waited for.
    let mut clients: Vec<Client> = Vec::new();
    for (client, stream) in begun {
        assert_eq!(client.answer(stream).text(), "before, after");
        clients.push(client);
    }
    clients.iter_mut().for_each(|client| assert_eq!(client.ended(), NO_ERROR));
    assert_eq!(site.connect().get("/").status, 200);
    site.product.expect_metric("equipoise_connections_opened_total", &["listener=\"web\""], 19.0);
}

/// The site, moved to another address; `versions` are those of HTTP.
fn moved(origin: &Origin, address: SocketAddr, versions: &str) -> String {
    let text = Setup::to(origin)
        .listener(format!("http_versions: {versions}"))
        .listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }")
        .text();
    text.replacen("\"127.0.0.1:0\"", &format!("\"{address}\""), 1)
}

#[test]
fn a_listener_whose_address_becomes_every_address_and_one_again_loses_nothing_and_lets_in_who_comes() {
    let origin = Origin::answering(|request| ok(&request.text()));
    let site = site(Setup::to(&origin), 4);
    let one = net::free();
    let every = SocketAddr::from(([0, 0, 0, 0], one.port()));
    let mut begun: Vec<(Client, Stream)> = Vec::new();
    for address in [one, every, one, every] {
        let said = site.product.reload(&moved(&origin, address, "[h1, h2, h3]"));
        assert!(said.contains("configuration is live"), "{said}");
        for _ in 0..4 {
            let mut client = Client::connect(one, "shop.example", &site.tls());
            let mut stream = client.open(request("POST", "/"));
            client.send(&mut stream, b"before, ");
            begun.push((client, stream));
        }
        eventually("they are under way", || {
            begun.iter().for_each(|(client, _)| client.flush());
            origin.connections() == begun.len()
        });
    }
    for (client, stream) in &mut begun {
        client.send(stream, b"after");
        client.end(stream, http::HeaderMap::new());
    }
    // All at once: a client hears nothing while another one is waited for.
    let answered: Vec<Client> = begun
        .into_iter()
        .map(|(client, stream)| {
            assert_eq!(client.answer(stream).text(), "before, after");
            client
        })
        .collect();
    drop(answered);
    assert_eq!(Client::connect(one, "shop.example", &site.tls()).get("/").status, 200);
}

#[test]
fn a_port_is_not_that_of_datagrams_before_the_connections_of_http3_there_are_over() {
    let origin = Origin::answering(|request| ok(&request.text()));
    let site = site(Setup::to(&origin), 2);
    let address = net::free();
    let (with, without) = (moved(&origin, address, "[h1, h2, h3]"), moved(&origin, address, "[h1, h2]"));
    let names = format!("  names: {{ bind: \"{address}\", protocol: udp, cluster: site }}\nroutes:\n");
    let datagrams = without.replacen("routes:\n", &names, 1);
    site.product.reload(&with);
    let mut client = Client::connect(address, "shop.example", &site.tls());
    let mut stream = client.open(request("POST", "/"));
    client.send(&mut stream, b"before, ");
    eventually("it is under way", || {
        client.flush();
        origin.connections() == 1
    });
    let why = "HTTP/3 connections that started there are still open";
    for before in [None, Some(&without)] {
        let said = before.map(|before| site.product.reload(before));
        assert!(said.is_none_or(|said| said.contains("configuration is live")));
        let said = site.product.reload(&datagrams);
        assert!(said.contains(why) && said.contains("stays active"), "{said}");
    }
    client.send(&mut stream, b"after");
    client.end(&mut stream, http::HeaderMap::new());
    assert_eq!(client.answer(stream).text(), "before, after");
    assert_eq!(client.ended(), NO_ERROR);
    eventually("the port is free for datagrams", || site.product.reload(&datagrams).contains("configuration is live"));
}

#[test]
fn an_exchange_outlives_more_generations_than_have_numbers_and_those_between_leave_nothing_behind() {
    let origin = Origin::answering(|request| ok(&request.text()));
    let site = site(Setup::to(&origin), 1);
    let address = net::free();
    let [without, with] = ["[h1, h2]", "[h1, h2, h3]"].map(|versions| moved(&origin, address, versions));
    let file = site.product.folder().join("equipoise.yaml");
    let folder = site.product.folder().display().to_string();
    // By the API: the log leaves lines out where there are many.
    let turn = || {
        for text in [&without, &with] {
            std::fs::write(&file, text.replace("DIR", &folder)).expect("ours");
            let told = site.product.call("POST /api/reload", &[], "");
            assert_eq!(told.status(), 200, "{}", told.text());
        }
    };
    site.product.reload(&with);
    let mut client = Client::connect(address, "shop.example", &site.tls());
    let mut stream = client.open(request("POST", "/"));
    client.send(&mut stream, b"before, ");
    eventually("it is under way", || {
        client.flush();
        origin.connections() == 1
    });
    turn();
    let descriptors = sys::descriptors(site.product.pid());
    for _ in 0..135 {
        turn();
        client.send(&mut stream, b".");
    }
    eventually("nothing is left of those between", || sys::descriptors(site.product.pid()) <= descriptors + 5);
    client.end(&mut stream, http::HeaderMap::new());
    let told = client.answer(stream).text();
    assert_eq!((told.len(), told.starts_with("before, ...")), (8 + 135, true), "{told}");
    assert_eq!(Client::connect(address, "shop.example", &site.tls()).get("/").status, 200);
}

#[test]
fn a_connection_that_has_carried_enough_requests_is_ended_in_good_order() {
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin).listener("requests_per_connection_max: 3"), 1);
    let mut client = site.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(client.ended(), NO_ERROR);
}

/// Also of those that come at once. Those that are too many may be sent again elsewhere.
#[test]
fn a_connection_brings_as_many_requests_as_it_may_and_not_one_more() {
    const REQUEST_REJECTED: u64 = 0x10b;
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin).listener("requests_per_connection_max: 3"), 1);
    let mut client = Client::silent(site.product.web(), "shop.example", &site.tls());
    let answers = client.with_quic("the answers", async |quic| {
        let mut streams = Vec::new();
        for _ in 0..10 {
            let (mut send, receive) = quic.open_bi().await.expect("a stream");
            // GET https://shop.example/
            send.write_all(b"\x01\x13\0\0\xd1\xd7\x50\x0cshop.example\xc1").await.expect("it is taken");
            send.finish().expect("it ends");
            streams.push(receive);
        }
        let mut answers = Vec::new();
        for mut receive in streams {
            answers.push(match receive.read_to_end(10_000).await {
                Ok(bytes) => Ok(bytes.ends_with(b"fine")),
                Err(quinn::ReadToEndError::Read(quinn::ReadError::Reset(code))) => Err(code.into_inner()),
                Err(other) => panic!("{other:?}"),
            });
        }
        answers
    });
    assert_eq!(answers, [[Ok(true); 3].to_vec(), [Err(REQUEST_REJECTED); 7].to_vec()].concat());
    assert_eq!(client.ended(), NO_ERROR);
    assert_eq!(origin.requests().len(), 3);
}

#[test]
fn an_idle_connection_is_ended() {
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin).listener("timeouts: { idle: 3s }"), 1);
    let mut client = site.connect();
    assert_eq!(client.get("/").status, 200);
    // By a goodbye, or by silence where that is lost.
    let _ = client.ended();
    site.product.expect_metric("equipoise_connections_open", &["listener=\"web\""], 0.0);
}

#[test]
fn a_port_of_udp_that_another_program_has_is_told() {
    let origin = Origin::saying("fine");
    let taken = UdpSocket::bind(net::free()).unwrap();
    let site = site(Setup::to(&origin), 1);
    let before = site.product.web();
    let text = Setup::to(&origin)
        .listener("http_versions: [h1, h2, h3]")
        .listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }")
        .text();
    let port = taken.local_addr().unwrap().port();
    let said = site.product.reload(&text.replacen("127.0.0.1:0", &format!("127.0.0.1:{port}"), 1));
    assert!(said.contains("by UDP, for HTTP/3"), "{said}");
    let mut client = Client::connect(before, "shop.example", &site.tls());
    assert_eq!(client.get("/").status, 200, "what was in force stays");
}

#[test]
fn idle_connections_hold_little_memory() {
    const MANY: usize = 100;
    let origin = Origin::saying("fine");
    let site = site(Setup::to(&origin), 1);
    let connect = || {
        let mut client = site.connect();
        assert_eq!(client.get("/").status, 200);
        client
    };
    let _warm: Vec<_> = (0..20).map(|_| connect()).collect();
    let before = site.product.resident_bytes();
    let _idle: Vec<_> = (0..MANY).map(|_| connect()).collect();
    let each = site.product.resident_bytes().saturating_sub(before) / MANY as u64;
    println!("{each} bytes for an idle connection");
    assert!(each < 128 * 1024, "{each} bytes for an idle connection");
}
