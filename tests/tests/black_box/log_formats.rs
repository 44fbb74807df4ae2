//! Formats of access logs by name: those that other tools read, and those of the file.

use super::harness::http2::{self, with_fields};
use super::harness::{Origin, Peer, Setup, eventually, http3, product};

const LOGS: &str = "access_logs: [{ path: \"DIR/combined.log\", format: combined }, { path: \"DIR/common.log\", format: common }, \
                    { path: \"DIR/own.log\", format: short }, ";
const CLEAR: &str = "clear: { bind: \"127.0.0.1:0\" }";

fn lines(folder: &std::path::Path, log: &str, count: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(folder.join(log)).unwrap_or_default();
    eventually("all is written", || read().lines().count() >= count);
    read().lines().map(str::to_owned).collect()
}

/// Takes `[10/Oct/2000:13:55:36 -0700]` out of a line, and checks its shape.
fn without_time(line: &str) -> String {
    let (before, rest) = line.split_once('[').expect("a time");
    let (time, after) = rest.split_once(']').expect("the end of a time");
    let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let month = &time[3..6];
    assert!("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(' ').any(|known| known == month), "{time}");
    assert_eq!(shape.replace(month, "Oct"), "00/Oct/0000:00:00:00 +0000", "{time}");
    format!("{before}[]{after}")
}

#[test]
fn combined_and_common_lines_are_what_other_tools_read_in_every_version() {
    let origin = Origin::saying("fine");
    let setup = Setup::to(&origin)
        .listener_more(CLEAR)
        .top("log_formats: { short: \"{method} {status} <{request_header:x-a}>\" }");
    let with_logs = |text: String| text.replacen("access_logs: [", LOGS, 1);
    // The harness writes one log of its own; these stand before it.
    let folder = product::folder();
    let authority = super::harness::tls::Authority::new("the tests' own");
    authority.issue(&["shop.example"]).write(folder.path(), "site");
    let text = with_logs(
        setup
            .listener("http_versions: [h1, h2, h3]")
            .listener("tls: { certificates: [{ chain: site.pem, key: site.key }] }")
            .text(),
    );
    let product = super::harness::Product::start_in(folder, &text, 1);
    let mut peer = Peer::connect(product.address("clear"));
    peer.ask("GET /a?b=c HTTP/1.1\r\nHost: test\r\nReferer: http://x/\"\\\u{e9}\r\nUser-Agent: a\tb\r\nX-A: 1\r\n\r\n");
    let fields = [("user-agent", "agent/2"), ("x-a", "2")];
    http2::Client::connect(product.address("clear")).ask(with_fields(http2::request("GET", "/two"), &fields), b"");
    let tls = http3::trusting(&authority, None);
    http3::Client::connect(product.web(), "shop.example", &tls)
        .ask(with_fields(http3::request("POST", "/three"), &fields), b"body");
    // What is refused before it is a request.
    let mut bad = Peer::connect(product.address("clear"));
    bad.send("GET\x01/ HTTP/1.1\r\n\r\n");
    bad.rest();
    let told = lines(product.folder(), "combined.log", 4);
    let wanted = [
        "127.0.0.1 - - [] \"GET /a?b=c HTTP/1.1\" 200 4 \"http://x/\\x22\\x5C\\xC3\\xA9\" \"a\\x09b\"",
        "127.0.0.1 - - [] \"GET /two HTTP/2.0\" 200 4 \"-\" \"agent/2\"",
        "127.0.0.1 - - [] \"POST /three HTTP/3.0\" 200 4 \"-\" \"agent/2\"",
        "127.0.0.1 - - [] \"-\" 400 16 \"-\" \"-\"",
    ];
    let told: Vec<String> = told.iter().map(|line| without_time(line)).collect();
    assert_eq!(told[..3], wanted[..3]);
    assert!(told[3].starts_with("127.0.0.1 - - [] \"-\" 400 ") && told[3].ends_with(" \"-\" \"-\""), "{told:?}");
    let common = lines(product.folder(), "common.log", 4);
    assert_eq!(without_time(&common[1]), "127.0.0.1 - - [] \"GET /two HTTP/2.0\" 200 4");
    assert_eq!(lines(product.folder(), "own.log", 4)[..3], ["GET 200 <1>", "GET 200 <2>", "POST 200 <2>"]);
    assert_eq!(product.api("/api/config")["log_formats"]["short"], "{method} {status} <{request_header:x-a}>");
}

#[test]
fn a_format_that_is_wrong_is_told_where_it_stands() {
    let origin = Origin::saying("fine");
    let check = |formats: &str, log: &str| {
        let folder = product::folder();
        let text = Setup::to(&origin).top(format!("log_formats: {formats}")).text();
        let text = text
            .replace("access_logs: [", &format!("access_logs: [{{ stdout: true, {log} }}, "))
            .replace("DIR", "/tmp");
        std::fs::write(folder.path().join("c.yaml"), text).expect("our folder");
        product::command_in(folder.path(), &["check", "c.yaml"]).stderr
    };
    for (formats, log, told) in [
        ("{ short: \"{method}\" }", "format: shrt", "c.yaml:12:39: there is no log format `shrt`"),
        ("{ short: \"{method}\" }", "format: shrt", "did you mean `short`?"),
        ("{}", "format: combind", "did you mean `combined`?"),
        ("{ short: \"{methd}\" }", "format: short", "c.yaml:13:23: there is no variable `{methd}`"),
        ("{ short: \"{method\" }", "format: json", "c.yaml:13:23: "),
        ("{ short: \"a\\nb\" }", "format: json", "a log line cannot contain a line break"),
        ("{ json: \"{method}\" }", "format: json", "c.yaml:13:16: `json` is a built-in format"),
        ("{ \"a b\": \"{method}\" }", "format: json", "`a b` cannot be a name"),
        ("{}", "format: combined, line: \"{method}\"", "`line` has no effect with `format: combined`"),
        ("{ short: \"{method}\" }", "format: short, line: \"{method}\"", "`line` has no effect with `format: short`"),
    ] {
        let said = check(formats, log);
        assert!(said.contains(told), "{told} in:\n{said}");
    }
    assert_eq!(check("{ short: \"{method}\" }", "format: short"), "");
}
