//! `lab study NAME`: published comparisons, made again on this machine with today's versions.
//!
//! A study is one file here and one folder of configurations in `lab/studies`. Its `run` measures through [`Run`], which
//! keeps every measurement in a [`journal`], and makes a [`Page`] of them. It is called again when it was interrupted,
//! with the journal closed, so that the page is made of what there is: nothing but [`Run::measure`] may start anything.

mod again;
mod cells;
mod charts;
mod elastic;
mod elb;
pub(crate) mod journal;
mod mongrel;
mod out_of_the_box;
mod progress;
mod show;
mod whoami;

use crate::failure::Failure;
use crate::measure::bench::{Bench, BenchOptions};
use crate::measure::child;
use crate::measure::machine::{self, Machine};
use crate::measure::pauses;
use crate::paths::Paths;
use crate::peers::{self, Wanted};
use crate::products::{self, Product, Version, build};
use crate::report;
use crate::report::page::{File, Page, ProductLine};
use crate::sys;
use clap::{Args, ValueEnum};
use journal::{Journal, Outcome};
use progress::Progress;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A published comparison.
pub(crate) struct Study {
    /// Its name on the command line, and of its folders.
    pub name: &'static str,
    /// Its name for a person.
    pub title: &'static str,
    /// What it asks, in one sentence.
    pub question: &'static str,
    /// Who compared what, and when.
    pub article: &'static str,
    /// The products that take part, in the order of tables.
    pub products: &'static [&'static str],
    /// What else of `lab peers` it needs, such as a generator that is not always there.
    pub tools: &'static [&'static str],
    /// Rounds of a full run, unless another number is asked for.
    pub rounds: usize,
    /// Measures, and makes the page.
    pub run: fn(&Run<'_>) -> Result<Page, Failure>,
}

/// All studies.
pub(crate) const ALL: &[&Study] =
    &[&out_of_the_box::STUDY, &elb::STUDY, &elastic::STUDY, &mongrel::STUDY, &whoami::STUDY];

/// What to run, and how large.
#[derive(Args, Debug)]
pub(crate) struct StudyArgs {
    /// The study, or `all`
    name: String,
    /// A small run of about two minutes; not to be quoted
    #[arg(long)]
    quick: bool,
    /// A run of seconds: does it work at all?
    #[arg(long, hide = true)]
    smallest: bool,
    /// Only these products
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    only: Vec<String>,
    /// Only these rates of `elastic`, requests a second
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    rates: Vec<u64>,
    /// Only these changes of `elastic`
    #[arg(long)]
    changes: Option<Changes>,
    /// Rounds; every product is measured once in each
    #[arg(long)]
    rounds: Option<usize>,
    /// Go on with a run that was ended
    #[arg(long)]
    resume: bool,
    /// End before a measurement that would not be over within so many minutes (the first is made in any case); `--resume`
    /// goes on after it
    #[arg(long)]
    minutes: Option<f64>,
    /// The lowest of the ports used
    #[arg(long, default_value_t = 18000)]
    port_base: u16,
    /// Equipoise's executable; without it, it is built first
    #[arg(long)]
    equipoise: Option<PathBuf>,
    /// Where the results go
    #[arg(long)]
    out: Option<PathBuf>,
}

/// A part of the changes of `elastic`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Changes {
    /// Origins and routes, as they were published
    Published,
    /// The certificate and the program
    Further,
}

/// What is left of a study that is not made as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Narrowed {
    /// None: all.
    pub rates: Vec<u64>,
    pub changes: Option<Changes>,
}

impl Narrowed {
    /// As on the command line; empty: nothing was left out.
    fn options(&self) -> String {
        let mut options = String::new();
        if !self.rates.is_empty() {
            let rates: Vec<String> = self.rates.iter().map(u64::to_string).collect();
            options.push_str(&format!(" --rates {}", rates.join(",")));
        }
        match self.changes {
            None => {}
            Some(Changes::Published) => options.push_str(" --changes published"),
            Some(Changes::Further) => options.push_str(" --changes further"),
        }
        options
    }
}

