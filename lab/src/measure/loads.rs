//! The loads: each warms up, opens a window, runs a generator, closes the window, and divides.

use super::Sample;
use super::bench::Bench;
use super::child::{Launch, Running};
use super::window::{Used, Window};
use crate::failure::Failure;
use crate::generators::{Load, ab, h2load, hey, oha, wrk};
use crate::net::{open_loop, origin};
use crate::policy::Policy;
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

/// What a generator asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requests {
    /// The target.
    pub path: &'static str,
    /// The `Host` header, when it matters.
    pub host: Option<&'static str>,
    /// The `Accept-Encoding` header, when it matters; only with `wrk`.
    pub accept_encoding: Option<&'static str>,
    /// What the product does to it, for which it may need a credential; only with `wrk`.
    pub policy: Policy,
    /// Connections at a time.
    pub connections: usize,
    /// Connections last.
    pub keep_alive: bool,
    /// Over TLS.
    pub tls: bool,
    /// Over TLS 1.2 with RSA and AES-256 instead of what is otherwise the same for all; not with `hey`.
    pub tls12: bool,
}

/// When a generator ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After that time; whole seconds.
    Time(Duration),
    /// After that many requests.
    Requests(u64),
}

/// A generator must not wait for ever for a product that does not answer.
const REQUESTS_TIMEOUT: Duration = Duration::from_secs(3600);

impl Bench {
    /// As many requests as the product answers, by `wrk`.
    pub(crate) fn closed_loop(
        &self,
        product: &mut Running,
        workers: usize,
        asked: &Requests,
    ) -> Result<Sample, Failure> {
        let run = |time: Duration| self.wrk(self.target(asked.tls), workers, asked, time);
        // All of a million keys come before it is measured.
        let longer = if asked.policy == Policy::RateLimitKeys { 30 } else { 1 };
        self.under_load(Some(product), || run(self.options.warm_up * longer), || run(self.options.measured))
    }

    /// A new connection with a full TLS handshake for every request, by `hey`, which keeps no session.
    pub(crate) fn handshakes(
        &self,
        product: &mut Running,
        workers: usize,
        asked: &Requests,
    ) -> Result<Sample, Failure> {
        let run = |time: Duration| self.hey(self.target(asked.tls), workers, asked, Until::Time(time));
        self.under_load(Some(product), || run(self.options.warm_up), || run(self.options.measured))
    }

    /// Runs one load to warm up, and one in a window on the product. Without a product only the load is told.
    pub(crate) fn under_load(
        &self,
        product: Option<&mut Running>,
        warm_up: impl FnOnce() -> Result<Load, Failure>,
        load: impl FnOnce() -> Result<Load, Failure>,
    ) -> Result<Sample, Failure> {
        warm_up()?;
        let window = Window::open(product.as_ref().map(|product| product.pid()))?;
        let load = load();
        let used = window.close()?;
        // A generator that broke off says less than the product that died under it.
        product.map_or(Ok(()), Running::check_alive)?;
        sample(&load?, &used)
    }

    /// As many requests as are answered at an address, by `wrk`, with the whole distribution of the latencies.
    pub(crate) fn wrk(
        &self,
        at: SocketAddr,
        workers: usize,
        asked: &Requests,
        time: Duration,
    ) -> Result<Load, Failure> {
        let mut launch = self.openssl("wrk", asked)?.args(["-t1", "--latency", "--timeout", "10s"]);
        let script = if asked.policy == Policy::RateLimitKeys { "configs/wrk-keys.lua" } else { "configs/wrk.lua" };
        launch = launch.arg("-s").arg(self.paths.lab.join(script));
        launch = launch.arg(format!("-c{}", asked.connections)).arg(format!("-d{}s", whole_seconds(time)));
        if !asked.keep_alive {
            launch = launch.args(["-H", "Connection: close"]);
        }
        if let Some(host) = asked.host {
            launch = launch.arg("-H").arg(format!("Host: {host}"));
        }
        if let Some(encoding) = asked.accept_encoding {
            launch = launch.arg("-H").arg(format!("Accept-Encoding: {encoding}"));
        }
        if let Some((name, value)) = asked.policy.credential(&self.paths.policy())? {
            launch = launch.arg("-H").arg(format!("{name}: {value}"));
        }
        let output = self.generate("wrk", &launch.arg(url(at, asked)), workers, time)?;
        wrk::parse(&output).ok_or_else(|| Failure::new(format!("wrk: {}", last_line(&output))))
    }

