//! The study `mongrel`: origins that do one thing at a time, and where requests wait for them.

mod ideal;
mod measure;
mod order;
mod page;

use super::{Run, Study, again};
use crate::failure::Failure;
use crate::report::page::Page;
use measure::{Cell, Taken, cells};

/// The study.
pub(crate) const STUDY: Study = Study {
    name: "mongrel",
    title: "Origins that do one thing at a time",
    question: "Where do requests wait when origins work on one at a time, and is the order of their arrival kept?",
    article: "June 2008: nginx (with a balancer for fairness) and HAProxy before three single-threaded Mongrels of a Rails \
              application; 1,000 requests of ab at 3, 10 and 30 at a time, the response time of each plotted in order.",
    products: &["equipoise", "nginx", "haproxy", "envoy", "traefik"],
    tools: &["vegeta"],
    rounds: 3,
    run,
};

/// What was measured of one cell: for each product its rounds, and why there are not more.
struct Measured {
    cell: Cell,
    products: Vec<Rounds>,
}

#[derive(Default)]
struct Rounds {
    name: &'static str,
    taken: Vec<Taken>,
    failure: Option<String>,
}

/// What starting, warming up and reading cost beside the requests, s.
const ASIDE_SECONDS: f64 = 2.5;

fn run(run: &Run<'_>) -> Result<Page, Failure> {
    let cells = cells(run.size);
    // Requests that pile up behind one origin while another is idle take longer than the least.
    let seconds = |cell: &Cell| cell.least_seconds() * 2.6 + ASIDE_SECONDS;
    run.expect(cells.iter().map(seconds).sum::<f64>() * (run.products.len() * run.rounds) as f64);
    let mut measured = Vec::new();
    for cell in cells {
        let rounds = |product: &&'static crate::products::Product| Rounds { name: product.name, ..Rounds::default() };
        let mut products: Vec<Rounds> = run.products.iter().map(rounds).collect();
        for round in 1..=run.rounds {
            for (product, rounds) in run.products.iter().zip(&mut products) {
                let key = format!("{}/{round}/{}", cell.name, product.name);
                let once = || measure::measure(run, &cell, product);
                let repeats = run.repeats_when_disturbed();
                let measure = || again::calmer(repeats, |taken: &Taken| taken.others_share, once);
                let outcome = run.measure(&key, seconds(&cell), measure)?;
                match outcome {
                    super::journal::Outcome::Done(taken) => rounds.taken.push(taken),
                    super::journal::Outcome::Failed(reason) => rounds.failure = Some(reason),
                }
            }
        }
        products.push(Rounds { name: ideal::NAME, taken: vec![ideal::taken(&cell)], failure: None });
        measured.push(Measured { cell, products });
    }
    Ok(page::page(run.page(), &measured))
}
