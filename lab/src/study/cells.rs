//! Studies that are a table of cells: what is asked of every product, in turn, in several rounds.

use super::Run;
use super::charts::Figure;
use super::journal::{ENDED, Outcome};
use crate::failure::Failure;
use crate::measure::stats::spread;
use crate::measure::{Sample, undisturbed};
use crate::products::Product;

/// What is asked of every product.
pub(crate) struct Cell<T> {
    /// Its name in the journal and in folders.
    pub name: String,
    /// What it is, for a person.
    pub title: String,
    /// How long a measurement is expected to take.
    pub seconds: f64,
    /// What the study knows of it.
    pub load: T,
}

/// One product in one cell.
#[derive(Default)]
pub(crate) struct Row {
    pub product: &'static str,
    /// Why it does not take part.
    pub left_out: Option<String>,
    /// Why there is no figure.
    pub failure: Option<String>,
    /// The median of the rounds.
    pub median: Option<Sample>,
    /// Of the rounds, as a share of the median: of CPU time, of throughput where there is none.
    pub spread: Option<f64>,
}

/// A cell with what was found in it.
pub(crate) struct Found {
    pub title: String,
    pub rows: Vec<Row>,
}

impl Found {
    /// The median of a product.
    pub(crate) fn of(&self, product: &str) -> Option<&Sample> {
        self.rows.iter().find(|row| row.product == product)?.median.as_ref()
    }

    /// A figure of a product.
    pub(crate) fn figure(&self, product: &str, figure: &Figure) -> Option<f64> {
        (figure.of)(self.of(product)?)
    }
}

/// Measures one product once in a cell.
type Measure<'m, T> = dyn Fn(&Cell<T>, &'static Product) -> Result<Sample, Failure> + 'm;

/// How a study measures.
pub(crate) struct Method<'m, T> {
    /// Why a product cannot do what a cell asks for, if it cannot.
    pub refuses: &'m dyn Fn(&T, &Product) -> Option<String>,
    /// Measures one product once.
    pub measure: &'m Measure<'m, T>,
}

/// Measures all cells: cell by cell, round by round, product by product.
pub(crate) fn all<T>(run: &Run<'_>, cells: &[Cell<T>], method: &Method<'_, T>) -> Result<Vec<Found>, Failure> {
    let takes_part = |cell: &Cell<T>| {
        run.products.iter().filter(|product| (method.refuses)(&cell.load, product).is_none()).count() as f64
    };
    run.expect(run.rounds as f64 * cells.iter().map(|cell| takes_part(cell) * cell.seconds).sum::<f64>());
    cells.iter().map(|cell| measure_cell(run, cell, method)).collect()
}

fn measure_cell<T>(run: &Run<'_>, cell: &Cell<T>, method: &Method<'_, T>) -> Result<Found, Failure> {
    let mut found: Vec<(Row, Vec<Sample>)> = Vec::new();
    for product in &run.products {
        let left_out = (method.refuses)(&cell.load, product);
        found.push((Row { product: product.name, left_out, ..Row::default() }, Vec::new()));
    }
    for round in 1..=run.rounds {
        for (product, (row, samples)) in run.products.iter().zip(&mut found) {
            if row.left_out.is_some() {
                continue;
            }
            let key = format!("{}, round {round}, {}", cell.name, product.name);
            let outcome = run.measure(&key, cell.seconds, || {
                if run.repeats_when_disturbed() {
                    undisturbed(|| (method.measure)(cell, product))
                } else {
                    (method.measure)(cell, product)
                }
            })?;
            match outcome {
                Outcome::Done(sample) => samples.push(sample),
                Outcome::Failed(reason) if reason == ENDED => {}
                Outcome::Failed(reason) => row.failure = Some(reason),
            }
        }
    }
    let rows = found.into_iter().map(|(row, samples)| conclude(row, &samples)).collect();
    Ok(Found { title: cell.title.clone(), rows })
}

fn conclude(row: Row, samples: &[Sample]) -> Row {
    let figures = |field: fn(&Sample) -> Option<f64>| spread(&samples.iter().filter_map(field).collect::<Vec<_>>());
    let spread = figures(|sample| sample.cpu_us).or_else(|| figures(|sample| sample.rps)).filter(|_| samples.len() > 1);
    Row { median: Sample::median(samples), spread, ..row }
}
