//! Instructions per request of the real program, counted by callgrind, against `tests/instructions.txt`.
//!
//! Runs with `EQUIPOISE_INSTRUCTIONS` set and `EQUIPOISE_BIN` naming a release build; `./test` does. Each cell runs twice, with a
//! few requests and with many, one after another on one connection to one worker; the difference is what requests cost, without the
//! start and the end. Clients and origins are not counted. `EQUIPOISE_ACCEPT` writes what is found into the list.
//!
//! Callgrind shows the program the same processor on any machine with AVX2, so that copies and ciphers take the same way.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use equipoise_tests::repository;

use crate::harness::tls::Authority;
use crate::harness::{Origin, Peer, Product, http2, http3, product};

const LIST: &str = "tests/instructions.txt";
const FEW: usize = 500;
const MANY: usize = 2_500;
const ENDPOINTS: usize = 4;

/// How clients speak.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speech {
    H1,
    H2,
    H3,
}

/// One kind of exchange.
struct Cell {
    name: &'static str,
    speech: Speech,
    /// Routes beside the one that is taken.
    routes: usize,
    balance: &'static str,
    log: &'static str,
}

const PLAIN: Cell = Cell { name: "h1", speech: Speech::H1, routes: 0, balance: "round_robin", log: "" };

const fn balanced(name: &'static str, balance: &'static str) -> Cell {
    Cell { name, balance, ..PLAIN }
}

const CELLS: &[Cell] = &[
    PLAIN,
    Cell { name: "h2", speech: Speech::H2, ..PLAIN },
    Cell { name: "h3", speech: Speech::H3, ..PLAIN },
    Cell { name: "h1/routes=10000", routes: 10_000, ..PLAIN },
    Cell { name: "h1/log=line", log: "line", ..PLAIN },
    Cell { name: "h1/log=json", log: "json", ..PLAIN },
    balanced("h1/balance=random", "random"),
    balanced("h1/balance=least_request", "least_request"),
    balanced("h1/balance=power_of_two", "power_of_two"),
    balanced("h1/balance=least_time", "least_time"),
    balanced("h1/balance=peak_ewma", "peak_ewma"),
    balanced("h1/balance=source_hash", "source_hash"),
    balanced("h1/balance=hash", "{ hash: { on: path } }"),
    balanced("h1/balance=first", "first"),
];

impl Cell {
    fn configuration(&self, origins: &[Origin]) -> String {
        let mut text = String::from("version: 1\nlisteners:\n  web:\n    bind: \"127.0.0.1:0\"\n");
        match self.speech {
            Speech::H1 => {}
            Speech::H2 => text.push_str("    http_versions: [h1, h2]\n"),
            Speech::H3 => text.push_str(
                "    http_versions: [h1, h2, h3]\n    tls: { certificates: [{ chain: site.pem, key: site.key }] }\n",
            ),
        }
        text.push_str("routes:\n  - cluster: site\n");
        for route in 0..self.routes {
            let _ = writeln!(text, "  - {{ match: {{ path: {{ prefix: /api/v{route} }} }}, cluster: site }}");
        }
        let endpoints: Vec<String> = origins.iter().map(|origin| format!("\"{}\"", origin.address())).collect();
        let (endpoints, balance) = (endpoints.join(", "), self.balance);
        let _ = writeln!(text, "clusters:\n  site: {{ endpoints: [{endpoints}], balance: {balance} }}");
        if !self.log.is_empty() {
            let _ = writeln!(text, "access_logs: [{{ path: /dev/null, format: {} }}]", self.log);
        }
        text
    }