/// How long the machine is looked at before a study in full.
const PAUSES_LOOK: Duration = Duration::from_secs(4);

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// As it was published, or as near as this machine allows.
    Full,
    /// About two minutes.
    Quick,
    /// Seconds.
    Smallest,
}

impl Size {
    /// The value for this size.
    pub(crate) fn pick<T>(self, full: T, quick: T, smallest: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Smallest => smallest,
        }
    }
}

/// What a study works with.
pub(crate) struct Run<'a> {
    pub study: &'static Study,
    /// The lab's folders; `out` is the study's own.
    pub paths: &'a Paths,
    pub size: Size,
    pub rounds: usize,
    /// What of the study was asked for.
    pub narrowed: Narrowed,
    /// Those of the study that were chosen, in its order.
    pub products: Vec<&'static Product>,
    pub bench: Bench,
    pub journal: Journal,
    progress: Progress,
    versions: BTreeMap<&'static str, Version>,
    repeat: String,
    started: u64,
    /// What the machine kept from programs before the study began.
    pauses: String,
    slice: Slice,
}

/// How long this run may go on, when it is one of several.
struct Slice {
    began: Instant,
    seconds: Option<f64>,
    has_measured: Cell<bool>,
}

impl Slice {
    fn new(minutes: Option<f64>) -> Self {
        Self { began: Instant::now(), seconds: minutes.map(|minutes| minutes * 60.0), has_measured: Cell::new(false) }
    }

    /// Whether a measurement of so many seconds is still to be made.
    fn has_time(&self, seconds: f64) -> bool {
        let is_enough = |all: f64| self.began.elapsed().as_secs_f64() + seconds <= all;
        !self.has_measured.replace(true) || self.seconds.is_none_or(is_enough)
    }
}

impl Run<'_> {
    /// Tells how many seconds all measurements together are expected to take, for the time left.
    pub(crate) fn expect(&self, seconds: f64) {
        self.progress.expect(seconds);
    }

    /// Makes a measurement once: shown in the bar as its key, expected to take so many seconds, kept in the journal.
    pub(crate) fn measure<T: Serialize + DeserializeOwned>(
        &self,
        key: &str,
        seconds: f64,
        measure: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<Outcome<T>, Failure> {
        let was_known = self.journal.holds(key);
        self.progress.begin(key, seconds);
        let outcome = self.journal.once(key, || {
            child::interruption()?;
            if !self.slice.has_time(seconds) {
                return Err(Failure::interrupted());
            }
            measure()
        });
        self.progress.end(!was_known);
        if let Ok(Outcome::Failed(reason)) = &outcome
            && reason != journal::ENDED
        {
            self.progress.say(&format!("{}: {key} failed: {reason}", self.study.name));
        }
        outcome
    }

    /// Whether a measurement that others disturbed is made once more: a full run is to be quoted.
    pub(crate) fn repeats_when_disturbed(&self) -> bool {
        self.size == Size::Full
    }

    /// A page with all that is the same for every study: facts, products, configurations. The rest is the study's.
    pub(crate) fn page(&self) -> Page {
        let Study { name, title, question, article, .. } = *self.study;
        let version = |product: &&'static Product| {
            let version = self.versions.get(product.name).cloned().unwrap_or_default();
            ProductLine { name: product.name.to_owned(), version: version.version, tls: version.tls }
        };
        Page {
            study: name.to_owned(),
            title: title.to_owned(),
            question: question.to_owned(),
            article: article.to_owned(),
            quick: self.size != Size::Full,
            facts: self.facts(),
            products: self.products.iter().map(version).collect(),
            files: self.files(),
            repeat: self.repeat.clone(),
            ..Page::default()
        }
    }

    fn facts(&self) -> Vec<(String, String)> {
        let machine = Machine::read();
        let size = self.size.pick("full", "quick", "smallest");
        let facts = [
            ("date", machine::utc(self.started)),
            ("kernel", machine.kernel),
            ("processor", machine.processor),
            ("cores", self.bench.core_count().to_string()),
            ("pauses of the machine", self.pauses.clone()),
            ("size", format!("{size}{}", self.narrowed.options().replace(" --", ", only "))),
            ("rounds", self.rounds.to_string()),
        ];
        facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The configurations as they were used last, of every product.
    fn files(&self) -> Vec<File> {
        let mut files = Vec::new();
        for product in &self.products {
            let folder = self.paths.out.join(product.name);
            for path in products::rendered(&folder) {
                let Ok(text) = fs::read_to_string(&path) else { continue };
                let name = path.strip_prefix(&folder).unwrap_or(&path).display().to_string();
                files.push(File { product: product.name.to_owned(), name, text });
            }
        }
        files
    }
}

