//! The study `elastic`: latency while everything changes.

mod ahead;
mod changes;
mod drive;
mod follow;
mod held_up;
mod measure;
mod page;
mod pauses;
mod requests;

use super::journal::Outcome;
use super::{Changes, Narrowed, Run, Study, again};
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

/// The parts and rates that were asked for, of those that there are.
fn chosen(schedule: &Schedule, narrowed: &Narrowed) -> Result<Vec<(Part, u64)>, Failure> {
    if let Some(unknown) = narrowed.rates.iter().find(|rate| !schedule.rates.contains(rate)) {
        let known: Vec<String> = schedule.rates.iter().map(u64::to_string).collect();
        return Err(Failure::new(format!(
            "there is no rate {unknown} in a run of this size; it has {}",
            known.join(", ")
        )));
    }
    let has_rate = |rate: &&u64| narrowed.rates.is_empty() || narrowed.rates.contains(rate);
    let has_part = |part: &Part| match narrowed.changes {
        None => true,
        Some(Changes::Published) => *part == Part::Article,
        Some(Changes::Further) => *part == Part::Further,
    };
    let parts = Part::ALL.into_iter().filter(has_part);
    Ok(parts.flat_map(|part| schedule.rates.iter().filter(has_rate).map(move |rate| (part, *rate))).collect())
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
    let parts = chosen(&schedule, &run.narrowed)?;
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

#[cfg(test)]
mod tests {
    use super::super::Size;
    use super::*;

    #[test]
    fn only_the_rates_and_changes_that_were_asked_for_are_measured() {
        let schedule = Schedule::new(Size::Full);
        let of = |rates: &[u64], changes| chosen(&schedule, &Narrowed { rates: rates.to_vec(), changes });
        assert_eq!(of(&[], None).unwrap().len(), 6);
        assert_eq!(of(&[500, 100], Some(Changes::Published)).unwrap(), [(Part::Article, 100), (Part::Article, 500)]);
        assert_eq!(of(&[1000], None).unwrap(), [(Part::Article, 1000), (Part::Further, 1000)]);
        assert!(
            of(&[200], None).unwrap_err().to_string().contains("no rate 200 in a run of this size; it has 100, 500")
        );
    }
}
