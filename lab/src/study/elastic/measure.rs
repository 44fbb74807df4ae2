//! One run: a product, a constant rate, and the changes, each at its moment while requests go on.

use super::super::Run;
use super::changes::{Change, Schedule, State};
use super::drive::{CERTIFICATES, Driven};
use super::requests::{Figures, Made, Request, figures, problem, thinned};
use crate::certificate;
use crate::failure::Failure;
use crate::generators::vegeta::Place;
use crate::measure::bench::loopback;
use crate::measure::child::{self, Launch, Running, write_file};
use crate::measure::window::Window;
use crate::net::ask;
use crate::products::Product;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A run of a product at a rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Taken {
    pub figures: Figures,
    /// CPU time of the product for a request, us, until its program was replaced.
    pub cpu_us: f64,
    /// Share of the machine that others used or the host took until then.
    pub others_share: f64,
    /// Seconds and ms: what is drawn.
    pub points: Vec<(f64, f64)>,
}

/// Measures one product at one rate.
pub(super) fn measure(
    run: &Run<'_>,
    schedule: &Schedule,
    product: &'static Product,
    rate: u64,
    round: usize,
) -> Result<Taken, Failure> {
    let out = &run.paths.out;
    CERTIFICATES.iter().try_for_each(|name| certificate::ensure(&out.join(name)))?;
    let cores = run.bench.load_cores(1);
    let _origins = start_origins(run, &cores)?;
    let drain = schedule.step / 4;
    let mut driven = Driven::start(run, product, drain)?;
    wait_ready(run, &mut driven)?;

    let changes = schedule.of(product.name);
    let place = Place { paths: run.paths, folder: out, cores: &cores };
    let window = Window::open_quietly(driven.pid()?)?;
    let mut attack = place.attack(&attack_args(run, rate, schedule.length(changes.len()))?)?;
    let mut changing = Changing { run, driven: &mut driven, schedule, state: State::default(), began: Instant::now() };
    let mut made = Vec::new();
    // A process that takes over need not be a child of the one before: what is used is known until then.
    let (lasting, last) = match changes.split_last() {
        Some((Change::Upgrade, before)) => (before, true),
        _ => (changes.as_slice(), false),
    };
    for change in lasting {
        made.push(changing.make_at(schedule.length(made.len()), *change, &mut attack)?);
    }
    if last {
        changing.wait_until(schedule.length(made.len()), &mut attack)?;
    } else {
        attack.wait(ATTACK_TIMEOUT + schedule.length(changes.len()))?;
    }
    let (used, counted_us) = (window.close()?, now_us());
    if last {
        let before = changing.driven.workers()?;
        let mut upgrade = changing.make(Change::Upgrade)?;
        attack.wait(ATTACK_TIMEOUT + schedule.step)?;
        if !driven.have_ended(&before)? {
            upgrade.seen_us = None;
        }
        made.push(upgrade);
    }
    driven.check_alive()?;

    let (requests, problems) = collect(&place, &all_requests(run, product, rate, round))?;
    let figures = Figures { problems, ..figures(&requests, &made, schedule.window().as_micros() as u64) };
    let counted = requests.iter().filter(|request| request.began_us < counted_us).count().max(1);
    let limit_ms = figures.p99_ms.max(figures.p50_ms * 3.0);
    Ok(Taken {
        cpu_us: used.product_us.unwrap_or(0) as f64 / counted as f64,
        others_share: used.others_share + used.stolen_share,
        points: thinned(&requests, schedule.step.as_micros() as u64 / 300, limit_ms),
        figures,
    })
}

/// Requests may take long after the last was made.
const ATTACK_TIMEOUT: Duration = Duration::from_secs(60);

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

/// The file with all requests of a run.
fn all_requests(run: &Run<'_>, product: &Product, rate: u64, round: usize) -> PathBuf {
    run.paths.out.join(format!("requests-{}-{rate}-{round}.csv", product.name))
}

/// Three origins and the fourth, which answer at once and tell who they are.
fn start_origins(run: &Run<'_>, cores: &[usize]) -> Result<Running, Failure> {
    let mut launch = Launch::new(std::env::current_exe()?).args(["mongrel-origin", "--work-ms", "0"]);
    for port in run.bench.ports.origin {
        launch = launch.arg("--listen").arg(loopback(port).to_string());
    }
    let mut origins = Running::start("origins", &launch, cores, &run.bench.log("origins"))?;
    for port in run.bench.ports.origin {
        origins.wait_listening(loopback(port), Duration::from_secs(15))?;
    }
    Ok(origins)
}

