//! `equipoise demo`: origins, a listener and the dashboard in one process, so that there is something to look at within a
//! second of the download.

mod live_line;
mod load;
mod origins;
mod thread;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use control::Source;
use serde_json::json;

use crate::cli;
use crate::ending::Ending;
use crate::live::{self, Live, cannot_start};
use crate::signals::Signals;

use live_line::{LiveLine, Report};
use load::Tally;
use origins::Origin;

/// Where the listener is when nothing is said.
const LISTEN: &str = "127.0.0.1:8080";
/// Where the dashboard is.
const ADMIN: &str = "127.0.0.1:9900";

/// Runs the command.
pub(crate) fn run(options: &cli::Demo) -> Ending {
    // What goes well is reported by the live line.
    telemetry::log::set_level(telemetry::log::Level::Warn);
    live::block_on(|signals| run_with(options, signals))
}

async fn run_with(options: &cli::Demo, mut signals: Signals) -> Ending {
    signals.end_on_hangup();
    // The origins get a thread of their own: they play the part of other machines.
    let origins = match thread::run("origins", origins::start) {
        Ok(origins) => origins,
        Err(error) => return cannot_start(&format!("the origins of the demo: {error}")),
    };
    let text = configuration(options, &origins.value);
    let source = Source::Text { name: "demo".into(), text, base: PathBuf::from(".") };
    let mut live = match Live::start(source, options.workers.count()) {
        Ok(live) => live,
        Err(ending) => return ending,
    };
    let listening = live.view().listeners().first().and_then(|listener| listener.address.ip());
    let Some(address) = listening else { return cannot_start(&"the demo has no listener") };
    eprint!("{}", welcome(address, live.admin_address(), &origins.value, options.load_for.is_some()));
    let tally = match options.load_for {
        Some(time) => Some(under_load(&mut live, &mut signals, address, time, &origins.value).await),
        None => {
            until_a_signal(&mut live, &mut signals, &origins.value).await;
            None
        }
    };
    let report = Report::of(&live.view().status(), tally, &origins.value);
    let ended = live.end(&mut signals).await;
    crate::print(&report.to_string());
    if tally.is_some_and(|tally| tally.failed > 0 || tally.good == 0) { Ending::Bad } else { ended }
}

/// Shows the live line until a signal asks for the end.
async fn until_a_signal(live: &mut Live, signals: &mut Signals, origins: &[Origin]) {
    let mut line = LiveLine::new(live.view().clone(), origins);
    tokio::select! {
        _ = live.serve(signals) => {}
        () = line.run() => {}
    }
    line.end();
}

/// Runs the demo with load for `time`.
async fn under_load(
    live: &mut Live,
    signals: &mut Signals,
    address: SocketAddr,
    time: Duration,
    origins: &[Origin],
) -> Tally {
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let run = load::run(address, async { _ = ended.await });
    let load = std::thread::Builder::new().name("load".into()).spawn(move || thread::block_on(run));
    // Either the time is over, or a signal ended it early.
    let _ = tokio::time::timeout(time, until_a_signal(live, signals, origins)).await;
    drop(end);
    let tally = load.map_err(|error| error.to_string()).and_then(|thread| {
        let tally = thread.join().map_err(|_| "it panicked".to_owned())?;
        tally.map_err(|error| error.to_string())
    });
    tally.unwrap_or_else(|error| {
        telemetry::log::error("the load of the demo did not run", &[("error", &error)]);
        Tally::default()
    })
}

/// Returns `wanted` if that port is free, or else any free port.
fn free(wanted: &str) -> String {
    match std::net::TcpListener::bind(wanted) {
        Ok(_) => wanted.to_owned(),
        Err(_) => "127.0.0.1:0".to_owned(),
    }
}

fn configuration(options: &cli::Demo, origins: &[Origin]) -> String {
    let listen = options.listen.map_or_else(|| free(LISTEN), |listen| listen.to_string());
    let endpoints: Vec<String> = origins.iter().map(|origin| origin.address.to_string()).collect();
    let whole = json!({
        "version": 1,
        "listeners": { "web": { "bind": listen } },
        "routes": [{ "cluster": "origins" }],
        "clusters": { "origins": {
            "balance": options.balance,
            "endpoints": endpoints,
            "health_check": { "http": { "path": "/healthz" }, "interval": "2s" },
        } },
        "admin": { "bind": free(ADMIN) },
        // Anyone who watches a demo does not wait for it.
        "shutdown": { "drain_timeout": "3s" },
    });
    format!("{whole:#}\n")
}

fn welcome(address: SocketAddr, admin: Option<SocketAddr>, origins: &[Origin], loaded: bool) -> String {
    let told: Vec<String> =
        origins.iter().map(|origin| format!("{} ({} ms)", origin.name, origin.takes.as_millis())).collect();
    let mut text =
        format!("Equipoise demo\n  listener   http://{address}  in front of three origins: {}\n", told.join(", "));
    if let Some(admin) = admin {
        text += &format!("  dashboard  http://{admin}\n");
    }
    text += "Try\n";
    text += &format!("  curl http://{address}/hello\n");
    if let Some(admin) = admin {
        text += &format!("  curl http://{admin}/api/status\n");
    }
    if loaded {
        text += &format!("Load on {} connections; Ctrl-C ends it early.\n\n", load::CONNECTIONS);
    } else {
        text += "  equipoise demo --for 5s     sends load to itself\nCtrl-C stops it.\n\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn options(line: &str) -> cli::Demo {
        match cli::Cli::try_parse_from(line.split_whitespace()).unwrap().command {
            cli::Command::Demo(options) => options,
            other => panic!("{other:?}"),
        }
    }

    fn origin() -> Origin {
        Origin { name: "swift", takes: Duration::from_millis(1), address: "127.0.0.1:4711".parse().unwrap() }
    }

    #[test]
    fn the_configuration_of_the_demo_is_good_and_keeps_the_wishes() {
        let options = options("equipoise demo --listen 127.0.0.1:0 --balance round_robin");
        let text = configuration(&options, &[origin()]);
        let source = Source::Text { name: "demo".into(), text, base: ".".into() };
        let candidate = control::prepare(&source, None, 1, proxy::check).unwrap_or_else(|error| panic!("{error}"));
        let snapshot = candidate.snapshot();
        assert_eq!(snapshot.listeners[0].bind, "127.0.0.1:0".parse().unwrap());
        assert_eq!(snapshot.clusters[0].balance, model::snapshot::Balance::RoundRobin);
        assert_eq!(snapshot.clusters[0].endpoints[0].address, origin().address.into());
        assert!(snapshot.admin.is_some());
    }

    #[test]
    fn a_taken_port_gives_way_to_a_free_one() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        assert_eq!(free(&address), "127.0.0.1:0");
    }

    #[test]
    fn the_welcome_says_what_to_open() {
        let text = welcome("127.0.0.1:8080".parse().unwrap(), "127.0.0.1:9900".parse().ok(), &[origin()], false);
        for wanted in ["http://127.0.0.1:9900", "curl http://127.0.0.1:8080/hello", "swift (1 ms)"] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
    }
}
