//! Charts: the figures' frames and their text alternatives as HTML, the points as JSON for the scripts that draw them.

use super::colours::Look;
use super::html::{name, section};
use super::page::{Axis, Chart, ChartKind, Mark, Page, Scale, Series, TableCell};
use super::points::{drawn, finite, reached, summary};
use super::tables::grid;
use super::text::{escape, figure, script_json};
use serde::Serialize;
use std::fmt::Write;

/// Places of the x axis up to which all figures are written down.
const PLACES_MAX: usize = 40;

/// Percentages at which a long distribution is written down.
const PERCENTAGES: &[f64] = &[50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0];

/// All charts of a page; those of a group stand together where its first one stands.
pub(super) fn section_of(page: &Page, looks: &[Look]) -> String {
    let mut html = String::new();
    let mut done = Vec::new();
    for (number, chart) in page.charts.iter().enumerate() {
        if chart.group.is_empty() {
            let _ = writeln!(html, "<div class=\"card\">\n{}</div>", frame(number, chart, &chart.title, looks));
        } else if !done.contains(&&chart.group) {
            done.push(&chart.group);
            html.push_str(&group(page, &chart.group, looks));
        }
    }
    if !html.is_empty() {
        html.insert_str(0, "<noscript><p class=\"note\">Charts are drawn by JavaScript. Their figures stand in tables below each.</p></noscript>\n");
    }
    section("charts", "Charts", &html)
}

fn group(page: &Page, title: &str, looks: &[Look]) -> String {
    let members: Vec<(usize, &Chart)> =
        page.charts.iter().enumerate().filter(|(_, chart)| chart.group == title).collect();
    let shared = shared_title(&members);
    let title = escape(shared.unwrap_or(title));
    let mut html = format!("<div class=\"card group\">\n<h3>{title}</h3>\n");
    if members.len() > 1 {
        let _ = write!(html, "<div class=\"switch\" role=\"group\" aria-label=\"{title}\" hidden>");
        for (number, chart) in &members {
            let label = if chart.label.is_empty() { &chart.title } else { &chart.label };
            let _ = write!(html, "<button type=\"button\" data-shows=\"chart-{number}\">{}</button>", escape(label));
        }
        html.push_str("</div>\n");
    }
    for (number, chart) in members {
        let title = if shared.is_some() { &chart.label } else { &chart.title };
        html.push_str(&frame(number, chart, title, looks));
    }
    html.push_str("</div>\n");
    html
}

/// What stands before the label in the titles of all charts of a group: said once, above them.
fn shared_title<'a>(members: &[(usize, &'a Chart)]) -> Option<&'a str> {
    let before = |chart: &'a Chart| chart.title.strip_suffix(&chart.label)?.strip_suffix(": ");
    let first = before(members.first()?.1)?;
    members.iter().all(|(_, chart)| before(chart) == Some(first)).then_some(first)
}

/// The place of one chart: title, how to read it, room for the drawing, what failed, and the figures in words.
fn frame(number: usize, chart: &Chart, title: &str, looks: &[Look]) -> String {
    let mut html = format!("<figure id=\"chart-{number}\" class=\"chart\" data-chart=\"{number}\">\n<figcaption>");
    let level = if chart.group.is_empty() { "h3" } else { "h4" };
    if !title.is_empty() {
        let _ = write!(html, "<{level}>{}</{level}>", escape(title));
    }
    if !chart.note.is_empty() {
        let _ = write!(html, "<p class=\"note\">{}</p>", escape(&chart.note));
    }
    html.push_str("</figcaption>\n<div class=\"plot\"></div>\n");
    html.push_str(&failures(chart, looks));
    let _ = writeln!(
        html,
        "<details class=\"figures\"><summary>The figures</summary>\n{}{}</details>\n</figure>",
        figures(chart, looks),
        marks(chart)
    );
    html
}

fn failures(chart: &Chart, looks: &[Look]) -> String {
    let mut html = String::new();
    for series in &chart.series {
        if let Some(reason) = &series.failure {
            let who = name(&series.product, looks);
            let _ = writeln!(
                html,
                "<li><span class=\"sign\" aria-hidden=\"true\">✕</span> {who} failed: {}</li>",
                escape(reason)
            );
        }
    }
    if html.is_empty() { html } else { format!("<ul class=\"failures\">\n{html}</ul>\n") }
}