/// Some listen before they know where requests go: waits until one is answered.
fn wait_ready(run: &Run<'_>, driven: &mut Driven<'_>) -> Result<(), Failure> {
    let trust = run.paths.out.join(CERTIFICATES[0]).join("site.pem");
    let deadline = Instant::now() + Duration::from_secs(15);
    loop {
        match ask::status(run.bench.target(true), &trust, "/app/ready") {
            Ok(200) => return Ok(()),
            other if Instant::now() > deadline => {
                return Err(Failure::new(format!("it does not proxy: {other:?}")));
            }
            _ => driven.check_alive()?,
        }
        child::pause(Duration::from_millis(50))?;
    }
}

fn attack_args(run: &Run<'_>, rate: u64, length: Duration) -> Result<Vec<String>, Failure> {
    let targets = run.paths.out.join("targets.txt");
    write_file(&targets, &format!("GET https://{}/app/page\n", run.bench.target(true)))?;
    let trust = CERTIFICATES.map(|name| run.paths.out.join(name).join("site.pem").display().to_string()).join(",");
    Ok(vec![
        format!("-rate={rate}/1s"),
        format!("-duration={}ms", length.as_millis()),
        format!("-targets={}", targets.display()),
        format!("-root-certs={trust}"),
        "-header=Origin: https://shop.example.com".to_owned(),
        "-timeout=30s".to_owned(),
        "-max-workers=5000".to_owned(),
    ])
}

/// What changes a product, and knows what holds.
struct Changing<'a, 'r> {
    run: &'a Run<'r>,
    driven: &'a mut Driven<'r>,
    schedule: &'a Schedule,
    state: State,
    /// When requests began to be made, as nearly as the lab knows.
    began: Instant,
}

impl Changing<'_, '_> {
    fn wait_until(&self, at: Duration, attack: &mut Running) -> Result<(), Failure> {
        child::pause(at.saturating_sub(self.began.elapsed()))?;
        attack.check_alive()
    }

    fn make_at(&mut self, at: Duration, change: Change, attack: &mut Running) -> Result<Made, Failure> {
        self.wait_until(at, attack)?;
        self.make(change)
    }

    fn make(&mut self, change: Change) -> Result<Made, Failure> {
        self.state = self.state.after(change);
        // Reading all processes takes time on the generator's core: not at a change that does not need it.
        let before = if change == Change::Upgrade { self.driven.workers()? } else { Vec::new() };
        let (at_us, began) = (now_us(), Instant::now());
        self.driven.apply(change, self.state)?;
        let took_us = began.elapsed().as_micros() as u64;
        let seen_us = match change {
            Change::Certificate => {
                let certificate = self.run.paths.out.join(CERTIFICATES[1]).join("site.pem");
                let target = self.run.bench.target(true);
                self.seen(began, |_| Ok(ask::shows(target, &certificate).unwrap_or(false)))?
            }
            Change::Upgrade => self.seen(began, |driven| {
                let now = driven.workers()?;
                Ok(now.iter().any(|pid| !before.contains(pid)))
            })?,
            _ => None,
        };
        Ok(Made { change, at_us, took_us, seen_us })
    }

    /// Looks now and then until it is so, or the next change is due; tells how long it took.
    fn seen(
        &self,
        began: Instant,
        is_so: impl Fn(&Driven<'_>) -> Result<bool, Failure>,
    ) -> Result<Option<u64>, Failure> {
        while began.elapsed() < self.schedule.step * 3 / 4 {
            if is_so(self.driven)? {
                return Ok(Some(began.elapsed().as_micros() as u64));
            }
            child::pause(Duration::from_millis(50))?;
        }
        Ok(None)
    }
}

/// Reads all requests, in the order in which they began, and writes them to a file of their own.
fn collect(place: &Place<'_>, file: &PathBuf) -> Result<(Vec<Request>, BTreeMap<String, usize>), Failure> {
    let mut requests = Vec::new();
    let mut problems: BTreeMap<String, usize> = BTreeMap::new();
    place.each_row(|row| {
        let request = Request::new(&row);
        if !request.is_good {
            *problems.entry(problem(&row)).or_default() += 1;
        }
        requests.push(request);
    })?;
    if requests.is_empty() {
        return Err(Failure::new("vegeta made no request"));
    }
    requests.sort_by_key(|request| request.began_us);
    let mut text = String::from("began_us,latency_us,good\n");
    for one in &requests {
        let _ = writeln!(text, "{},{},{}", one.began_us, one.latency_us, u8::from(one.is_good));
    }
    fs::write(file, text).map_err(|error| Failure::io(file, &error))?;
    Ok((requests, problems))
}
