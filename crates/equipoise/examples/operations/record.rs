//! What the end of an exchange costs: its metrics, and a record in a log.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use model::snapshot::{AccessLog, LogFormat, LogTarget};
use model::{Address, FieldName, Name, ResponseHead};
use telemetry::access_log::COMBINED;
use telemetry::{AccessLogs, Kind, Phases, Record, Telemetry, WorkerSeries};

use crate::made;
use crate::{Cell, count};

const FLUSH_MAX: Duration = Duration::from_secs(60);

pub(crate) fn cells() -> Vec<Cell> {
    vec![
        Cell::new("record", metrics),
        Cell::new("log/line", || log(LogFormat::Line(COMBINED.to_owned()))),
        Cell::new("log/json", || log(LogFormat::Json)),
    ]
}

/// Gives `run` the record of a request that was answered with 200.
fn with_record(run: impl FnOnce(Record<'_>)) {
    let [listener, route, cluster, endpoint] = ["web", "route-1", "api", "127.0.0.1:9001"].map(Name::from);
    let mut request = made::request(&("shop.example.com".to_owned(), "/api/items/4711?page=2&sort=name".to_owned()));
    for (name, value) in [("Referer", "https://shop.example.com/api"), ("Accept-Language", "en-US,en;q=0.5")] {
        request.fields.append(&FieldName::new(name).unwrap_or_else(|error| panic!("{error}")), value.as_bytes());
    }
    let (response, facts) = (ResponseHead::default(), made::facts(&listener));
    let address = Address::Ip(std::net::SocketAddr::from(([127, 0, 0, 1], 9001)));
    run(Record {
        request: Some(&request),
        response_status: 200,
        response: Some(&response),
        route: Some(&route),
        cluster: Some(&cluster),
        endpoint: Some(&endpoint),
        endpoint_address: Some(&address),
        pick: Some(model::PickReason::Balance),
        sent_bytes: 1_234,
        phases: Phases { first_byte: Duration::from_micros(90), ..Phases::default() },
        at: UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        ..Record::empty(&facts, Kind::Exchange)
    });
}

/// The record is counted for its listener, route, cluster and endpoint.
fn metrics() {
    with_record(|mut record| {
        let telemetry = Telemetry::new(1);
        let name = |name: Option<&Name>| name.cloned().unwrap_or_else(|| Name::from("none"));
        let [cluster, endpoint] = [record.cluster, record.endpoint].map(name);
        let listener = telemetry.listener(record.facts.listener);
        let (route, of_cluster) = (telemetry.route(&name(record.route)), telemetry.cluster(&cluster));
        let of_endpoint = telemetry.endpoint(&cluster, &endpoint);
        let mut turn = 0_u64;
        count(&mut || {
            turn += 1;
            record.phases.total = Duration::from_nanos(turn * 977);
            let into = WorkerSeries {
                listener: Some(listener.of(0)),
                route: Some(route.of(0)),
                cluster: Some(of_cluster.of(0)),
                endpoint: Some(of_endpoint.of(0)),
            };
            telemetry::count(black_box(&record), &into);
        });
    });
}

/// The record is formatted and put into the ring of its worker. The thread that empties the ring is not counted.
fn log(format: LogFormat) {
    with_record(|mut record| {
        let logs =
            [AccessLog { target: LogTarget::File(PathBuf::from("/dev/null")), format, when: None, values: Vec::new() }];
        let logs = AccessLogs::open(&logs, 1).unwrap_or_else(|error| panic!("{error}"));
        let mut writer = logs.writer(0);
        let mut write = || {
            record.at += Duration::from_micros(10);
            record.phases.total += Duration::from_nanos(977);
            writer.write(black_box(&record));
        };
        // The thread swaps the buffers of a ring: after two rounds all have their working size.
        for _ in 0..2 {
            crate::repeat(&mut write);
            assert!(logs.flush(FLUSH_MAX), "the log is not written");
        }
        count(&mut write);
        assert_eq!((logs.dropped(), logs.failed()), (0, 0));
    });
}