    /// A new connection for each request, with a full handshake if it is over TLS, by `ab`.
    pub(crate) fn ab(&self, at: SocketAddr, workers: usize, asked: &Requests, time: Duration) -> Result<Load, Failure> {
        let percentiles = self.paths.out.join("ab-percentiles.csv");
        // `-t` also means 50,000 requests unless more are said after it.
        let launch = self.openssl("ab", asked)?.args(["-q", "-r", "-l", "-t"]).arg(whole_seconds(time).to_string());
        let launch = launch.args(["-n", "2000000", "-c"]).arg(asked.connections.to_string());
        let output = self.generate("ab", &launch.arg("-e").arg(&percentiles).arg(url(at, asked)), workers, time)?;
        let percentiles = fs::read_to_string(&percentiles).map_err(|error| Failure::io(&percentiles, &error))?;
        ab::parse(&output, &percentiles).ok_or_else(|| Failure::new(format!("ab: {}", last_line(&output))))
    }

    /// A generator that offers in TLS what OpenSSL's settings say.
    fn openssl(&self, name: &str, asked: &Requests) -> Result<Launch, Failure> {
        let launch = self.paths.generator(name)?;
        let settings = self.paths.lab.join("configs/openssl-tls12.cnf");
        Ok(if asked.tls12 { launch.env("OPENSSL_CONF", settings) } else { launch })
    }

    /// Requests until the end, by `hey`.
    pub(crate) fn hey(&self, at: SocketAddr, workers: usize, asked: &Requests, until: Until) -> Result<Load, Failure> {
        // It is a Go program, for which OPENSSL_CONF means nothing: X25519 has to be said in its own way.
        let launch = self.paths.generator("hey")?.env("GODEBUG", "tlsmlkem=0").env("GOMAXPROCS", "1");
        // Without a name of its own `hey` asks for `127.0.0.1:PORT` in SNI, which is no host name: RFC 6066 section 3
        // has it refused, and one of the TLS libraries here does.
        let mut launch = launch.args(["-host", asked.host.unwrap_or("localhost")]);
        if !asked.keep_alive {
            launch = launch.arg("-disable-keepalive");
        }
        let time = match until {
            Until::Time(time) => {
                launch = launch.arg("-z").arg(format!("{}s", whole_seconds(time)));
                time
            }
            Until::Requests(count) => {
                launch = launch.arg("-n").arg(count.to_string());
                REQUESTS_TIMEOUT
            }
        };
        let launch = launch.arg("-c").arg(asked.connections.to_string()).arg(url(at, asked));
        let output = self.generate("hey", &launch, workers, time)?;
        hey::parse(&output).ok_or_else(|| Failure::new(format!("hey: {}", last_line(&output))))
    }

    /// Several requests at a time on each connection, HTTP/2 over TLS or in clear, by `h2load`.
    pub(crate) fn multiplexed(
        &self,
        product: &mut Running,
        workers: usize,
        asked: &Requests,
        streams: usize,
    ) -> Result<Sample, Failure> {
        let mut tls = None;
        let load = || {
            let outcome = self.h2load(workers, asked, streams, self.options.measured)?;
            tls = outcome.tls;
            Ok(outcome.load)
        };
        let warm_up = || self.h2load(workers, asked, streams, self.options.warm_up).map(|outcome| outcome.load);
        let sample = self.under_load(Some(product), warm_up, load)?;
        Ok(Sample { tls, ..sample })
    }

    fn h2load(
        &self,
        workers: usize,
        asked: &Requests,
        streams: usize,
        time: Duration,
    ) -> Result<h2load::Outcome, Failure> {
        let launch = self.paths.generator("h2load")?.arg("-t1").arg(format!("-c{}", asked.connections));
        let launch = launch.arg(format!("-m{streams}")).arg("-D").arg(whole_seconds(time).to_string());
        let output = self.generate("h2load", &launch.arg(url(self.target(asked.tls), asked)), workers, time)?;
        let outcome = h2load::parse(&output);
        let outcome = outcome.ok_or_else(|| Failure::new(format!("h2load: {}", last_line(&output))))?;
        if outcome.protocol != "h2" && (asked.tls || outcome.protocol != "h2c") {
            return Err(Failure::new(format!("it speaks {}, not h2", outcome.protocol)));
        }
        // Of answers that were under way at the end a part has come.
        let (size, errors) = (origin::body(asked.path).len() as u64, outcome.load.errors);
        let done = outcome.load.requests.saturating_sub(errors);
        let most = done + errors + (asked.connections * streams) as u64;
        if !(done * size..=most * size).contains(&outcome.body_bytes) {
            return Err(Failure::new(format!("{} bytes for {done} answers of {size}", outcome.body_bytes)));
        }
        Ok(outcome)
    }