fn marks(chart: &Chart) -> String {
    let mut html = String::new();
    for Mark { at, label } in &chart.marks {
        let _ = writeln!(html, "<li>{}: {}</li>", escape(&place(&chart.x, *at)), escape(label));
    }
    if html.is_empty() { html } else { format!("<p>Marks:</p>\n<ul class=\"marks\">\n{html}</ul>\n") }
}

/// The figures of a chart in a table: all when they are few, else those that a reader asks for.
fn figures(chart: &Chart, looks: &[Look]) -> String {
    let mut places: Vec<f64> = chart.series.iter().flat_map(|series| finite(series).map(|(x, _)| x)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let is_percentage =
        chart.y.scale == Scale::Nines || chart.y.title.contains('%') || chart.y.title.contains("percent");
    if chart.kind != ChartKind::Scatter && places.len() <= PLACES_MAX {
        all(chart, &places, looks)
    } else if chart.kind == ChartKind::Step && is_percentage {
        distribution(chart, looks)
    } else {
        summaries(chart, looks)
    }
}

fn cell(text: impl Into<String>) -> TableCell {
    TableCell { text: text.into(), ..TableCell::default() }
}

/// A column for each series, after the first.
fn by_series(first: &str, chart: &Chart, rows: Vec<Vec<TableCell>>, looks: &[Look]) -> String {
    let names = chart.series.iter().map(|series| series.product.clone());
    let columns: Vec<String> = std::iter::once(first.to_owned()).chain(names).collect();
    grid(&format!("Figures: {}", chart.title), &columns, &rows, looks)
}

fn all(chart: &Chart, places: &[f64], looks: &[Look]) -> String {
    let row = |x: &f64| {
        let at = |series: &Series| {
            let found = finite(series).find(|point| point.0 == *x);
            cell(found.map_or("–".to_owned(), |(_, y)| figure(y)))
        };
        std::iter::once(cell(place(&chart.x, *x))).chain(chart.series.iter().map(at)).collect()
    };
    by_series(&chart.x.title, chart, places.iter().map(row).collect(), looks)
}

fn distribution(chart: &Chart, looks: &[Look]) -> String {
    let row = |percentage: &f64| {
        let at = |series: &Series| cell(reached(series, *percentage).map_or("–".to_owned(), figure));
        std::iter::once(cell(format!("{percentage} %"))).chain(chart.series.iter().map(at)).collect()
    };
    by_series(&format!("within, {}", chart.x.title), chart, PERCENTAGES.iter().map(row).collect(), looks)
}

fn summaries(chart: &Chart, looks: &[Look]) -> String {
    let at = format!("highest at, {}", chart.x.title);
    let columns = ["", "points", "lowest", "median", "99th percentile", "highest", &at].map(str::to_owned);
    let row = |series: &Series| {
        let figures = match summary(series) {
            None => vec![cell("–"); columns.len() - 1],
            Some(sum) => {
                let values = [sum.count as f64, sum.least, sum.median, sum.p99, sum.most];
                values
                    .map(|value| cell(figure(value)))
                    .into_iter()
                    .chain([cell(place(&chart.x, sum.most_at))])
                    .collect()
            }
        };
        std::iter::once(cell(&series.product)).chain(figures).collect()
    };
    let title = format!("Figures: {} – {}", chart.title, chart.y.title);
    grid(&title, &columns, &chart.series.iter().map(row).collect::<Vec<_>>(), looks)
}

/// A place of an axis in words.
fn place(axis: &Axis, at: f64) -> String {
    let category = if at >= 0.0 { axis.categories.get(at.round() as usize) } else { None };
    category.cloned().unwrap_or_else(|| figure(at))
}

/// What the scripts need.
#[derive(Serialize)]
struct Data<'a> {
    products: &'a [Look],
    charts: Vec<ChartData<'a>>,
}

#[derive(Serialize)]
struct ChartData<'a> {
    group: &'a str,
    title: &'a str,
    kind: ChartKind,
    x: &'a Axis,
    y: &'a Axis,
    marks: &'a [Mark],
    series: Vec<SeriesData>,
}

#[derive(Serialize)]
struct SeriesData {
    /// Index into the products.
    product: usize,
    /// x, y, x, y …
    points: Vec<f64>,
    /// Points before those upon each other were left out.
    measured: usize,
    failed: bool,
}

