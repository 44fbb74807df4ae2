//! The loads: each warms up, opens a window, runs a generator, closes the window, and divides.

use super::Sample;
use super::bench::Bench;
use super::child::{Launch, Running};
use super::window::{Used, Window};
use crate::failure::Failure;
use crate::generators::{Load, h2load, hey, wrk};
use crate::net::open_loop;
use std::fs;
use std::time::Duration;

/// What a generator asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    /// The target.
    pub path: &'static str,
    /// The `Host` header, when it matters.
    pub host: Option<&'static str>,
    /// Connections at a time.
    pub connections: usize,
    /// Connections last.
    pub keep_alive: bool,
    /// Over TLS.
    pub tls: bool,
}

impl Bench {
    /// As many requests as the product answers, by `wrk`.
    pub(crate) fn closed_loop(
        &self,
        product: &mut Running,
        workers: usize,
        asked: &Requests,
    ) -> Result<Sample, Failure> {
        let run = |time: Duration| {
            let mut launch = self.paths.generator("wrk")?.args(["-t1", "--latency", "--timeout", "10s"]);
            launch = launch.arg(format!("-c{}", asked.connections)).arg(format!("-d{}s", whole_seconds(time)));
            if !asked.keep_alive {
                launch = launch.args(["-H", "Connection: close"]);
            }
            if let Some(host) = asked.host {
                launch = launch.arg("-H").arg(format!("Host: {host}"));
            }
            let output = self.generate("wrk", &launch.arg(self.url(asked)), workers, time)?;
            wrk::parse(&output).ok_or_else(|| Failure::new(format!("wrk: {}", last_line(&output))))
        };
        run(self.options.warm_up)?;
        let window = Window::open(product.pid())?;
        let load = run(self.options.measured)?;
        let used = window.close()?;
        product.check_alive()?;
        sample(&load, &used)
    }

    /// A new connection with a full TLS handshake for every request, by `hey`, which keeps no session.
    pub(crate) fn handshakes(
        &self,
        product: &mut Running,
        workers: usize,
        asked: &Requests,
    ) -> Result<Sample, Failure> {
        let run = |time: Duration| {
            // It is a Go program, for which OPENSSL_CONF means nothing: X25519 has to be said in its own way.
            let launch = self.paths.generator("hey")?.env("GODEBUG", "tlsmlkem=0").env("GOMAXPROCS", "1");
            // Without a name of its own `hey` asks for `127.0.0.1:PORT` in SNI, which is no host name: RFC 6066 section 3
            // has it refused, and one of the TLS libraries here does.
            let launch = launch
                .args(["-host", "localhost", "-disable-keepalive", "-z"])
                .arg(format!("{}s", whole_seconds(time)));
            let launch = launch.arg("-c").arg(asked.connections.to_string()).arg(self.url(asked));
            let output = self.generate("hey", &launch, workers, time)?;
            hey::parse(&output).ok_or_else(|| Failure::new(format!("hey: {}", last_line(&output))))
        };
        run(self.options.warm_up)?;
        let window = Window::open(product.pid())?;
        let load = run(self.options.measured)?;
        let used = window.close()?;
        product.check_alive()?;
        sample(&load, &used)
    }

    /// Several requests at a time on each connection, HTTP/2 over TLS, by `h2load`.
    pub(crate) fn multiplexed(
        &self,
        product: &mut Running,
        workers: usize,
        asked: &Requests,
        streams: usize,
    ) -> Result<Sample, Failure> {
        let run = |time: Duration| {
            let launch = self.paths.generator("h2load")?.arg("-t1").arg(format!("-c{}", asked.connections));
            let launch = launch.arg(format!("-m{streams}")).arg("-D").arg(whole_seconds(time).to_string());
            let output = self.generate("h2load", &launch.arg(self.url(asked)), workers, time)?;
            let outcome = h2load::parse(&output);
            let outcome = outcome.ok_or_else(|| Failure::new(format!("h2load: {}", last_line(&output))))?;
            match outcome.protocol.as_str() {
                "h2" => Ok(outcome),
                other => Err(Failure::new(format!("it speaks {other}, not h2"))),
            }
        };
        run(self.options.warm_up)?;
        let window = Window::open(product.pid())?;
        let outcome = run(self.options.measured)?;
        let used = window.close()?;
        product.check_alive()?;
        Ok(Sample { tls: outcome.tls, ..sample(&outcome.load, &used)? })
    }

    /// A constant rate, whatever the product does, by the lab's own generator.
    pub(crate) fn constant_rate(&self, product: &mut Running, rate: f64, asked: &Requests) -> Result<Sample, Failure> {
        let run = |time: Duration| {
            let launch = Launch::new(std::env::current_exe()?).arg("load").arg("--to");
            let launch = launch.arg(self.target(false).to_string()).arg("--path").arg(asked.path);
            let launch = launch.arg("--rate").arg(format!("{rate:.0}")).arg("--connections");
            let launch =
                launch.arg(asked.connections.to_string()).arg("--seconds").arg(whole_seconds(time).to_string());
            let output = self.generate("load", &launch, 1, time)?;
            serde_json::from_str::<open_loop::Outcome>(last_line(&output))
                .map_err(|_| Failure::new(format!("load: {}", last_line(&output))))
        };
        run(self.options.warm_up)?;
        let window = Window::open(product.pid())?;
        let outcome = run(self.options.measured)?;
        let used = window.close()?;
        product.check_alive()?;
        let load = Load {
            requests: outcome.answered,
            errors: outcome.errors + outcome.unanswered,
            rps: outcome.rate,
            p50_us: outcome.p50_us as f64,
            p99_us: outcome.p99_us as f64,
        };
        Ok(Sample {
            offered_rps: Some(rate),
            generator_late_us: Some(outcome.late_p99_us as f64),
            ..sample(&load, &used)?
        })
    }

    /// Runs a generator to its end and returns all that it printed.
    fn generate(&self, name: &str, launch: &Launch, workers: usize, time: Duration) -> Result<String, Failure> {
        let log = self.log(name);
        let mut running = Running::start(name, launch, &self.load_cores(workers), &log)?;
        let status = running.wait(time + Duration::from_secs(20))?;
        if !status.success() {
            return Err(Failure::new(format!("{name} ended with {status}: {}", running.log_end())));
        }
        fs::read_to_string(&log).map_err(|error| Failure::io(&log, &error))
    }

    fn url(&self, asked: &Requests) -> String {
        let scheme = if asked.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.target(asked.tls), asked.path)
    }
}

fn sample(load: &Load, used: &Used) -> Result<Sample, Failure> {
    if load.requests == 0 {
        return Err(Failure::new(format!("no request was answered, {} failed", load.errors)));
    }
    Ok(Sample {
        cpu_us: Some(used.product_us as f64 / load.requests as f64),
        rps: Some(load.rps),
        p50_us: (load.p50_us > 0.0).then_some(load.p50_us),
        p99_us: (load.p99_us > 0.0).then_some(load.p99_us),
        requests: load.requests,
        errors: load.errors,
        others_share: used.others_share,
        stolen_share: used.stolen_share,
        ..Sample::default()
    })
}

/// Generators take whole seconds, and at least one.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs_f64().round() as u64).max(1)
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing")
}