/// Runs a study, or all.
pub(crate) fn run(args: &StudyArgs, paths: &Paths) -> Result<(), Failure> {
    let chosen: Vec<&'static Study> = match args.name.as_str() {
        // Not every study has every product.
        "all" => ALL.iter().copied().filter(|study| has_any(study, &args.only)).collect(),
        name => vec![find(name)?],
    };
    args.only.iter().try_for_each(|name| products::find(name).map(drop))?;
    if !args.narrowed().options().is_empty() && chosen.iter().any(|study| study.name != elastic::STUDY.name) {
        return Err(Failure::new("only elastic has rates and changes to choose from"));
    }
    let out = args.out.clone().unwrap_or_else(|| paths.out.clone());
    fs::create_dir_all(&out).map_err(|error| Failure::io(&out, &error))?;
    let mut problems = Vec::new();
    for study in chosen {
        match run_one(study, args, &out, paths) {
            Ok(failures) => problems.extend(failures.into_iter().map(|(key, _)| format!("{}: {key}", study.name))),
            Err(failure) if failure.is_interruption() => {
                report::write_index(&out)?;
                return Err(failure);
            }
            Err(failure) => problems.push(format!("{}: {failure}", study.name)),
        }
    }
    report::write_index(&out)?;
    if problems.is_empty() { Ok(()) } else { Err(Failure::new(format!("not measured: {}", problems.join("; ")))) }
}

fn find(name: &str) -> Result<&'static Study, Failure> {
    ALL.iter().copied().find(|study| study.name == name).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|study| study.name).collect();
        Failure::new(format!("no study is called {name:?}; there are {} and all", known.join(", ")))
    })
}

/// Runs a study and writes its report; returns the measurements that failed.
fn run_one(
    study: &'static Study,
    args: &StudyArgs,
    out: &Path,
    paths: &Paths,
) -> Result<Vec<(String, String)>, Failure> {
    let folder = out.join(study.name);
    fs::create_dir_all(&folder).map_err(|error| Failure::io(&folder, &error))?;
    let folder = folder.canonicalize().map_err(|error| Failure::io(&folder, &error))?;
    let paths = Paths { out: folder, ..paths.clone() };
    let run = prepare(study, args, &paths)?;
    let (page, interrupted) = match (study.run)(&run) {
        Ok(page) => (page, false),
        Err(failure) if failure.is_interruption() => {
            run.journal.close();
            ((study.run)(&run)?, true)
        }
        Err(failure) => return Err(failure),
    };
    let page = Page { interrupted, ..page };
    let report = report::write(&page, &paths.out)?;
    run.progress.say(&format!("{}: written to {}", study.name, report.display()));
    if interrupted { Err(Failure::interrupted()) } else { Ok(run.journal.failures()) }
}

/// Installs what is missing, builds Equipoise, and makes the bench.
fn prepare<'a>(study: &'static Study, args: &StudyArgs, paths: &'a Paths) -> Result<Run<'a>, Failure> {
    let products = choose(study, &args.only)?;
    let names: Vec<&str> = products.iter().map(|product| product.name).collect();
    let needs: Vec<&str> = names.iter().chain(study.tools).copied().collect();
    install(paths, &needs)?;
    let size = match (args.smallest, args.quick) {
        (true, _) => Size::Smallest,
        (_, true) => Size::Quick,
        _ => Size::Full,
    };
    let rounds = args.rounds.unwrap_or(size.pick(study.rounds, 1, 1)).max(1);
    let options = BenchOptions {
        equipoise: build::executable(
            args.equipoise.as_deref(),
            names.iter().any(|name| name.starts_with("equipoise")),
            paths,
        )?,
        baseline: None,
        port_base: args.port_base,
        measured: Duration::from_secs(1),
        warm_up: Duration::from_secs(1),
    };
    let bench = Bench::new(paths, study.name, options)?;
    let kind = format!("{} {} {}", study.name, size.pick("full", "quick", "smallest"), rounds);
    let version = |product: &&'static Product| {
        let failed = |failure: Failure| Version { version: failure.to_string(), tls: String::new() };
        (product.name, bench.version(product).unwrap_or_else(failed))
    };
    Ok(Run {
        study,
        size,
        rounds,
        narrowed: args.narrowed(),
        versions: products.iter().map(version).collect(),
        products,
        journal: Journal::open(&paths.out.join("journal.jsonl"), &kind, args.resume)?,
        progress: Progress::new(study.name),
        repeat: repeat(study, args),
        started: machine::now(),
        pauses: pauses::told(&sys::cores_allowed()?, size.pick(PAUSES_LOOK, PAUSES_LOOK / 4, PAUSES_LOOK / 40)),
        slice: Slice::new(args.minutes),
        bench,
        paths,
    })
}