    /// Instructions of a whole run with so many requests.
    fn run(&self, requests: usize) -> u64 {
        let origins: Vec<Origin> = (0..ENDPOINTS).map(|_| Origin::saying("hello world\n")).collect();
        let folder = product::folder();
        let authority = Authority::new("the tests' own");
        authority.issue(&["shop.example"]).write(folder.path(), "site");
        let (file, counts) = (folder.path().join("equipoise.yaml"), folder.path().join("counts"));
        fs::write(&file, self.configuration(&origins)).expect("the folder is ours");
        let mut command = Command::new("valgrind");
        command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", counts.display()));
        command.arg(product::executable()).arg("run").arg("-c").arg(&file).args(["--workers", "1"]);
        let mut product = Product::spawn_command(&mut command, folder);
        self.ask(&product, &authority, requests);
        product.signal(libc::SIGTERM);
        assert!(product.wait_ended().success(), "{}", product.stderr());
        total(&fs::read_to_string(counts).expect("callgrind has written")).expect("a total")
    }

    fn ask(&self, product: &Product, authority: &Authority, requests: usize) {
        let place = |number: usize| format!("/api/items/{}", number % 10);
        match self.speech {
            Speech::H1 => {
                let mut client = Peer::connect(product.web());
                (0..requests).for_each(|number| assert_eq!(client.get(&place(number)).status(), 200));
            }
            Speech::H2 => {
                let mut client = http2::Client::connect(product.web());
                (0..requests).for_each(|number| assert_eq!(client.get(&place(number)).status, 200));
            }
            Speech::H3 => {
                let tls = http3::trusting(authority, None);
                let mut client = http3::Client::connect(product.web(), "shop.example", &tls);
                (0..requests).for_each(|number| assert_eq!(client.get(&place(number)).status, 200));
            }
        }
    }

    /// Instructions for each request.
    fn measure(&self) -> u64 {
        let (few, many) = (self.run(FEW), self.run(MANY));
        many.saturating_sub(few) / (MANY - FEW) as u64
    }
}

/// What callgrind counted in all.
fn total(counts: &str) -> Option<u64> {
    let line = counts.lines().find_map(|line| line.strip_prefix("totals: "));
    line?.split_whitespace().next()?.parse().ok()
}

/// A line of the list.
#[derive(Debug, Clone, PartialEq)]
struct Listed {
    name: String,
    instructions: u64,
    /// What it may move by, up and down.
    tolerance_percent: f64,
    reason: String,
}

impl Listed {
    fn parse(line: &str) -> Option<Self> {
        let (said, reason) = line.split_once('#')?;
        let mut words = said.split_whitespace();
        let name = words.next()?.to_owned();
        let instructions = words.next()?.parse().ok()?;
        let tolerance_percent = words.next()?.trim_end_matches('%').parse().ok()?;
        Some(Self { name, instructions, tolerance_percent, reason: reason.trim().to_owned() })
    }

    fn line(&self) -> String {
        let Self { name, instructions, tolerance_percent, reason } = self;
        format!("{name:<28} {instructions:>8} {tolerance_percent:.1}% # {reason}")
    }

    fn judge(&self, now: u64) -> Option<String> {
        let before = self.instructions;
        let percent = (now as f64 / before as f64 - 1.0) * 100.0;
        let change = format!("{}: {before} instructions before, {now} now ({percent:+.1} %)", self.name);
        match percent {
            over if over > self.tolerance_percent => Some(change),
            under if under < -self.tolerance_percent => {
                Some(format!("{change}; lower it, so that it cannot come back"))
            }
            _ => None,
        }
    }
}

/// Which of two figures is nearer to what is listed.
fn nearer(listed: u64, one: u64, other: u64) -> u64 {
    if other.abs_diff(listed) < one.abs_diff(listed) { other } else { one }
}

fn listed(text: &str) -> Vec<Listed> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| Listed::parse(line).unwrap_or_else(|| panic!("{LIST} has a line that is none: {line}"))).collect()
}

const TOOLS: &str = "# Counted with ";

