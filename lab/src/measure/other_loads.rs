//! The loads that are not HTTP of single requests: calls and streams of gRPC, WebSockets, datagrams.

use super::Sample;
use super::bench::Bench;
use super::child::{Running, write_file};
use super::loads::{last_line, whole_seconds};
use crate::failure::Failure;
use crate::generators::{Load, dnsperf, grpc, k6};
use std::time::Duration;

/// Calls of gRPC, each of which waits for its answer: `at_once` of them on each connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    pub connections: usize,
    pub at_once: usize,
    /// Messages on streams that last, instead of calls.
    pub streaming: bool,
}

/// Datagrams, each of which waits for its answer: so many are under way, from so many ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagrams {
    pub ports: usize,
    pub at_once: usize,
}

/// What a call and its answer carry.
const CALL_BYTES: usize = 100;

/// What the datagrams ask: as long as a usual question of DNS.
const QUESTION: &str = "a-usual-name.example.com A\n";

impl Bench {
    /// Calls or streams, by the benchmark of gRPC's library for Go.
    pub(crate) fn calls(&self, product: &mut Running, workers: usize, asked: Calls) -> Result<Sample, Failure> {
        let Calls { connections, at_once, streaming } = asked;
        let run = |time: Duration| {
            let launch = self.paths.generator("grpc-benchmark")?.env("GOMAXPROCS", "1");
            let launch = launch.arg(format!("-port={}", self.ports.web)).args(["-test_name=lab-load", "-w=0"]);
            let launch = launch.arg(format!("-d={}", whole_seconds(time))).arg(format!("-c={connections}"));
            let launch = launch.arg(format!("-r={at_once}")).arg(format!("-req={CALL_BYTES}"));
            let launch = launch.arg(format!("-resp={CALL_BYTES}"));
            let launch = launch.arg(if streaming { "-rpc_type=streaming" } else { "-rpc_type=unary" });
            let output = self.generate("grpc-benchmark", &launch, workers, time)?;
            let load = grpc::parse(&output, whole_seconds(time));
            load.ok_or_else(|| Failure::new(format!("grpc-benchmark: {}", last_line(&output))))
        };
        self.under_load(Some(product), || run(self.options.warm_up), || run(self.options.measured))
    }

    /// Datagrams and their answers, by `dnsperf`.
    pub(crate) fn datagrams(&self, product: &mut Running, workers: usize, asked: Datagrams) -> Result<Sample, Failure> {
        let questions = self.paths.out.join("questions.txt");
        write_file(&questions, QUESTION)?;
        let run = |time: Duration| {
            let launch = self.paths.generator("dnsperf")?.args(["-s", "127.0.0.1", "-p"]);
            let launch = launch.arg(self.ports.datagrams.to_string()).arg("-d").arg(&questions);
            let launch = launch.args(["-T", "1", "-t", "2", "-c"]).arg(asked.ports.to_string());
            let launch = launch.arg("-q").arg(asked.at_once.to_string()).arg("-l").arg(whole_seconds(time).to_string());
            let output = self.generate("dnsperf", &launch, workers, time)?;
            let outcome = dnsperf::parse(&output);
            let outcome = outcome.ok_or_else(|| Failure::new(format!("dnsperf: {}", last_line(&output))))?;
            match outcome.sizes {
                (asked, answered) if asked == answered => Ok(outcome.load),
                (asked, answered) => Err(Failure::new(format!("{asked} bytes come back as {answered}"))),
            }
        };
        self.under_load(Some(product), || run(self.options.warm_up), || run(self.options.measured))
    }

    /// Messages on WebSockets, one under way on each, by `k6`.
    pub(crate) fn messages(
        &self,
        product: &mut Running,
        workers: usize,
        connections: usize,
        tls: bool,
    ) -> Result<Sample, Failure> {
        let scheme = if tls { "wss" } else { "ws" };
        let url = format!("{scheme}://localhost:{}/websocket/echo", self.target(tls).port());
        let run = |time: Duration| -> Result<Load, Failure> {
            // It is a Go program, for which X25519 has to be said in its own way.
            let launch = self.paths.generator("k6")?.env("GODEBUG", "tlsmlkem=0").env("GOMAXPROCS", "1");
            let launch = launch.env("K6_NO_USAGE_REPORT", "true").args(["run", "--quiet", "--no-color"]);
            let launch = launch.arg("-e").arg(format!("URL={url}")).arg("-e").arg(format!("CONNECTIONS={connections}"));
            let launch = launch.arg("-e").arg(format!("SECONDS={}", whole_seconds(time)));
            let launch = launch.arg(self.paths.lab.join("configs/websocket.js"));
            let output = self.generate("k6", &launch, workers, time)?;
            let load = k6::parse(&output, whole_seconds(time));
            load.ok_or_else(|| Failure::new(format!("k6: {}", last_line(&output))))
        };
        self.under_load(Some(product), || run(self.options.warm_up), || run(self.options.measured))
    }
}