/// The peers belong to the lab, not to the study's output.
fn install(paths: &Paths, needs: &[&str]) -> Result<(), Failure> {
    if needs.iter().all(|need| ["equipoise", "equipoise-alb", "floor", "direct"].contains(need))
        && paths.generator("wrk").is_ok()
    {
        return Ok(());
    }
    // What could not be installed is told there, and again by the measurement that needs it.
    peers::install(paths, false, &Wanted::For(needs)).map(drop)
}

fn has_any(study: &Study, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|name| study.products.contains(&name.as_str()))
}

/// The products of the study, or those among them that were asked for.
fn choose(study: &Study, only: &[String]) -> Result<Vec<&'static Product>, Failure> {
    let wanted = |name: &&&str| only.is_empty() || only.iter().any(|one| one == **name);
    let chosen = study.products.iter().filter(wanted).map(|name| products::find(name));
    let chosen = chosen.collect::<Result<Vec<_>, _>>()?;
    if chosen.is_empty() {
        let known = study.products.join(", ");
        return Err(Failure::new(format!("{} has none of these products; it has {known}", study.name)));
    }
    Ok(chosen)
}

impl StudyArgs {
    fn narrowed(&self) -> Narrowed {
        Narrowed { rates: self.rates.clone(), changes: self.changes }
    }
}

fn repeat(study: &Study, args: &StudyArgs) -> String {
    let mut line = format!("cargo run --release -p lab -- study {}", study.name);
    if args.quick {
        line.push_str(" --quick");
    }
    if args.smallest {
        line.push_str(" --smallest");
    }
    if !args.only.is_empty() {
        line.push_str(&format!(" --only {}", args.only.join(",")));
    }
    line.push_str(&args.narrowed().options());
    if let Some(rounds) = args.rounds {
        line.push_str(&format!(" --rounds {rounds}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_makes_its_first_measurement_and_then_what_fits() {
        let slice = Slice::new(Some(1.0));
        assert!(slice.has_time(3600.0) && slice.has_time(1.0) && !slice.has_time(61.0));
        let whole = Slice::new(None);
        assert!(whole.has_time(3600.0) && whole.has_time(3600.0));
    }

    #[test]
    fn every_product_of_a_study_has_its_configuration_and_every_study_a_name_of_its_own() {
        let paths = Paths::new().unwrap();
        let mut names: Vec<&str> = ALL.iter().map(|study| study.name).collect();
        for study in ALL {
            for product in choose(study, &[]).unwrap() {
                for template in product.templates {
                    let file = paths.studies(study.name).join(template);
                    assert!(file.exists(), "{}", file.display());
                }
            }
        }
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn only_products_of_the_study_are_chosen_in_its_order() {
        let only = ["nginx".to_owned(), "equipoise".to_owned(), "floor".to_owned()];
        let names = |study| choose(study, &only).unwrap().iter().map(|product| product.name).collect::<Vec<_>>();
        assert_eq!(names(find("whoami").unwrap()), ["floor", "equipoise", "nginx"]);
        assert!(choose(find("whoami").unwrap(), &["equipoise-base".to_owned()]).is_err());
        assert!(find("nonsense").is_err());
    }
}
