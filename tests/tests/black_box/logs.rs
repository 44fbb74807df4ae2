//! Access logs.

use serde_json::Value;

use super::harness::origin::ok;
use super::harness::{Origin, Product, Setup, eventually};

#[test]
fn a_record_tells_the_whole_exchange() {
    let origin = Origin::answering(|_| ok("answer"));
    let product = Setup::to(&origin).start();
    product.connect().ask(
        "POST /a/b?c=d HTTP/1.1\r\nHost: Shop.example:81\r\nUser-Agent: tester/1\r\nReferer: http://x/\r\n\
         Content-Length: 4\r\n\r\nbody",
    );
    let record = product.record("the exchange", |_| true);
    let local = origin.address().to_string();
    for (key, wanted) in [
        ("kind", "exchange"),
        ("listener", "web"),
        ("client_ip", "127.0.0.1"),
        ("scheme", "http"),
        ("method", "POST"),
        ("path", "/a/b"),
        ("query", "c=d"),
        ("version", "HTTP/1.1"),
        ("route", "main"),
        ("cluster", "site"),
        ("endpoint_address", local.as_str()),
        ("user_agent", "tester/1"),
        ("referer", "http://x/"),
    ] {
        assert_eq!(record[key], wanted, "{key} in {record}");
    }
    assert!(record["host"].as_str().is_some_and(|host| host.eq_ignore_ascii_case("shop.example")));
    for (key, wanted) in [("status", 200), ("received_bytes", 4), ("sent_bytes", 6), ("retries", 0)] {
        assert_eq!(record[key], wanted, "{key} in {record}");
    }
    for key in ["fault", "flag", "tls_version"] {
        assert_eq!(record[key], Value::Null, "{key} in {record}");
    }
    let phase = |key: &str| record[key].as_f64().unwrap_or_else(|| panic!("{key} in {record}"));
    let parts = phase("receive_ms") + phase("queue_ms") + phase("connect_ms") + phase("first_byte_ms");
    assert!(phase("total_ms") > 0.0 && phase("first_byte_ms") > 0.0 && phase("connect_ms") > 0.0);
    assert!(parts <= phase("total_ms") + 0.01, "{record}");
    assert!(record["time"].as_str().is_some_and(|time| time.starts_with("20") && time.ends_with('Z')));
}

