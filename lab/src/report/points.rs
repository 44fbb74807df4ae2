//! The points of a series on their way into a page: fewer where nobody could see them, figures where eyes do not help.

use super::page::{Axis, Chart, ChartKind, Scale, Series};
use super::text::rounded;
use std::collections::BTreeSet;

/// As many points of a series are carried as they are; above it, those that fall on the same spot are carried once.
const POINTS_MAX: usize = 20_000;

/// Spots that a drawing tells apart, across and up: more than the widest chart has on a fine screen.
const SPOTS: (f64, f64) = (2_500.0, 1_000.0);

/// The points that are drawn, with the digits that are shown.
pub(super) fn drawn(series: &Series, chart: &Chart) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = finite(series).map(|(x, y)| (rounded(x, 7), rounded(y, 6))).collect();
    if points.len() <= POINTS_MAX {
        return points;
    }
    let across = spot(&chart.x, SPOTS.0, &points.iter().map(|point| point.0).collect::<Vec<_>>());
    let up = spot(&chart.y, SPOTS.1, &points.iter().map(|point| point.1).collect::<Vec<_>>());
    let mut seen = BTreeSet::new();
    let mut before = None;
    let is_new = |point: &(f64, f64)| {
        let place = (across(point.0), up(point.1));
        match chart.kind {
            ChartKind::Scatter => seen.insert(place),
            // The order is the drawing: only repetitions of the one before may go.
            _ => before.replace(place) != Some(place),
        }
    };
    points.into_iter().filter(is_new).collect()
}

/// The points that can be drawn at all.
pub(super) fn finite(series: &Series) -> impl Iterator<Item = (f64, f64)> + '_ {
    series.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
}

/// The place of a value among the spots of its axis.
fn spot(axis: &Axis, spots: f64, values: &[f64]) -> impl Fn(f64) -> i64 + use<> {
    let is_log = axis.scale == Scale::Log;
    let place = move |value: f64| if is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.iter().copied().filter(|value| !is_log || *value > 0.0).map(place) {
        (least, most) = (least.min(value), most.max(value));
    }
    let room = (most - least).max(f64::MIN_POSITIVE);
    move |value| ((place(value) - least) / room * spots) as i64
}

/// A series in five figures.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Summary {
    pub count: usize,
    pub least: f64,
    pub median: f64,
    pub p99: f64,
    pub most: f64,
    /// Where the highest is.
    pub most_at: f64,
}

/// What the heights of a series come to; nothing without points.
pub(super) fn summary(series: &Series) -> Option<Summary> {
    let most = finite(series).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let mut heights: Vec<f64> = finite(series).map(|(_, y)| y).collect();
    heights.sort_by(f64::total_cmp);
    let rank = |share: f64| {
        let place = (share * heights.len() as f64).ceil() as usize;
        heights[place.clamp(1, heights.len()) - 1]
    };
    let count = heights.len();
    Some(Summary { count, least: rank(0.0), median: rank(0.5), p99: rank(0.99), most: most.1, most_at: most.0 })
}

/// The first place at which a rising series reaches a height.
pub(super) fn reached(series: &Series, height: f64) -> Option<f64> {
    finite(series).find(|(_, y)| *y >= height).map(|(x, _)| x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(points: Vec<(f64, f64)>) -> Series {
        Series { points, ..Series::default() }
    }

    #[test]
    fn a_short_series_keeps_every_point_that_is_a_number() {
        let points = vec![(1.0, 2.0), (f64::NAN, 1.0), (3.123_456_789, 1.0 / 3.0), (4.0, f64::INFINITY)];
        assert_eq!(drawn(&series(points), &Chart::default()), vec![(1.0, 2.0), (3.123_457, 0.333_333)]);
    }

    #[test]
    fn a_long_scatter_keeps_its_highest_point_and_loses_only_what_lies_upon_another() {
        let y = |n: usize| if n == 77_777 { 900.0 } else { 1.0 + (n % 7) as f64 };
        let all = series((0..300_000).map(|n| (n as f64 / 1000.0, y(n))).collect());
        let chart = Chart { kind: ChartKind::Scatter, ..Chart::default() };
        let kept = drawn(&all, &chart);
        assert!(kept.len() < 40_000, "{}", kept.len());
        assert!(kept.contains(&(77.777, 900.0)));
        assert_eq!(kept[0], (0.0, 1.0));
    }

    #[test]
    fn a_series_is_summed_up() {
        let sum = summary(&series((1..=200).map(|n| (f64::from(n), f64::from(n) * 2.0)).collect())).unwrap();
        assert_eq!(sum, Summary { count: 200, least: 2.0, median: 200.0, p99: 396.0, most: 400.0, most_at: 200.0 });
        assert_eq!(summary(&series(vec![])), None);
    }

    #[test]
    fn a_distribution_is_read_at_a_percentage() {
        let rising = series(vec![(1.0, 40.0), (2.0, 90.0), (9.0, 100.0)]);
        assert_eq!([50.0, 90.0, 99.0].map(|p| reached(&rising, p)), [Some(2.0), Some(2.0), Some(9.0)]);
        assert_eq!(reached(&series(vec![]), 50.0), None);
    }
}