/// The compiler, the counter and the processor, whose features choose how the C library copies: with others, figures are others.
fn tools() -> String {
    let said = |program: &str| {
        let output = Command::new(program).arg("--version").output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    format!("{}, {}, {}", said("rustc"), said("valgrind"), model.map_or("another processor", |(_, model)| model))
}

/// The list with what was found; reasons and tolerances stay.
fn accepted(before: &str, tools: &str, found: &[(&str, u64)]) -> String {
    let head = before.lines().take_while(|line| line.starts_with('#')).filter(|line| !line.starts_with(TOOLS));
    let mut text: String = head.map(|line| format!("{line}\n")).collect();
    let _ = writeln!(text, "{TOOLS}{tools}\n");
    let known = listed(before);
    for (name, now) in found {
        let new =
            || Listed { name: (*name).to_owned(), instructions: 0, tolerance_percent: 1.0, reason: String::new() };
        let line = known.iter().find(|line| line.name == *name).cloned().unwrap_or_else(new);
        let _ = writeln!(text, "{}", Listed { instructions: *now, ..line }.line().trim_end());
    }
    text
}

#[test]
fn a_request_takes_no_more_instructions_than_it_did() {
    if std::env::var_os("EQUIPOISE_INSTRUCTIONS").is_none() {
        return;
    }
    let path = repository().join(LIST);
    let (text, tools) = (fs::read_to_string(&path).expect("the list"), tools());
    let list = listed(&text);
    let is_accepting = std::env::var_os("EQUIPOISE_ACCEPT").is_some();
    let (mut found, mut wrong) = (Vec::new(), Vec::new());
    for cell in CELLS {
        let line = list.iter().find(|line| line.name == cell.name);
        let mut now = cell.measure();
        if !is_accepting && line.is_some_and(|line| line.judge(now).is_some()) {
            // A change shows both times, what timers do beside does not.
            now = line.map_or(now, |line| nearer(line.instructions, now, cell.measure()));
        }
        println!("{:<28} {now:>8}", cell.name);
        found.push((cell.name, now));
        wrong.extend(line.map_or_else(|| Some(format!("{} is not listed", cell.name)), |line| line.judge(now)));
    }
    let is_gone = |line: &&Listed| !CELLS.iter().any(|cell| cell.name == line.name);
    wrong.extend(list.iter().filter(is_gone).map(|line| format!("there is no {}", line.name)));
    if is_accepting {
        fs::write(&path, accepted(&text, &tools, &found)).expect("the list");
        return;
    }
    let wrong = format!("{LIST} (EQUIPOISE_ACCEPT=1 rewrites it):\n  {}", wrong.join("\n  "));
    if !text.contains(&format!("{TOOLS}{tools}\n")) {
        println!("only a warning, for these are other tools than the list was made with: {wrong}");
    } else {
        assert!(wrong.ends_with(":\n  "), "{wrong}");
    }
}

#[test]
fn a_rise_fails_and_so_does_a_fall_that_is_not_written_down() {
    let list = listed("# head\n\nh1 20000 1.0% # whole\n");
    assert_eq!(list[0].judge(20_190), None);
    assert_eq!(list[0].judge(19_810), None);
    assert_eq!(list[0].judge(20_240).as_deref(), Some("h1: 20000 instructions before, 20240 now (+1.2 %)"));
    let fall = list[0].judge(19_700).expect("it has fallen");
    assert!(fall.starts_with("h1: 20000 instructions before, 19700 now (-1.5 %); lower it"), "{fall}");
    assert_eq!((nearer(20, 22, 21), nearer(20, 17, 16), nearer(20, 17, 21)), (21, 17, 21));
}

#[test]
fn a_list_is_rewritten_with_its_reasons() {
    let before = format!("# head\n{TOOLS}old\n\nh1 20000 0.5% # whole\ngone 1 1.0% # was\n");
    let after = accepted(&before, "new", &[("h1", 19_000), ("h2", 5)]);
    assert!(after.starts_with(&format!("# head\n{TOOLS}new\n\n")), "{after}");
    let names: Vec<(String, u64, String)> =
        listed(&after).into_iter().map(|line| (line.name, line.instructions, line.reason)).collect();
    assert_eq!(names, [("h1".to_owned(), 19_000, "whole".to_owned()), ("h2".to_owned(), 5, String::new())]);
    assert_eq!(total("events: Ir\nsummary: 1\n1 2\ntotals: 1234\n"), Some(1_234));
}