#[test]
fn a_line_is_written_by_its_template_to_file_and_standard_output() {
    let origin = Origin::saying("fine");
    let text = Setup::to(&origin).text().replace(
        "access_logs: [",
        "access_logs: [{ stdout: true, format: line, line: \"{{{method}}} {uri} {status} {request_header:x-a} {response_header:content-length} {cookie}\" }, ",
    );
    // `{cookie}` is no variable of a log line: the configuration says so.
    let folder = super::harness::product::folder();
    std::fs::write(folder.path().join("c.yaml"), text.replace("DIR", "/tmp")).expect("our folder");
    let checked = super::harness::product::command_in(folder.path(), &["check", "-c", "c.yaml"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(checked.stderr.contains("{cookie}"), "{}", checked.stderr);
    let product = super::harness::Product::start(&text.replace(" {cookie}", ""));
    // On one connection, so that one worker writes them, in order.
    let mut peer = product.connect();
    peer.ask("GET /x?y HTTP/1.1\r\nHost: test\r\nX-A: one\r\n\r\n");
    peer.get("/z");
    eventually("both lines are there", || product.stdout() == "{GET} /x?y 200 one 4\n{GET} /z 200 - 4\n");
    eventually("and in the file", || product.records().len() == 2);
}

#[test]
fn an_absolute_target_is_logged_as_its_path_and_query() {
    let origin = Origin::saying("fine");
    let text = Setup::to(&origin)
        .route_before("{ match: { path: { exact: /away } }, redirect: { path: \"/there{path}\" } }")
        .route("filters: [{ rewrite: { path: { full: /other } } }, { set_request_header: { x-uri: \"{uri}\" } }]")
        .text()
        .replace(
            "access_logs: [",
            "access_logs: [{ path: \"DIR/line.log\", format: line, line: \"{path} {query} {uri} {host}\" }, ",
        );
    let product = super::harness::Product::start(&text);
    // On one connection, so that one worker writes them, in order.
    let mut peer = product.connect();
    for target in ["http://shop.example/a/b?c=http://d/", "https://shop.example:81", "http://shop.example?q", "/o?p"] {
        assert_eq!(peer.ask(format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\n\r\n")).status(), 200);
    }
    let away = peer.ask("GET http://shop.example/away?x HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    assert_eq!(away.field("location"), Some("http://shop.example/there/away?x"));
    let line = || std::fs::read_to_string(product.folder().join("line.log")).unwrap_or_default();
    eventually("all are written", || line().lines().count() == 5);
    assert_eq!(
        line(),
        "/a/b c=http://d/ /a/b?c=http://d/ shop.example\n/ - / shop.example\n/ q /?q shop.example\n\
         /o p /o?p shop.example\n/away x /away?x shop.example\n"
    );
    eventually("as JSON too", || product.records().len() == 5);
    let told: Vec<_> =
        product.records().iter().map(|record| (record["path"].clone(), record["query"].clone())).collect();
    let wanted = [
        ("/a/b", "c=http://d/".into()),
        ("/", Value::Null),
        ("/", "q".into()),
        ("/o", "p".into()),
        ("/away", "x".into()),
    ];
    assert_eq!(told, wanted.map(|(path, query)| (Value::from(path), query)));
    assert_eq!(origin.requests()[0].field("x-uri"), Some("/other?c=http://d/"));
}

#[test]
fn a_client_cannot_forge_a_line_or_break_the_json() {
    let origin = Origin::saying("fine");
    let text = Setup::to(&origin).text().replace(
        "access_logs: [",
        "access_logs: [{ path: \"DIR/line.log\", format: line, line: \"{uri} {request_header:user-agent}\" }, ",
    );
    let product = super::harness::Product::start(&text);
    let hostile = b"GET /\"},{\"a\":\"b\\u0000%0a HTTP/1.1\r\nHost: test\r\nUser-Agent: a\"b\\c\t\xff\xc3\x28 {status} \xe2\x80\xa8end\r\n\r\n";
    product.connect().ask(hostile);
    let record = product.record("the exchange", |_| true);
    assert_eq!(record["path"], "/\"},{\"a\":\"b\\u0000%0a");
    assert!(record["user_agent"].as_str().is_some_and(|agent| agent.starts_with("a\"b\\c")));
    eventually("one line is written", || {
        let line = std::fs::read(product.folder().join("line.log")).unwrap_or_default();
        line.iter().filter(|byte| **byte == b'\n').count() == 1
            && line.iter().all(|byte| *byte == b'\n' || !byte.is_ascii_control())
    });
}

#[test]
fn a_rotated_file_is_opened_anew_and_no_record_is_lost() {
    let origin = Origin::saying("fine");
    let product = Setup::to(&origin).start();
    let mut peer = product.connect();
    let (file, old) = (product.folder().join("access.json"), product.folder().join("access.old"));
    for number in 0..10 {
        peer.get(&format!("/{number}"));
    }
    std::fs::rename(&file, &old).expect("our folder");
    for number in 10..20 {
        peer.get(&format!("/{number}"));
    }
    product.signal(libc::SIGUSR1);
    eventually("it is open again", || file.exists() && product.stderr().contains("access logs reopened"));
    for number in 20..30 {
        peer.get(&format!("/{number}"));
    }
    let place = |line: &str| -> usize {
        let record: Value = serde_json::from_str(line).expect("a whole record");
        record["path"].as_str().and_then(|path| path[1..].parse().ok()).expect("a number")
    };
    let all = || {
        let (before, after) = (std::fs::read_to_string(&old), std::fs::read_to_string(&file));
        (before.expect("the old file"), after.expect("the new file"))
    };
    eventually("all are there", || all().1.ends_with('\n') && all().0.lines().count() + all().1.lines().count() == 30);
    let (before, after) = all();
    assert_eq!(before.lines().chain(after.lines()).map(place).collect::<Vec<_>>(), (0..30).collect::<Vec<_>>());
    assert!(after.lines().count() >= 10, "what came later is in the new file");
}

#[test]
fn a_log_that_cannot_be_opened_is_told_before_anything_starts() {
    let origin = Origin::saying("fine");
    let text = Setup::to(&origin).text().replace("DIR/access.json", "/nowhere/at/all.json");
    let folder = super::harness::product::folder();
    std::fs::write(folder.path().join("c.yaml"), text).expect("our folder");
    let ended = super::harness::product::command_in(folder.path(), &["run", "-c", "c.yaml", "--workers", "1"]);
    assert!(matches!(ended.status.code(), Some(1 | 3)), "{:?}", ended.status);
    assert!(ended.stderr.contains("/nowhere/at/all.json"), "{}", ended.stderr);
}

#[test]
fn every_exchange_leaves_exactly_one_record() {
    let origin = Origin::answering(|request| match request.target() {
        "/bad" => b"rubbish\r\n\r\n".to_vec(),
        _ => ok("fine"),
    });
    let mut product = Setup::to(&origin).start();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let web = product.web();
            std::thread::spawn(move || {
                for number in 0..50 {
                    let path = if number % 10 == 0 { "/bad" } else { "/good" };
                    super::harness::Peer::connect(web).get(path);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("all are answered");
    }
    product.expect_metric("equipoise_access_log_dropped_total", &[], 0.0);
    product.signal(libc::SIGTERM);
    product.wait_ended();
    let records = product.records();
    let of = |path: &str| records.iter().filter(|record| record["path"] == path).count();
    assert_eq!((records.len(), of("/bad"), of("/good")), (200, 20, 180));
}

#[test]
fn records_reach_receivers_of_syslog_by_udp_tcp_and_unix_socket() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixDatagram;
    let origin = Origin::saying("fine");
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let folder = super::harness::product::folder();
    let path = folder.path().join("log.socket");
    let unix = UnixDatagram::bind(&path).expect("our folder");
    let bound = Some(std::time::Duration::from_secs(20));
    udp.set_read_timeout(bound).expect("a socket");
    unix.set_read_timeout(bound).expect("a socket");
    let local = |socket: std::io::Result<std::net::SocketAddr>| socket.expect("it is bound");
    let text = Setup::to(&origin).text().replace(
        "access_logs: [",
        &format!(
            "access_logs: [\
             {{ syslog: {{ to: \"udp:{}\", facility: local7, tag: edge }}, line: \"{{method}} {{uri}} {{status}}\" }}, \
             {{ syslog: {{ to: \"tcp:{}\", style: rfc3164 }}, line: \"{{status}} {{uri}}\" }}, \
             {{ syslog: {{ to: \"unix:{}\", severity: debug }}, format: json }}, ",
            local(udp.local_addr()),
            local(tcp.local_addr()),
            path.display()
        ),
    );
    let product = super::harness::Product::start(&text);
    product.connect().get("/a");
    let mut buffer = vec![0; 10_000];
    let count = udp.recv(&mut buffer).expect("a message");
    let message = String::from_utf8_lossy(&buffer[..count]).into_owned();
    assert!(message.starts_with("<190>1 20") && message.ends_with(" - - GET /a 200"), "{message}");
    assert!(message.contains(" edge "), "{message}");
    let count = unix.recv(&mut buffer).expect("a message");
    let message = String::from_utf8_lossy(&buffer[..count]).into_owned();
    let (head, json) = message.split_once(": ").expect("a head");
    assert!(head.starts_with("<135>"), "{message}");
    assert_eq!(serde_json::from_str::<Value>(json).expect("a record")["path"], "/a");
    let mut line = String::new();
    let (stream, _) = tcp.accept().expect("a connection");
    stream.set_read_timeout(bound).expect("a socket");
    BufReader::new(stream).read_line(&mut line).expect("a message");
    assert!(line.starts_with("<134>") && line.ends_with(": 200 /a\n"), "{line}");
}

#[test]
fn a_pipe_that_nobody_reads_holds_no_other_log_up() {
    let origin = Origin::saying("fine");
    let folder = super::harness::product::folder();
    super::harness::sys::pipe_at(&folder.path().join("pipe.json"));
    let text = Setup::to(&origin)
        .text()
        .replace("access_logs: [", "access_logs: [{ path: \"DIR/pipe.json\", format: json }, ");
    let product = Product::start_in(folder, &text, 1);
    let mut client = product.connect();
    // More than a pipe holds.
    for _ in 0..400 {
        assert_eq!(client.get("/").status(), 200);
    }
    eventually("all are in the other", || product.records().len() == 400);
    eventually("it is told", || product.stderr().contains("pipe.json"));
}