    /// The same by HTTP/3, by `oha`.
    pub(crate) fn quic(
        &self,
        product: &mut Running,
        workers: usize,
        asked: &Requests,
        streams: usize,
    ) -> Result<Sample, Failure> {
        let run = |time: Duration| self.oha(workers, asked, streams, time);
        self.under_load(Some(product), || run(self.options.warm_up), || run(self.options.measured))
    }

    fn oha(&self, workers: usize, asked: &Requests, streams: usize, time: Duration) -> Result<Load, Failure> {
        let port = self.target(asked.tls).port();
        let launch = self.paths.generator("oha")?.args(["--no-tui", "--output-format", "json", "--http-version", "3"]);
        let launch = launch.arg("--insecure").arg("-z").arg(format!("{}s", whole_seconds(time)));
        let launch = launch.arg("-c").arg(asked.connections.to_string()).arg("-p").arg(streams.to_string());
        let launch = launch.args(["--ipv4", "--worker-threads", "1"]);
        let launch = launch.arg(format!("https://localhost:{port}{}", asked.path));
        let output = self.generate("oha", &launch, workers, time)?;
        let outcome = oha::parse(&output).ok_or_else(|| Failure::new(format!("oha: {}", last_line(&output))))?;
        let size = origin::body(asked.path).len() as u64;
        match outcome.body_bytes {
            Some(bytes) if bytes == size || outcome.load.errors > 0 => Ok(outcome.load),
            other => Err(Failure::new(format!("answers have {other:?} bytes, not {size}"))),
        }
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
        let window = Window::open(Some(product.pid()))?;
        let outcome = run(self.options.measured)?;
        let used = window.close()?;
        product.check_alive()?;
        let kinds = [("not 2xx or lost", outcome.errors), ("unanswered", outcome.unanswered)];
        let load = Load {
            requests: outcome.answered,
            errors: outcome.errors + outcome.unanswered,
            error_kinds: kinds.into_iter().filter(|(_, n)| *n > 0).map(|(kind, n)| (kind.to_owned(), n)).collect(),
            rps: outcome.rate,
            p50_us: outcome.p50_us as f64,
            p99_us: outcome.p99_us as f64,
            ..Load::default()
        };
        Ok(Sample {
            offered_rps: Some(rate),
            generator_late_us: Some(outcome.late_p99_us as f64),
            ..sample(&load, &used)?
        })
    }

    /// Runs a generator to its end and returns all that it printed.
    pub(super) fn generate(
        &self,
        name: &str,
        launch: &Launch,
        workers: usize,
        time: Duration,
    ) -> Result<String, Failure> {
        let log = self.log(name);
        let mut running = Running::start(name, launch, &self.load_cores(workers), &log)?;
        let status = running.wait(time + Duration::from_secs(20))?;
        if !status.success() {
            return Err(Failure::new(format!("{name} ended with {status}: {}", running.log_end())));
        }
        fs::read_to_string(&log).map_err(|error| Failure::io(&log, &error))
    }
}

fn url(at: SocketAddr, asked: &Requests) -> String {
    let scheme = if asked.tls { "https" } else { "http" };
    format!("{scheme}://{at}{}", asked.path)
}

fn sample(load: &Load, used: &Used) -> Result<Sample, Failure> {
    if load.requests == 0 {
        let kinds: Vec<String> = load.error_kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        return Err(Failure::new(format!("no request was answered, {} failed: {}", load.errors, kinds.join(", "))));
    }
    Ok(Sample {
        cpu_us: used.product_us.map(|used_us| used_us as f64 / load.requests as f64),
        rps: Some(load.rps),
        p50_us: (load.p50_us > 0.0).then_some(load.p50_us),
        p99_us: (load.p99_us > 0.0).then_some(load.p99_us),
        requests: load.requests,
        errors: load.errors,
        error_kinds: load.error_kinds.clone(),
        transfer_bytes: load.transfer_bytes,
        quantiles: load.quantiles.clone(),
        peak_bytes: used.peak_bytes,
        cores_over_time: used.cores_over_time.clone(),
        tls: load.tls.clone(),
        others_share: used.others_share,
        stolen_share: used.stolen_share,
        ..Sample::default()
    })
}

/// Generators take whole seconds, and at least one.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs_f64().round() as u64).max(1)
}

pub(super) fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing")
}
