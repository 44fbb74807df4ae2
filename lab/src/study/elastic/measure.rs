//! One run: a product, a constant rate, and the changes, each at its moment while requests go on.

use super::super::Run;
use super::changes::{Change, Part, Schedule, State};
use super::drive::{CERTIFICATES, Driven};
use super::follow::Follow;
use super::held_up;
use super::requests::{Figures, Made, Request, figures, problem, thinned};
use crate::certificate;
use crate::failure::Failure;
use crate::generators::vegeta::Place;
use crate::measure::bench::loopback;
use crate::measure::child::{self, Launch, Running, write_file};
use crate::measure::sentinel::{Seen, Sentinel};
use crate::measure::window::Window;
use crate::net::ask;
use crate::products::Product;
use crate::sys;
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
    /// CPU time of the product for a request, us; of all its processes, also of those that took over from others.
    pub cpu_us: f64,
    /// Resident memory of its processes, where its program is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Share of the machine that others used or the host took.
    pub others_share: f64,
    /// What the machine kept from everybody meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pauses: Option<Seen>,
    /// Seconds and ms: what is drawn.
    pub points: Vec<(f64, f64)>,
}

/// What a product's processes held together, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    pub before: u64,
    /// The most, while the old and the new program were there.
    pub peak: u64,
    pub after: u64,
}

/// What is measured.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub schedule: &'a Schedule,
    pub part: Part,
    pub product: &'static Product,
    pub rate: u64,
    pub round: usize,
}

/// Measures one product at one rate.
pub(super) fn measure(run: &Run<'_>, asked: Asked<'_>) -> Result<Taken, Failure> {
    let Asked { schedule, part, product, rate, .. } = asked;
    let out = &run.paths.out;
    CERTIFICATES.iter().try_for_each(|name| certificate::ensure(&out.join(name)))?;
    let cores = run.bench.load_cores(1);
    let _origins = start_origins(run, &cores)?;
    let mut driven = Driven::start(run, product, schedule.step / 4)?;
    wait_ready(run, &mut driven)?;

    let mut changes = schedule.of(product.name, part);
    if !driven.can_upgrade()? {
        changes.retain(|change| *change != Change::Upgrade);
    }
    let place = Place { paths: run.paths, folder: out, cores: &cores };
    let length = schedule.length(changes.len());
    let sentinel = Sentinel::start(&sys::cores_allowed()?);
    let window = Window::open_quietly(driven.pid()?)?;
    // Reading all processes takes time on the generator's core: only where the program is replaced.
    let follow = if part == Part::Further { Some(Follow::new(&driven.workers()?)) } else { None };
    let mut attack = place.attack(&attack_args(run, rate, length)?)?;
    let state = State::default();
    let mut changing = Changing { run, driven: &mut driven, schedule, state, follow, began: Instant::now() };
    let mut made = Vec::new();
    for change in &changes {
        made.push(changing.make_at(schedule.length(made.len()), *change, &mut attack)?);
    }
    changing.wait_end(&mut attack, length)?;
    let (used, follow, pauses) = (window.close()?, changing.follow, sentinel.end()?);
    driven.check_alive()?;

    let (requests, problems) = collect(&place, &kept_file(run, asked, "requests"))?;
    write_file(&kept_file(run, asked, "pauses"), &pauses.csv())?;
    let window_us = schedule.window().as_micros() as u64;
    let unpaused = held_up::unpaused(&requests, rate, &pauses, |kept| figures(kept, &made, window_us));
    let figures = Figures { problems, unpaused, ..figures(&requests, &made, window_us) };
    let limit_ms = figures.p99_ms.max(figures.p50_ms * 3.0);
    let used_us = follow.as_ref().map(Follow::used_us).or(used.product_us).unwrap_or(0);
    Ok(Taken {
        cpu_us: used_us as f64 / requests.len() as f64,
        memory: follow.map(|one| Memory { before: one.before_bytes, peak: one.peak_bytes, after: one.now_bytes }),
        others_share: used.others_share + used.stolen_share,
        pauses: Some(pauses),
        points: thinned(&requests, schedule.step.as_micros() as u64 / 300, limit_ms),
        figures,
    })
}

/// Requests may take long after the last was made.
const ATTACK_TIMEOUT: Duration = Duration::from_secs(60);

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

/// A file with all requests of a run, or with all pauses of the machine.
fn kept_file(run: &Run<'_>, asked: Asked<'_>, of: &str) -> PathBuf {
    let Asked { part, product, rate, round, .. } = asked;
    run.paths.out.join(format!("{of}-{}-{}-{rate}-{round}.csv", part.name(), product.name))
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
    /// The product's processes, where its program is replaced.
    follow: Option<Follow>,
    /// When requests began to be made, as nearly as the lab knows.
    began: Instant,
}

impl Changing<'_, '_> {
    /// Pauses, with a look at the processes now and then where they are followed.
    fn pause(&mut self, time: Duration) -> Result<(), Failure> {
        let Some(follow) = &mut self.follow else { return child::pause(time) };
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            child::pause(left.min(LOOK_EVERY))?;
            follow.look();
        }
    }

    fn make_at(&mut self, at: Duration, change: Change, attack: &mut Running) -> Result<Made, Failure> {
        self.pause(at.saturating_sub(self.began.elapsed()))?;
        attack.check_alive()?;
        self.make(change)
    }

    /// Waits for the end of the requests, and of the processes that were replaced.
    fn wait_end(&mut self, attack: &mut Running, length: Duration) -> Result<(), Failure> {
        self.pause(length.saturating_sub(self.began.elapsed()))?;
        attack.wait(ATTACK_TIMEOUT)?;
        if let Some(follow) = &mut self.follow {
            follow.look();
        }
        Ok(())
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
            Change::Upgrade => self.replaced(began, &before)?,
            _ => None,
        };
        Ok(Made { change, at_us, took_us, seen_us })
    }

    /// When the new program was there, if the old one has ended in its time, too.
    fn replaced(&mut self, began: Instant, before: &[u32]) -> Result<Option<u64>, Failure> {
        let is_new = |driven: &Driven<'_>| Ok(driven.workers()?.iter().any(|pid| !before.contains(pid)));
        let seen = self.seen(began, is_new)?;
        if let Some(follow) = &mut self.follow {
            follow.add(&self.driven.workers()?);
        }
        let deadline = Instant::now() + self.driven.time_to_end();
        while !self.driven.have_ended(before)? {
            if Instant::now() > deadline {
                return Ok(None);
            }
            self.pause(LOOK_EVERY)?;
        }
        // Workers of the new one may have come meanwhile.
        if let Some(follow) = &mut self.follow {
            follow.add(&self.driven.workers()?);
        }
        Ok(seen)
    }

    /// Looks now and then until it is so, or the next change is due; tells how long it took.
    fn seen(
        &mut self,
        began: Instant,
        is_so: impl Fn(&Driven<'_>) -> Result<bool, Failure>,
    ) -> Result<Option<u64>, Failure> {
        while began.elapsed() < self.schedule.step * 3 / 4 {
            if is_so(self.driven)? {
                return Ok(Some(began.elapsed().as_micros() as u64));
            }
            self.pause(LOOK_EVERY)?;
        }
        Ok(None)
    }
}

/// How often the lab looks whether a change has come, and at processes that it follows.
const LOOK_EVERY: Duration = Duration::from_millis(50);

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
