//! The study `elastic`: latency while everything changes.

mod ahead;
mod changes;
mod drive;
mod follow;
mod measure;
mod page;
mod requests;

use super::journal::Outcome;
use super::{Run, Study, again};
use crate::failure::Failure;
use crate::report::page::Page;
use crate::sys;
use changes::{Part, Schedule};
use measure::{Asked, Taken};

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

/// What was measured at one rate with the changes of a part.
struct Measured {
    part: Part,
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
    let seconds = |product: &str, part: Part, rate: u64| {
        let length = schedule.length(schedule.of(product, part).len()).as_secs_f64();
        length * (1.0 + rate as f64 * READING_SECONDS) + ASIDE_SECONDS
    };
    let parts: Vec<(Part, u64)> =
        Part::ALL.into_iter().flat_map(|part| schedule.rates.iter().map(move |rate| (part, *rate))).collect();
    let of = |(part, rate): &(Part, u64)| -> f64 {
        run.products.iter().map(|product| seconds(product.name, *part, *rate)).sum()
    };
    run.expect(parts.iter().map(of).sum::<f64>() * run.rounds as f64);
    let mut measured = Vec::new();
    for (part, rate) in parts {
        let mut products: Vec<Rounds> =
            run.products.iter().map(|product| Rounds { name: product.name, ..Rounds::default() }).collect();
        for round in 1..=run.rounds {
            for (&product, rounds) in run.products.iter().zip(&mut products) {
                let key = format!("{}/{rate}-rps/{round}/{}", part.name(), product.name);
                let once = || measure::measure(run, Asked { schedule: &schedule, part, product, rate, round });
                let repeats = run.repeats_when_disturbed();
                let measure = || again::calmer(repeats, |taken: &Taken| taken.others_share, once);
                match run.measure(&key, seconds(product.name, part, rate), measure)? {
                    Outcome::Done(taken) => rounds.taken.push(taken),
                    Outcome::Failed(reason) => rounds.failure = Some(reason),
                }
            }
        }
        measured.push(Measured { part, rate, products });
    }
    Ok(page::page(run.page(), &schedule, &measured))
}
