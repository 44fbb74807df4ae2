//! What a report shows: plain data that a study computes and [`super::html`] draws. It knows no study.

use serde::{Deserialize, Serialize, Serializer};

/// A whole report. It stands in `results.json`, too, so that a report can be drawn again from the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Page {
    /// The study's name on the command line.
    pub study: String,
    /// Its title, for a person.
    pub title: String,
    /// What it asks, in one sentence.
    pub question: String,
    /// The published comparison: who, when, what was tested.
    pub article: String,
    /// A small run: not to be quoted.
    pub quick: bool,
    /// It was ended before its end.
    pub interrupted: bool,
    /// Name and value: date, kernel, processor, cores, rounds, sizes …
    pub facts: Vec<(String, String)>,
    /// The products that took part, in the order of tables and colours.
    pub products: Vec<ProductLine>,
    /// What the article found beside what was found here.
    pub findings: Vec<Finding>,
    /// The charts, in order.
    pub charts: Vec<Chart>,
    /// The tables, in order.
    pub tables: Vec<Table>,
    /// What differs from the article, and other remarks; a paragraph each.
    pub notes: Vec<String>,
    /// The configurations used.
    pub files: Vec<File>,
    /// The command that repeats it.
    pub repeat: String,
}

/// A product that took part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProductLine {
    pub name: String,
    pub version: String,
    /// Its TLS library.
    pub tls: String,
}

/// What the article found, and what was found here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Finding {
    pub article: String,
    pub here: String,
}

/// A configuration that was used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct File {
    pub product: String,
    pub name: String,
    pub text: String,
}

/// A chart. Charts with the same `group` stand together, one shown at a time with buttons of their `label`s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Chart {
    /// Charts of a group share a title; empty: the chart stands alone.
    pub group: String,
    pub label: String,
    pub title: String,
    /// One sentence that says how to read it.
    pub note: String,
    pub x: Axis,
    pub y: Axis,
    pub kind: ChartKind,
    pub series: Vec<Series>,
    /// Moments or bounds worth a line across the chart.
    pub marks: Vec<Mark>,
}

/// How the points are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChartKind {
    /// Points joined.
    #[default]
    Line,
    /// Points joined by steps: distributions.
    Step,
    /// Points alone; there may be some ten thousand of them.
    Scatter,
    /// Groups of bars; a point's `x` is the index into `x.categories`.
    Bars,
}

/// An axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Axis {
    /// What, with its unit: `latency, ms`.
    pub title: String,
    pub scale: Scale,
    /// Names of the places 0, 1, 2 … instead of numbers; empty: numbers.
    pub categories: Vec<String>,
}

/// How an axis runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scale {
    #[default]
    Linear,
    /// Values must be above 0; others are not drawn.
    Log,
    /// Percentiles 0 to 100, with each nine taking the same room.
    Nines,
}

/// One product's points.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    /// The product: it has one colour in all charts.
    pub product: String,
    /// Those that are no numbers are neither kept nor drawn.
    #[serde(serialize_with = "finite")]
    pub points: Vec<(f64, f64)>,
    /// Why there are no points.
    pub failure: Option<String>,
}

/// A line across the chart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// At this place of the x axis.
    pub at: f64,
    pub label: String,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Table {
    pub title: String,
    pub note: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<TableCell>>,
}

/// A place in a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TableCell {
    /// What it says.
    pub text: String,
    /// How it is shown.
    pub tone: Tone,
    /// More, shown when it is pointed at or opened: the reason of a failure, the spread.
    pub detail: String,
}

/// How a place in a table is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tone {
    #[default]
    Plain,
    /// The best of its row.
    Best,
    /// Errors, or a figure that is not to be trusted.
    Doubtful,
    /// It failed.
    Failed,
    /// It cannot do this.
    LeftOut,
}

/// JSON has no word for what is not finite: such points would make a file that cannot be read again.
fn finite<S: Serializer>(points: &[(f64, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_can_be_read_again_whatever_was_measured() {
        let points = vec![(1.0, f64::NAN), (f64::INFINITY, 2.0), (3.0, 4.0)];
        let series = vec![Series { points, ..Series::default() }];
        let page = Page { charts: vec![Chart { series, ..Chart::default() }], ..Page::default() };
        let read: Page = serde_json::from_str(&serde_json::to_string(&page).unwrap()).unwrap();
        assert_eq!(read.charts[0].series[0].points, [(3.0, 4.0)]);
    }
}
