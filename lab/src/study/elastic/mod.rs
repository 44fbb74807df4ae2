//! The study `elastic`: latency while everything changes.

mod changes;
mod drive;
mod measure;
mod page;
mod requests;

use super::journal::Outcome;
use super::{Run, Study, again};
use crate::failure::Failure;
use crate::report::page::Page;
use crate::sys;
use changes::Schedule;
use measure::Taken;

/// The study.
pub(crate) const STUDY: Study = Study {
    name: "elastic",
    title: "Latency while everything changes",
    question: "What do requests feel when origins come and go, and routes, certificate and program are changed?",
    article: "October 2019: Envoy, HAProxy and NGINX under Kubernetes control planes, HTTP/1.1 over TLS at a constant 100, \
              500 and 1,000 requests per second; every 30 s origins scaled from 3 to 4 and back, then routes changed.",
    products: &["equipoise", "nginx", "haproxy", "envoy", "traefik"],
    tools: &["vegeta"],
    // It takes an hour and a half, and keeps every request.
    rounds: 1,
    run,
};

/// What was measured at one rate.
struct Measured {
    rate: u64,
    products: Vec<Rounds>,
}

#[derive(Default)]
struct Rounds {
    name: &'static str,
    taken: Vec<Taken>,
    failure: Option<String>,
}

/// What starting and reading cost beside the requests, s, and for each request.
const ASIDE_SECONDS: f64 = 2.0;
const READING_SECONDS: f64 = 6e-6;

fn run(run: &Run<'_>) -> Result<Page, Failure> {
    sys::adopt_orphans()?;
    let schedule = Schedule::new(run.size);
    let seconds = |product: &str, rate: u64| {
        let length = schedule.length(schedule.of(product).len()).as_secs_f64();
        length * (1.0 + rate as f64 * READING_SECONDS) + ASIDE_SECONDS
    };
    let of_rate = |rate: u64| run.products.iter().map(|product| seconds(product.name, rate)).sum::<f64>();
    run.expect(schedule.rates.iter().map(|rate| of_rate(*rate)).sum::<f64>() * run.rounds as f64);
    let mut measured = Vec::new();
    for &rate in schedule.rates {
        let mut products: Vec<Rounds> =
            run.products.iter().map(|product| Rounds { name: product.name, ..Rounds::default() }).collect();
        for round in 1..=run.rounds {
            for (product, rounds) in run.products.iter().zip(&mut products) {
                let key = format!("{rate}-rps/{round}/{}", product.name);
                let once = || measure::measure(run, &schedule, product, rate, round);
                let repeats = run.repeats_when_disturbed();
                let measure = || again::calmer(repeats, |taken: &Taken| taken.others_share, once);
                match run.measure(&key, seconds(product.name, rate), measure)? {
                    Outcome::Done(taken) => rounds.taken.push(taken),
                    Outcome::Failed(reason) => rounds.failure = Some(reason),
                }
            }
        }
        measured.push(Measured { rate, products });
    }
    Ok(page::page(run.page(), &schedule, &measured))
}
