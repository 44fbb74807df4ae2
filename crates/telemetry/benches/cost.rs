//! What a worker pays for telling of one exchange: `cargo bench -p equipoise-telemetry`.
//!
//! Prints nanoseconds per record, the best of several rounds, since other work on the machine only ever adds.
//! The bounds that the code is held to are 50 ns for counting and 400 ns for a line.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use model::fields::Span;
use model::snapshot::{AccessLog, LogFormat, LogTarget};
use model::{Address, Facts, FieldName, Name, RequestHead, ResponseHead, Scheme, Version};
use telemetry::access_log::COMBINED;
use telemetry::{AccessLogs, Kind, Phases, Record, Telemetry, WorkerSeries, count};

const ROUNDS: usize = 20;
const RECORDS: u32 = 100_000;

fn measure(name: &str, mut one: impl FnMut(u32)) {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        (0..RECORDS).for_each(&mut one);
        best = best.min(start.elapsed());
        // Lets the writing thread empty the rings, so that the next round does not measure dropping.
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("{name:<40} {:>8.1} ns", best.as_nanos() as f64 / f64::from(RECORDS));
}

fn request() -> RequestHead {
    let mut head = RequestHead::default();
    let start = head.fields.load(b"GET/api/items/4711?page=2&sort=name");
    let (method, end) = (Span::new(start, start + 3), start + 35);
    head.set_line(method, Span::new(start + 3, end), Version::Http11);
    let fields = [("Host", "shop.example.com"), ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) Firefox/128.0")];
    for (name, value) in fields.into_iter().chain([("Accept", "*/*"), ("Referer", "https://shop.example.com/api")]) {
        head.fields.append(&FieldName::new(name).expect("a name"), value.as_bytes());
    }
    head
}

fn facts(listener: &Name) -> Facts<'_> {
    let peer: std::net::SocketAddr = "203.0.113.99:43210".parse().expect("an address");
    Facts {
        peer,
        client: peer.ip(),
        local: "127.0.0.1:8080".parse().expect("an address"),
        scheme: Scheme::Http,
        tls: None,
        sender: None,
        listener,
        request_id: "",
        user: None,
    }
}

fn main() {
    let [listener, route, cluster, endpoint] = ["web", "route-1", "api", "127.0.0.1:9001"].map(Name::from);
    let (request, response) = (request(), ResponseHead::default());
    let facts = facts(&listener);
    let address = Address::Ip("127.0.0.1:9001".parse().expect("an address"));
    let mut record = Record {
        facts: &facts,
        request: Some(&request),
        response_status: 200,
        response: Some(&response),
        fault: None,
        route: Some(&route),
        cluster: Some(&cluster),
        endpoint: Some(&endpoint),
        endpoint_address: Some(&address),
        pick: Some(model::PickReason::Balance),
        retries: 0,
        hedges: 0,
        session: None,
        cache: "",
        received_bytes: 0,
        sent_bytes: 1_234,
        phases: Phases { first_byte: Duration::from_micros(90), ..Phases::default() },
        at: SystemTime::now(),
        kind: Kind::Exchange,
    };
    let telemetry = Telemetry::new(2);
    let series = (
        telemetry.listener(&listener),
        telemetry.route(&route),
        telemetry.cluster(&cluster),
        telemetry.endpoint(&cluster, &endpoint),
    );
    measure("count", |turn| {
        record.phases.total = Duration::from_nanos(u64::from(turn) * 977);
        let into = WorkerSeries {
            listener: Some(series.0.of(1)),
            route: Some(series.1.of(1)),
            cluster: Some(series.2.of(1)),
            endpoint: Some(series.3.of(1)),
        };
        count(black_box(&record), &into);
    });
    for (name, format) in [
        ("combined line", Some(LogFormat::Line(COMBINED.to_owned()))),
        ("JSON", Some(LogFormat::Json)),
        ("no log", None),
    ] {
        let target = LogTarget::File(PathBuf::from("/dev/null"));
        let logs: Vec<AccessLog> = format
            .into_iter()
            .map(|format| AccessLog { target: target.clone(), format, when: None, values: Vec::new() })
            .collect();
        let open = AccessLogs::open(&logs, 1).expect("/dev/null can be written");
        let mut writer = open.writer(0);
        measure(name, |turn| {
            record.at += Duration::from_micros(10);
            record.sent_bytes = u64::from(turn);
            writer.write(black_box(&record));
        });
        println!("{:<40} {:>8}", "  of those dropped", open.dropped());
    }
}