/// The points as JSON that may stand in a script element.
pub(super) fn data(page: &Page, looks: &[Look]) -> String {
    let chart = |chart: &'_ Chart| -> Vec<SeriesData> {
        let series = |series: &Series| SeriesData {
            product: looks.iter().position(|look| look.name == series.product).unwrap_or(0),
            points: drawn(series, chart).into_iter().flat_map(|(x, y)| [x, y]).collect(),
            measured: finite(series).count(),
            failed: series.failure.is_some(),
        };
        chart.series.iter().map(series).collect()
    };
    let charts = page.charts.iter().map(|one| ChartData {
        group: &one.group,
        title: &one.title,
        kind: one.kind,
        x: &one.x,
        y: &one.y,
        marks: &one.marks,
        series: chart(one),
    });
    script_json(&Data { products: looks, charts: charts.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::colours::looks;

    fn page(charts: Vec<Chart>) -> Page {
        Page { charts, ..Page::default() }
    }

    fn series(product: &str, points: Vec<(f64, f64)>) -> Series {
        Series { product: product.to_owned(), points, failure: None }
    }

    fn html(page: &Page) -> String {
        section_of(page, &looks(page))
    }

    #[test]
    fn charts_of_a_group_stand_together_behind_buttons() {
        let chart = |group: &str, label: &str| Chart { group: group.into(), label: label.into(), ..Chart::default() };
        let html = html(&page(vec![chart("g", "one"), chart("", ""), chart("g", "<two>")]));
        let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text} is not in {html}"));
        assert!(place("id=\"chart-0\"") < place("id=\"chart-2\"") && place("id=\"chart-2\"") < place("id=\"chart-1\""));
        assert!(html.contains("<button type=\"button\" data-shows=\"chart-2\">&lt;two&gt;</button>"));
    }

    #[test]
    fn what_all_titles_of_a_group_say_is_said_once() {
        let chart = |label: &str| Chart {
            group: "rate".into(),
            label: label.into(),
            title: format!("requests per second: {label}"),
            ..Chart::default()
        };
        let html = html(&page(vec![chart("HTTP"), chart("HTTPS")]));
        assert!(html.contains("<h3>requests per second</h3>") && html.contains("<h4>HTTPS</h4>"), "{html}");
        assert!(!html.contains("<h3>rate</h3>"));
    }

    #[test]
    fn few_figures_are_all_written_down_by_category() {
        let x = Axis { categories: vec!["50".into(), "250 & more".into()], ..Axis::default() };
        let series = vec![series("nginx", vec![(0.0, 12_345.0), (1.0, 7.5)]), series("envoy", vec![(1.0, 3.0)])];
        let html = html(&page(vec![Chart { kind: ChartKind::Bars, x, series, ..Chart::default() }]));
        for text in ["12,345", "250 &amp; more", "7.5", "–"] {
            assert!(html.contains(text), "{text} is not in {html}");
        }
    }

    #[test]
    fn a_long_distribution_is_written_down_by_percentages() {
        let points = (1..=1000).map(|n| (f64::from(n) * 2.0, f64::from(n) / 10.0)).collect();
        let y = Axis { title: "completed, %".into(), ..Axis::default() };
        let chart = Chart { kind: ChartKind::Step, y, series: vec![series("nginx", points)], ..Chart::default() };
        let html = html(&page(vec![chart]));
        assert!(html.contains("99.9 %") && html.contains("1,998"), "{html}");
    }

    #[test]
    fn what_failed_is_said_without_becoming_markup() {
        let failed =
            Series { product: "envoy".into(), failure: Some("</script><img onerror=x>".into()), ..Series::default() };
        let page = page(vec![Chart { series: vec![failed], ..Chart::default() }]);
        let html = html(&page);
        assert!(html.contains("failed: &lt;/script&gt;&lt;img onerror=x&gt;"), "{html}");
        let data = data(&page, &looks(&page));
        assert!(data.contains("\"failed\":true") && !data.contains('<'), "{data}");
    }

    #[test]
    fn a_series_knows_how_many_points_were_measured() {
        let many = series("nginx", (0..60_000).map(|n| (f64::from(n / 20), 1.0)).collect());
        let page = page(vec![Chart { kind: ChartKind::Scatter, series: vec![many], ..Chart::default() }]);
        let data: serde_json::Value = serde_json::from_str(&data(&page, &looks(&page))).unwrap();
        let series = &data["charts"][0]["series"][0];
        assert_eq!(series["measured"], 60_000);
        assert!(series["points"].as_array().unwrap().len() < 6_000);
        assert_eq!(data["products"][0]["name"], "nginx");
    }
}
